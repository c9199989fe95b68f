"""Results of the papers, each by one command.

    python -m benchmarks.papers NAME [options of NAME]

NAME is one of the keys of RESULTS; `NAME --help` lists its options.
"""

import importlib
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

RESULTS = {
    "qrnn-speed": "qrnn_speed",
    "language-model": "language_model",
    "zoneout": "zoneout",
    "layer-norm": "layer_norm",
    "parity": "parity",
}


def main():
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in RESULTS:
        raise SystemExit(f"expected one of {', '.join(RESULTS)}; got {name!r}")
    importlib.import_module(f"benchmarks.papers.{RESULTS[name]}").main(sys.argv[2:])


if __name__ == "__main__":
    main()
