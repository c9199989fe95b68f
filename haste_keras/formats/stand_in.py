"""Nodes of a TensorFlow graph that stand for nodes of an ONNX graph.

TensorFlow has no ONNX operators. While a model is traced a call of an operator is a
`PyFuncStateless`, which is never run: its token names the `StandIn` that says what it becomes.
"""

import dataclasses
import itertools
from typing import Any

import tensorflow as tf

TYPE = "PyFuncStateless"


@dataclasses.dataclass(frozen=True)
class StandIn:
    """What a node becomes.

    operator: of ONNX.
    attributes: of the operator; of a Scan without its body.
    slots: the operator's inputs: each the index of an input of the node, or None: absent.
    body: of a Scan: the function of a step, with first the operator's inputs and then the
      `captures` last inputs of the node; else None.
    captures: how many tensors from outside the body uses.
    where: the layer, for errors.
    """

    operator: str
    attributes: dict
    slots: list
    body: Any = None
    captures: int = 0
    where: str = ""


class StandIns:
    """All of one export, by token."""

    def __init__(self):
        self.by_token = {}
        self._numbers = itertools.count()

    def emit(self, stand_in, inputs, outputs):
        """Adds a node to the graph that is being traced.

        Args:
          stand_in: `StandIn`.
          inputs: list of tensors.
          outputs: list of (dtype, shape).
        Returns:
          list of tensors.
        """
        token = f"haste_keras:{next(self._numbers)}"
        self.by_token[token] = stand_in
        made = tf.raw_ops.PyFuncStateless(
            input=inputs, token=token, Tout=[dtype for dtype, _ in outputs]
        )
        return [
            tf.ensure_shape(each, shape) for each, (_, shape) in zip(made, outputs, strict=True)
        ]
