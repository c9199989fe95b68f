from haste_keras.serving.accelerate import accelerate, load
from haste_keras.serving.export import export
from haste_keras.serving.scope import portable
from haste_keras.serving.warmup import write_warmup

__all__ = ["accelerate", "export", "load", "portable", "write_warmup"]
