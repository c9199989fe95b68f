from haste_keras.formats.litert import to_litert
from haste_keras.formats.onnx_export import to_onnx

__all__ = ["to_litert", "to_onnx"]
