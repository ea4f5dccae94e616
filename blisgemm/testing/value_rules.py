"""The rules about what comes out: exact integers, the bound, zeros, NaN, numbers at the ends of a dtype.

Knows: which values show which bug. Does not know: how calls are judged (``rules``). Called by ``battery``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from .assertions import assert_exact, assert_within_bound
from .cases import GemmCase, covering, extents_around
from .hints import pattern
from .reference import exact_product
from .report import Failure
from .rules import Rule, Setting, Trials, judged, plain_case, rule
from .subject import Subject
from .values import draw_reals, subnormal

__all__ = ["VALUE_RULES"]

Array = np.ndarray[Any, Any]

VALUE_RULES: list[Rule] = []
_BAD = (math.nan, math.inf, -math.inf)
_TRANS = (False, "T", "C", "R")


def _smallest_first(cases: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(cases, key=lambda case: case["m"] * case["n"] * case["k"])


@rule("exact", "integers are exact at every edge of tiles and blocks", to=VALUE_RULES)
def _exact(subject: Subject, setting: Setting) -> Trials:
    around = extents_around(setting.tiles)
    deep = extents_around((*setting.tiles, *setting.blocks))
    for dtype in setting.dtypes:
        rng = setting.rng("exact", dtype)
        found = []
        for x in _smallest_first(covering(rng, setting.count, m=around, n=around, k=deep)):
            shape = (x["m"], x["n"], x["k"])
            found.append((shape, judged(subject, plain_case(rng, shape, dtype))))
        where = pattern([(shape, failure is not None) for shape, failure in found])
        for _, failure in found:
            yield failure and replace(failure, message=f"{where}{failure.message}")


@rule("every-bit", "sums keep every bit of the dtype", to=VALUE_RULES)
def _every_bit(subject: Subject, setting: Setting) -> Trials:
    for dtype in setting.dtypes:
        for shape in setting.shapes(dtype, subject):
            yield judged(
                subject, plain_case(setting.rng("bits", dtype), shape, dtype, most=None, note="large integers")
            )


@rule("factors", "the result is alpha * A @ B + beta * C", "c", "alpha", "beta", to=VALUE_RULES)
def _factors(subject: Subject, setting: Setting) -> Trials:
    for dtype in setting.dtypes:
        rng = setting.rng("factors", dtype)
        values: tuple[complex, ...] = (1, -1, 2, 0.5, -3)
        values = (*values, 1j, 2 - 1j) if np.dtype(dtype).kind == "c" else values
        for shape in setting.shapes(dtype, subject):
            for x in covering(rng, 2 * len(values), alpha=values, beta=(0, *values)):
                yield judged(subject, plain_case(rng, shape, dtype, c=True, **x))


@rule("transposes", "op(A) and op(B) are what trans_a and trans_b say", "trans_a", "trans_b", to=VALUE_RULES)
def _transposes(subject: Subject, setting: Setting) -> Trials:
    for dtype in setting.dtypes:
        rng = setting.rng("trans", dtype)
        known = _TRANS if np.dtype(dtype).kind == "c" else _TRANS[:2]
        for shape in setting.shapes(dtype, subject):
            for trans_a in known:
                for trans_b in known:
                    yield judged(subject, plain_case(rng, shape, dtype, trans_a=trans_a, trans_b=trans_b))


@rule("bound", "real numbers come within the bound on rounding", to=VALUE_RULES)
def _bound(subject: Subject, setting: Setting) -> Trials:
    for dtype in setting.dtypes:
        if np.dtype(dtype).kind not in "fc":
            continue
        rng = setting.rng("bound", dtype)
        long = (5, 7, 2 * max(setting.blocks, default=50) + 3)
        for m, n, k in (*setting.shapes(dtype, subject), *([long] if setting.is_plain(subject, long, dtype) else [])):
            a, b = draw_reals(rng, (m, k), dtype), draw_reals(rng, (k, n), dtype)
            case = f"{dtype}, m n k = {m} {n} {k}, real numbers"
            try:
                got = subject.gemm(GemmCase(a.copy(), b.copy()))
                assert_within_bound(got, a, b)
            except AssertionError as error:
                yield Failure(case, str(error))
            except Exception as error:
                yield Failure(case, f"raised {type(error).__name__}: {error}")
            else:
                yield None


# ---- zeros and special numbers ------------------------------------------------------------------


@rule("alpha-zero", "alpha = 0 reads neither A nor B, which may hold NaN", "alpha", to=VALUE_RULES)
def _alpha_zero(subject: Subject, setting: Setting) -> Trials:
    for dtype in setting.floats:
        rng = setting.rng("alpha", dtype)
        for shape in setting.shapes(dtype, subject):
            with_c = subject.takes("c", "beta")
            for beta in (0, 2) if with_c else (0,):
                for bad in _BAD:
                    case = plain_case(rng, shape, dtype, c=with_c, alpha=0, beta=beta, note=f"A and B hold {bad}")
                    expected = case.expected
                    case.a[...], case.b[...] = bad, bad
                    yield judged(subject, case, expected=expected)


@rule("beta-zero", "beta = 0 does not read C, which may hold NaN", "c", "beta", to=VALUE_RULES)
def _beta_zero(subject: Subject, setting: Setting) -> Trials:
    for dtype in setting.floats:
        rng = setting.rng("beta", dtype)
        for shape in setting.shapes(dtype, subject):
            for beta in (0, -0.0):
                for bad in _BAD:
                    case = plain_case(rng, shape, dtype, c=True, beta=beta, note=f"C holds {bad}")
                    assert case.c is not None
                    case.c[...] = bad
                    yield judged(subject, case)


@rule("k-zero", "without any term the result is beta * C, or zeros", to=VALUE_RULES)
def _k_zero(subject: Subject, setting: Setting) -> Trials:
    for dtype in setting.dtypes:
        rng = setting.rng("k", dtype)
        for m, n, _ in setting.shapes(dtype, subject):
            yield judged(subject, plain_case(rng, (m, n, 0), dtype))
            if subject.takes("c", "beta"):
                yield judged(subject, plain_case(rng, (m, n, 0), dtype, c=True, beta=-3))
            if subject.takes("out"):
                junk = np.full((m, n), np.nan if np.dtype(dtype).kind in "fc" else 7, dtype)
                yield judged(subject, plain_case(rng, (m, n, 0), dtype, note="out held junk"), junk)


@rule("empty", "without rows or columns the result is empty, of its shape and dtype", to=VALUE_RULES)
def _empty(subject: Subject, setting: Setting) -> Trials:
    for dtype in setting.dtypes:
        for shape in ((0, 3, 4), (3, 0, 4), (0, 0, 2), (0, 3, 0)):
            yield judged(subject, plain_case(setting.rng(shape), shape, dtype))


@rule("nan", "NaN and infinities come through, also times 0, and don't spread", to=VALUE_RULES)
def _nan(subject: Subject, setting: Setting) -> Trials:
    for dtype in setting.floats:
        rng = setting.rng("nan", dtype)
        for shape in setting.shapes(dtype, subject):
            for bad in _BAD:
                case = plain_case(
                    rng, shape, dtype, note=f"{bad} at a[0, -1] and b[-1, -1], zeros in the last row of A"
                )
                case.a[-1] = 0
                expected = exact_product(case.a, case.b)
                case.b[-1, -1], case.a[0, -1] = bad, bad
                yield _spread(subject, case, expected, bad)


def _spread(subject: Subject, case: GemmCase, clean: Array, bad: float) -> Failure | None:
    """Judge where a bad number has come through: in all of row 0 and the last column, and nowhere else."""
    try:
        got = subject.gemm(case)
        if got.shape[0] > 1 and not np.isnan(got[-1, -1]):
            return Failure(str(case), f"0 * {bad} was skipped: expected nan at the last element, got {got[-1, -1]}")
        for place, part in (("row 0", got[0]), ("the last column", got[:, -1])):
            if np.isfinite(part).any():
                return Failure(str(case), f"{bad} is missing in {place}: got {part}")
        assert_exact(got[1:, :-1], clean[1:, :-1])
    except AssertionError as error:
        return Failure(str(case), f"{bad} leaked into other rows or columns: {error}")
    except Exception as error:
        return Failure(str(case), f"raised {type(error).__name__}: {error}")
    return None


@rule("extremes", "subnormal numbers stay, and what is too large becomes infinite", to=VALUE_RULES)
def _extremes(subject: Subject, setting: Setting) -> Trials:
    for dtype in (dtype for dtype in setting.floats if np.dtype(dtype).kind == "f"):
        for m, n, k in setting.shapes(dtype, subject):
            tiny, huge = subnormal(dtype), float(np.finfo(dtype).max)
            for value, factor, expected in (
                (tiny, 1, tiny),
                (-tiny, 2, -2 * tiny),
                (huge, 1, huge),
                (huge, 2, math.inf),
            ):
                a, b = np.zeros((m, k), dtype), np.zeros((k, n), dtype)
                a[:, -1], b[-1] = value, factor
                case = GemmCase(a, b, note=f"the last column of A holds {value:.3g}, the last row of B {factor}")
                yield judged(subject, case, expected=np.full((m, n), expected, dtype))
