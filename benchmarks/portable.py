"""Exports without our ops against Keras's and against exports with them, in stock TensorFlow.

    python -m benchmarks.portable [--layers LSTM GRU …] [--batch 1 32] [--seconds 4] [--cpu]

Inference in float32 of one layer with return_sequences, T=100, C=128, H=256, from SavedModels that
a process without haste_keras loads. `keras` is the time of Keras's layer, or of Keras's loop over
our cell where it has no such layer, over that of the portable export; `op` is the time of the
portable export over that of the export with our op, whose library alone is loaded. Peers take
turns; the figures are medians: of wall time, or with --cpu of the process's CPU time on one thread,
which a busy machine changes little.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

TIME, FEATURES, UNITS = 100, 128, 256


def export(folder, names, directions):
    """Writes the models of each layer: folder/NAME/{keras, portable, op}."""
    import keras

    import haste_keras
    from benchmarks import cases

    for name in names or cases.LAYERS:
        case = cases.LAYERS[name]
        for direction in directions:
            models = {}
            for kind, make in (("keras", case.peer), ("portable", case.ours)):
                layer = make(UNITS, return_sequences=True)
                if direction == "bidirectional":
                    layer = keras.layers.Bidirectional(layer)
                    if kind == "portable":
                        layer = make(UNITS, return_sequences=True, direction=direction)
                models[kind] = keras.Sequential([keras.Input((None, FEATURES)), layer])
            for weight in models["keras"].weights:
                if weight.name == "gamma":  # as in cases.make_layers: 1 is chaotic
                    weight.assign(0.1 * weight)
            models["portable"].set_weights(models["keras"].get_weights())
            path = folder / f"{name} {direction}"
            models["keras"].export(path / "keras", verbose=False)
            for kind in ("portable", "op"):
                haste_keras.export(
                    models["portable"], path / kind, portable=kind == "portable", verbose=False
                )
    (folder / "library").write_text(haste_keras.library_path())


def measure_all(folder, batches, seconds, cpu):
    """Prints a row for each model and batch."""
    import numpy as np
    import tensorflow as tf

    from benchmarks.measure import interleaved_medians

    if cpu:
        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(1)
    clock = time.process_time if cpu else time.perf_counter
    tf.load_op_library((folder / "library").read_text())
    print("| layer | N | ms | keras | op |\n|---|---|---|---|---|")
    for path in sorted(each for each in folder.iterdir() if each.is_dir()):
        models = {kind: tf.saved_model.load(path / kind) for kind in ("keras", "portable", "op")}
        for batch in batches:
            x = np.random.default_rng(0).normal(size=(batch, TIME, FEATURES)).astype("float32")
            x = tf.constant(x)
            outputs = {kind: model.serve(x).numpy() for kind, model in models.items()}
            for kind in ("keras", "op"):
                np.testing.assert_allclose(outputs["portable"], outputs[kind], atol=2e-5)
            calls = {
                kind: lambda m=model, x=x: m.serve(x).numpy() for kind, model in models.items()
            }
            times = interleaved_medians(calls, seconds, burst=0.05, clock=clock)
            ours = times["portable"]
            print(
                f"| {path.name.removesuffix(' forward')} | {batch} | {1e3 * ours:.2f} | "
                f"{times['keras'] / ours:.2f} | {ours / times['op']:.2f} |",
                flush=True,
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--layers", nargs="+")
    parser.add_argument("--directions", nargs="+", default=["forward"])
    parser.add_argument("--batch", nargs="+", type=int, default=[1, 32])
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--measure", type=pathlib.Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        measure_all(arguments.measure, arguments.batch, arguments.seconds, arguments.cpu)
        return
    with tempfile.TemporaryDirectory() as folder:
        export(pathlib.Path(folder), arguments.layers, arguments.directions)
        options = ["--seconds", str(arguments.seconds), "--batch", *map(str, arguments.batch)]
        options += ["--cpu"] if arguments.cpu else []
        command = [sys.executable, "-m", "benchmarks.portable", "--measure", folder, *options]
        # Else the graph optimizer in the library makes the portable export run our op.
        environment = {**os.environ, "HASTE_GRAPH_PLUGIN": "0"}
        subprocess.run(command, check=True, env=environment)


if __name__ == "__main__":
    main()
