"""The rules about memory: layouts, out, what must not change, what may overlap, what must be refused.

Knows: which calls show a store or a load at a wrong place. Does not know: how calls are judged (``rules``). Called by
``battery``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from .cases import GemmCase
from .layouts import INPUT_LAYOUTS, OUTPUT_LAYOUTS, lay_out, surroundings
from .report import Failure
from .rules import MOST, Rule, Setting, Trials, judged, plain_case, rule
from .subject import Subject
from .values import draw_integers

__all__ = ["MEMORY_RULES"]

Array = np.ndarray[Any, Any]

MEMORY_RULES: list[Rule] = []


@rule("layouts", "how A, B and C lie in memory changes nothing", to=MEMORY_RULES)
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


@rule("out", "out in any layout gets the result; nothing beside it is written", "out", to=MEMORY_RULES)
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


@rule("inputs", "A and B stay as they are, and C unless it is the result", to=MEMORY_RULES)
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


@rule("overlap", "out may be, or overlap, an input", "out", to=MEMORY_RULES)
def _overlap(subject: Subject, setting: Setting) -> Trials:
    with_c = subject.takes("c", "beta")
    for dtype in setting.dtypes:
        rng = setting.rng("overlap", dtype)
        for n in (max(setting.tiles) + 1, 6):
            base = draw_integers(rng, (2 * n, n), dtype, k=n, most=MOST)
            other = draw_integers(rng, (n, n), dtype, k=n, most=MOST)
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


@rule("refuses", "shapes that don't fit are an error", to=MEMORY_RULES)
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
