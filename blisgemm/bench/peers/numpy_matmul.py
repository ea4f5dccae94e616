"""NumPy as its users call it: ``np.matmul`` with ``out=``.

Knows: the call. Does not know: which BLAS is below. Called by ``peers``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .peer import UnsupportedError

__all__ = ["NumpyMatmul", "load"]


class NumpyMatmul:
    """The peer."""

    name = "numpy"

    def __init__(self, most_threads: int) -> None:
        self._most_threads = most_threads
        blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]  # type: ignore[call-overload]
        self.version = f"{np.__version__} with {blas['name']} {blas['version']}"

    def set_threads(self, threads: int) -> None:
        """Set the threads of its BLAS (and of every other OpenBLAS in the process).

        Raises:
            UnsupportedError: without threadpoolctl the BLAS keeps the number that the environment gave it.
        """
        try:
            import threadpoolctl
        except ImportError:
            if threads == self._most_threads:
                return
            raise UnsupportedError("setting its threads needs threadpoolctl: pip install threadpoolctl") from None
        for library in threadpoolctl.ThreadpoolController().select(user_api="blas").lib_controllers:
            if library.internal_api in ("openblas", "blis", "flexiblas"):
                library.set_num_threads(threads)

    def fresh(self, a: Any, b: Any) -> Callable[[], Any]:
        """Return the call without ``out=``."""
        return lambda: np.matmul(a, b)

    def product(self, a: Any, b: Any, c: Any) -> Callable[[], object]:
        """Return the call."""
        return lambda: np.matmul(a, b, out=c)


def load(most_threads: int) -> NumpyMatmul:
    """Return the peer, which is always there."""
    return NumpyMatmul(most_threads)
