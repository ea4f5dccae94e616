"""Scratch memory of the device that is kept between calls, one buffer per device and stream.

Knows: which buffer belongs to which stream, how it grows, what a CUDA graph may still use. Does not
know: what is kept in it. Called by ``driver``, which hands it on to whatever launches.

A stream runs its kernels one after the other, so all launches on it, from any thread, may share a buffer. A
buffer that is replaced by a larger one isn't freed, since a thread may be about to launch with it; buffers
at least double, so what is left behind is less than what is in use. Meant for partial sums and counters: larger
temporary matrices are better taken with ``allocate`` and ``free``.

CUDA graphs: a graph remembers the buffer of the stream that was captured. Two graphs captured on one stream must
not run at the same time, and neither may one and other products on that stream, as with cuBLAS's workspace.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from ..errors import CudaError
from .binding import check, driver, on_device, relaxed_capture
from .memory import allocate_plain, create_stream, destroy_stream, fill_zero, is_capturing, synchronize, trim

__all__ = ["counters", "release", "workspace"]

_ALIGN_BYTES = 256  # what cuMemAlloc aligns to
_COUNTER_BYTES = 4  # int32


@dataclass(slots=True)
class _Buffer:
    pointer: int
    nbytes: int
    in_graph: bool  # handed out during a capture: kept until the process ends


_Key = tuple[str, int, int]  # what for, ordinal, stream

_lock = threading.Lock()
_current: dict[_Key, _Buffer] = {}
_replaced: list[tuple[int, _Buffer]] = []  # (ordinal, buffer)


def workspace(nbytes: int, ordinal: int, stream: int) -> int:
    """Return scratch memory for kernels on the stream; what it holds is undefined.

    Args:
        nbytes: At least so much.
        ordinal: The device, current in this thread.
        stream: The stream that all users of the memory are launched on.
    """
    return _get(("workspace", ordinal, stream), nbytes)


def counters(count: int, ordinal: int, stream: int) -> int:
    """Return ``count`` int32 zeros for kernels on the stream, which leave them zero again."""
    return _get(("counters", ordinal, stream), count * _COUNTER_BYTES)


def _get(key: _Key, nbytes: int) -> int:
    buffer = _current.get(key)
    if buffer is None or buffer.nbytes < nbytes:
        buffer = _grow(key, nbytes)
    if not buffer.in_graph and is_capturing(key[2]):
        buffer.in_graph = True
    return buffer.pointer


def _grow(key: _Key, nbytes: int) -> _Buffer:
    """Replace a buffer by one that is large enough, and at least twice as large as it was if that can be had."""
    what, ordinal, _ = key
    with _lock:
        old = _current.get(key)
        if old is not None and old.nbytes >= nbytes:  # another thread was here first
            return old
        need = -(-max(nbytes, 1) // _ALIGN_BYTES) * _ALIGN_BYTES
        wanted = max(need, 2 * old.nbytes) if old else need
        with on_device(ordinal):
            try:
                pointer = allocate_plain(wanted)
            except CudaError as error:
                if wanted == need or error.name != "CUDA_ERROR_OUT_OF_MEMORY":
                    raise
                wanted = need
                pointer = allocate_plain(wanted)
            if what == "counters":
                _clear(pointer, wanted)
        if old is not None:
            _replaced.append((ordinal, old))
        buffer = _current[key] = _Buffer(pointer, wanted, False)
        return buffer


def _clear(pointer: int, nbytes: int) -> None:
    """Zero memory now, on a stream of its own: on a stream under capture it would happen only when the graph runs."""
    with relaxed_capture():
        stream = create_stream()
        try:
            fill_zero(pointer, nbytes, stream)
            synchronize(stream)
        finally:
            destroy_stream(stream)


def release() -> None:
    """Free the kept buffers that no CUDA graph can use, and what the pools keep.

    Waits for the devices. No other thread may be inside a product.
    """
    with _lock:
        kept = {key: buffer for key, buffer in _current.items() if buffer.in_graph}
        gone = [(key[1], buffer) for key, buffer in _current.items() if not buffer.in_graph]
        gone += [(ordinal, buffer) for ordinal, buffer in _replaced if not buffer.in_graph]
        for ordinal in sorted({ordinal for ordinal, _ in gone}):
            with on_device(ordinal):
                check(driver().cuCtxSynchronize(), "cuCtxSynchronize")
        _replaced[:] = [(ordinal, buffer) for ordinal, buffer in _replaced if buffer.in_graph]
        _current.clear()
        _current.update(kept)
        for ordinal, buffer in gone:
            with on_device(ordinal):
                check(driver().cuMemFree(buffer.pointer), "cuMemFree")
    trim()
