"""A portable model where TensorFlow has a GPU: its calls become ops, whose GPU kernels run."""

import numpy as np
import pytest
from needs import DEVICE, need_tensorflow

tf = need_tensorflow()

import keras  # noqa: E402

import haste_keras  # noqa: E402
from haste_keras.native import library  # noqa: E402

pytestmark = pytest.mark.usefixtures("true_float32")
LAYERS = {
    "lstm": lambda **shared: haste_keras.LSTM(32, direction="bidirectional", **shared),
    "gru": lambda **shared: haste_keras.GRU(32, **shared),
    "layer_norm_lstm": lambda **shared: haste_keras.LayerNormLSTM(32, **shared),
    "qrnn": lambda **shared: haste_keras.QRNN(32, window=2, **shared),
    "indrnn": lambda **shared: haste_keras.IndRNN(32, **shared),
}


def exported(name, folder, batch=None, dtype="float32"):
    """An input and what the model, whose portable export is in `folder`, computes."""
    keras.utils.set_random_seed(4)
    given = keras.Input((None, 8), batch_size=batch)
    layer = LAYERS[name](return_sequences=True, dtype=dtype)
    model = keras.Model(given, layer(keras.layers.Masking()(given)))
    x = np.random.default_rng(4).standard_normal((5, 9, 8)).astype(np.float32)
    x[1, 4:] = 0
    haste_keras.export(model, folder, verbose=False)
    return x, tf.cast(model(x), tf.float32).numpy()


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("batch", [None, 5])
def test_loaded_model(name, batch, tmp_path):
    x, want = exported(name, tmp_path / "model", batch)
    model = tf.saved_model.load(tmp_path / "model")
    before = library.graph_calls()
    got = model.serve(x)
    assert library.graph_calls() > before
    assert got.device.endswith(DEVICE)
    np.testing.assert_allclose(got, want, atol=1e-5)


def test_mixed_precision(tmp_path):
    x, want = exported("lstm", tmp_path / "model", dtype="mixed_float16")
    model = tf.saved_model.load(tmp_path / "model")
    before = library.graph_calls()
    got = tf.cast(model.serve(x), tf.float32)
    assert library.graph_calls() > before
    np.testing.assert_allclose(got, want, atol=5e-3)


def test_kernels_run_on_the_device(tmp_path):
    """The partitions of a session's graph name the ops and the devices that ran them."""
    x, want = exported("lstm", tmp_path / "model")
    v1 = tf.compat.v1
    metadata = v1.RunMetadata()
    with v1.Session(graph=tf.Graph()) as session:
        meta = v1.saved_model.load(session, ["serve"], str(tmp_path / "model"))
        signature = meta.signature_def["serving_default"]
        feed = next(iter(signature.inputs.values())).name
        fetch = next(iter(signature.outputs.values())).name
        options = v1.RunOptions(output_partition_graphs=True)
        got = session.run(fetch, {feed: x}, options=options, run_metadata=metadata)
    np.testing.assert_allclose(got, want, atol=1e-5)
    nodes = [node for graph in metadata.partition_graphs for node in graph.node]
    ours = [node for node in nodes if node.op.startswith("HasteLstm")]
    assert [node.device.rpartition("device:")[2] for node in ours] == [DEVICE]
    assert not [node for node in nodes if node.op == "While" or "haste_lstm" in node.op]


def test_no_gpu_kernels_where_the_model_stays_on_the_cpu(tmp_path):
    x, want = exported("gru", tmp_path / "model")
    with tf.device("CPU:0"):
        model = tf.saved_model.load(tmp_path / "model")
        got = tf.function(lambda x: model.serve(x), autograph=False)(tf.constant(x))
    np.testing.assert_allclose(got, want, atol=1e-5)
