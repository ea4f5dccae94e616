"""The whole battery on a function: every rule, one report.

Knows: which rules there are for a gemm and a matmul. Does not know: what they say. Called by tests, and by
``python -m blisgemm.testing``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from ..errors import BlisgemmTypeError, BlisgemmValueError
from ..parallel import check_threads
from .cases import TILES, check_sequence, extents_around
from .layouts import INPUT_LAYOUTS
from .matmul_rules import MATMUL_RULES
from .memory_rules import MEMORY_RULES
from .report import Report, RuleResult
from .rules import Rule, Setting
from .subject import Subject, make_subject
from .value_rules import VALUE_RULES
from .values import dtype_of, largest_exact

__all__ = ["check_gemm", "check_matmul"]

GEMM_RULES = [*VALUE_RULES, *MEMORY_RULES]
# kc of the libraries that BLIS and OpenBLAS configure lie between 128 and 640; a small one is quick.
_BLOCKS = (64, 256)


def check_gemm(
    function: Callable[..., Any], *, dtypes: Sequence[Any] = ("float32", "float64"),
    accepts: Collection[str] | None = None, tiles: Sequence[int] = TILES, blocks: Sequence[int] = _BLOCKS,
    layouts: Sequence[str] = INPUT_LAYOUTS, rules: Collection[str] | None = None, count: int = 120, seed: int = 0,
    name: str | None = None,
) -> Report:  # fmt: skip
    """Run every rule of a gemm on a function; return what it found.

    The function is called as ``function(a, b)``, or ``function(a, b, c, alpha=, beta=, trans_a=, trans_b=, out=)`` with
    those that it takes; rules about others are not asked. Wrap yours if its arguments are others. A result of None
    means that out, or c, was written.

    Args:
        function: the gemm.
        dtypes: what it multiplies.
        accepts: the arguments it takes beside a and b; default: read from its signature.
        tiles: sizes of its micro-tiles (mr, nr), vectors or thread blocks: shapes lie around them.
        blocks: sizes of its blocks in k.
        layouts: those that it promises to take, of ``INPUT_LAYOUTS``; the others are not tried.
        rules: only these.
        count: products of the rule ``exact`` for each dtype.
        seed: of the numbers. The battery is the same for the same seed.
        name: what the report calls the function.

    Raises:
        BlisgemmTypeError, BlisgemmValueError: an argument is not as above.

    Returns:
        A report; ``report.ok``, ``report.broken``, ``print(report)``, ``report.require()`` in a test.

    Example:
        >>> check_gemm(lambda a, b: a @ b, dtypes=["float64"]).ok
        True
        >>> def no_edge(a, b):  # multiplies rows by fours
        ...     c = np.zeros((len(a), b.shape[1]), a.dtype)
        ...     rows = len(a) // 4 * 4
        ...     c[:rows] = a[:rows] @ b
        ...     return c
        >>> check_gemm(no_edge, rules=["exact"]).broken
        ('exact',)
    """
    subject = make_subject(function, accepts, name)
    setting = _setting(dtypes, tiles, blocks, layouts, count, seed)
    return _run(subject, GEMM_RULES, setting, rules)


def check_matmul(
    function: Callable[..., Any], *, dtypes: Sequence[Any] = ("float32", "float64"),
    accepts: Collection[str] | None = None, tiles: Sequence[int] = TILES, blocks: Sequence[int] = _BLOCKS,
    layouts: Sequence[str] = INPUT_LAYOUTS, rules: Collection[str] | None = None, count: int = 120, seed: int = 0,
    name: str | None = None,
) -> Report:  # fmt: skip
    """Run every rule of a matmul on a function: those of ``check_gemm``, and vectors, stacks, promotion.

    Arguments as for ``check_gemm``; of ``accepts`` only ``out`` matters.

    Example:
        >>> check_matmul(np.matmul, accepts=["out"]).require().ok
        True
        >>> report = check_matmul(lambda a, b: np.dot(a, b), dtypes=["float64"], name="numpy.dot")
        >>> report.broken  # numpy.dot of stacks is another product
        ('stacks', 'refused')
    """
    subject = make_subject(function, accepts, name)
    subject = Subject(subject.function, subject.name, subject.accepts & {"out"})
    chosen = [rule for rule in GEMM_RULES if set(rule.needs) <= {"out"}] + MATMUL_RULES
    return _run(subject, chosen, _setting(dtypes, tiles, blocks, layouts, count, seed), rules)


def _setting(
    dtypes: Sequence[Any], tiles: Sequence[int], blocks: Sequence[int], layouts: Sequence[str], count: int, seed: int
) -> Setting:
    for words, what in ((dtypes, "dtypes"), (blocks, "blocks"), (layouts, "layouts")):
        check_sequence(words, what, "integers" if what == "blocks" else "names")
    unknown = sorted(set(layouts) - set(INPUT_LAYOUTS))
    if unknown:
        raise BlisgemmValueError(f"layouts: expected some of {', '.join(INPUT_LAYOUTS)}; got {', '.join(unknown)}")
    if not len(dtypes):
        raise BlisgemmValueError("dtypes: expected at least one; got none")
    if not isinstance(seed, (int, np.integer)) or seed < 0:
        raise BlisgemmValueError(f"seed: expected an integer of at least 0; got {seed!r}")
    extents_around(tiles)  # refuses what is no size
    deepest = max(extents_around((*tiles, *blocks)))
    names = tuple(_dtype_name(dtype, deepest) for dtype in dtypes)
    return Setting(names, tuple(tiles), tuple(blocks), tuple(layouts), check_threads(count, "count"), int(seed))


def _dtype_name(dtype: Any, k: int) -> str:
    """Return the name of a dtype for which there is a reference."""
    found = dtype_of(dtype, "dtypes")
    if found.kind in "fc" and np.finfo(found).nmant > np.finfo(np.float64).nmant:
        raise BlisgemmTypeError(f"dtypes: expected numbers that a wider dtype can judge; got {found}")
    try:
        largest_exact(found, k)
    except BlisgemmValueError:
        raise BlisgemmValueError(f"dtypes: expected some that hold sums of {k} terms exactly; got {found}") from None
    return found.name


def _run(subject: Subject, known: Sequence[Rule], setting: Setting, names: Collection[str] | None) -> Report:
    if names is not None and not check_sequence(names, "rules", "names"):
        raise BlisgemmValueError("rules: expected at least one, or None for all; got none")
    unknown = sorted(set(names or ()) - {rule.name for rule in known})
    if unknown:
        raise BlisgemmValueError(
            f"rules: expected some of {', '.join(rule.name for rule in known)}; got {', '.join(unknown)}"
        )
    chosen = [rule for rule in known if not names or rule.name in names]
    if all(_missing(subject, rule) for rule in chosen):
        lacks = "; ".join(f"{rule.name} needs {', '.join(_missing(subject, rule))}" for rule in chosen)
        raise BlisgemmValueError(f"rules: expected one that {subject.name} can be asked; {lacks}")
    return Report(subject.name, tuple(_judge(subject, rule, setting) for rule in chosen))


def _missing(subject: Subject, rule: Rule) -> list[str]:
    """Return the arguments that a rule is about and the function does not take."""
    return [word for word in rule.needs if not subject.takes(word)]


def _judge(subject: Subject, rule: Rule, setting: Setting) -> RuleResult:
    if missing := _missing(subject, rule):
        return RuleResult(rule.name, rule.says, 0, skipped=f"it takes no {', '.join(missing)}")
    found = list(rule.trials(subject, setting))
    if not found:
        return RuleResult(rule.name, rule.says, 0, skipped="no plain product is right, or no dtype is concerned")
    failures = sorted((failure for failure in found if failure), key=lambda failure: -failure.telling)
    return RuleResult(rule.name, rule.says, len(found), tuple(failures))
