"""Draws docs/images from the tables of docs/performance: the figures have one source.

    python -m benchmarks.plot_docs [--into docs/images] [--only keras gpu_grid …]

After new measurements put the figures into the tables, and run this.
"""

import argparse
import pathlib
import re

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

DOCS = pathlib.Path(__file__).resolve().parents[1] / "docs"
# Okabe and Ito's colours, which colour-blind readers tell apart.
BLUE, SKY, GREEN, ORANGE, VERMILLION = "#0072B2", "#56B4E9", "#009E73", "#E69F00", "#D55E00"
BATCHES = {
    "1": ("o", 0.0),
    "16": ("s", 0.22),
    "32": ("^", 0.44),
    "64": ("D", 0.66),
    "128": ("v", 0.88),
}


def tables(page):
    """The tables of a page of docs/: lists of rows, each a list of cells, the head first."""
    found, rows = [], []
    for line in [*(DOCS / page).read_text().splitlines(), ""]:
        if line.startswith("|"):
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            if not all(re.fullmatch(":?-+:?", cell) for cell in cells):
                rows.append(cells)
        elif rows:
            found.append(rows)
            rows = []
    return found


def table(page, *head):
    """The first table of a page whose head begins with the cells `head`: its rows."""
    for rows in tables(page):
        if tuple(rows[0][: len(head)]) == head:
            return rows
    raise SystemExit(f"docs/{page} has no table with the columns {', '.join(head)}")


def number(cell):
    """The first number of a cell; None where there is none."""
    found = re.search(r"\d[\d,]*\.?\d*", cell)
    return float(found[0].replace(",", "")) if found else None


# What `fit` runs on a GPU by default (jit_compile="auto"), of Keras 3.15: a model with a layer of
# Keras that may run cuDNN is not compiled by XLA. Every other one is, and so is one with ours.
FIT = {
    "plain (Keras: cuDNN)": "keras",
    "left-padded mask": "keras XLA",
    '`activation="relu"`': "keras XLA",
    "`recurrent_dropout=0.1`": "keras",
    '`dtype="mixed_bfloat16"`': "keras XLA",
}
SERIES = {
    "keras": ("Keras, not compiled", VERMILLION),
    "keras XLA": ("Keras, compiled by XLA", ORANGE),
    "ours": ("haste_keras, not compiled", SKY),
    "ours XLA": ("haste_keras, compiled by XLA", BLUE),
}


def layers():
    """{kind: {layer: {series: ms}}} of docs/performance/gpu.md, without XLA and with it."""
    plain = table("performance/gpu.md", "layer", "inference: ours", "Keras", "ratio")
    xla = table("performance/gpu.md", "layer", "inference: ours without XLA")
    compiled = {row[0].split(" (")[0]: row for row in xla[1:]}
    found = {"inference": {}, "training": {}}
    for row in plain[1:]:
        other = compiled[row[0].split(" (")[0]]
        for kind, at, at_xla in (("inference", 1, 2), ("training", 4, 6)):
            found[kind][row[0]] = {
                "keras": number(row[at + 1]),
                "keras XLA": number(other[at_xla + 1]),
                "ours": number(row[at]),
                "ours XLA": number(other[at_xla]),
            }
    return found


def _bars(panel, rows, title):
    """Horizontal bars of milliseconds, four for each layer."""
    for i, (name, times) in enumerate(rows.items()):
        for j, (series, (label, colour)) in enumerate(SERIES.items()):
            at = i + (j - 1.5) * 0.2
            panel.barh(at, times[series], 0.19, color=colour, label=label if i == 0 else None)
            mark = "  ◄ fit" if series in (FIT[name], "ours XLA") else ""
            panel.text(
                times[series] * 1.06, at, f"{times[series]:.3g}{mark}", va="center", fontsize=8
            )
    panel.set_xscale("log")
    most = max(max(times.values()) for times in rows.values())
    panel.set_xlim(0.3, 3 * most)
    panel.set_xticks(
        [0.5, 1, 2, 5, 10, 20, 50, 100], ["0.5", "1", "2", "5", "10", "20", "50", "100"]
    )
    panel.minorticks_off()
    panel.set_yticks(range(len(rows)), [name.replace("`", "") for name in rows])
    panel.set_ylim(len(rows) - 0.5, -0.5)
    panel.set_xlabel("milliseconds (log scale); shorter is faster")
    panel.set_title(title, fontsize=11)
    panel.grid(axis="x", alpha=0.3)
    panel.set_axisbelow(True)


