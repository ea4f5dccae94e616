"""Products of arrays in host memory: cut into steps that fit on the card, copied there and back while it computes.

Knows: pinned memory, streams and their order. Does not know: what arguments a call may have, how a
product is cut (``division``), how a step is planned and launched (``run``). Called by ``api``.

    host thread   fill pinned buffers with step i+1 . . . . . empty pinned buffers of step i
    stream up       copy step i+1 to the card
    stream run      multiply step i . . . . . . . . multiply step i+1
    stream down                                       copy step i to pinned buffers

Every operand travels through pinned buffers of a few MiB that NumPy fills, so any strides do and none is pinned
itself. A tile keeps the order of its array: whichever axis has the smaller stride is contiguous on the card too. The
buffers and streams of a device are kept for the next call (``release`` frees them); one product at a time uses them.
"""

from __future__ import annotations

import math
import os
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import BlisgemmTypeError, CudaError, OverrideError
from . import driver
from .division import PAD_BYTES, Division, cuts, divide, pieces_of, pitch_of
from .run import Factors, multiply
from .view import ITEM_BYTES, View, overlap

__all__ = ["gemm_on_host", "release"]

_Array = np.ndarray[Any, Any]

_BUDGET = "BLISGEMM_CUDA_HOST_BYTES"
_LEAST_BUDGET_BYTES = 4096  # more than six tiles of one element take
_SMALL_BYTES = 1 << 20  # up to here one copy there, one product, one copy back are quicker than steps
_CHUNK_BYTES = 8 << 20  # of a pinned buffer: about 0.3 ms of PCIe 4.0 x16, far more than it takes to start a copy
_BUFFERS = 4  # in each direction: one or two travel while the others are filled or emptied
_COPY_THREADS = 4  # one core copies at 5 to 12 GB/s, PCIe 4.0 x16 at 25
_ALONE_BYTES = 1 << 20  # below this one thread copies


# ---- the product ---------------------------------------------------------------------------------------------------


def gemm_on_host(
    a: View, b: View, c: View | None, out_view: View | None, shape: tuple[int, ...], factors: Factors, out: Any
) -> Any:
    """Compute ``alpha * op(a) op(b) + beta * c`` of NumPy arrays on the current device, or on the first one.

    Args:
        a, b: ... x m x k and ... x k x n as op turns them, batch dimensions those of the result.
        c: like the result; read only if beta isn't 0.
        out_view: the array to write, or ``None`` for a new one in C order. It may share memory with the others.
        shape: of the result.
        factors: alpha, beta, what is conjugated.
        out: the array that out_view describes, which is returned.

    Raises:
        OverrideError: the environment variable BLISGEMM_CUDA_HOST_BYTES isn't a number of bytes.
        CudaUnavailableError, CudaError: as ``api.gemm``.
    """
    if out is not None and not isinstance(out, (np.ndarray, View)):
        raise BlisgemmTypeError(f"out: expected a NumPy array, since a is one; got {type(out).__name__}")
    result: Any = np.empty(shape, a.dtype) if out is None else out
    target: _Array = result if out_view is None else _ndarray(out_view)
    if 0 in shape:
        return result
    reads_c = c is not None and factors.beta != 0
    of_c = _ndarray(c) if c is not None and reads_c else None
    if factors.alpha == 0 or a.shape[-1] == 0:
        _scale(target, of_c, factors.beta)
        return result
    override = _override()
    ordinal = driver.current_device() or 0
    of_a, of_b = _ndarray(a), _ndarray(b)
    small = override is None and _small_bytes(of_a, of_b, target) <= _SMALL_BYTES
    with driver.on_device(ordinal), driver.relaxed_capture():
        lane = _lane_of(ordinal)
        with lane.lock:
            if small:
                _at_once(lane, of_a, of_b, of_c, target, factors)
                return result
            met = [x for x in (a, b, c if reads_c else None) if x is not None and out_view and overlap(x, out_view)]
            alone = all(x is c and c is not None and _same(c, out_view) for x in met)
            written = target if alone else np.empty(shape, a.dtype)
            _in_steps(lane, of_a, of_b, of_c, written, factors, override or _budget())
            if not alone:
                np.copyto(target, written)
    return result


def _same(first: View, second: View | None) -> bool:
    return second is not None and (first.pointer, first.strides) == (second.pointer, second.strides)


def _scale(target: _Array, c: _Array | None, beta: complex) -> None:
    """Write beta * c, or zeros: no card is needed for it. NumPy sees to memory that c and the target share."""
    if c is None:
        target[...] = 0
        return
    with np.errstate(all="ignore"):
        np.multiply(c, target.dtype.type(beta if target.dtype.kind == "c" else beta.real), out=target)


