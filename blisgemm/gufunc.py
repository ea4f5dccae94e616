"""The general way of ``matmul``: everything that ``numpy.matmul`` means and the fast lane leaves out.

Knows: gufunc manners (1-d operands, broadcasting, out, axes, subclasses, overrides). Does not know: kernels.
Called by ``api`` only.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from .errors import BlisgemmTypeError, BlisgemmValueError
from .forking import compiling
from .operands import (
    Array,
    Operands,
    as_numbers,
    broadcast_batch,
    check_casting,
    check_order,
    check_out,
    fresh_out,
    kernel_dtype,
    loop_dtype,
    product_operands,
    refuse_masked,
)
from .parallel import get_num_threads

__all__ = ["NOT_GIVEN", "driver", "general_matmul"]

NOT_GIVEN: Any = object()  # ``axes=None`` is an error in NumPy, so None can't stand for it


def general_matmul(x1: Any, x2: Any, out: Any, casting: str, order: str, dtype: Any, subok: bool, axes: Any) -> Any:
    """Return ``x1 @ x2``; see ``api.matmul``."""
    as_array = out is ...  # NumPy's word for: an array, also of no dimensions
    out = None if as_array else _unpacked(out)
    for name, value in (("x1", x1), ("x2", x2), ("out", out)):
        refuse_masked(name, value)
    keywords = {"casting": casting, "order": order, "dtype": dtype, "subok": subok}
    if axes is not NOT_GIVEN:
        keywords["axes"] = axes
    if any(_overrides(value) for value in (x1, x2, out)):
        return np.matmul(x1, x2, **({} if out is None else {"out": out}), **_set_only(keywords))  # type: ignore[call-overload]
    a, b = as_numbers("x1", x1), as_numbers("x2", x2)
    if (a.dtype.kind not in "fc" and b.dtype.kind not in "fc" and dtype is None) or "O" in (a.dtype.kind, b.dtype.kind):
        return np.matmul(x1, x2, out=out, **_set_only(keywords))  # type: ignore[call-overload]
    check_casting(casting)
    for name, array in (("x1", a), ("x2", b)):
        if array.ndim == 0:
            raise BlisgemmValueError(f"{name}: expected at least 1 dimension; got a scalar (multiply with * instead)")
    sums = loop_dtype(a, b, dtype, casting, names=("x1", "x2"))
    if kernel_dtype(sums) is None:
        return np.matmul(x1, x2, out=out, **_set_only(keywords))  # type: ignore[call-overload]
    result = _product(a, b, out, sums, casting, order, axes)
    if out is not None:
        return out
    if result.ndim == 0 and not as_array:
        return result[()]
    return _wrapped(result, (x1, x2)) if subok else result


def _set_only(keywords: dict[str, Any]) -> dict[str, Any]:
    """Leave out what has NumPy's default value: overrides may not know every keyword."""
    defaults = {"casting": "same_kind", "order": "K", "dtype": None, "subok": True}
    return {key: value for key, value in keywords.items() if key not in defaults or value != defaults[key]}


def _unpacked(out: Any) -> Any:
    if not isinstance(out, tuple):
        return out
    if len(out) != 1:
        raise BlisgemmValueError(f"out: expected an array or a tuple of one; got a tuple of {len(out)}")
    return out[0]


def _overrides(value: Any) -> bool:
    """Whether the operand's type wants ``numpy.matmul`` to call its own ``__array_ufunc__``."""
    own = np.ndarray.__array_ufunc__
    return (
        value is not None and type(value) is not np.ndarray and getattr(type(value), "__array_ufunc__", own) is not own
    )


