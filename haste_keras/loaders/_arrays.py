"""What the loaders share: arrays as NumPy has them, and checks of their shapes."""

import numpy as np


def array(given, name, rank):
    """The variable `name` of the dictionary `given`, of `rank` axes, as a NumPy array."""
    if name not in given:
        raise ValueError(f"`{name}` is missing among {', '.join(given) or 'no variables'}.")
    value = given[name]
    if hasattr(value, "detach"):  # a tensor of PyTorch, wherever it is
        value = value.detach().cpu()
        if "bfloat16" in str(value.dtype):  # which NumPy does not have
            value = value.float()
    value = np.asarray(value)
    if value.ndim != rank:
        raise ValueError(f"`{name}` must have {rank} axes. Received: shape {value.shape}")
    return value


def check(name, array, shape):
    """Raises ValueError unless `array` has `shape`."""
    if array.shape != tuple(shape):
        raise ValueError(f"`{name}` must be of shape {tuple(shape)}. Received: {array.shape}")
