"""Race blisgemm and NumPy over square products: verified first, interleaved, medians.

Knows: how to time two libraries fairly in one process. Does not know: either of them. Called by ``demo``;
``bench/`` holds the measurements that the library's constants rest on.

Both get the same arrays and a result array of their own. Turns alternate, so that a busy
moment or a change of clock hits both; what is shown is the median. On several threads each has all its turns at once,
after the workers of the other have gone to sleep.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from .console import figures_table, print_table, verbatim

__all__ = ["other_work", "run_races"]

_SIZES, _QUICK_SIZES = (8, 32, 128, 512, 1024, 2048), (8, 128, 512)
_DTYPES = ("float32", "float64")
_TURNS, _QUICK_TURNS = 15, 7
_LEAST_TURNS = 3
# On several threads, seconds before each library's samples: OpenBLAS's workers spin for a tenth of a second after a
# call and would hold the cores that the other's need (2 cores, n = 512, f32: 78 GFLOP/s after 40 ms, 138 after 200).
# Then so many calls wake its own.
_PAUSE, _WAKING_CALLS = 0.2, 3
# Seconds: one sample lasts at least this long, so that the clock's grain (under 0.1 µs) doesn't matter.
_SAMPLE = 2e-3
_CELL, _QUICK_CELL = 0.8, 0.15  # of one size, dtype and thread count
_ALL = 30.0  # of the whole table on a slow machine: later sizes are left out, and that is said


@dataclass(frozen=True)
class Cell:
    """Medians of seconds for one product."""

    ours: float
    numpys: float

    @property
    def ratio(self) -> float:
        """How many times as fast as NumPy."""
        return self.numpys / self.ours


def run_races(console: Console, quick: bool) -> bool:
    """Print a table per number of threads; return whether every product was within its bound."""
    from .. import get_num_threads

    sizes, deadline = _QUICK_SIZES if quick else _SIZES, time.perf_counter() + _ALL
    counts = sorted({1, get_num_threads()})
    console.print("Speed beside NumPy: GFLOP/s, and times as fast as NumPy\n", style="bold")
    if busy := other_work():
        console.print(busy, style="yellow")
    wrong: list[str] = []
    with _progress(console, len(counts) * len(sizes) * len(_DTYPES)) as advance:
        for threads in counts:
            with _numpy_threads(threads) as note:
                cells: dict[tuple[int, str], Cell | None] = {}
                for n in sizes:
                    for dtype in _DTYPES:
                        advance(f"{n} x {n}, {dtype}, {threads} thread{'s' * (threads > 1)}")
                        late = time.perf_counter() > deadline
                        cells[n, dtype] = None if late else _race(n, dtype, threads, quick, wrong)
            _print_table(console, f"{threads} thread{'s' * (threads > 1)}{note}", sizes, cells)
    console.print(f"Medians of interleaved runs; every product checked first. {_numpy_blas()}")
    for line in wrong:
        verbatim(console, f"WRONG {line}", "bold red")
    return not wrong


def _race(n: int, dtype: str, threads: int, quick: bool, wrong: list[str]) -> Cell:
    """Verify one product, then time it by turns."""
    from .. import matmul, num_threads

    rng = np.random.default_rng(n)
    a, b = (rng.standard_normal((n, n)).astype(dtype) for _ in range(2))
    ours, numpys = np.empty_like(a), np.empty_like(a)
    with num_threads(threads):
        runners: tuple[Callable[[], Any], ...] = (lambda: matmul(a, b, ours), lambda: np.matmul(a, b, numpys))
        for runner in runners:  # compile, touch the memory
            runner()
        # Both results carry an error of at most k u |a| |b|. Source: Higham, ch. 3.
        bound = 2 * (n + 2) * np.finfo(dtype).eps / 2 * (np.abs(a) @ np.abs(b))
        if not np.all(np.abs(ours - numpys) <= bound):
            wrong.append(f"{n} x {n} {dtype} on {threads} threads: differs from NumPy by more than rounding")
        once = [_sample(runner, 1) for runner in runners]
        repeats = [max(1, round(_SAMPLE / seconds)) for seconds in once]
        turn = sum(count * seconds for count, seconds in zip(repeats, once, strict=True))
        most, budget = (_QUICK_TURNS, _QUICK_CELL) if quick else (_TURNS, _CELL)
        turns = max(_LEAST_TURNS, min(most, int(budget / turn)))
        samples: tuple[list[float], list[float]] = ([], [])
        rounds, each = (turns, 1) if threads == 1 else (1, turns)
        for _ in range(rounds):
            for runner, count, times in zip(runners, repeats, samples, strict=True):
                if threads > 1:
                    time.sleep(_PAUSE)
                    _sample(runner, _WAKING_CALLS)
                times += [_sample(runner, count) for _ in range(each)]
    return Cell(statistics.median(samples[0]), statistics.median(samples[1]))


def _sample(runner: Callable[[], Any], count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        runner()
    return (time.perf_counter() - start) / count


def _print_table(
    console: Console, title: str, sizes: tuple[int, ...], cells: dict[tuple[int, str], Cell | None]
) -> None:
    table = figures_table("n", "f32 blisgemm", "NumPy", "times", "f64 blisgemm", "NumPy", "times", left=0)
    for n in sizes:
        row = []
        for dtype in _DTYPES:
            cell = cells[n, dtype]
            row += (
                ["late", "", ""]
                if cell is None
                else [*_speeds(n, cell), f"{cell.ratio:.{2 if cell.ratio < 10 else 0}f}"]
            )
        table.add_row(str(n), *row)
    verbatim(console, title, "bold")
    print_table(console, table)
    if any(cell is None for cell in cells.values()):
        verbatim(console, f"late: not run, because the table had taken {_ALL:.0f} s by then")
    console.print()


def _speeds(n: int, cell: Cell) -> list[str]:
    return [f"{2 * n**3 / seconds / 1e9:.1f}" for seconds in (cell.ours, cell.numpys)]


@contextlib.contextmanager
def _numpy_threads(threads: int) -> Iterator[str]:
    """Give NumPy's BLAS the same number of threads; yields a note if that can't be done."""
    try:
        import threadpoolctl
    except ImportError:
        yield " (NumPy with its own number: threadpoolctl isn't installed)"
        return
    with threadpoolctl.threadpool_limits(limits=threads, user_api="blas"):
        yield ""


def _numpy_blas() -> str:
    """Name the BLAS that NumPy is built with."""
    try:
        blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]  # type: ignore[index, call-overload]
        return f"NumPy {np.__version__} with {blas['name']} {blas['version']}."
    except (KeyError, TypeError):
        return f"NumPy {np.__version__}."


def other_work() -> str:
    """Say so if other programs keep the CPUs busy: then the figures are low, and not alike."""
    if not hasattr(os, "getloadavg"):
        return ""
    load, cpus = os.getloadavg()[0], os.cpu_count() or 1
    busy = load > cpus / 2  # over the last minute, of which this program worked a second or two
    return (
        f"Other programs are running (load {load:.1f} on {cpus} CPUs): figures will be low and uneven.\n"
        if busy
        else ""
    )


@contextlib.contextmanager
def _progress(console: Console, total: int) -> Iterator[Callable[[str], None]]:
    """Show a bar on a terminal, nothing elsewhere; yields the function that names the next step."""
    columns = (BarColumn(24), TextColumn("{task.completed}/{task.total}  {task.description}"))
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=total)
        started = False

        def advance(what: str) -> None:
            nonlocal started
            progress.update(task, description=what, advance=1 if started else 0)
            started = True

        yield advance
