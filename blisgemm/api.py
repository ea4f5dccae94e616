"""gemm and matmul: what a call means, and the way it takes: prepare, plan, run.

Knows: signatures, docstrings, the order of the ways. Does not know: what the lane does, loops, blocks, vectors. Called
by people.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from . import operands as _operands
from .errors import BlisgemmTypeError, BlisgemmValueError
from .gufunc import NOT_GIVEN, driver, general_matmul
from .lane import by_lane, folded_by_lane, is_plain, turned
from .outcome import VECTORS
from .parallel import check_threads, get_num_threads
from .plan import Plan, numpy_plan
from .ways import runnable

__all__ = ["explain", "gemm", "matmul"]


def gemm(
    a: Any, b: Any, c: Any = None, *, alpha: Any = 1, beta: Any = 0, out: Any = None, trans_a: Any = False,
    trans_b: Any = False, dtype: Any = None, acc_dtype: Any = None, casting: str = "same_kind", order: str = "K",
    epilogue: Any = None, threads: int | None = None, plan: Plan | None = None,
) -> Any:  # fmt: skip
    """Return ``alpha * op(a) @ op(b) + beta * c``.

    **int8 and uint8 operands are summed in, and returned as, int32** (``matmul`` keeps NumPy's wrap-around in the
    inputs' width). float16 operands are summed in float32 and rounded once.

    Args:
        a: array of shape (..., m, k), or (..., k, m) if transposed.
        b: array of shape (..., k, n), or (..., n, k) if transposed.
        c: array that broadcasts to (..., m, n); needed, and read, only if beta isn't 0. It is not changed unless
            it is ``out`` too.
        alpha, beta: numbers; real unless the product is complex. beta is 0 unless given.
        out: array of shape (..., m, n) to write, any strides; may be ``c`` (update in place) and may share memory
            with an input. ``None``: a new array.
        trans_a, trans_b: False or 'N'; True or 'T' (transpose); 'C' (conjugate transpose); 'R' (conjugate only).
        dtype: element type of the result; default: NumPy's promotion of a and b.
        acc_dtype: element type of the sums; default: the result's, see above.
        casting: NumPy's casting rule, for the inputs to ``dtype`` and the result to ``out``.
        order: memory order of a new result: 'C', 'F', 'A' or 'K' (= C).
        epilogue: reserved for fused epilogues; only None is accepted.
        threads: at most so many, in place of ``get_num_threads()``.
        plan: run this plan (``make_plan``) in place of the library's own choice.

    Returns:
        The result array; ``out`` if that was given.

    Raises:
        BlisgemmValueError (a ValueError), BlisgemmTypeError (a TypeError): naming the argument, what was expected
            and what came. Nothing has been written then.

    Zero rules: alpha = 0 doesn't read a and b; beta = 0 doesn't read c and out; k = 0 gives beta * c; no zero
    element is skipped, so 0 * NaN is NaN.

    Rounding: each element is one chain of fused multiply-adds over p ascending, in blocks of kc(dtype, k); the first
    block gives ``alpha*s`` or ``fma(alpha, s, beta*c)``, later ones ``fma(alpha, s, c)``. The bits are the same
    on every machine with fma, for every layout and number of threads.

    Example:
        >>> import numpy as np, blisgemm
        >>> a = np.arange(6.0).reshape(2, 3)
        >>> blisgemm.gemm(a, a, trans_b=True, alpha=2.0)
        array([[ 10.,  28.],
               [ 28., 100.]])
    """
    if epilogue is not None:
        raise BlisgemmTypeError(f"epilogue: expected None (fused epilogues aren't there yet); got {epilogue!r}")
    if threads is not None:
        threads = check_threads(threads)
    if plan is dtype is acc_dtype is None and order == "K" and casting == "same_kind":
        op = 0 if trans_a is trans_b is False else turned(trans_a, trans_b)
        by_default = type(alpha) is type(beta) is int and alpha == 1 and beta == 0
        if op is not None and (by_default or (is_plain(alpha) and (is_plain(beta) or _is_zero(beta)))):
            result = by_lane(a, b, out, c, op, alpha, beta, threads)
            if result is not None:
                return result
    prepared = _operands.prepare(a, b, c, alpha, beta, out, trans_a, trans_b, dtype, acc_dtype, casting, order)
    return _run(prepared, threads or get_num_threads(), plan)


def _is_zero(factor: Any) -> bool:
    return type(factor) in (int, float) and bool(factor == 0)


def _run(prepared: _operands.Operands, limit: int, plan: Plan | None) -> Any:
    chosen = _plan_of(prepared, limit)
    if plan is not None:
        chosen = _checked_plan(plan, chosen)
    if chosen.path == "numpy":
        return _by_numpy(prepared)
    return driver().run(chosen, prepared)


def _plan_of(prepared: _operands.Operands, limit: int) -> Plan:
    m, n, k = prepared.extents
    dtype = prepared.target.dtype
    if _operands.kernel_dtype(dtype) is None:
        return numpy_plan(m, n, k, dtype.name, f"dtype: {dtype.name} has no kernel yet, so NumPy multiplies it")
    plan: Plan = driver().plan_operands(prepared, limit)
    return plan


def _checked_plan(plan: Any, natural: Plan) -> Plan:
    if not isinstance(plan, Plan):
        raise BlisgemmTypeError(f"plan: expected a Plan from make_plan; got {type(plan).__name__}")
    wanted, came = (natural.m, natural.n, natural.dtype), (plan.m, plan.n, plan.dtype)
    if natural.path in ("scale", "empty", "numpy"):
        return natural  # nothing that a plan could choose
    if wanted != came or plan.k != natural.k:
        raise BlisgemmValueError(
            f"plan: expected one for m, n, k = {natural.m}, {natural.n}, {natural.k} in {natural.dtype}; "
            f"got one for {plan.m}, {plan.n}, {plan.k} in {plan.dtype}"
        )
    if plan.path in ("scale", "empty", "numpy") or plan.kernel is None or plan.blocking is None:
        raise BlisgemmValueError(
            f"plan: expected one with a kernel and blocks for this product; got the {plan.path} path"
        )
    if plan.kernel.acc_dtype != plan.dtype:
        raise BlisgemmValueError(f"plan: expected a kernel for {plan.dtype}; got {plan.kernel.name}")
    runnable(plan.kernel)  # the plan may come from another machine
    return plan


def _by_numpy(prepared: _operands.Operands) -> Any:
    """Compute the same formula with NumPy, under the same zero rules; the dtype has no kernel."""
    p = prepared
    target = p.target
    if p.source is not None:
        np.copyto(target, p.source, casting="unsafe")
    if p.alpha == 0 or p.extents[2] == 0:
        if p.beta == 0:
            target[...] = 0
        else:
            np.multiply(target, p.beta, out=target)
    else:
        a = p.a.conj() if p.conj & 1 else p.a
        b = p.b.conj() if p.conj & 2 else p.b
        product = np.matmul(a, b)
        if p.alpha != 1:
            product = product * p.alpha
        target[...] = product if p.beta == 0 else product + target * p.beta
    if p.out is not target:
        np.copyto(p.out, target, casting="unsafe")
    return p.out


def explain(a: Any, b: Any, c: Any = None, **keywords: Any) -> str:
    """Return, in words, the plan that ``gemm(a, b, c, **keywords)`` would run; nothing is computed.

    Args, Raises: as ``gemm``.

    Example:
        >>> import numpy as np, blisgemm
        >>> print(blisgemm.explain(np.ones((3, 4)), np.ones((4, 5))).splitlines()[1])
        path      direct
    """
    if keywords.pop("epilogue", None) is not None:
        raise BlisgemmTypeError("epilogue: expected None (fused epilogues aren't there yet)")
    allowed = {
        "alpha",
        "beta",
        "out",
        "trans_a",
        "trans_b",
        "dtype",
        "acc_dtype",
        "casting",
        "order",
        "threads",
        "plan",
    }
    unknown = sorted(set(keywords) - allowed)
    if unknown:
        raise BlisgemmTypeError(f"{unknown[0]}: expected one of gemm's keywords; got an unknown one")
    threads, plan = keywords.pop("threads", None), keywords.pop("plan", None)
    defaults: dict[str, Any] = {"alpha": 1, "beta": 0, "out": None, "trans_a": False, "trans_b": False, "dtype": None}
    defaults |= {"acc_dtype": None, "casting": "same_kind", "order": "K"}
    prepared = _operands.prepare(a, b, c, **{**defaults, **keywords})
    notes, told = prepared.notes, {**defaults, **keywords}
    folded = None if plan is not None or prepared.source is not None else folded_by_lane(a, b, prepared.target, told)
    if folded is not None:
        told["out"] = folded[2]
        prepared = _operands.prepare(folded[0], folded[1], folded[2] if prepared.beta != 0 else None, **told)
        notes = (*notes, f"batch: items follow each other in memory, so they are one A of shape {folded[0].shape}")
    natural = _plan_of(prepared, get_num_threads() if threads is None else check_threads(threads))
    chosen = natural if plan is None else _checked_plan(plan, natural)
    return "\n".join([str(chosen), *(f"note      {note}" for note in notes)])


# ---- matmul ------------------------------------------------------------------------------------------


def matmul(
    x1: Any, x2: Any, /, out: Any = None, *, casting: str = "same_kind", order: str = "K", dtype: Any = None,
    subok: bool = True, axes: Any = NOT_GIVEN,
) -> Any:  # fmt: skip
    """Return the matrix product of two arrays, as ``numpy.matmul`` defines it.

    **Integers wrap around in the width of the inputs, as in NumPy** (``gemm`` sums bytes in int32).

    Args:
        x1, x2: arrays of at least 1 dimension; 1-d operands are a row (x1) or a column (x2) and that axis is
            dropped again; leading dimensions broadcast.
        out: array for the result, or a tuple of one; it may be larger by broadcasting, of any strides, and may share
            memory with the inputs.
        casting, order, dtype, subok, axes: as ``numpy.matmul`` takes them.

    Returns:
        A new array (a scalar for 1-d times 1-d), or ``out``.

    Raises:
        ValueError, TypeError: where NumPy raises them; nothing has been written then.

    Operands with an ``__array_ufunc__`` of their own get that called. Types without a kernel (integers, bool,
    float16, longdouble, object) are multiplied by NumPy itself.

    Example:
        >>> import numpy as np, blisgemm
        >>> blisgemm.matmul(np.ones((2, 3), np.float32), np.ones(3, np.float32))
        array([3., 3.], dtype=float32)
    """
    if axes is NOT_GIVEN and dtype is None and order == "K" and casting == "same_kind":
        result = by_lane(x1, x2, out, None, VECTORS, 1.0, 0.0, None)
        if result is not None:
            return result
    return general_matmul(x1, x2, out, casting, order, dtype, subok, axes)
