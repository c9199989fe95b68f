"""libhaste's CUDA engines against each other, on recurrences alone: needs torch.

    python -m benchmarks.gpu_engines block grid auto --against cluster
    python -m benchmarks.gpu_engines tiled blas --against grid --units 512,1024 --batch 128

Each direction of each case is run by the engines that can, which are checked against the one after
`--against`, and timed in turns: medians by CUDA events. Prints a line for each, in microseconds a
step, in the order of how the fastest of the others compares with that one, the slowest first; then
what `auto` chooses, and how it compares with the fastest. "tf32" is float32 with TF32 allowed.
"""

import argparse
import collections
import csv
import itertools
import re
import statistics
import sys
import time

import torch

from benchmarks.gpu.cases import DTYPES, Case
from tests.gpu.support import lib_ctypes

ODD = (1, 3, 7, 13, 33, 50, 65, 97, 100, 127, 129, 250, 255, 300, 333, 500, 511)
ALIGNED = (8, 32, 64, 96, 104, 128, 256, 320, 384, 512)
# ‖a − b‖ / ‖b‖ of two engines that round as they may.
TOLERANCE = {"float32": 1e-4, "tf32": 2e-2, "bfloat16": 6e-2, "float16": 2e-2}


class Direction:
    """One direction of a recurrence, by any engine, on the same inputs."""

    def __init__(self, library, case, backward):
        self.library, self.case, self.backward = library, case, backward
        self.info = library.cell(case.cell)
        n, t, k, g, h = case.N, case.T, case.K, self.info.gates, case.H
        self.dtype = DTYPES[case.dtype]
        self.wx = self._random(n, t, k, g, h)
        self.kernel = self._random(k, h, g, h, scale=h**-0.5)
        # With gamma = 1 layer normalisation makes a random recurrence chaotic.
        scale, sizes = 0.3 if self.info.normalizes else 1.0, {"K": k, "G": g, "H": h}
        dims = [self.info.extra_dims[i].decode() for i in range(self.info.extras)]
        self.extra = [self._random(*(sizes[d] for d in of_one), scale=scale) for of_one in dims]
        self.dy = self._random(n, t, k, h)
        self.outputs = {}
        if backward:
            self._leave_reserve()

    def _random(self, *shape, scale=1.0):
        return scale * torch.randn(*shape, device=self.library.device, dtype=self.dtype)

    def _unset(self, like):
        return torch.full_like(like, torch.nan)

    def _states(self):
        return [self._unset(self.dy[:, 0]) for _ in range(self.info.states)]

    def config(self, engine):
        """The RnnConfig of a training step by this engine."""
        options = {"training": 1, "allow_tf32": int(self.case.dtype == "tf32"), "engine": engine}
        if self.info.normalizes:
            options["epsilon"] = 1e-3
        return self.library.config(self.case.cell, self.wx, **options)

    def _forward(self, engine):
        config = self.config(engine)
        reserve = {
            "gates": self._unset(self.wx),
            "saved": [self._unset(self.dy) for _ in range(self.library.saved(config))],
        }
        if self.info.normalizes:
            reserve["products"] = self._unset(self.wx)
        y, final = self._unset(self.dy), self._states()
        scratch = self.library.workspace(config, False)

        def run():
            self.library.forward(
                config,
                self.wx,
                self.kernel,
                y=y,
                workspace=scratch,
                sT=final,
                extra=self.extra,
                **reserve,
            )

        return run, [y, *final], reserve

    def _leave_reserve(self):
        run, _, self.reserve = self._forward("stepwise")
        run()

    def _backward(self, engine):
        config = self.config(engine)
        dwx, dq = self._unset(self.wx), None
        if self.info.splits_gradient:
            dq = self._unset(self.wx)
        ds0, dextra = self._states(), [self._unset(x) for x in self.extra]
        scratch = self.library.workspace(config, True)

        def run():
            self.library.backward(
                config,
                self.kernel,
                workspace=scratch,
                dwx=dwx,
                dq=dq,
                dextra=dextra,
                dy=self.dy,
                ds0=ds0,
                extra=self.extra,
                **self.reserve,
            )

        return run, [x for x in (dwx, dq, *ds0, *dextra) if x is not None]

    def prepare(self, engine):
        """A function that runs it, and what that leaves; RuntimeError if the engine cannot."""
        if self.backward:
            return self._backward(engine)
        run, outputs, reserve = self._forward(engine)
        return run, [*outputs, reserve["gates"], *reserve["saved"]]

    def chosen(self):
        """The engine that `auto` runs."""
        plan = self.library.plan(self.config("auto"))
        return re.findall(rf"\b{self.case.cell} on (\w+)", plan)[int(self.backward)]


def error_of(ours, theirs):
    """The largest ‖a − b‖ / ‖b‖ of the pairs; inf where one is not a number."""
    errors = [
        (a.double() - b.double()).norm() / b.double().norm().clamp_min(1e-30)
        for a, b in zip(ours, theirs, strict=True)
    ]
    return torch.stack(errors).nan_to_num(nan=torch.inf).max().item()


def microseconds(runs, calls):
    """{name: median time of a call}: each function as often, in turns."""
    events = collections.defaultdict(list)
    for _, (name, run) in itertools.product(range(calls), runs.items()):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        events[name].append((start, end))
    torch.cuda.synchronize()
    return {
        name: 1e3 * statistics.median(start.elapsed_time(end) for start, end in pairs)
        for name, pairs in events.items()
    }


