"""What Zoneout gains: a character model that has too little text.

    python -m benchmarks.papers zoneout [--units 192] [--epochs 40] [--plot FILE]

Krueger et al., "Zoneout: Regularizing RNNs by Randomly Preserving Hidden Activations" (arXiv
1606.01305), with that paper's rates for characters: 0.5 for c and 0.05 for h. Theirs is Penn
Treebank with 1,000 units; `--units 1000 --characters 10000000` comes near it, on all of Python's
reference.
"""

import haste_keras
from benchmarks.papers import curves


def _lstm(**arguments):
    return lambda units: haste_keras.LSTM(units, return_sequences=True, stateful=True, **arguments)


VARIANTS = {
    "LSTM": _lstm(),
    "LSTM, Zoneout 0.5 of c, 0.05 of h": _lstm(zoneout=0.05, zoneout_cell=0.5),
    "LSTM, recurrent dropout 0.25": _lstm(recurrent_dropout=0.25),
}


DEFAULTS = {
    "--units": 192,
    "--batch": 16,
    "--length": 50,
    "--epochs": 40,
    "--characters": 60_000,
    "--rate": 3e-3,
}


def main(arguments=None):
    title = "Character model, LSTM of {units} units"
    curves.main("zoneout", __doc__.splitlines()[0], VARIANTS, DEFAULTS, title, arguments)


if __name__ == "__main__":
    main()
