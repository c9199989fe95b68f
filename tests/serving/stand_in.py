"""Answers as TensorFlow Serving does, with TensorFlow alone: stand_in.py FOLDER.

FOLDER has a folder for each model, with a folder for each version, as `--model_base_path` has. The
session, the signatures and the messages are those of the model server: a SavedModel of tag "serve"
in a session, PredictRequest to PredictResponse, warm-up records when a model is loaded, and JSON in
rows or columns. Prints one line of JSON: the ports, and for each model how many records it ran.
"""

import concurrent.futures
import http.server
import importlib.util
import json
import pathlib
import sys

import grpc
import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import (
    predict_pb2,
    prediction_log_pb2,
    prediction_service_pb2_grpc,
)

WARMUP = "assets.extra/tf_serving_warmup_requests"


class Model:
    """The newest version of a model in a session."""

    def __init__(self, folder):
        newest = max(folder.iterdir(), key=lambda version: int(version.name))
        self.session = tf.compat.v1.Session(graph=tf.Graph())
        with self.session.graph.as_default():
            meta = tf.compat.v1.saved_model.loader.load(self.session, ["serve"], str(newest))
        self.signatures = meta.signature_def
        self.warmed = 0
        if (newest / WARMUP).exists():
            for record in tf.compat.v1.io.tf_record_iterator(str(newest / WARMUP)):
                log = prediction_log_pb2.PredictionLog.FromString(record)
                self.predict(log.predict_log.request)
                self.warmed += 1

    def run(self, signature, inputs):
        """{name: array} of the outputs for {name: array} of the inputs."""
        signature = self.signatures[signature or "serving_default"]
        assert signature.method_name == "tensorflow/serving/predict"
        assert inputs.keys() == signature.inputs.keys(), (set(inputs), set(signature.inputs))
        feeds = {signature.inputs[name].name: value for name, value in inputs.items()}
        return self.session.run({k: v.name for k, v in signature.outputs.items()}, feeds)

    def predict(self, request):
        inputs = {name: tf.make_ndarray(proto) for name, proto in request.inputs.items()}
        outputs = self.run(request.model_spec.signature_name, inputs)
        response = predict_pb2.PredictResponse(model_spec=request.model_spec)
        for name, value in outputs.items():
            response.outputs[name].CopyFrom(tf.make_tensor_proto(value))
        return response

    def rest(self, body):
        """The answer to a request in JSON."""
        name = body.get("signature_name", "serving_default")
        specs = self.signatures[name].inputs
        types = {key: tf.as_dtype(spec.dtype).as_numpy_dtype for key, spec in specs.items()}
        rows = "instances" in body
        given = body["instances"] if rows else body["inputs"]
        if rows and isinstance(given[0], dict):
            given = {key: [row[key] for row in given] for key in given[0]}
        if not isinstance(given, dict):
            given = dict.fromkeys(specs, given)
        arrays = {key: np.asarray(value, types[key]) for key, value in given.items()}
        outputs = {key: value.tolist() for key, value in self.run(name, arrays).items()}
        if len(outputs) == 1:
            (answer,) = outputs.values()
        elif rows:
            values = zip(*outputs.values(), strict=True)
            answer = [dict(zip(outputs, row, strict=True)) for row in values]
        else:
            answer = outputs
        return {"predictions" if rows else "outputs": answer}


def main():
    # A session of the C++ runtime, and nothing of Keras or of haste_keras.
    assert importlib.util.find_spec("haste_keras") is None
    folders = [folder for folder in pathlib.Path(sys.argv[1]).iterdir() if folder.is_dir()]
    models = {folder.name: Model(folder) for folder in folders}

    class Service(prediction_service_pb2_grpc.PredictionServiceServicer):
        def Predict(self, request, context):  # noqa: N802
            return models[request.model_spec.name].predict(request)

    class Rest(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            name, verb = self.path.removeprefix("/v1/models/").split(":")
            assert verb == "predict"
            answer = json.dumps(models[name].rest(body)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *args):
            pass

    server = grpc.server(concurrent.futures.ThreadPoolExecutor(2))
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(Service(), server)
    ports = {"grpc": server.add_insecure_port("127.0.0.1:0")}
    server.start()
    rest = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Rest)
    ports["rest"] = rest.server_port
    warmed = {name: model.warmed for name, model in models.items()}
    print(json.dumps({**ports, "warmed": warmed}), flush=True)
    rest.serve_forever()


main()
