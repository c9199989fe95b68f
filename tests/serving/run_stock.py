"""Runs exports where there is no haste_keras: run_stock.py FOLDER.

FOLDER has SavedModels, each with inputs.npz: {"call/argument": array}. The part of a call before
"." is the function; that of a Keras model takes several inputs as a list.
Writes found.npz: {"model/call/number of the output": array}.
"""

import pathlib
import sys

import numpy as np
import tensorflow as tf


def main():
    folder, found = pathlib.Path(sys.argv[1]), {}
    for path in sorted(folder.glob("**/inputs.npz")):
        model = tf.saved_model.load(str(path.parent))
        calls = {}
        for name, array in np.load(path).items():
            call, _, argument = name.rpartition("/")
            calls.setdefault(call, {})[argument] = tf.constant(array)
        for call, arguments in calls.items():
            function = getattr(model, call.partition(".")[0])
            given = list(arguments.values())
            one_list = len(given) > 1 and path.parent.name != "cases"
            outputs = function(given) if one_list else function(*given)
            for i, output in enumerate(tf.nest.flatten(outputs)):
                found[f"{path.parent.name}/{call}/{i}"] = output.numpy()
    assert "haste_keras" not in sys.modules
    np.savez(folder / "found.npz", **found)


main()
