"""The table of `benchmarks.gpu`: printed, appended to a CSV file as it grows, and summed up.

python -m benchmarks.gpu.table grid.csv …      the files' results as Markdown: cuDNN's time
                                               over ours, forward and backward, by N and H
"""

import argparse
import csv
import dataclasses
import re

from benchmarks import measure
from benchmarks.gpu.cases import Case

KINDS = ("infer", "fwd", "both")
_KEY = [field.name for field in dataclasses.fields(Case)]
COLUMNS = [
    *_KEY,
    *("asked", "engine", "plan"),
    *KINDS,
    *(f"cudnn {kind}" for kind in KINDS),
    *("flashrnn fwd", "flashrnn both", "recur", "recur back"),
    *("error", "against", "samples", "note"),
]
_NUMBERS = {*COLUMNS[COLUMNS.index("infer") : COLUMNS.index("against")]}


def read(path):
    """Rows of a file that `Table` wrote, each with its `case`; what was not measured is None."""
    types = {field.name: field.type for field in dataclasses.fields(Case)}
    rows = []
    with open(path, newline="") as file:
        for line in csv.DictReader(file):
            row = {k: (float(v) if v else None) if k in _NUMBERS else v for k, v in line.items()}
            case = {name: kind(row.pop(name)) for name, kind in types.items()}
            rows.append({"case": Case(**case), **row})
    return rows


def ratio(row, kind):
    """cuDNN's time over ours, or None."""
    ours, theirs = row.get(kind), row.get(f"cudnn {kind}")
    return theirs / ours if ours and theirs else None


class Table:
    """Rows as they are measured."""

    def __init__(self, path=None):
        self.path = path
        head = "".join(f"{kind + ' ms':>10} {'cuDNN':>8} {'ratio':>6} |" for kind in KINDS)
        print(f"{'':62} {'engine':13}|{head} µs/step fwd, bwd | error")

    def done(self, engine):
        """The cases that the file has with this engine asked for."""
        if not self.path.exists():
            return set()
        return {row["case"] for row in read(self.path) if row["asked"] == engine}

    def add(self, case, asked, row):
        """Prints and writes a row; returns it with all its columns."""
        # Of forward, and of backward where that is another.
        engines = re.findall(r"(?:^|: )\w+ on (\w+)", row.get("plan", ""))
        given = {"asked": asked, "engine": "+".join(dict.fromkeys(engines)), **row}
        row = {"case": case, **{name: given.get(name) for name in COLUMNS[len(_KEY) :]}}
        print(f"{case!s:62} {row['engine']:13}|{self._text(row)}", flush=True)
        if self.path is not None:
            new = not self.path.exists()
            with open(self.path, "a", newline="") as file:
                writer = csv.writer(file)
                if new:
                    writer.writerow(COLUMNS)
                values = (row[name] for name in COLUMNS[len(_KEY) :])
                writer.writerow([*dataclasses.astuple(case), *(_written(v) for v in values)])
        return row

    def _text(self, row):
        if row["note"]:
            return f" {row['note']}"
        text = ""
        for kind in KINDS:
            numbers = (row[kind], row[f"cudnn {kind}"], ratio(row, kind))
            text += "{:>10} {:>8} {:>6} |".format(
                *("" if n is None else f"{n:.3g}" for n in numbers)
            )
        if row["recur"]:
            steps = (1e3 * row[name] / row["case"].T for name in ("recur", "recur back"))
            text += "{:11.2f} {:7.2f}".format(*steps)
        text += f" | {row['error']:.1e} {row['against']}"
        if row["flashrnn fwd"]:
            text += f"; FlashRNN, another run: {row['flashrnn fwd']} {row['flashrnn both']}"
        return text


def _written(value):
    return f"{value:.6g}" if isinstance(value, float) else value


def summarize(rows):
    """Prints geometric means of the ratios to cuDNN, the worst points, and the cost of features."""
    groups = {}
    for row in rows:
        groups.setdefault((row["case"].cell, row["case"].dtype), []).append(row)
    for (cell, dtype), group in groups.items():
        for kind in KINDS:
            ratios = {row["case"]: ratio(row, kind) for row in group if ratio(row, kind)}
            if not ratios:
                continue
            worst = min(ratios, key=ratios.get)
            faster = sum(value > 1 for value in ratios.values())
            print(
                f"{cell} {dtype} {kind}: cuDNN / ours {measure.geometric_mean(ratios.values()):.2f}"
                f" (geometric mean), faster at {faster} of {len(ratios)}; worst "
                f"{ratios[worst]:.2f} at {worst}"
            )
    by_case = {row["case"]: row for row in rows}
    for case, row in by_case.items():
        plain = by_case.get(case.plain)
        if case.feature == "plain" or plain is None or not (row["both"] and plain["both"]):
            continue
        cost = ", ".join(f"{kind} {row[kind] / plain[kind]:.2f}" for kind in KINDS)
        print(f"{case}: times the plain case's: {cost}")


def _grouped(rows, *names):
    """{values of these fields of the case: rows}, in order."""
    groups = {}
    for row in rows:
        groups.setdefault(tuple(getattr(row["case"], name) for name in names), []).append(row)
    return {key: groups[key] for key in sorted(groups)}


def _mean(rows):
    return measure.geometric_mean([ratio(row, "both") for row in rows])


def of_grid(rows):
    """The last row of each plain case of one lane, in an engine of the library's choice."""
    plain = {
        row["case"]: row
        for row in rows
        if row["case"].feature == "plain" and row["case"].K == 1 and row["asked"] == "auto"
    }
    return [row for row in plain.values() if ratio(row, "both")]


def markdown(rows):
    """Lines of a table for each cell and dtype: N down, H across, means of each T in turn."""
    for (cell, dtype), group in _grouped(rows, "cell", "dtype").items():
        sizes = [h for (h,) in _grouped(group, "H")]
        times = [t for (t,) in _grouped(group, "T")]
        means = {at: _mean(part) for at, part in _grouped(group, "N", "H", "T").items()}
        of_times = " / ".join(f"T={t}" for t in times)
        yield f"| N, {cell} {dtype}, {of_times} | " + " | ".join(f"H={h}" for h in sizes) + " |"
        yield "|---" * (len(sizes) + 1) + "|"
        for (n,) in _grouped(group, "N"):
            cells = (
                " / ".join(f"{means[n, h, t]:.2f}" if (n, h, t) in means else "" for t in times)
                for h in sizes
            )
            yield f"| {n} | " + " | ".join(cells) + " |"
        yield ""
    yield "| forward and backward | points | geometric mean | worst | below 0.95 |"
    yield "|---|---|---|---|---|"
    for (cell, dtype, steps), group in _grouped(rows, "cell", "dtype", "T").items():
        ratios = [ratio(row, "both") for row in group]
        below = sum(value < 0.95 for value in ratios)
        yield (
            f"| {cell} {dtype}, T={steps} | {len(ratios)} | {_mean(group):.2f} "
            f"| {min(ratios):.2f} | {below} |"
        )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("csv", nargs="+")
    rows = [row for path in parser.parse_args().csv for row in read(path)]
    print("\n".join(markdown(of_grid(rows))))


if __name__ == "__main__":
    main()
