"""What every step-wise cell shares: weights, dropout, heads, Zoneout. A cell adds its equations."""

import copy
import inspect

import keras
import numpy as np
import tensorflow as tf
from keras.src.layers.rnn.dropout_rnn_cell import DropoutRNNCell

from haste_keras._checks import (
    check_activation,
    check_rate,
    check_seed,
    check_transformed,
    is_integer,
)


def arguments(scope, without=()):
    """What a constructor was called with, from its `locals()`: keyword arguments to hand on."""
    left_out = {"self", "__class__", "kwargs", *without}
    named = {name: value for name, value in scope.items() if name not in left_out}
    return {**named, **scope["kwargs"]}


def get_transform(identifier, argument):
    """The callable that `identifier` stands for: itself, a registered name, or a Keras config."""
    found = identifier
    if isinstance(identifier, dict):
        found = keras.saving.deserialize_keras_object(identifier)
    elif isinstance(identifier, str):
        found = keras.saving.get_registered_object(identifier)
    if isinstance(found, type):
        found = found()
    if (found is not None and not callable(found)) or (found is None and identifier is not None):
        raise ValueError(
            f"`{argument}` must be None, a callable, or the name of a function registered with "
            f"keras.saving.register_keras_serializable. Received: {argument}={identifier!r}"
        )
    return found


def _serialize_transform(transform):
    return None if transform is None else keras.saving.serialize_keras_object(transform)


