"""A word model with AWD-LSTM's regularisation on and off, by four recurrences.

    python -m benchmarks.papers language-model [--large] [--epochs 20] [--plot FILE]

Weight drop and dropout with one mask for all steps as in Merity et al., "Regularizing and
Optimizing LSTM Language Models" (arXiv 1708.02182), tied embeddings as there, and Zoneout. Adam in
place of averaged SGD, which needs hundreds of epochs. The text is Python's language reference, with
--large the docstrings of its standard library too. Prints the
perplexity of each model on held-out text.
"""

import argparse
import math

import keras
import tensorflow as tf

import haste_keras
from benchmarks.papers import draw, text, training

SMALL = {
    "units": 128,
    "batch": 20,
    "length": 35,
    "epochs": 20,
    "rate": 4e-3,
    "dropout": 0.2,
    "words": 75_000,  # so few that a model without regularisation learns them by heart
}
LARGE = {
    "units": 650,
    "batch": 40,
    "length": 70,
    "epochs": 12,
    "rate": 1.5e-3,
    "dropout": 0.4,
    "words": None,
}
# `dropout` is the setting's.
REGULARISATION = {
    "none": {},
    "weight drop": {"dropconnect": 0.5},
    "variational dropout": {"dropout": None},
    "Zoneout": {"zoneout": 0.1},
    "all": {"dropconnect": 0.5, "zoneout": 0.05, "dropout": None},
}
MATRIX = ("LSTM", "SLSTM")  # cells whose recurrent kernel DropConnect drops
CELLS = {
    "LSTM": haste_keras.LSTM,
    "QRNN": lambda units, **rest: haste_keras.QRNN(units, window=2, **rest),
    "SLSTM": haste_keras.SLSTM,
    "IndRNN": haste_keras.IndRNN,
}


class Tied(keras.layers.Layer):
    """Logits by the table of an embedding, which is its input too (Press & Wolf, 2017)."""

    def __init__(self, embedding, **kwargs):
        super().__init__(**kwargs)
        self._embedding = embedding

    def build(self, _):
        self.bias = self.add_weight(shape=(self._embedding.input_dim,), initializer="zeros")

    def call(self, x):
        table = tf.cast(self._embedding.embeddings, x.dtype)
        return tf.einsum("nth,wh->ntw", x, table) + tf.cast(self.bias, x.dtype)


def make_model(cell, regularisation, words, setting):
    """Embedding, two recurrent layers, the embedding's table again."""
    arguments = dict(REGULARISATION[regularisation])
    if cell not in MATRIX:
        arguments.pop("dropconnect", None)
    if "dropout" in arguments:
        arguments["dropout"] = setting["dropout"]
    units = setting["units"]
    # A table of small values, because logits are products with it.
    embedding = keras.layers.Embedding(
        words, units, embeddings_initializer=keras.initializers.RandomUniform(-0.1, 0.1)
    )
    common = {"return_sequences": True, "stateful": True, **arguments}
    layers = [embedding, CELLS[cell](units, **common), CELLS[cell](units, **common)]
    if "dropout" in arguments:
        layers.append(keras.layers.SpatialDropout1D(arguments["dropout"]))
    inputs = keras.Input(batch_shape=(setting["batch"], None), dtype="int32")
    x = inputs
    for layer in [*layers, Tied(embedding)]:
        x = layer(x)
    return keras.Model(inputs, x)


