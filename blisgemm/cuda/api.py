"""What ``cuda.gemm`` and ``cuda.matmul`` mean: operands of any library in, checked; a result of the kind that came in.

Knows: every argument and its errors. Does not know: how a product is planned or launched (``run``), how host arrays
travel (``host``). Called by users.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import BlisgemmTypeError, BlisgemmValueError
from . import arrays, driver
from .epilogue import Epilogue, parse
from .run import Factors, Route, copy_items, device_of, multiply, plan_of, route_of, single
from .view import ITEM_BYTES, View

__all__ = ["DTYPES", "explain", "gemm", "matmul"]

DTYPES = ("float32", "float64", "complex64", "complex128")
_RESULTS = {
    "float32": ("float32", "float64", "float16", "bfloat16"), "float64": ("float64", "float32", "float16"),
    "complex64": ("complex64", "complex128"), "complex128": ("complex128", "complex64"),
}  # fmt: skip
_TRANS = {False: (False, False), "N": (False, False), True: (True, False), "T": (True, False), "C": (True, True),
          "R": (False, True)}  # fmt: skip


def gemm(
    a: Any, b: Any, c: Any = None, *, alpha: Any = 1, beta: Any = 0, out: Any = None, trans_a: Any = False,
    trans_b: Any = False, dtype: Any = None, epilogue: Any = None, reduction: str = "ordered",
    stream: int | None = None,
) -> Any:  # fmt: skip
    """Return ``alpha * op(a) @ op(b) + beta * c``, computed on a GPU; each element then goes through the epilogue.

    Args:
        a, b: ... x m x k and ... x k x n, float32, float64, complex64 or complex128 (both the same); batch dimensions
            broadcast. Arrays in GPU memory (torch, CuPy, Numba, anything with ``__cuda_array_interface__`` or DLPack)
            are read where they are, with any strides; NumPy arrays are copied there and back in pieces.
        c: ... x m x n, needed where beta is not 0.
        alpha, beta: numbers. If alpha is 0, a and b are not read; if beta is 0, c is not.
        out: an array for the result, of any strides; it may be c, or share memory with the operands.
        trans_a, trans_b: False or "N": as it is; True or "T": transposed; "C": transposed and conjugated; "R":
        conjugated.
        dtype: of the result, in place of that of a: float16, bfloat16 or float64 for float32, float32 or float16 for
            float64, the other complex type for one; rounded once. ``out`` says it too.
        epilogue: a step, or a list of steps, done while the elements are in registers. A step is a word, or a tuple of
            a word and its arguments: "relu", "gelu", "gelu_tanh", "silu", ("clamp", low, high), ("scale", s),
            ("scale_rows", v), ("scale_columns", v), ("bias", v) or ("bias_columns", v), ("bias_rows", v),
            ("residual", x); or a Python function ``f(x, i, j)`` of the element and its place, compiled by Numba, or a
            tuple of one that takes more and these arguments: numbers, and arrays in GPU memory.
        reduction: how parts of a sum over k meet where a tile is divided: "ordered", or "atomic", in no order, which
            may be faster; then bits may differ between runs.
        stream: handle of a CUDA stream; ``None``: the current one of the operands' library.

    Returns:
        ``out``, or a new array of the kind of ``a``. float32 is multiplied in float32, never in TF32. The same call
        gives the same bits in every run on the same card.

    Raises:
        BlisgemmTypeError, BlisgemmValueError: an argument is not as above; nothing has been written then.
        CudaUnavailableError: no GPU, no driver, or a package is missing; the text says which.
        CudaError: the card ran out of memory, or a call of its driver failed.
    """
    view_a, view_b = arrays.view_of("a", a), arrays.view_of("b", b)
    plain = c is None and epilogue is None and dtype is None and reduction == "ordered"
    if plain and type(trans_a) is type(trans_b) is bool:
        key = (view_a.shape, view_a.strides, view_a.dtype, view_b.shape, view_b.strides, view_b.dtype, trans_a, trans_b)
        prepared = _prepared.get(key)
        if prepared is not None:
            result = prepared.run(view_a, view_b, out, alpha, beta, stream)
            if result is not None:
                return result
    call = _Call.checked(view_a, view_b, c, alpha, beta, out, trans_a, trans_b, dtype, epilogue, reduction)
    if call.a.kind == "numpy":
        from .host import gemm_on_host

        return gemm_on_host(call.a, call.b, call.c, call.out, call.shape, call.factors, out)
    ordinal = call.a.device
    if stream is None:
        stream = arrays.current_stream(call.a.kind, ordinal)
    with driver.on_device(ordinal):
        for view in (call.a, call.b, call.c, call.out, *call.epilogue.views):
            if view is not None and (view.stream is not None or view.kind != call.a.kind):
                arrays.wait_for(view, stream)
        result = _compute(call, out, stream)
    if plain:
        target = call.out if out is not None else arrays.view_of("out", result)
        _Prepared.keep(call, target, (view_a, view_b), trans_a, trans_b)
    return result


def matmul(x1: Any, x2: Any, /, out: Any = None, *, stream: int | None = None) -> Any:
    """Return ``x1 @ x2`` as ``numpy.matmul`` defines it, computed on a GPU: 1-d operands are a row and a column.

    Args:
        x1, x2: arrays of at least 1 dimension, as ``gemm`` takes them. out, stream: as there.

    Raises:
        BlisgemmTypeError, BlisgemmValueError, CudaUnavailableError, CudaError: as ``gemm``.
    """
    row, column = _dimensions("x1", x1) == 1, _dimensions("x2", x2) == 1
    if not row and not column:
        return gemm(x1, x2, out=out, stream=stream)
    a = x1[None, :] if row else x1
    b = x2[:, None] if column else x2
    target = out
    if out is not None:
        target = out[..., None] if column else out
        target = target[..., None, :] if row and not column else target[..., None] if row else target
    result = gemm(a, b, out=target, stream=stream)
    if out is not None:
        return out
    if column:
        result = result[..., 0]
    return result[..., 0, :] if row and not column else result[..., 0] if row else result


def explain(a: Any, b: Any, *, trans_a: Any = False, trans_b: Any = False, beta: Any = 0, out: Any = None) -> str:
    """Return the plan of ``gemm`` with these operands, in words and numbers."""
    of_a = _matrices("a", arrays.view_of("a", a), _trans("trans_a", trans_a)[0])
    of_b = _matrices("b", arrays.view_of("b", b), _trans("trans_b", trans_b)[0])
    shape, of_a, of_b = _shape(of_a, of_b)
    ordinal = max(0, of_a.device)
    strides = _c_strides(shape)
    of_out = View(0, shape, strides, of_a.dtype, ordinal, of_a.kind, None)
    if out is not None:
        of_out = arrays.view_of("out", out)
        _like(of_out, "out", shape, _result_dtype(of_a.dtype, None, of_out))
    if 0 in shape or of_a.shape[-1] == 0:
        return f"{shape}: nothing to multiply; the result is beta * c"
    return str(plan_of(of_a, of_b, of_out, Factors(beta=_number("beta", beta)), device_of(ordinal)))


# ---- the product -------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Call:
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
    ) -> _Call:  # fmt: skip
        """Check all; raise what ``gemm`` says."""
        (turn_a, conj_a), (turn_b, conj_b) = _trans("trans_a", trans_a), _trans("trans_b", trans_b)
        if reduction not in ("ordered", "atomic"):
            raise BlisgemmValueError(f"reduction: expected 'ordered' or 'atomic'; got {reduction!r}")
        factors = Factors(_number("alpha", alpha), _number("beta", beta), conj_a, conj_b, reduction == "atomic")
        shape, a, b = _shape(_matrices("a", view_a, turn_a), _matrices("b", view_b, turn_b))
        factors = _checked_factors(a.dtype, factors)
        if c is None and factors.beta != 0:
            raise BlisgemmValueError("c: expected an array, since beta is not 0; got None")
        of_out = None if out is None else arrays.view_of("out", out)
        result = _result_dtype(a.dtype, dtype, of_out)
        of_c = None if c is None or factors.beta == 0 else _like(arrays.view_of("c", c), "c", shape, result)
        if c is not None and of_c is None and tuple(getattr(c, "shape", shape)) != shape:
            raise BlisgemmValueError(f"c: expected shape {shape}; got {tuple(c.shape)}")
        if of_out is not None:
            _like(of_out, "out", shape, result)
            if of_out.read_only or _repeats(of_out):
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


def _compute(call: _Call, out: Any, stream: int) -> Any:
    """Compute into ``out``, or into a new array; through a temporary one where memory is shared."""
    a, b, c, target, shape, steps = call.a, call.b, call.c, call.out, call.shape, call.epilogue
    temporary = None
    result = out
    if target is None:
        result, target = arrays.new_like(a.kind, a.owner, shape, call.dtype, a.device, stream)
    elif any(arrays.overlap(target, x) for x in (a, b)) or any(
        arrays.overlap(target, x) and not _same(x, target) for x in (*steps.views, *([c] if c else []))
    ):
        temporary = driver.allocate(_size(shape) * ITEM_BYTES[call.dtype], stream)
        target = View(temporary, shape, _c_strides(shape), call.dtype, a.device, a.kind, None)
    try:
        if c is not None and not _same(c, target):
            _copy(target, c, stream)
        multiply(a, b, target, call.factors, stream, steps.steps, steps.format, steps.values)
        if temporary is not None and call.out is not None:
            _copy(call.out, target, stream)
    finally:
        if temporary is not None:
            driver.free(temporary, stream)
    return result


# ---- calls that come again ---------------------------------------------------------------------------

_prepared: dict[tuple[Any, ...], _Prepared] = {}
_MOST_PREPARED = 4096


@dataclass(slots=True)
class _Prepared:
    """A call without c that was made before: what its operands must be like, and the route that it took.

    reach: bytes before and behind an array's first element, of a, b and out.
    """

    route: Route
    kind: str
    device: int
    out_shape: tuple[int, ...]
    out_strides: tuple[int, ...]
    out_dtype: str
    alignment: tuple[int, int, int]
    reach: tuple[tuple[int, int], tuple[int, int], tuple[int, int]]

    @classmethod
    def keep(cls, call: _Call, out: View | None, given: tuple[View, View], trans_a: Any, trans_b: Any) -> None:
        """Keep a call for the next one like it, if it is one of matrices and took one launch."""
        a, b = call.a, call.b
        plain = out is not None and len(call.shape) == 2 and not call.epilogue.steps and 0 not in call.shape
        if not plain or a.shape[1] == 0 or call.factors.alpha == 0 or call.factors.beta != 0 or out is None:
            return
        if type(trans_a) is not bool or type(trans_b) is not bool:
            return
        route = route_of(single(a), single(b), single(out), 1, a.dtype, out.dtype, call.factors, a.device)
        first, second = given
        key = (first.shape, first.strides, first.dtype, second.shape, second.strides, second.dtype, trans_a, trans_b)
        if len(_prepared) >= _MOST_PREPARED:
            _prepared.clear()
        reach = (_reach(a), _reach(b), _reach(out))
        alignment = (a.pointer & 15, b.pointer & 15, out.pointer & 15)
        _prepared[key] = cls(route, a.kind, a.device, out.shape, out.strides, out.dtype, alignment, reach)

    def run(self, a: View, b: View, given: Any, alpha: Any, beta: Any, stream: int | None) -> Any:
        """Launch, if all is as it was, and return the result; else return ``None``, and nothing was done."""
        if (
            beta != 0
            or type(alpha) not in (int, float)
            or not -1e38 < alpha < 1e38
            or alpha == 0
            or a.kind != self.kind
            or a.device != self.device
        ):
            return None
        if given is None:
            if stream is None:
                stream = arrays.current_stream(self.kind, self.device)
            given, out = arrays.new_like(a.kind, a.owner, self.out_shape, self.out_dtype, self.device, stream)
        else:
            out = arrays.view_of("out", given)
        if not (
            out.shape == self.out_shape and out.strides == self.out_strides and out.dtype == self.out_dtype
            and b.kind == out.kind == self.kind and b.device == out.device == self.device
            and (a.pointer & 15, b.pointer & 15, out.pointer & 15) == self.alignment
            and not out.read_only
        ):  # fmt: skip
            return None
        if stream is None:
            stream = arrays.current_stream(self.kind, self.device)
        if not (a.stream in (None, stream) and b.stream in (None, stream) and out.stream in (None, stream)):
            return None
        low, high = out.pointer - self.reach[2][0], out.pointer + self.reach[2][1]
        for view, (before, behind) in ((a, self.reach[0]), (b, self.reach[1])):
            if view.pointer - before < high and low < view.pointer + behind:
                return None
        with driver.on_device(self.device):
            self.route.launch(a.pointer, b.pointer, out.pointer, alpha, 0, stream, ())
        return given


def _reach(view: View) -> tuple[int, int]:
    """Return the bytes of an array before its first element, and from there to its end."""
    size = ITEM_BYTES[view.dtype]
    steps = [(extent - 1) * stride for extent, stride in zip(view.shape, view.strides, strict=True)]
    return -sum(s for s in steps if s < 0) * size, (sum(s for s in steps if s > 0) + 1) * size


def _copy(target: View, source: View, stream: int) -> None:
    """Copy an array into another of its shape."""
    if 0 in target.shape:
        return
    if len(target.shape) > 3:
        for index in range(target.shape[0]):
            _copy(_item(target, index), _item(source, index), stream)
        return
    items = target.shape[0] if len(target.shape) == 3 else 1
    to, of = ((0, *x.strides) if len(x.strides) == 2 else x.strides for x in (target, source))
    rows, columns = target.shape[-2:]
    copy_items(
        target.pointer, to, source.pointer, of, items, rows, columns, ITEM_BYTES[target.dtype], target.device, stream
    )


def _item(view: View, index: int) -> View:
    pointer = view.pointer + index * view.strides[0] * ITEM_BYTES[view.dtype]
    return View(pointer, view.shape[1:], view.strides[1:], view.dtype, view.device, view.kind, view.owner)


# ---- arguments ---------------------------------------------------------------------------------------


def _dimensions(name: str, x: Any) -> int:
    shape = getattr(x, "shape", None)
    if shape is None:
        raise BlisgemmTypeError(f"{name}: expected an array in GPU memory or a NumPy array; got {type(x).__name__}")
    if len(shape) == 0:
        raise BlisgemmValueError(f"{name}: expected at least 1 dimension; got a scalar")
    return len(shape)


def _trans(name: str, value: Any) -> tuple[bool, bool]:
    try:
        return _TRANS[value]
    except (KeyError, TypeError):
        raise BlisgemmValueError(f"{name}: expected False, True, 'N', 'T', 'C' or 'R'; got {value!r}") from None


def _number(name: str, value: Any) -> complex:
    try:
        return complex(value)
    except (TypeError, ValueError):
        raise BlisgemmTypeError(f"{name}: expected a number; got {value!r}") from None


def _checked_factors(dtype: str, factors: Factors) -> Factors:
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


def _matrices(name: str, view: View, turned: bool) -> View:
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


def _shape(a: View, b: View) -> tuple[tuple[int, ...], View, View]:
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


def _result_dtype(dtype: str, asked: Any, out: View | None) -> str:
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


def _like(view: View, name: str, shape: tuple[int, ...], dtype: str) -> View:
    if view.shape != shape:
        raise BlisgemmValueError(f"{name}: expected shape {shape}; got {view.shape}")
    if view.dtype != dtype:
        raise BlisgemmTypeError(f"{name}: expected {dtype}; got {view.dtype}")
    return view


def _repeats(view: View) -> bool:
    """Whether two elements may be one: a stride of 0, or axes that reach into each other."""
    axes = sorted((abs(s), e) for e, s in zip(view.shape, view.strides, strict=True) if e > 1)
    reach = 1
    for stride, extent in axes:
        if stride < reach:
            return True
        reach += (extent - 1) * stride
    return False


def _same(first: View, second: View) -> bool:
    return (first.pointer, first.strides) == (second.pointer, second.strides)


def _c_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(1, extent)
    return tuple(reversed(strides))


def _size(shape: tuple[int, ...]) -> int:
    size = 1
    for extent in shape:
        size *= extent
    return size
