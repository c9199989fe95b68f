"""The costs of the GPU planner, fitted to timings: writes lib/plan/costs/costs_<device>.inc.

    make fit-plan                                   measures if there is a GPU, then fits
    .venv/bin/python -m benchmarks.fit_plan         fits to the data in the repository

benchmarks/data/plan_<device>.csv has the timings, of many cuts of each engine (plan_timings of
benchmarks/cpp). benchmarks/data/plan_priors.csv has what a fit begins with, and why some costs stay
as they are. The estimates are the planner's own, from libplan_costs.so of benchmarks/cpp.

A fit minimises the squares of log(estimate / measured), and of log(cost / prior). It is for choices
between cuts. An error that all cuts of a recurrence have in common changes none, and one of a cut
that takes much longer than another changes few, so both count less. (With equal weights errors were
smaller, 17 % in place of 18, and the cuts that the planner chose slower.)
"""

import argparse
import csv
import ctypes
import dataclasses
import itertools
import pathlib
import subprocess
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[1]
DATA = ROOT / "benchmarks/data"
PRIORS = DATA / "plan_priors.csv"
BUILT = ROOT / "bazel-bin/benchmarks/cpp"
CUDA_HALF = ROOT / "bazel-bin/lib/cuda/libhaste_cuda.so"
# Files end in these; a GPU's name has what follows.
DEVICES = {"h200": "H200"}

# Engines whose costs are fitted together, and what the table calls these.
ENGINES = {
    ("block",): ["block"],
    ("cluster", "grid"): ["persistent", "cluster", "grid", "shared", "specialized"],
    ("tiled",): ["tiled"],
    ("blas",): ["blas"],
    ("stepwise", "stepwise_cut"): ["stepwise", "stepwise_cut"],
}

# Logarithms: of an estimate's error, of its part that all cuts of a recurrence have in common, and
# of what separates a cost from its prior.
ERROR, COMMON_ERROR, FREEDOM = 0.08, 0.3, 0.5
# Costs that few rows tell: where cuBLAS is slow plans do not take it, and it was not timed.
LESS_FREEDOM = {"blas": 0.1}
# How much longer than the best cut of its recurrence a row takes that has half of the weight.
NEAR = 0.3
DIGITS = 3
SECONDS, ROWS = 220, 3000  # that a measurement takes at most


@dataclasses.dataclass(frozen=True)
class Row:
    """A timing."""

    problem: tuple  # cell, dtype, batch, lanes, hidden, backward
    engine: str
    cut: str
    microseconds: float
    megahertz: float

    @property
    def clocks(self):
        return self.microseconds * self.megahertz


def read_rows(path):
    """The properties of the GPU, and the rows."""
    with open(path) as file:
        head = file.readline().removeprefix("#").split(",")
        device = [int(x) for x in (*head[1].split("."), *head[2:])]
        rows = [
            Row(
                (r["cell"], r["dtype"], *(int(r[k]) for k in ("batch", "lanes", "hidden")),
                 int(r["backward"])),
                r["engine"], r["cut"], float(r["microseconds"]), float(r["mhz"]),
            )
            for r in csv.DictReader(file)
        ]  # fmt: skip
    return device, rows


def read_priors(path=PRIORS):
    """By name: what a cost is before a fit, and why it stays so; "": it does not."""
    with open(path) as file:
        return {r["cost"]: (float(r["prior"]), r["fixed"]) for r in csv.DictReader(file)}


class Planner:
    """The planner's estimates of rows."""

    def __init__(self, library, device, rows):
        lib = ctypes.CDLL(str(library))
        lib.plan_costs_name.restype = ctypes.c_char_p
        lib.plan_costs_table.restype = ctypes.POINTER(ctypes.c_double)
        lib.plan_costs_rows.restype = ctypes.c_void_p
        lib.plan_costs_add.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p,
                                       ctypes.c_void_p, ctypes.c_int32, ctypes.c_char_p,
                                       ctypes.c_char_p]  # fmt: skip
        lib.plan_costs_estimate.argtypes = [ctypes.c_void_p] * 3
        self._lib = lib
        at = ctypes.c_int32()
        names = []
        self._places = []
        while name := lib.plan_costs_name(len(names), ctypes.byref(at)):
            names.append(name.decode())
            self._places.append(at.value)
        self.names = names
        table = lib.plan_costs_table(*device[:2])
        self.compiled = {n: table[i] for n, i in zip(names, self._places, strict=True)}
        self._rows = lib.plan_costs_rows((ctypes.c_int64 * len(device))(*device))
        self.count = 0
        for row in rows:
            cell, dtype, *sizes, backward = row.problem
            if not lib.plan_costs_add(self._rows, cell.encode(), dtype.encode(),
                                      (ctypes.c_int64 * 3)(*sizes), backward,
                                      row.engine.encode(), row.cut.encode()):  # fmt: skip
                raise ValueError(f"the planner has no such cut: {row}")
            self.count += 1

    def estimate(self, costs):
        """Clocks of a step of each row, by a dict of costs."""
        table = np.zeros(len(self.names))
        for name, place in zip(self.names, self._places, strict=True):
            table[place] = costs[name]
        clocks = np.zeros(self.count)
        self._lib.plan_costs_estimate(self._rows, table.ctypes.data, clocks.ctypes.data)
        return clocks


