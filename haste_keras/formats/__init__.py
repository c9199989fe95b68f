from haste_keras.formats.litert import to_litert
from haste_keras.formats.onnx_export import to_onnx
from haste_keras.serving.export import WRITERS

__all__ = ["to_litert", "to_onnx"]


def _write_onnx(model, path, *, opset_version=None, **options):
    """`to_onnx` by the names of `model.export`."""
    if opset_version is not None:
        options["opset"] = opset_version
    to_onnx(model, path, **options)


WRITERS["onnx"] = _write_onnx
