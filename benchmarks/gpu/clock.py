"""Times calls on a device."""

import statistics
import time

import torch


class Clock:
    """Times calls on a device.

    budget: milliseconds that the samples of one function should take, beyond two of them.
    """

    def __init__(self, device, budget):
        self.device, self.budget = device, budget

    def _elapsed(self, run, calls):
        if self.device == "cpu":
            start = time.perf_counter()
            for _ in range(calls):
                run()
            return 1e3 * (time.perf_counter() - start) / calls
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(calls):
            run()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / calls

    def median(self, run, calls=None):
        """Milliseconds a call, and the number of samples.

        calls: of a sample, one after the other; None: as many as take a millisecond, at most 100.
        """
        self._elapsed(run, 1)
        once = self._elapsed(run, 1)
        calls = calls or min(100, int(1 / once) + 1)
        samples = min(25, max(2, int(self.budget / (once * calls))))
        return statistics.median([self._elapsed(run, calls) for _ in range(samples)]), samples
