"""What ``os.fork`` waits for, so that a child can compile.

Knows: the lock of what loads or compiles code. Does not know: products. Called by ``lane``, ``gufunc``, ``compiled``,
``parallel`` and ``machine.detect``, which hold it.

A child of ``os.fork`` has the forking thread alone. If another one was importing Numba or compiling just then, its
locks stay taken in the child, whose first product would wait for them for ever. So a fork waits here until such a
thread is done, at most ``_PATIENCE`` seconds, and both processes go on with the lock free.
"""

from __future__ import annotations

import os
import sys
import threading
from functools import cache
from typing import Any

__all__ = ["compiling"]

_PATIENCE = 15.0
_lock = threading.RLock()
_taken = threading.local()  # .locks: a list of those that this thread, which forks, holds


def compiling() -> threading.RLock:  # type: ignore[valid-type, unused-ignore]
    """Return the lock to hold while code is imported, loaded or compiled, or threads are started."""
    _register()
    return _lock


@cache
def _register() -> None:
    import logging  # noqa: F401  # what compiles takes its lock, and so must be waited for before a fork takes it

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)


def _before_fork() -> None:
    _take(_lock)
    compiler = getattr(sys.modules.get("numba.core.compiler_lock"), "global_compiler_lock", None)
    if compiler is not None:  # what other code compiles
        _take(compiler._lock)


def _take(lock: Any) -> None:
    if lock.acquire(timeout=_PATIENCE):
        _taken.locks = [*getattr(_taken, "locks", ()), lock]


def _after_fork() -> None:
    for lock in reversed(getattr(_taken, "locks", ())):
        lock.release()
    _taken.locks = []
