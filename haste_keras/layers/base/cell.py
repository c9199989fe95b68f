"""What every step-wise cell shares: weights, dropout, heads, Zoneout. A cell adds its equations."""

import inspect

import keras
import numpy as np
import tensorflow as tf

from haste_keras._compat import DropoutRNNCell
from haste_keras.layers.base.activation import get_activation, is_fused
from haste_keras.layers.base.quantization import QuantizableWeights
from haste_keras.layers.base.transform import get_transform, serialize_transform
from haste_keras.layers.base.validation import (
    check_dtype,
    check_rate,
    check_seed,
    check_sizes,
    check_step,
)
from haste_keras.ops import int8

# What an argument of a weight is named after, and what is said about it.
ROLES = ("kernel", "recurrent", "bias")
_KINDS = {
    "initializer": keras.initializers,
    "regularizer": keras.regularizers,
    "constraint": keras.constraints,
}


class RecurrentCell(QuantizableWeights, DropoutRNNCell):
    """One time step of a recurrent layer, with that layer's weights.

    A subclass sets `spec` (a CellSpec) and writes `step`. Weights, for C input features, G gates,
    `heads` heads of H = units / heads units each:

      kernel            [C, G·units]; columns run over head, gate, unit
      recurrent_kernel  [units, G·units]; with heads > 1: [heads, H, G, H]
      bias              [G·units]; as the columns of `kernel`

    `quantize("int8")` makes integers of the matrices (`quantization.py`). A quantised cell runs in
    int8, with float32 between the products, unless it trains.
    """

    spec = None
    activations = ("activation",)  # arguments that are functions of Keras
    without = ()  # arguments of this base that mean nothing to the cell
    own_zoneout = ()  # states whose share `step` applies itself
    outputs_state = True  # the output is the first state
    # Whether the generator takes its seed from Keras's global one before the initializers do: it is
    # so in one of Keras's layers, and decides on what a global seed makes the weights begin with.
    seeds_first = False

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
        implementation=2,
        **kwargs,
    ):
        check_sizes(units, heads)
        if implementation not in (0, 1, 2):
            raise ValueError(
                f"`implementation` must be 0, 1 or 2. Received: implementation={implementation}"
            )
        super().__init__(**kwargs)
        check_dtype(self)
        self.implementation = implementation
        self.units = int(units)
        self.heads = int(heads)
        self.activation = get_activation(activation)
        self.use_bias = use_bias
        if self.seeds_first:
            self._make_generator(seed)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.kernel_constraint = keras.constraints.get(kernel_constraint)
        self.kernel_transform = get_transform(kernel_transform, "kernel_transform")
        self.recurrent_initializer = keras.initializers.get(recurrent_initializer)
        self.recurrent_regularizer = keras.regularizers.get(recurrent_regularizer)
        self.recurrent_constraint = keras.constraints.get(recurrent_constraint)
        self.recurrent_transform = get_transform(recurrent_transform, "recurrent_transform")
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.bias_regularizer = keras.regularizers.get(bias_regularizer)
        self.bias_constraint = keras.constraints.get(bias_constraint)
        self.bias_transform = get_transform(bias_transform, "bias_transform")
        self.dropout = check_rate("dropout", dropout)
        self.recurrent_dropout = check_rate("recurrent_dropout", recurrent_dropout)
        self.zoneout = check_rate("zoneout", zoneout, one=True)
        self.dropconnect = check_rate("dropconnect", dropconnect)
        if not self.seeds_first:
            self._make_generator(seed)
        self._dropconnect_mask = None

        self.state_size = [units] * len(self.spec.states)
        self.output_size = units

    def _make_generator(self, seed):
        check_seed(seed)
        # A generator in place of a number is shared: the two directions of a layer have one.
        if isinstance(seed, keras.random.SeedGenerator):
            self.seed_generator, seed = seed, seed.get_config()["seed"]
        else:
            self.seed_generator = keras.random.SeedGenerator(seed=seed)
        self.seed = seed

    @classmethod
    def _refuse(cls, given):
        """Raises ValueError if the keyword arguments `given` have one of `without`."""
        for name in cls.without:
            if name in given:
                raise ValueError(
                    f"`{name}` is not an argument of {cls.__name__}, which has no recurrent matrix "
                    f"that it could act on. Received: {name}={given[name]!r}"
                )

    @property
    def unfused(self):
        """{argument: function} of the activations that the fused kernels do not have."""
        functions = {name: getattr(self, name) for name in self.activations}
        return {name: each for name, each in functions.items() if not is_fused(each)}

    @classmethod
    def argument_names(cls):
        """Names of the arguments that the constructor takes beyond those of a Keras layer."""
        names = set()
        for base in cls.__mro__[: cls.__mro__.index(RecurrentCell) + 1]:
            names.update(inspect.signature(base.__init__).parameters)
        return sorted(names - {"self", "args", "kwargs"})

    @property
    def zoneout_rates(self):
        """Zoneout rate of each state, in the order of the states."""
        return (self.zoneout,) + (0.0,) * (len(self.spec.states) - 1)

    @property
    def gate_shape(self):
        """[heads, G, H]: of all that is added to the gates of a step."""
        return [self.heads, len(self.spec.gates), self.units // self.heads]

    # One step.

    def step(self, x, states, weights, share):
        """The equations.

        Args:
          x: [N, heads, G, H] projected input.
          states: list of [N, heads, H].
          weights: those of the recurrence, of `prepared` and then `hoisted`.
          share: for each state how much of it Zoneout keeps, in [0, 1], or None: nothing. It is
            applied to what is returned, but for the states of `own_zoneout`.
        Returns:
          the output [N, heads, H], or None if it is the first state; list of the new states.
        """
        raise NotImplementedError(f"{type(self).__name__} has no equations: write `step`.")

    def hoisted(self, weights, loop=False):
        """The weights as `step` multiplies by them.

        loop: they are formed once for all steps of a loop, which may save each of them work.
        """
        lanes, in_int8 = weights.get("recurrent_kernel"), "recurrent_scale" in weights
        if self.spec.recurrence != "dense" or (lanes.shape[0] > 1 and not in_int8):
            return weights
        heads, hidden, gates, _ = lanes.shape
        matrix = tf.reshape(lanes, [heads, hidden, gates * hidden][1 if heads == 1 else 0 :])
        return {**weights, "recurrent_kernel": int8.widened(matrix) if in_int8 else matrix}

    def dropped(self, h, weights):
        """What R multiplies: h [N, heads, H] with recurrent dropout."""
        return h * weights["dropout_mask"] if "dropout_mask" in weights else h

    def product(self, h, weights):
        """h·R: [N, heads, H] → [N, heads, G, H]; R as `hoisted` gives it."""
        lanes, h = weights["recurrent_kernel"], self.dropped(h, weights)
        if "recurrent_scale" in weights:
            heads, gates, hidden = weights["recurrent_scale"].shape
            if heads == 1:
                h = tf.reshape(h, [-1, hidden])
            scale = tf.reshape(weights["recurrent_scale"], [*lanes.shape[:-2], gates * hidden])
            return tf.reshape(int8.product(h, lanes, scale), [-1, heads, gates, hidden])
        if lanes.shape.rank == 4:
            return tf.einsum("nkh,khgj->nkgj", h, lanes)
        hidden, columns = lanes.shape
        q = tf.matmul(tf.reshape(h, [-1, hidden]), lanes)
        return tf.reshape(q, [-1, 1, columns // hidden, hidden])

    def project(self, inputs, states, keep, weights):
        """x·W + b.

        Args:
          inputs: [N, C].
          states: those that do not enter `step`: what the projection carries itself.
          keep: what dropout multiplies inputs by, or None.
          weights: those of the projection, of `prepared`.
        Returns:
          [N, G·units], list of the new states.
        """
        inputs = inputs if keep is None else inputs * keep
        if "kernel_scale" in weights:
            return int8.product(inputs, weights["kernel"], weights["kernel_scale"]), states
        return tf.matmul(inputs, weights["kernel"]), states

    def shift(self, wx, weights):
        """x·W [N, G·units] → the projected input: with its bias."""
        return tf.nn.bias_add(wx, weights["bias"]) if "bias" in weights else wx

    def call(self, inputs, states, training=False):
        """One step: inputs [N, C], states [N, units] each → output [N, units], states."""
        bare = not isinstance(states, (list, tuple))
        in_int8 = self.is_quantized("kernel") and not training
        dtype = tf.float32 if in_int8 else self.compute_dtype
        inputs = tf.cast(inputs, dtype)
        states = [tf.cast(s, dtype) for s in ([states] if bare else states)]
        inputs, states = check_step(self, inputs, states)
        projection, recurrence = self.prepared(int8=in_int8)
        if training and self.dropconnect:
            mask = self._get_dropconnect_mask()
            recurrence["recurrent_kernel"] = recurrence["recurrent_kernel"] * mask
        keep = self.get_dropout_mask(inputs) if training and self.dropout else None
        count = len(self.spec.states)
        wx, carried = self.project(inputs, states[count:], keep, projection)
        x = tf.reshape(self.shift(wx, projection), [-1, *self.gate_shape])

        heads, _, hidden = self.gate_shape
        weights = self.hoisted(recurrence)
        if training and self.recurrent_dropout:
            mask = self.get_recurrent_dropout_mask(states[0])
            weights["dropout_mask"] = tf.reshape(mask, [-1, heads, hidden])
        rates = zip(self.zoneout_rates, states[:count], strict=True)
        share = [self._share(rate, state, training) for rate, state in rates]
        lanes = [None if s is None else tf.reshape(s, [-1, heads, hidden]) for s in share]
        output, new = self.step(
            x,
            [tf.reshape(s, [-1, heads, hidden]) for s in states[:count]],
            weights,
            lanes,
        )
        new = [tf.reshape(state, [-1, self.units]) for state in new]
        for state, (s, old) in enumerate(zip(share, states[:count], strict=True)):
            if s is not None and state not in self.own_zoneout:
                new[state] = s * old + (1 - s) * new[state]
        output = new[0] if output is None else tf.reshape(output, [-1, self.units])
        output = tf.cast(output, self.compute_dtype)
        states = [tf.cast(state, self.compute_dtype) for state in (*new, *carried)]
        return output, states[0] if bare else states

    def _share(self, rate, state, training):
        """How much Zoneout keeps of a state [N, units]: 0 or 1 in training, else its rate."""
        if not rate:
            return None
        if training:
            draw = keras.random.uniform(tf.shape(state), dtype="float32", seed=self.seed_generator)
            return tf.cast(draw < rate, state.dtype)
        rate = float(np.float32(rate))  # the rate that the kernels hold
        return tf.fill(tf.shape(state), tf.cast(rate, state.dtype))

    # keras.layers.RNN draws the masks of dropout before its loop and drops them after it.
    # DropConnect's mask comes and goes with the one on h.
    def _get_dropconnect_mask(self):
        if self._dropconnect_mask is None and self.dropconnect:
            self._dropconnect_mask = keras.random.dropout(
                tf.ones(self._lane_shape(), self.compute_dtype),
                self.dropconnect,
                seed=self.seed_generator,
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

    @property
    def starts_at_zero(self):
        """Whether no subclass has replaced `get_initial_state`."""
        return type(self).get_initial_state is RecurrentCell.get_initial_state

    def get_config(self):
        config = {
            "units": self.units,
            "activation": keras.activations.serialize(self.activation),
            "use_bias": self.use_bias,
            "dropout": self.dropout,
            "recurrent_dropout": self.recurrent_dropout,
            "seed": self.seed,
            "heads": self.heads,
            "zoneout": self.zoneout,
            "dropconnect": self.dropconnect,
        }
        for role in ROLES:
            for kind, module in _KINDS.items():
                name = f"{role}_{kind}"
                config[name] = module.serialize(getattr(self, name))
            name = f"{role}_transform"
            config[name] = serialize_transform(getattr(self, name))
        config = {name: value for name, value in config.items() if name not in self.without}
        return {**super().get_config(), **config}
