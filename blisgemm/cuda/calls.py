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
from .view import View

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
    "trans_of",
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
        cls, view_a: View, view_b: View, c: Any, alpha: Any, beta: Any, out: Any, trans_a: Any, trans_b: Any, dtype:
        Any,
        epilogue: Any, reduction: Any,
    ) -> Call:  # fmt: skip
        """Check all; raise what ``gemm`` says."""
        (turn_a, conj_a), (turn_b, conj_b) = trans_of("trans_a", trans_a), trans_of("trans_b", trans_b)
        if reduction not in ("ordered", "atomic"):
            raise BlisgemmValueError(f"reduction: expected 'ordered' or 'atomic'; got {reduction!r}")
        factors = Factors(number_of("alpha", alpha), number_of("beta", beta), conj_a, conj_b, reduction == "atomic")
        shape, a, b = shape_of_product(matrices_of("a", view_a, turn_a), matrices_of("b", view_b, turn_b))
        factors = checked_factors(a.dtype, factors)
        if c is None and factors.beta != 0:
            raise BlisgemmValueError("c: expected an array, since beta is not 0; got None")
        of_out = None if out is None else arrays.view_of("out", out)
        result = result_dtype(a.dtype, dtype, of_out)
        of_c = None if c is None or factors.beta == 0 else like(arrays.view_of("c", c), "c", shape, result)
        if c is not None and of_c is None and tuple(getattr(c, "shape", shape)) != shape:
            raise BlisgemmValueError(f"c: expected shape {shape}; got {tuple(c.shape)}")
        if of_out is not None:
            like(of_out, "out", shape, result)
            if of_out.read_only or repeats(of_out):
                raise BlisgemmValueError(
                    "out: expected an array that can be written; got one that is read-only or repeats elements"
                )
        views = [view for view in (a, b, of_c, of_out) if view is not None]
        if len({view.kind == "numpy" for view in views}) == 2:
            raise BlisgemmTypeError(
                "a, b, c, out: expected arrays that are all in GPU memory, or all NumPy's; got both"
            )
        if a.kind == "numpy":
            for name, value in (("epilogue", epilogue), ("dtype", None if result == a.dtype else result)):
                if value is not None:
                    raise BlisgemmTypeError(f"{name}: expected None for NumPy arrays; got {value!r}")
        steps = parse(epilogue, shape, a.dtype)
        devices = {view.device for view in (*views, *steps.views)}
        if len(devices) > 1:
            raise BlisgemmValueError(f"a, b, c, out: expected arrays on one device; got devices {sorted(devices)}")
        return cls(a, b, of_c, of_out, shape, factors, result, steps)


def trans_of(name: str, value: Any) -> tuple[bool, bool]:
    """Return (transposed, conjugated) of a ``trans_*`` argument."""
    try:
        return _TRANS[value]
    except (KeyError, TypeError):
        raise BlisgemmValueError(f"{name}: expected False, True, 'N', 'T', 'C' or 'R'; got {value!r}") from None


def number_of(name: str, value: Any) -> complex:
    """Return alpha or beta as a complex number."""
    try:
        return complex(value)
    except (TypeError, ValueError):
        raise BlisgemmTypeError(f"{name}: expected a number; got {value!r}") from None


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


def shape_of_product(a: View, b: View) -> tuple[tuple[int, ...], View, View]:
    """Return the shape of the product, and A and B with batch dimensions broadcast to it."""
    if a.dtype != b.dtype:
        raise BlisgemmTypeError(f"b: expected {a.dtype}, as a has; got {b.dtype}")
    if a.shape[-1] != b.shape[-2]:
        raise BlisgemmValueError(f"b: expected {a.shape[-1]} rows, as op(a) has columns; got shape {b.shape} after op")
    if len(a.shape) == len(b.shape) == 2:
        return (a.shape[0], b.shape[1]), a, b
    batch = _broadcast(a.shape[:-2], b.shape[:-2])
    return (*batch, a.shape[-2], b.shape[-1]), _expanded(a, batch), _expanded(b, batch)


def _broadcast(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
    count = max(len(first), len(second))
    found = []
    for x, y in zip((1,) * (count - len(first)) + first, (1,) * (count - len(second)) + second, strict=True):
        if x != y and 1 not in (x, y):
            raise BlisgemmValueError(f"b: expected batch dimensions that broadcast with {first}; got {second}")
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
        found = str(asked).removeprefix("torch.") if not isinstance(asked, type) else asked.__name__
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
