"""Arrays in, validated operands out: the only place where errors about arguments are raised.

Knows: shapes, dtypes, casting, overlap, transposition. Does not know: kernels, plans. Called by ``api``.

Nothing is written before everything is checked. What a kernel can't read as it lies is copied
here, visibly (``notes``): byte-swapped data and data of another dtype. Any strides, also unaligned and in
odd bytes, are read as they lie.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from numbers import Number
from typing import Any

import numpy as np

from .errors import BlisgemmTypeError, BlisgemmValueError
from .ukernel.spec import SHORT_NAMES

__all__ = [
    "Operands", "check_casting", "check_order", "check_out", "fresh_out", "kernel_dtype", "loop_dtype", "prepare",
    "product_operands", "refuse_foreign", "refuse_masked", "scalar_of", "sum_dtype",
]  # fmt: skip

Array = np.ndarray[Any, Any]

_TRANS = {False: (False, False), "N": (False, False), True: (True, False), "T": (True, False),
          "C": (True, True), "R": (False, True)}  # fmt: skip


@dataclass(frozen=True)
class Operands:
    """A checked product: ``target := alpha * a b + beta * target``, then ``out[...] = target`` if they differ.

    ``a`` is (..., m, k), ``b`` (..., k, n), ``target`` (..., m, n); batch dimensions are equal. conj: bit 0
    conjugates a, bit 1 b. ``source`` holds what C must contain first when beta isn't zero.
    """

    a: Array
    b: Array
    target: Array
    out: Array
    source: Array | None
    alpha: Any
    beta: Any
    conj: int
    notes: tuple[str, ...]

    @property
    def extents(self) -> tuple[int, int, int]:
        """(m, n, k)."""
        return self.target.shape[-2], self.target.shape[-1], self.a.shape[-1]


def refuse_masked(name: str, value: Any) -> None:
    """Raise for masked arrays, whose masks a product would ignore."""
    if type(value) is np.ndarray:
        return
    masked = sys.modules.get("numpy.ma")
    if masked is not None and isinstance(value, masked.MaskedArray):
        raise BlisgemmTypeError(
            f"{name}: expected a plain array; got a MaskedArray: use numpy.ma.dot, which knows masks"
        )


def refuse_foreign(name: str, value: Any) -> None:
    """Raise for operands that ``numpy.asarray`` would silently strip of their meaning."""
    if type(value) is np.ndarray:
        return
    refuse_masked(name, value)
    override = getattr(type(value), "__array_ufunc__", np.ndarray.__array_ufunc__)
    if override is not np.ndarray.__array_ufunc__:
        raise BlisgemmTypeError(
            f"{name}: expected a NumPy array; got {type(value).__name__}, which overrides NumPy's functions: "
            "blisgemm.matmul calls its own"
        )


def _as_array(name: str, value: Any) -> Array:
    refuse_foreign(name, value)
    return as_numbers(name, value)


def as_numbers(name: str, value: Any) -> Array:
    """Return ``value`` as an ndarray of numbers."""
    try:
        array = np.asarray(value)
    except (ValueError, TypeError) as error:
        raise BlisgemmValueError(f"{name}: expected an array of numbers; got {type(value).__name__}: {error}") from None
    if array.dtype.kind not in "biufcO":
        raise BlisgemmTypeError(f"{name}: expected numbers; got dtype {array.dtype}")
    return array


def _op(name: str, array: Array, trans: Any) -> tuple[Array, bool]:
    """Apply a ``trans_*`` argument: (view, whether it is conjugated)."""
    key = trans if isinstance(trans, str) else bool(trans) if isinstance(trans, (bool, np.bool_)) else None
    if key not in _TRANS or key is None:
        raise BlisgemmValueError(f"trans_{name}: expected False, True, 'N', 'T', 'C' or 'R'; got {trans!r}")
    transposed, conjugated = _TRANS[key]
    if array.ndim < 2:
        raise BlisgemmValueError(
            f"{name}: expected at least 2 dimensions; got shape {array.shape} of {array.dtype} (matmul takes vectors)"
        )
    view = array.swapaxes(-1, -2) if transposed else array
    return view, conjugated and array.dtype.kind == "c"


def loop_dtype(a: Array, b: Array, dtype: Any, casting: str, names: tuple[str, str] = ("a", "b")) -> np.dtype[Any]:
    """Return the dtype in which the sums run: NumPy's promotion, or ``dtype`` if the inputs may be cast to it."""
    if dtype is None and a.dtype is b.dtype and kernel_dtype(a.dtype) is not None:
        return a.dtype
    if dtype is None:
        try:
            wanted = np.result_type(a, b).newbyteorder("=")
        except TypeError:
            raise BlisgemmTypeError(f"{names[1]}: expected a dtype that goes with {a.dtype}; got {b.dtype}") from None
        for name, array in zip(names, (a, b), strict=True):
            if casting in ("no", "equiv") and not np.can_cast(array.dtype, wanted, casting):  # type: ignore[arg-type]
                raise BlisgemmTypeError(
                    f"{name}: expected dtype {wanted}, as casting is {casting!r}; got {array.dtype.str}"
                )
        return wanted
    wanted = _numeric_dtype("dtype", dtype)
    for name, array in zip(names, (a, b), strict=True):
        if not np.can_cast(array.dtype, wanted, casting):  # type: ignore[arg-type]
            raise BlisgemmTypeError(
                f"dtype: expected one that {name} ({array.dtype}) casts to by {casting!r}; got {wanted}"
            )
    return wanted


