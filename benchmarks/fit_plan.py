"""The costs of the GPU planner, fitted to timings: writes lib/plan/costs/costs_<device>.inc.

    make fit-plan                                   measures if there is a GPU, then fits
    .venv/bin/python -m benchmarks.fit_plan         fits to the data in the repository

benchmarks/data has the timings: plan_<device>.csv those of many cuts of each engine,
stationary_<device>.csv of the cuts of `tiled` that keep R on the chip, products_<device>.csv of
large products and how they are cut, layers_<device>.csv of layers and what runs during the walk
(plan_timings and layer_timings of benchmarks/cpp/planner). plan_priors.csv has what a fit begins
with, and why some costs stay as they are. The estimates are the planner's own, from
libplan_costs.so of benchmarks/cpp/planner.

A fit minimises the squares of log(estimate / measured), and of log(cost / prior). It is for choices
between cuts. An error that all cuts of a recurrence have in common changes none, and one of a cut
that takes much longer than another changes few, so both count less. (With equal weights errors were
smaller, 17 % in place of 18, and the cuts that the planner chose slower.)
"""

import argparse
import csv
import itertools
import subprocess
import sys

import numpy as np

from benchmarks.plan_rows import DATA, DEVICES, ROOT, Planner, read_rows

PRIORS = DATA / "plan_priors.csv"
BUILT = ROOT / "bazel-bin/benchmarks/cpp/planner"
CUDA_HALF = ROOT / "bazel-bin/lib/cuda/libhaste_cuda.so"
# Costs of `tiled` where R is stationary.
STATIONARY = ["stationary", "shared_chunk", "alone_chunk", "pair_chunk", "shared_kernel",
              "few_slots", "all_reduce", "narrow_reduce", "float_gate", "wide_chunk",
              "narrow_chunk", "scaled_chunk", "scaled_sharing", "backward_turn", "early",
              "sharing_chunk", "memory_meeting"]  # fmt: skip
# Engines whose costs are fitted together, and what the table calls these. The first that fits a
# cost's name has it.
ENGINES = {
    ("tiled_stationary",): [f"tiled.{cost}" for cost in STATIONARY],
    ("block",): ["block"],
    ("cluster", "grid"): ["persistent", "cluster", "grid", "shared", "specialized"],
    ("tiled",): ["tiled"],
    ("blas",): ["blas"],
    ("stepwise", "stepwise_cut"): ["stepwise", "stepwise_cut"],
    ("product",): ["gemm", "overlap.cublas"],
    ("layer",): ["overlap"],
}
# By kind of rows what is fitted to them. Estimates of later ones take the costs of those before.
STAGES = {
    "plan": list(ENGINES)[1:-2],
    "stationary": [("tiled_stationary",)],
    "products": [("product",)],
    "layers": [("layer",)],
}

# Logarithms: of an estimate's error, of its part that all cuts of a recurrence have in common, and
# of what separates a cost from its prior.
ERROR, COMMON_ERROR, FREEDOM = 0.08, 0.3, 0.5
# Costs that few rows tell: where cuBLAS is slow plans do not take it, and it was not timed.
LESS_FREEDOM = {"blas": 0.1}
# How much longer than the best cut of its recurrence a row takes that has half of the weight.
NEAR = 0.3
# Those of products and layers: a product is compared with the walk that it runs beside, so that no
# error is in common.
COMMON_ERRORS = {"product": 0.05, "layer": 0.1}
NEARS = {"product": 0.5, "layer": 0.15}
DIGITS = 3
# What makes the files: the seconds, and of cuts the rows, that it takes at most.
MEASUREMENTS = {
    "plan": ["plan_timings", "cuts", "220", "3000"],
    "stationary": ["plan_timings", "stationary", "100", "3000"],
    "products": ["layer_timings", "products", "14"],
    "layers": ["layer_timings", "layers", "42"],
}


def read_priors(path=PRIORS):
    """By name: what a cost is before a fit, and why it stays so; "": it does not."""
    with open(path) as file:
        return {r["cost"]: (float(r["prior"]), r["fixed"]) for r in csv.DictReader(file)}


