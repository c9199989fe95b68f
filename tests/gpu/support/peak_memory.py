"""Peak device memory of a training step, and its budget, in bytes.

python peak_memory.py LAYER DEVICE

Each layer runs in a process of its own: TensorFlow's allocator gives away a free piece of up to
twice the size as a whole, and counts all of it. So earlier tensors would change the result. On the
CPU that allocator needs TF_CPU_ALLOCATOR_USE_BFC=1.
"""

import sys

import numpy as np
import tensorflow as tf

import haste_keras

# Tensors [N, T, H] between forward and backward: gates, states, other saved tensors, and the
# gradient of GRU's h·R.
RESERVE = {"LSTM": 4 + 2, "GRU": 3 + 2 + 3, "Elman": 1 + 1, "SLSTM": 4 + 4}


def measure(name, device):
    """The peak and the budget."""
    n, t, c, h = 16, 128, 512, 512
    layer = getattr(haste_keras, name)(h, return_sequences=True)
    x = tf.random.normal((n, t, c))
    target = tf.random.normal((n, t, h))

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(layer(x, training=True) * target)
        return tape.gradient(loss, [x, *layer.trainable_weights])

    step()
    tf.config.experimental.reset_memory_stats(device)
    before = tf.config.experimental.get_memory_info(device)["current"]
    step()
    peak = tf.config.experimental.get_memory_info(device)["peak"] - before
    weights = sum(int(np.prod(weight.shape)) for weight in layer.trainable_weights)
    reserve = 4 * n * t * h * RESERVE[name]
    inputs_outputs = 4 * (2 * n * t * (c + h) + 2 * weights)
    return peak, reserve + inputs_outputs + 4 * 4 * h * h


if __name__ == "__main__":
    name, device = sys.argv[1:]
    with tf.device(device):
        print(*measure(name, device))