def _numeric_dtype(name: str, value: Any) -> np.dtype[Any]:
    """Return an argument as a native dtype of numbers."""
    try:
        # a class like numpy.dtypes.Float32DType stands for its dtype
        is_class = isinstance(value, type) and issubclass(value, np.dtype)
        dtype: np.dtype[Any] = value() if is_class else np.dtype(value)
    except TypeError:
        raise BlisgemmTypeError(f"{name}: expected a NumPy dtype; got {value!r}") from None
    if dtype.kind not in "biufcO":
        raise BlisgemmTypeError(f"{name}: expected a dtype of numbers; got {dtype}")
    return dtype.newbyteorder("=")


def sum_dtype(result: np.dtype[Any], acc_dtype: Any) -> np.dtype[Any]:
    """Return the dtype in which ``gemm`` adds: ``acc_dtype``, else float32 for halves, else the result's."""
    if acc_dtype is not None:
        chosen = _numeric_dtype("acc_dtype", acc_dtype)
        if not (np.can_cast(result, chosen, "same_kind") and np.can_cast(chosen, result, "same_kind")):
            raise BlisgemmTypeError(f"acc_dtype: expected one of the kind of the result's {result}; got {chosen}")
        return chosen
    return np.dtype(np.float32) if result == np.float16 else result


def scalar_of(name: str, value: Any, dtype: np.dtype[Any]) -> Any:
    """Return ``value`` as a scalar of ``dtype``.

    Raises:
        BlisgemmTypeError: not a number, or complex where the product is real.
    """
    if type(value) is int or (type(value) is float and dtype.kind in "fc"):
        try:
            with np.errstate(over="ignore"):  # beyond the dtype it is infinite
                return dtype.type(value)
        except OverflowError:
            raise BlisgemmValueError(f"{name}: expected a number that fits {dtype}; got {value!r:.60}") from None
    array = np.asarray(value)
    if array.ndim != 0 or array.dtype.kind not in "biufcO" or not isinstance(array[()], (Number, np.generic)):
        raise BlisgemmTypeError(f"{name}: expected a number; got {value!r}")
    if array.dtype.kind == "c" and dtype.kind != "c":
        raise BlisgemmTypeError(f"{name}: expected a real number for a {dtype} product; got {value!r}")
    if dtype.kind in "biu" and array.dtype.kind == "f" and array != np.floor(array):
        raise BlisgemmTypeError(f"{name}: expected an integer for a {dtype} product; got {value!r}")
    try:  # through Python's int, since NumPy's wrap around silently
        with np.errstate(over="ignore"):
            return dtype.type(int(array[()]) if dtype.kind in "iu" else array[()])
    except (TypeError, ValueError, OverflowError):
        raise BlisgemmTypeError(f"{name}: expected a number that fits {dtype}; got {value!r}") from None


def check_casting(casting: Any) -> None:
    """Raise unless ``casting`` is one of NumPy's rules."""
    if casting not in ("no", "equiv", "safe", "same_kind", "unsafe"):
        raise BlisgemmValueError(f"casting: expected 'no', 'equiv', 'safe', 'same_kind' or 'unsafe'; got {casting!r}")


