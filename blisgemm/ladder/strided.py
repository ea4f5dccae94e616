"""Compile a rung's loops once, for arrays of any strides.

Knows: how Numba tells arrays by rows, by columns and of other strides apart. Does not know: what is compiled. Called by
rungs 4 to 7, whose time is spent in the microkernel: it is told the strides, so code for each layout would be the same.
Rungs 1 to 3 need to know that rows are contiguous, and are compiled for each layout, as ``numba.njit`` does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit, typeof, types

__all__ = ["any_strides"]


class any_strides:
    """As ``numba.njit``, but an array of any layout is one of any strides; ``py_func`` is the function itself."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.py_func = function
        self._compiled = njit(nogil=True)(function)
        self.__doc__ = function.__doc__

    def __call__(self, *args: Any) -> Any:
        """Call the compiled function, compiled now if arguments of these types are new."""
        signature = tuple(_strided(typeof(x)) for x in args)
        if signature not in self._compiled.overloads:
            self._compiled.compile(signature)
        return self._compiled.overloads[signature].entry_point(*args)


def _strided(typ: Any) -> Any:
    return typ.copy(layout="A", readonly=False) if isinstance(typ, types.Array) else typ
