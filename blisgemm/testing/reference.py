"""What a product must be: exactly, by integers, or within a bound on rounding.

Knows: the formula ``alpha * op(A) op(B) + beta * C`` and Higham's bound. Does not know: any library's product; what
multiplies here is NumPy on integers and on wider floats, or ``math.fsum``. Called by ``cases`` and ``assertions``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import BlisgemmTypeError, BlisgemmValueError
from .values import denominator, dtype_of

__all__ = ["PartBound", "bounds", "check_product", "exact_product", "op", "result_dtype"]

Array = np.ndarray[Any, Any]

_SPARE = 512  # a reference is wide enough if its roundoff is that much smaller than the dtype's
_SPLITTER = 2.0**27 + 1  # Veltkamp's, of 53 bits


def op(x: Array, trans: Any, name: str = "trans") -> Array:
    """Return op(x) of gemm: x, its transpose (True, 'T'), conjugate transpose ('C') or conjugate ('R').

    Raises:
        BlisgemmValueError: trans is none of these, nor False or 'N'.
    """
    if trans not in (False, True, "N", "T", "C", "R"):
        raise BlisgemmValueError(f"{name}: expected False, True, 'N', 'T', 'C' or 'R'; got {trans!r}")
    if x.ndim < 2 and trans in (True, "T", "C"):
        raise BlisgemmValueError(f"{name}: expected a matrix to transpose; got {x.ndim} dimensions")
    if trans in ("C", "R"):
        x = x.conj()
    return x.swapaxes(-1, -2) if trans in (True, "T", "C") else x


def check_product(a: Array, b: Array, c: Array | None, beta: complex) -> None:
    """Check that ``alpha * a @ b + beta * c`` has a meaning.

    Raises:
        BlisgemmValueError: shapes don't fit, or there is no c although beta isn't 0.
    """
    if min(a.ndim, b.ndim) < 1 or a.shape[-1] != b.shape[-2 if b.ndim > 1 else 0]:
        raise BlisgemmValueError(f"a, b: expected m x k and k x n; got {list(a.shape)} and {list(b.shape)}")
    if beta == 0:
        return
    if c is None:
        raise BlisgemmValueError(f"c: expected an array, as beta = {beta}; got None")
    if a.ndim == b.ndim == 2 and c.shape not in ((), (a.shape[0], b.shape[1])):
        raise BlisgemmValueError(f"c: expected {a.shape[0]} x {b.shape[1]}; got {list(c.shape)}")


def result_dtype(*arrays: Array) -> np.dtype[Any]:
    """Return NumPy's promotion, in native byte order."""
    return np.result_type(*arrays).newbyteorder("=")


def exact_product(a: Array, b: Array, c: Array | None = None, alpha: complex = 1, beta: complex = 0) -> Array:
    """Return ``alpha * a @ b + beta * c`` of integer values, by 64-bit integers: no BLAS, no rounding.

    Args:
        a, b: op(a) and op(b), also stacks of matrices; values are integers.
        c: read only if beta isn't 0.
        alpha, beta: multiples of a small power of two.

    Returns:
        The product in the promoted dtype of a and b.

    Raises:
        BlisgemmValueError: shapes don't fit, a value is no integer, or the sums could pass 62 bits.

    Example:
        >>> exact_product(np.array([[2.0, 3.0]]), np.array([[10.0], [1.0]]), np.array([[1.0]]), 0.5, -1)
        array([[10.5]])
    """
    a, b, c = np.asarray(a), np.asarray(b), None if c is None else np.asarray(c)
    check_product(a, b, c, beta)
    dtype = result_dtype(a, b)
    if alpha == 0:  # neither is read
        a, b = np.zeros_like(a), np.zeros_like(b)
    reads_c = c is not None and beta != 0
    unit = max(denominator(alpha), denominator(beta) if reads_c else 1)
    (ar, ai), (br, bi) = _integers(a, "a"), _integers(b, "b")
    (fr, fi), (gr, gi) = _scaled(alpha, unit), _scaled(beta, unit)
    size = float(_most(ar, ai)) * _most(br, bi) * max(1, a.shape[-1]) * (abs(fr) + abs(fi) + 1) * 2
    if size + (0 if c is None or not reads_c else float(_most(*_integers(c, "c"))) * (abs(gr) + abs(gi)) * 2) >= 2**62:
        raise BlisgemmValueError(f"a, b: expected integers whose product fits 62 bits; got sums of up to {size:.3g}")
    re, im = ar @ br - ai @ bi, ar @ bi + ai @ br
    re, im = fr * re - fi * im, fr * im + fi * re
    if c is not None and reads_c:
        cr, ci = _integers(c, "c")
        re, im = re + gr * cr - gi * ci, im + gr * ci + gi * cr
    real = np.asarray(re / unit if unit > 1 else re)
    if dtype.kind != "c":
        return real.astype(dtype)
    out = np.empty(np.shape(re), dtype)
    out.real, out.imag = real, im / unit if unit > 1 else im
    return out


def _integers(x: Array, name: str) -> tuple[Array, Array]:
    x = np.asarray(x)
    parts = x.real.astype(np.int64), x.imag.astype(np.int64)
    if (parts[0] != x.real).any() or (parts[1] != x.imag).any():
        raise BlisgemmValueError(f"{name}: expected integer values; got others, such as {x[parts[0] != x.real][:1]}")
    return parts


def _most(*parts: Array) -> int:
    return int(max(np.abs(x).max(initial=1) for x in parts))


