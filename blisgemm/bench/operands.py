"""The arrays of a case, in its layouts, once or as often as the caches need to forget them.

Knows: how a layout's name becomes strides. Does not know: values, libraries, time. Called by ``trial``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from .shapes import Case

__all__ = ["MOST_SETS", "Operands", "allocate", "lay_out"]

MOST_SETS = 4096  # of rotating operands: more would measure Python's list of them


@dataclass(frozen=True)
class Operands:
    """A, B and C as the product sees them: m x k, k x n and m x n, or 1-d, with leading batch extents."""

    a: np.ndarray
    b: np.ndarray
    c: np.ndarray


def lay_out(shape: tuple[int, ...], dtype: str, layout: str) -> np.ndarray:
    """Return zeros of this shape with the strides that the layout's name says, in the last two axes."""
    *batch, m, n = shape
    if layout in ("T", "F"):
        return np.zeros((*batch, n, m), dtype).swapaxes(-1, -2)
    if layout == "rows[::2]":
        return np.zeros((*batch, 2 * m, n), dtype)[..., ::2, :]
    if layout == "cols[::2]":
        return np.zeros((*batch, m, 2 * n), dtype)[..., ::2]
    if layout == "reversed":
        return np.zeros(shape, dtype)[..., ::-1, ::-1]
    if layout == "gaps":
        return np.zeros((*batch, 2 * m, 3 * n), dtype)[..., ::2, ::3]
    if layout == "8KiB":
        row = 8192 // np.dtype(dtype).itemsize
        return np.zeros((*batch, m, max(1, -(-n // row)) * row), dtype)[..., :n]
    return np.zeros(shape, dtype)


def one_set(case: Case, dtype: str) -> Operands:
    """Return the arrays of one product of the case."""
    a = lay_out((*(case.batch if case.a_batched else ()), case.m, case.k), dtype, case.a)
    b = lay_out((*(case.batch if case.b_batched else ()), case.k, case.n), dtype, case.b)
    c = lay_out((*case.batch, case.m, case.n), dtype, case.c)
    if case.vector == "Ax":
        b, c = b[:, 0], c[:, 0]
    elif case.vector == "xA":
        a, c = a[0], c[0]
    return Operands(a, b, c)


def allocate(case: Case, dtype: str, at_least_bytes: int = 0) -> list[Operands]:
    """Return sets of operands that together take ``at_least_bytes``: one set, or at most ``MOST_SETS``."""
    set_bytes = case.elements() * np.dtype(dtype).itemsize
    count = min(MOST_SETS, max(1, -(-at_least_bytes // set_bytes)))
    return [one_set(case, dtype) for _ in range(count)]
