"""What the scripts beside it share: their options, and the environment that they measure in.

Knows: how a list of numbers or dtypes is written. Does not know: what is measured; that is ``blisgemm.bench``,
and this file puts the checkout's own before an installed one. Called by the scripts beside it.
"""

from __future__ import annotations

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

    environment.restart_with(environment.variables(threads, arch))


def positive_list(text: str) -> list[int]:
    """Parse ``256,512``: an argparse type."""
    return [int(part) for part in text.split(",")]


def dtype_list(text: str) -> list[str]:
    """Parse ``f32,c128`` into NumPy names: an argparse type."""
    return [SHORT_NAMES[part] for part in text.split(",")]
