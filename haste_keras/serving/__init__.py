from haste_keras.serving.export import export
from haste_keras.serving.scope import portable
from haste_keras.serving.warmup import write_warmup

__all__ = ["export", "portable", "write_warmup"]
