"""The parity table of docs/serving.md: python tests/serving/parity_table.py [--write]

Runs every case of `stock_cases.py` by our ops here, and as a portable export in a process without
haste_keras. A figure is the largest difference of a layer's outputs and states, over the larger of
1 and the value. `--write` puts the table into docs/serving.md.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

os.environ.update(HASTE_TEST_ALL="1", TF_CPP_MIN_LOG_LEVEL="3")

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "keras"), str(HERE.parents[1])]

import keras  # noqa: E402
import numpy as np  # noqa: E402
import stock_cases  # noqa: E402

DOCUMENT = HERE.parents[1] / "docs" / "serving.md"
BEGIN, END = "<!-- tests/serving/parity_table.py writes this table. -->\n", "\n<!-- end -->"


def largest_differences():
    """{(layer, dtype): largest difference}."""
    keras.utils.set_random_seed(7)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        stock_cases.export_cases(folder / "cases")
        command = [sys.executable, str(HERE / "run_stock.py"), str(folder)]
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        subprocess.run(command, check=True, env=environment, cwd="/")
        found, expected = np.load(folder / "found.npz"), np.load(folder / "cases" / "expected.npz")
        worst = {}
        for layer, kind, dtype in stock_cases.names():
            prefix = f"cases/{layer} {kind} {dtype}/".replace(" ", "_")
            for name in expected.files:
                if name.startswith(prefix):
                    ours = expected[name]
                    error = np.abs(found[name] - ours) / np.maximum(1, np.abs(ours))
                    pair = layer, dtype
                    worst[pair] = max(worst.get(pair, 0), float(error.max()))
        return worst


def table(worst):
    """The lines of the table."""
    dtypes = stock_cases.DTYPES
    lines = ["| layer | " + " | ".join(dtypes) + " |", "|---|" + "---|" * len(dtypes)]
    for layer in stock_cases.LAYERS:
        figures = (f"{worst[layer, dtype]:.0e}" for dtype in dtypes)
        lines.append(f"| {layer} | " + " | ".join(figures) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--write", action="store_true")
    write = parser.parse_args().write
    made = table(largest_differences())
    print(made)
    if write:
        text = DOCUMENT.read_text()
        pattern = re.escape(BEGIN) + ".*?" + re.escape(END)
        DOCUMENT.write_text(re.sub(pattern, lambda _: BEGIN + made + END, text, flags=re.S))


if __name__ == "__main__":
    main()