def _override() -> int | None:
    """Return the bytes of the card's memory that the environment allows, if it says so."""
    text = os.environ.get(_BUDGET)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()) or int(text) < _LEAST_BUDGET_BYTES:
        raise OverrideError(
            f"{_BUDGET}: expected a whole number of bytes, at least {_LEAST_BUDGET_BYTES}; got {text!r}"
        )
    return int(text)


def _budget() -> int:
    """Return the bytes of the card's memory to use: a half, a quarter ... of all, the most that is free.

    Not a share of what is free: a product that doesn't fit would be cut otherwise, and have other bits, in every run.
    """
    free, budget = driver.free_memory()
    budget //= 2
    while budget > free // 8 * 7 and budget > _LEAST_BUDGET_BYTES:
        budget //= 2
    return max(budget, _LEAST_BUDGET_BYTES)


# ---- arrays --------------------------------------------------------------------------------------------------------


class _Memory:
    """What NumPy makes an array of: an address, and the owner that keeps it alive."""

    __slots__ = ("__array_interface__", "owner")

    def __init__(self, view: View) -> None:
        item_bytes = ITEM_BYTES[view.dtype]
        self.owner = view.owner
        self.__array_interface__ = {
            "version": 3, "shape": view.shape, "typestr": np.dtype(view.dtype).str,
            "data": (view.pointer, view.read_only), "strides": tuple(s * item_bytes for s in view.strides),
        }  # fmt: skip


def _ndarray(view: View) -> _Array:
    """Return the array that a view of host memory describes."""
    return np.asarray(_Memory(view))


def _is_turned(x: _Array) -> bool:
    """Whether columns rather than rows lie close together."""
    rows, columns = x.shape[-2:]
    if rows == 1 or columns == 1:
        return columns == 1 and rows > 1
    row, column = abs(x.strides[-2]), abs(x.strides[-1])
    return 0 < row < column or (column == 0 and row > 0)


def _unrepeated(x: _Array) -> _Array:
    """Return the array without the repetitions of its batch dimensions."""
    if x.ndim == 2:
        return x
    return x[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in x.strides[:-2])]


def _small_bytes(a: _Array, b: _Array, c: _Array) -> int:
    """Return about the bytes that a product moves."""
    return sum(_unrepeated(x).size * x.itemsize for x in (a, b)) + c.nbytes


def _batches(arrays: list[_Array]) -> list[_Array]:
    """Return the arrays with as few batch dimensions as their strides allow, at least one, the longest last."""
    batch = arrays[0].shape[:-2]
    axes: list[tuple[int, tuple[int, ...]]] = []  # extent, stride in each array
    for axis, extent in enumerate(batch):
        strides = tuple(x.strides[axis] for x in arrays)
        if extent == 1:
            continue
        if axes and axes[-1][1] == tuple(extent * s for s in strides):
            axes[-1] = (axes[-1][0] * extent, strides)
        else:
            axes.append((extent, strides))
    axes = axes or [(1, (0,) * len(arrays))]
    axes.append(axes.pop(max(range(len(axes)), key=lambda i: axes[i][0])))
    extents = tuple(extent for extent, _ in axes)
    return [
        np.lib.stride_tricks.as_strided(
            x, (*extents, *x.shape[-2:]), (*(strides[place] for _, strides in axes), *x.strides[-2:]), subok=False
        )
        for place, x in enumerate(arrays)
    ]


