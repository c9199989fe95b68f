"""One process of the benchmark: a list of cases on the devices that it sees.

Prints a line of JSON for each result as soon as there is one.
"""

import argparse
import contextlib
import dataclasses
import json
import os
import time
import traceback

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf

from benchmarks.scaling import cases, step

REDUCERS = {
    "nccl": tf.distribute.NcclAllReduce,
    "copy": tf.distribute.HierarchicalCopyAllReduce,
}


def say(**fields):
    """A line of the protocol with benchmarks.scaling."""
    print("@" + json.dumps(fields), flush=True)


def devices(kind, small):
    """Names of the devices to train on; without a GPU, two that the CPU stands for."""
    gpus = tf.config.list_physical_devices("GPU")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    if gpus:
        return [gpu.name.replace("/physical_device:", "") for gpu in gpus]
    if not small:
        raise SystemExit("no GPU: --small runs on a CPU")
    if kind in ("one", "workers"):
        return ["CPU:0"]
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    return ["CPU:0", "CPU:1"]


def make_strategy(kind, names):
    """None for one device, so that fit does what it does without a strategy."""
    if kind == "one":
        return None
    if kind == "workers":
        communication = tf.distribute.experimental.CommunicationImplementation.AUTO
        options = tf.distribute.experimental.CommunicationOptions(implementation=communication)
        return tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
    return tf.distribute.MirroredStrategy(names[:2], cross_device_ops=REDUCERS[kind]())


def seconds_of_loop(model, strategy, dataset, case, seconds):
    """As seconds_of_fit, by a loop of our own: Keras's fit cannot run several workers."""
    batches = iter(strategy.experimental_distribute_dataset(dataset))

    @tf.function
    def steps():
        loss = tf.constant(0.0)
        for _ in tf.range(case.steps):
            each = strategy.run(model.train_step, args=(next(batches),))
            loss = strategy.reduce("MEAN", next(iter(each.values())), axis=None)
        return loss

    def run(count):
        start = time.perf_counter()
        for _ in range(count):
            loss = steps()
        return float(loss), time.perf_counter() - start

    run(2)
    # All workers have to run the same number of steps, whatever their clocks say.
    estimate = strategy.reduce("MEAN", tf.constant(run(3)[1] / 3, tf.float32), axis=None)
    count = int(np.clip(seconds / float(estimate), 3, 100))
    loss, took = run(count)
    return took / count / case.steps, loss


def run_case(case, kind, strategy, sizes, seconds):
    """Builds, times, prints."""
    keras.backend.clear_session()
    replicas = strategy.num_replicas_in_sync if strategy else 1
    start = time.perf_counter()
    with strategy.scope() if strategy else contextlib.nullcontext():
        model = step.make_model(case, sizes)
        model.optimizer.build(model.trainable_variables)
    dataset = step.make_dataset(case.batch * replicas, sizes)
    if kind == "workers":
        took, loss = seconds_of_loop(model, strategy, dataset, case, seconds)
    else:
        took, loss = step.seconds_of_fit(model, dataset, case.steps, seconds)
    say(
        kind=kind,
        case=dataclasses.asdict(case),
        replicas=replicas,
        ms=1e3 * took,
        tokens=case.batch * replicas * sizes.time / took,
        loss=loss,
        all_s=time.perf_counter() - start,
    )
    if case.parts:
        strategy = strategy or tf.distribute.get_strategy()
        for name, function in step.part_functions(model, strategy, case.batch, sizes).items():
            try:
                say(kind=kind, part=name, ms=1e3 * step.seconds_of(function, seconds / 2))
            except Exception as error:
                say(kind=kind, part=name, error=f"{type(error).__name__}: {error}"[:600])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kind", choices=["one", *REDUCERS, "workers"], required=True)
    parser.add_argument("--cases", type=json.loads, required=True, help="a list, in JSON")
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args()
    names = devices(options.kind, options.small)
    strategy = make_strategy(options.kind, names)
    keras.config.set_dtype_policy("mixed_bfloat16")
    sizes = cases.SMALL if options.small else cases.Sizes()
    gpus = tf.config.list_physical_devices("GPU")
    details = tf.config.experimental.get_device_details(gpus[0]) if gpus else {}
    say(device=f"TensorFlow {tf.__version__}, {len(names)} × {details.get('device_name', 'CPU')}")
    for fields in options.cases:
        case = cases.Case(**fields)
        try:
            run_case(case, options.kind, strategy, sizes, options.seconds)
        except Exception as error:  # the next case may run
            traceback.print_exc()
            text = f"{type(error).__name__}: {error}"
            say(kind=options.kind, case=fields, error=text[:600])


if __name__ == "__main__":
    main()
