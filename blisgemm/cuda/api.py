"""What ``cuda.gemm`` and ``cuda.matmul`` mean: operands of any library in, checked; a result of the kind that came in.

Knows: every argument and its errors. Does not know: how a product is planned or launched (``run``), how host arrays
travel (``host``). Called by users.
"""

from __future__ import annotations

from typing import Any

from ..errors import BlisgemmTypeError, BlisgemmValueError
from . import arrays, driver
from .run import Factors, copy_items, device_of, multiply, plan_of
from .view import ITEM_BYTES, View

__all__ = ["DTYPES", "explain", "gemm", "matmul"]

DTYPES = ("float32", "float64", "complex64", "complex128")
_TRANS = {False: (False, False), "N": (False, False), True: (True, False), "T": (True, False), "C": (True, True),
          "R": (False, True)}  # fmt: skip


def gemm(
    a: Any, b: Any, c: Any = None, *, alpha: Any = 1, beta: Any = 0, out: Any = None, trans_a: Any = False,
    trans_b: Any = False, stream: int | None = None,
) -> Any:  # fmt: skip
    """Return ``alpha * op(a) @ op(b) + beta * c``, computed on a GPU.

    Args:
        a, b: ... x m x k and ... x k x n, float32, float64, complex64 or complex128 (both the same); batch dimensions
            broadcast. Arrays in GPU memory (torch, CuPy, Numba, anything with ``__cuda_array_interface__`` or DLPack)
            are read where they are, with any strides; NumPy arrays are copied there and back in pieces.
        c: ... x m x n, needed where beta is not 0.
        alpha, beta: numbers. If alpha is 0, a and b are not read; if beta is 0, c is not.
        out: an array for the result, of any strides; it may be c, or share memory with the operands.
        trans_a, trans_b: False or "N": as it is; True or "T": transposed; "C": transposed and conjugated; "R":
        conjugated.
        stream: handle of a CUDA stream; ``None``: the current one of the operands' library.

    Returns:
        ``out``, or a new array of the kind of ``a``. float32 is multiplied in float32, never in TF32. The same call
        gives the same bits in every run on the same card.

    Raises:
        BlisgemmTypeError, BlisgemmValueError: an argument is not as above; nothing has been written then.
        CudaUnavailableError: no GPU, no driver, or a package is missing; the text says which.
        CudaError: the card ran out of memory, or a call of its driver failed.
    """
    views = {name: arrays.view_of(name, x) for name, x in (("a", a), ("b", b))}
    trans = {name: _trans(name, x) for name, x in (("trans_a", trans_a), ("trans_b", trans_b))}
    factors = Factors(_number("alpha", alpha), _number("beta", beta), trans["trans_a"][1], trans["trans_b"][1])
    of_a, of_b = _matrices("a", views["a"], trans["trans_a"][0]), _matrices("b", views["b"], trans["trans_b"][0])
    shape, of_a, of_b = _shape(of_a, of_b)
    _check_factors(of_a.dtype, factors)
    if c is None and factors.beta != 0:
        raise BlisgemmValueError("c: expected an array, since beta is not 0; got None")
    of_c = None if c is None else _like(arrays.view_of("c", c), "c", shape, of_a)
    of_out = None if out is None else _like(arrays.view_of("out", out), "out", shape, of_a)
    if of_out is not None and (of_out.read_only or _repeats(of_out)):
        raise BlisgemmValueError(
            "out: expected an array that can be written; got one that is read-only or repeats elements"
        )
    kinds = {view.kind == "numpy" for view in (of_a, of_b, of_c, of_out) if view is not None}
    if len(kinds) == 2:
        raise BlisgemmTypeError("a, b, c, out: expected arrays that are all in GPU memory, or all NumPy's; got both")
    if of_a.kind == "numpy":
        from .host import gemm_on_host

        return gemm_on_host(of_a, of_b, of_c, of_out, shape, factors, out)
    devices = {view.device for view in (of_a, of_b, of_c, of_out) if view is not None}
    if len(devices) > 1:
        raise BlisgemmValueError(f"a, b, c, out: expected arrays on one device; got devices {sorted(devices)}")
    ordinal = of_a.device
    if stream is None:
        stream = arrays.current_stream(of_a.kind, ordinal)
    with driver.on_device(ordinal):
        for view in (of_a, of_b, of_c, of_out):
            if view is not None and (view.stream is not None or view.kind != of_a.kind):
                arrays.wait_for(view, stream)
        return _compute(of_a, of_b, of_c, of_out, out, shape, factors, stream)


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
        of_out = _like(arrays.view_of("out", out), "out", shape, of_a)
    if 0 in shape or of_a.shape[-1] == 0:
        return f"{shape}: nothing to multiply; the result is beta * c"
    return str(plan_of(of_a, of_b, of_out, Factors(beta=_number("beta", beta)), device_of(ordinal)))


# ---- the product -------------------------------------------------------------------------------------


def _compute(
    a: View, b: View, c: View | None, out_view: View | None, out: Any, shape: tuple[int, ...], factors: Factors,
    stream: int,
) -> Any:  # fmt: skip
    """Compute into ``out``, or into a new array; through a temporary one where memory is shared."""
    temporary = None
    result, target = out, out_view
    if target is None:
        result, target = arrays.new_like(a.kind, a.owner, shape, a.dtype, a.device, stream)
    elif arrays.overlap(target, a) or arrays.overlap(target, b):
        temporary = driver.allocate(_size(shape) * ITEM_BYTES[a.dtype], stream)
        target = View(temporary, shape, _c_strides(shape), a.dtype, a.device, a.kind, None)
    try:
        if factors.beta != 0 and c is not None and not _same(c, target):
            _copy(target, c, stream)
        multiply(a, b, target, factors, stream)
        if temporary is not None and out_view is not None:
            _copy(out_view, target, stream)
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


def _check_factors(dtype: str, factors: Factors) -> None:
    if not dtype.startswith("complex"):
        for name, value in (("alpha", factors.alpha), ("beta", factors.beta)):
            if value.imag != 0:
                raise BlisgemmTypeError(f"{name}: expected a real number for {dtype}; got {value}")


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


def _like(view: View, name: str, shape: tuple[int, ...], a: View) -> View:
    if view.shape != shape:
        raise BlisgemmValueError(f"{name}: expected shape {shape}; got {view.shape}")
    if view.dtype != a.dtype:
        raise BlisgemmTypeError(f"{name}: expected {a.dtype}, as a has; got {view.dtype}")
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
