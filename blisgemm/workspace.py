"""The packed buffers: page-aligned, reused from call to call, bounded.

Knows: bytes. Does not know: blocks or dtypes' meaning. Called by ``driver``.

A call borrows one piece that holds its packed panel of A and its blocks of B (a pair per thread of a batch, two for a
team that packs ahead), and gives it back. Calls on several Python threads borrow different pieces. What is kept is
bounded by ``KEPT_BYTES``; ``free_workspace`` drops it.
"""

from __future__ import annotations

import math
import os
import threading
from typing import Any

import numpy as np

__all__ = ["KEPT_BYTES", "Key", "Piece", "borrow", "buffer_bytes", "free_workspace", "give_back", "workspace_bytes"]

PAGE_BYTES = 4096
# Kept between calls at most: room for two concurrent calls of the largest workspace, of four blocking.PANEL_BYTES_MAX.
KEPT_BYTES = 256 * 1024 * 1024

# The shapes of the arrays that a call needs, and their dtype.
Key = tuple[tuple[tuple[int, ...], ...], "np.dtype[Any]"]


class Piece:
    """A page-aligned stretch of bytes, with the ``arrays`` that were last carved from it."""

    def __init__(self, size: int) -> None:
        raw = np.empty(size + PAGE_BYTES, np.uint8)
        start = -raw.ctypes.data % PAGE_BYTES
        self.bytes = raw[start : start + size]
        self.nbytes = size
        self.key: Key | None = None
        self.arrays: tuple[np.ndarray[Any, Any], ...] = ()

    def carve(self, key: Key) -> None:
        """Make the arrays of ``key``, each starting on a page."""
        shapes, dtype = key
        arrays, start = [], 0
        for shape in shapes:
            size = math.prod(shape) * dtype.itemsize
            arrays.append(self.bytes[start : start + size].view(dtype).reshape(shape))
            start += _pages(size)
        self.arrays, self.key = tuple(arrays), key


_lock = threading.Lock()
_free: list[Piece] = []
_kept_bytes = 0  # of the pieces in _free


def _pages(count: int) -> int:
    return -(-count // PAGE_BYTES) * PAGE_BYTES


def buffer_bytes(*sizes: int) -> int:
    """Return the bytes that ``borrow`` takes for arrays of these sizes."""
    return sum(_pages(size) for size in sizes)


def borrow(key: Key) -> Piece:
    """Lend a piece with the arrays of ``key``; ``give_back`` must follow. They hold whatever was left there.

    A repeated call gets what the last one gave back, and allocates nothing.
    """
    global _kept_bytes
    with _lock:
        if _free:
            piece = _free.pop()
            if piece.key == key:
                _kept_bytes -= piece.nbytes
                return piece
            _free.append(piece)
    return _found(key) or _made(key)


def _found(key: Key) -> Piece | None:
    """Take a kept piece: one carved so, else the smallest that is large enough."""
    global _kept_bytes
    size = _size(key)
    with _lock:
        piece = next((p for p in reversed(_free) if p.key == key), None)
        if piece is None:
            fitting = [p for p in _free if p.nbytes >= size]
            if fitting:
                piece = min(fitting, key=lambda p: p.nbytes)
            elif _free:  # too small for this call: let it go rather than hold both
                _kept_bytes -= _free.pop().nbytes
        if piece is None:
            return None
        _free.remove(piece)
        _kept_bytes -= piece.nbytes
    if piece.key != key:
        piece.carve(key)
    return piece


def _made(key: Key) -> Piece:
    piece = Piece(_size(key))
    piece.carve(key)
    return piece


def _size(key: Key) -> int:
    shapes, dtype = key
    return sum(_pages(math.prod(shape) * dtype.itemsize) for shape in shapes)


def give_back(piece: Piece) -> None:
    """Keep what ``borrow`` lent for the next calls, if there is room."""
    global _kept_bytes
    with _lock:
        if piece.nbytes + _kept_bytes <= KEPT_BYTES:
            _free.append(piece)
            _kept_bytes += piece.nbytes


def workspace_bytes() -> int:
    """Return how many bytes are kept for the next calls (those in use right now not counted)."""
    with _lock:
        return _kept_bytes


def free_workspace() -> int:
    """Free the buffers that are kept for the next calls; return how many bytes that were."""
    global _kept_bytes
    with _lock:
        size, _kept_bytes = _kept_bytes, 0
        _free.clear()
    return size


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
