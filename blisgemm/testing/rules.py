"""The rules of a gemm, each judged by calls that only differ in what the rule is about.

Knows: which calls break on which bug. Does not know: how the function is called (``subject``) or how findings are told
(``report``). Called by ``battery``.

A rule other than ``exact`` judges only shapes whose plain product is right: a missing edge is one finding, not twelve.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .assertions import assert_exact, assert_within_bound
from .cases import GemmCase, covering, extents_around
from .hints import pattern
from .layouts import INPUT_LAYOUTS, OUTPUT_LAYOUTS, lay_out, surroundings
from .reference import exact_product
from .report import Failure
from .subject import Subject
from .values import draw_integers, draw_reals, subnormal

__all__ = ["GEMM_RULES", "Rule", "Setting", "judged", "plain_case", "rule"]

Array = np.ndarray[Any, Any]
Trials = Iterator["Failure | None"]

_MOST = 4  # of the integers of most rules: small numbers read well
_LARGEST_WHOLE = 96  # of the one shape without edges
_BAD = (math.nan, math.inf, -math.inf)
_TRANS = (False, "T", "C", "R")


@dataclass(frozen=True)
class Setting:
    """What a battery is run with: see ``check_gemm``."""

    dtypes: tuple[str, ...]
    tiles: tuple[int, ...]
    blocks: tuple[int, ...]
    layouts: tuple[str, ...]
    count: int
    seed: int

    def rng(self, *words: object) -> np.random.Generator:
        """Return random numbers that depend on the seed and the words only."""
        return np.random.default_rng([self.seed, *map(ord, repr(words))])

    def shapes(self, dtype: str, subject: Subject) -> list[tuple[int, int, int]]:
        """Return a few shapes with edges whose plain product is right, the smallest first."""
        t, least, whole = max(self.tiles), min(self.tiles), math.lcm(*self.tiles)
        whole = whole if whole <= _LARGEST_WHOLE else 2 * t
        found = [
            (1, 1, 1), (2, 3, 4), (least, t, 3), (t + 1, 2 * t + 3, 2 * least + 1), (2 * t + 1, t + 3, t), (whole,) * 3,
        ]  # fmt: skip
        return [shape for shape in found if self.is_plain(subject, shape, dtype)]

    def is_plain(self, subject: Subject, shape: tuple[int, int, int], dtype: str) -> bool:
        """Whether the plain product of a shape is right: of numbers of both signs, and of positive ones."""
        case = plain_case(self.rng(shape), shape, dtype)
        positive = replace(case, a=case.a + (_MOST + 1), b=case.b + (_MOST + 1))
        return judged(subject, case) is None and judged(subject, positive) is None


@dataclass(frozen=True)
class Rule:
    """One rule: its name, what it says, which arguments it is about, and the calls that judge it."""

    name: str
    says: str
    needs: tuple[str, ...]
    trials: Callable[[Subject, Setting], Trials]


GEMM_RULES: list[Rule] = []


def rule(name: str, says: str, *needs: str, to: list[Rule] = GEMM_RULES) -> Callable[[Any], Any]:
    """Put a generator of trials into a list of rules."""

    def add(trials: Callable[[Subject, Setting], Trials]) -> Any:
        to.append(Rule(name, says, needs, trials))
        return trials

    return add


def judged(
    subject: Subject, case: GemmCase, out: Array | None = None, *, expected: Array | None = None, note: str = ""
) -> Failure | None:
    """Call the function on a case; return what is wrong with its result."""
    expected = case.expected if expected is None else expected
    told = replace(case, c=None if case.c is None else np.array(case.c), note=note or case.note)
    got = None
    try:
        got = subject.gemm(case, out)
        assert_exact(got, expected, told)
        if out is not None:
            assert_exact(out.astype(expected.dtype), expected, told)
    except AssertionError as error:
        telling = 0
        if got is not None and got.shape == expected.shape:
            telling = 2 if np.any((got == expected) & (expected != 0)) else int(np.any(got != 0))
        return Failure(str(told), str(error), telling)
    except Exception as error:
        return Failure(str(told), f"raised {type(error).__name__}: {error}")
    return None


def plain_case(
    rng: np.random.Generator,
    shape: Sequence[int],
    dtype: str,
    *,
    most: int | None = _MOST,
    c: bool = False,
    **words: Any,
) -> GemmCase:
    """Return a case of exact integers in C order."""
    m, n, k = shape
    factors = {name: words.get(name, value) for name, value in (("alpha", 1), ("beta", 0))}

    def integers(*extents: int) -> Array:
        return draw_integers(rng, extents, dtype, k=k, most=most, **factors)

    swap_a, swap_b = (words.get(f"trans_{name}") in ("T", "C", True) for name in "ab")
    a, b = integers(*((k, m) if swap_a else (m, k))), integers(*((n, k) if swap_b else (k, n)))
    return GemmCase(a, b, integers(m, n) if c else None, **words)


def _smallest_first(cases: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(cases, key=lambda case: case["m"] * case["n"] * case["k"])


# ---- values -------------------------------------------------------------------------------------


@rule("exact", "integers are exact at every edge of tiles and blocks")
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


@rule("every-bit", "sums keep every bit of the dtype")
def _every_bit(subject: Subject, setting: Setting) -> Trials:
    for dtype in setting.dtypes:
        for shape in setting.shapes(dtype, subject):
            yield judged(
                subject, plain_case(setting.rng("bits", dtype), shape, dtype, most=None, note="large integers")
            )


@rule("factors", "the result is alpha * A @ B + beta * C", "c", "alpha", "beta")
def _factors(subject: Subject, setting: Setting) -> Trials:
    for dtype in setting.dtypes:
        rng = setting.rng("factors", dtype)
        values: tuple[complex, ...] = (1, -1, 2, 0.5, -3)
        values = (*values, 1j, 2 - 1j) if np.dtype(dtype).kind == "c" else values
        for shape in setting.shapes(dtype, subject):
            for x in covering(rng, 2 * len(values), alpha=values, beta=(0, *values)):
                yield judged(subject, plain_case(rng, shape, dtype, c=True, **x))


@rule("transposes", "op(A) and op(B) are what trans_a and trans_b say", "trans_a", "trans_b")
def _transposes(subject: Subject, setting: Setting) -> Trials:
    for dtype in setting.dtypes:
        rng = setting.rng("trans", dtype)
        known = _TRANS if np.dtype(dtype).kind == "c" else _TRANS[:2]
        for shape in setting.shapes(dtype, subject):
            for trans_a in known:
                for trans_b in known:
                    yield judged(subject, plain_case(rng, shape, dtype, trans_a=trans_a, trans_b=trans_b))


@rule("bound", "real numbers come within the bound on rounding")
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


@rule("alpha-zero", "alpha = 0 reads neither A nor B, which may hold NaN", "alpha")
def _alpha_zero(subject: Subject, setting: Setting) -> Trials:
    for dtype in _floats(setting):
        rng = setting.rng("alpha", dtype)
        for shape in setting.shapes(dtype, subject):
            with_c = subject.takes("c", "beta")
            for beta in (0, 2) if with_c else (0,):
                for bad in _BAD:
                    case = plain_case(rng, shape, dtype, c=with_c, alpha=0, beta=beta, note=f"A and B hold {bad}")
                    expected = case.expected
                    case.a[...], case.b[...] = bad, bad
                    yield judged(subject, case, expected=expected)


@rule("beta-zero", "beta = 0 does not read C, which may hold NaN", "c", "beta")
def _beta_zero(subject: Subject, setting: Setting) -> Trials:
    for dtype in _floats(setting):
        rng = setting.rng("beta", dtype)
        for shape in setting.shapes(dtype, subject):
            for beta in (0, -0.0):
                for bad in _BAD:
                    case = plain_case(rng, shape, dtype, c=True, beta=beta, note=f"C holds {bad}")
                    assert case.c is not None
                    case.c[...] = bad
                    yield judged(subject, case)


@rule("k-zero", "without any term the result is beta * C, or zeros")
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


@rule("empty", "without rows or columns the result is empty, of its shape and dtype")
def _empty(subject: Subject, setting: Setting) -> Trials:
    for dtype in setting.dtypes:
        for shape in ((0, 3, 4), (3, 0, 4), (0, 0, 2), (0, 3, 0)):
            yield judged(subject, plain_case(setting.rng(shape), shape, dtype))


@rule("nan", "NaN and infinities come through, also times 0, and don't spread")
def _nan(subject: Subject, setting: Setting) -> Trials:
    for dtype in _floats(setting):
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


@rule("extremes", "subnormal numbers stay, and what is too large becomes infinite")
def _extremes(subject: Subject, setting: Setting) -> Trials:
    for dtype in (dtype for dtype in _floats(setting) if np.dtype(dtype).kind == "f"):
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


def _floats(setting: Setting) -> list[str]:
    return [dtype for dtype in setting.dtypes if np.dtype(dtype).kind in "fc"]


# ---- memory -------------------------------------------------------------------------------------


@rule("layouts", "how A, B and C lie in memory changes nothing")
def _layouts(subject: Subject, setting: Setting) -> Trials:
    inputs = [name for name in INPUT_LAYOUTS if name in setting.layouts]
    for dtype in setting.dtypes:
        rng = setting.rng("layouts", dtype)
        with_c = subject.takes("c", "beta")
        for shape in setting.shapes(dtype, subject):
            pairs = [*((x, "C") for x in inputs), *(("C", x) for x in inputs), *((x, x) for x in inputs)]
            for of_a, of_b in pairs:
                case = plain_case(rng, shape, dtype, c=with_c, beta=-1 if with_c else 0)
                of_c = str(rng.choice([x for x in inputs if x in OUTPUT_LAYOUTS] or ["C"]))
                c, of_c = (None, "none") if case.c is None else (lay_out(case.c, of_c), of_c)
                note = f"layouts: A {of_a}, B {of_b}{f', C {of_c}' * with_c}"
                case = replace(case, a=lay_out(case.a, of_a), b=lay_out(case.b, of_b), c=c, note=note)
                yield judged(subject, case)


@rule("out", "out in any layout gets the result; nothing beside it is written", "out")
def _out(subject: Subject, setting: Setting) -> Trials:
    for dtype in setting.dtypes:
        rng = setting.rng("out", dtype)
        bad = np.nan if np.dtype(dtype).kind in "fc" else 7
        for shape in setting.shapes(dtype, subject):
            for layout in (name for name in OUTPUT_LAYOUTS if name in setting.layouts):
                case = plain_case(rng, shape, dtype, note=f"out {layout}, holding {bad}")
                out = lay_out(np.full(shape[:2], bad, dtype), layout)
                around = surroundings(out)
                yield judged(subject, case, out) or _beside(case, surroundings(out) == around)


def _beside(case: GemmCase, clean: bool) -> Failure | None:
    return None if clean else Failure(str(case), "bytes beside out were written")


@rule("inputs", "A and B stay as they are, and C unless it is the result")
def _inputs(subject: Subject, setting: Setting) -> Trials:
    for dtype in setting.dtypes:
        rng = setting.rng("inputs", dtype)
        with_c = subject.takes("c", "beta")
        for shape in setting.shapes(dtype, subject):
            case = plain_case(rng, shape, dtype, c=with_c, beta=2 if with_c else 0)
            before = [None if x is None else x.copy() for x in (case.a, case.b, case.c)]
            try:
                got = subject.gemm(case)
            except Exception as error:
                yield Failure(str(case), f"raised {type(error).__name__}: {error}")
                continue
            changed = [
                name
                for name, x, old in zip("ABC", (case.a, case.b, case.c), before, strict=True)
                if x is not None
                and old is not None
                and not np.array_equal(x, old)
                and not (name == "C" and np.shares_memory(x, got))
            ]
            yield Failure(str(case), f"changed: {', '.join(changed)}") if changed else None


@rule("overlap", "out may be, or overlap, an input", "out")
def _overlap(subject: Subject, setting: Setting) -> Trials:
    with_c = subject.takes("c", "beta")
    for dtype in setting.dtypes:
        rng = setting.rng("overlap", dtype)
        for n in (max(setting.tiles) + 1, 6):
            base = draw_integers(rng, (2 * n, n), dtype, k=n, most=_MOST)
            other = draw_integers(rng, (n, n), dtype, k=n, most=_MOST)
            places = {
                "out is A": lambda x, y, n=n: (x[:n], y, None, x[:n]),
                "out is B": lambda x, y, n=n: (y, x[:n], None, x[:n]),
                "out is A and B": lambda x, y, n=n: (x[:n], x[:n], None, x[:n]),
                "out begins a row after A": lambda x, y, n=n: (x[:n], y, None, x[1 : n + 1]),
                "out is B transposed": lambda x, y, n=n: (y, x[:n], None, x[:n].T),
                "out is C": lambda x, y, n=n: (y, y, x[:n], x[:n]),
                "out is C backwards": lambda x, y, n=n: (y, y, x[:n], x[:n][::-1]),
            }
            for note, build in places.items():
                a, b, c, out = build(base.copy(), other)
                if c is None or with_c:
                    case = GemmCase(a, b, c, beta=0 if c is None else -1, note=note)
                    expected = case.expected
                    kept = replace(case, a=np.array(a), b=np.array(b))
                    failure = judged(subject, case, out, expected=expected)
                    yield failure and replace(failure, case=str(kept))


@rule("refuses", "shapes that don't fit are an error")
def _refuses(subject: Subject, setting: Setting) -> Trials:
    dtype = setting.dtypes[0]
    a, b = np.ones((3, 4), dtype), np.ones((5, 6), dtype)
    calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
        ("3x4 times 5x6", (a, b), {}), ("3x1 times 5x6: 1 is not repeated", (a[:, :1], b), {}),
    ]  # fmt: skip
    if subject.needs_c:
        calls = [(text, (*args, np.zeros((3, 6), dtype)), words) for text, args, words in calls]
    if subject.takes("out") and not subject.needs_c:
        calls += [("out of 3x5 for a result of 3x6", (a, b[:4]), {"out": np.zeros((3, 5), dtype)})]
    for text, args, words in calls:
        try:
            got = subject.call(*args, **words)
        except Exception:
            yield None
        else:
            yield Failure(text, f"expected an error, got an array of shape {got.shape}")
