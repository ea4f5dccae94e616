"""What is done to each element of C before it is stored: words and Python functions, checked.

Knows: the steps that a caller may name, and how their arguments become a launch's. Does not know: how they are compiled
(``kernels.words``, ``kernels.finish``). Called by ``api``.

A step is a word (``"relu"``), a word with arguments (``("bias", b)``), or a Python function of ``(x, i, j,
*arguments)`` with or without arguments. Functions are compiled by Numba into the kernel.
"""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Sequence
from contextlib import suppress
from types import CodeType, FunctionType
from typing import Any

import numpy as np

from ..errors import BlisgemmTypeError, BlisgemmValueError
from . import arrays
from .tiles import OF_THIS_PROCESS, Step
from .view import ITEM_BYTES, View

__all__ = ["WORDS", "Epilogue", "parse"]

# word -> arguments: "number", "rows" or "columns" or "either" (a vector), "matrix"
WORDS: dict[str, tuple[str, ...]] = {
    "relu": (), "gelu": (), "gelu_tanh": (), "silu": (), "clamp": ("number", "number"), "scale": ("factor",),
    "scale_rows": ("rows",), "scale_columns": ("columns",), "bias": ("columns",), "bias_rows": ("rows",),
    "bias_columns": ("columns",), "residual": ("matrix",),
}  # fmt: skip
_REAL_ONLY = {"relu", "gelu", "gelu_tanh", "silu", "clamp"}


class Epilogue:
    """Steps, and their arguments as ``driver.pack`` takes them. views: the arrays among them."""

    def __init__(self, steps: tuple[Step, ...], format_: str, values: tuple[Any, ...], views: tuple[View, ...]) -> None:
        self.steps, self.format, self.values, self.views = steps, format_, values, views


NOTHING = Epilogue((), "", (), ())


def parse(given: Any, shape: tuple[int, ...], dtype: str) -> Epilogue:
    """Return the epilogue that a caller gave.

    Args:
        given: ``None``, a step, or a list of steps. shape: of C. dtype: of the sums.

    Raises:
        BlisgemmTypeError, BlisgemmValueError: a step is unknown, or its arguments don't fit it; names it.
    """
    if given is None:
        return NOTHING
    listed = list(given) if isinstance(given, list) else [given]
    steps: list[Step] = []
    format_: str = ""
    values: list[Any] = []
    views: list[View] = []
    for number, one in enumerate(listed):
        where = f"epilogue[{number}]" if isinstance(given, list) else "epilogue"
        head, arguments = (one[0], one[1:]) if isinstance(one, tuple) and one else (one, ())
        if isinstance(head, str):
            word, kinds, packed = _word(where, head, arguments, shape, dtype)
        elif isinstance(head, FunctionType):
            word, kinds, packed = _function(where, head, arguments, dtype)
        else:
            raise BlisgemmTypeError(
                f"{where}: expected a word, a Python function, or a tuple that begins with one; got {one!r}"
            )
        steps.append(Step(word, kinds, head if isinstance(head, FunctionType) else None))
        for letters, parts, view in packed:
            format_ += letters
            values += parts
            if view is not None:
                views.append(view)
    return Epilogue(tuple(steps), format_, tuple(values), tuple(views))


_Packed = tuple[str, Sequence[Any], "View | None"]


def _word(
    where: str, word: str, arguments: Sequence[Any], shape: tuple[int, ...], dtype: str
) -> tuple[str, tuple[str, ...], list[_Packed]]:
    """Return a word's name in ``kernels.words``, the types of its arguments, and these packed."""
    if word not in WORDS:
        raise BlisgemmValueError(f"{where}: expected one of {', '.join(WORDS)}, or a function; got {word!r}")
    if word in _REAL_ONLY and dtype.startswith("complex"):
        raise BlisgemmTypeError(f"{where}: {word} needs real numbers; got {dtype}")
    wanted = WORDS[word]
    if len(arguments) != len(wanted):
        raise BlisgemmValueError(f"{where}: {word} takes {len(wanted)} arguments; got {len(arguments)}")
    kinds, packed = [], []
    for kind, argument in zip(wanted, arguments, strict=True):
        if kind in ("number", "factor"):
            if kind == "number" or _is_number(argument):
                name, one = _number(where, argument, dtype)
                kinds.append(name)
                packed.append(one)
                continue
            raise BlisgemmTypeError(
                f"{where}: {word} takes a number (scale_rows, scale_columns: vectors); got {type(argument).__name__}"
            )
        view = _array(where, argument, dtype)
        if kind == "matrix":
            if view.shape not in (shape, shape[-2:]):
                raise BlisgemmValueError(
                    f"{where}: {word} takes an array of the result's shape {shape}, or of an item's; got {view.shape}"
                )
            if len(view.shape) > 3:
                raise BlisgemmValueError(f"{where}: {word} takes up to 3 dimensions; got shape {view.shape}")
        elif view.shape != (shape[-2 if kind == "rows" else -1],):
            count = shape[-2 if kind == "rows" else -1]
            raise BlisgemmValueError(f"{where}: {word} takes a vector of {count} elements; got shape {view.shape}")
        kinds.append(f"{view.dtype}[{len(view.shape)}]")
        packed.append(_packed_array(view))
    name = {"bias": "bias_columns", "residual": "add_items" if kinds and kinds[0].endswith("[3]") else "add"}.get(
        word, word
    )
    return name, tuple(kinds), packed