def check_out(
    out: Any, shape: tuple[int, ...], dtype: np.dtype[Any], casting: str, broadcast: bool = False, core: int = 2
) -> Array:
    """Return ``out`` if a result of ``shape`` and ``dtype`` may be written there.

    ``broadcast``: its leading dimensions (all but the last ``core``) may be larger, as NumPy allows for matmul.
    """
    if not isinstance(out, np.ndarray):
        raise BlisgemmTypeError(f"out: expected an ndarray; got {type(out).__name__}")
    refuse_foreign("out", out)
    if not out.flags.writeable:
        raise BlisgemmValueError("out: expected a writable array; got: output array is read-only")
    if out.shape != shape and not (broadcast and _is_larger(out.shape, shape, core)):
        raise BlisgemmValueError(f"out: expected shape {shape}; got {out.shape}")
    if not np.can_cast(dtype, out.dtype, casting):  # type: ignore[arg-type]
        raise BlisgemmTypeError(f"out: expected a dtype that {dtype} casts to by {casting!r}; got {out.dtype}")
    if (
        out.size
        and not out.flags.c_contiguous
        and any(stride == 0 and extent > 1 for stride, extent in zip(out.strides, out.shape, strict=True))
    ):
        raise BlisgemmValueError("out: expected an array of its own elements; got a broadcast one (zero strides)")
    return out


def _is_larger(shape: tuple[int, ...], needed: tuple[int, ...], core: int) -> bool:
    """Whether a result of shape ``needed`` broadcasts to ``shape`` without touching its core dimensions."""
    split, split_needed = len(shape) - core, len(needed) - core
    if split < split_needed or shape[split:] != needed[split_needed:]:
        return False
    try:
        return broadcast_batch(shape[:split], needed[:split_needed]) == shape[:split]
    except ValueError:
        return False


def _overlaps_itself(array: Array) -> bool:
    """Whether two elements may share bytes (as_strided windows); says yes when in doubt."""
    if array.flags.c_contiguous:
        return False
    reach = array.itemsize
    for stride, extent in sorted((abs(s), e) for s, e in zip(array.strides, array.shape, strict=True) if e > 1):
        if stride < reach:
            return True
        reach += stride * (extent - 1)
    return False


def _readable(name: str, array: Array, dtype: np.dtype[Any], notes: list[str]) -> Array:
    """Return ``array`` in the loop dtype and byte order: itself, or a copy that is noted."""
    if array.dtype == dtype:
        return array
    notes.append(f"{name}: copied from {array.dtype.str} to {dtype.name}")
    return array.astype(dtype)


def fresh_out(a: Array, b: Array, shape: tuple[int, ...], dtype: np.dtype[Any], order: Any) -> Array:
    """Return a new array for the result.

    ``order``: 'C', 'F', 'K' (C), or 'A' (F if both inputs are F and not C).
    """
    word = check_order(order)
    both_f = word == "A" and all(x.flags.f_contiguous and not x.flags.c_contiguous for x in (a, b))
    return np.empty(shape, dtype, order="F" if word == "F" or both_f else "C")


def check_order(order: Any) -> str:
    """Return ``order`` as one of its four letters."""
    word = order.upper() if isinstance(order, str) else "K" if order is None else order
    if word not in ("C", "F", "A", "K"):
        raise BlisgemmValueError(f"order: expected 'C', 'F', 'A' or 'K'; got {order!r}")
    return str(word)


