"""Training on one GPU and on two: tokens a second, and where a step's time goes.

    python -m benchmarks.scaling [--stages one two copy workers] [--minutes 4] [--small]

Each stage is one process or two, so that a setting that fails or hangs costs its own stage alone.
Every result is printed when it is there. benchmarks/scaling/README.md says what the settings are.
"""

import argparse
import dataclasses
import json
import os
import queue
import subprocess
import sys
import threading
import time

from benchmarks.scaling import cases


class Table:
    """What came so far: prints each line, and ratios of two devices over one."""

    def __init__(self):
        self.one = {}  # (who, batch): the best tokens/s of one device, and its settings
        self.two = []
        self.failed = set()  # kinds that gave no result

    def take(self, line):
        """A line of JSON from benchmarks.scaling.run."""
        fields = json.loads(line)
        if "device" in fields:
            print(fields["device"], flush=True)
        elif "part" in fields:
            value = fields.get("error") or f"{fields['ms']:8.2f} ms"
            print(f"        {fields['part']:34} {value}", flush=True)
        elif "error" in fields:
            case = cases.Case(**fields["case"])
            self.failed.add(fields["kind"])
            print(f"{fields['kind']:8}FAILED  {case.text()}: {fields['error']}", flush=True)
        else:
            self._case(fields)

    def _case(self, fields):
        case = cases.Case(**fields["case"])
        self.failed.discard(fields["kind"])
        tokens, text = fields["tokens"], case.text()
        ratio = ""
        if fields["replicas"] == 1:
            best = self.one.get((case.who, case.batch), (0, ""))
            self.one[case.who, case.batch] = max(best, (tokens, text))
        else:
            self.two.append((tokens, case, fields["kind"]))
            if (case.who, case.batch) in self.one:
                ratio = f"{tokens / self.one[case.who, case.batch][0]:6.2f} × the best of one"
        print(
            f"{fields['kind']:8}{tokens:10,.0f} tokens/s {fields['ms']:8.2f} ms a step  {text}"
            f"  (loss {fields['loss']:.3f}, {fields['all_s']:.0f} s in all) {ratio}",
            flush=True,
        )

    def summary(self):
        """The best of each batch, and how far two devices come."""
        print("\nbest           batch   one device   two devices   ratio   settings of two")
        for (who, batch), (tokens, _) in sorted(self.one.items()):
            same = [x for x in self.two if (x[1].who, x[1].batch) == (who, batch)]
            if same:
                most, case, kind = max(same, key=lambda x: x[0])
                print(
                    f"{who:14}{batch:6}{tokens:13,.0f}{most:14,.0f}{most / tokens:8.2f}"
                    f"   {kind}: {case.text()}"
                )


def start(kind, runs, options, **environment):
    """A process of benchmarks.scaling.run."""
    command = [sys.executable, "-m", "benchmarks.scaling.run", "--kind", kind]
    command += ["--cases", json.dumps([dataclasses.asdict(case) for case in runs])]
    command += ["--seconds", str(options.seconds)] + (["--small"] if options.small else [])
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment}
    )


def follow(processes, table, end, silence):
    """Takes their lines until all have ended, `end` has come, or none spoke for `silence` s."""
    lines = queue.Queue()

    def read(process):
        for line in process.stdout:
            lines.put(line)
        lines.put(None)

    for process in processes:
        threading.Thread(target=read, args=(process,), daemon=True).start()
    running = len(processes)
    while running:
        try:
            wait = min(silence, end - time.monotonic())
            line = lines.get(timeout=max(wait, 0.01))
        except queue.Empty:
            print(f"stopped: no result for {wait:.0f} s", flush=True)
            break
        if line is None:
            running -= 1
        elif line.startswith("@"):
            table.take(line[1:])
    for process in processes:
        process.kill()
        process.wait()


def stage(name, options, table, end):
    """Runs one of the stages."""
    print(f"\n== {name} ({time.strftime('%H:%M:%S')})", flush=True)
    if name == "one":
        both = [
            start("one", runs, options, CUDA_VISIBLE_DEVICES=str(i % options.gpus))
            for i, runs in enumerate(cases.ONE.values())
        ]
        follow(both, table, end, options.silence)
    elif name == "two":
        follow([start("nccl", cases.TWO, options)], table, end, options.silence)
        if "nccl" in table.failed and not any(kind == "nccl" for _, _, kind in table.two):
            print("NCCL gave no result: the same with copies between the GPUs", flush=True)
            follow([start("copy", cases.TWO, options)], table, end, options.silence)
    elif name == "copy":
        follow([start("copy", cases.COPY, options)], table, end, options.silence)
    else:
        cluster = {"worker": [f"localhost:{options.port + i}" for i in range(2)]}
        workers = [
            start(
                "workers",
                cases.WORKERS,
                options,
                CUDA_VISIBLE_DEVICES=str(i),
                TF_CONFIG=json.dumps({"cluster": cluster, "task": {"type": "worker", "index": i}}),
            )
            for i in range(2)
        ]
        threading.Thread(target=workers[1].communicate, daemon=True).start()
        follow(workers[:1], table, end, options.silence)
        workers[1].kill()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    stages = ["one", "two", "copy", "workers"]
    parser.add_argument("--stages", nargs="+", choices=stages, default=stages)
    parser.add_argument("--seconds", type=float, default=1.2, help="to time a case")
    parser.add_argument("--minutes", type=float, default=4.0, help="no longer than that in all")
    parser.add_argument("--silence", type=float, default=75.0, help="a stage ends after so many s")
    parser.add_argument("--gpus", type=int, default=2, help="1: both peers of `one` share a GPU")
    parser.add_argument("--port", type=int, default=23450, help="of the first worker")
    parser.add_argument("--small", action="store_true", help="a tiny model, on a CPU")
    options = parser.parse_args()
    table = Table()
    end = time.monotonic() + 60 * options.minutes
    for name in options.stages:
        if time.monotonic() < end:
            stage(name, options, table, end)
    table.summary()


if __name__ == "__main__":
    main()