def _scaled(factor: complex, unit: int) -> tuple[int, int]:
    return int(complex(factor).real * unit), int(complex(factor).imag * unit)


# ---- the bound ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class PartBound:
    """One part of a product: what it is, and how far rounding may take it.

    Args:
        name: ``""``, or which part of complex numbers.
        product: R, in a wider dtype.
        bracket: ``|alpha| |A| |B| + |beta| |C|`` of that part.
        roundings: how many roundings a term meets at most.
        allowed: ``roundings`` unit roundoffs times the bracket (as Higham's gamma), and what underflow may add.
    """

    name: str
    product: Array
    bracket: Array
    roundings: int
    allowed: Array


def bounds(
    a: Array, b: Array, c: Array | None, alpha: complex, beta: complex, dtype: Any, roundings: int | None = None
) -> tuple[PartBound, ...]:
    """Return the true product and the bound on its error: one part, or two for complex numbers.

    Real: a term is rounded once as a product, up to k - 1 times in sums, by alpha, and in the sum with beta c:
    k + 2. Complex: a part is a sum of 2 k products, and alpha's two parts meet in one more sum: 2 k + 3.

    Args:
        a, b: op(a) and op(b). c: read only if beta isn't 0.
        alpha, beta: factors, taken as rounded to dtype.
        dtype: of the sums, whose unit roundoff counts.
        roundings: another number of roundings, such as k + 5 for complex sums in four chains.

    Source: Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., sections 3.1 (gamma), 3.5, 3.6.
    """
    dtype = dtype_of(dtype)
    if dtype.kind not in "fc" or np.finfo(dtype).nmant > np.finfo(np.float64).nmant:
        raise BlisgemmTypeError(f"dtype: expected floats or complex numbers, which round, up to 64 bits; got {dtype}")
    check_product(a, b, c, beta)
    if alpha == 0:  # neither is read
        a, b = np.zeros_like(a), np.zeros_like(b)
    complex_, k = dtype.kind == "c", a.shape[-1]
    n = roundings if roundings is not None else 2 * k + 3 if complex_ else k + 2
    facts = np.finfo(dtype)
    u = float(facts.eps) / 2
    gamma = n * u / (1 - n * u)
    if beta == 0 or c is None:
        c, beta = np.zeros((), dtype), 0
    (fr, fi), (gr, gi) = (_parts(np.asarray(f).astype(dtype), dtype) for f in (alpha, beta))
    (ar, ai), (br, bi), (cr, ci) = (_parts(x, dtype) for x in (a, b, c))
    times = _wide_product(dtype)
    found = []
    if complex_:
        sr, si = times(ar, br) - times(ai, bi), times(ar, bi) + times(ai, br)
        tr, ti = (abs(ar) @ abs(br) + abs(ai) @ abs(bi)), (abs(ar) @ abs(bi) + abs(ai) @ abs(br))
        re = fr * sr - fi * si + gr * cr - gi * ci, abs(fr) * tr + abs(fi) * ti + abs(gr * cr) + abs(gi * ci)
        im = fr * si + fi * sr + gr * ci + gi * cr, abs(fr) * ti + abs(fi) * tr + abs(gr * ci) + abs(gi * cr)
        found = [("the real part", *re), ("the imaginary part", *im)]
    else:
        found = [("", fr * times(ar, br) + gr * cr, abs(fr) * (abs(ar) @ abs(br)) + abs(gr * cr))]
    underflow = n * float(facts.smallest_subnormal) * (1 + float(abs(complex(alpha))))
    return tuple(PartBound(name, R, bracket, n, gamma * bracket + underflow) for name, R, bracket in found)


def _wide(dtype: np.dtype[Any]) -> np.dtype[Any]:
    single = np.finfo(dtype).bits <= 32
    return np.dtype(np.float64 if single else np.longdouble)


def _parts(x: Array, dtype: np.dtype[Any]) -> tuple[Array, Array]:
    x = np.asarray(x)
    return x.real.astype(_wide(dtype)), x.imag.astype(_wide(dtype))


def _wide_product(dtype: np.dtype[Any]) -> Any:
    """Return what multiplies: NumPy in a wider dtype, or ``exact_dots`` where longdouble is no wider."""
    if np.finfo(_wide(dtype)).eps <= np.finfo(dtype).eps / _SPARE:
        return np.matmul
    return exact_dots


def exact_dots(a: Array, b: Array) -> Array:
    """Return a @ b of float64 with every element rounded once.

    A product of two floats is the sum of two (Dekker; Veltkamp's splitting), and ``math.fsum`` adds without rounding.
    Where a product passes 2**996 or its low half underflows that does not hold.

    Source: Dekker, Numer. Math. 18 (1971); Shewchuk (1997), as in CPython's ``math.fsum``.

    Example:
        >>> exact_dots(np.array([[2.0**53, 1.0, -(2.0**53)]]), np.ones((3, 1)))
        array([[1.]])
    """
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    out = np.zeros((a.shape[0], b.shape[1]))
    high_a, high_b = _high(a), _high(b)
    low_a, low_b = a - high_a, b - high_b
    for i, j in np.ndindex(out.shape):
        product = a[i] * b[:, j]
        rest = (high_a[i] * high_b[:, j] - product) + high_a[i] * low_b[:, j] + low_a[i] * high_b[:, j]
        out[i, j] = math.fsum([*product, *(rest + low_a[i] * low_b[:, j])])
    return out


def _high(x: Array) -> Array:
    scaled = _SPLITTER * x
    return np.asarray(scaled - (scaled - x))
