"""Where an array lies in memory, whatever library made it.

Knows: pointer, shape, strides, dtype by name. Does not know: libraries, CUDA. Called by ``arrays``, which makes
views and hands this on, and by whatever plans and launches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["ITEM_BYTES", "View", "overlap"]

# The dtypes that have a name here; which of them a product takes is decided elsewhere.
ITEM_BYTES = {
    "bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8, "uint64": 8,
    "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8, "complex64": 8, "complex128": 16,
    "float8_e4m3fn": 1, "float8_e5m2": 1,
}  # fmt: skip


# Not frozen, though nobody writes to one: frozen ones take 1.5 µs to make instead of 0.4, and a product makes three.
@dataclass(slots=True, eq=False)
class View:
    """Where an array lies.

    Shapes: strides are in elements, any integer. ``device`` is -1 for host memory. ``stream`` is the stream
    that the array's data is ready on, if its library said so.
    """

    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    device: int
    kind: str  # torch, cupy, numba, dlpack or numpy
    owner: Any  # keeps the memory alive
    read_only: bool = False
    stream: int | None = None


def overlap(first: View, second: View) -> bool:
    """Return whether two arrays may share memory: whether the ranges from first to last byte meet."""
    if 0 in first.shape or 0 in second.shape:
        return False
    low, high = _bytes(first)
    other_low, other_high = _bytes(second)
    return low < other_high and other_low < high


def _bytes(view: View) -> tuple[int, int]:
    """Return the address of the first byte and the one past the last."""
    item_bytes = ITEM_BYTES[view.dtype]
    reach = [(extent - 1) * stride for extent, stride in zip(view.shape, view.strides, strict=True)]
    low = sum(r for r in reach if r < 0)
    high = sum(r for r in reach if r > 0) + 1
    return view.pointer + low * item_bytes, view.pointer + high * item_bytes
