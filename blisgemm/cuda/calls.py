"""A call's arguments, checked: operands as op leaves them, batch dimensions alike, an error for everything else.

Knows: every argument of ``gemm`` and what is wrong with it. Does not know: how a product is planned, run or
kept. Called by ``api``; ``prepared`` keeps what it made.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import BlisgemmTypeError, BlisgemmValueError
from . import arrays
from .epilogue import Epilogue, parse
from .run import Factors
from .view import ITEM_BYTES, View

__all__ = [
    "DTYPES",
    "Call",
    "c_strides",
    "is_same",
    "like",
    "matrices_of",
    "number_of",
    "result_dtype",
    "shape_of_product",
    "size_of",
    "stream_of",
    "trans_of",
    "view_of_result",
]

DTYPES = ("float32", "float64", "complex64", "complex128")
_RESULTS = {
    "float32": ("float32", "float64", "float16", "bfloat16"), "float64": ("float64", "float32", "float16"),
    "complex64": ("complex64", "complex128"), "complex128": ("complex128", "complex64"),
}  # fmt: skip
_TRANS = {False: (False, False), "N": (False, False), True: (True, False), "T": (True, False), "C": (True, True),
          "R": (False, True)}  # fmt: skip


@dataclass(slots=True)
class Call:
    """A call's arguments, checked: operands as op leaves them, batch dimensions alike."""

    a: View
    b: View
    c: View | None
    out: View | None
    shape: tuple[int, ...]
    factors: Factors
    dtype: str  # of the result
    epilogue: Epilogue

    @classmethod
    def checked(
        cls, view_a: View, view_b: View, *, c: Any = None, alpha: Any = 1, beta: Any = 0, out: Any = None,
        trans_a: Any = False, trans_b: Any = False, dtype: Any = None, epilogue: Any = None, reduction: Any = "ordered",
        names: tuple[str, str] = ("a", "b"),
    ) -> Call:  # fmt: skip
        """Check all; raise what ``gemm`` says. names: of the operands, for errors."""
        (turn_a, conj_a), (turn_b, conj_b) = trans_of("trans_a", trans_a), trans_of("trans_b", trans_b)
        if type(reduction) is not str or reduction not in ("ordered", "atomic"):
            raise BlisgemmValueError(f"reduction: expected 'ordered' or 'atomic'; got {reduction!r}")
        factors = Factors(number_of("alpha", alpha), number_of("beta", beta), conj_a, conj_b, reduction == "atomic")
        first, second = matrices_of(names[0], view_a, turn_a), matrices_of(names[1], view_b, turn_b)
        shape, a, b = shape_of_product(first, second, names)
        factors = checked_factors(a.dtype, factors)
        if c is None and factors.beta != 0:
            raise BlisgemmValueError("c: expected an array, since beta is not 0; got None")
        of_out = None if out is None else view_of_result(out)
        result = result_dtype(a.dtype, dtype, of_out)
        of_c = None if c is None else like(arrays.view_of("c", c), "c", shape, result)
        if of_out is not None:
            like(of_out, "out", shape, result)
            if of_out.read_only or repeats(of_out):
                raise BlisgemmValueError(
                    "out: expected an array that can be written, with no element in another's place; got one that is "
                    "read-only or whose elements meet"
                )
        named = [(name, x) for name, x in zip((*names, "c", "out"), (a, b, of_c, of_out), strict=True) if x is not None]
        for name, view in named:
            real_bytes = ITEM_BYTES[view.dtype] // (2 if view.dtype.startswith("complex") else 1)
            if view.kind != "numpy" and view.pointer % real_bytes:
                raise BlisgemmValueError(f"{name}: expected elements on a boundary of {real_bytes} bytes; got others")
        listed = ", ".join(name for name, _ in named)
        if len({view.kind == "numpy" for _, view in named}) == 2:
            raise BlisgemmTypeError(f"{listed}: expected arrays that are all in GPU memory, or all NumPy's; got both")
        if a.kind == "numpy":
            for name, value in (("epilogue", epilogue), ("dtype", None if result == a.dtype else result)):
                if value is not None:
                    raise BlisgemmTypeError(f"{name}: expected None for NumPy arrays; got {value!r}")
        steps = parse(epilogue, shape, a.dtype)
        devices = {view.device for view in (*(view for _, view in named), *steps.views)}
        if len(devices) > 1:
            listed += ", epilogue" if steps.views else ""
            raise BlisgemmValueError(f"{listed}: expected arrays on one device; got devices {sorted(devices)}")
        return cls(a, b, of_c if factors.beta != 0 else None, of_out, shape, factors, result, steps)


