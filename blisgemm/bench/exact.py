"""Verification before anything is timed: small integers, whose products are exact in any order of summing.

Knows: how large the integers may be, and how a product is checked without another product. Does not know:
which library computed it. Called by ``trial`` and the scripts of ``bench/``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["WrongResultError", "fill_exact", "fill_normal", "first_wrong_row", "require_exact"]

_LARGEST = 1024  # of the check's weights: y = B w stays below 4 · k · 1024, exact in float64


class WrongResultError(Exception):
    """A product of small integers that isn't the exact one."""


def fill_exact(rng: np.random.Generator, *arrays: np.ndarray, k: int = 1) -> None:
    """Fill with integers whose products sum to below 2**24 over ``k`` terms: -4 to 4, or less for a long sum."""
    most = max((size for size in (4, 3, 2, 1) if 2 * size * size * k <= 1 << 24), default=1)
    for x in arrays:
        x[...] = rng.integers(-most, most + 1, x.shape)
        if x.dtype.kind == "c":
            x.imag = rng.integers(-most, most + 1, x.shape)


def fill_normal(rng: np.random.Generator, *arrays: np.ndarray) -> None:
    """Fill with normal deviates."""
    for x in arrays:
        x[...] = rng.standard_normal(x.shape)
        if x.dtype.kind == "c":
            x.imag = rng.standard_normal(x.shape)


def first_wrong_row(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> tuple[int, ...] | None:
    """Return the index of a row of c that isn't that of a @ b, or None; all hold small integers.

    Freivalds' check: c w = a (b w) for two vectors w of random integers from 1 to 1024, in exact float64, by
    einsum, which calls no BLAS. One wrong element in a row is always found, several with a chance of at least
    1 - 2**-20 per row. Source: Freivalds, IFIP Congress 1977.
    """
    wide: type = np.complex128 if c.dtype.kind == "c" else np.float64
    rng = np.random.default_rng(1)

    def times(x: np.ndarray, vector: np.ndarray) -> np.ndarray:
        return np.einsum("...ij,...j->...i", x, vector, dtype=wide, casting="unsafe")

    for _ in range(2):
        w: np.ndarray = np.asarray(rng.integers(1, _LARGEST + 1, c.shape[-1]), wide)
        wrong = np.argwhere(times(c, w) != times(a, times(b, w)))  # NaN differs from everything
        if len(wrong):
            return tuple(int(i) for i in wrong[0])
    return None


def require_exact(a: Any, b: Any, got: Any, what: str) -> None:
    """Raise WrongResultError unless ``got`` is a @ b; a and b come from ``fill_exact``. 1-d operands are vectors."""
    rows = a[None] if a.ndim == 1 else a
    columns = b[:, None] if b.ndim == 1 else b
    result = got[None] if a.ndim == 1 else got[:, None] if b.ndim == 1 else got
    row = first_wrong_row(rows, columns, result)
    if row is not None:
        raise WrongResultError(f"{what}: the product of small integers must be exact, and row {row} is wrong")
