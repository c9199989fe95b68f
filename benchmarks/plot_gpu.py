"""Draws what `benchmarks.gpu --csv` wrote: time against H, N and T, ours and cuDNN's.

    python -m benchmarks.plot_gpu grid.csv docs/images/gpu_grid.svg [--kind both] [--at N=16 …]

One panel for each of H, N and T, the others fixed at `--at`; a colour for each cell and dtype.
"""

import argparse

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from benchmarks import gpu_table

AXES = {"H": "hidden units", "N": "batch", "T": "time steps"}
LEGEND_COLUMNS = 6
KINDS = {"infer": "inference", "fwd": "forward, training", "both": "forward and backward"}


def points(rows, axis, at, name):
    """Sorted (size, ms) of column `name` along `axis`, at the sizes `at` of all else."""
    fixed = {k: v for k, v in at.items() if k != axis}
    return sorted(
        (getattr(row["case"], axis), row[name])
        for row in rows
        if row[name] and all(getattr(row["case"], k) == v for k, v in fixed.items())
    )


def plot(rows, kind, at, path):
    """One panel for each of AXES."""
    groups = {}
    for row in rows:
        if row["case"].feature == "plain" and row["case"].K == 1:
            groups.setdefault((row["case"].cell, row["case"].dtype), []).append(row)
    figure, panels = plt.subplots(1, len(AXES), figsize=(13, 4.5), sharey=True)
    for panel, (axis, label) in zip(panels, AXES.items(), strict=True):
        ticks = set()
        for i, ((cell, dtype), group) in enumerate(groups.items()):
            for name, style, who in ((kind, "o-", "ours"), (f"cudnn {kind}", "x--", "cuDNN")):
                line = points(group, axis, at, name)
                if not line:
                    continue
                sizes, times = zip(*line, strict=True)
                ticks.update(sizes)
                panel.plot(sizes, times, style, color=f"C{i}", label=f"{cell} {dtype}, {who}")
        panel.set_xscale("log", base=2)
        panel.set_yscale("log")
        panel.set_xticks(sorted(ticks), [str(tick) for tick in sorted(ticks)], fontsize=8)
        panel.xaxis.minorticks_off()
        panel.set_xlabel(f"{label} ({axis})")
        panel.set_title(" ".join(f"{k}={v}" for k, v in at.items() if k != axis), fontsize=10)
        panel.grid(alpha=0.3)
    panels[0].set_ylabel(f"milliseconds, {KINDS[kind]}")
    handles, labels = panels[0].get_legend_handles_labels()
    legend_rows = -(-len(labels) // LEGEND_COLUMNS)
    figure.tight_layout(rect=(0, 0.02 + 0.045 * legend_rows, 1, 1))
    figure.legend(handles, labels, fontsize=8, ncols=LEGEND_COLUMNS, loc="lower center")
    figure.savefig(path, dpi=120)


def _at(text):
    name, _, value = text.partition("=")
    if name not in tuple("NTCH") or not value.isdigit():
        raise argparse.ArgumentTypeError(f"expected one of N, T, C, H = size, got {text!r}")
    return name, int(value)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("csv", nargs="+", help="files of benchmarks.gpu")
    parser.add_argument("image", help="svg or png to write")
    parser.add_argument("--kind", default="both", choices=list(KINDS))
    parser.add_argument("--at", nargs="+", type=_at, default=[], metavar="N=16")
    options = parser.parse_args()
    rows = [row for path in options.csv for row in gpu_table.read(path)]
    at = {"N": 16, "T": 1000, "C": 256, "H": 512} | dict(options.at)
    plot(rows, options.kind, at, options.image)


if __name__ == "__main__":
    main()
