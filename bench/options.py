"""What the scripts beside it share: their options, and the environment that they measure in.

Knows: how a list of numbers or dtypes is written. Does not know: what is measured; that is ``blisgemm.bench``,
and this file puts the checkout's own before an installed one. Called by the scripts beside it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

SHORT_NAMES = {"f32": "float32", "f64": "float64", "c64": "complex64", "c128": "complex128"}


def set_environment(threads: int, arch: str | None = None) -> None:
    """Give every library the same number of threads and, with ``arch``, the same vector set.

    BLAS libraries read their variables when they are loaded, so the script starts again if they differ.
    """
    from blisgemm.bench import environment
    from blisgemm.errors import OverrideError

    try:
        environment.restart_with(environment.variables(threads, arch))
        from blisgemm.machine import current

        current()
    except OverrideError as error:
        raise SystemExit(f"--arch: {error}") from None


def positive_list(text: str) -> list[int]:
    """Parse ``256,512``: an argparse type.

    Raises:
        argparse.ArgumentTypeError: not integers of at least 1.
    """
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = [0]
    if min(numbers) < 1:
        raise argparse.ArgumentTypeError(f"expected integers >= 1 by commas; got {text!r}")
    return numbers


def positive_seconds(text: str) -> float:
    """Parse a time above 0, in seconds: an argparse type.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e6:
        raise argparse.ArgumentTypeError(f"expected seconds above 0; got {text!r}")
    return seconds


def dtype_list(text: str) -> list[str]:
    """Parse ``f32,c128`` into NumPy names: an argparse type.

    Raises:
        argparse.ArgumentTypeError: not of these.
    """
    unknown = [part for part in text.split(",") if part not in SHORT_NAMES]
    if unknown:
        raise argparse.ArgumentTypeError(f"expected {', '.join(SHORT_NAMES)} by commas; got {text!r}")
    return [SHORT_NAMES[part] for part in text.split(",")]
