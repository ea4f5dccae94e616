"""What a rule is, and the calls that all rules share.

Knows: how one call is judged, and on which shapes. Does not know: any rule (``value_rules``, ``memory_rules``,
``matmul_rules``), how the function is called (``subject``) or how findings are told (``report``). Called by these.

A rule other than ``exact`` judges only shapes whose plain product is right: a missing edge is one finding, not twelve.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .assertions import assert_exact
from .cases import GemmCase
from .report import Failure
from .subject import Subject
from .values import draw_integers

__all__ = ["MOST", "Rule", "Setting", "Trials", "judged", "plain_case", "rule"]

Array = np.ndarray[Any, Any]
Trials = Iterator["Failure | None"]

MOST = 4  # of the integers of most rules: small numbers read well
_LARGEST_WHOLE = 96  # of the one shape without edges


@dataclass(frozen=True)
class Setting:
    """What a battery is run with: see ``check_gemm``."""

    dtypes: tuple[str, ...]
    tiles: tuple[int, ...]
    blocks: tuple[int, ...]
    layouts: tuple[str, ...]
    count: int
    seed: int

    @property
    def floats(self) -> tuple[str, ...]:
        """The dtypes that have NaN."""
        return tuple(dtype for dtype in self.dtypes if np.dtype(dtype).kind in "fc")

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
        positive = replace(case, a=case.a + (MOST + 1), b=case.b + (MOST + 1))
        return judged(subject, case) is None and judged(subject, positive) is None


@dataclass(frozen=True)
class Rule:
    """One rule: its name, what it says, which arguments it is about, and the calls that judge it."""

    name: str
    says: str
    needs: tuple[str, ...]
    trials: Callable[[Subject, Setting], Trials]


def rule(name: str, says: str, *needs: str, to: list[Rule]) -> Callable[[Any], Any]:
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
    most: int | None = MOST,
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
