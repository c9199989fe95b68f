"""Cells without a recurrent matrix: the state of a step is a linear function of the last.

    h' = keep ∘ h + new        y = out ∘ h'

All that the three are made of is known before the first step.
"""

from haste_keras.layers.base.cell import RecurrentCell


class PoolingCell(RecurrentCell):
    """A cell whose gates see the input alone. A subclass writes `coefficients`."""

    own_zoneout = (0,)
    without = (
        *("heads", "dropconnect", "recurrent_dropout", "recurrent_initializer"),
        *("recurrent_regularizer", "recurrent_constraint", "recurrent_transform"),
    )

    def coefficients(self, x, share):
        """What makes the state and the output of a step.

        Args:
          x: [..., G, H] projected input, of one step or of many.
          share: how much of the state Zoneout keeps, in [0, 1]; None: nothing.
        Returns:
          keep, new, out: [..., H] each; out is None if the output is the state.
        """
        raise NotImplementedError(f"{type(self).__name__} has no equations: write `coefficients`.")

    def step(self, x, states, weights, share):
        keep, new, out = self.coefficients(x, share[0])
        state = keep * states[0] + new
        return None if out is None else out * state, [state]


def forget_mult(f, x, share):
    """`PoolingCell.coefficients` of ForgetMult: f is the share of x."""
    f = f if share is None else (1 - share) * f
    return 1 - f, f * x, None
