"""bfloat16 and int8 in inference: `benchmarks.cpu --dtype bfloat16` and `--dtype int8`.

Whole layers: `layer` is ours in a tf.function, `engine` ours through the C API, both beside the
same in float32. bfloat16 is dtype="bfloat16", with x in it; int8 is `layer.quantize("int8")` of a
float32 layer. Peers have the same weights, made narrow as their users do it: narrow_peers.py.
Before a case is timed, each result is compared with that of Keras's float32 layer.
"""

import functools

import tensorflow as tf

from benchmarks import cases, measure
from benchmarks.cpu import engine, narrow_peers, peers

# What a result may differ from float32's, as a share of its largest value. ONNX Runtime and PyTorch
# quantise a whole matrix by one scale, and activations of all rows by another.
TOLERANCES = {"bfloat16": 0.05, "int8": 0.05}
PEER_TOLERANCE = 0.2
PEERS = {"bfloat16": ("torch bf16", "autocast"), "int8": ("torch int8", "ort int8")}
RATIOS = ("f32/layer", "f32/engine", "peer/layer", "peer/engine")
FLOAT32 = ("layer f32", "engine f32", "torch f32", "ort f32")


def weight_bytes(layer):
    """Bytes of a layer's weights."""
    return sum(weight.numpy().nbytes for weight in layer.weights)


def make_narrow(name, weights, x, dtype):
    """Our layer with the weights of a float32 layer, in `dtype`: (layer, x as it takes it)."""
    policy = "bfloat16" if dtype == "bfloat16" else "float32"
    layer = cases.LAYERS[name].ours(
        weights[1].shape[0],
        return_sequences=True,
        recurrent_initializer="zeros",  # TensorFlow has no orthogonal one in bfloat16
        dtype=policy,
    )
    x = tf.cast(x, policy)
    layer(x)
    layer.set_weights(weights)
    if dtype == "int8":
        layer.quantize("int8")
    return layer, x


def make_engine(name, layer, x, dtype):
    """The C API on the weights of a layer of `make_narrow`."""
    cell = layer.cell
    weights = [each.numpy() for each in (cell.kernel, cell.recurrent_kernel, cell.bias)]
    if dtype != "int8":
        return engine.Engine(name, weights, x, dtype)
    # As Keras has them: what a weight was multiplied by.
    scales = (1 / each.numpy() for each in (cell.kernel_scale, cell.recurrent_kernel_scale))
    return engine.Engine(name, weights, x, scales=scales)


def make_functions(name, shape, dtype):
    """What is timed, compared with Keras: ({name: function}, bytes of {float32, dtype} weights)."""
    x, target, (ours, keras_layer) = cases.make_layers(name, *shape)
    weights, array = keras_layer.get_weights(), x.numpy()
    infer, expected = (cases.make_functions(each, x, target)[0] for each in (ours, keras_layer))
    narrow, narrow_x = make_narrow(name, weights, x, dtype)
    functions = {
        "layer f32": infer,
        "layer": cases.make_functions(narrow, narrow_x, target)[0],
        "engine f32": engine.Engine(name, weights, array),
        "engine": make_engine(name, narrow, array, dtype),
    }
    for who, function in functions.items():
        tolerance = 1e-4 if who in FLOAT32 else TOLERANCES[dtype]
        cases.check(function, expected, f"{name} {shape} {dtype}: {who} and Keras", tolerance)
    others = {
        f"{who} f32": build(name, weights, array, target.numpy())
        for who, build in peers.installed().items()
    }
    others.update(narrow_peers.make(name, dtype, weights, array))
    for who, peer in others.items():
        check = functools.partial(peers.in_keras_layout, peer.infer, peer.infer_to_keras)
        tolerance = 1e-4 if who in FLOAT32 else PEER_TOLERANCE
        cases.check(check, expected, f"{name} {shape} {dtype}: {who} and Keras", tolerance)
        functions[who] = peer.infer
    return functions, (weight_bytes(ours), weight_bytes(narrow))


def describe(times, dtype):
    """Ratios of a case: float32 over ours, the better peer in `dtype` over ours."""
    ratios = {}
    best = min((times[who] for who in PEERS[dtype] if who in times), default=None)
    for who in ("layer", "engine"):
        ratios[f"f32/{who}"] = times[f"{who} f32"] / times[who]
        if best is not None:
            ratios[f"peer/{who}"] = best / times[who]
    return ratios


def print_header(dtype):
    """Prints what the columns are."""
    print(f"{dtype}, inference; medians, µs. f32/: our float32's time over ours in {dtype};")
    print("peer/: the better peer's, of those in it; kB: of our weights in float32 and in it")
    texts = [f"{each:>11}" for each in (*_columns(dtype), *RATIOS, "kB f32", "kB")]
    texts.insert(len(_columns(dtype)), "|")
    texts.insert(-2, "|")
    print("layer      N    T    C    H |", *texts)


def _columns(dtype):
    return ("layer f32", "layer", "engine f32", "engine", "torch f32", "ort f32", *PEERS[dtype])


def run_row(name, shape, dtype, seconds):
    """Times a layer at a shape, prints the line, returns {column: value}: µs, ratios, bytes.

    Results are compared first; SystemExit if they differ.
    """
    functions, (wide_bytes, narrow_bytes) = make_functions(name, shape, dtype)
    for function in functions.values():
        function()
    # On a CPU a tf.function returns when its results are there.
    times = measure.interleaved_medians(functions, seconds, rest=0.01, burst=0.03)
    ratios = describe(times, dtype)
    texts = [f"{1e6 * times[who]:11.1f}" if who in times else 11 * " " for who in _columns(dtype)]
    texts += ["|", *(f"{ratios[each]:11.2f}" if each in ratios else 11 * " " for each in RATIOS)]
    texts += ["|", f"{wide_bytes / 1e3:11.0f}", f"{narrow_bytes / 1e3:11.0f}"]
    print(f"{name:7}" + "".join(f"{size:5}" for size in shape), "|", *texts, flush=True)
    micros = {f"{who} µs": 1e6 * seconds_of for who, seconds_of in times.items()}
    return {**micros, **ratios, "bytes f32": wide_bytes, "bytes": narrow_bytes}


def run(names, chosen, dtype, seconds):
    """Prints the table of the layers that the C API and the peers have.

    Returns a row for each, {column: value}.
    """
    print_header(dtype)
    return [
        {"layer": name, "shape": shape, "dtype": dtype, **run_row(name, shape, dtype, seconds)}
        for name in names
        if name in engine.CELLS
        for shape in chosen
    ]
