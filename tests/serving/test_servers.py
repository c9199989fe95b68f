"""Portable exports as servers run them: TensorFlow's session loader, Serving's API, the C API."""

import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import urllib.request

import code_blocks
import keras
import numpy as np
import pytest
import tensorflow as tf
from absl import flags
from tensorflow.python.framework import op_def_registry
from tensorflow.python.tools import saved_model_cli

import haste_keras
from haste_keras._compat import saved_model_pb2
from haste_keras.serving import write_warmup

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[1]
PAGE = (ROOT / "docs/serving.md").read_text()
C = 5


def _plain():
    layers = [
        haste_keras.LSTM(8, direction="bidirectional", return_sequences=True),
        haste_keras.GRU(6),
    ]
    return keras.Sequential([keras.Input((None, C), name="x"), *layers])


def _masked():
    tokens = keras.Input((None,), dtype="int32", name="tokens")
    x = keras.layers.Embedding(9, 4, mask_zero=True)(tokens)
    x = haste_keras.LayerNormLSTM(5, return_sequences=True)(x)
    return keras.Model(tokens, haste_keras.SLSTM(4, direction="bidirectional", heads=2)(x))


def _with_states():
    x = keras.Input((None, C), name="x")
    h, c = keras.Input((6,), name="h"), keras.Input((6,), name="c")
    layer = haste_keras.LSTM(6, return_sequences=True, return_state=True)
    return keras.Model([x, h, c], layer(x, initial_state=[h, c]))


MODELS = {"plain": _plain, "masked": _masked, "states": _with_states}
SIZES = [(2, 7), (3, 4), (1, 1)]  # batch, time


def _inputs(model, batch, time, rng):
    """{name: array} of a model's inputs."""
    found = {}
    for tensor in model.inputs:
        shape = [batch, *(time if size is None else size for size in tensor.shape[1:])]
        integers = tensor.dtype == "int32"
        found[tensor.name] = (
            rng.integers(0, 9, shape) if integers else rng.normal(size=shape)
        ).astype(tensor.dtype)
    return found


def _outputs(model, inputs):
    """[array] of a model's outputs, by our ops in this process."""
    given = [inputs[tensor.name] for tensor in model.inputs]
    outputs = model(given if len(given) > 1 else given[0])
    return [output.numpy() for output in tf.nest.flatten(outputs)]


def _assert_equal(found, expected):
    """`found`: {"output_0": array, …}."""
    assert found.keys() == {f"output_{i}" for i in range(len(expected))} or len(found) == 1
    for (_, got), want in zip(sorted(found.items()), expected, strict=True):
        assert np.shape(got) == want.shape
        np.testing.assert_allclose(got, want, rtol=4e-6, atol=2e-6)


def _of_the_page(word):
    """The first block of Python of the page that has a word."""
    return next(
        block.text
        for block in code_blocks.fenced("docs/serving.md")
        if block.language == "python" and word in block.text
    )


@pytest.fixture(scope="module")
def names():
    """What the page's code has defined."""
    return {}


@pytest.fixture(scope="module")
def exported(names, tmp_path_factory):
    """(folder of the models' folders, {name: (model, [inputs])}): portable, two to warm up with.

    The page's model, "speech", is there too.
    """
    keras.utils.set_random_seed(4)
    folder = tmp_path_factory.mktemp("page") / "models"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder.parent)
        exec(_of_the_page("haste_keras.export"), names)
        exec(_of_the_page("write_warmup"), names)
    rng, models = np.random.default_rng(4), {}
    for name, make in MODELS.items():
        model, path = make(), folder / name / "1"
        inputs = [_inputs(model, *size, rng) for size in SIZES]
        haste_keras.export(model, path, verbose=False)
        write_warmup(path, inputs[:2])
        models[name] = model, inputs
    return folder, models


def _meta_graph(path):
    saved = saved_model_pb2.SavedModel.FromString((path / "saved_model.pb").read_bytes())
    (meta,) = saved.meta_graphs
    return meta


