"""Hypothesis strategies for matrix products: sizes at the edges, exact integers, awkward memory, special numbers.

Knows: Hypothesis. Does not know: how a result is judged (``assertions``). Called by property-based tests, the project's
own and others'; ``pip install 'blisgemm[testing]'`` brings what it needs.

Sizes, layouts and factors are drawn, and shrink to the smallest that still fails; the numbers of a matrix come from one
drawn seed. Drawn one by one they would shrink to a single 1 among zeros, but a run would have few and equal numbers.

Example:
    >>> from hypothesis import given, settings
    >>> from blisgemm.testing import assert_exact
    >>> from blisgemm.testing.strategies import gemm_cases
    >>> @settings(database=None, derandomize=True)
    ... @given(gemm_cases(["float64"], tiles=[8], factors=False, trans=[False]))
    ... def test_my_gemm(case):
    ...     c = np.zeros(case.shape[:2])
    ...     rows = case.shape[0] // 8 * 8  # eight rows a time, and the edge forgotten
    ...     c[:rows] = case.a[:rows] @ case.b
    ...     assert_exact(c, case.expected, case)
    >>> test_my_gemm()  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    AssertionError: 1 of 1 elements wrong, the first at (0, 0): expected ..., got 0.0
    ...
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import BlisgemmValueError
from .cases import TILES, GemmCase, extents_around
from .layouts import INPUT_LAYOUTS, OUTPUT_LAYOUTS, lay_out
from .values import draw_integers, draw_reals, special_numbers

try:
    from hypothesis import strategies as st
    from hypothesis.extra import numpy as hnp
except ImportError as error:
    raise ImportError(
        "blisgemm.testing.strategies needs the package hypothesis: pip install 'blisgemm[testing]'"
    ) from error

__all__ = [
    "KINDS", "exact_integers", "gemm_cases", "layouts", "matmul_operands", "matmul_shapes", "matrices", "scalars",
    "shapes", "special_values", "strided",
]  # fmt: skip

Array = np.ndarray[Any, Any]

KINDS = ("integers", "every bit", "reals", "special")
_DTYPES = ("float32", "float64", "complex64", "complex128")
_MOST = 4  # small integers read well
_FEW_SPECIAL = 4  # special numbers in a matrix: among too many every sum is NaN
_seeds = st.integers(0, 2**32 - 1)


def shapes(
    tiles: Sequence[int] = TILES, blocks: Sequence[int] = (64,), *, largest: int = 70, zero: bool = True
) -> st.SearchStrategy[tuple[int, int, int]]:
    """Draw (m, n, k): around tiles, m and n; around tiles and blocks, k; or any extent up to ``largest``.

    Args:
        tiles: sizes of micro-tiles, vectors or thread blocks: t - 1, t, t + 1, 2 t - 1, 2 t + 1 are drawn.
        blocks: of k, likewise.
        largest: of the other extents.
        zero: may an extent be 0.
    """
    least = 0 if zero else 1

    def extents(sizes: Sequence[int]) -> st.SearchStrategy[int]:
        return st.one_of(st.integers(least, largest), st.sampled_from(extents_around(sizes, zero=zero)))

    return st.tuples(extents(tiles), extents(tiles), extents((*tiles, *blocks)))


def matmul_shapes(
    max_dims: int = 2, max_side: int = 6, min_side: int = 0
) -> st.SearchStrategy[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Draw two shapes that ``numpy.matmul`` takes: vectors, matrices, and stacks of them that broadcast.

    Args:
        max_dims: leading dimensions at most.
        max_side, min_side: extents.
    """
    drawn = hnp.mutually_broadcastable_shapes(
        signature="(n?,k),(k,m?)->(n?,m?)", max_dims=max_dims, min_side=min_side, max_side=max_side
    )
    return drawn.map(lambda found: (found.input_shapes[0], found.input_shapes[1]))


@st.composite
def exact_integers(
    draw: Any, dtype: Any, shape: Sequence[int], *, k: int | None = None, most: int | None = _MOST, alpha: complex = 1,
    beta: complex = 0,
) -> Array:  # fmt: skip
    """Draw a matrix of integers whose products are exact in its dtype, in any order of summing.

    Args:
        dtype, shape: of the array.
        k: terms of a sum; default: the longer side.
        most: the largest integer; ``None``: the largest that can be exact (``largest_exact``).
        alpha, beta: factors of the product that it is for.
    """
    terms = max(shape, default=1) if k is None else k
    rng = np.random.default_rng(draw(_seeds))
    return draw_integers(rng, tuple(shape), dtype, k=terms, most=most, alpha=alpha, beta=beta)


@st.composite
def matrices(draw: Any, dtype: Any, shape: Sequence[int], kind: str = "integers", *, k: int | None = None) -> Array:
    """Draw a matrix of a kind.

    Args:
        dtype, shape: of the array.
        kind: ``integers``: small ones, exact; ``every bit``: as large as can be exact; ``reals``: of many magnitudes,
            for a bound; ``special``: reals with a few NaN, infinities, -0, subnormal and huge numbers.
        k: terms of a sum, for exact kinds; default: the longer side.
    """
    if kind not in KINDS:
        raise BlisgemmValueError(f"kind: expected one of {', '.join(KINDS)}; got {kind!r}")
    if kind in ("integers", "every bit"):
        return np.asarray(draw(exact_integers(dtype, shape, k=k, most=_MOST if kind == "integers" else None)))
    values = draw_reals(np.random.default_rng(draw(_seeds)), tuple(shape), dtype)
    if kind == "special" and values.size:
        for _ in range(draw(st.integers(1, _FEW_SPECIAL))):
            place = tuple(draw(st.integers(0, extent - 1)) for extent in shape)
            values[place] = draw(special_values(dtype))
    return values


