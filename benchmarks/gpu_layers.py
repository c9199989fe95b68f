"""haste_keras.LSTM beside keras.layers.LSTM (cuDNN) under TensorFlow on one GPU.

    python -m benchmarks.gpu_layers [--seconds 3]

float32 without TF32, return_sequences, the same weights, inside tf.function; outputs and gradients
are compared first. The last line of a case states the device memory of a training step at its peak.
"""

import argparse
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tensorflow as tf

from benchmarks import cpu, measure, shapes

CASES = [shapes.GPU_LONG, (32, 100, 128, 256), (64, 100, 256, 512), (1, 100, 128, 256)]


def peak_of(step):
    """Bytes that a call of `step` takes at its peak, on the device."""
    step()
    tf.config.experimental.reset_memory_stats("GPU:0")
    before = tf.config.experimental.get_memory_info("GPU:0")["current"]
    step()
    return tf.config.experimental.get_memory_info("GPU:0")["peak"] - before


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
    print(
        "   N    T    C    H | inference keras  ratio | training  keras  ratio | MiB budget keras"
    )
    for shape in CASES:
        ours, peer = cpu.make_case("LSTM", *shape)
        text = "".join(f"{s:5}" for s in shape)
        for kind, mine, theirs in zip(("inference", "training"), ours, peer, strict=True):
            cpu.check(mine, theirs, f"{shape} {kind}")
            times = measure.interleaved_medians(
                {"ours": cpu.blocking(mine), "keras": cpu.blocking(theirs)}, options.seconds
            )
            ratio = times["keras"] / times["ours"]
            text += f" |{1e3 * times['ours']:9.2f} {1e3 * times['keras']:6.2f} {ratio:6.2f}"
        memory = [peak_of(ours[1]), cpu.memory_budget("LSTM", *shape), peak_of(peer[1])]
        print(text + " |" + " ".join(f"{m / 2**20:5.0f}" for m in memory), flush=True)


if __name__ == "__main__":
    main()
