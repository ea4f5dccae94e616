"""What a wrong product looks like, and which bug looks so.

Knows: the usual mistakes of a gemm, as other formulas on the same operands and as places in C. Does not know: who
multiplied. Called by ``assertions``.

A guess is only told where it holds: a formula must give every wrong element, a place must be that of all of them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from .cases import GemmCase
from .reference import op

__all__ = ["hint", "pattern"]

Array = np.ndarray[Any, Any]

_LARGEST_TILE = 128  # of the tiles whose multiples are looked for
_MOSTLY = 0.95  # a wrong sum may be right by chance
_MOST = 0.5  # of an edge whose wrong values are right by chance here and there
_FEW = 16  # the longest tail of k that is looked for: vectors and unrolled steps are no longer


def hint(got: Array, expected: Array, wrong: Array, case: GemmCase | None) -> str:
    """Return what the mistake looks like, or an empty string.

    Args:
        got, expected: results of one shape.
        wrong: where they differ.
        case: the operands, if they are known.
    """
    if case is not None and got.ndim == 2:
        for text, formula in _formulas(case, expected):
            if formula.shape == got.shape and _agree(got, formula, wrong):
                return text
    return _place(got, expected, wrong) if got.ndim >= 2 else ""


def pattern(found: Sequence[tuple[tuple[int, int, int], bool]]) -> str:
    """Return which shapes (m, n, k) fail, if one sentence tells all of them from the others; or nothing.

    Example:
        >>> pattern([((m, 5, 3), m % 8 != 0) for m in range(1, 40)])
        'fails exactly where m is no multiple of 8: '
        >>> pattern([((3, 5, k), k > 64) for k in range(1, 100)])
        'fails exactly where k > 64: '
    """
    failing = [shape for shape, fails in found if fails]
    right = [shape for shape, fails in found if not fails]
    if not failing or not right:
        return ""
    for place, name in enumerate("mnk"):
        least, most = min(x[place] for x in failing), max(x[place] for x in failing)
        tests: list[tuple[str, Callable[[int], bool]]] = [
            (f"{name} is no multiple of {t}", partial(_is_no_multiple, t)) for t in range(2, _LARGEST_TILE + 1)
        ]
        below = max((x[place] for x in right if x[place] < least), default=None)
        above = min((x[place] for x in right if x[place] > most), default=None)
        tests += [] if below is None else [(f"{name} > {below}", partial(operator.le, least))]
        tests += [] if above is None else [(f"{name} < {above}", partial(operator.ge, most))]
        for text, holds in tests:
            meant = sum(1 for x in right if holds(x[place]))
            if all(holds(x[place]) for x in failing) and meant <= (1 - _MOSTLY) * (len(failing) + meant):
                return f"fails exactly where {text}: "
    return ""


def _is_no_multiple(tile: int, extent: int) -> bool:
    return extent % tile != 0


def _agree(got: Array, formula: Array, wrong: Array) -> bool:
    """Whether a formula gives every wrong element: the right ones may be of a part of C that went right."""
    x, y = got[wrong], formula[wrong]
    return bool(np.all((x == y) | (np.isnan(x) & np.isnan(y))))


def _formulas(case: GemmCase, expected: Array) -> Iterator[tuple[str, Array]]:
    """Yield what C would be with one mistake, the likeliest first."""
    a, b, c, alpha, beta = case.op_a, case.op_b, case.c, case.alpha, case.beta
    k = a.shape[-1]
    with np.errstate(all="ignore"):
        product = a @ b

        def gemm(sums: Array, plus: Any = None) -> Array:
            old = beta * c if plus is None and c is not None and beta != 0 else 0 if plus is None else plus
            return np.asarray(alpha * sums + old)

        if alpha == 0:
            yield "A and B were read although alpha = 0 (0 * NaN is NaN)", gemm(0 * a @ b)
        if c is not None and beta == 0:
            if np.isfinite(c).all():
                yield "C was added although beta = 0", gemm(product, c)
            else:
                yield "C was read although beta = 0 (0 * NaN is NaN)", gemm(product, 0 * c)
        if c is not None and beta != 0:
            yield "beta * C is missing", gemm(product, 0)
            yield "C was added without beta", gemm(product, c)
            if alpha != 0:
                yield "C was multiplied by alpha too", np.asarray(alpha * (product + beta * c))
            yield "beta was applied twice", gemm(product, beta * beta * c)
        if alpha not in (0, 1):
            yield "alpha is missing", np.asarray(product + (beta * c if c is not None and beta != 0 else 0))
        for t in range(1, min(k - 1, _FEW) + 1):
            terms = "term of k is" if t == 1 else f"{t} terms of k are"
            yield f"the last {terms} missing: the tail of the loop over k (k = {k})", gemm(a[:, :-t] @ b[:-t])
        for t in range(1, min(k - 1, _FEW) + 1):
            terms = "term of k is" if t == 1 else f"{t} terms of k are"
            yield f"the last {terms} counted twice (k = {k})", gemm(product + a[:, -t:] @ b[-t:])
        yield from _misread(case, gemm)
    yield "C came out transposed", expected.T


def _misread(case: GemmCase, gemm: Any) -> Iterator[tuple[str, Array]]:
    """Yield products of operands that were read in another way than they lie."""
    plain, turned = (case.a, case.b), (case.trans_a, case.trans_b)

    def product(a: Array, b: Array) -> Array | None:
        a, b = op(a, turned[0]), op(b, turned[1])
        return gemm(a @ b) if a.shape[-1] == b.shape[0] else None

    for which, names in (((0,), "A"), ((1,), "B"), ((0, 1), "A and B")):
        memory = [x.ravel(order="K").reshape(x.shape) if i in which else x for i, x in enumerate(plain)]
        order = "were read as if they lay" if len(which) == 2 else "was read as if it lay"
        found = product(*memory)
        if found is not None:
            yield f"{names} {order} by rows without gaps: strides are ignored", found
        ops = [False if i in which else trans for i, trans in enumerate(turned)]
        if ops != list(turned):
            a, b = (op(x, trans) for x, trans in zip(plain, ops, strict=True))
            if a.shape[-1] == b.shape[0]:
                yield f"op({names}) is ignored: it was multiplied as it lies", gemm(a @ b)
            no_conjugate = [
                op(x, {"C": "T", "R": False}.get(trans, trans) if i in which else trans)
                for i, (x, trans) in enumerate(zip(plain, turned, strict=True))
            ]
            yield f"{names} is not conjugated", gemm(no_conjugate[0] @ no_conjugate[1])


def _place(got: Array, expected: Array, wrong: Array) -> str:
    """Return what the places of the wrong elements say."""
    values, size = got[wrong], expected.shape[-2:]
    flat: Array = np.any(wrong.reshape(-1, *size), axis=0)
    rows, columns = (np.flatnonzero(np.any(flat, axis=axis)) for axis in (1, 0))
    if values.size and np.isnan(values).all() and not np.isnan(expected[wrong]).any():
        everywhere = "everywhere" if values.size == got.size else "there"
        return f"NaN {everywhere}, where none is due: something was read that is not part of the product"
    zeros = bool((values == 0).all())
    edge = _edge(flat, np.any((expected == 0).reshape(-1, *size), axis=0) if zeros else flat, size)
    if edge:
        return f"{edge} {'was not computed' if zeros else 'is wrong'}"
    if zeros:
        return "zeros where a product is due: these elements were not computed"
    for found, extent, name in ((rows, size[0], "row"), (columns, size[1], "column")):
        steps = np.unique(np.diff(found))
        if found.size > 1 and steps.size == 1 and steps[0] > 1 and found.size < extent:
            return f"one {name} in {steps[0]}, from {name} {found[0]} on: a place within the tile"
    return ""


def _edge(wrong: Array, blank: Array, size: tuple[int, int]) -> str:
    """Return which edge of C all wrong elements make up, or nothing; ``blank`` ones may be wrong without being seen."""
    (rows, columns), (m, n) = (np.flatnonzero(np.any(wrong, axis=axis)) for axis in (1, 0)), size
    if not rows.size:
        return ""
    i, j, covered = int(rows[0]), int(columns[0]), wrong | blank
    if j and covered[:, j:].all():
        return f"only the last {_many(n - j, 'column')} of {n}: the edge of the tiles in n"
    if i and covered[i:].all():
        return f"only the last {_many(m - i, 'row')} of {m}: the edge of the tiles in m"
    if i and j and covered[i:, j:].all():
        return f"only the corner of the last {m - i} x {n - j} elements: where both edges meet"
    if i and covered[i:].mean() > _MOST and not j:
        return f"only in the last {_many(m - i, 'row')} of {m}: the edge of the tiles in m"
    if j and covered[:, j:].mean() > _MOST and not i:
        return f"only in the last {_many(n - j, 'column')} of {n}: the edge of the tiles in n"
    return ""


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}" if count != 1 else what