@pytest.mark.parametrize("name", MODELS)
def test_nothing_but_stock_ops_on_any_device(name, exported):
    meta = _meta_graph(exported[0] / name / "1")
    bodies = {each.signature.name: each.node_def for each in meta.graph_def.library.function}
    nodes = [*meta.graph_def.node, *(node for body in bodies.values() for node in body)]
    ops = {node.op for node in nodes} - bodies.keys()
    stock = {op for op in ops if op_def_registry.get(op) and not op.startswith("Haste")}
    assert ops == stock
    # TensorFlow itself places what reads and writes checkpoints.
    calls = [body for name, body in bodies.items() if not name.startswith("__inference__traced_")]
    assert calls
    assert {node.device for body in calls for node in body} == {""}
    # What the loader compares with its own ops, to leave out default values that it does not know.
    assert {op.name for op in meta.meta_info_def.stripped_op_list.op} <= stock
    tags = [each.attr["_implements"].func.name for each in meta.graph_def.library.function]
    assert any(tag.startswith("Haste") for tag in tags)


@pytest.mark.parametrize("name", MODELS)
def test_signature_is_what_serving_asks_for(name, exported):
    """To predict with any batch and length; the batch is in front, as JSON in rows has it."""
    meta = _meta_graph(exported[0] / name / "1")
    model, _ = exported[1][name]
    assert list(meta.meta_info_def.tags) == ["serve"]
    signature = meta.signature_def["serving_default"]
    assert signature.method_name == "tensorflow/serving/predict"
    assert set(signature.inputs) == {tensor.name for tensor in model.inputs}
    shapes = {k: tf.TensorShape(v.tensor_shape).as_list() for k, v in signature.inputs.items()}
    assert shapes == {tensor.name: list(tensor.shape) for tensor in model.inputs}
    for output in signature.outputs.values():
        assert output.tensor_shape.dim[0].size == -1