_WHERE = (
    "NVIDIA H200, TensorFlow 2.21, Keras 3.15, N=32 T=100 C=128 H=256, float32 with TensorFloat-32 "
    "off unless the label\nsays otherwise. Bars with XLA and without are of two runs on two hosts. "
    "Keras has use_cudnn=False for the mask and for bfloat16.\n◄ fit: what fit runs by default."
)


def keras(path, kinds=("training",)):
    """One LSTM layer and Keras's, with XLA and without."""
    found = layers()
    figure, panels = plt.subplots(
        1, len(kinds), figsize=(8.2 * len(kinds), 5.6), sharey=True, squeeze=False
    )
    titles = {
        "training": "One LSTM layer: training step, forward and all gradients",
        "inference": "One LSTM layer: inference",
    }
    for panel, kind in zip(panels[0], kinds, strict=True):
        _bars(panel, found[kind], titles[kind])
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=4 if len(kinds) > 1 else 2, fontsize=9)
    figure.text(0.01, 0.985, _WHERE, fontsize=8, va="top")
    figure.tight_layout(rect=(0, 0.05 if len(kinds) > 1 else 0.09, 1, 0.91))
    figure.savefig(path, dpi=120)


def gpu_features(path):
    keras(path, ("inference", "training"))


def _grid(path, part, title):
    """Ratios to cuDNN by H, a line for each N; a panel for each cell and dtype."""
    found = [
        rows for rows in tables("performance/gpu.md") if re.match(r"N, (LSTM|GRU) ", rows[0][0])
    ]
    figure, panels = plt.subplots(2, 4, figsize=(13, 6.4), sharex=True, sharey=True)
    colours = plt.get_cmap("viridis")
    for panel, rows in zip(panels.flat, found, strict=True):
        sizes = [int(number(head)) for head in rows[0][1:]]
        for row in rows[1:]:
            marker, shade = BATCHES[row[0]]
            ratios = [float(cell.split(" / ")[part]) for cell in row[1:]]
            panel.plot(
                sizes,
                ratios,
                marker=marker,
                markersize=5,
                color=colours(shade),
                label=f"N={row[0]}",
            )
        panel.axhline(1, color="black", linewidth=0.8)
        panel.set_xscale("log", base=2)
        panel.set_yscale("log")
        panel.set_xticks(sizes, [str(size) for size in sizes], fontsize=7)
        panel.set_yticks([1, 2, 5, 10, 20], ["1", "2", "5", "10", "20"])
        panel.minorticks_off()
        panel.set_title(rows[0][0].removeprefix("N, "), fontsize=10)
        panel.grid(alpha=0.3)
    for panel in panels[1]:
        panel.set_xlabel("hidden units (H)")
    for panel in panels[:, 0]:
        panel.set_ylabel("cuDNN's time over ours")
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=len(labels), title="batch (N)")
    figure.suptitle(
        f"One layer, forward and backward, {title}; NVIDIA H200, cuDNN 9.19. "
        "Above 1 ours is faster.",
        fontsize=11,
    )
    figure.tight_layout(rect=(0, 0.09, 1, 1))
    figure.savefig(path, dpi=110)


def gpu_grid(path):
    _grid(path, 0, "T=100, geometric mean over C = 64 to 512")


def gpu_grid_1000(path):
    _grid(path, 1, "T=1000, C=256")


# Dtype, marker and style of a line.
DTYPES_OF_LARGE = [("float16", "o", "-"), ("bfloat16", "s", "--"), ("TensorFloat-32", "^", ":")]


def gpu_large(path):
    """Microseconds of a step by H: a panel for each batch, a line for each dtype and library."""
    rows = table("performance/gpu.md", "dtype, N, H")[1:]
    figure, panels = plt.subplots(1, 2, figsize=(10, 4.2), sharey=True)
    for panel, batch in zip(panels, ("64", "128"), strict=True):
        for dtype, marker, style in DTYPES_OF_LARGE:
            found = [row for row in rows if row[0].split(", ")[:2] == [dtype, batch]]
            sizes = [int(row[0].split(", ")[2]) for row in found]
            for column, who, colour in ((4, "ours", BLUE), (5, "cuDNN", VERMILLION)):
                steps = [number(row[column]) for row in found]  # ms of 1000 steps
                panel.plot(sizes, steps, style, marker=marker, color=colour, label=f"{who} {dtype}")
        panel.set_xticks(sizes)
        panel.set_title(f"N={batch}", fontsize=10)
        panel.set_xlabel("hidden units (H)")
        panel.grid(alpha=0.3)
    panels[0].set_ylim(bottom=0)  # of both
    panels[0].set_ylabel("µs a step")
    panels[0].legend(fontsize=8)
    figure.suptitle("One LSTM layer, T=1000 C=128, forward and backward; NVIDIA H100", fontsize=11)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


