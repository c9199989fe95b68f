"""Scan of ONNX for every other recurrence: its body is the cell's own step."""

import tensorflow as tf

from haste_keras.formats.stand_in import StandIn
from haste_keras.serving.walk import advance, holds


def scan_loop(stand_ins, where):
    """The loop of `walk.Options` that emits a Scan.

    Args:
      stand_ins: `StandIns`.
      where: the layer, for errors.
    Returns:
      (step, x, states, mask, options) → y, states, as of `walk.walk`.
    """

    def loop(step, x, states, mask, options):
        count, held = len(states), holds(mask, options)
        carried = [*states, *([tf.zeros_like(states[0])] if held else [])]
        scanned = [*x, *([] if mask is None else [mask])]

        def body(*arguments):
            old, now = arguments[: len(carried)], arguments[len(carried) :]
            live = None if mask is None else now[-1]
            last = old[-1] if held else None
            output, new = advance(step, list(now[: len(x)]), list(old[:count]), last, live, options)
            # Apart, for a graph of ONNX has no tensor twice among its outputs.
            return [tf.identity(each) for each in (*new, *([output] if held else []), output)]

        specs = [tf.TensorSpec(each.shape, each.dtype) for each in carried]
        specs += [tf.TensorSpec([each.shape[0], *each.shape[2:]], each.dtype) for each in scanned]
        function = tf.function(body, autograph=False).get_concrete_function(*specs)
        captured = list(function.captured_inputs)
        backwards = int(options.reverse)
        attributes = {
            "num_scan_inputs": len(scanned),
            "scan_input_axes": [1] * len(scanned),
            "scan_input_directions": [backwards] * len(scanned),
            "scan_output_axes": [1],
            "scan_output_directions": [backwards],
        }
        inputs = [*carried, *scanned]
        stand_in = StandIn(
            "Scan", attributes, list(range(len(inputs))), function, len(captured), where
        )
        *new, y = stand_ins.emit(
            stand_in,
            [*inputs, *captured],
            [(each.dtype, each.shape) for each in carried]
            + [(states[0].dtype, [*x[0].shape[:2], *states[0].shape[1:]])],
        )
        return y, new[:count]

    return loop
