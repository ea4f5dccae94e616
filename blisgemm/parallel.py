"""Threads: how many, how a product is divided among them, and the one place that knows Numba's layers.

Knows: limits (affinity, cgroup, environment, threadpoolctl, Numba), ways, threading layers and their
manners after a fork. Does not know: what runs on the threads. Called by ``plan`` (pure ways) and
``driver`` (``in_region``).

Numba's three layers differ where it matters to a library:

- ``omp``: the usual one here. Safe for concurrent calls; GNU's runtime kills a forked
  child that enters it, so a child that inherited it runs on its calling thread.
- ``tbb``: safe for concurrent and nested calls, and after a fork unless its threads were at work then: such a
  child runs on its calling thread.
- ``workqueue``: aborts the process on concurrent or nested entry, so one product has it at a time, a call that
  finds it taken runs on its own thread, and so does a call from a thread that Python didn't start.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any

from .errors import BlisgemmTypeError, BlisgemmValueError, OverrideError
from .forking import compiling
from .machine.detect import usable_cpus

__all__ = [
    "ALONE", "Team", "check_threads", "choose_ways", "get_num_threads", "in_region", "num_threads", "set_num_threads",
    "threading_layer", "useful_threads",
]  # fmt: skip

# Work per thread below which a region doesn't pay: entering one costs 1.5 us (tbb) to 2 us (omp), and
# 64^3 terms take about 5 us on one core (OpenBLAS switches at the same size: interface/gemm.c).
TERMS_PER_THREAD = 64**3

# The same where memory bounds a product: its terms take longer. Source: our choice, half as many.
STREAMED_TERMS_PER_THREAD = 128 * 1024


# ---- how many --------------------------------------------------------------------------------------

_chosen: int | None = None
_scoped: ContextVar[int | None] = ContextVar("blisgemm_num_threads", default=None)


def check_threads(value: Any, name: str = "threads") -> int:
    """Return ``value`` as a number of threads.

    Raises:
        BlisgemmTypeError: not an integer. BlisgemmValueError: below 1.
    """
    try:
        count = value.__index__() if not isinstance(value, bool) else None
    except AttributeError:
        count = None
    if count is None:
        raise BlisgemmTypeError(f"{name}: expected an integer >= 1; got {value!r}")
    if count < 1:
        raise BlisgemmValueError(f"{name}: expected an integer >= 1; got {value!r}")
    return int(count)


@cache
def _environment_threads() -> int | None:
    text = os.environ.get("BLISGEMM_NUM_THREADS")
    if not text:
        return None
    try:
        return check_threads(int(text), "BLISGEMM_NUM_THREADS")
    except ValueError:
        raise OverrideError(f"BLISGEMM_NUM_THREADS: expected an integer >= 1; got {text!r}") from None


@cache
def _default_threads() -> int:
    limit = os.environ.get("NUMBA_NUM_THREADS", "")
    return min(usable_cpus(), int(limit)) if limit.isdigit() and int(limit) > 0 else usable_cpus()


def set_num_threads(n: int | None) -> None:
    """Set how many threads products may use from now on; ``None`` returns to the default.

    Args:
        n: at least 1. More than Numba has launched (NUMBA_NUM_THREADS) has no effect.

    Raises:
        BlisgemmTypeError, BlisgemmValueError: n isn't an integer of at least 1.
    """
    global _chosen
    _chosen = None if n is None else check_threads(n, "n")


def get_num_threads() -> int:
    """Return how many threads a product called here and now may use.

    The innermost ``num_threads`` block, else ``set_num_threads``, else ``BLISGEMM_NUM_THREADS``, else the CPUs
    that affinity and cgroup leave to this process.
    """
    return _scoped.get() or _chosen or _environment_threads() or _default_threads()


@contextlib.contextmanager
def num_threads(n: int) -> Iterator[None]:
    """Limit products inside a ``with`` block (this thread or task only) to ``n`` threads.

    Example:
        >>> import blisgemm
        >>> with blisgemm.num_threads(1):
        ...     blisgemm.get_num_threads()
        1
    """
    token = _scoped.set(check_threads(n, "n"))
    try:
        yield
    finally:
        _scoped.reset(token)


def useful_threads(terms: int, threads: int, streaming: bool = False) -> int:
    """Return how many of ``threads`` a product of ``terms`` = m * n * k keeps busy.

    ``streaming``: whether memory bounds it, so that a term takes longer.
    """
    return max(1, min(threads, terms // (STREAMED_TERMS_PER_THREAD if streaming else TERMS_PER_THREAD)))


def choose_ways(m: int, n: int, mr: int, nr: int, threads: int) -> tuple[int, int]:
    """Divide micro-panels among threads: (ic ways over rows, jr ways over columns).

    Of all grids with at most ``threads`` cells, the one whose busiest cell has the fewest micro-tiles;
    among equals the fewest cells, then the fewest jr ways, since each of them reads A again.

    Source: the ways of BLIS (Smith et al., IPDPS 2014), with whole micro-panels counted.
    """
    rows, columns = -(-m // mr), -(-n // nr)

    def cost(ways: tuple[int, int]) -> tuple[int, int, int]:
        ic, jr = ways
        return -(-rows // ic) * -(-columns // jr), ic * jr, jr

    grids = [
        (ic, jr) for jr in range(1, threads + 1) for ic in {max(1, threads // jr), min(rows, max(1, threads // jr))}
    ]
    return min(((ic, jr) for ic, jr in grids if ic <= max(1, rows) and jr <= max(1, columns)), key=cost, default=(1, 1))


# ---- Numba's threading layers ----------------------------------------------------------------------

# What compiled code joins (``team``): address of the layer's function or 0, number of threads, and 0.
Team = tuple[int, int, int]
ALONE: Team = (0, 1, 0)

_forked_with_layer = False
_running: dict[object, None] = {}  # parallel products that run right now, by tokens, as they came


def threading_layer() -> str:
    """Return ``tbb``, ``omp`` or ``workqueue`` once a parallel product has run, else ``not started``."""
    numba = sys.modules.get("numba")  # not imported here: another thread may be at it, and a fork must not wait
    try:
        return str(numba.threading_layer()) if numba is not None else "not started"
    except (AttributeError, ValueError):  # not yet, or not yet whole
        return "not started"


def _has_openmp() -> bool:
    try:
        importlib.import_module("numba.np.ufunc.omppool")
    except ImportError:  # this Numba has none, or the loader finds no runtime of OpenMP
        return False
    return True


@cache
def start_layer() -> str:
    """Launch Numba's threads, if the program hasn't, and return the layer's name.

    A layer that the program or NUMBA_THREADING_LAYER has chosen is kept; else Numba takes tbb where the loader finds
    it, then omp. ``pip install tbb`` puts it where the loader doesn't look, which is as well: where tbb is asked for,
    or OpenMP missing, loading it first by its path makes Numba's own test find it.

    Source: Zen 3 VM, 2 threads, squares of 256 to 2000 after rests of 3 ms, 2026-11-30, NumPy's, torch's or MKL's best
    time by ours: f32 omp 1.02 to 1.06, tbb 0.90 to 0.93; f64 1.01 to 1.09, 0.95 to 0.97. In an unbroken row of calls
    tbb is up to 10 % faster at n <= 512.
    """
    from numba import config
    from numba.np.ufunc.parallel import _launch_threads

    wanted = config.THREADING_LAYER in ("tbb", "safe", "threadsafe", "forksafe")
    if threading_layer() == "not started" and (wanted or (config.THREADING_LAYER == "default" and not _has_openmp())):
        for name in ("libtbb.so.12", "libtbb.12.dylib"):
            path = Path(sys.prefix) / "lib" / name
            if path.exists():
                with contextlib.suppress(OSError):
                    ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    with compiling():
        _launch_threads()
    return threading_layer()


@cache
def _layer_address() -> int:
    """Return the address of the C function by which the layer runs something on its threads."""
    from llvmlite.binding import address_of_symbol

    return int(address_of_symbol("numba_parallel_for"))  # where Numba's own compiled code finds it


def in_region(threads: int, run: Callable[[Team], None]) -> None:
    """Enter the threading layer for a product that wants ``threads``, and call ``run`` with the team to join.

    ``ALONE`` means: run on this thread. The caller's own ``numba.set_num_threads`` is a limit, and restored.
    """
    if threads <= 1 or _forked_with_layer:
        run(ALONE)
        return
    import numba

    layer = start_layer()
    before, token = numba.get_num_threads(), object()
    granted = min(threads, before)
    foreign = layer == "workqueue" and isinstance(threading.current_thread(), threading._DummyThread)
    if granted == 1 or foreign:
        run(ALONE)
        return
    try:
        _running[token] = None
        first, *_ = list(_running)  # copied by one call of C, since others come and go meanwhile
        free = layer != "workqueue" or first is token
        run((_layer_address(), granted, 0) if free else ALONE)
    finally:
        _running.pop(token, None)  # first, and one call of C: an interrupt comes before or after it, not between
        numba.set_num_threads(before)  # a layer leaves the team's size here


def _after_fork_in_child() -> None:
    global _forked_with_layer
    _default_threads.cache_clear()
    if threading_layer() in ("omp", "workqueue") or _running:
        _forked_with_layer = True
    _running.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


# ---- threadpoolctl ---------------------------------------------------------------------------------


def _join_threadpoolctl() -> None:
    """Make ``threadpoolctl``, if it is installed, see and limit blisgemm like a BLAS."""
    import threadpoolctl

    class BlisgemmController(threadpoolctl.LibController):  # type: ignore[misc]
        """Stands for this package. A controller belongs to a loaded library; NumPy's own always is."""

        user_api = "blas"
        internal_api = "blisgemm"
        filename_prefixes = ("_multiarray_umath",)

        def get_num_threads(self) -> int:
            return get_num_threads()

        def set_num_threads(self, num_threads: int) -> None:
            set_num_threads(num_threads)

        def get_version(self) -> str:
            from ._version import __version__

            return __version__

        def set_additional_attributes(self) -> None:
            self.threading_layer = threading_layer()

    threadpoolctl.register(BlisgemmController)


with contextlib.suppress(Exception):  # not installed, or of another interface: its limits are just not seen
    _join_threadpoolctl()
