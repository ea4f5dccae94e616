"""What is done to each element of C before it is stored: words and Python functions, checked.

Knows: the steps that a caller may name, and how their arguments become a launch's. Does not know: how they are compiled
(``kernels.words``, ``kernels.finish``). Called by ``api``.

A step is a word (``"relu"``), a word with arguments (``("bias", b)``), or a Python function of ``(x, i, j,
*arguments)`` with or without arguments. Functions are compiled by Numba into the kernel.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Sequence
from types import CodeType, FunctionType
from typing import Any

from ..errors import BlisgemmTypeError, BlisgemmValueError
from . import arrays
from .tiles import Step
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
                    f"{where}: {word} takes an array of shape {shape} or {shape[-2:]}; got {view.shape}"
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
    expected = function.__code__.co_argcount
    if expected != 3 + len(arguments) and not function.__code__.co_flags & 4:  # *args
        raise BlisgemmValueError(
            f"{where}: expected a function of (x, i, j) and its {len(arguments)} arguments; got one of {expected}"
        )
    return _digest(function), tuple(kinds), packed


def _is_number(x: Any) -> bool:
    return isinstance(x, (int, float, complex)) and not isinstance(x, bool)


def _number(where: str, x: Any, dtype: str) -> tuple[str, _Packed]:
    reals = "float64" if dtype in ("float64", "complex128") else "float32"
    if not _is_number(x) or isinstance(x, complex):
        raise BlisgemmTypeError(f"{where}: expected a real number; got {x!r}")
    return reals, ("d" if reals == "float64" else "f", [float(x)], None)


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
    """Return what tells a function from every other: its code and what it refers to.

    A function that refers to what can't be told (an object without a value of its own) is itself, in this process only.
    """
    parts: list[Any] = [sys.version_info[:2]]
    try:
        _describe(function, parts, set())
    except _Untold:
        return f"function_{id(function):x}_{id(function.__code__):x}_of_this_process"
    return "function_" + hashlib.sha256(repr(parts).encode()).hexdigest()[:24]


class _Untold(Exception):
    """What a function refers to has no text that tells it."""


def _describe(function: FunctionType, parts: list[Any], seen: set[int]) -> None:
    if id(function) in seen:
        return
    seen.add(id(function))
    _describe_code(function.__code__, parts)
    names = _names_of(function.__code__)
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    values = [(name, cell.cell_contents) for name, cell in cells]
    values += [(name, function.__globals__[name]) for name in sorted(names) if name in function.__globals__]
    for name, value in values:
        parts.append(name)
        if isinstance(value, (bool, int, float, complex, str, bytes, type(None))):
            parts.append((type(value).__name__, repr(value)))
        elif type(value).__module__ == "numpy" and getattr(value, "shape", None) == ():
            parts.append((str(value.dtype), value.tobytes().hex()))
        elif isinstance(value, type(sys)) or (isinstance(value, Callable) and value.__module__ in ("math", "cmath")):  # type: ignore[arg-type]
            parts.append(value.__name__)
        elif isinstance(value, FunctionType):
            _describe(value, parts, seen)
        else:
            raise _Untold(name)


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
