"""The packed buffers: page-aligned, reused from call to call, bounded.

Knows: bytes. Does not know: blocks or dtypes' meaning. Called by ``driver``.

A call borrows one piece that holds its blocks of A (one per thread) and its panel of B, and gives it back.
Calls on several Python threads borrow different pieces. What is kept is bounded by
``KEPT_BYTES``; ``free_workspace`` drops it.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

__all__ = ["KEPT_BYTES", "borrow", "buffer_bytes", "free_workspace", "workspace_bytes"]

PAGE_BYTES = 4096
# Kept between calls at most: room for a few concurrent calls of the largest documented workspace.
KEPT_BYTES = 256 * 1024 * 1024

Key = tuple[tuple[int, ...], tuple[int, ...], "np.dtype[Any]"]


class _Piece:
    """A page-aligned stretch of bytes, with the arrays that were last carved from it."""

    def __init__(self, size: int) -> None:
        raw = np.empty(size + PAGE_BYTES, np.uint8)
        start = -raw.ctypes.data % PAGE_BYTES
        self.bytes = raw[start : start + size]
        self.nbytes = size
        self.key: Key | None = None
        self.arrays: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]

    def carve(self, key: Key) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Return the two arrays of ``key`` = (a_shape, b_shape, dtype), each starting on a page."""
        if self.key != key:
            a_shape, b_shape, dtype = key
            a_bytes, b_bytes = (math.prod(shape) * dtype.itemsize for shape in (a_shape, b_shape))
            start = _pages(a_bytes)
            a, b = self.bytes[:a_bytes].view(dtype), self.bytes[start : start + b_bytes].view(dtype)
            self.arrays, self.key = (a.reshape(a_shape), b.reshape(b_shape)), key
        return self.arrays


_lock = threading.Lock()
_free: list[_Piece] = []


def _pages(count: int) -> int:
    return -(-count // PAGE_BYTES) * PAGE_BYTES


def buffer_bytes(a_bytes: int, b_bytes: int) -> int:
    """Return the bytes that ``borrow`` takes for two arrays of these sizes."""
    return _pages(a_bytes) + _pages(b_bytes)


@contextlib.contextmanager
def borrow(
    a_shape: tuple[int, ...], b_shape: tuple[int, ...], dtype: np.dtype[Any]
) -> Iterator[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    """Lend two arrays of these shapes, each starting on a page. The contents are whatever was left there."""
    key = (a_shape, b_shape, dtype)
    with _lock:
        piece = next((p for p in _free if p.key == key), None)
        if piece is None:
            size = buffer_bytes(*(math.prod(shape) * dtype.itemsize for shape in (a_shape, b_shape)))
            fitting = [p for p in _free if p.nbytes >= size]
            if fitting:
                piece = min(fitting, key=lambda p: p.nbytes)
            elif _free:  # too small for this call: let it go rather than hold both
                _free.pop()
        if piece is not None:
            _free.remove(piece)
    if piece is None:
        piece = _Piece(size)
    try:
        yield piece.carve(key)
    finally:
        with _lock:
            if piece.nbytes + sum(p.nbytes for p in _free) <= KEPT_BYTES:
                _free.append(piece)


def workspace_bytes() -> int:
    """Return how many bytes are kept for the next calls (those in use right now not counted)."""
    with _lock:
        return sum(p.nbytes for p in _free)


def free_workspace() -> int:
    """Free the buffers that are kept for the next calls; return how many bytes that were."""
    with _lock:
        size = sum(p.nbytes for p in _free)
        _free.clear()
    return size


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
