"""The planner's costs: what benchmarks/fit_plan.py makes of the timings in the repository."""

import ctypes
import re

import numpy as np
import pytest

from benchmarks import fit_plan
from haste_keras.native import binding, library

LIBRARY = fit_plan.BUILT / "libplan_costs.so"


def table(device):
    """The generated file: cost by name, as text."""
    text = (fit_plan.ROOT / f"lib/plan/costs/costs_{device}.inc").read_text()
    return dict(re.findall(r"^HASTE_COST\((.+), (\S+)\)", text, re.MULTILINE))


@pytest.fixture(scope="module", params=fit_plan.DEVICES)
def timed(request):
    """A device, its rows and the planner's estimates of these."""
    rows = fit_plan.read_rows(request.param)
    return request.param, rows, fit_plan.Planner(LIBRARY, rows)


def test_the_fit_gives_the_table(timed):
    name, rows, planner = timed
    priors = fit_plan.read_priors()
    costs = fit_plan.fit(planner, rows, priors)
    committed = table(name)
    assert list(committed) == list(priors)
    for cost, text in committed.items():
        if priors[cost][1]:
            assert float(text) == priors[cost][0], cost
            continue
        # Other machines may round the other way.
        last = 10.0 ** (np.floor(np.log10(costs[cost])) + 1 - fit_plan.DIGITS)
        assert abs(float(text) - costs[cost]) < 1.001 * last, cost


def test_the_planner_has_the_table(timed):
    name, _, planner = timed
    assert planner.compiled == {cost: float(text) for cost, text in table(name).items()}


def test_the_library_has_the_table(timed):
    """All cuts of `block` are timed; the library says how many clocks the shortest one takes."""
    _, rows, planner = timed
    device = rows[0].device
    properties = binding.DeviceProperties(
        *device[:5], (ctypes.c_int32 * len(device[5:]))(*device[5:])
    )
    least = {}
    for row, clocks in zip(rows, planner.estimate(planner.compiled), strict=True):
        if (row.kind, row.engine) == ("plan", "block") and not row.problem[-1]:
            least[row.problem] = min(least.get(row.problem, np.inf), clocks)
    assert len(least) > 20
    for (cell, dtype, *sizes, _), clocks in least.items():
        config = binding.RnnConfig(cell=cell.encode(), engine=b"block", time=1)
        config.device = binding.DEVICES["cuda"]
        config.dtype = binding.DTYPES["bfloat16" if dtype == "bf16" else "float32"]
        config.allow_tf32 = dtype == "tf32"
        config.recurrent_activation = binding.ACTIVATIONS["sigmoid"]
        config.batch, config.lanes, config.hidden = sizes
        text = library.c_api().plan_for(config, properties)
        assert f"about {clocks:.0f} clocks a step" in text, (cell, dtype, sizes)
