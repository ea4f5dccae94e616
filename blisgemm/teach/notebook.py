"""What a notebook needs beside the box: answers that are checked, and a picture where matplotlib is there.

Knows: how an exercise's answer is held against what the box computes. Does not know: any exercise. Called by the files
of ``bench/notebooks``.
"""

from __future__ import annotations

import math
from typing import Any

__all__ = ["check", "picture"]


def check(exercise: int, answer: Any, found: Any, mine: Any = None, *, within: float = 0.0) -> None:
    """Hold the answer of an exercise against what the box finds, and then the reader's own against both.

    Args:
        exercise: its number.
        answer: worked out by hand: a formula, written as Python.
        found: what was traced, simulated, counted or measured.
        mine: the reader's; ``None``: nothing was written.
        within: how far answer and found may differ, as a share of what was found; 0 asks for the very value.

    Raises:
        AssertionError: the answer is not what was found: then the notebook is wrong, not the reader.

    Example:
        >>> check(1, 2 * 8**3, 1024)
        exercise 1: 1,024. Checked.
        >>> check(2, 4.1, 4.0, mine=5, within=0.05)
        exercise 2: 4.1, found 4. Checked. You wrote 5: not yet.
        >>> check(3, "L2", "L3")
        Traceback (most recent call last):
        AssertionError: exercise 3: the answer is L2, but the box finds L3
    """
    if not _agree(answer, found, within):
        raise AssertionError(f"exercise {exercise}: the answer is {_said(answer)}, but the box finds {_said(found)}")
    text = f"exercise {exercise}: {_said(answer)}"
    if _said(found) != _said(answer):
        text += f", found {_said(found)}"
    text += ". Checked."
    if mine is not None:
        verdict = "right" if _agree(mine, answer, within) or _agree(mine, found, within) else "not yet"
        text += f" You wrote {_said(mine)}: {verdict}."
    print(text)  # noqa: T201 - it is for the page of the notebook


def _agree(x: Any, y: Any, within: float) -> bool:
    if not within:
        return bool(x == y)
    try:
        return bool(abs(x - y) <= within * abs(y))
    except TypeError:  # not a number
        return False


def _said(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return str(value)
    return f"{int(value):,}" if value == int(value) and abs(value) < 1 << 53 else f"{value:.4g}"


def picture(width: float = 7.0, height: float = 4.0) -> tuple[Any, Any] | None:
    """Return (figure, axes), or ``None`` where there is no matplotlib, after saying what to install.

    Args:
        width, height: in inches.
    """
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        print("(a picture needs matplotlib: pip install 'blisgemm[plot]'; the numbers say the same)")  # noqa: T201
        return None
    figure, axes = plt.subplots(figsize=(width, height), layout="constrained")
    return figure, axes