class RecurrentCell(keras.layers.Layer, DropoutRNNCell):
    """One time step of a recurrent layer, with that layer's weights.

    A subclass sets `spec` (a CellSpec) and `stock` (class name of Keras's layer), and writes
    `step`. Weights, for C input features, G gates, `heads` heads of H = units / heads units each:

      kernel            [C, G·units]; columns run over head, gate, unit
      recurrent_kernel  [units, G·units]; with heads > 1: [heads, H, G, H]
      bias              [G·units]; as the columns of `kernel`
    """

    spec = None
    stock = None

    def __init__(
        self,
        units,
        activation="tanh",
        use_bias=True,
        kernel_initializer="glorot_uniform",
        recurrent_initializer="orthogonal",
        bias_initializer="zeros",
        kernel_regularizer=None,
        recurrent_regularizer=None,
        bias_regularizer=None,
        kernel_constraint=None,
        recurrent_constraint=None,
        bias_constraint=None,
        dropout=0.0,
        recurrent_dropout=0.0,
        seed=None,
        *,
        heads=1,
        zoneout=0.0,
        dropconnect=0.0,
        kernel_transform=None,
        recurrent_transform=None,
        bias_transform=None,
        **kwargs,
    ):
        if not is_integer(units) or units <= 0:
            raise ValueError(
                "Received an invalid value for argument `units`, "
                f"expected a positive integer, got {units!r}."
            )
        if not is_integer(heads) or heads < 1 or units % heads:
            raise ValueError(
                f"`heads` must be a positive divisor of units={units}. Received: heads={heads!r}"
            )
        implementation = kwargs.pop("implementation", 2)
        if implementation not in (0, 1, 2):
            raise ValueError(
                f"`implementation` must be 0, 1 or 2. Received: implementation={implementation}"
            )
        super().__init__(**kwargs)
        self.implementation = implementation
        self.units = int(units)
        self.heads = int(heads)
        self.activation = keras.activations.get(activation)
        check_activation(self.activation, "activation", self.stock)
        self.use_bias = use_bias

        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.recurrent_initializer = keras.initializers.get(recurrent_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.recurrent_regularizer = keras.regularizers.get(recurrent_regularizer)
        self.bias_regularizer = keras.regularizers.get(bias_regularizer)
        self.kernel_constraint = keras.constraints.get(kernel_constraint)
        self.recurrent_constraint = keras.constraints.get(recurrent_constraint)
        self.bias_constraint = keras.constraints.get(bias_constraint)
        self.kernel_transform = get_transform(kernel_transform, "kernel_transform")
        self.recurrent_transform = get_transform(recurrent_transform, "recurrent_transform")
        self.bias_transform = get_transform(bias_transform, "bias_transform")

        self.dropout = check_rate("dropout", dropout)
        self.recurrent_dropout = check_rate("recurrent_dropout", recurrent_dropout)
        self.zoneout = check_rate("zoneout", zoneout)
        self.dropconnect = check_rate("dropconnect", dropconnect)
        check_seed(seed)
        # A generator in place of a number is shared: the two directions of a layer have one.
        if isinstance(seed, keras.random.SeedGenerator):
            self.seed_generator, seed = seed, seed.get_config()["seed"]
        else:
            self.seed_generator = keras.random.SeedGenerator(seed=seed)
        self.seed = seed
        self._dropconnect_mask = None

        self.state_size = [units] * len(self.spec.states)
        self.output_size = units

    @classmethod
    def argument_names(cls):
        """Names of the arguments that the constructor takes beyond those of a Keras layer."""
        names = {"implementation"}
        for base in (cls, RecurrentCell):
            names.update(inspect.signature(base.__init__).parameters)
        return sorted(names - {"self", "kwargs"})

    @property
    def zoneout_rates(self):
        """Zoneout rate of each state, in the order of the states."""
        return (self.zoneout,) + (0.0,) * (len(self.spec.states) - 1)

    def build(self, input_shape):
        features = input_shape[-1]
        columns = len(self.spec.gates) * self.units
        # autocast=False: a transform sees the variable in its own dtype.
        self.kernel = self.add_weight(
            shape=(features, columns),
            name="kernel",
            initializer=self.kernel_initializer,
            regularizer=self.kernel_regularizer,
            constraint=self.kernel_constraint,
            autocast=False,
        )
        self.recurrent_kernel = self.add_weight(
            shape=self._recurrent_shape(),
            name="recurrent_kernel",
            initializer=self._initialize_recurrent,
            regularizer=self.recurrent_regularizer,
            constraint=self.recurrent_constraint,
            autocast=False,
        )
        self.bias = None
        if self.use_bias:
            self.bias = self.add_weight(
                shape=self._bias_shape(),
                name="bias",
                initializer=self._initialize_bias,
                regularizer=self.bias_regularizer,
                constraint=self.bias_constraint,
                autocast=False,
            )
        for transform, weight in (
            (self.kernel_transform, self.kernel),
            (self.recurrent_transform, self.recurrent_kernel),
            (self.bias_transform, self.bias),
        ):
            if isinstance(transform, keras.layers.Layer) and weight is not None:
                transform.build(weight.shape)
        super().build(input_shape)

    def _recurrent_shape(self):
        hidden = self.units // self.heads
        if self.heads == 1:
            return (hidden, len(self.spec.gates) * hidden)
        return (self.heads, hidden, len(self.spec.gates), hidden)

    def _bias_shape(self):
        return (len(self.spec.gates) * self.units,)

    def _initialize_recurrent(self, shape, dtype=None):
        """Each head as a layer of its own would be: an initializer sees [H, G·H]."""
        if self.heads == 1:
            return self.recurrent_initializer(shape, dtype=dtype)
        _, hidden, gates, _ = shape
        parts = []
        for head in range(self.heads):
            initializer = copy.copy(self.recurrent_initializer)
            if isinstance(getattr(initializer, "seed", None), int):
                initializer.seed += head  # else every head would begin the same
            parts.append(initializer((hidden, gates * hidden), dtype=dtype))
        return keras.ops.reshape(keras.ops.stack(parts), shape)

    def _initialize_bias(self, shape, dtype=None):
        return self.bias_initializer(shape, dtype=dtype)

    def _transformed(self, name):
        """The weight `name`, through its transform, in the compute dtype."""
        variable = getattr(self, name)
        argument = f"{name.removesuffix('_kernel')}_transform"
        transform = getattr(self, argument)
        value = tf.convert_to_tensor(variable.value)
        if transform is not None:
            value = tf.convert_to_tensor(transform(value))
            check_transformed(argument, value, variable)
        return tf.cast(value, self.compute_dtype)

    def input_weights(self):
        """Kernel [C, G·units] and bias [G·units] (or None), transformed, in the compute dtype."""
        kernel = self._transformed("kernel")
        bias = None if self.bias is None else self._transformed("bias")
        return kernel, bias

    def recurrent_lanes(self):
        """Recurrent kernel as the op takes it: [heads, H, G, H], transformed, compute dtype."""
        hidden = self.units // self.heads
        return tf.reshape(
            self._transformed("recurrent_kernel"),
            [self.heads, hidden, len(self.spec.gates), hidden],
        )

    def step(self, x, q, states):
        """New states of one step.

        Args:
          x, q: [N, heads, G, H] projected input and recurrent product.
          states: list of [N, heads, H].
        Returns:
          list of [N, heads, H], before Zoneout.
        """
        raise NotImplementedError(f"{type(self).__name__} has no equations: write `step`.")

    def call(self, inputs, states, training=False):
        """One step: inputs [N, C], states a list of [N, units] → output [N, units], states."""
        inputs = tf.cast(inputs, self.compute_dtype)
        states = [tf.cast(state, self.compute_dtype) for state in states]
        if training and self.dropout:
            inputs = inputs * self.get_dropout_mask(inputs)
        kernel, bias = self.input_weights()
        x = tf.matmul(inputs, kernel)
        if bias is not None:
            x = tf.nn.bias_add(x, bias)

        h = states[0]
        if training and self.recurrent_dropout:
            h = h * self.get_recurrent_dropout_mask(h)
        lanes = self.recurrent_lanes()
        if training and self.dropconnect:
            lanes = lanes * self._get_dropconnect_mask()

        heads, hidden, gates, _ = lanes.shape
        if heads == 1:
            q = tf.matmul(h, tf.reshape(lanes, [hidden, gates * hidden]))
            q = tf.reshape(q, [-1, 1, gates, hidden])
        else:
            q = tf.einsum("nkh,khgj->nkgj", tf.reshape(h, [-1, heads, hidden]), lanes)
        old = [tf.reshape(state, [-1, heads, hidden]) for state in states]
        new = self.step(tf.reshape(x, [-1, heads, gates, hidden]), q, old)
        new = [tf.reshape(state, [-1, self.units]) for state in new]
        rates = zip(states, new, self.zoneout_rates, strict=True)
        states = [self._zone_out(before, after, rate, training) for before, after, rate in rates]
        return states[0], states

    def _zone_out(self, old, new, rate, training):
        if not rate:
            return new
        if training:
            draw = keras.random.uniform(tf.shape(new), dtype="float32", seed=self.seed_generator)
            return tf.where(draw < rate, old, new)
        rate = float(np.float32(rate))  # the rate that the kernels hold
        return rate * old + (1 - rate) * new

    # The masks of dropout are drawn before the loop of keras.layers.RNN and dropped after it;
    # DropConnect's rides along with the one on h.
    def _get_dropconnect_mask(self):
        if self._dropconnect_mask is None and self.dropconnect:
            ones = tf.ones_like(self.recurrent_lanes())
            self._dropconnect_mask = keras.random.dropout(
                ones, self.dropconnect, seed=self.seed_generator
            )
        return self._dropconnect_mask

    def get_recurrent_dropout_mask(self, step_input):
        self._get_dropconnect_mask()
        return super().get_recurrent_dropout_mask(step_input)

    def reset_recurrent_dropout_mask(self):
        self._dropconnect_mask = None
        super().reset_recurrent_dropout_mask()

    def get_initial_state(self, batch_size=None):
        return [
            keras.ops.zeros((batch_size, size), dtype=self.compute_dtype)
            for size in self.state_size
        ]

    def get_config(self):
        return {
            **super().get_config(),
            "units": self.units,
            "activation": keras.activations.serialize(self.activation),
            "use_bias": self.use_bias,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "recurrent_initializer": keras.initializers.serialize(self.recurrent_initializer),
            "bias_initializer": keras.initializers.serialize(self.bias_initializer),
            "kernel_regularizer": keras.regularizers.serialize(self.kernel_regularizer),
            "recurrent_regularizer": keras.regularizers.serialize(self.recurrent_regularizer),
            "bias_regularizer": keras.regularizers.serialize(self.bias_regularizer),
            "kernel_constraint": keras.constraints.serialize(self.kernel_constraint),
            "recurrent_constraint": keras.constraints.serialize(self.recurrent_constraint),
            "bias_constraint": keras.constraints.serialize(self.bias_constraint),
            "dropout": self.dropout,
            "recurrent_dropout": self.recurrent_dropout,
            "seed": self.seed,
            "heads": self.heads,
            "zoneout": self.zoneout,
            "dropconnect": self.dropconnect,
            "kernel_transform": _serialize_transform(self.kernel_transform),
            "recurrent_transform": _serialize_transform(self.recurrent_transform),
            "bias_transform": _serialize_transform(self.bias_transform),
        }