def view_of_result(out: Any) -> View:
    """Return what ``out`` describes; a tuple of one array is that array."""
    if type(out) is tuple and len(out) == 1:
        out = out[0]
    view = arrays.view_of("out", out)
    if view.kind == "numpy" and not isinstance(out, (np.ndarray, View)):
        raise BlisgemmTypeError(f"out: expected an array; got {type(out).__name__}")
    return view


def stream_of(stream: Any, kind: str) -> int | None:
    """Return the handle of a stream, if it can be one."""
    if stream is None:
        return None
    if kind == "numpy":
        raise BlisgemmTypeError(f"stream: expected None for NumPy arrays; got {stream!r}")
    if isinstance(stream, bool) or not isinstance(stream, int) or not 0 <= stream < 2**64:
        raise BlisgemmTypeError(f"stream: expected the handle of a CUDA stream, an integer, or None; got {stream!r}")
    return stream


def trans_of(name: str, value: Any) -> tuple[bool, bool]:
    """Return (transposed, conjugated) of a ``trans_*`` argument."""
    try:
        if type(value) not in (bool, str):
            raise TypeError
        return _TRANS[value]
    except (KeyError, TypeError):
        raise BlisgemmValueError(f"{name}: expected False, True, 'N', 'T', 'C' or 'R'; got {value!r}") from None


def number_of(name: str, value: Any) -> complex:
    """Return alpha or beta as a complex number."""
    try:
        if isinstance(value, (str, bytes)):
            raise TypeError
        return complex(value)
    except (TypeError, ValueError):
        raise BlisgemmTypeError(f"{name}: expected a number; got {value!r}") from None
    except OverflowError:
        raise BlisgemmValueError(f"{name}: expected a number that fits complex128; got {value!r:.60}") from None


def checked_factors(dtype: str, factors: Factors) -> Factors:
    """Return the factors as the dtype has them: beyond float32 they are infinite there."""
    if not dtype.startswith("complex"):
        for name, value in (("alpha", factors.alpha), ("beta", factors.beta)):
            if value.imag != 0:
                raise BlisgemmTypeError(f"{name}: expected a real number for {dtype}; got {value}")
    if dtype in ("float32", "complex64") and max(
        map(abs, (factors.alpha.real, factors.alpha.imag, factors.beta.real, factors.beta.imag))
    ) >= float(np.finfo(np.float32).max):
        with np.errstate(over="ignore"):
            alpha, beta = (complex(np.complex64(x)) for x in (factors.alpha, factors.beta))
        return replace(factors, alpha=alpha, beta=beta)
    return factors


def matrices_of(name: str, view: View, turned: bool) -> View:
    """Return the operand with its last two axes as ``trans_*`` says."""
    if view.dtype not in DTYPES:
        raise BlisgemmTypeError(f"{name}: expected {', '.join(DTYPES)}; got {view.dtype}")
    if len(view.shape) < 2:
        raise BlisgemmValueError(f"{name}: expected at least 2 dimensions; got shape {view.shape}")
    if not turned:
        return view
    shape, strides = view.shape, view.strides
    return View(view.pointer, (*shape[:-2], shape[-1], shape[-2]), (*strides[:-2], strides[-1], strides[-2]),
                view.dtype, view.device, view.kind, view.owner, view.read_only, view.stream)  # fmt: skip


