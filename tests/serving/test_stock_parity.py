"""Portable exports give the numbers of our ops, in a process without haste_keras."""

import numpy as np
import pytest
from stock_cases import TOLERANCE, names
from stock_models import MODELS


def _outputs(results, prefix):
    return [results[name] for name in sorted(results) if name.startswith(prefix)]


@pytest.mark.parametrize(("layer", "kind", "dtype"), names(), ids=map(" ".join, names()))
def test_a_layer(layer, kind, dtype, found, expected):
    prefix = f"cases/{layer} {kind} {dtype}/".replace(" ", "_")
    outputs, ours = _outputs(found, prefix), _outputs(expected, prefix)
    assert len(outputs) == len(ours) > 0
    for output, our in zip(outputs, ours, strict=True):
        assert np.any(our)
        error = np.abs(output - our) / np.maximum(1, np.abs(our))
        assert error.max() < TOLERANCE[dtype]


@pytest.mark.parametrize("model", MODELS)
def test_a_model(model, found, expected):
    ours = [name for name in expected if name.startswith(f"{model}/")]
    assert ours == [name for name in found if name.startswith(f"{model}/")]
    for name in ours:
        np.testing.assert_allclose(found[name], expected[name], rtol=4e-6, atol=2e-6, err_msg=name)
        assert found[name].dtype == expected[name].dtype
