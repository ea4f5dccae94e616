"""The argument ``--seconds`` of the commands that measure.

Knows: which texts are a length of time. Does not know: what takes it. Called by ``bench`` and ``ladder``.
"""

from __future__ import annotations

import argparse

__all__ = ["seconds_argument"]


def seconds_argument(text: str) -> float:
    """Return seconds, at least 0; 0: as few samples as there may be.

    Raises:
        argparse.ArgumentTypeError: it is no such number.
    """
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number of at least 0; got {text!r}")
    return value
