"""What differs between cells, as the ops, their gradients and the layers need to know it."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class CellSpec:
    """One cell: the Python side of `lib/cells/<name>.h`.

    name: as `haste_cell` of the C ABI lists it, in snake case.
    gates: names in the order of axis G of wx and recurrent_kernel.
    states: names in the order of initial_state; the first enters h·R.
    layer: name of the Keras layer; that of its cell ends in "Cell".
    """

    name: str
    layer: str
    gates: tuple[str, ...]
    states: tuple[str, ...]

    @property
    def op(self):
        """Name of the TensorFlow op, "HasteLstm"; that of its gradient is `op + "Grad"`."""
        return "Haste" + "".join(word.capitalize() for word in self.name.split("_"))

    @property
    def python_op(self):
        """Name of the op's wrapper in the loaded library; its gradient's ends in "_grad"."""
        return "haste_" + self.name


LSTM = CellSpec("lstm", "LSTM", gates=("i", "f", "g", "o"), states=("h", "c"))

CELLS = (LSTM,)
