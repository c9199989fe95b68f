"""haste_keras.LSTM against keras.layers.LSTM under TensorFlow on one GPU.

    python -m benchmarks.gpu_layers [--seconds 3]

The same weights, return_sequences, inside tf.function, no TF32; outputs and gradients are
compared before anything is timed. The first table is the plain layer, where Keras runs cuDNN,
with the peak device memory of a training step. The second has options with which Keras does not use
cuDNN. The third has large layers as they are trained: TF32 allowed, which is TensorFlow's default,
and mixed_float16. Each row has both layers compiled by XLA too.
"""

import argparse
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import tensorflow as tf

from benchmarks import cases, measure, shapes

PLAIN = [shapes.GPU_LONG, (32, 100, 128, 256), (64, 100, 256, 512), (1, 100, 128, 256)]
LARGE = [(32, 100, 256, 512), (128, 100, 256, 1024), (128, 100, 256, 2048)]
FEATURES_AT = (32, 100, 128, 256)
FEATURES = {
    "plain": {},
    # With use_cudnn="auto" Keras raises an error here; this is what the error advises.
    "left-padded mask": {"mask": True, "use_cudnn": False},
    "relu": {"activation": "relu"},
    "recurrent_dropout": {"recurrent_dropout": 0.1},
    # Without cuDNN: its bfloat16 gradients failed the comparison (docs/performance/gpu.md).
    "mixed_bfloat16": {"dtype": "mixed_bfloat16", "use_cudnn": False},
}


def left_padded(n, t):
    """[n, t] mask of sequences of different lengths that end together."""
    return tf.reverse(tf.sequence_mask(tf.linspace(t // 2, t, n), t), [1])


def peak_of(step):
    """Bytes that a call of `step` takes at its peak, on the device."""
    step()
    tf.config.experimental.reset_memory_stats("GPU:0")
    before = tf.config.experimental.get_memory_info("GPU:0")["current"]
    step()
    return tf.config.experimental.get_memory_info("GPU:0")["peak"] - before


def compiled_by_xla(layer, shape, arguments):
    """The peer again, for XLA, which cannot run cuDNN's recurrences: with its weights."""
    other = keras.layers.LSTM(shape[3], return_sequences=True, **{**arguments, "use_cudnn": False})
    other.build((None, None, shape[2]))
    other.set_weights(layer.get_weights())
    return other


def run_case(shape, seconds, tolerance=None, **arguments):
    """Ours and the peer, and ({peer: seconds} of inference, the same of a training step)."""
    mask = left_padded(*shape[:2]) if arguments.pop("mask", False) else None
    x, target, (mine, theirs) = cases.make_layers("LSTM", *shape, **arguments)
    ours, peer = (cases.make_functions(layer, x, target, mask) for layer in (mine, theirs))
    again = compiled_by_xla(theirs, shape, arguments)
    ours_xla, peer_xla = (
        cases.make_functions(layer, x, target, mask, jit_compile=True) for layer in (mine, again)
    )
    tolerance = tolerance or (5e-2 if "dtype" in arguments else 1e-4)
    for other in (peer, ours_xla, peer_xla):
        cases.check(ours[0], other[0], f"{shape} {arguments} inference", tolerance)
        if not arguments.get("recurrent_dropout"):  # Keras draws a mask a gate, we one for all
            cases.check(ours[1], other[1], f"{shape} {arguments} training", tolerance)
    for functions in (ours, peer, ours_xla, peer_xla):
        functions[1]()  # traced and compiled before it is timed
    peers = {"ours": ours, "keras": peer, "ours XLA": ours_xla, "keras XLA": peer_xla}
    times = [
        measure.interleaved_medians(
            {name: cases.blocking(functions[i]) for name, functions in peers.items()}, seconds
        )
        for i in range(2)
    ]
    return ours, peer, times


HEAD = "".join(
    f" | {kind:10}keras  ratio  XLA: ours  keras  ratio" for kind in ("inference", "training")
)


def columns(times):
    """Milliseconds of both and the ratio, then both with XLA; for inference and training."""
    return "".join(
        f" |{1e3 * t['ours']:9.2f} {1e3 * t['keras']:6.2f} {t['keras'] / t['ours']:6.2f}"
        f"{1e3 * t['ours XLA']:11.2f} {1e3 * t['keras XLA']:6.2f}"
        f" {t['keras XLA'] / t['ours XLA']:6.2f}"
        for t in times
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3.0, help="to time a pair of peers")
    options = parser.parse_args()
    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        raise SystemExit("needs a GPU")
    tf.config.experimental.enable_tensor_float_32_execution(False)
    name = tf.config.experimental.get_device_details(gpus[0]).get("device_name")
    print(f"TensorFlow {tf.__version__}, {name}, float32; medians in ms; ratio = keras / ours")
    print("   N    T    C    H" + HEAD + " | MiB budget keras")
    for shape in PLAIN:
        ours, peer, times = run_case(shape, options.seconds)
        memory = [peak_of(ours[1]), cases.memory_budget("LSTM", *shape), peak_of(peer[1])]
        text = "".join(f"{s:5}" for s in shape) + columns(times)
        print(text + " |" + " ".join(f"{m / 2**20:5.0f}" for m in memory), flush=True)
    print(f"\n{FEATURES_AT!s:20}" + HEAD)
    for feature, arguments in FEATURES.items():
        _, _, times = run_case(FEATURES_AT, options.seconds, **arguments)
        print(f"{feature:20}" + columns(times), flush=True)
    print("\nlarge layers      " + HEAD)
    tf.config.experimental.enable_tensor_float_32_execution(True)
    for shape in LARGE:
        for dtype in ("float32", "mixed_float16"):
            _, _, times = run_case(shape, options.seconds, tolerance=5e-2, dtype=dtype)
            text = "".join(f"{s:5}" for s in shape)
            print(f"{text} {dtype:14}" + columns(times), flush=True)


if __name__ == "__main__":
    main()
