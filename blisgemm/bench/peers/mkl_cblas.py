"""Intel MKL from the ``mkl`` wheel, through cblas.

Knows: where the wheel puts its library and how its threads are set. Does not know: how cblas is called.
Called by ``peers``. MKL reads its variables when it is loaded (``environment``).
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .cblas import Cblas
from .peer import AbsentError, UnsupportedError

__all__ = ["MklCblas", "load"]


class MklCblas:
    """The peer."""

    name = "mkl"

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._cblas = Cblas(library, "", "", ctypes.c_int)
        text = ctypes.create_string_buffer(200)
        library.mkl_get_version_string(text, ctypes.c_int(len(text)))
        found = re.search(r"Version ([\d.]+)", text.value.decode())
        self.version = found[1] if found else "of unknown version"

    def set_threads(self, threads: int) -> None:
        """Set its own threads."""
        self._library.MKL_Set_Num_Threads(ctypes.c_int(threads))

    def fresh(self, a: Any, b: Any) -> Callable[[], Any]:
        """Refuse: it writes into the array that it is given."""
        raise UnsupportedError("it only writes into an array that is given")

    def product(self, a: Any, b: Any, c: Any) -> Callable[[], object]:
        """Return the call."""
        return self._cblas.product(a, b, c)


def load(most_threads: int) -> MklCblas:
    """Return the peer.

    Raises:
        AbsentError: the wheel isn't installed.
    """
    os.environ.setdefault("MKL_THREADING_LAYER", "SEQUENTIAL" if most_threads == 1 else "INTEL")
    places = (Path(sys.prefix, "lib"), Path(sys.prefix, "Library", "bin"))
    for path in sorted(x for place in places for x in [*place.glob("libmkl_rt.so*"), *place.glob("mkl_rt*.dll")]):
        # for all to see: it loads its kernels itself, and they need its names
        return MklCblas(ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL))
    raise AbsentError("not installed: pip install mkl")