def special_values(dtype: Any = "float64") -> st.SearchStrategy[float]:
    """Draw NaN, an infinity, -0, or the smallest, smallest normal or largest number of a dtype."""
    return st.sampled_from(special_numbers(dtype))


def scalars(dtype: Any = "float64", *, zero: bool = True) -> st.SearchStrategy[complex]:
    """Draw an alpha or beta whose products stay exact: small integers, halves, both zeros; complex ones too.

    Args:
        dtype: real or complex.
        zero: also 0 and -0.
    """
    real: tuple[complex, ...] = (1, -1, 2, -3, 0.5, -1.5)
    real = (*real, 1j, 2 - 1j, -0.5j) if np.dtype(dtype).kind == "c" else real
    return st.sampled_from((*real, 0, -0.0) if zero else real)


def layouts(*, output: bool = False) -> st.SearchStrategy[str]:
    """Draw the name of a layout for ``lay_out``.

    Args:
        output: only those that can be written and keep values: none with a stride of 0.
    """
    return st.sampled_from(OUTPUT_LAYOUTS if output else INPUT_LAYOUTS)


def strided(array: Array) -> st.SearchStrategy[Array]:
    """Draw a matrix with the same values in other memory: C, F, sliced, reversed, unaligned, byte-swapped, a field.

    Strides of 0 are among them where all rows, or all columns, are equal.
    """
    array = np.asarray(array)
    if array.ndim != 2:
        raise BlisgemmValueError(f"array: expected a matrix; got {array.ndim} dimensions")
    names = list(OUTPUT_LAYOUTS)
    names += ["zero_rows"] if np.array_equal(array, np.broadcast_to(array[:1], array.shape)) else []
    names += ["zero_columns"] if np.array_equal(array, np.broadcast_to(array[:, :1], array.shape)) else []
    return st.sampled_from(names).map(lambda name: lay_out(array, name))


@st.composite
def gemm_cases(
    draw: Any, dtypes: Sequence[Any] = _DTYPES, *, tiles: Sequence[int] = TILES, blocks: Sequence[int] = (64,),
    largest: int = 40, factors: bool = True, trans: Sequence[Any] = (False, "T", "C", "R"),
    layouts: Sequence[str] = INPUT_LAYOUTS, zero: bool = True, every_bit: bool = True,
) -> GemmCase:  # fmt: skip
    """Draw a ``GemmCase``: operands of exact integers, factors, and the exact result as ``case.expected``.

    ``f(case.a, case.b, case.c, **case.factors)`` calls a gemm that takes all of it.

    Args:
        dtypes: of the operands, both of one.
        tiles, blocks, largest, zero: as for ``shapes``.
        factors: with alpha, beta and c; otherwise 1, 0 and None.
        trans: for trans_a and trans_b.
        layouts: how operands lie, of ``INPUT_LAYOUTS``.
        every_bit: half of the cases have integers as large as can be exact.
    """
    dtype = np.dtype(draw(st.sampled_from([np.dtype(x) for x in dtypes])))
    m, n, k = draw(shapes(tiles, blocks, largest=largest, zero=zero))
    alpha, beta = (draw(scalars(dtype)), draw(scalars(dtype))) if factors else (1, 0)
    trans_a, trans_b = (draw(st.sampled_from(tuple(trans))) for _ in range(2))
    most = None if every_bit and draw(st.booleans()) else _MOST
    lies: list[str] = []

    def operand(rows: int, columns: int, swap: bool = False) -> Array:
        shape = (columns, rows) if swap else (rows, columns)
        values = draw(exact_integers(dtype, shape, k=k, most=most, alpha=alpha, beta=beta))
        lies.append(draw(st.sampled_from(tuple(layouts))))
        return lay_out(values, lies[-1])

    a, b = operand(m, k, trans_a in (True, "T", "C")), operand(k, n, trans_b in (True, "T", "C"))
    c = operand(m, n) if factors else None
    note = "layouts " + ", ".join(f"{name} {layout}" for name, layout in zip("ABC", lies, strict=False))
    return GemmCase(a, b, c, alpha, beta, trans_a, trans_b, note)


@st.composite
def matmul_operands(
    draw: Any, dtypes: Sequence[Any] = _DTYPES, *, max_dims: int = 2, max_side: int = 6, min_side: int = 0
) -> tuple[Array, Array]:
    """Draw two operands of exact integers that ``numpy.matmul`` takes: ``expected = a @ b`` is exact as well.

    Args:
        dtypes: each operand has one of them.
        max_dims, max_side, min_side: as for ``matmul_shapes``.
    """
    pair = draw(matmul_shapes(max_dims, max_side, min_side))
    of_each = [np.dtype(draw(st.sampled_from([np.dtype(x) for x in dtypes]))) for _ in pair]
    a, b = (draw(exact_integers(x, shape, k=max_side)) for x, shape in zip(of_each, pair, strict=True))
    return a, b
