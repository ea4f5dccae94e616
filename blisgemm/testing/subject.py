"""The function under test: how it is called, whatever it takes.

Knows: which of gemm's arguments a function takes. Does not know: what it should return. Called by the rules.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import BlisgemmTypeError, BlisgemmValueError
from .cases import GemmCase, check_sequence

__all__ = ["ARGUMENTS", "Subject", "make_subject"]

Array = np.ndarray[Any, Any]

ARGUMENTS = ("c", "alpha", "beta", "trans_a", "trans_b", "out")


@dataclass(frozen=True)
class Subject:
    """A gemm or matmul under test.

    Args:
        function: it is called as ``function(a, b)``, with c third and the others by keyword where it takes them.
        name: how the report calls it.
        accepts: which of ``ARGUMENTS`` it takes.
        needs_c: it takes no call without c: zeros are passed then.
        c_by_keyword: c is no positional argument.
    """

    function: Callable[..., Any]
    name: str
    accepts: frozenset[str]
    needs_c: bool = False
    c_by_keyword: bool = False

    def takes(self, *names: str) -> bool:
        """Whether it takes all of these arguments."""
        return self.accepts.issuperset(names)

    def gemm(self, case: GemmCase, out: Array | None = None) -> Array:
        """Call it on a case; NumPy's warnings are silent.

        Returns:
            Its result as an array; ``out`` (or c) where it returned None, as functions that write in place do.
        """
        c = case.c
        if c is None and self.needs_c:
            c = np.zeros(case.shape[:2], np.result_type(case.a, case.b).newbyteorder("="))
        words = {name: value for name, value in case.factors.items() if name in self.accepts}
        if out is not None:
            words["out"] = out
        if c is None or "c" not in self.accepts:
            return self.call(case.a, case.b, **words)
        return self.call(case.a, case.b, c=c, **words) if self.c_by_keyword else self.call(case.a, case.b, c, **words)

    def call(self, *args: Any, **words: Any) -> Array:
        """Call it; NumPy's warnings are silent."""
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                result = self.function(*args, **words)
            except SystemExit as end:  # a finding as any other; it shall not end the battery
                raise RuntimeError(f"it ended the process: SystemExit({end.code!r})") from None
        if result is None:
            result = words.get("out", words.get("c", args[2] if len(args) > 2 else None))
        if result is None:
            raise TypeError("it returned None, and there is neither out nor c to look at")
        return np.asarray(result)


def make_subject(function: Callable[..., Any], accepts: Collection[str] | None, name: str | None = None) -> Subject:
    """Return a subject; what it takes is read from its signature unless it is said.

    Args:
        function: the function.
        accepts: which of ``ARGUMENTS`` it takes; ``None``: those that its signature names, all with ``**keywords``,
            none if it has no signature to read.
        name: how the report calls it; default: its own name.

    Raises:
        BlisgemmTypeError: function can't be called. BlisgemmValueError: accepts names another argument.
    """
    if not callable(function):
        raise BlisgemmTypeError(f"function: expected a function; got {type(function).__name__}")
    name = name or getattr(function, "__name__", None) or type(function).__name__
    parameters: Mapping[str, inspect.Parameter] = {}
    with suppress(TypeError, ValueError):  # NumPy's ufuncs have none before Python 3.14, nor have builtins
        parameters = inspect.signature(function).parameters
    if accepts is None:
        any_keyword = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        accepts = ARGUMENTS if any_keyword else [word for word in ARGUMENTS if word in parameters]
    unknown = sorted(set(check_sequence(accepts, "accepts", "arguments' names")) - set(ARGUMENTS))
    if unknown:
        raise BlisgemmValueError(f"accepts: expected some of {', '.join(ARGUMENTS)}; got {', '.join(unknown)}")
    c = parameters.get("c")
    by_keyword = c.kind is c.KEYWORD_ONLY if c else bool(parameters)
    needs_c = "c" in accepts and c is not None and c.default is c.empty
    return Subject(function, name, frozenset(accepts), needs_c, by_keyword)
