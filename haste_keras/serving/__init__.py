from haste_keras.serving.export import export
from haste_keras.serving.scope import portable

__all__ = ["export", "portable"]