def fit(planner, rows, priors):
    """The fitted costs, and those that stay."""
    costs = {name: prior for name, (prior, _) in priors.items()}
    fitted = []
    for kind, stage in STAGES.items():
        # Others that were timed beside them tell the error that all have in common.
        fitted += [engine for group in stage for engine in group]
        some = [row for row in rows if row.kind == kind and row.engine in fitted]
        free = [name for name, (_, fixed) in priors.items()
                if not fixed and list(ENGINES)[_group_of_cost(name)] in stage]  # fmt: skip
        if some:
            costs |= _fit_some(planner.of(some), some, costs, free)
    return costs


def _fit_some(planner, rows, costs, free):
    """The costs that are free, by Levenberg and Marquardt's method."""
    start = np.log([costs[name] for name in free])
    measured = np.log([row.measured for row in rows])
    freedom = np.array([LESS_FREEDOM.get(name.split(".")[0], FREEDOM) for name in free])
    scaled = _scale_of_errors(rows)
    group_of_rows = np.array([_group_of_engine(row.engine) for row in rows])
    group_of_costs = np.array([_group_of_cost(name) for name in free])

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
    return dict(zip(free, rounded, strict=True))


def _group_of_engine(name):
    return next(i for i, engines in enumerate(ENGINES) if name in engines)


def _group_of_cost(name):
    return next(
        (i for i, costs in enumerate(ENGINES.values()) if name.startswith(tuple(costs))), -1
    )


def _scale_of_errors(rows):
    """A function of errors by row (or a matrix of these) that weighs them, as said above."""
    # `stepwise` compares its cuts with each other alone.
    names = [(row.problem, row.engine == "stepwise_cut") for row in rows]
    numbers = {name: i for i, name in enumerate(dict.fromkeys(names))}
    problem = np.array([numbers[name] for name in names])
    times = np.array([row.measured for row in rows])
    best = np.full(len(numbers), np.inf)
    np.minimum.at(best, problem, times)
    weights = 1 / (1 + ((times / best[problem] - 1) / NEARS.get(rows[0].engine, NEAR)) ** 2)
    totals = np.bincount(problem, weights)
    # Of a mean over a problem's cuts, what is taken off so that the rest is as if independent.
    share = COMMON_ERRORS.get(rows[0].engine, COMMON_ERROR) / ERROR
    common = 1 - 1 / np.sqrt(1 + totals * share**2)

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
    """By engine: number of rows, root mean square and 95th percentile of the relative error.

    Of the rows that its costs are fitted to.
    """
    logs = np.log(estimates / np.array([row.measured for row in rows]))
    groups = list(ENGINES)
    of_stage = [groups[_group_of_engine(row.engine)] in STAGES[row.kind] for row in rows]
    logs, rows = logs[of_stage], list(itertools.compress(rows, of_stage))
    engines = np.array([row.engine for row in rows])
    found = {}
    for engine in sorted(set(engines)):
        of = logs[engines == engine]
        found[engine] = (len(of), np.sqrt(np.mean(of**2)), np.quantile(np.abs(of), 0.95))
    return found


def _compared(rows, costs):
    """Of rows of one problem those that a plan chooses from, and by how much it favours each."""
    on_chip = any(row.engine in ("block", "cluster", "grid") for row in rows)
    for row in rows:
        if row.engine == "product":
            # Only exact floats can be left to others.
            if row.cut != "plain":
                yield row, costs["gemm.float_margin"]
            elif row.problem[1] == "f32":
                yield row, 1
        elif row.engine == "stepwise":
            # It runs only where no engine holds R (lib/plan/cuda.cc).
            if not on_chip:
                yield row, 1
        elif row.engine != "stepwise_cut" and row.cut != "walk":
            yield row, 1


