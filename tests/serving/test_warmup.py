"""`write_warmup`: TensorFlow Serving's messages, and errors that name what is wrong."""

import numpy as np
import pytest
import tensorflow as tf

from haste_keras.serving import write_warmup

FLOATS = np.arange(6, dtype="float32").reshape(1, 2, 3)
IDS = np.array([7, 300], "int64")


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A SavedModel of signatures with two inputs, with one, and with strings."""

    class Module(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None, None, 3], name="x")])
        def one(self, x):
            return {"y": x}

        @tf.function(
            input_signature=[
                tf.TensorSpec([None, None, 3], name="x"),
                tf.TensorSpec([None], tf.int64, name="ids"),
            ]
        )
        def two(self, x, ids):
            return {"y": x, "z": ids}

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="words")])
        def words(self, words):
            return {"y": words}

    folder, module = tmp_path_factory.mktemp("warmup"), Module()
    signatures = {"serving_default": module.two, "one": module.one, "words": module.words}
    tf.saved_model.save(module, folder, signatures)
    return folder


def _requests(file):
    apis = pytest.importorskip("tensorflow_serving.apis.prediction_log_pb2")
    records = [record.numpy() for record in tf.data.TFRecordDataset(file)]
    logs = [apis.PredictionLog.FromString(record) for record in records]
    assert {log.WhichOneof("log_type") for log in logs} == {"predict_log"}
    return [log.predict_log.request for log in logs]


def test_requests_are_what_was_given(path):
    large = np.ones((4, 500, 3))  # a length of several bytes; float64, as NumPy makes it
    file = write_warmup(path, [{"x": FLOATS, "ids": IDS}, {"ids": [1], "x": large}])
    assert file == str(path / "assets.extra" / "tf_serving_warmup_requests")
    first, second = _requests(file)
    for request, x, ids in ((first, FLOATS, IDS), (second, large, [1])):
        assert request.model_spec.signature_name == "serving_default"
        assert set(request.inputs) == {"x", "ids"}
        got = {name: tf.make_ndarray(proto) for name, proto in request.inputs.items()}
        assert (got["x"].dtype, got["ids"].dtype) == (np.float32, np.int64)
        np.testing.assert_array_equal(got["x"], x)
        np.testing.assert_array_equal(got["ids"], ids)


def test_an_array_alone_and_another_signature_replace_the_file(path):
    file = write_warmup(str(path), [FLOATS], signature="one")
    (request,) = _requests(file)
    assert request.model_spec.signature_name == "one"
    np.testing.assert_array_equal(tf.make_ndarray(request.inputs["x"]), FLOATS)
    tf.saved_model.load(path)


def test_strings(path):
    (request,) = _requests(write_warmup(path, [["a", "bc"]], signature="words"))
    assert list(request.inputs["words"].string_val) == [b"a", b"bc"]
    with pytest.raises(ValueError, match=r"words of requests\[0\] must be string. Rec.*float64"):
        write_warmup(path, [[1.5]], signature="words")


@pytest.mark.parametrize(
    ("requests", "message"),
    [
        ({"x": FLOATS}, "`requests` must be a list of requests. Received: a dict"),
        ([], "`requests` must be 1 to 1000 requests.*Received: 0"),
        ([FLOATS] * 1001, "`requests` must be 1 to 1000 requests.*Received: 1001"),
        ([FLOATS], r"requests\[0\] must be a dict with the arrays ids, x. Received: a ndarray"),
        ([{"x": FLOATS}], r"requests\[0\] must have the arrays ids, x. Received: x"),
        ([{"x": FLOATS, "ids": [0.5]}], r"ids of requests\[0\] must be int64. Received: float64"),
        (
            [{"x": FLOATS[0], "ids": IDS}],
            r"x of requests\[0\] must have the shape \(None, None, 3\). Received: \(2, 3\)",
        ),
    ],
)
def test_errors(path, requests, message):
    with pytest.raises(ValueError, match=message):
        write_warmup(path, requests)


def test_no_such_model_or_signature(path, tmp_path):
    with pytest.raises(ValueError, match=r"`path` must be the folder of a SavedModel.*saved_model"):
        write_warmup(tmp_path, [FLOATS])
    with pytest.raises(
        ValueError, match=r"`signature` must be one of one, serving_default, words\. R"
    ):
        write_warmup(path, [FLOATS], signature="two")