def fit(planner, rows, priors):
    """The fitted costs, and those that stay, by Levenberg and Marquardt's method."""
    costs = {name: prior for name, (prior, _) in priors.items()}
    free = [name for name, (_, fixed) in priors.items() if not fixed]
    start = np.log([costs[name] for name in free])
    measured = np.log([row.clocks for row in rows])
    freedom = np.array([LESS_FREEDOM.get(name.split(".")[0], FREEDOM) for name in free])
    scaled = _scale_of_errors(rows)
    group_of_rows = np.array([_group(row.engine, 0) for row in rows])
    group_of_costs = np.array([_group(name.split(".")[0], 1) for name in free])

    def errors(logs):
        some = dict(zip(free, np.exp(logs), strict=True))
        return np.log(planner.estimate(costs | some)) - measured

    def residuals(logs):
        return np.concatenate([scaled(errors(logs)), (logs - start) / freedom])

    def slopes(logs, step=1e-4):
        # Costs of different groups change different rows: one of each group at a time.
        found = np.zeros((len(rows), len(free)))
        members = [np.flatnonzero(group_of_costs == i) for i in range(len(ENGINES))]
        for some in itertools.zip_longest(*members):
            some = [i for i in some if i is not None]
            away = np.zeros(len(free))
            away[some] = step
            change = (errors(logs + away) - errors(logs - away)) / (2 * step)
            for i in some:
                found[:, i] = np.where(group_of_rows == group_of_costs[i], change, 0)
        return np.concatenate([scaled(found), np.diag(1 / freedom)])

    logs, now, damping = start, residuals(start), 1e-2
    for _ in range(100):
        jacobian, before = slopes(logs), now @ now
        normal, gradient = jacobian.T @ jacobian, jacobian.T @ now
        for more in 4.0 ** np.arange(12):
            held = normal + damping * more * np.diag(np.diag(normal))
            step = np.clip(np.linalg.solve(held, -gradient), -1, 1)
            then = residuals(logs + step)
            if then @ then < before:
                break
        else:
            break
        logs, now, damping = logs + step, then, max(damping * more / 16, 1e-9)
        if before - now @ now < 1e-6 * before:
            break
    rounded = [float(f"{value:.{DIGITS}g}") for value in np.exp(logs)]
    return costs | dict(zip(free, rounded, strict=True))


def _group(name, kind):
    """The number of the group of an engine, kind 0, or of a part of the table, 1."""
    return next(i for i, pair in enumerate(ENGINES.items()) if name in pair[kind])


def _scale_of_errors(rows):
    """A function of errors by row (or a matrix of these) that weighs them, as said above."""
    # `stepwise` compares its cuts with each other alone.
    names = [(row.problem, row.engine == "stepwise_cut") for row in rows]
    numbers = {name: i for i, name in enumerate(dict.fromkeys(names))}
    problem = np.array([numbers[name] for name in names])
    times = np.array([row.clocks for row in rows])
    best = np.full(len(numbers), np.inf)
    np.minimum.at(best, problem, times)
    weights = 1 / (1 + ((times / best[problem] - 1) / NEAR) ** 2)
    totals = np.bincount(problem, weights)
    # Of a mean over a problem's cuts, what is taken off so that the rest is as if independent.
    common = 1 - 1 / np.sqrt(1 + totals * (COMMON_ERROR / ERROR) ** 2)

    def scaled(errors):
        sums = np.zeros((len(numbers), *errors.shape[1:]))
        np.add.at(sums, problem, (weights * errors.T).T)
        means = (sums.T / totals * common).T
        return (np.sqrt(weights) / ERROR * (errors - means[problem]).T).T

    return scaled


