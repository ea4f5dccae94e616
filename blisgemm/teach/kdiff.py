"""How the k loops of two kernels differ: counts side by side, and instructions with roles in place of registers.

Knows: what makes two instructions alike. Does not know: how registers are followed (``registers``) or loops counted
(``kstep``). Called by ``cli.asm``, notebooks and tests.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

from .kstep import KStep, needs, roles_in

__all__ = ["difference", "folded", "spelled_by_role", "table"]


def spelled_by_role(step: KStep) -> list[str]:
    """Return the instructions of one turn with roles in place of registers: alike where they do the same."""
    return [_by_role(step, line.strip().replace("\t", " ")) for line in step.loop.lines[1:]]


def _by_role(step: KStep, line: str) -> str:
    text = "".join(f"<{role}>" if role else word for word, role in roles_in(step, line))
    text = re.sub(r"-?\d*\([^)]*\)|\[[^\]]*\]!?", "memory", text)
    text = re.sub(r"#-?\d+|\$-?\d+", "number", re.sub(r"\.L\w+", "loop", text))
    text = re.sub(r"%[re]\w+|\b[xw]\d+\b", "pointer", text)
    return re.sub(r"<B>(.*)<A>", r"<A>\1<B>", text)  # factors may be exchanged


def difference(one: KStep, other: KStep) -> list[str]:
    """Return how two k loops differ, what repeats told once with its number.

    ``-``: only in the first, ``+``: only in the second.

    Example:
        >>> from blisgemm.teach.kstep import read_kernel
        >>> from blisgemm.ukernel import catalog
        >>> step = read_kernel(catalog.by_name("f32_6x16_avx2"))
        >>> any(line[0] in "-+" for line in difference(step, step))
        False
    """
    left, right = (folded(spelled_by_role(step)) for step in (one, other))
    lines: list[str] = []
    for kind, i, i_end, j, j_end in difflib.SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
        if kind == "equal":
            lines += [f"  {line}" for line in left[i:i_end]]
        else:
            lines += [f"- {line}" for line in left[i:i_end]] + [f"+ {line}" for line in right[j:j_end]]
    return lines


def folded(lines: Sequence[str]) -> list[str]:
    """Return lines with what repeats put into brackets, the shortest repeats first.

    Example:
        >>> folded(["load", "fma", "fma", "load", "fma", "fma", "jump"])
        ['2 x (load; 2 x fma)', 'jump']
    """
    found, length = list(lines), 1
    while 2 * length <= len(found):
        before, start = len(found), 0
        while start + 2 * length <= len(found):
            block, times = found[start : start + length], 1
            while found[start + times * length : start + (times + 1) * length] == block:
                times += 1
            if times > 1:
                text = "; ".join(block)
                found[start : start + times * length] = [f"{times} x {text}" if length == 1 else f"{times} x ({text})"]
            start += 1
        length = length + 1 if len(found) == before else 1  # what was folded may repeat
    return found


def table(steps: Sequence[KStep]) -> list[tuple[str, ...]]:
    """Return rows of counts per step, one column a kernel, and what they come to for each fma."""
    columns = [needs(step) for step in steps]
    rows: list[tuple[str, ...]] = [("per k step", *(step.title for step in steps))]
    names = list(dict.fromkeys(need.what for column in columns for need in column))
    for name in names:
        values = [next((need.counted for need in column if need.what == name), 0.0) for column in columns]
        rows.append((name, *(f"{value:.4g}" for value in values)))
    per_fma = [(step.loop.loads + step.loop.broadcasts) / max(1, step.loop.fmas) for step in steps]
    rows.append(("loads and broadcasts per fma", *(f"{value:.3f}" for value in per_fma)))
    rows.append(("flops per step", *(str(step.spec.flops_per_k) for step in steps)))
    rows.append(("steps per turn", *(str(step.loop.steps) for step in steps)))
    rows.append(("vector registers", *(f"{step.loop.registers} of {step.spec.isa.registers}" for step in steps)))
    return rows