def run(cell, regularisation, parts, words, setting, seed):
    """Trains one model; its perplexities by epoch, that of the best epoch on the test, seconds."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(seed)
    batch, length = setting["batch"], setting["length"]
    model = make_model(cell, regularisation, words, setting)
    training.compile_model(model, setting["rate"])
    best = keras.callbacks.EarlyStopping(
        patience=setting["epochs"], restore_best_weights=True, start_from_epoch=0
    )
    slower = keras.callbacks.ReduceLROnPlateau(patience=1, factor=0.5, min_delta=0.0)
    result = training.train(
        model, parts, batch, length, setting["epochs"], callbacks=[best, slower]
    )
    test = training.loss_of(model, parts[2], batch, length)
    return {
        "train": [math.exp(loss) for loss in result["loss"]],
        "validation": [math.exp(loss) for loss in result["val_loss"]],
        "test": math.exp(test),
        "seconds": result["seconds"],
    }


def cases(large, cells, every):
    """(cell, regularisation): all parts one by one for the LSTM, none and all for the others."""
    for cell in cells:
        one_by_one = every or (cell == "LSTM" and not large)
        for name, arguments in REGULARISATION.items():
            applies = cell in MATRIX or set(arguments) != {"dropconnect"}
            if applies and (one_by_one or name in ("none", "all")):
                yield cell, name


def plot(results, title, path):
    """Validation perplexity by epoch, a panel for each recurrence."""
    from matplotlib import pyplot as plt

    cells = list(dict.fromkeys(cell for cell, _ in results))
    figure, panels = plt.subplots(
        1, len(cells), figsize=(3.2 * len(cells), 3.6), sharey=True, squeeze=False
    )
    for panel, cell in zip(panels[0], cells, strict=True):
        for (of, name), result in results.items():
            if of == cell:
                epochs = range(1, len(result["validation"]) + 1)
                look = draw.style(list(REGULARISATION).index(name))
                panel.plot(epochs, result["validation"], label=name, **look)
        panel.set_title(cell, fontsize=10)
        panel.set_xlabel("epoch")
        panel.set_yscale("log")
        for axis in (panel.yaxis.set_major_formatter, panel.yaxis.set_minor_formatter):
            axis(lambda value, _: f"{value:.0f}")
        panel.xaxis.get_major_locator().set_params(integer=True)
        panel.grid(alpha=0.3, which="both")
    panels[0][0].set_ylabel("perplexity on held-out text")
    panels[0][0].legend(fontsize=8)
    figure.suptitle(title, fontsize=10)
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="language-model", description=__doc__.splitlines()[0])
    parser.add_argument("--large", action="store_true", help="for a GPU: more text, 650 units")
    parser.add_argument("--cells", nargs="+", choices=list(CELLS), default=list(CELLS))
    parser.add_argument("--every", action="store_true", help="every regularisation on every cell")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--units", type=int)
    parser.add_argument("--words", type=int, help="words of the text at most")
    parser.add_argument("--dtype", default="float32", help="or mixed_bfloat16, …")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plot", default="language_model.png")
    options = parser.parse_args(arguments)
    setting = dict(LARGE if options.large else SMALL)
    setting |= {k: v for k in ("epochs", "units", "words") if (v := getattr(options, k))}
    keras.config.set_dtype_policy(options.dtype)
    parts, words = text.words(options.large, limit=setting["words"])
    where = f"{draw.device()}, {options.dtype}"
    print(
        f"TensorFlow {tf.__version__}, {where}; {len(parts[0]):,} words to train on, {words:,} "
        f"different ones; two layers of {setting['units']}, {setting['epochs']} epochs"
    )
    print(f"{'cell':8}{'regularisation':22}{'train':>8}{'valid':>8}{'test':>8}{'best':>6}  s/epoch")
    results = {}
    for cell, name in cases(options.large, options.cells, options.every):
        result = run(cell, name, parts, words, setting, options.seed)
        results[cell, name] = result
        epoch = min(range(len(result["validation"])), key=result["validation"].__getitem__)
        print(
            f"{cell:8}{name:22}{result['train'][epoch]:8.1f}{result['validation'][epoch]:8.1f}"
            f"{result['test']:8.1f}{epoch + 1:6}{result['seconds']:9.2f}",
            flush=True,
        )
        # After each model, so that a run that is stopped leaves a plot.
        plot(results, f"Word model on Python's language reference, {where}", options.plot)
    print(f"drawn: {options.plot}")


if __name__ == "__main__":
    main()