PEERS = {"Keras": (VERMILLION, ""), "PyTorch": (GREEN, "//"), "ORT": (BLUE, "..")}
PEER_NAMES = {"ORT": "ONNX Runtime"}


def cpu(path):
    """Ratios to Keras, PyTorch and ONNX Runtime, a panel for each layer and kind."""
    found = [
        rows
        for rows in tables("performance/cpu.md")
        if rows[0][:2] == ["N, T, C, H", "inference ms"] and "ORT" in rows[0]
    ][:2]
    figure, panels = plt.subplots(2, 2, figsize=(12, 7.2), sharex=True, sharey=True)
    for line, (layer, rows) in zip(panels, zip(("LSTM", "GRU"), found, strict=True), strict=True):
        head, shapes = rows[0], [row for row in rows[1:] if row[0][0].isdigit()]
        middle = head.index("training ms")
        for panel, kind, columns in (
            (line[0], "inference", range(middle)),
            (line[1], "training step", range(middle, len(head))),
        ):
            peers = [(head[i], i) for i in columns if head[i] in PEERS]
            for j, (peer, i) in enumerate(peers):
                colour, hatch = PEERS[peer]
                at = [k + (j - (len(peers) - 1) / 2) * 0.26 for k in range(len(shapes))]
                panel.bar(
                    at,
                    [number(row[i]) for row in shapes],
                    0.25,
                    color=colour,
                    hatch=hatch,
                    edgecolor="white",
                    label=PEER_NAMES.get(peer, peer),
                )
            panel.axhline(1, color="black", linewidth=0.8)
            panel.set_yscale("log")
            panel.set_yticks([0.7, 1, 2, 5, 10], ["0.7", "1", "2", "5", "10"])
            panel.minorticks_off()
            panel.set_title(f"{layer}, {kind}", fontsize=11)
            panel.set_xticks(
                range(len(shapes)), [row[0] for row in shapes], rotation=20, ha="right", fontsize=8
            )
            panel.grid(axis="y", alpha=0.3)
            panel.set_axisbelow(True)
    for panel in panels[:, 0]:
        panel.set_ylabel("the peer's time over ours")
    for panel in panels[1]:
        panel.set_xlabel("N, T, C, H")
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=len(labels))
    figure.suptitle(
        "float32, two cores of an AMD EPYC (Zen 4, AVX-512), two threads. Above 1 ours is faster.",
        fontsize=11,
    )
    figure.tight_layout(rect=(0, 0.05, 1, 1))
    figure.savefig(path, dpi=110)


def parity(path):
    """Accuracy on parity by length, a marker for each range of lengths."""
    rows = table("performance.md", "model (64 units)", "steps", "seconds")
    lengths = rows[0][3:]
    figure, panel = plt.subplots(figsize=(9, 3.8))
    styles = zip(lengths, (SKY, BLUE, VERMILLION), ("o", "s", "^"), strict=True)
    for j, (length, colour, marker) in enumerate(styles):
        at = [i + (j - 1) * 0.18 for i in range(len(rows) - 1)]
        label = length if "bits" in length else f"{length} bits"
        panel.plot(at, [float(row[3 + j]) for row in rows[1:]], marker, color=colour, label=label)
    panel.axhline(0.5, color="gray", linewidth=0.8, linestyle="--")
    panel.text(-0.45, 0.51, "chance", fontsize=8, color="gray")
    panel.set_xticks(range(len(rows) - 1), [row[0] for row in rows[1:]])
    panel.set_ylim(0.4, 1.05)
    panel.set_ylabel("accuracy of the last answer")
    panel.set_title(
        "Parity, trained on up to 40 bits; 64 units, float32, two CPU cores", fontsize=11
    )
    panel.grid(axis="y", alpha=0.3)
    panel.legend(loc="center left", bbox_to_anchor=(1, 0.5), title="length in the test")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


IMAGES = {
    function.__name__: function
    for function in (
        keras,
        gpu_features,
        gpu_grid,
        gpu_grid_1000,
        gpu_large,
        cpu,
        parity,
    )
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--into", type=pathlib.Path, default=DOCS / "images")
    parser.add_argument("--only", nargs="+", choices=IMAGES, default=list(IMAGES))
    options = parser.parse_args()
    for name in options.only:
        IMAGES[name](options.into / f"{name}.png")
        plt.close("all")


if __name__ == "__main__":
    main()
