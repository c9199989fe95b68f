"""`tf.vectorized_map` over the ops: the loop's dimension is folded into the batch.

Without this, TensorFlow runs a loop of one op call an element. `keras.layers.TimeDistributed`
comes here too. TensorFlow's registry of converters is private: where it is absent nothing is
registered, and TensorFlow loops.
"""

import functools

import tensorflow as tf

from haste_keras import _raw
from haste_keras._cells import CELLS
from haste_keras._checks import sizes

try:
    from tensorflow.python.ops.parallel_for.pfor import RegisterPFor, wrap
except ImportError:
    RegisterPFor = None


def _convert(pfor_input, function, *, leading, shared):
    """`function` on inputs [loop · N, …] -> outputs [loop, N, …].

    leading: the input that says how large the batch is; it must differ between iterations.
    shared: inputs that must not, having no batch. Where that is not so, TensorFlow's exception
    from here makes it loop over the op.
    """
    loop, batch = sizes(pfor_input.stacked_input(leading))[:2]
    # An input that is a vector is an optional one that was left out: [0] stays [0].
    folded = [
        i for i, t in enumerate(pfor_input.op.inputs) if i not in shared and t.shape.rank != 1
    ]
    pfor_input.stack_inputs(folded)
    inputs = []
    for i in range(pfor_input.num_inputs):
        if i in folded:
            tensor = pfor_input.stacked_input(i)
            inputs.append(tf.reshape(tensor, [loop * batch, *sizes(tensor)[2:]]))
        else:
            inputs.append(pfor_input.unstacked_input(i))
    outputs = []
    for tensor in function(inputs):
        if tensor.shape.rank == 1:
            outputs.append(wrap(tensor, False))
        else:
            outputs.append(wrap(tf.reshape(tensor, [loop, batch, *sizes(tensor)[1:]]), True))
    return outputs


def _register(spec):
    count = len(spec.states)

    @RegisterPFor(spec.op)
    def convert_forward(pfor_input):
        function = functools.partial(
            _raw.forward,
            spec,
            save=pfor_input.get_attr("save"),
            **_raw.attributes(pfor_input.op),
        )
        return _convert(pfor_input, function, leading=0, shared=(1, 3 + count))

    @RegisterPFor(spec.op + "Grad")
    def convert_backward(pfor_input):
        function = functools.partial(_raw.backward, spec, **_raw.attributes(pfor_input.op))
        return _convert(pfor_input, function, leading=3, shared=(0, 2))


if RegisterPFor is not None:
    for _spec in CELLS:
        _register(_spec)
