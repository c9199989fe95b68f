"""The recurrent layer: all of a Keras layer that is not the equations of one cell.

    wx = x·W + b      one product over N·T rows, for all lanes      TensorFlow
    y, states         the recurrence over all lanes at once         haste_keras.ops

A lane is one independent recurrence: direction × head, direction-major. A layer file names its
cell and its op and lists its arguments.
"""

import keras
import tensorflow as tf
from keras.src.utils.naming import to_snake_case

from haste_keras import _xla
from haste_keras._checks import (
    ENGINES,
    check_choice,
    check_features,
    check_mask,
    check_rank,
    check_states,
    size,
)

DIRECTIONS = ("forward", "backward", "bidirectional")
MERGE_MODES = ("concat", "sum", "mul", "ave", None)


def from_cell(name):
    """A property of the layer that its cell holds."""
    return property(lambda layer: getattr(layer.cell, name), doc=f"`{name}` of the cell.")


def _clone_initializer(initializer):
    if isinstance(initializer, keras.initializers.Initializer):
        return initializer.clone()
    return initializer


def _add_bias(wx, bias):
    """wx [N·T, G·H] + bias [G·H]."""
    if wx.dtype.size > 2:
        return tf.nn.bias_add(wx, bias)
    # TensorFlow sums BiasAdd's gradient over N·T rows in the 16-bit type itself. Of a product it
    # sums in float32.
    ones = tf.ones([tf.shape(wx)[0], 1], wx.dtype)
    return wx + tf.matmul(ones, bias[tf.newaxis])


