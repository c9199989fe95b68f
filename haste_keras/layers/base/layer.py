"""The recurrent layer: all of a Keras layer that is not the equations of one cell.

    wx = x·W + b      one product over N·T rows, for all lanes      TensorFlow, or within the op
    y, states         the recurrence over all lanes at once         haste_keras.ops

A lane is one independent recurrence: direction × head, direction-major. A layer file names its
cell and its op and lists its arguments.
"""

import keras
import tensorflow as tf

from haste_keras._compat import to_snake_case
from haste_keras.layers.base import directions, step_loop
from haste_keras.layers.base.cell import ROLES
from haste_keras.layers.base.projection import op_projects
from haste_keras.layers.base.quantization import QuantizableLayer, wide
from haste_keras.layers.base.validation import (
    cast_real,
    check_call,
    check_cell_dtype,
    check_choice,
    check_features,
    check_mask,
    check_rank,
    check_states,
)
from haste_keras.native import library, raw_ops
from haste_keras.native.cell_spec import ENGINES
from haste_keras.native.emit import weights_of_variables
from haste_keras.ops.bias import add_bias
from haste_keras.ops.shapes import size


def _from_cell(name):
    return property(lambda layer: getattr(layer.cell, name), doc=f"`{name}` of the cell.")


class RecurrentLayer(QuantizableLayer):
    """Base of the fused layers; takes and gives what `keras.layers.RNN` does.

    A subclass names its cell in `cell_class`, and its op in `recurrence`.

    Args:
      direction: "forward"; "backward" (walks from the end, outputs in the order of time);
        "bidirectional" (both, merged by `merge_mode`; weights as of keras.layers.Bidirectional).
      merge_mode: "concat", "sum", "mul", "ave" or None, as of keras.layers.Bidirectional.
      engine: "auto", or the name of an engine of the op.
      kwargs: arguments of the cell and of `keras.layers.RNN`.
    """

    cell_class = None
    only_adds_bias = True  # `shift` adds the bias and nothing else, which the op does too

    def __init_subclass__(cls, **kwargs):
        """Gives the layer each argument of its cell as a property."""
        super().__init_subclass__(**kwargs)
        names = [] if cls.cell_class is None else cls.cell_class.argument_names()
        for name in names:
            if not hasattr(cls, name):
                setattr(cls, name, _from_cell(name))

    def __init__(self, *, direction="forward", merge_mode="concat", engine="auto", **kwargs):
        check_choice("direction", direction, directions.DIRECTIONS)
        check_choice("merge_mode", merge_mode, directions.MERGE_MODES)
        check_choice("engine", engine, ENGINES)
        bidirectional = direction == "bidirectional"
        make = self.cell_class
        cell_arguments = {
            name: kwargs.pop(name) for name in make.argument_names() if name in kwargs
        }
        for name in ("dtype", "trainable"):
            if name in kwargs:
                cell_arguments[name] = kwargs[name]
        cell_name = to_snake_case(make.__name__)
        cell = make(**cell_arguments, name=f"forward_{cell_name}" if bidirectional else cell_name)
        super().__init__(cell, **kwargs)
        self.backward_cell = None
        if bidirectional:
            names = [f"{role}_initializer" for role in ROLES]
            fresh = {
                name: directions.clone_initializer(getattr(cell, name))
                for name in names
                if name not in cell.without
            }
            shared = {"name": f"backward_{cell_name}", "seed": cell.seed_generator}
            self.backward_cell = make(**{**cell_arguments, **fresh, **shared})
        self.direction = direction
        self.merge_mode = merge_mode
        self.engine = engine
        self.state_size = list(cell.state_size) * len(self.cells)
        self.input_spec = keras.layers.InputSpec(ndim=3)
        self.supports_jit = library.xla_here()[0]  # Keras asks before it compiles

    @property
    def cells(self):
        """The cells in the order of their lanes: forward first."""
        return [self.cell] if self.backward_cell is None else [self.cell, self.backward_cell]

    @property
    def output_size(self):
        concatenates = self.backward_cell is not None and self.merge_mode == "concat"
        return self.units * (2 if concatenates else 1)

    def recurrence(self, wx, **arguments):
        """The op: wx [N, T, K, G, H] → y [N, T, K, H], tuple of states [N, K, H].

        `arguments` are all of the op's that a layer of any kind has: the weights of the recurrence
        (`RecurrentCell.prepared`), each [K, ...], initial_state, and the options.
        """
        raise NotImplementedError(f"{type(self).__name__} names no op: write `recurrence`.")

    # Shapes and masks.

    def build(self, sequences_shape, initial_state_shape=None):
        check_features(self, sequences_shape)
        for cell in self.cells:
            if not cell.built:
                cell.build((sequences_shape[0], sequences_shape[2]))
            check_cell_dtype(self, cell)
        self.state_size = list(self.cell.state_size) * len(self.cells)
        super().build(sequences_shape)

    def compute_output_shape(self, sequences_shape, initial_state_shape=None):
        check_features(self, sequences_shape)
        batch, time = sequences_shape[0], sequences_shape[1]
        steps = (time,) if self.return_sequences else ()
        output = (batch, *steps, self.output_size)
        outputs = (output, output) if self._two_outputs else (output,)
        if self.return_state:
            outputs += tuple((batch, size) for size in self.state_size)
        return outputs if len(outputs) > 1 else output

    def compute_mask(self, sequences, mask):
        if self.backward_cell is None:
            return super().compute_mask(sequences, mask)
        mask = mask[0] if isinstance(mask, (list, tuple)) else mask
        masks = [mask if self.return_sequences else None] * (2 if self._two_outputs else 1)
        if self.return_state:
            masks += [None] * len(self.state_size)
        return masks if len(masks) > 1 else masks[0]

    @property
    def _two_outputs(self):
        return self.backward_cell is not None and self.merge_mode is None

    def get_initial_state(self, batch_size):
        states = super().get_initial_state(batch_size)
        return states * 2 if self.backward_cell is not None else states

    @property
    def _starts_at_zero(self):
        own = type(self).get_initial_state is RecurrentLayer.get_initial_state
        return own and self.cell.starts_at_zero

    def __call__(self, sequences, *args, **kwargs):
        check_call(self, sequences, args[0] if args else kwargs.get("initial_state"))
        return super().__call__(sequences, *args, **kwargs)

    # The call. Keras's own `call` reads step 0, which an empty sequence does not have, and relies
    # on the casts of `__call__`, which TimeDistributed does not call.

    def call(self, sequences, initial_state=None, mask=None, training=False):
        """Runs the layer.

        Args:
          sequences: [N, T, C]; cast to the compute dtype.
          initial_state: the states [N, units] in the order that `return_state` gives; default 0.
          mask: [N, T], true (or nonzero) at live steps; default: all are.
          training: whether dropout, DropConnect and Zoneout are drawn.
        Returns:
          [N, T, units] with return_sequences, else [N, units]; with return_state followed by the
          states; merged or paired directions as `merge_mode` says.
        """
        sequences = cast_real("sequences", self, sequences)
        check_rank(self, sequences)
        check_features(self, sequences.shape)
        if self.unroll and sequences.shape[1] is None:
            raise ValueError(
                "Cannot unroll a RNN if the time dimension is undefined: give the time dimension "
                "in the shape of `Input`, or leave `unroll` (which changes nothing here) False."
            )
        mask = check_mask(self, mask, sequences)
        at_zero = initial_state is None and not self.stateful and self._starts_at_zero
        if initial_state is None:
            initial_state = (
                self.states if self.stateful else self.get_initial_state(size(sequences, 0))
            )
        initial_state = check_states(self, initial_state, sequences)
        last_output, outputs, states = self.inner_loop(
            sequences, initial_state, mask, training=training, at_zero=at_zero
        )
        if self.stateful:
            for variable, state in zip(self.states, states, strict=True):
                variable.assign(tf.cast(state, variable.dtype))
        output = outputs if self.return_sequences else last_output
        if not self.return_state:
            return output
        return (*output, *states) if self._two_outputs else (output, *states)

    def inner_loop(self, sequences, initial_state, mask, training=False, at_zero=False):
        """Projection, recurrence, merge; arguments checked and in the compute dtype.

        at_zero: initial_state is zeros, which the op is not given then.
        Returns (last output, outputs, states) as keras.layers.RNN wants them.
        """
        training = bool(training)
        if mask is not None:
            # A masked NaN would reach dW as 0·NaN.
            live = tf.expand_dims(mask, 2)  # LiteRT slices no booleans
            sequences = tf.where(live, sequences, tf.zeros([], sequences.dtype))
        in_int8 = self._runs_int8(training)
        projections, weights = self._prepare_weights(in_int8)
        reason = step_loop.why(self.cell, [sequences, initial_state, projections, weights])
        if reason:
            step_loop.warn(self, reason)
            return self._inner_loop_of_steps(sequences, initial_state, mask, training)
        if in_int8:  # between the products all is in float32
            sequences, *initial_state = tf.nest.map_structure(wide, [sequences, *initial_state])
        keep = self._draw_dropout(sequences) if training and self.dropout else None
        if training and self.dropconnect:
            weights["recurrent_kernel"] = keras.random.dropout(
                weights["recurrent_kernel"], self.dropconnect, seed=self.cell.seed_generator
            )
        states, passed_by = self._split_states(initial_state)
        wx, carried = self.project(
            sequences,
            projections,
            keep=keep,
            mask=mask,
            reverse=self._reverse,
            carried=passed_by,
            training=training,
        )
        with weights_of_variables(not self._transforms_weights):
            y, states = self.recurrence(
                wx,
                initial_state=None if at_zero else directions.to_lanes(states, self.heads),
                mask=mask,
                reverse=[lane for lane in self._reverse for _ in range(self.heads)],
                zero_output_for_mask=self._zeroes_masked,
                **self._options(training),
                **weights,
            )
        states = directions.from_lanes(states, len(self.cells))
        last = self._last_outputs(y, states, sequences, mask, at_zero)
        flat = [s for pair in zip(states, carried, strict=True) for part in pair for s in part]
        results = directions.merge(last, self.merge_mode), self._all_outputs(y, training), flat
        return self._in_compute_dtype(results) if in_int8 else results

    # The steps of `inner_loop`, in its order.

    @property
    def _reverse(self):
        """For each cell whether it walks from the end."""
        # Walking backwards is walking the reversed sequence, with outputs in its order.
        return [
            (i == 1 or self.direction == "backward") != self.go_backwards
            for i in range(len(self.cells))
        ]

    @property
    def _zeroes_masked(self):
        # Bidirectional's rule: directions are merged step by step, so masked steps must be 0.
        return self.zero_output_for_mask if self.backward_cell is None else self.return_sequences

    @property
    def _transforms_weights(self):
        names = [f"{role}_transform" for role in ROLES]
        return any(getattr(self.cell, name, None) is not None for name in names)

    def _prepare_weights(self, int8):
        """Weights of the projection of each cell, and of the recurrence of all lanes."""
        projections, recurrences = zip(*(cell.prepared(int8) for cell in self.cells), strict=True)
        return projections, directions.join(recurrences, axis=0)

    def _draw_dropout(self, sequences):
        """[N, C]: what dropout multiplies the input of every step by."""
        ones = tf.ones([size(sequences, 0), sequences.shape[2]], sequences.dtype)
        return keras.random.dropout(ones, self.dropout, seed=self.cell.seed_generator)

    def _split_states(self, initial_state):
        """States that the recurrence takes, and the others; each a list for each direction."""
        count = len(self.cell.spec.states)
        given = directions.of_each(initial_state, len(self.cells))
        return [each[:count] for each in given], [each[count:] for each in given]

    def _options(self, training):
        """Options of the op."""
        options = {"engine": self.engine, "training": training}
        if self.cell.spec.recurrence != "none":
            options["recurrent_dropout"] = self.recurrent_dropout
        if training and (self.recurrent_dropout or any(self.cell.zoneout_rates)):
            options["seed"] = tf.cast(self.cell.seed_generator.next(), tf.int64)
        return options

    def _last_outputs(self, y, states, sequences, mask, at_zero):
        """Output [N, units] of the last step of each direction's walk."""
        if self.cell.outputs_state:
            rules = sequences, mask, self._reverse, self._zeroes_masked, at_zero
            return directions.last_of_states([each[0] for each in states], *rules)
        parts = zip(tf.split(y, len(self.cells), axis=2), self._reverse, strict=True)
        return [directions.last_of_outputs(part, backwards) for part, backwards in parts]

    def _all_outputs(self, y, training):
        """Outputs of all steps, merged; None unless the layer returns them."""
        if not self.return_sequences:
            return None
        outputs = directions.merge_sequences(y, len(self.cells), self.merge_mode, training)
        if self.go_backwards:
            outputs = tf.nest.map_structure(lambda each: tf.reverse(each, [1]), outputs)
        return outputs

    def _inner_loop_of_steps(self, sequences, states, mask, training):
        """What `inner_loop` computes, by the cells and Keras's own loop."""
        last, outputs, flat = [], [], []
        given = directions.of_each(states, len(self.cells))
        for cell, own, backwards in zip(self.cells, given, self._reverse, strict=True):
            last_output, output, new_states = step_loop.loop_of_steps(
                cell,
                sequences,
                own,
                mask=mask,
                training=training,
                go_backwards=backwards,
                zero_output_for_mask=self._zeroes_masked,
                return_all_outputs=self.return_sequences,
            )
            last.append(last_output)
            outputs.append(tf.reverse(output, [1]) if backwards != self.go_backwards else output)
            flat.extend(new_states)
        mode = self.merge_mode
        return directions.merge(last, mode), directions.merge(outputs, mode), flat

    def project(self, sequences, weights, *, keep, mask, reverse, carried, training):
        """x·W + b of all lanes.

        Args:
          sequences: [N, T, C], 0 at masked steps.
          weights: those of the projection of each cell, of `RecurrentCell.prepared`.
          keep: [N, C], what dropout multiplies each step by, or None.
          mask: [N, T] bool, or None.
          reverse: for each cell whether it walks from the end.
          carried: for each cell the states that the recurrence does not take.
          training: of the call.
        Returns:
          [N, T, K, G, H], or a `raw_ops.Projection` for the op to form it, and `carried` after the
          walk.
        """
        if keep is not None:
            sequences = sequences * keep[:, tf.newaxis]
        weights = directions.join(weights, axis=-1)
        features = weights["kernel"].shape[0]
        if sequences.shape[-1] is None:
            sequences = tf.ensure_shape(sequences, [None, None, features])
        int8 = "kernel_scale" in weights
        if self.only_adds_bias and op_projects(
            self.cell.spec, features, sequences.dtype, training, int8
        ):
            shape = self._lane_shape()
            kernel = tf.reshape(weights["kernel"], [features, *shape])
            bias, scale = (
                tf.reshape(weights[name], shape) if name in weights else None
                for name in ("bias", "kernel_scale")
            )
            return raw_ops.Projection(sequences, kernel, bias, scale), carried
        wx = self.multiply(tf.reshape(sequences, [-1, features]), weights)
        return self._in_lanes(self.shift(wx, weights), sequences), carried

    def _lane_shape(self):
        """[K, G, H]."""
        heads, gates, hidden = self.cell.gate_shape
        return [len(self.cells) * heads, gates, hidden]

    def _in_lanes(self, wx, sequences):
        """[N·T, K·G·H] → [N, T, K, G, H]."""
        return tf.reshape(wx, [size(sequences, 0), size(sequences, 1), *self._lane_shape()])

    def shift(self, wx, weights):
        """x·W [N·T, K·G·H] → the projected input: with the biases of all lanes."""
        return add_bias(wx, weights["bias"]) if "bias" in weights else wx

    def get_config(self):
        config = super().get_config()
        del config["cell"]
        cell_config = self.cell.get_config()
        for name in ("name", "trainable", "dtype"):
            cell_config.pop(name, None)
        regularizer = keras.regularizers.serialize(self.activity_regularizer)
        return {
            **config,
            **cell_config,
            "activity_regularizer": regularizer,
            "direction": self.direction,
            "merge_mode": self.merge_mode,
            "engine": self.engine,
        }

    @classmethod
    def from_config(cls, config):
        return cls(**config)
