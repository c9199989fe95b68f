"""Checks of what an op is given; every error names the argument, what was wanted, what came."""

import numbers
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

DTYPES = (tf.float16, tf.bfloat16, tf.float32, tf.float64)


class Arguments:
    """The arguments of one call; learns the sizes behind the letters N, T, K, G, H as it goes."""

    def __init__(self, function, gates):
        """function: its name in `haste_keras.ops`; gates: G."""
        self.function = function
        self.sizes = {"G": gates}
        self._first = None  # the name and the tensor that the others must be like

    def error(self, kind, message):
        """An exception of type `kind` that says where."""
        return kind(f"ops.{self.function}: {message}")

    def convert(self, name, value):
        """`value` as a tensor of whatever dtype and shape it has."""
        try:
            return tf.convert_to_tensor(value)
        except (TypeError, ValueError) as error:
            came = type(value).__name__
            raise self.error(
                type(error), f"{name} must be a tensor or become one, but is {came}: {error}"
            ) from error

    def tensor(self, name, value, dims):
        """`value` as a tensor of axes `dims`, of the dtype of the first that was asked for."""
        tensor = self.convert(name, value)
        if self._first is None:
            if tensor.dtype not in DTYPES:
                known = ", ".join(dtype.name for dtype in DTYPES)
                raise self.error(
                    TypeError, f"{name} must be one of {known}, but is {tensor.dtype.name}"
                )
            self._first = name, tensor
        first_name, first = self._first
        if tensor.dtype != first.dtype:
            raise self.error(
                TypeError,
                f"{name} must have the dtype of {first_name}, {first.dtype.name}, but is "
                f"{tensor.dtype.name}",
            )
        self._check_shape(name, tensor, dims)
        return tensor

    def int8(self, name, value, dims, scale_name, scale, scale_dims):
        """int8 weights of axes `dims` and their float32 scales, as a list of two tensors.

        Call it after the first `tensor`.
        """
        other, first = self._first
        if first.dtype == tf.float64:
            raise self.error(
                TypeError,
                f"{other} must be float16, bfloat16 or float32 with {scale_name}, but is float64",
            )
        pairs = ((name, value, dims, tf.int8), (scale_name, scale, scale_dims, tf.float32))
        tensors = []
        for each, given, axes, dtype in pairs:
            tensors.append(self.convert(each, given))
            if tensors[-1].dtype != dtype:
                came = tensors[-1].dtype.name
                raise self.error(
                    TypeError, f"{each} must be {dtype.name} with {scale_name}, but is {came}"
                )
            self._check_shape(each, tensors[-1], axes)
        return tensors

    def lanes(self, name, tensor):
        """K, which the tensor `name` should have told."""
        if self.sizes.get("K") is None:
            raise self.error(
                ValueError,
                f"{name} must have a known number of lanes K, but has shape {tensor.shape}",
            )
        return self.sizes["K"]

    def zeros(self, dims):
        """Zeros of axes `dims`."""
        _, first = self._first
        where = {"N": 0, "H": first.shape.rank - 1}  # of wx or a gate
        shape = [
            tf.shape(first)[where[letter]] if self.sizes.get(letter) is None else self.sizes[letter]
            for letter in dims
        ]
        return tf.zeros(shape, first.dtype)

    def initial_state(self, states, value, label):
        """The initial states, of names `states`, as a list of tensors [N, K, H], or [0] for None.

        So no zeros are written and read.
        """
        if value is None:
            return [tf.zeros([0], self._first[1].dtype)] * len(states)
        is_sequence = isinstance(value, list | tuple)
        if not is_sequence or len(value) != len(states):
            came = f"{len(value)} elements" if is_sequence else type(value).__name__
            plural = "s" if len(states) > 1 else ""
            raise self.error(
                ValueError,
                f"initial_state must be a list or tuple of {len(states)} tensor{plural} "
                f"({', '.join(states)}), but is {came}",
            )
        return [
            self.tensor(label.format(name), state, "NKH")
            for name, state in zip(states, value, strict=True)
        ]

    def mask(self, mask):
        """[N, T] of bool, or [0] for None."""
        if mask is None:
            return tf.zeros([0], tf.bool)
        mask = tf.cast(mask, tf.bool)
        self._check_shape("mask", mask, "NT")
        return mask

    def seed(self, seed, draws):
        """Two int64, or [0] for None, which must not be if `draws`."""
        if seed is None:
            if draws:
                raise self.error(
                    ValueError,
                    "seed must be given, since zoneout or recurrent_dropout draws random numbers "
                    "in training, but is None",
                )
            return tf.zeros([0], tf.int64)
        if isinstance(seed, numbers.Integral):
            seed = (int(seed), 0)
        if isinstance(seed, list | tuple):
            for word in seed:
                if isinstance(word, numbers.Integral) and not -(2**63) <= word < 2**63:
                    raise self.error(ValueError, f"seed must be in [-2**63, 2**63), but is {word}")
        seed = self.convert("seed", seed)
        if not seed.dtype.is_integer:
            raise self.error(TypeError, f"seed must be of integers, but is {seed.dtype.name}")
        self._check_shape("seed", seed, "2")
        return tf.cast(seed, tf.int64)

    def reverse(self, reverse, lanes):
        """A list of `lanes` bools."""
        if reverse is None:
            return [False] * lanes
        if not isinstance(reverse, Sequence | np.ndarray) or isinstance(reverse, str):
            raise self.error(
                TypeError, f"reverse must be a list of K = {lanes} bools, but is {reverse!r}"
            )
        reverse = [bool(flag) for flag in reverse]
        if len(reverse) != lanes:
            raise self.error(
                ValueError,
                f"reverse must have a flag for each of the K = {lanes} lanes, but has "
                f"{len(reverse)}",
            )
        return reverse

    def rate(self, name, value, *, one):
        """A rate in [0, 1) or, with `one`, in [0, 1]."""
        if not isinstance(value, numbers.Real) or not (0 <= value <= 1 and (one or value < 1)):
            raise self.error(
                ValueError, f"{name} must be in [0, 1{']' if one else ')'}, but is {value!r}"
            )
        return float(value)

    def epsilon(self, value):
        """A positive number."""
        if not isinstance(value, numbers.Real) or not 0 < value < float("inf"):
            raise self.error(ValueError, f"epsilon must be a positive number, but is {value!r}")
        return float(value)

    def flag(self, name, value):
        """A bool that is known when the op is built."""
        if tf.is_tensor(value):
            raise self.error(
                TypeError, f"{name} must be True or False when the op is built, but is a tensor"
            )
        return bool(value)

    def choice(self, name, value, choices):
        """One of `choices`."""
        if value not in choices:
            raise self.error(
                ValueError, f"{name} must be one of {', '.join(choices)}, but is {value!r}"
            )
        return value

    def _check_shape(self, name, tensor, dims):
        """Checks the static shape against `dims`, a letter a dimension; `sizes` learns."""
        shape = tensor.shape
        if shape.rank is None:
            return
        fits = shape.rank == len(dims)
        learnt = dict(self.sizes)
        for letter, size in zip(dims, shape, strict=False):
            known = int(letter) if letter.isdigit() else learnt.get(letter)
            if known is None:
                learnt[letter] = size
            fits &= known is None or size is None or known == size
        if not fits:
            expected = ", ".join(
                letter if self.sizes.get(letter) is None else f"{letter} = {self.sizes[letter]}"
                for letter in dims
            )
            raise self.error(
                ValueError, f"{name} must have shape [{expected}], but has shape {shape}"
            )
        self.sizes.update(learnt)