def loss_of_choice(rows, estimates, costs):
    """How much longer the cuts take that estimates choose than the best that were timed.

    Returns:
        By kind of rows and by problem: the rows of the choice and of the best.
    """
    estimate_of = dict(zip(rows, estimates, strict=True))
    problems = {}
    for row in rows:
        problems.setdefault((row.kind, row.problem), []).append(row)
    found = {kind: {} for kind in STAGES}
    for (kind, problem), group in problems.items():
        compared = list(_compared(group, costs))
        if len(compared) > 1:
            times = [weight * estimate_of[row] for row, weight in compared]
            # Of about the same ones the most chunks, as in lib/plan/overlap.cc.
            same = [
                row
                for (row, _), time in zip(compared, times, strict=True)
                if time <= (1.002 if "chunks" in group[-1].cut else 1) * min(times)
            ]
            chosen = max(
                same, key=lambda row: int((row.cut + " 0").split()[1]) if "chunks" in row.cut else 0
            )
            best = min((row for row, _ in compared), key=lambda row: row.microseconds)
            found[kind][problem] = chosen, best
    return found


def mean_loss(choices):
    return float(np.mean([np.log(a.microseconds / b.microseconds) for a, b in choices.values()]))


def report(rows, planner, fitted):
    """Prints what a fit changes."""
    compiled = planner.compiled
    before, after = planner.estimate(compiled), planner.estimate(fitted)
    print(f"{'engine':16}{'rows':>6}   {'rms, 95 % before':18}{'after':16}")
    old, new = (errors_by_engine(rows, estimates) for estimates in (before, after))
    for engine, (count, rms, tail) in old.items():
        was = f"{100 * rms:6.1f} %{100 * tail:7.1f} %"
        now = f"{100 * new[engine][1]:6.1f} %{100 * new[engine][2]:7.1f} %"
        print(f"{engine:16}{count:6}   {was:18}{now:16}")
    old, new = (
        loss_of_choice(rows, x, costs) for x, costs in ((before, compiled), (after, fitted))
    )
    for kind, choices in new.items():
        if not choices:
            continue
        print(f"{kind}: what is chosen takes longer than the best timed of {len(choices)}: "
              f"{100 * mean_loss(old[kind]):.2f} % → {100 * mean_loss(choices):.2f} %")  # fmt: skip
        for problem, (row, best) in choices.items():
            was = old[kind][problem][0]
            if row.microseconds > 1.02 * was.microseconds:
                print("slower:", *problem, "|", was.engine, was.cut, was.microseconds, "→",
                      row.engine, row.cut, row.microseconds, "| best", best.engine, best.cut,
                      best.microseconds)  # fmt: skip


def measure(device):
    """Times this machine's GPU and writes its data."""
    for kind, (program, *arguments) in MEASUREMENTS.items():
        command = [BUILT / program, CUDA_HALF, *arguments]
        text = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        name = text.partition(",")[0].strip("# ")
        gpu = next((gpu for gpu in DEVICES[device] if gpu.upper() in name), None)
        if gpu is None:
            raise SystemExit(f"this GPU is {name}: its costs need a table of their own")
        (DATA / f"{kind}_{gpu}.csv").write_text(text)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", choices=DEVICES, default="h200")
    parser.add_argument("--measure", action="store_true", help="time this machine's GPU first")
    options = parser.parse_args(arguments)
    if options.measure:
        measure(options.device)
    rows = read_rows(options.device)
    priors = read_priors()
    planner = Planner(BUILT / "libplan_costs.so", rows)
    if list(priors) != planner.names:
        raise SystemExit("plan_priors.csv does not name the costs of lib/plan/costs in their order")
    costs = fit(planner, rows, priors)
    report(rows, planner, costs)
    to = ROOT / f"lib/plan/costs/costs_{options.device}.inc"
    to.write_text(table_text(costs, priors, "benchmarks/data"))
    # GPUs that nobody timed have what a fit begins with.
    untimed = ROOT / "lib/plan/costs/costs_untimed.inc"
    untimed.write_text(table_text(None, priors, PRIORS.relative_to(ROOT)))
    print(f"wrote {to.relative_to(ROOT)} and {untimed.relative_to(ROOT)}")


if __name__ == "__main__":
    sys.exit(main())
