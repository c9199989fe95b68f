"""`haste_keras.to_onnx`: a model as an ONNX file."""

import keras
import numpy as np

from haste_keras._compat import flattened_layers
from haste_keras.formats import files
from haste_keras.formats.onnx_assemble import Packages, assemble, check_operators
from haste_keras.formats.onnx_nodes import emit_nodes, has_node, is_right_padded
from haste_keras.formats.onnx_scan import scan_loop
from haste_keras.formats.stand_in import StandIns
from haste_keras.formats.trace import check_model, check_no_ops, trace
from haste_keras.layers.base.cell import RecurrentCell
from haste_keras.native.emit import emitted_by
from haste_keras.serving.scope import check_draws, where
from haste_keras.serving.stock import STOCK, Recurrence

OPSETS = range(13, 19)  # Einsum and the signatures of today; what tf2onnx knows
_MOST_BYTES = 2**31 - 2**20  # of a protobuf file; the nodes are small


class _Emitter:
    """Emits what ONNX has for an op, and the ops of TensorFlow for the rest."""

    prefers_projection = True

    def __init__(self, stand_ins, right_padded):
        self.stand_ins, self.right_padded = stand_ins, right_padded
        self.generator = keras.random.SeedGenerator(0, name="onnx")

    def __call__(self, name, inputs, attributes):
        if name not in STOCK:
            raise NotImplementedError(
                f"to_onnx: {where()} needs the op {name}, of a gradient, which ONNX does not have"
            )
        stock = STOCK[name]
        check_draws(stock.op, attributes)
        scan = scan_loop(self.stand_ins, where())
        if not isinstance(stock, Recurrence):
            return stock.body(inputs, attributes, loop=scan, generator=self.generator)
        attributes = {"activation": "tanh", "recurrent_activation": "sigmoid", **attributes}
        mask = dict(zip(stock.dims, inputs, strict=True))["mask"]
        lengths = mask.shape.rank != 2 or self.right_padded or is_right_padded(mask)
        if lengths and has_node(stock, inputs, attributes):
            outputs = emit_nodes(self.stand_ins, stock, inputs, attributes, where())
            return outputs + [outputs[0][:0, 0, 0, 0] for _ in stock.spec.reserve]
        return stock.body(inputs, attributes, loop=scan, generator=self.generator)


def to_onnx(model, path, *, opset=17, input_signature=None, right_padded=False):
    """Writes a model as an ONNX file, for inference, with any number of rows and steps.

    LSTM, GRU (both resets) and Elman become LSTM, GRU and RNN of ONNX: both directions in one node,
    a node for each head. All other recurrences, and these with Zoneout, with a mask of any pattern
    or in float64, become a Scan over the layer's own equations. Layers of other kinds go through
    tf2onnx. The file has the weights in it, and is checked by ONNX's checker before it is written.

    Args:
      model: a built `keras.Model`; what it draws in training it does not draw in the file.
      path: str or pathlib.Path of the file.
      opset: of ONNX, 13 to 18.
      input_signature: as the model is called: a tf.TensorSpec, or a list or dictionary of them.
        None: of a Sequential or functional model its inputs.
      right_padded: bool; True: you declare that every mask of the model is padding on the right
        (live steps first), so that a masked LSTM, GRU or Elman takes its lengths as
        `sequence_lens`. False: the file honours masks of any pattern; where the graph shows that a
        mask is `tf.sequence_mask` of lengths, they are taken as well.
    Raises:
      ImportError: a package is missing: pip install "haste-keras[onnx]".
      TypeError, ValueError, NotImplementedError: an argument is not as above, or the model has what
        ONNX or tf2onnx does not have; the message names the layer. Nothing is written.

    In 16 bits recurrences compute in float32, as ours do. onnxruntime 1.31 aborts on sequences
    without a step, and some operators on batches without a row.
    """
    check_model("to_onnx", model)
    path = files.check_path(path, ".onnx")
    if opset not in OPSETS:
        raise ValueError(
            f"to_onnx: `opset` must be {OPSETS[0]} to {OPSETS[-1]}. Received: opset={opset!r}"
        )
    wide = [
        each.name
        for each in flattened_layers(model)
        if each.compute_dtype == "bfloat16"
        and not isinstance(each, (keras.Model, keras.layers.InputLayer, RecurrentCell))
    ]
    if wide:
        raise ValueError(
            f"to_onnx: layer {', '.join(wide)} computes in bfloat16, which onnxruntime does not: "
            "make the model with dtype policy float32 or mixed_float16, and set_weights"
        )
    size = sum(int(np.prod(each.shape)) * each.value.dtype.size for each in model.variables)
    if size > _MOST_BYTES:
        raise ValueError(
            f"to_onnx: model {model.name} has {size / 2**30:.1f} GiB of weights, and an ONNX file "
            "holds 2: convert it in parts"
        )
    onnx, tf2onnx, *_ = files.needed("to_onnx", "onnx", "onnx", "tf2onnx", "tf2onnx.tfonnx")
    stand_ins = StandIns()
    with emitted_by(_Emitter(stand_ins, bool(right_padded))):
        function, names = trace(model, "to_onnx", input_signature)
    check_no_ops("to_onnx", function)
    proto = assemble(Packages(onnx, tf2onnx), function, names, stand_ins, opset, model.name)
    check_operators(onnx, proto)
    onnx.checker.check_model(proto, full_check=True)
    files.write_whole(path, proto.SerializeToString())
