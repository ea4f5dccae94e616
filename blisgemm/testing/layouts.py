"""Every awkward way in which a matrix can lie in memory: same values, other strides.

Knows: how to place values, and which bytes of a buffer belong to a view. Does not know: what a product is. Called
by the rules, the strategies and the project's own tests (``tests/support.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import BlisgemmTypeError, BlisgemmValueError

__all__ = ["CANARY", "INPUT_LAYOUTS", "OUTPUT_LAYOUTS", "VALUE_PRESERVING", "lay_out", "surroundings"]

Array = np.ndarray[Any, Any]

CANARY = 77  # fills the gaps: a small integer, so that it is seen in a sum when it is read


def _c(values: Array) -> Array:
    return np.array(values, order="C")


def _f(values: Array) -> Array:
    return np.array(values, order="F")


def _sliced(values: Array) -> Array:
    m, n = values.shape
    view = np.full((2 * m + 1, 3 * n + 2), CANARY, values.dtype)[1 : 2 * m : 2, 1 : 3 * n : 3]
    view[...] = values
    return view


def _columns(values: Array) -> Array:
    """Unit column stride with a leading dimension larger than n: the usual sub-matrix."""
    m, n = values.shape
    view = np.full((m + 2, n + 3), CANARY, values.dtype)[1 : m + 1, 1 : n + 1]
    view[...] = values
    return view


def _columns_f(values: Array) -> Array:
    return _columns(values.T).T


def _reversed(values: Array) -> Array:
    view = np.empty(values.shape, values.dtype)[::-1, ::-1]
    view[...] = values
    return view


def _reversed_rows(values: Array) -> Array:
    view = np.empty(values.shape, values.dtype)[::-1]
    view[...] = values
    return view


def _unaligned(values: Array) -> Array:
    view = np.empty(values.nbytes + 1, np.uint8)[1:].view(values.dtype).reshape(values.shape)
    view[...] = values
    return view


def _swapped(values: Array) -> Array:
    return values.astype(values.dtype.newbyteorder())


def _field(values: Array) -> Array:
    """A field of a packed record: strides that are no multiple of the itemsize."""
    record = np.dtype([("before", "S3"), ("x", values.dtype), ("after", "S2")])
    view = np.empty(values.shape, record)["x"]
    view[...] = values
    return view


def _zero_rows(values: Array) -> Array:
    return np.broadcast_to(values[:1].copy(), values.shape) if values.shape[0] else _c(values)


def _zero_columns(values: Array) -> Array:
    return np.broadcast_to(values[:, :1].copy(), values.shape) if values.shape[1] else _c(values)


_LAYOUTS: dict[str, Callable[[Array], Array]] = {
    "C": _c, "F": _f, "sliced": _sliced, "columns": _columns, "columns_F": _columns_f, "reversed": _reversed,
    "reversed_rows": _reversed_rows, "unaligned": _unaligned, "swapped": _swapped, "field": _field,
    "zero_rows": _zero_rows, "zero_columns": _zero_columns,
}  # fmt: skip
INPUT_LAYOUTS = tuple(_LAYOUTS)
OUTPUT_LAYOUTS = tuple(name for name in _LAYOUTS if not name.startswith("zero"))
VALUE_PRESERVING = OUTPUT_LAYOUTS


def lay_out(values: Array, layout: str) -> Array:
    """Return ``values`` (2-D) in the named layout, in memory of its own.

    Args:
        values: a matrix.
        layout: one of ``INPUT_LAYOUTS``: ``C``, ``F``; ``sliced`` (every second row, every third column), ``columns``
            and ``columns_F`` (a sub-matrix), ``reversed``, ``reversed_rows``; ``unaligned``, ``swapped`` (byte order),
            ``field`` (of a packed record). ``zero_rows`` and ``zero_columns`` have a stride of 0: they repeat the
            first row or column, so that the values are others, and can't be written.

    Raises:
        BlisgemmValueError: there is no such layout, or values is no matrix.

    Example:
        >>> lay_out(np.arange(6.0).reshape(2, 3), "reversed").strides
        (-24, -8)
    """
    if layout not in _LAYOUTS:
        raise BlisgemmValueError(f"layout: expected one of {', '.join(_LAYOUTS)}; got {layout!r}")
    values = np.asarray(values)
    if values.ndim != 2:
        raise BlisgemmValueError(f"values: expected a matrix; got {values.ndim} dimensions")
    return _LAYOUTS[layout](values)


def surroundings(view: Array) -> bytes:
    """Return every byte of the buffer behind ``view`` that doesn't belong to ``view``.

    Example:
        >>> out = lay_out(np.zeros((2, 2), np.uint8), "columns")
        >>> before = surroundings(out)
        >>> out[...] = 1
        >>> surroundings(out) == before
        True
        >>> out.base[0, 0] = 1  # a store beside the matrix
        >>> surroundings(out) == before
        False
    """
    if not isinstance(view, np.ndarray):
        raise BlisgemmTypeError(f"view: expected an ndarray; got {type(view).__name__}")
    root = view
    while isinstance(root.base, np.ndarray):
        root = root.base
    if root.size == 0 or view.size == 0:
        return b""
    buffer = (root if root.flags.c_contiguous else root.T).reshape(-1).view(np.uint8)
    start = view.__array_interface__["data"][0] - root.__array_interface__["data"][0]
    offsets = np.array([start])
    for extent, stride in zip(view.shape, view.strides, strict=True):
        offsets = (offsets[:, None] + np.arange(extent) * stride).reshape(-1)
    outside = np.ones(buffer.size, bool)
    for byte in range(view.itemsize):
        outside[offsets + byte] = False
    return buffer[outside].tobytes()