class RecurrentLayer(keras.layers.RNN):
    """Base of the fused layers; takes and gives what `keras.layers.RNN` does.

    Args:
      cell_class: the `RecurrentCell` with this layer's weights; its arguments come in `kwargs`,
        among those of `keras.layers.RNN`.
      direction: "forward"; "backward" (walks from the end, outputs in the order of time);
        "bidirectional" (both, merged by `merge_mode`; weights as of keras.layers.Bidirectional).
      merge_mode: "concat", "sum", "mul", "ave" or None, as of keras.layers.Bidirectional.
      engine: "auto", or the name of an engine of the op.
    """

    def __init__(
        self,
        cell_class,
        *,
        direction,
        merge_mode,
        engine,
        use_cudnn="auto",
        **kwargs,
    ):
        check_choice("direction", direction, DIRECTIONS)
        check_choice("merge_mode", merge_mode, MERGE_MODES)
        if use_cudnn not in ("auto", True, False):
            raise ValueError(
                "Invalid valid received for argument `use_cudnn`. "
                "Expected one of {'auto', True, False}. "
                f"Received: use_cudnn={use_cudnn}"
            )
        check_choice("engine", engine, ENGINES)
        bidirectional = direction == "bidirectional"
        cell_arguments = {
            name: kwargs.pop(name) for name in cell_class.argument_names() if name in kwargs
        }
        for name in ("dtype", "trainable"):
            if name in kwargs:
                cell_arguments[name] = kwargs[name]
        cell_name = to_snake_case(cell_class.__name__)
        cell = cell_class(
            **cell_arguments, name=f"forward_{cell_name}" if bidirectional else cell_name
        )
        super().__init__(cell, **kwargs)
        self.backward_cell = None
        if bidirectional:
            fresh = {
                f"{weight}_initializer": _clone_initializer(getattr(cell, f"{weight}_initializer"))
                for weight in ("kernel", "recurrent", "bias")
            }
            shared = {"name": f"backward_{cell_name}", "seed": cell.seed_generator}
            self.backward_cell = cell_class(**{**cell_arguments, **fresh, **shared})
            self.state_size = list(cell.state_size) * 2
        self.direction = direction
        self.merge_mode = merge_mode
        self.engine = engine
        self.use_cudnn = use_cudnn
        self.input_spec = keras.layers.InputSpec(ndim=3)
        self.supports_jit = False  # XLA has no kernel of the ops; Keras asks before it compiles

    units = from_cell("units")
    heads = from_cell("heads")
    activation = from_cell("activation")
    use_bias = from_cell("use_bias")
    kernel_initializer = from_cell("kernel_initializer")
    recurrent_initializer = from_cell("recurrent_initializer")
    bias_initializer = from_cell("bias_initializer")
    kernel_regularizer = from_cell("kernel_regularizer")
    recurrent_regularizer = from_cell("recurrent_regularizer")
    bias_regularizer = from_cell("bias_regularizer")
    kernel_constraint = from_cell("kernel_constraint")
    recurrent_constraint = from_cell("recurrent_constraint")
    bias_constraint = from_cell("bias_constraint")
    kernel_transform = from_cell("kernel_transform")
    recurrent_transform = from_cell("recurrent_transform")
    bias_transform = from_cell("bias_transform")
    dropout = from_cell("dropout")
    recurrent_dropout = from_cell("recurrent_dropout")
    dropconnect = from_cell("dropconnect")
    zoneout = from_cell("zoneout")

    @property
    def cells(self):
        """The cells in the order of their lanes: forward first."""
        return [self.cell] if self.backward_cell is None else [self.cell, self.backward_cell]

    @property
    def output_size(self):
        concatenates = self.backward_cell is not None and self.merge_mode == "concat"
        return self.units * (2 if concatenates else 1)

    def recurrence(self, wx, recurrent_kernel, initial_state, **options):
        """The op: wx [N, T, K, G, H], recurrent_kernel [K, H, G, H], states [N, K, H] → y, states.

        `options` are those that every op of the package takes.
        """
        raise NotImplementedError(f"{type(self).__name__} names no op: write `recurrence`.")

    # Shapes and masks.

    def build(self, sequences_shape, initial_state_shape=None):
        check_features(self, sequences_shape)
        if self.backward_cell is not None and not self.backward_cell.built:
            self.backward_cell.build((sequences_shape[0], sequences_shape[2]))
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

    def __call__(self, sequences, *args, **kwargs):
        check_rank(self, sequences)  # Keras reads the rank before `call` could
        return super().__call__(sequences, *args, **kwargs)

    # The call. Keras's own `call` reads step 0, which a sequence of no steps has not, and relies
    # on the casts of `__call__`, which TimeDistributed goes past.

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
        sequences = tf.cast(tf.convert_to_tensor(sequences), self.compute_dtype)
        check_rank(self, sequences)
        check_features(self, sequences.shape)
        if self.unroll and sequences.shape[1] is None:
            raise ValueError(
                "Cannot unroll a RNN if the time dimension is undefined: give the time dimension "
                "in the shape of `Input`, or leave `unroll` (which changes nothing here) False."
            )
        mask = check_mask(self, mask, sequences)
        if initial_state is None:
            initial_state = (
                self.states if self.stateful else self.get_initial_state(size(sequences, 0))
            )
        initial_state = check_states(self, initial_state, sequences)
        last_output, outputs, states = self.inner_loop(
            sequences=sequences, initial_state=initial_state, mask=mask, training=training
        )
        if self.stateful:
            for variable, state in zip(self.states, states, strict=True):
                variable.assign(tf.cast(state, variable.dtype))
        output = outputs if self.return_sequences else last_output
        if not self.return_state:
            return output
        return (*output, *states) if self._two_outputs else (output, *states)

    def inner_loop(self, sequences, initial_state, mask, training=False):
        """Projection, recurrence, merge; arguments checked and in the compute dtype.

        Returns (last output, outputs, states) as keras.layers.RNN wants them.
        """
        training = bool(training)
        if mask is not None:
            # A masked NaN would reach dW as 0·NaN.
            sequences = tf.where(mask[:, :, tf.newaxis], sequences, tf.zeros([], sequences.dtype))
        # Bidirectional's rule: directions are merged step by step, so masked steps must be 0.
        zero_masked = self.zero_output_for_mask
        if self.backward_cell is not None:
            zero_masked = self.return_sequences
        # Walking backwards is walking the reversed sequence, with outputs in its order.
        reverse = [
            (i == 1 or self.direction == "backward") != self.go_backwards
            for i in range(len(self.cells))
        ]
        if _xla.compiles_here():
            return self._inner_loop_of_steps(
                sequences, initial_state, mask, training, zero_masked, reverse
            )

        generator = self.cell.seed_generator
        if training and self.dropout:
            ones = tf.ones([size(sequences, 0), sequences.shape[2]], sequences.dtype)
            keep = keras.random.dropout(ones, self.dropout, seed=generator)
            sequences = sequences * keep[:, tf.newaxis, :]
        lanes = [cell.recurrent_lanes() for cell in self.cells]
        lanes = lanes[0] if len(lanes) == 1 else tf.concat(lanes, axis=0)
        if training and self.dropconnect:
            lanes = keras.random.dropout(lanes, self.dropconnect, seed=generator)
        draws = training and (self.recurrent_dropout or any(self.cell.zoneout_rates))

        wx = self._project(sequences, lanes)
        batch, count, hidden = size(sequences, 0), lanes.shape[0], lanes.shape[1]
        y, states = self.recurrence(
            wx,
            lanes,
            self._to_lanes(initial_state, [-1, count, hidden]),
            mask=mask,
            seed=tf.cast(generator.next(), tf.int64) if draws else None,
            reverse=[lane for lane in reverse for _ in range(self.heads)],
            recurrent_dropout=self.recurrent_dropout,
            training=training,
            zero_output_for_mask=zero_masked,
            engine=self.engine,
        )
        states = [self._from_lanes(state) for state in states]
        last = [
            self._last_output(direction[0], sequences, mask, backwards, zero_masked)
            for direction, backwards in zip(zip(*states, strict=True), reverse, strict=True)
        ]
        outputs = None
        if self.return_sequences:
            time = size(sequences, 1)
            if len(reverse) == 1 or self.merge_mode == "concat":
                outputs = tf.reshape(y, [batch, time, count * hidden])
            else:
                y = tf.reshape(y, [batch, time, len(reverse), self.units])
                outputs = self._merge(tf.unstack(y, axis=2))
            if self.go_backwards:
                outputs = tf.nest.map_structure(lambda each: tf.reverse(each, [1]), outputs)
        flat = [state for direction in zip(*states, strict=True) for state in direction]
        return self._merge(last), outputs, flat

    def _inner_loop_of_steps(self, sequences, states, mask, training, zero_masked, reverse):
        """What `inner_loop` computes, by the cells and Keras's own loop, for XLA."""
        last, outputs, flat = [], [], []
        per_cell = len(self.cell.spec.states)
        for i, (cell, backwards) in enumerate(zip(self.cells, reverse, strict=True)):
            last_output, output, new_states = _xla.loop_of_steps(
                cell,
                sequences,
                states[i * per_cell : (i + 1) * per_cell],
                mask=mask,
                training=training,
                go_backwards=backwards,
                zero_output_for_mask=zero_masked,
                return_all_outputs=self.return_sequences,
            )
            last.append(last_output)
            outputs.append(tf.reverse(output, [1]) if backwards != self.go_backwards else output)
            flat.extend(new_states)
        return self._merge(last), self._merge(outputs), flat

    def _project(self, sequences, lanes):
        """x·W + b of all lanes: [N, T, C] → [N, T, K, G, H]."""
        kernels, biases = zip(*(cell.input_weights() for cell in self.cells), strict=True)
        features = kernels[0].shape[0]
        if sequences.shape[-1] is None:
            sequences = tf.ensure_shape(sequences, [None, None, features])
        kernel = kernels[0] if len(kernels) == 1 else tf.concat(kernels, axis=1)
        wx = tf.matmul(tf.reshape(sequences, [-1, features]), kernel)
        if biases[0] is not None:
            wx = _add_bias(wx, biases[0] if len(biases) == 1 else tf.concat(biases, axis=0))
        count, hidden, gates, _ = lanes.shape
        return tf.reshape(wx, [size(sequences, 0), size(sequences, 1), count, gates, hidden])

    def _to_lanes(self, states, shape):
        """States of the layer, direction by direction → one [N, K, H] a state of the cell."""
        per_cell = len(self.cell.spec.states)
        if self.backward_cell is not None:
            pairs = zip(states[:per_cell], states[per_cell:], strict=True)
            states = [tf.stack(pair, axis=1) for pair in pairs]
        return [tf.reshape(state, shape) for state in states]

    def _from_lanes(self, state):
        """[N, K, H] → a list of [N, units], one a direction."""
        count = len(self.cells)
        if count == 1:
            return [tf.reshape(state, [-1, self.units])]
        return tf.unstack(tf.reshape(state, [-1, count, self.units]), axis=1)

    def _last_output(self, h, sequences, mask, backwards, zero_masked):
        """h [N, units] after the walk is its last output, unless that output is 0 by the rules."""
        if mask is None:
            time = size(sequences, 1)
            if isinstance(time, int):
                return h if time else tf.zeros_like(h)
            return tf.where(time > 0, h, tf.zeros_like(h))
        if zero_masked:
            mask = mask[:, :1] if backwards else mask[:, -1:]
        live = tf.reduce_any(mask, axis=1, keepdims=True)
        return tf.where(live, h, tf.zeros_like(h))

    def _merge(self, directions):
        if len(directions) == 1:
            return directions[0]
        forward, backward = directions
        if self.merge_mode == "concat":
            return tf.concat([forward, backward], axis=-1)
        if self.merge_mode == "sum":
            return forward + backward
        if self.merge_mode == "ave":
            return (forward + backward) / 2
        if self.merge_mode == "mul":
            return forward * backward
        return forward, backward

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
