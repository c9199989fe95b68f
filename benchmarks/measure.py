"""Timing and memory, for all benchmarks."""

import resource
import statistics
import time


def interleaved_medians(functions, seconds=4.0, least=5, rest=0.0, burst=0.0, clock=None):
    """Medians, in seconds a call, of several functions timed in turns.

    Because of the turns, a slow phase of the machine affects every peer. Each call must block until
    its work is done.

    Args:
        functions: dict of name to function of no arguments, warmed up already.
        seconds: time to spend on all of them.
        least: calls of each at least.
        rest: seconds to wait before each turn. Peers with threads of their own need it: a pool
            spins for milliseconds after its work, which slows down the next peer.
        burst: if not 0, a turn is calls for that many seconds (one at least) that are not timed,
            which wake the peer's threads and fill the caches, then as many that are; if 0, one
            call, timed.
        clock: what times a call: time.perf_counter if None; time.process_time on a machine that
            others use.

    Returns:
        dict of name to median.
    """
    clock = clock or time.perf_counter
    times = {name: [] for name in functions}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or min(map(len, times.values())) < least:
        for name, function in functions.items():
            if rest:
                time.sleep(rest)
            if burst:
                _calls(function, burst, clock)
            times[name] += _calls(function, burst, clock)
    return {name: statistics.median(t) for name, t in times.items()}


def _calls(function, seconds, clock):
    """Times of calls, one after the other, until `seconds` are over; one at least."""
    times = []
    while not times or sum(times) < seconds:
        start = clock()
        function()
        times.append(clock() - start)
    return times


def peak_bytes(function):
    """Bytes by which a call of `function` raises the resident set at its highest (Linux).

    Meaningful only if the process's allocator returns large blocks immediately
    (MALLOC_MMAP_THRESHOLD_ set before it starts).
    """
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the high-water mark starts over
    before = _status("VmRSS")
    function()
    return _status("VmHWM") - before


def _status(field):
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith(field + ":"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def geometric_mean(values):
    """The geometric mean of positive numbers."""
    return statistics.geometric_mean(values)
