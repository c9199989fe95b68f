"""Initial states that are left out, and gradients of outputs that nothing uses, are no tensors."""

import numpy as np
import pytest
import tensorflow as tf

SIZES = {"N": 3, "T": 5, "K": 2, "H": 4}


def _bits(tensors):
    return [np.asarray(tensor).tobytes() for tensor in tensors]


@pytest.mark.parametrize("wrap", [lambda run: run, tf.function], ids=["eager", "graph"])
def test_no_initial_state_is_one_of_zeros(row, rng, wrap):
    tensors = row.inputs(rng, dtype=tf.float32)
    states = {f"{state}0": tf.zeros_like(tensors[f"{state}0"]) for state in row.spec.states}
    without = {name: tensor for name, tensor in tensors.items() if name not in states}
    weigh = row.loss(rng, row.call(tensors))

    def run(given):
        with tf.GradientTape() as tape:
            tape.watch(without)
            outputs = row.call(given, training=True)
            loss = weigh(outputs)
        return outputs, tape.gradient(loss, without)

    one = wrap(lambda: run(without))()
    other = wrap(lambda: run({**without, **states}))()
    assert _bits(tf.nest.flatten(one)) == _bits(tf.nest.flatten(other))


def test_some_states_may_be_left_out(row, rng):
    """An op takes [0] for each of them."""
    tensors = row.inputs(rng, dtype=tf.float32)
    inputs = {**row.arguments(batch=3, time=5, mask=[0], seed=[0]), **tensors}
    for state in row.spec.states:
        name = f"{state}0"
        one = row.raw({**inputs, name: tf.zeros([0])}.values())
        other = row.raw({**inputs, name: tf.zeros_like(inputs[name])}.values())
        assert _bits(tf.nest.flatten(one)) == _bits(tf.nest.flatten(other)), name


@pytest.mark.parametrize("batch", [SIZES["N"], None])
def test_unused_outputs_have_no_gradient(row, rng, batch):
    """TensorFlow gives a gradient zeros for them; in a graph the gradient's op is given [0]."""
    tensors = row.inputs(rng, dtype=tf.float32)
    dims = row.spec.forward_inputs
    signature = {
        name: tf.TensorSpec(row.shape(dims[name], {**SIZES, "N": batch})) for name in tensors
    }
    outputs = ["y", *row.spec.states][: len(row.call(tensors))]
    for used, name in enumerate(outputs):
        if name == "m":  # sLSTM's, which has no gradient
            continue

        def gradients(given, used=used):
            with tf.GradientTape() as tape:
                tape.watch(given)
                loss = tf.reduce_sum(row.call(given, training=True)[used] ** 2)
            return tape.gradient(loss, given, unconnected_gradients="zero")

        compiled = tf.function(gradients, input_signature=[signature])
        assert _bits(compiled(tensors).values()) == _bits(gradients(tensors).values())
        graph = compiled.get_concrete_function().graph
        (op,) = (op for op in graph.get_operations() if op.type == row.spec.op + "Grad")
        given = dict(zip(row.spec.backward_inputs, op.inputs, strict=True))
        assert {each for each in outputs if given[f"d{each}"].shape.rank != 1} == {name}
