"""OpenBLAS through cblas: the ``scipy-openblas64`` wheel, else the one inside SciPy's or NumPy's wheel.

Knows: where these wheels keep it and how they rename its functions. Does not know: how cblas is called.
Called by ``peers``.
"""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from .cblas import Cblas
from .peer import AbsentError, UnsupportedError

__all__ = ["OpenblasCblas", "load"]

_PREFIX = "scipy_"  # https://github.com/MacPython/openblas-libs: SYMBOLPREFIX=scipy_, SYMBOLSUFFIX=64_ with INTERFACE64


class OpenblasCblas:
    """The peer; ``suffix`` is that of its names, ``64_`` if its integers have 64 bits."""

    name = "openblas"

    def __init__(self, library: ctypes.CDLL, suffix: str, origin: str) -> None:
        self._library, self._suffix = library, suffix
        self._cblas = Cblas(library, _PREFIX, suffix, ctypes.c_int64 if suffix else ctypes.c_int)
        config = getattr(library, f"{_PREFIX}openblas_get_config{suffix}")
        config.restype = ctypes.c_char_p
        self.version = f"{config().decode().split()[1]} of {origin}"

    def set_threads(self, threads: int) -> None:
        """Set its own threads."""
        getattr(self._library, f"{_PREFIX}openblas_set_num_threads{self._suffix}")(ctypes.c_int(threads))

    def fresh(self, a: Any, b: Any) -> Callable[[], Any]:
        """Refuse: it writes into the array that it is given."""
        raise UnsupportedError("it only writes into an array that is given")

    def product(self, a: Any, b: Any, c: Any) -> Callable[[], object]:
        """Return the call.

        Raises:
            UnsupportedError: complex batches: 0.3.34 takes their strides as counts of reals, MKL as elements.
        """
        if c.ndim > 2 and c.dtype.kind == "c":
            raise UnsupportedError("its cblas_?gemm_batch_strided misreads the strides of complex matrices")
        return self._cblas.product(a, b, c)


def _candidates() -> Iterator[tuple[Path, str]]:
    """Yield libraries and where they are from, the best first."""
    for package, folder in (
        ("scipy_openblas64", "lib"), ("scipy", "../scipy.libs"), ("scipy", ".dylibs"), ("numpy", "../numpy.libs"),
        ("numpy", ".dylibs"),
    ):  # fmt: skip
        spec = importlib.util.find_spec(package)
        for root in (spec.submodule_search_locations or ()) if spec else ():
            for path in sorted(Path(root, folder).glob("*openblas*")):
                if path.suffix in (".so", ".dylib", ".dll"):
                    yield path, package


def load(most_threads: int) -> OpenblasCblas:
    """Return the peer.

    Raises:
        AbsentError: none of the wheels has it.
    """
    for path, origin in _candidates():
        library = ctypes.CDLL(str(path))
        for suffix in ("64_", ""):
            if hasattr(library, f"{_PREFIX}cblas_sgemm{suffix}"):
                return OpenblasCblas(library, suffix, origin)
    raise AbsentError("not installed: pip install scipy-openblas64")