def measure(library, case, backward, engines, against, calls):
    """A row: times a step of each engine, and the largest error of any; None without `against`."""
    direction = Direction(library, case, backward)
    runs, results = {}, {}
    for engine in dict.fromkeys((against, *engines)):
        try:
            runs[engine], results[engine] = direction.prepare(engine)
        except RuntimeError as error:
            if f'engine: "{engine}"' not in str(error):
                raise
    if against not in runs:
        return None
    for run in runs.values():
        run()
    row = {"case": case, "direction": "backward" if backward else "forward"}
    row["errors"] = {e: error_of(results[e], results[against]) for e in runs if e != against}
    times = microseconds(runs, calls)
    row["times"] = {name: t / case.T for name, t in times.items()}
    row["auto is"] = direction.chosen()
    return row


def ratio(row, against):
    """How long the fastest of the others takes, of what `against` takes; inf: there is no other."""
    others = [t for name, t in row["times"].items() if name not in (against, "auto")]
    return min(others, default=float("inf")) / row["times"][against]


def line_of(row, against):
    """A row as text."""
    times = "  ".join(f"{name} {t:6.3f}" for name, t in row["times"].items())
    error = max(row["errors"].values(), default=0)
    return (
        f"{ratio(row, against):5.2f}  {row['case']!s:45} {row['direction']:8} {times}"
        f"  auto is {row['auto is']}  error {error:.0e}"
    )


def report(rows, against, lines):
    """Prints the table and its summary."""
    rows.sort(key=lambda row: -ratio(row, against))
    print(f"\n{len(rows)} rows; the fastest other engine's time / that of {against}, worst first")
    for row in rows[:lines]:
        print(line_of(row, against))
    for name in sorted({name for row in rows for name in row["times"]} - {against}):
        ratios = sorted(
            (row["times"][name] / row["times"][against] for row in rows if name in row["times"]),
            reverse=True,
        )
        over = sum(r > 1.03 for r in ratios)
        print(
            f"{name} / {against}: {len(ratios)} rows, worst {ratios[0]:.2f}, "
            f"median {statistics.median(ratios):.2f}, best {ratios[-1]:.2f}, {over} above 1.03"
        )
    chosen = [row for row in rows if row["auto is"] == against]
    print(f"auto is {against} in {len(chosen)} rows:")
    for row in chosen:
        print(line_of(row, against))


def report_wrong(rows):
    """Prints the rows whose results differ too much; returns how many these are."""
    wrong = [r for r in rows if max(r["errors"].values(), default=0) > TOLERANCE[r["case"].dtype]]
    for row in wrong:
        print(f"WRONG {row['case']} {row['direction']}: {row['errors']}")
    print(f"{len(wrong)} of {len(rows)} rows are wrong")
    return len(wrong)


def neighbours(rows, engine, units=((97, 104), (100, 104), (250, 256), (255, 256), (511, 512))):
    """Prints how an engine's time at odd sizes compares with that of the next aligned ones."""
    times = {
        (r["case"].cell, r["case"].dtype, r["case"].N, r["direction"], r["case"].H): r["times"]
        for r in rows
        if engine in r["times"] and r["case"].K == 1
    }
    for odd, aligned in units:
        ratios = [
            t[engine] / times[(*key, aligned)][engine]
            for (*key, h), t in times.items()
            if h == odd and (*key, aligned) in times
        ]
        if ratios:
            print(
                f"{engine} at H={odd} / at H={aligned}: median {statistics.median(ratios):.2f}, "
                f"worst {max(ratios):.2f}"
            )


def sizes(text):
    """1,2 → [1, 2]."""
    return [int(value) for value in text.split(",")]


def main(arguments):
    """Returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("engines", nargs="+")
    parser.add_argument("--against", required=True)
    parser.add_argument("--cell", nargs="+", default=["lstm", "gru", "elman", "slstm"])
    parser.add_argument("--dtype", nargs="+", default=["float32", "tf32", "bfloat16"])
    parser.add_argument("--units", type=sizes, default=sorted((*ODD, *ALIGNED)))
    parser.add_argument("--batch", type=sizes, default=[1, 4, 8, 16, 32, 64])
    parser.add_argument("--lanes", type=sizes, default=[1])
    parser.add_argument("--steps", type=int, default=128)
    parser.add_argument("--calls", type=int, default=9)
    parser.add_argument("--time-limit", type=float, default=float("inf"), help="seconds")
    parser.add_argument("--lines", type=int, default=60, help="of the table")
    parser.add_argument("--csv", help="a file for all rows")
    options = parser.parse_args(arguments)
    library = lib_ctypes.Library(lib_ctypes.library_path())
    print(torch.cuda.get_device_name())
    torch.manual_seed(0)
    rows, end = [], time.monotonic() + options.time_limit
    cases = itertools.product(
        options.units, options.batch, options.lanes, options.cell, options.dtype, (False, True)
    )
    for h, n, k, cell, dtype, backward in cases:
        if time.monotonic() > end:
            print(f"time limit: ended before H={h} N={n} {cell} {dtype}")
            break
        case = Case(cell, dtype, n, options.steps, 0, h, k)
        row = measure(library, case, backward, options.engines, options.against, options.calls)
        if row:
            rows.append(row)
    if options.csv:
        with open(options.csv, "w", newline="") as file:
            writer = csv.writer(file)
            for row in rows:
                writer.writerow([row["case"], row["direction"], row["auto is"], row["times"]])
    report(rows, options.against, options.lines)
    for engine in options.engines:
        neighbours(rows, engine)
    return int(report_wrong(rows) > 0)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