@pytest.fixture(scope="module")
def server(exported):
    """What `stand_in.py`, a process without haste_keras, prints: its ports and warm-up records."""
    apis = pytest.importorskip("tensorflow_serving.apis", reason="requirements-no-deps.txt has it")
    environment = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="-1")
    environment["PYTHONPATH"] = str(pathlib.Path(apis.__file__).parents[2])
    process = subprocess.Popen(
        [sys.executable, str(HERE / "stand_in.py"), str(exported[0])],
        env=environment,
        cwd="/",
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        line = process.stdout.readline()
        assert line, "stand_in.py did not start"
        yield json.loads(line)
        process.kill()


def test_warmup_records_are_run(server):
    assert server["warmed"] == dict.fromkeys([*MODELS, "speech"], 2)


@pytest.mark.parametrize("name", MODELS)
def test_grpc(name, exported, server):
    import grpc
    from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

    model, inputs = exported[1][name]
    signatures = [
        key for key in _meta_graph(exported[0] / name / "1").signature_def if key[0] != "_"
    ]
    assert set(signatures) == {"serve", "serving_default"}
    with grpc.insecure_channel(f"127.0.0.1:{server['grpc']}") as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        for given, signature in zip(inputs, ["", *signatures], strict=True):
            request = predict_pb2.PredictRequest()
            request.model_spec.name = name
            request.model_spec.signature_name = signature
            for key, value in given.items():
                request.inputs[key].CopyFrom(tf.make_tensor_proto(value))
            outputs = stub.Predict(request, timeout=60).outputs
            found = {key: tf.make_ndarray(value) for key, value in outputs.items()}
            _assert_equal(found, _outputs(model, given))


@pytest.mark.parametrize("name", MODELS)
def test_rest(name, exported, server):
    """In rows and in columns."""
    model, inputs = exported[1][name]
    given = {key: value.tolist() for key, value in inputs[0].items()}
    rows = [dict(zip(given, row, strict=True)) for row in zip(*given.values(), strict=True)]
    bodies = {"predictions": {"instances": rows}, "outputs": {"inputs": given}}
    for key, body in bodies.items():
        request = urllib.request.Request(
            f"http://127.0.0.1:{server['rest']}/v1/models/{name}:predict", json.dumps(body).encode()
        )
        with urllib.request.urlopen(request, timeout=60) as opened:
            answer = json.load(opened)[key]
        if len(model.outputs) == 1:
            answer = {"output_0": answer}
        elif key == "predictions":
            answer = {k: [row[k] for row in answer] for k in answer[0]}
        _assert_equal(answer, _outputs(model, inputs[0]))


def test_the_page_s_grpc(names, server):
    code = _of_the_page("insecure_channel")
    assert "localhost:8500" in code
    exec(code.replace("localhost:8500", f"127.0.0.1:{server['grpc']}"), names)
    assert names["y"].shape == (2, 13, 3)
    assert not np.any(names["y"])
    names["channel"].close()


def test_the_page_s_rest(names, server):
    commands = re.findall(r"curl -d '(.*?)' http://localhost:8501(\S+)", PAGE)
    x = np.float32([[[0.1, 0.2, 0.3, 0.4, 0.5]]])
    expected = names["model"](x).numpy()
    for (body, path), key in zip(commands, ("predictions", "outputs"), strict=True):
        url = f"http://127.0.0.1:{server['rest']}{path}"
        with urllib.request.urlopen(urllib.request.Request(url, body.encode())) as opened:
            np.testing.assert_allclose(json.load(opened)[key], expected, rtol=1e-5, atol=1e-6)


def test_the_page_s_saved_model_cli(exported, monkeypatch, capsys):
    """Prints what the page says."""
    monkeypatch.chdir(exported[0].parent)
    blocks = re.findall(r"```console\n\$ saved_model_cli (.*?)\n(.*?)```", PAGE, re.S)
    assert len(blocks) == 2
    for command, expected in blocks:
        what, *arguments = shlex.split(command)
        flags.FLAGS(["saved_model_cli", *arguments])
        capsys.readouterr()
        {"show": saved_model_cli.show, "run": saved_model_cli.run}[what]()
        printed = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
        assert "\n".join(line for line in printed if line) == expected.strip()


@pytest.fixture(scope="module")
def serve_c(tmp_path_factory):
    """examples/serve_c, built by the command of docs/serving.md."""
    folder = tmp_path_factory.mktemp("serve_c")
    lines = [line.strip() for line in PAGE.splitlines()]
    (command,) = [line for line in lines if line.startswith("cc ")]
    (where,) = [line for line in lines if line.startswith("TF=$(python ")]
    script = f"{where}\n{command.replace('-o serve', f'-o {folder}/serve')}\n"
    script = script.replace("python ", f"{sys.executable} ", 1)
    subprocess.run(["bash", "-euc", script], cwd=ROOT, check=True)
    return folder / "serve"


def _run_c(program, path, x, *library):
    signature = _meta_graph(path).signature_def["serving_default"]
    tensors = [signature.inputs["x"].name, signature.outputs["output_0"].name]
    environment = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="-1")
    return subprocess.run(
        [program, path, *tensors, *map(str, x.shape), *library],
        input=x.tobytes(),
        env=environment,
        capture_output=True,
    )


def test_c_program_without_our_ops(exported, serve_c, tmp_path):
    folder, models = exported
    model, inputs = models["plain"]
    done = _run_c(serve_c, folder / "plain" / "1", inputs[0]["x"])
    assert done.returncode == 0, done.stderr.decode()
    (want,) = _outputs(model, inputs[0])
    got = np.frombuffer(done.stdout, np.float32).reshape(want.shape)
    np.testing.assert_allclose(got, want, rtol=4e-6, atol=2e-6)
    assert np.any(got != want)  # else the next test would show nothing
    # An export with our ops says what is missing.
    haste_keras.export(model, tmp_path / "ops", portable=False, verbose=False)
    done = _run_c(serve_c, tmp_path / "ops", inputs[0]["x"])
    assert done.returncode == 1
    assert "Op type not registered 'Haste" in done.stderr.decode()


@pytest.mark.parametrize("portable", [True, False])
def test_c_program_with_our_ops(portable, exported, serve_c, tmp_path):
    """The very bits of Python: with both kinds of export our ops run."""
    model, inputs = exported[1]["plain"]
    path = tmp_path / "export"
    haste_keras.export(model, path, portable=portable, verbose=False)
    done = _run_c(serve_c, path, inputs[0]["x"], haste_keras.library_path())
    assert done.returncode == 0, done.stderr.decode()
    (want,) = _outputs(model, inputs[0])
    np.testing.assert_array_equal(np.frombuffer(done.stdout, np.float32).reshape(want.shape), want)