def _product(
    a: Array, b: Array, out: Any, sums: np.dtype[Any], casting: str, order: str, axes: Any
) -> Array:  # fmt: skip
    """Compute into ``out`` or a new array, 1-d axes dropped."""
    a_axes, b_axes, out_axes = _checked_axes(axes, a.ndim == 1, b.ndim == 1)
    a2 = a[np.newaxis, :] if a.ndim == 1 else _moved("x1", a, a_axes)
    b2 = b[:, np.newaxis] if b.ndim == 1 else _moved("x2", b, b_axes)
    (m, k), n = a2.shape[-2:], b2.shape[-1]
    if b2.shape[-2] != k:
        raise BlisgemmValueError(
            f"x2: expected {k} rows, as x1 has {k} columns (shape {a.shape}); got {b2.shape[-2]} (shape {b.shape})"
        )
    try:
        batch = broadcast_batch(a2.shape[:-2], b2.shape[:-2])
    except ValueError:
        raise BlisgemmValueError(
            f"x2: expected leading dimensions that broadcast with x1's {a2.shape[:-2]}; got {b2.shape[:-2]}"
        ) from None
    dropped = ((-2,) if a.ndim == 1 else ()) + ((-1,) if b.ndim == 1 else ())
    core = (() if a.ndim == 1 else (m,)) + (() if b.ndim == 1 else (n,))
    if out is None:
        view = fresh_out(a, b, batch + core, sums, order)
        result = _moved_back(view, out_axes, len(core))
        target = view
    else:
        check_order(order)
        array = _moved("out", out, out_axes) if isinstance(out, np.ndarray) else out
        target = check_out(array, batch + core, sums, casting, broadcast=True, core=len(core))
        result = out
    matrix = np.expand_dims(target, dropped) if dropped else target
    aside = matrix.shape[:-2] != batch
    whole = np.empty((*batch, m, n), sums) if aside else matrix
    _run(product_operands(a2, b2, whole, sums, fresh=out is None or aside))
    if aside:
        np.copyto(matrix, whole, casting="unsafe")
    return result


def _run(operands: Operands) -> None:
    by = driver()
    by.run(by.plan_operands(operands, get_num_threads()), operands)


@cache
def driver() -> Any:
    """Return the module that plans and runs products; the first time that imports Numba, as no fork may see it."""
    with compiling():
        from . import driver as found
        from . import tuning  # noqa: F401  # which plans read

    return found


def _checked_axes(axes: Any, a_is_vector: bool, b_is_vector: bool) -> tuple[Any, Any, Any]:
    """Return the three entries of ``axes`` as tuples, or ``None`` each where it isn't given."""
    if axes is NOT_GIVEN:
        return None, None, None
    wanted = (1 if a_is_vector else 2, 1 if b_is_vector else 2)
    core = wanted[0] + wanted[1] - 2
    if not isinstance(axes, list):
        raise BlisgemmTypeError(f"axes: expected a list of tuples; got {type(axes).__name__}")
    if len(axes) != 3:
        raise BlisgemmValueError(
            f"axes: expected a list with an entry for each of x1, x2 and the result; got {len(axes)}"
        )
    entries: list[Any] = []
    for entry, count in zip(axes, (*wanted, core), strict=False):
        as_tuple = entry if isinstance(entry, tuple) else (entry,)
        if not all(isinstance(x, (int, np.integer)) for x in as_tuple):
            raise BlisgemmTypeError(f"axes: expected integers; got {entry!r}")
        if len(as_tuple) != count:
            raise BlisgemmValueError(f"axes: expected {count} integers for each core dimension; got {entry!r}")
        entries.append(as_tuple)
    return entries[0], entries[1], entries[2]


def _moved(name: str, array: Array, axes: Any) -> Array:
    """Return ``array`` with its core axes last."""
    if axes is None or not axes:
        return array
    try:
        return np.moveaxis(array, axes, range(-len(axes), 0))
    except (ValueError, np.exceptions.AxisError) as error:
        raise BlisgemmValueError(
            f"axes: expected axes that {name} (shape {array.shape}) has; got {axes}: {error}"
        ) from None


def _moved_back(array: Array, axes: Any, core: int) -> Array:
    """Return ``array``, whose core axes are last, with them where ``axes`` wants them."""
    if axes is None or not axes:
        return array
    try:
        return np.moveaxis(array, range(-core, 0), axes)
    except (ValueError, np.exceptions.AxisError) as error:
        raise BlisgemmValueError(
            f"axes: expected axes that the result (shape {array.shape}) has; got {axes}: {error}"
        ) from None


def _wrapped(result: Array, inputs: tuple[Any, ...]) -> Any:
    """Give the result the type of the input subclass with the highest priority, as NumPy does."""
    subclasses = [x for x in inputs if hasattr(x, "__array_wrap__") and type(x) is not np.ndarray]
    if not subclasses:
        return result
    chosen = max(subclasses, key=lambda x: getattr(x, "__array_priority__", 0.0))
    if int(np.__version__.split(".")[0]) < 2:
        return chosen.__array_wrap__(result, None)
    try:
        return chosen.__array_wrap__(result, None, False)
    except TypeError:  # of the form before NumPy 2, which NumPy 2 still tries (torch's is)
        try:
            return chosen.__array_wrap__(result, None)
        except TypeError:
            return chosen.__array_wrap__(result)