def table_text(costs, priors, source):
    """The generated file. costs: None: the priors."""
    lines = [f"// Generated by benchmarks/fit_plan.py from {source}; do not edit."]
    for name, (prior, fixed) in priors.items():
        value = np.format_float_positional(prior if fixed or not costs else costs[name], trim="-")
        lines.append(f"HASTE_COST({name}, {value})")
        if fixed and costs:
            lines[-1] += f"  // fixed: {fixed}"
    return "\n".join(lines) + "\n"


def errors_by_engine(rows, estimates):
    """By engine: number of rows, root mean square and 95th percentile of the relative error."""
    logs = np.log(estimates / np.array([row.clocks for row in rows]))
    engines = np.array([row.engine for row in rows])
    found = {}
    for engine in sorted(set(engines)):
        of = logs[engines == engine]
        found[engine] = (len(of), np.sqrt(np.mean(of**2)), np.quantile(np.abs(of), 0.95))
    return found


def loss_of_choice(rows, estimates):
    """How much longer the cuts take that estimates choose than the best that were timed.

    Returns:
        The mean logarithm, over problems, and by problem: the rows of the choice and of the best.
    """
    choices = {}
    numbered = sorted(range(len(rows)), key=lambda i: rows[i].problem)
    for problem, group in itertools.groupby(numbered, key=lambda i: rows[i].problem):
        # `stepwise` runs only where no engine holds R (lib/plan/cuda.cc).
        of = [i for i in group if rows[i].engine != "stepwise_cut"]
        holds = any(rows[i].engine in ("block", "cluster", "grid") for i in of)
        of = [i for i in of if not (holds and rows[i].engine == "stepwise")]
        if len(of) > 1:
            chosen = min(of, key=lambda i: estimates[i])
            best = min(of, key=lambda i: rows[i].microseconds)
            choices[problem] = rows[chosen], rows[best]
    losses = [np.log(a.microseconds / b.microseconds) for a, b in choices.values()]
    return float(np.mean(losses)), choices


def report(rows, before, after):
    """Prints what a fit changes."""
    print(f"{'engine':14}{'rows':>6}   {'rms, 95 % before':18}{'after':16}")
    old, new = errors_by_engine(rows, before), errors_by_engine(rows, after)
    for engine, (count, rms, tail) in old.items():
        was = f"{100 * rms:6.1f} %{100 * tail:7.1f} %"
        now = f"{100 * new[engine][1]:6.1f} %{100 * new[engine][2]:7.1f} %"
        print(f"{engine:14}{count:6}   {was:18}{now:16}")
    (lost, old_choices), (loses, choices) = (loss_of_choice(rows, x) for x in (before, after))
    print(f"chosen cuts take longer than the best timed: {100 * lost:.2f} % → {100 * loses:.2f} %")
    for problem, (row, best) in choices.items():
        was = old_choices[problem][0]
        if row.microseconds > 1.02 * was.microseconds:
            print("slower:", *problem, "|", was.engine, was.cut, was.microseconds, "→", row.engine,
                  row.cut, row.microseconds, "| best", best.engine, best.cut,
                  best.microseconds)  # fmt: skip


def measure(device):
    """Times this machine's GPU and writes its data."""
    to = DATA / f"plan_{device}.csv"
    command = [BUILT / "plan_timings", CUDA_HALF, str(SECONDS), str(ROWS)]
    text = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    name = text.partition(",")[0]
    if DEVICES[device] not in name:
        raise SystemExit(f"this GPU is {name.strip('# ')}: its costs need a table of their own")
    to.write_text(text)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", choices=DEVICES, default="h200")
    parser.add_argument("--measure", action="store_true", help="time this machine's GPU first")
    options = parser.parse_args(arguments)
    if options.measure:
        measure(options.device)
    data = DATA / f"plan_{options.device}.csv"
    device, rows = read_rows(data)
    priors = read_priors()
    planner = Planner(BUILT / "libplan_costs.so", device, rows)
    if list(priors) != planner.names:
        raise SystemExit("plan_priors.csv does not name the costs of lib/plan/costs in their order")
    costs = fit(planner, rows, priors)
    report(rows, planner.estimate(planner.compiled), planner.estimate(costs))
    to = ROOT / f"lib/plan/costs/costs_{options.device}.inc"
    to.write_text(table_text(costs, priors, data.relative_to(ROOT)))
    # GPUs that nobody timed have what a fit begins with.
    untimed = ROOT / "lib/plan/costs/costs_untimed.inc"
    untimed.write_text(table_text(None, priors, PRIORS.relative_to(ROOT)))
    print(f"wrote {to.relative_to(ROOT)} and {untimed.relative_to(ROOT)}")


if __name__ == "__main__":
    sys.exit(main())
