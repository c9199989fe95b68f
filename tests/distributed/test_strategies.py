"""Training on two devices and by two workers gives what one device gives, also after a failure."""

import os
import pathlib
import signal
import socket
import subprocess
import sys

import numpy as np
import pytest

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[1]


def start(out, *arguments):
    """A process of train.py, with its messages in OUT/….log."""
    log = open(out / f"{'-'.join(map(str, arguments[:2]))}.log", "a")  # noqa: SIM115
    return subprocess.Popen(
        [sys.executable, str(HERE / "train.py"), arguments[0], str(out), *map(str, arguments[1:])],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=log,
        stderr=subprocess.STDOUT,
    )


def free_ports(count):
    """Ports that nothing listens on."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("localhost", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def logs(out):
    """What the processes said last."""
    return "\n".join(path.read_text()[-3000:] for path in sorted(out.glob("*.log")))


def assert_same(got, want):
    """Weights and losses that differ by the order of sums alone."""
    assert got.files == want.files
    for name in want.files:
        tail = want[name][-len(got[name]) :] if name == "losses" else want[name]
        np.testing.assert_allclose(got[name], tail, rtol=0, atol=2e-5, err_msg=name)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """What all processes wrote; two workers run beside the process with two devices."""
    out = tmp_path_factory.mktemp("distributed")
    ports = free_ports(2)
    mirrored = start(out, "mirrored")
    dying = [start(out, "worker", 0, *ports), start(out, "worker", 1, *ports, 1)]
    try:
        assert dying[1].wait(timeout=240) == -signal.SIGKILL, logs(out)
        # What a scheduler does: it ends what is left and begins all of them anew.
        dying[0].kill()
        dying[0].wait()
        ports = free_ports(2)
        workers = [start(out, "worker", i, *ports) for i in range(2)]
        dying += workers
        for process in (mirrored, *workers):
            assert process.wait(timeout=240) == 0, logs(out)
    finally:
        for process in (mirrored, *dying):
            process.kill()
    results = {path.stem: np.load(path) for path in out.glob("*.npz")}
    results["log"] = (out / "worker-0.log").read_text()
    return results


def test_two_devices_train_as_one(run):
    assert_same(run["two"], run["one"])


def test_fit_resumes_after_an_interruption(run):
    assert len(run["resumed"]["losses"]) == 1  # the epoch that was interrupted, from its start
    assert_same(run["resumed"], run["two"])


def test_two_workers_train_as_one_after_one_was_killed(run):
    assert "begins with epoch 0" in run["log"]
    assert "begins with epoch 2" in run["log"]
    for i in range(2):
        assert_same(run[f"worker{i}"], run["one"])