def prepare(
    a: Any, b: Any, c: Any, alpha: Any, beta: Any, out: Any, trans_a: Any, trans_b: Any, dtype: Any,
    acc_dtype: Any, casting: str, order: Any,
) -> Operands:  # fmt: skip
    """Check everything that ``gemm`` was given.

    Raises:
        BlisgemmTypeError, BlisgemmValueError: naming the argument, what was expected and what came.
    """
    check_casting(casting)
    a_view, conj_a = _op("a", _as_array("a", a), trans_a)
    b_view, conj_b = _op("b", _as_array("b", b), trans_b)
    (m, k), n = a_view.shape[-2:], b_view.shape[-1]
    if b_view.shape[-2] != k:
        raise BlisgemmValueError(
            f"b: expected op(b) with {k} rows, as op(a) is {m} x {k}; got {b_view.shape[-2]} x {n}"
        )
    try:
        batch = broadcast_batch(a_view.shape[:-2], b_view.shape[:-2])
    except ValueError:
        raise BlisgemmValueError(
            f"b: expected batch dimensions that broadcast with a's {a_view.shape[:-2]}; got {b_view.shape[:-2]}"
        ) from None
    shape = (*batch, m, n)
    if dtype is None and all(x.dtype in (np.int8, np.uint8) for x in (a_view, b_view)):
        dtype = np.dtype(np.int32) if acc_dtype is None else acc_dtype  # bytes come back as wide as they were summed
    of_result = loop_dtype(a_view, b_view, dtype, casting)
    sums = sum_dtype(of_result, acc_dtype)
    alpha, beta = scalar_of("alpha", alpha, sums), scalar_of("beta", beta, sums)
    c_array = None
    if beta != 0:
        if c is None:
            raise BlisgemmValueError(f"c: expected an array, since beta = {beta}; got None")
        c_array = _as_array("c", c)
    elif c is not None:
        c_array = _as_array("c", c)
    if c_array is not None:
        if not np.can_cast(c_array.dtype, sums, casting):  # type: ignore[arg-type]
            raise BlisgemmTypeError(f"c: expected a dtype that casts to {sums} by {casting!r}; got {c_array.dtype}")
        try:
            fits = broadcast_batch(c_array.shape, shape) == shape
        except ValueError:
            fits = False
        if not fits:
            raise BlisgemmValueError(f"c: expected shape {shape} or one that broadcasts to it; got {c_array.shape}")
    if out is None:
        result = fresh_out(a_view, b_view, shape, of_result, order)
    else:
        check_order(order)
        result = check_out(out, shape, of_result, casting)
    conj = int(conj_a) | int(conj_b) << 1
    fresh = out is None
    plain = product_operands(a_view, b_view, result, sums, fresh=fresh)
    source = None
    if beta != 0 and not (plain.target is result and c_array is not None and _same_memory(c_array, result)):
        source = c_array
    return Operands(plain.a, plain.b, plain.target, result, source, alpha, beta, conj, plain.notes)


def product_operands(a: Array, b: Array, out: Array, sums: np.dtype[Any], *, fresh: bool) -> Operands:
    """Return the operands of ``out := a b``: inputs made readable, a target that nothing else shares.

    Args:
        a, b, out: (..., m, k), (..., k, n), (..., m, n) of broadcasting batch shapes; out's is the product's.
        sums: the loop dtype; fresh: ``out`` was allocated for this call.
    """
    notes: list[str] = []
    batch = out.shape[:-2]
    a_read, b_read = _readable("a", a, sums, notes), _readable("b", b, sums, notes)
    target = out
    if out.dtype != sums:
        target = np.empty(out.shape, sums)
        notes.append(f"out: computed in {sums.name}, then cast to {out.dtype.str}")
    elif not fresh and (_overlaps_itself(out) or np.may_share_memory(out, a_read) or np.may_share_memory(out, b_read)):
        target = np.empty(out.shape, sums)
        notes.append("out: shares memory with an input, so the result is computed aside and copied")
    if a_read.shape[:-2] != batch:
        a_read = np.broadcast_to(a_read, (*batch, *a_read.shape[-2:]))
    if b_read.shape[:-2] != batch:
        b_read = np.broadcast_to(b_read, (*batch, *b_read.shape[-2:]))
    return Operands(a_read, b_read, target, out, None, sums.type(1), sums.type(0), 0, tuple(notes))


def broadcast_batch(x: tuple[int, ...], y: tuple[int, ...]) -> tuple[int, ...]:
    """Return the common batch shape; ValueError if there is none. (NumPy's own stops at 32 dimensions.)"""
    if x == y:
        return x
    longer, shorter = (x, y) if len(x) >= len(y) else (y, x)
    padded = (1,) * (len(longer) - len(shorter)) + shorter
    if any(p != q and 1 not in (p, q) for p, q in zip(longer, padded, strict=True)):
        raise ValueError(f"{x} and {y} don't broadcast")
    return tuple(q if p == 1 else p for p, q in zip(longer, padded, strict=True))


def _same_memory(x: Array, y: Array) -> bool:
    """Whether x and y are the same elements."""
    return x is y or (
        x.dtype == y.dtype and x.shape == y.shape and x.strides == y.strides
        and x.__array_interface__["data"][0] == y.__array_interface__["data"][0]
    )  # fmt: skip


_KERNEL_DTYPES = {np.dtype(name): name for name in SHORT_NAMES}


def kernel_dtype(dtype: np.dtype[Any]) -> str | None:
    """Return the name of a dtype that the library has kernels for, else ``None`` (``dtype.name`` takes 2 us)."""
    return _KERNEL_DTYPES.get(dtype)
