"""What the scripts beside it share: their options, and the environment that they measure in.

Knows: how numbers, tiles and dtypes are written. Does not know: what is measured; that is ``blisgemm.bench``,
and this file puts the checkout's own before an installed one. Called by the scripts beside it.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from blisgemm.ukernel.spec import KernelSpec

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
        return [positive(part) for part in text.split(",")]
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(f"expected integers >= 1 by commas; got {text!r}") from None


def positive(text: str) -> int:
    """Parse an integer of at least 1: an argparse type.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected an integer >= 1; got {text!r}")
    return number


def tile_list(text: str) -> list[tuple[int, int]]:
    """Parse ``12x32,8x48`` into (mr, nr): an argparse type.

    Raises:
        argparse.ArgumentTypeError: not two integers of at least 1 each.
    """
    tiles = [re.fullmatch("([1-9][0-9]{0,3})x([1-9][0-9]{0,3})", part) for part in text.split(",")]
    found = [(int(tile[1]), int(tile[2])) for tile in tiles if tile]
    if len(found) < len(tiles):
        raise argparse.ArgumentTypeError(f"expected mr x nr by commas, e.g. 12x32,8x48; got {text!r}")
    return found


def kernels_of(kernel: KernelSpec, tiles: Sequence[tuple[int, int]] | None) -> list[KernelSpec]:
    """Return the kernels like this one with these tiles, or it alone without any.

    Raises:
        SystemExit: there can be no such kernel; the message says why.
    """
    from blisgemm.errors import BlisgemmValueError

    try:
        return [replace(kernel, mr=mr, nr=nr) for mr, nr in tiles] if tiles else [kernel]
    except BlisgemmValueError as error:
        raise SystemExit(f"--shapes: {error}") from None


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
