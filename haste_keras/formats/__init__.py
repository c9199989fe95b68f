from haste_keras.formats.onnx_export import to_onnx

__all__ = ["to_onnx"]
