"""Gemms with one bug each, and a right one: what the tools say about them.

Knows: bugs that shipped in real libraries. Does not know: how they are found. Called by ``python -m blisgemm.testing``
without a name, and by the tests, which ask that each is caught by its very rule.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["BUGGY", "right"]

Array = np.ndarray[Any, Any]

_MR, _NR = 8, 16  # tiles of the examples
_UNROLL = 4


def right(a: Array, b: Array, c: Array | None = None, *, alpha: complex = 1, beta: complex = 0) -> Array:
    """Multiply with NumPy, keeping the zero rules."""
    dtype = np.result_type(a, b).newbyteorder("=")
    shape = (a.shape[0], b.shape[1])
    result = np.zeros(shape, dtype) if alpha == 0 and a.shape[1] == b.shape[0] else dtype.type(alpha) * (a @ b)
    if beta != 0 and c is not None:
        result = result + dtype.type(beta) * c
    return np.asarray(result, dtype)


def missing_edge(a: Array, b: Array) -> Array:
    """Compute whole tiles of C and forget the rows below them."""
    rows = a.shape[0] // _MR * _MR
    c = np.zeros((a.shape[0], b.shape[1]), np.result_type(a, b).newbyteorder("="))
    c[:rows] = right(a, b)[:rows]
    return c


def missing_columns(a: Array, b: Array) -> Array:
    """Compute whole vectors of C's rows and forget the columns beside them."""
    c = right(a, b)
    c[:, c.shape[1] // _NR * _NR :] = 0
    return c


def reads_c(a: Array, b: Array, c: Array | None = None, *, alpha: complex = 1, beta: complex = 0) -> Array:
    """Add ``beta * C`` also where beta is 0: NaN in a fresh buffer comes out."""
    result = right(a, b, alpha=alpha)
    return result if c is None else np.asarray(result + result.dtype.type(beta) * c, result.dtype)


def reads_ab(a: Array, b: Array, c: Array | None = None, *, alpha: complex = 1, beta: complex = 0) -> Array:
    """Multiply by alpha also where it is 0, as fast paths without an exit for it do."""
    old = right(a, b, c, alpha=0, beta=beta)
    return np.asarray(alpha * right(a, b) + old, old.dtype)


def short_k(a: Array, b: Array) -> Array:
    """Sum four terms a turn, and forget those that fill no turn."""
    k = a.shape[1] // _UNROLL * _UNROLL
    return right(a[:, :k], b[:k]) if a.shape[1] == b.shape[0] else right(a, b)


def flat_memory(a: Array, b: Array) -> Array:
    """Read B's buffer as rows, however B lies: right as long as nobody transposes."""
    return right(a, b.ravel(order="K").reshape(b.shape))


def skips_zeros(a: Array, b: Array) -> Array:
    """Skip terms with a zero of A, as the reference BLAS did: 0 * NaN gets lost."""
    c = right(a, np.where((a == 0).all(axis=0)[:, None], 0, b) if a.shape[1] == b.shape[0] else b)
    zero_rows = (a == 0).all(axis=1)
    c[zero_rows] = 0
    return c


def half_sums(a: Array, b: Array) -> Array:
    """Multiply in float16, as matrix units do unless told not to."""
    dtype = right(a[:0], b[:, :0]).dtype
    return right(a.astype(np.float16), b.astype(np.float16)).astype(dtype)


def into_gaps(a: Array, b: Array, out: Array | None = None) -> Array:
    """Store whole rows of out's buffer: right where out has no gaps."""
    c = right(a, b)
    if out is None:
        return c
    out[...] = c
    if isinstance(out.base, np.ndarray) and out.base.ndim == 2 and out.base.shape != out.shape:
        out.base[-1] = 0
    return out


# name: the function, the rule that must break, and words of the message
BUGGY: dict[str, tuple[Callable[..., Any], str, str]] = {
    "missing_edge": (missing_edge, "exact", "no multiple of 8"),
    "missing_columns": (missing_columns, "exact", "the edge of the tiles in n was not computed"),
    "reads_c": (reads_c, "beta-zero", "C was read although beta = 0"),
    "reads_ab": (reads_ab, "alpha-zero", "A and B were read although alpha = 0"),
    "short_k": (short_k, "exact", "terms of k are missing"),
    "flat_memory": (flat_memory, "layouts", "as if it lay by rows"),
    "skips_zeros": (skips_zeros, "nan", "was skipped"),
    "half_sums": (half_sums, "every-bit", "wrong"),
    "into_gaps": (into_gaps, "out", "beside out"),
}
