"""Two assertions on a product: exactly right, or within the bound on rounding; their message says what went wrong.

Knows: how results are compared and told. Does not know: how they were computed. Called by tests, the project's own and
others', and by the rules.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import BlisgemmTypeError, BlisgemmValueError
from .cases import GemmCase
from .hints import hint
from .reference import bounds, op

__all__ = ["WorstError", "assert_exact", "assert_within_bound"]

Array = np.ndarray[Any, Any]


def assert_exact(got: Any, expected: Any, case: GemmCase | None = None) -> None:
    """Fail unless ``got`` has the shape, the dtype and every value of ``expected`` (NaN equals NaN).

    Byte order is no part of a dtype here, and -0 equals 0.

    Args:
        got: a result, anything that ``numpy.asarray`` takes.
        expected: the right one; of integer data ``exact_product`` or ``numpy.dot`` on int64 give it.
        case: the operands: hints can then be checked against them.

    Raises:
        AssertionError: with the first wrong element, how many are wrong, and what it looks like.
        BlisgemmTypeError, BlisgemmValueError: an argument is not as above.

    Example:
        >>> a, b = np.ones((5, 7)), np.ones((7, 4))
        >>> c = np.zeros((5, 4))
        >>> c[:4] = a[:4] @ b  # a kernel of four rows, without its edge
        >>> assert_exact(c, a @ b)
        Traceback (most recent call last):
        AssertionError: 4 of 20 elements wrong, the first at (4, 0): expected 7.0, got 0.0
        looks like: only the last row of 5: the edge of the tiles in m was not computed
        >>> assert_exact(a[:, :6] @ b[:6], a @ b, GemmCase(a, b))
        Traceback (most recent call last):
        AssertionError: 20 of 20 elements wrong, the first at (0, 0): expected 7.0, got 6.0
        looks like: the last term of k is missing: the tail of the loop over k (k = 7)
        case: float64, m n k = 5 4 7, alpha = 1, beta = 0
    """
    got, expected = _array(got, "got"), _array(expected, "expected")
    if case is not None and not isinstance(case, GemmCase):
        raise BlisgemmTypeError(f"case: expected a GemmCase or None; got {case!r}")
    where = "" if case is None else f"\ncase: {case}"
    if got.shape != expected.shape:
        raise AssertionError(f"expected shape {expected.shape}, got {got.shape}{where}")
    if got.dtype.newbyteorder("=") != expected.dtype.newbyteorder("="):
        raise AssertionError(f"expected dtype {expected.dtype}, got {got.dtype}{where}")
    wrong = ~((got == expected) | ((got != got) & (expected != expected)))
    if not np.any(wrong):
        return
    wrong = np.asarray(wrong)
    at = tuple(int(x) for x in np.argwhere(wrong)[0])
    text = f"{np.count_nonzero(wrong)} of {expected.size} elements wrong, the first at {at}: "
    text += f"expected {expected[at]}, got {got[at]}"
    looks = hint(got, expected, wrong, case)
    raise AssertionError(text + (f"\nlooks like: {looks}" if looks else "") + where)


def _array(x: Any, name: str) -> Array:
    try:
        return np.asarray(x)
    except ValueError as error:
        raise BlisgemmValueError(f"{name}: expected an array; got {type(x).__name__}: {error}") from None


def _check_number(value: Any, name: str) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise BlisgemmTypeError(f"{name}: expected a number; got {value!r}")
    if not 0 <= value < math.inf:
        raise BlisgemmValueError(f"{name}: expected a finite number of at least 0; got {value!r}")


@dataclass(frozen=True)
class WorstError:
    """The element whose error takes the largest share of its bound.

    Args:
        at: its index.
        error: ``|C - R|``.
        share: of the bound; at most ``factor`` of ``assert_within_bound``.
        roundoffs: in units of ``u (|alpha| |A| |B| + |beta| |C|)``; the BLAS testers fail a product at 16.
        roundings: how many of these units the bound has.
        part: ``""``, or which part of complex numbers.
    """

    at: tuple[int, ...]
    error: float
    share: float
    roundoffs: float
    roundings: int
    part: str

    def __str__(self) -> str:
        part = f" in {self.part}" if self.part else ""
        return (
            f"worst at {self.at}{part}: error {self.error:.3g} is {self.roundoffs:.3g} u (|alpha||A||B| + |beta||C|), "
            f"{self.share:.3g} of the bound of {self.roundings}"
        )


def assert_within_bound(
    got: Any, a: Any, b: Any, c: Any = None, alpha: complex = 1, beta: complex = 0, *, trans_a: Any = False,
    trans_b: Any = False, factor: float = 1, roundings: int | None = None, dtype: Any = None,
) -> WorstError:  # fmt: skip
    """Fail unless every element of ``got`` is as near the true product as k + 2 roundings leave it.

    The bound is elementwise, ``|C - R| <= (k + 2) u (|alpha| |A||B| + |beta| |C|)``; u is the unit roundoff and R the
    product in a wider dtype, or exact by ``math.fsum`` where there is none. Any order of summing keeps it, fused or
    not; a lost term, sums in a narrower dtype or Strassen's algorithm do not. Complex: 2 k + 3 roundings for each part.

    Args:
        got: the result.
        a, b, c, alpha, beta, trans_a, trans_b: the arguments of gemm.
        factor: times the bound, at least 0.
        roundings: in place of k + 2 or 2 k + 3, at least 0.
        dtype: of the sums; default: the result's.

    Returns:
        The worst element.

    Raises:
        AssertionError: with the first element beyond the bound, and the worst one.
        BlisgemmTypeError, BlisgemmValueError: an argument is not as above.

    Source: Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section 3.5.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> a, b = (rng.standard_normal(shape, np.float32) for shape in ((30, 50), (50, 40)))
        >>> assert_within_bound(a @ b, a, b).share < 0.1
        True
        >>> assert_within_bound((a.astype(np.float16) @ b.astype(np.float16)).astype(np.float32), a, b)
        Traceback (most recent call last):
        AssertionError: ... elements beyond the bound, the first at (0, 0): expected ...
    """
    got, c = _array(got, "got"), None if c is None else _array(c, "c")
    a, b = op(_array(a, "a"), trans_a, "trans_a"), op(_array(b, "b"), trans_b, "trans_b")
    _check_number(factor, "factor")
    _check_number(0 if roundings is None else roundings, "roundings")
    parts = bounds(a, b, c, alpha, beta, got.dtype if dtype is None else dtype, roundings)
    shape = parts[0].bracket.shape
    if got.shape != shape:
        raise AssertionError(f"expected shape {shape}, got {got.shape}")
    worst = WorstError((), 0.0, 0.0, 0.0, parts[0].roundings, "")
    beyond = np.zeros(shape, bool)
    for part, values in zip(parts, (got.real, got.imag), strict=False):
        with np.errstate(all="ignore"):
            same = (values == part.product) | (np.isnan(values) & np.isnan(part.product))
            error = np.where(same, 0, np.abs(values - part.product))
            share = np.where(error == 0, 0, error / part.allowed)
        share = np.where(np.isnan(share), np.inf, share)
        beyond |= share > factor
        if share.size and share.max() > worst.share:
            at = tuple(int(x) for x in np.unravel_index(int(share.argmax()), shape))
            most = float(share[at])
            worst = WorstError(at, float(error[at]), most, most * part.roundings, part.roundings, part.name)
    if beyond.any():
        at = tuple(int(x) for x in np.argwhere(beyond)[0])
        expected = parts[0].product[at] if len(parts) == 1 else parts[0].product[at] + 1j * parts[1].product[at]
        raise AssertionError(
            f"{np.count_nonzero(beyond)} of {got.size} elements beyond the bound, the first at {at}: "
            f"expected {expected}, got {got[at]}; {worst}"
        )
    return worst