def _function(
    where: str, function: FunctionType, arguments: Sequence[Any], dtype: str
) -> tuple[str, tuple[str, ...], list[_Packed]]:
    kinds, packed = [], []
    for argument in arguments:
        if _is_number(argument):
            name, one = _number(where, argument, dtype)
        else:
            view = _array(where, argument, None)
            name, one = f"{view.dtype}[{len(view.shape)}]", _packed_array(view)
        kinds.append(name)
        packed.append(one)
    code = function.__code__
    if code.co_argcount != 3 + len(arguments) or code.co_kwonlyargcount or code.co_flags & 12:  # *args, **kwargs
        raise BlisgemmValueError(
            f"{where}: expected a function of (x, i, j) and its {len(arguments)} arguments; got one of "
            f"{', '.join(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])}"
        )
    return _digest(function), tuple(kinds), packed


def _is_number(x: Any) -> bool:
    return isinstance(x, (int, float, complex, np.integer, np.floating)) and not isinstance(x, bool)


def _number(where: str, x: Any, dtype: str) -> tuple[str, _Packed]:
    reals = "float64" if dtype in ("float64", "complex128") else "float32"
    if not _is_number(x) or isinstance(x, complex):
        raise BlisgemmTypeError(f"{where}: expected a real number; got {x!r}")
    try:
        value = float(x)
        if reals == "float32":
            with np.errstate(over="ignore"):
                value = float(np.float32(value))
    except OverflowError:
        raise BlisgemmValueError(f"{where}: expected a number that fits float64; got {x!r:.60}") from None
    return reals, ("d" if reals == "float64" else "f", [value], None)


def _array(where: str, x: Any, dtype: str | None) -> View:
    view = arrays.view_of(where, x)
    if view.kind == "numpy":
        raise BlisgemmTypeError(f"{where}: expected an array in GPU memory; got a NumPy array")
    if dtype is not None and view.dtype != dtype:
        raise BlisgemmTypeError(f"{where}: expected {dtype}, as C has; got {view.dtype}")
    if view.dtype in ("bool", "bfloat16", "float16") or view.dtype.startswith("float8"):
        raise BlisgemmTypeError(f"{where}: expected an array of a type that Numba compiles; got {view.dtype}")
    return view


def _packed_array(view: View) -> _Packed:
    """Return an array as the parameters that Numba's kernels take for it, all of 64 bits."""
    size = ITEM_BYTES[view.dtype]
    items = 1
    for extent in view.shape:
        items *= extent
    parts = [0, 0, items, size, view.pointer, *view.shape, *(stride * size for stride in view.strides)]
    return "q" * len(parts), parts, view


def _digest(function: FunctionType) -> str:
    """Return what tells a function from every other: its code and the values that it refers to.

    Where a value has no text of its own, it is that very object, in this process only (``tiles.OF_THIS_PROCESS``).
    """
    parts: list[Any] = [sys.version_info[:2]]
    told = _describe(function, parts, set())
    word = "function_" + hashlib.sha256(repr(parts).encode()).hexdigest()[:24]
    return word if told else word + OF_THIS_PROCESS


_kept_alive: dict[int, Any] = {}  # what words name by its identity, so that no other object gets that


def _describe(function: FunctionType, parts: list[Any], seen: set[int]) -> bool:
    """Append what a function is to ``parts``; return whether all of it has a text of its own."""
    if id(function) in seen:
        return True
    seen.add(id(function))
    code = function.__code__
    _describe_code(code, parts)
    values: list[tuple[str, Any]] = [("defaults", function.__defaults__), ("keywords", function.__kwdefaults__)]
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # an empty cell
            values.append((name, cell.cell_contents))
    values += [(name, function.__globals__[name]) for name in sorted(_names_of(code)) if name in function.__globals__]
    told = True
    for name, value in values:
        parts.append(name)
        told &= _describe_value(value, parts, seen)
    return told


def _describe_value(value: Any, parts: list[Any], seen: set[int]) -> bool:
    if isinstance(value, (bool, int, float, complex, str, bytes, type(None))):
        parts.append((type(value).__name__, repr(value)))
    elif isinstance(value, np.generic):
        parts.append((str(value.dtype), value.tobytes().hex()))
    elif type(value) is tuple:
        parts.append(len(value))
        told = [_describe_value(x, parts, seen) for x in value]  # all of them, not up to the first
        return all(told)
    elif value is math or getattr(value, "__module__", None) == "math":
        parts.append(value.__name__)
    elif isinstance(value, FunctionType):
        return _describe(value, parts, seen)
    else:
        _kept_alive[id(value)] = value
        parts.append(("object", id(value)))
        return False
    return True


def _describe_code(code: CodeType, parts: list[Any]) -> None:
    parts += [code.co_code.hex(), code.co_names, code.co_varnames, code.co_freevars]
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            _describe_code(constant, parts)
        else:
            parts.append((type(constant).__name__, repr(constant)))


def _names_of(code: CodeType) -> set[str]:
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _names_of(constant)
    return names
