"""What matrices of a test hold: integers whose sums are exact, numbers that round, values that are special.

Knows: how large integers may be so that no order of summing rounds. Does not know: products or layouts. Called by
the rules and the strategies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import BlisgemmTypeError, BlisgemmValueError

__all__ = ["draw_integers", "draw_reals", "dtype_of", "exact_limit", "largest_exact", "special_numbers", "subnormal"]

Array = np.ndarray[Any, Any]

# Products per part of one complex term: 2, or 4 where (re + im)(re + im) is formed (Karatsuba's trick, "3M").
_COMPLEX_TERMS = 4
_LARGEST_WORD = 2**53  # of integers in int64: what a reference in float64 holds too
_COMPLEX_PARTS = 2  # of a complex number times another: two products meet in each part


def dtype_of(dtype: Any, name: str = "dtype", kinds: str = "iufc") -> np.dtype[Any]:
    """Return a dtype of numbers.

    Raises:
        BlisgemmTypeError: it is none.
    """
    try:
        found = None if dtype is None else np.dtype(dtype)
    except TypeError:
        found = None
    if found is None or found.kind not in kinds:
        words = "floats, complex numbers or integers" if "i" in kinds else "floats or complex numbers"
        raise BlisgemmTypeError(f"{name}: expected {words}; got {dtype if found is not None else repr(dtype)}")
    return found


def exact_limit(dtype: Any) -> int:
    """Return the largest integer up to which a dtype holds every integer; of wide integers 2**53.

    Example:
        >>> exact_limit("float32") == 2**24, exact_limit("complex128") == 2**53, exact_limit("int8")
        (True, True, 127)
    """
    dtype = dtype_of(dtype)
    if dtype.kind in "fc":
        return int(2 ** (np.finfo(dtype).nmant + 1))
    return min(int(np.iinfo(dtype).max), _LARGEST_WORD)


def largest_exact(dtype: Any, k: int, alpha: complex = 1, beta: complex = 0) -> int:
    """Return how large the integers in A, B and C may be so that ``alpha * A @ B + beta * C`` rounds nowhere.

    With elements from -L to L every partial sum, in any order, fused or not, is an integer of at most
    ``|alpha| k L**2 + |beta| L`` (complex: 4 and 2 times these), and exact if that is at most ``exact_limit``. Where
    alpha or beta are multiples of 2**-s, sums are counted in units of 2**-s.

    Args:
        dtype: of the matrices and sums.
        k: terms of a sum.
        alpha, beta: factors, multiples of a small power of two.

    Returns:
        L, at least 1.

    Raises:
        BlisgemmValueError: even integers up to 1 could round.

    Source: IEEE 754: all integers up to 2**p are floats of p bits.

    Example:
        >>> largest_exact("float32", 512)
        181
        >>> 512 * 181**2 <= 2**24 < 512 * 182**2
        True
    """
    dtype = dtype_of(dtype)
    unit = max(denominator(alpha), denominator(beta))
    terms, parts = (_COMPLEX_TERMS, _COMPLEX_PARTS) if dtype.kind == "c" else (1, 1)
    square = terms * _size(alpha, 1) * unit * max(k, 1)
    linear = parts * _size(beta, 0) * unit
    limit = exact_limit(dtype)
    largest = int((-linear + math.sqrt(linear**2 + 4 * square * limit)) / (2 * square))
    while square * largest**2 + linear * largest > limit:  # the root was rounded
        largest -= 1
    if largest < 1:
        raise BlisgemmValueError(
            f"k: expected few enough terms for exact sums in {dtype}; got k={k}, alpha={alpha}, beta={beta}, "
            f"whose sums may pass {limit}"
        )
    return largest


def denominator(factor: complex) -> int:
    """Return the power of two that makes a factor an integer (of both parts)."""
    parts = (complex(factor).real, complex(factor).imag)
    if not all(map(math.isfinite, parts)):
        raise BlisgemmValueError(f"alpha, beta: expected finite factors of exact data; got {factor}")
    return max(part.as_integer_ratio()[1] for part in parts)


def _size(factor: complex, least: int) -> float:
    """Return the sum of the magnitudes of both parts."""
    return max(least, abs(complex(factor).real) + abs(complex(factor).imag))


def draw_integers(
    rng: np.random.Generator, shape: Sequence[int] | int, dtype: Any, *, k: int, most: int | None = None,
    alpha: complex = 1, beta: complex = 0,
) -> Array:  # fmt: skip
    """Draw integers of ``dtype`` whose products over ``k`` terms are exact in any order.

    Args:
        rng: where they come from.
        shape, dtype: of the array.
        k: terms of a sum.
        most: no integer is larger; ``None``: as large as can be exact, so that every bit of the sums counts.
        alpha, beta: factors of the product that it is for.
    """
    dtype = dtype_of(dtype)
    largest = largest_exact(dtype, k, alpha, beta)
    largest = largest if most is None else min(largest, most)
    least = 0 if dtype.kind == "u" else -largest
    values = rng.integers(least, largest + 1, shape)
    if dtype.kind != "c":
        return np.asarray(values, dtype)
    return np.asarray(values + 1j * rng.integers(least, largest + 1, shape), dtype)


def draw_reals(rng: np.random.Generator, shape: Sequence[int] | int, dtype: Any) -> Array:
    """Draw numbers of both signs over some 12 binary orders of magnitude, where rounding shows."""
    dtype = dtype_of(dtype)

    def one() -> Array:
        return np.asarray(rng.standard_normal(shape) * np.exp2(rng.integers(-6, 7, shape)))

    return np.asarray(one() + 1j * one() if dtype.kind == "c" else one(), dtype)


def subnormal(dtype: Any) -> float:
    """Return the smallest number above zero: what a processor set to flush subnormals makes 0."""
    return float(np.finfo(dtype).smallest_subnormal)


def special_numbers(dtype: Any) -> tuple[float, ...]:
    """Return NaN, both infinities, -0, the smallest number, the smallest normal one and the largest of both signs.

    Example:
        >>> len(special_numbers("float32"))
        8
    """
    facts = np.finfo(dtype_of(dtype, kinds="fc"))
    tiny, huge = float(facts.tiny), float(facts.max)
    return (math.nan, math.inf, -math.inf, -0.0, subnormal(dtype), tiny, huge, -huge)