def _copy(lane: _Lane, target: _Array, source: _Array) -> None:
    """Copy items x rows x columns, by several threads if it's much."""
    axis = 0 if target.shape[0] > target.shape[1] else 1
    extent = target.shape[axis]
    parts = min(lane.threads, extent, target.nbytes // _ALONE_BYTES)
    if parts < 2:
        np.copyto(target, source)
        return
    if lane.pool is None:
        lane.pool = ThreadPoolExecutor(lane.threads - 1, "blisgemm-copy")
    places = [(slice(None), x) if axis else (x,) for x in cuts(extent, -(-extent // parts))]
    others = [lane.pool.submit(np.copyto, target[cut], source[cut]) for cut in places[1:]]
    try:
        np.copyto(target[places[0]], source[places[0]])
    finally:
        wait(others)  # also on Ctrl-C: nobody may write to the buffer when it is used again
    for other in others:
        other.result()


# ---- what is kept --------------------------------------------------------------------------------------------------


class _Buffer:
    """Pinned memory, and the mark behind the last copy that used it."""

    __slots__ = ("_bytes", "event", "pointer")

    def __init__(self, nbytes: int) -> None:
        self.event = driver.Event()
        self.pointer = driver.allocate_host(nbytes)
        self._bytes = _ndarray(View(self.pointer, (nbytes,), (1,), "uint8", -1, "numpy", None))

    def array(self, elements: int, dtype: np.dtype[Any], first_byte: int = 0) -> _Array:
        """Return elements of it as an array of one dimension."""
        return self._bytes[first_byte : first_byte + elements * dtype.itemsize].view(dtype)


class _Lane:
    """A device's streams and pinned buffers, for one product at a time."""

    def __init__(self, ordinal: int) -> None:
        self.ordinal = ordinal
        self.lock = threading.Lock()
        self.streams: list[int] = []  # up, run, down
        self.to_card: list[_Buffer] = []
        self.to_host: list[_Buffer] = []
        self.small: _Buffer | None = None
        self.small_on_card = 0
        self.pool: ThreadPoolExecutor | None = None
        affinity = getattr(os, "sched_getaffinity", None)
        self.threads = min(_COPY_THREADS, len(affinity(0)) if affinity else os.cpu_count() or 1)

    def open_small(self) -> _Buffer:
        """Make what a product without steps needs, once."""
        self._open_streams()
        if self.small is None:
            size = _SMALL_BYTES * 2  # twice, for what is padded
            self.small_on_card = self.small_on_card or driver.allocate(size, self.streams[1])
            self.small = _Buffer(size)
        return self.small

    def open(self) -> None:
        """Make what steps need, once."""
        self._open_streams()
        for buffers in (self.to_card, self.to_host):
            while len(buffers) < _BUFFERS:
                buffers.append(_Buffer(_CHUNK_BYTES))

    def _open_streams(self) -> None:
        while len(self.streams) < 3:
            self.streams.append(driver.create_stream())

    def settle(self) -> None:
        """Wait for everything, whatever has failed."""
        for stream in self.streams:
            with suppress(CudaError):
                driver.synchronize(stream)

    def close(self) -> None:
        """Free all of it."""
        self.settle()
        if self.small_on_card:
            driver.free(self.small_on_card, self.streams[1])
            self.small_on_card = 0
        buffers = [*self.to_card, *self.to_host, *([self.small] if self.small else [])]
        self.to_card, self.to_host, self.small = [], [], None
        for buffer in buffers:
            driver.free_host(buffer.pointer)
        while self.streams:
            driver.destroy_stream(self.streams.pop())
        if self.pool is not None:
            self.pool.shutdown()
            self.pool = None


_making = threading.Lock()
_lanes: dict[int, _Lane] = {}


def _lane_of(ordinal: int) -> _Lane:
    lane = _lanes.get(ordinal)
    if lane is None:
        with _making:
            lane = _lanes.setdefault(ordinal, _Lane(ordinal))
    return lane


def release() -> None:
    """Free the pinned buffers and streams kept for products of NumPy arrays; waits for those that run."""
    with _making:
        lanes = list(_lanes.values())
    for lane in lanes:
        with lane.lock, driver.on_device(lane.ordinal), driver.relaxed_capture():
            lane.close()


# ---- all at once ---------------------------------------------------------------------------------------------------


def _at_once(lane: _Lane, a: _Array, b: _Array, c: _Array | None, target: _Array, factors: Factors) -> None:
    """Compute a small product: one copy there, one product, one copy back. The target is written last of all."""
    buffer, run, card = lane.open_small(), lane.streams[1], lane.small_on_card
    dtype = a.dtype.name
    start_of_b, of_a = _room(buffer, _unrepeated(a), 0)
    start_of_c, of_b = _room(buffer, _unrepeated(b), start_of_b)
    end, of_c = _room(buffer, target, start_of_c)
    views = [
        View(card + start, x.shape, _strides(x.shape, memory), dtype, lane.ordinal, "numpy", None)
        for start, x, memory in ((0, a, of_a), (start_of_b, b, of_b), (start_of_c, target, of_c))
    ]
    np.copyto(of_a, _unrepeated(a))
    np.copyto(of_b, _unrepeated(b))
    if c is not None:
        np.copyto(of_c, c)
    try:
        driver.copy_to_device(card, buffer.pointer, start_of_c if c is None else end, run)
        multiply(views[0], views[1], views[2], factors, run)
        driver.copy_to_host(buffer.pointer + start_of_c, card + start_of_c, end - start_of_c, run)
        driver.synchronize(run)
    except BaseException:
        lane.settle()
        raise
    np.copyto(target, of_c)


def _room(buffer: _Buffer, x: _Array, start: int) -> tuple[int, _Array]:
    """Return the byte where room for an array in the buffer ends, and the room in the array's shape and order."""
    turned = _is_turned(x)
    shape = (*x.shape[:-2], x.shape[-1], x.shape[-2]) if turned else x.shape
    lengths = (*shape[:-1], pitch_of(shape[-1], x.itemsize))
    elements = math.prod(lengths)
    memory = buffer.array(elements, x.dtype, start).reshape(lengths)[..., : shape[-1]]
    end = start + -(-elements * x.itemsize // PAD_BYTES) * PAD_BYTES
    return end, memory.swapaxes(-1, -2) if turned else memory


def _strides(shape: tuple[int, ...], memory: _Array) -> tuple[int, ...]:
    """Return the strides, in elements, of a shape that repeats what is in memory only once."""
    size, axes = memory.itemsize, zip(shape, memory.shape, memory.strides, strict=True)
    return tuple([step // size if extent == own else 0 for extent, own, step in axes])


# ---- in steps ------------------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class _Slot:
    """Room for a tile on the card, and the mark behind the last product that reads or writes it."""

    pointer: int
    used: Any = None


class _Slots:
    """Room for some tiles of an operand; the one that was used longest ago makes way."""

    __slots__ = ("_free", "_held")

    def __init__(self, pointer: int, nbytes: int, count: int) -> None:
        self._free = [_Slot(pointer + place * nbytes) for place in reversed(range(count))]
        self._held: dict[Any, _Slot] = {}

    def find(self, key: Any) -> tuple[_Slot, bool]:
        """Return the slot of a tile, and whether the tile is in it already."""
        slot = self._held.pop(key, None)
        there = slot is not None
        if slot is None:
            slot = self._free.pop() if self._free else self._held.pop(next(iter(self._held)))
        self._held[key] = slot
        return slot, there


def _in_steps(
    lane: _Lane, a: _Array, b: _Array, c: _Array | None, target: _Array, factors: Factors, budget_bytes: int
) -> None:
    """Compute a product step by step; all of it is done on return. The target shares no memory but with an equal c."""
    batch = math.prod(target.shape[:-2])
    operands = _batches([a, b, target] if c is None else [a, b, target, c])
    shared_a, shared_b = (not any(x.strides[:-2]) for x in operands[:2])
    (m, k), n = a.shape[-2:], b.shape[-1]
    division = divide(m, n, k, a.itemsize, budget_bytes, batch, shared_a and batch > 1, shared_b and batch > 1)
    lane.open()
    run = lane.streams[1]
    pointer = driver.allocate(division.device_bytes, run)
    try:
        _Steps(lane, division, pointer, operands, factors).follow()
    except BaseException:
        lane.settle()
        with suppress(CudaError):
            driver.free(pointer, run)
        raise
    driver.free(pointer, run)


class _Steps:
    """The steps of one product: what is where on the card, and what waits for what."""

    def __init__(
        self, lane: _Lane, division: Division, pointer: int, operands: list[_Array], factors: Factors
    ) -> None:  # fmt: skip
        self.lane, self.division, self.operands, self.factors = lane, division, operands, factors
        self.turned = [_is_turned(x) for x in operands[:3]]
        self.dtype, self.name = operands[2].dtype, operands[2].dtype.name
        self.up, self.run, self.down = lane.streams
        of_b = pointer + division.a_slots * division.a_bytes
        of_c = of_b + division.b_slots * division.b_bytes
        self.of_a = _Slots(pointer, division.a_bytes, division.a_slots)
        self.of_b = _Slots(of_b, division.b_bytes, division.b_slots)
        self.of_c = _Slots(of_c, division.c_bytes, division.c_slots)
        self.next_buffer = 0
        allocated = driver.Event()
        allocated.record(self.run)
        allocated.wait(self.up)

    def follow(self) -> None:
        """Go through all steps. The finished tile of C is fetched when the next step has been started."""
        a, b, target, *rest = self.operands
        c = rest[0] if rest else None
        finished: tuple[_Slot, _Array] | None = None
        number = 0
        for outer in np.ndindex(target.shape[:-3]):
            for group in cuts(target.shape[-3], self.division.items):
                for rows, columns, depth in self.division.tiles():
                    first, last = depth.start == 0, depth.stop == self.division.k
                    number += first
                    to = target[(*outer, group, rows, columns)]
                    slot_of_c, _ = self.of_c.find(number)
                    loaded = [
                        self._load(self.of_a, a[(*outer, group, rows, depth)], self.turned[0]),
                        self._load(self.of_b, b[(*outer, group, depth, columns)], self.turned[1]),
                    ]
                    if first and c is not None:
                        self._upload(slot_of_c, c[(*outer, group, rows, columns)], self.turned[2])
                    self._multiply([*loaded, (slot_of_c, to)], first)
                    if finished is not None:
                        self._fetch(*finished)
                    finished = (slot_of_c, to) if last else None
        if finished is not None:
            self._fetch(*finished)

    def _load(self, slots: _Slots, tile: _Array, turned: bool) -> tuple[_Slot, _Array]:
        """Return the slot that the tile is in, after copying it there if it wasn't, and the tile."""
        repeated = tile.strides[0] == 0
        unique = tile[:1] if repeated else tile
        slot, there = slots.find((tile.__array_interface__["data"][0], unique.shape))
        if not there:
            self._upload(slot, unique, turned)
        return slot, tile

    def _upload(self, slot: _Slot, tile: _Array, turned: bool) -> None:
        source = tile.swapaxes(1, 2) if turned else tile
        size = self.dtype.itemsize
        pitch = pitch_of(source.shape[2], size)
        if slot.used is not None:
            slot.used.wait(self.up)
        for items, rows, columns, start, elements in pieces_of(source.shape, pitch, _CHUNK_BYTES // size):
            buffer = self.lane.to_card[self.next_buffer % _BUFFERS]
            self.next_buffer += 1
            buffer.event.synchronize()
            piece = source[items, rows, columns]
            _copy(self.lane, _laid_out(buffer.array(elements, self.dtype), piece.shape), piece)
            driver.copy_to_device(slot.pointer + start * size, buffer.pointer, elements * size, self.up)
            buffer.event.record(self.up)

    def _multiply(self, tiles: list[tuple[_Slot, _Array]], first: bool) -> None:
        """Multiply what is in the slots of A, B and C once it has arrived."""
        arrived = driver.Event()
        arrived.record(self.up)
        arrived.wait(self.run)
        views = [
            self._view(slot, tile, turned) for (slot, tile), turned in zip(tiles, self.turned, strict=True)
        ]  # fmt: skip
        of = self.factors
        factors = of if first else Factors(of.alpha, 1.0, of.conj_a, of.conj_b)
        multiply(views[0], views[1], views[2], factors, self.run)
        done = driver.Event()
        done.record(self.run)
        for slot, _ in tiles:
            slot.used = done

    def _view(self, slot: _Slot, tile: _Array, turned: bool) -> View:
        items, rows, columns = tile.shape
        slow, fast = (columns, rows) if turned else (rows, columns)
        pitch = pitch_of(fast, self.dtype.itemsize)
        strides = (1, pitch) if turned else (pitch, 1)
        shape: tuple[int, ...] = (rows, columns)
        if items > 1:
            shape, strides = tile.shape, (0 if tile.strides[0] == 0 else slow * pitch, *strides)  # type: ignore[assignment]
        return View(slot.pointer, shape, strides, self.name, self.lane.ordinal, "numpy", None)

    def _fetch(self, slot: _Slot, tile: _Array) -> None:
        """Copy a finished tile of C into the result."""
        target = tile.swapaxes(1, 2) if self.turned[2] else tile
        size = self.dtype.itemsize
        slot.used.wait(self.down)
        travelling: deque[tuple[_Buffer, _Array, int]] = deque()
        pieces = pieces_of(target.shape, pitch_of(target.shape[2], size), _CHUNK_BYTES // size)
        for number, (items, rows, columns, start, elements) in enumerate(pieces):
            if len(travelling) == _BUFFERS:
                self._empty(*travelling.popleft())
            buffer = self.lane.to_host[number % _BUFFERS]
            driver.copy_to_host(buffer.pointer, slot.pointer + start * size, elements * size, self.down)
            buffer.event.record(self.down)
            travelling.append((buffer, target[items, rows, columns], elements))
        while travelling:
            self._empty(*travelling.popleft())

    def _empty(self, buffer: _Buffer, piece: _Array, elements: int) -> None:
        buffer.event.synchronize()
        _copy(self.lane, piece, _laid_out(buffer.array(elements, self.dtype), piece.shape))


def _laid_out(memory: _Array, shape: tuple[int, ...]) -> _Array:
    """Return a piece as it lies in a buffer: its rows a pitch apart."""
    items, rows, columns = shape
    return memory.reshape(items, rows, memory.size // (items * rows))[:, :, :columns]
