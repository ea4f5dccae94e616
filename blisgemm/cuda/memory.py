"""Memory of the device and of the host, copies, streams and events.

Knows: allocation in the order of a stream, pinned memory, copies of one and two dimensions, what a capture
into a CUDA graph forbids. Does not know: arrays, kernels. Called by ``workspace``, ``device_array``, ``arrays`` and
``driver``, which hands it on.

All sizes and pitches are bytes, all pointers and stream handles integers; stream 0 is the legacy default
stream. The device must be current (``on_device``) unless an ordinal is asked for.

Pools: memory in stream order comes from a pool of our own, one per device, that keeps up to 1/16 of the device's
memory between calls; the default pool would give it back at each synchronisation, and its settings belong to the
program. Where pools aren't supported, and during a capture (memory allocated by a graph lives only while it runs),
plain allocations serve; those of a capture are kept until the process ends, since the graph may run again.
"""

from __future__ import annotations

import threading
from typing import Any

from ..errors import CudaError
from .binding import attributes, check, current_device, driver, relaxed_capture

__all__ = [
    "Event", "allocate", "allocate_host", "allocate_plain", "copy_2d", "copy_device", "copy_to_device",
    "copy_to_host", "create_stream", "destroy_stream", "fill_zero", "free", "free_host", "is_capturing",
    "pointer_device", "synchronize", "trim",
]  # fmt: skip

_KEPT_PART = 16  # a pool keeps 1/16 of the device's memory
_MAX_PITCH_BYTES = (1 << 31) - 1  # CU_DEVICE_ATTRIBUTE_MAX_PITCH, the same on every device

_lock = threading.Lock()
_pools: dict[int, Any] = {}  # ordinal -> CUmemoryPool; None where pools aren't supported
_plain: dict[int, bool] = {}  # pointers that aren't from a pool -> is it of a capture, never to be freed?


# ---- allocation -------------------------------------------------------------------------------------------------


def allocate(nbytes: int, stream: int) -> int:
    """Return device memory that may be used by work enqueued on the stream from now on.

    Raises:
        CudaError: Out of memory, after the pool has given back what it kept.
    """
    ordinal = current_device()
    pool = _pools[ordinal] if ordinal in _pools else _make_pool(ordinal)
    capturing = is_capturing(stream)
    if capturing or pool is None:
        pointer = allocate_plain(nbytes)
        _plain[pointer] = capturing
        return pointer
    api = driver()
    result = api.cuMemAllocFromPoolAsync(max(nbytes, 1), pool, stream)
    if result[0] and result[0].name == "CUDA_ERROR_OUT_OF_MEMORY":
        api.cuStreamSynchronize(stream)  # what was freed in stream order is free only now
        api.cuMemPoolTrimTo(pool, 0)
        result = api.cuMemAllocFromPoolAsync(max(nbytes, 1), pool, stream)
    return int(check(result, "cuMemAllocFromPoolAsync"))


def free(pointer: int, stream: int) -> None:
    """Give memory of ``allocate`` back once the work enqueued on the stream so far is done."""
    capture = _plain.get(pointer)
    if capture is None:
        check(driver().cuMemFreeAsync(pointer, stream), "cuMemFreeAsync")
    elif not capture:
        synchronize(stream)
        del _plain[pointer]  # before the address can be given to another thread
        check(driver().cuMemFree(pointer), "cuMemFree")


def allocate_plain(nbytes: int) -> int:
    """Return device memory that every stream may use at once; allowed during a capture. May wait for the device."""
    with relaxed_capture():
        return int(check(driver().cuMemAlloc(max(nbytes, 1)), "cuMemAlloc"))


def trim() -> None:
    """Give the memory that the pools keep, and that nobody uses, back to the device."""
    for pool in list(_pools.values()):
        if pool is not None:
            check(driver().cuMemPoolTrimTo(pool, 0), "cuMemPoolTrimTo")


