"""Fair times: calls in turn, medians with quartiles, ratios round by round.

Knows: the clock. Does not know: what is called. Called by ``trial`` and the scripts of ``bench/``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Spread", "cpu_clock", "geometric_mean", "interleave", "ratios", "spread"]

_SAMPLE = 200e-6  # seconds that one sample lasts at least: 1000 times what the clock resolves
_WARM = 10e-3  # seconds of a first call from which on a second one, to warm up, would change nothing
_WARM_CALLS = 24  # of a quick call, untimed: a library may prepare what follows with one of the first (``api``)
_PAUSE = 3e-3  # seconds before a sample on several threads: longer than idle workers spin (``environment``)


@dataclass(frozen=True)
class Spread:
    """The median of some numbers and their quartiles."""

    low: float
    median: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f}–{self.high:.2f})"


def spread(values: Iterable[float]) -> Spread:
    """Return the quartiles of ``values``."""
    low, median, high = np.percentile(list(values), (25, 50, 75))
    return Spread(float(low), float(median), float(high))


def geometric_mean(values: Iterable[float]) -> float:
    """Return the geometric mean of positive numbers."""
    return float(np.exp(np.mean(np.log(list(values)))))


def cpu_clock() -> tuple[Callable[[], float], str]:
    """Return the clock for one thread and its name: CPU time of the whole process where that is fine enough.

    It leaves out the time that other programs took; it counts every thread of this one, so a library that
    secretly used a second thread would gain nothing.
    """
    if time.get_clock_info("process_time").resolution <= 1e-6:
        return time.process_time, "CPU time"
    return time.perf_counter, "wall time"


def interleave(
    calls: Mapping[str, Callable[[], Any]], *, seconds: float = 2.0, rounds: tuple[int, int] = (5, 200),
    clock: Callable[[], float] = time.perf_counter, pause: bool = False,
) -> dict[str, list[float]]:  # fmt: skip
    """Time calls in turn, so that a clock rate that changes meets all of them alike.

    A round takes one sample of each call; the order rotates from round to round. A sample repeats its
    call until about 200 µs have passed, which is 1000 times what the clock resolves.

    Args:
        calls: by name.
        seconds: about how long to go on.
        rounds: at least and at most so many.
        clock: what counts seconds.
        pause: wait before each sample until the workers of the library before have gone to sleep; short
            calls are made once, untimed, to wake their own.

    Returns:
        Seconds per call: one list per name, one entry per round.
    """
    repeats = {}
    for name, call in calls.items():
        once = _once(call)
        if once >= _WARM:  # it may have compiled
            once = _once(call)
        if once < _WARM:
            once = min(_once(call) for _ in range(_WARM_CALLS))
        repeats[name] = max(1, round(_SAMPLE / max(once, 50e-9)))
    times: dict[str, list[float]] = {name: [] for name in calls}
    names = list(calls)
    end = time.perf_counter() + seconds
    for turn in range(rounds[1]):
        if turn >= rounds[0] and time.perf_counter() > end:
            break
        start = turn % len(names)
        for name in names[start:] + names[:start]:
            call, count = calls[name], range(repeats[name])
            if pause:
                time.sleep(_PAUSE)
                if len(count) > 1:
                    call()
            begin = clock()
            for _ in count:
                call()
            times[name].append((clock() - begin) / len(count))
    return times


def _once(call: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def ratios(times: Mapping[str, Sequence[float]], other: str, ours: str = "blisgemm") -> Spread:
    """Return how many times as long ``other`` took, round by round; above 1 is for ``ours``."""
    return spread(x / y for x, y in zip(times[other], times[ours], strict=True))
