"""What must not be cut in two: loading and compiling code, by a fork or by a signal.

Knows: the lock of what does so, and what waits for it. Does not know: products. Called by ``lane``, ``gufunc``,
``compiled``, ``parallel`` and ``machine.detect``, which hold it.

A child of ``os.fork`` has the forking thread alone. If another one was importing Numba or compiling just then, its
locks stay taken in the child, whose first product would wait for them for ever. So a fork waits here until such a
thread is done, at most ``_PATIENCE`` seconds, and both processes go on with the lock free.

A signal's handler that raises, as that of Ctrl-C does, would leave Numba's tables half filled, and every later
compilation without what they lack. So handlers wait until that is done, a second or two.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from functools import cache
from typing import Any

__all__ = ["compiling"]

_PATIENCE = 15.0
_lock = threading.RLock()
_taken = threading.local()  # .locks: a list of those that this thread, which forks, holds


@contextlib.contextmanager
def compiling() -> Iterator[None]:
    """Hold the lock while code is imported, loaded or compiled, or threads are started; signals are handled after."""
    _register()
    with _lock, _signals_after():
        yield


@contextlib.contextmanager
def _signals_after() -> Iterator[None]:
    """Put off what Python's handlers of signals do, on the main thread, which runs them, until the block is left."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[tuple[int, Any]] = []

    def note(number: int, frame: Any) -> None:
        came.append((number, frame))

    found = {int(number): signal.getsignal(number) for number in signal.valid_signals()}
    handlers: dict[int, Any] = {number: handler for number, handler in found.items() if callable(handler)}
    try:
        for number in handlers:
            signal.signal(number, note)
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        with contextlib.ExitStack() as after:  # each is run, though one before it raises
            for number, frame in reversed(came):
                after.callback(handlers[number], number, frame)


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
