"""What layer normalisation gains: small batches of long sequences.

    python -m benchmarks.papers layer-norm [--units 128] [--length 400] [--plot FILE]

Ba, Kiros & Hinton, "Layer Normalization" (arXiv 1607.06450). Their handwriting task has batches
of 8 and sequences of 700; this is a character model with batches of 8. `--length 700 --units 400`
has their sequences, and layers of the size of theirs.
"""

import functools

import haste_keras
from benchmarks.papers import curves

VARIANTS = {
    name: functools.partial(layer, return_sequences=True, stateful=True)
    for name, layer in {
        "LSTM": haste_keras.LSTM,
        "LayerNormLSTM": haste_keras.LayerNormLSTM,
        "GRU": haste_keras.GRU,
        "LayerNormGRU": haste_keras.LayerNormGRU,
    }.items()
}


DEFAULTS = {
    "--units": 128,
    "--batch": 8,
    "--length": 400,
    "--epochs": 16,
    "--characters": 150_000,
    "--rate": 3e-3,
}


def main(arguments=None):
    title = "Character model, batch {batch}, {length} steps, {units} units"
    curves.main("layer-norm", __doc__.splitlines()[0], VARIANTS, DEFAULTS, title, arguments)


if __name__ == "__main__":
    main()
