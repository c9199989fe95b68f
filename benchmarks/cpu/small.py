"""Small batches in inference, as a server or a stream sees them: `benchmarks.cpu --small`.

A call of a few microseconds is mostly what calls it. So four more times are in the table:

- `call`, a tf.function that returns its input: the least that a layer in a tf.function can take
- `engine`, our library through its C API, with no TensorFlow, as PyTorch and ONNX Runtime run here
- `both`, the engine and then `call`, which displace each other's data from the caches: what a layer
  with this engine could take in a tf.function
- `woken`, the engine and `call` twice, less the time of `call`: the same if the engine's helpers
  sleep when it begins, as TensorFlow's do. (The library's own look for work for 200 µs.)
"""

import functools

import tensorflow as tf

from benchmarks import cases, measure
from benchmarks.cpu import engine, peers

HEADER = (
    "layer        N    T    C    H |  ours µs    call    both   woken  engine   torch     ort |"
    " ours  engine | ours/both  ours/woken"
)

BESIDE = ("ours", "call", "both", "woken")


def run_row(name, shape, seconds):
    """Times a layer at a shape, prints the line, returns {column: seconds}.

    Results are compared first; SystemExit if they differ.
    """
    x, target, layers = cases.make_layers(name, *shape)
    ours, keras_layer = (cases.make_functions(layer, x, target)[0] for layer in layers)
    weights, array = layers[1].get_weights(), x.numpy()
    direct = engine.Engine(name, weights, array)
    cases.check(ours, keras_layer, f"{name} {shape}: ours and Keras's")
    cases.check(direct, keras_layer, f"{name} {shape}: the engine's and Keras's")
    call = tf.function(lambda: x)
    both = functools.partial(_one_after_the_other, direct, call)
    twice = functools.partial(_one_after_the_other, direct, call, call)
    functions = {"ours": ours, "call": call, "both": both, "woken": twice, "engine": direct}
    for who, make in peers.installed().items():
        peer = make(name, weights, array, target.numpy())
        check = functools.partial(peers.in_keras_layout, peer.infer, peer.infer_to_keras)
        cases.check(check, keras_layer, f"{name} {shape}: {who}'s and Keras's")
        functions[who] = peer.infer
    for function in functions.values():
        function()
    # On a CPU a tf.function returns when its results are there.
    times = measure.interleaved_medians(functions, seconds, rest=0.01, burst=0.02)
    times["woken"] -= times["call"]
    best = min((times[who] for who in peers.installed()), default=float("nan"))
    print(
        f"{name:10}"
        + "".join(f"{size:5}" for size in shape)
        + " | "
        + "".join(f"{1e6 * times.get(who, float('nan')):8.0f}" for who in BESIDE)
        + "".join(f"{1e6 * times.get(w, float('nan')):8.1f}" for w in ("engine", "torch", "ort"))
        + f" |{best / times['ours']:5.2f}{best / times['engine']:8.2f}"
        + f" |{times['ours'] / times['both']:10.2f}{times['ours'] / times['woken']:12.2f}",
        flush=True,
    )
    return times


def _one_after_the_other(*functions):
    for function in functions:
        function()


def run(names, small_shapes, seconds):
    """Prints the table of the layers that the C API and the peers have.

    Returns a row for each, {column: value}.
    """
    print("small batches, inference; medians, µs; ours, engine: the better peer's time over it")
    print(HEADER)
    rows = []
    for name in names:
        if name not in engine.CELLS:
            continue
        for shape in small_shapes:
            times = run_row(name, shape, seconds)
            rows.append({"layer": name, "shape": shape, **{k: 1e6 * v for k, v in times.items()}})
    return rows
