"""What ``cuda.gemm`` and ``cuda.matmul`` mean: operands of any library in, checked; a result of the kind that came in.

Knows: the order of a call. Does not know: what is wrong with an argument (``calls``), how a product is planned or
launched (``run``), how host arrays travel (``host``). Called by users.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..errors import BlisgemmTypeError, BlisgemmValueError
from . import arrays, driver
from .calls import (
    DTYPES,
    Call,
    c_strides,
    checked_factors,
    is_same,
    like,
    matrices_of,
    number_of,
    result_dtype,
    shape_of_product,
    size_of,
    stream_of,
    view_of_result,
)
from .prepared import Prepared, prepared_calls
from .run import copy_items, device_of, multiply, plan_of
from .view import ITEM_BYTES, View

__all__ = ["DTYPES", "explain", "gemm", "matmul"]


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
    return _gemm(a, b, c, alpha, beta, out, trans_a, trans_b, dtype, epilogue, reduction, stream, ("a", "b"))


def _gemm(
    a: Any, b: Any, c: Any, alpha: Any, beta: Any, out: Any, trans_a: Any, trans_b: Any, dtype: Any, epilogue: Any,
    reduction: Any, stream: Any, names: tuple[str, str],
) -> Any:  # fmt: skip
    """Do what ``gemm`` says. names: of the operands, for errors."""
    view_a, view_b = arrays.view_of(names[0], a), arrays.view_of(names[1], b)
    stream = stream_of(stream, view_a.kind)
    plain = c is None and epilogue is None and dtype is None and type(reduction) is str and reduction == "ordered"
    if plain and type(trans_a) is type(trans_b) is bool:
        key = (view_a.shape, view_a.strides, view_a.dtype, view_b.shape, view_b.strides, view_b.dtype, trans_a, trans_b)
        prepared = prepared_calls.get(key)
        if prepared is not None:
            result = prepared.run(view_a, view_b, out, alpha, beta, stream)
            if result is not None:
                return result
    call = Call.checked(
        view_a, view_b, c=c, alpha=alpha, beta=beta, out=out, trans_a=trans_a, trans_b=trans_b, dtype=dtype,
        epilogue=epilogue, reduction=reduction, names=names,
    )  # fmt: skip
    if type(out) is tuple:
        out = out[0]
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
        Prepared.keep(call, target, (view_a, view_b), trans_a, trans_b)
    return result


def matmul(x1: Any, x2: Any, /, out: Any = None, *, stream: int | None = None) -> Any:
    """Return ``x1 @ x2`` as ``numpy.matmul`` defines it, computed on a GPU: 1-d operands are a row and a column.

    Args:
        x1, x2: arrays of at least 1 dimension, as ``gemm`` takes them. out, stream: as there.

    Raises:
        BlisgemmTypeError, BlisgemmValueError, CudaUnavailableError, CudaError: as ``gemm``.
    """
    row, column = _dimensions("x1", x1) == 1, _dimensions("x2", x2) == 1
    names = ("x1", "x2")
    if not row and not column:
        return _gemm(x1, x2, None, 1, 0, out, False, False, None, None, "ordered", stream, names)
    a, b = arrays.view_of("x1", x1), arrays.view_of("x2", x2)
    stream = stream_of(stream, a.kind)
    if row:
        a = _with_axis(a, 0)
    if column:
        b = _with_axis(b, len(b.shape))
    _, first, second = shape_of_product(matrices_of("x1", a, False), matrices_of("x2", b, False), names)
    shape = (*first.shape[: -1 - row], *second.shape[len(second.shape) - (not column) :])
    if out is not None:
        target = view_of_result(out)
        like(target, "out", shape, result_dtype(a.dtype, None, target))
        result = out[0] if type(out) is tuple else out
    else:
        where = arrays.current_stream(a.kind, a.device) if stream is None and a.kind != "numpy" else stream or 0
        result, target = arrays.new_like(a.kind, a.owner, shape, a.dtype, a.device, where)
    if column:
        target = _with_axis(target, len(target.shape))
    if row:
        target = _with_axis(target, len(target.shape) - 1)
    _gemm(a, b, None, 1, 0, target, False, False, None, None, "ordered", stream, names)
    return result[()] if a.kind == "numpy" and shape == () and out is None else result


def _with_axis(view: View, place: int) -> View:
    """Return the array with an axis of one more, before axis ``place``."""
    shape = (*view.shape[:place], 1, *view.shape[place:])
    return replace(view, shape=shape, strides=(*view.strides[:place], 0, *view.strides[place:]))


def explain(a: Any, b: Any, *, trans_a: Any = False, trans_b: Any = False, beta: Any = 0, out: Any = None) -> str:
    """Return the plan of ``gemm`` with these operands, in words and numbers."""
    call = Call.checked(arrays.view_of("a", a), arrays.view_of("b", b), out=out, trans_a=trans_a, trans_b=trans_b)
    of_a, of_b, shape, ordinal = call.a, call.b, call.shape, max(0, call.a.device)
    factors = checked_factors(of_a.dtype, replace(call.factors, beta=number_of("beta", beta)))
    of_out = call.out or View(0, shape, c_strides(shape), of_a.dtype, ordinal, of_a.kind, None)
    if 0 in shape or of_a.shape[-1] == 0:
        return f"{shape}: nothing to multiply; the result is beta * c"
    return str(plan_of(of_a, of_b, of_out, factors, device_of(ordinal)))


# ---- the product ----


def _compute(call: Call, out: Any, stream: int) -> Any:
    """Compute into ``out``, or into a new array; through a temporary one where memory is shared."""
    a, b, c, target, shape, steps = call.a, call.b, call.c, call.out, call.shape, call.epilogue
    temporary = None
    result = out
    if target is None:
        result, target = arrays.new_like(a.kind, a.owner, shape, call.dtype, a.device, stream)
    elif any(arrays.overlap(target, x) for x in (a, b)) or any(
        arrays.overlap(target, x) and not is_same(x, target) for x in (*steps.views, *([c] if c else []))
    ):
        temporary = driver.allocate(size_of(shape) * ITEM_BYTES[call.dtype], stream)
        target = View(temporary, shape, c_strides(shape), call.dtype, a.device, a.kind, None)
    try:
        if c is not None and not is_same(c, target):
            _copy(target, c, stream)
        multiply(a, b, target, call.factors, stream, steps.steps, steps.format, steps.values)
        if temporary is not None and call.out is not None:
            _copy(call.out, target, stream)
    finally:
        if temporary is not None:
            driver.free(temporary, stream)
    return result


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


def _dimensions(name: str, x: Any) -> int:
    shape = getattr(x, "shape", None)
    if shape is None:
        raise BlisgemmTypeError(f"{name}: expected an array in GPU memory or a NumPy array; got {type(x).__name__}")
    if len(shape) == 0:
        raise BlisgemmValueError(f"{name}: expected at least 1 dimension; got a scalar")
    return len(shape)
