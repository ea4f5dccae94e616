"""BLIS from the ``blis`` wheel (cython-blis), which spaCy uses: ``blis.py.gemm``.

Knows: what that wheel can do: float32 and float64, C order, one thread. Does not know: what is measured.
Called by ``peers``.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from typing import Any

from .peer import AbsentError, UnsupportedError

__all__ = ["CythonBlis", "load"]


class CythonBlis:
    """The peer."""

    name = "blis"

    def __init__(self, module: Any) -> None:
        self._module = module
        self.version = f"of cython-blis {importlib.metadata.version('blis')}"

    def set_threads(self, threads: int) -> None:
        """Accept one thread only."""
        if threads > 1:
            raise UnsupportedError("the wheel is built without threads")

    def fresh(self, a: Any, b: Any) -> Callable[[], Any]:
        """Refuse: it writes into the array that it is given."""
        raise UnsupportedError("it only writes into an array that is given")

    def product(self, a: Any, b: Any, c: Any) -> Callable[[], object]:
        """Return the call."""
        gemm = self._module.gemm
        if c.dtype.name not in ("float32", "float64"):
            raise UnsupportedError(f"no {c.dtype.name}")
        if c.ndim > 2 or a.ndim > 2 or b.ndim > 2:
            raise UnsupportedError("no batches")
        if not all(x.flags.c_contiguous for x in (a, b, c)):
            raise UnsupportedError("C order only")
        # vectors as matrices: its gemv adds to what out holds, whatever beta is (1.3.4)
        x, out = (a[None], c[None]) if a.ndim == 1 else (a, c)
        y, out = (b[:, None], out[:, None]) if b.ndim == 1 else (b, out)
        return lambda: gemm(x, y, out=out, beta=0.0)


def load(most_threads: int) -> CythonBlis:
    """Return the peer.

    Raises:
        AbsentError: the wheel isn't installed.
    """
    try:
        import blis.py
    except ImportError:
        raise AbsentError("not installed: pip install blis") from None
    return CythonBlis(blis.py)
