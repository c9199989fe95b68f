"""`haste_keras.native.cell_spec` describes every cell as the library does."""

import pytest
from tensorflow.python.framework import op_def_registry

import haste_keras
from haste_keras.native import library
from haste_keras.native.cell_spec import CELLS


@pytest.fixture(scope="module")
def infos():
    """{name: CellInfo} of the library."""
    return library.c_api().cells()


def names(array, count):
    return tuple(name.decode() for name in array[:count])


def test_same_cells(infos):
    assert sorted(infos) == sorted(spec.name for spec in CELLS)


@pytest.mark.parametrize("spec", CELLS, ids=lambda spec: spec.name)
def test_cell(infos, spec):
    info = infos[spec.name]
    assert names(info.gate_names, info.gates) == spec.gates
    assert names(info.state_names, info.states) == spec.states
    assert names(info.saved_names, info.saved) == spec.saved
    extras = names(info.extra_names, info.extras), names(info.extra_dims, info.extras)
    assert dict(zip(*extras, strict=True)) == spec.extras
    assert ("dense", "diagonal", "none")[info.recurrence] == spec.recurrence
    for flag in ("separate_gates", "normalizes", "splits_gradient", "exponential"):
        assert getattr(info, flag) == getattr(spec, flag), flag
    assert info.reset_gates == spec.reset_gates
    own = (
        getattr(haste_keras, f"{spec.layer}Cell").own_zoneout if spec.layer != "ForgetMult" else ()
    )
    assert info.tied_zoneout == (own == tuple(range(1, len(spec.states))) != ())


@pytest.mark.parametrize("spec", CELLS, ids=lambda spec: spec.name)
def test_arguments_of_the_ops(spec):
    library.load()
    ops = [
        (spec.op, spec.forward_inputs, spec.forward_outputs),
        (spec.op + "Grad", spec.backward_inputs, spec.backward_outputs),
    ]
    assert (op_def_registry.get(spec.op + "Layer") is not None) == spec.has_layer_op
    if spec.has_layer_op:
        ops += [
            (spec.op + "Layer", spec.layer_inputs, spec.forward_outputs),
            (spec.op + "LayerGrad", spec.layer_backward_inputs, spec.layer_backward_outputs),
        ]
    has_int8_layer = spec.has_int8_op and spec.has_layer_op
    assert (op_def_registry.get(spec.op + "Int8") is not None) == spec.has_int8_op
    assert (op_def_registry.get(spec.op + "LayerInt8") is not None) == has_int8_layer
    results = ["y", *spec.states]
    if spec.has_int8_op:
        ops.append((spec.op + "Int8", spec.int8_inputs, results))
    if has_int8_layer:
        ops.append((spec.op + "LayerInt8", spec.layer_int8_inputs, results))
    for op, inputs, outputs in ops:
        definition = op_def_registry.get(op)
        assert [argument.name for argument in definition.input_arg] == list(inputs)
        assert [argument.name for argument in definition.output_arg] == list(outputs)
        attributes = {attribute.name for attribute in definition.attr}
        assert ("epsilon" in attributes) == spec.normalizes
        assert ("save" in attributes) == (not op.endswith(("Grad", "Int8")))
        assert ("wanted" in attributes) == op.endswith("LayerGrad")