def _make_pool(ordinal: int | None) -> Any:
    """Create the pool of a device, once; ``None`` where that isn't supported."""
    if ordinal is None:
        raise CudaError("cuMemAllocFromPoolAsync", "CUDA_ERROR_INVALID_CONTEXT", "no device is current")
    api = driver()
    with _lock:
        if ordinal in _pools:
            return _pools[ordinal]
        facts = attributes(ordinal)
        pool = None
        if facts["memory_pools"]:
            wanted = api.CUmemPoolProps()
            wanted.allocType = api.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
            wanted.location.type = api.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
            wanted.location.id = ordinal
            with relaxed_capture():
                failed, made = api.cuMemPoolCreate(wanted)
            if not failed:  # a virtual GPU may support pools in name only
                pool = made
                keep = api.cuuint64_t(facts["memory_bytes"] // _KEPT_PART)
                threshold = api.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
                check(api.cuMemPoolSetAttribute(pool, threshold, keep), "cuMemPoolSetAttribute")
        _pools[ordinal] = pool
        return pool


def allocate_host(nbytes: int) -> int:
    """Return pinned host memory, which every context may copy from and to without staging."""
    api = driver()
    with relaxed_capture():
        return int(check(api.cuMemHostAlloc(max(nbytes, 1), api.CU_MEMHOSTALLOC_PORTABLE), "cuMemHostAlloc"))


def free_host(pointer: int) -> None:
    """Free pinned host memory; no copy may be using it."""
    check(driver().cuMemFreeHost(pointer), "cuMemFreeHost")


def pointer_device(pointer: int) -> int | None:
    """Return the ordinal of the device that a pointer's memory belongs to; ``None`` if CUDA doesn't know it."""
    api = driver()
    which = api.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    status, ordinal = api.cuPointerGetAttribute(which, pointer)
    return None if status else int(ordinal)


# ---- copies -----------------------------------------------------------------------------------------------------


def fill_zero(pointer: int, nbytes: int, stream: int) -> None:
    """Set device memory to zero bytes."""
    if nbytes:
        check(driver().cuMemsetD8Async(pointer, 0, nbytes, stream), "cuMemsetD8Async")


def copy_to_device(pointer: int, source: int, nbytes: int, stream: int) -> None:
    """Copy from host memory; from pinned memory it's asynchronous, otherwise the source may be reused at once."""
    if nbytes:
        check(driver().cuMemcpyHtoDAsync(pointer, source, nbytes, stream), "cuMemcpyHtoDAsync")


def copy_to_host(target: int, pointer: int, nbytes: int, stream: int) -> None:
    """Copy to host memory; the target holds the data once the stream is synchronised."""
    if nbytes:
        check(driver().cuMemcpyDtoHAsync(target, pointer, nbytes, stream), "cuMemcpyDtoHAsync")


def copy_device(target: int, source: int, nbytes: int, stream: int) -> None:
    """Copy between device memory and device memory."""
    if nbytes:
        check(driver().cuMemcpyDtoDAsync(target, source, nbytes, stream), "cuMemcpyDtoDAsync")


_COPIES = {"to_device": copy_to_device, "to_host": copy_to_host, "device": copy_device}


def copy_2d(
    direction: str,
    target: int,
    target_pitch_bytes: int,
    source: int,
    source_pitch_bytes: int,
    width_bytes: int,
    rows: int,
    stream: int,
) -> None:
    """Copy rows that lie a pitch apart.

    Args:
        direction: ``"to_device"``, ``"to_host"`` or ``"device"``.
        target: Address of the first row written.
        target_pitch_bytes: From the start of a row to the next one's; not less than ``width_bytes``.
        source: Address of the first row read.
        source_pitch_bytes: Likewise.
        width_bytes: Of each row.
        rows: How many.
        stream: A stream's handle.
    """
    if not rows or not width_bytes:
        return
    copy = _COPIES[direction]
    if rows == 1 or target_pitch_bytes == source_pitch_bytes == width_bytes:
        copy(target, source, rows * width_bytes, stream)
        return
    if max(target_pitch_bytes, source_pitch_bytes) > _MAX_PITCH_BYTES:
        for row in range(rows):
            copy(target + row * target_pitch_bytes, source + row * source_pitch_bytes, width_bytes, stream)
        return
    api = driver()
    host, device = api.CUmemorytype.CU_MEMORYTYPE_HOST, api.CUmemorytype.CU_MEMORYTYPE_DEVICE
    block = api.CUDA_MEMCPY2D()
    if direction == "to_device":
        block.srcMemoryType, block.srcHost = host, source
    else:
        block.srcMemoryType, block.srcDevice = device, source
    if direction == "to_host":
        block.dstMemoryType, block.dstHost = host, target
    else:
        block.dstMemoryType, block.dstDevice = device, target
    block.srcPitch, block.dstPitch = source_pitch_bytes, target_pitch_bytes
    block.WidthInBytes, block.Height = width_bytes, rows
    check(api.cuMemcpy2DAsync(block, stream), "cuMemcpy2DAsync")


# ---- streams and events -----------------------------------------------------------------------------------------


def create_stream() -> int:
    """Return a new stream of the current device that doesn't wait for the legacy default stream."""
    api = driver()
    return int(check(api.cuStreamCreate(api.CUstream_flags.CU_STREAM_NON_BLOCKING), "cuStreamCreate"))


def destroy_stream(stream: int) -> None:
    """Destroy a stream of ``create_stream``; what was enqueued on it still runs."""
    check(driver().cuStreamDestroy(stream), "cuStreamDestroy")


def synchronize(stream: int) -> None:
    """Wait until all that was enqueued on the stream is done; errors of kernels come up here."""
    check(driver().cuStreamSynchronize(stream), "cuStreamSynchronize")


def is_capturing(stream: int) -> bool:
    """Return whether what is enqueued on the stream goes into a CUDA graph."""
    status, state = driver().cuStreamIsCapturing(stream)
    if status:  # stream 0 while another stream is captured: nothing can be enqueued on it; the launch will say so
        return True
    return bool(state)


class Event:
    """A mark in a stream: another stream, or the host, can wait until it is reached.

    Args:
        timing: Note the time as well, for ``elapsed_ms``.
    """

    __slots__ = ("_handle",)

    def __init__(self, timing: bool = False) -> None:
        api = driver()
        flags = api.CUevent_flags.CU_EVENT_DEFAULT if timing else api.CUevent_flags.CU_EVENT_DISABLE_TIMING
        self._handle = check(api.cuEventCreate(flags), "cuEventCreate")

    def record(self, stream: int) -> None:
        """Put the mark behind all that is enqueued on the stream now."""
        check(driver().cuEventRecord(self._handle, stream), "cuEventRecord")

    def wait(self, stream: int) -> None:
        """Let all that is enqueued on the stream later wait for the mark."""
        check(driver().cuStreamWaitEvent(stream, self._handle, 0), "cuStreamWaitEvent")

    def synchronize(self) -> None:
        """Wait for the mark on the host."""
        check(driver().cuEventSynchronize(self._handle), "cuEventSynchronize")

    def elapsed_ms(self, end: Event) -> float:
        """Return the milliseconds from this mark to another; both were made with ``timing`` and are reached."""
        return float(check(driver().cuEventElapsedTime(self._handle, end._handle), "cuEventElapsedTime"))

    def __del__(self) -> None:
        handle = getattr(self, "_handle", None)
        if handle is not None:
            try:
                driver().cuEventDestroy(handle)  # one that is still pending is destroyed when it is reached
            except Exception:  # the interpreter is shutting down
                return