def shape_of_product(a: View, b: View, names: tuple[str, str] = ("a", "b")) -> tuple[tuple[int, ...], View, View]:
    """Return the shape of the product, and A and B with batch dimensions broadcast to it."""
    if a.dtype != b.dtype:
        raise BlisgemmTypeError(f"{names[1]}: expected {a.dtype}, as {names[0]} has; got {b.dtype}")
    if a.shape[-1] != b.shape[-2]:
        raise BlisgemmValueError(
            f"{names[1]}: expected {a.shape[-1]} rows, as {names[0]} has columns; got shapes {a.shape} and {b.shape}"
        )
    for name, view in zip(names, (a, b), strict=True):
        if max(view.shape) >= 2**31:
            raise BlisgemmValueError(f"{name}: expected extents below 2**31; got shape {view.shape}")
    if len(a.shape) == len(b.shape) == 2:
        return (a.shape[0], b.shape[1]), a, b
    batch = _broadcast(a.shape[:-2], b.shape[:-2], names[1])
    return (*batch, a.shape[-2], b.shape[-1]), _expanded(a, batch), _expanded(b, batch)


def _broadcast(first: tuple[int, ...], second: tuple[int, ...], name: str) -> tuple[int, ...]:
    count = max(len(first), len(second))
    found = []
    for x, y in zip((1,) * (count - len(first)) + first, (1,) * (count - len(second)) + second, strict=True):
        if x != y and 1 not in (x, y):
            raise BlisgemmValueError(f"{name}: expected batch dimensions that broadcast with {first}; got {second}")
        found.append(y if x == 1 else x)
    return tuple(found)


def _expanded(view: View, batch: tuple[int, ...]) -> View:
    own = len(view.shape) - 2
    missing = len(batch) - own
    strides = [0] * missing
    for axis in range(own):
        strides.append(view.strides[axis] if view.shape[axis] == batch[missing + axis] else 0)
    return View(view.pointer, (*batch, *view.shape[-2:]), (*strides, *view.strides[-2:]), view.dtype, view.device,
                view.kind, view.owner, view.read_only, view.stream)  # fmt: skip


def result_dtype(dtype: str, asked: Any, out: View | None) -> str:
    """Return the dtype of the result, from that of the sums, what was asked for and ``out``."""
    found = out.dtype if out is not None else dtype
    if asked is not None:
        try:
            found = np.dtype(asked).name
        except TypeError:  # torch's dtypes, bfloat16
            found = str(asked).removeprefix("torch.")
        if out is not None and out.dtype != found:
            raise BlisgemmTypeError(f"out: expected {found}, as dtype says; got {out.dtype}")
    if found not in _RESULTS[dtype]:
        name = "dtype" if asked is not None else "out"
        raise BlisgemmTypeError(f"{name}: expected one of {', '.join(_RESULTS[dtype])}; got {found}")
    return found


def like(view: View, name: str, shape: tuple[int, ...], dtype: str) -> View:
    """Return the view, if it has the shape and dtype that are wanted."""
    if view.shape != shape:
        raise BlisgemmValueError(f"{name}: expected shape {shape}; got {view.shape}")
    if view.dtype != dtype:
        raise BlisgemmTypeError(f"{name}: expected {dtype}; got {view.dtype}")
    return view


def repeats(view: View) -> bool:
    """Whether two elements may be one: a stride of 0, or axes that reach into each other."""
    axes = sorted((abs(s), e) for e, s in zip(view.shape, view.strides, strict=True) if e > 1)
    reach = 1
    for stride, extent in axes:
        if stride < reach:
            return True
        reach += (extent - 1) * stride
    return False


def is_same(first: View, second: View) -> bool:
    """Whether two views are of the same elements."""
    return (first.pointer, first.strides) == (second.pointer, second.strides)


def c_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides, in elements, of a C-contiguous array."""
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(1, extent)
    return tuple(reversed(strides))


def size_of(shape: tuple[int, ...]) -> int:
    """Return how many elements a shape has."""
    size = 1
    for extent in shape:
        size *= extent
    return size
