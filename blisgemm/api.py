"""gemm and matmul: what a call means, and the way it takes: prepare, plan, run.

Knows: signatures, docstrings, the fast lane's keys. Does not know: loops, blocks, vectors. Called by people.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from . import operands as _operands
from .errors import BlisgemmTypeError, BlisgemmValueError
from .forking import compiling
from .gufunc import NOT_GIVEN, driver, general_matmul
from .outcome import DECLINED, DONE, EXCHANGE, LANE_BATCH, PLAIN, SPARE_EXTENT, TURN_A, TURN_B, VECTORS
from .parallel import check_threads, get_num_threads
from .plan import Plan, numpy_plan
from .ways import choose_kernel, fast_lane_kc, fast_lane_terms, stack_lane_terms, turned_columns

__all__ = ["explain", "gemm", "matmul"]

_ndarray = np.ndarray
_empty = np.empty


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
        op = 0 if trans_a is trans_b is False else _turned(trans_a, trans_b)
        if op is not None and _is_plain(alpha) and (_is_plain(beta) or (type(beta) in (int, float) and beta == 0)):
            result = _by_lane(a, b, out, c, op, alpha, beta, threads)
            if result is not None:
                return result
    prepared = _operands.prepare(a, b, c, alpha, beta, out, trans_a, trans_b, dtype, acc_dtype, casting, order)
    return _run(prepared, threads or get_num_threads(), plan)


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
    folded = None if plan is not None or prepared.source is not None else _folded_by_lane(a, b, prepared.target, told)
    if folded is not None:
        told["out"] = folded[2]
        prepared = _operands.prepare(folded[0], folded[1], folded[2] if prepared.beta != 0 else None, **told)
        notes = (*notes, f"batch: items follow each other in memory, so they are one A of shape {folded[0].shape}")
    natural = _plan_of(prepared, get_num_threads() if threads is None else check_threads(threads))
    chosen = natural if plan is None else _checked_plan(plan, natural)
    return "\n".join([str(chosen), *(f"note      {note}" for note in notes)])


# ---- the fast lane -----------------------------------------------------------------------------------

# dtype object -> (compiled fast lane, its kernel, kc_max, most terms, most where B crowds L1, spare, routes); from the
# first product of one.
# routes: (key, threads) -> what runs such a product
_lanes: dict[Any, Any] = {}
# likewise for batches: dtype object -> (compiled lane, its kernel, kc_max, most terms of an item, spare)
_stack_lanes: dict[Any, Any] = {}
# Most terms of a batch that the lane does on one thread, holding the GIL: as long as the longest single product.
_STACK_TERMS = 128**3
_MOST_ROUTES = 4096  # as many as ``plan_for`` keeps

# Elements of A times elements of B from which on a product doesn't open a lane, which takes a second or two to compile,
# but goes the general way, whose 30 us hardly show in it. Source: 400 x 400 each, where the general way takes 1.005
# times as long as the lane (256: 1.14, 512: 1.00; f32, Zen 3, busy, 2026-11-30).
_LARGE = 400**4

# Smaller ones that a lane wouldn't do itself, but only pass on to their plan, open it at once where it is in the cache
# folder, and elsewhere when so many have gone the general way: a few don't repay compiling it, and many soon would.
# Source: our choice.
_PATIENCE = 20
_waited: dict[Any, int] = {}  # dtype object -> products that went the general way so far

# Which batches that meet one B are one product: from so many elements of C on, if B is a matrix or a vector, with up to
# so many columns. Times the speed of item after item, 10^4 items of n x n, n = 4, 8, 16, 24, 32: f32 1.3 1.0 1.1 0.9
# 0.8, f64 1.4 1.3 1.0 0.8 0.9; one vector, n = 8, 16, 32: f32 5.1 3.4 1.9, f64 2.6 1.9 1.8; 100 of 4 x 4 0.5, of 16 x
# 16 0.9 to 1.1, and times a vector 1.3 to 1.6, of 4 x 4 level (Zen 3, 2026-11-30).
_FOLDED_SIZE, _FOLDED_VECTOR_SIZE, _FOLDED_COLUMNS = 32 * 1024, 1024, 16

_CONJ_A, _CONJ_B = 1, 2
_OPS_OF_A = {False: 0, "N": 0, True: TURN_A, "T": TURN_A, "C": TURN_A | _CONJ_A, "R": _CONJ_A}
_OPS_OF_B = {False: 0, "N": 0, True: TURN_B, "T": TURN_B, "C": TURN_B | _CONJ_B, "R": _CONJ_B}


def _turned(trans_a: Any, trans_b: Any) -> int | None:
    """Return what the two arguments mean as bits of ``op``; ``None`` if the general way must look at them."""
    if type(trans_a) not in (bool, str) or type(trans_b) not in (bool, str):
        return None
    of_a, of_b = _OPS_OF_A.get(trans_a), _OPS_OF_B.get(trans_b)
    return None if of_a is None or of_b is None else of_a | of_b


def _is_plain(factor: Any) -> bool:
    """Whether alpha or beta is a number of Python's that is neither zero nor infinite in any real dtype."""
    kind = type(factor)
    return (kind is int or kind is float) and (1e-37 < factor < 1e38 or -1e38 < factor < -1e-37)


def _open_lane(x1: Any, x2: Any) -> Any:
    """Return the lane for two operands met for the first time, or ``None`` if they aren't for it."""
    if not (type(x1) is type(x2) is _ndarray and x1.dtype is x2.dtype) or x1.size * x2.size >= _LARGE:
        return None
    name = _operands.kernel_dtype(x1.dtype)
    if name is None:
        return None
    with compiling():
        return _opened(x1, x2, name)


def _opened(x1: Any, x2: Any, name: str) -> Any:
    from .compiled import entry_point, is_kept

    kernel = choose_kernel(name, "direct")[0]
    passed_on = (x1.size * x2.size) ** 3 > fast_lane_terms(name)[0] ** 4  # exact for squares
    if passed_on and not is_kept("fast_lane", kernel):
        _waited[x1.dtype] = _waited.get(x1.dtype, 0) + 1
        if _waited[x1.dtype] < _PATIENCE:
            return None
    routes: dict[tuple[int, int], Any] = {}
    spare = _empty((SPARE_EXTENT, SPARE_EXTENT), x1.dtype)
    limits = (fast_lane_kc(name), *fast_lane_terms(name))
    lane = (entry_point("fast_lane", kernel), kernel, *limits, *turned_columns(name), spare, routes)
    _lanes[x1.dtype] = lane
    return lane


def _by_stack_lane(x1: Any, x2: Any, out: Any, op: int, alpha: Any, beta: Any, threads: int | None) -> Any:
    """Return a small product of batches in ``out``, or ``None``; nothing is written then. As ``_by_lane``."""
    dt = x1.dtype
    lane = _stack_lanes.get(dt)
    if lane is None:
        from .compiled import entry_point

        _, kernel, kc_max, *_, spare, _ = _lanes[dt]
        item_terms = stack_lane_terms(_operands.kernel_dtype(dt))  # type: ignore[arg-type]
        lane = _stack_lanes[dt] = (entry_point("stack_lane", kernel), kernel, kc_max, item_terms, spare)
    code, kernel, kc_max, item_terms, spare = lane
    terms = _STACK_TERMS if (threads or get_num_threads()) == 1 else LANE_BATCH - 1
    state = code(kernel, kc_max, terms, item_terms, spare, x1, x2, out, _ndarray, dt, op, alpha, beta)
    return out if state == DONE else None


def _folded(x1: Any, x2: Any, out: Any, op: int) -> tuple[Any, Any, Any] | None:
    """Return A, B and C of the same product in fewer dimensions, all of them views, or ``None`` to leave it.

    Items that meet one B, and follow each other, are the rows of one A; several leading dimensions are one. No
    element's chain of additions changes, so no bit does.
    """
    if not type(x1) is type(x2) is type(out) is _ndarray:
        return None
    shape1, shape2 = x1.shape, x2.shape
    if len(shape1) == 3 and (len(shape2) > 2 or out.size < (_FOLDED_SIZE if len(shape2) == 2 else _FOLDED_VECTOR_SIZE)):
        return None
    if not (x1.flags.c_contiguous and out.flags.c_contiguous and out.size and x1.size):
        return None
    if len(shape2) < 3:
        n = () if len(shape2) == 1 else (shape2[0 if op & TURN_B else 1],)
        few = not n or n[0] <= _FOLDED_COLUMNS
        if few and not op & TURN_A and out.shape == shape1[:-1] + n:
            return x1.reshape(-1, shape1[-1]), x2, out.reshape(-1, *n)
        if len(shape1) > 3 and len(shape2) == 2 and out.shape[:-2] == shape1[:-2]:
            return x1.reshape(-1, *shape1[-2:]), x2, out.reshape(-1, *out.shape[-2:])
    elif len(shape1) > 3 and shape1[:-2] == shape2[:-2] == out.shape[:-2] and x2.flags.c_contiguous:
        return tuple(x.reshape(-1, *x.shape[-2:]) for x in (x1, x2, out))  # type: ignore[return-value]
    return None


def _folded_by_lane(a: Any, b: Any, out: Any, told: dict[str, Any]) -> tuple[Any, Any, Any] | None:
    """Return what ``_folded`` returns where ``gemm``, told all that, would ask it."""
    op = _turned(told["trans_a"], told["trans_b"])
    plain = told["dtype"] is told["acc_dtype"] is None and told["casting"] == "same_kind" and told["order"] == "K"
    plain = plain and _is_plain(told["alpha"]) and (told["beta"] == 0 or _is_plain(told["beta"]))
    if op is None or not plain or type(a) is not _ndarray or a.ndim < 3 or a.dtype is not getattr(b, "dtype", None):
        return None
    return _folded(a, b, out, op) if out.dtype is a.dtype else None


def _by_lane(x1: Any, x2: Any, out: Any, c: Any, op: int, alpha: Any, beta: Any, threads: int | None) -> Any:
    """Return ``alpha * op(x1) @ op(x2) + beta * c`` if all are plain arrays of one dtype, else ``None``.

    All checks are done in compiled code, and a small product too. Nothing is written if ``None`` comes back.

    Args:
        op: bits of ``outcome``, without EXCHANGE; alpha, beta: Python's numbers, alpha not zero.
    """
    scalar = False
    try:
        dt = x1.dtype
        lane = _lanes.get(dt) or _open_lane(x1, x2)
        if lane is None:
            return None
        code, kernel, kc_max, terms, crowded, near, far, l2_bytes, spare, routes = lane
        if out is None:
            shape1, shape2 = x1.shape, x2.shape
            if len(shape1) == len(shape2) == 2:
                out = _empty((shape1[1 if op & TURN_A else 0], shape2[0 if op & TURN_B else 1]), dt)
            elif len(shape1) < 3 and len(shape2) < 3:
                out = _empty(shape1[:-1] + shape2[1:], dt)
                scalar = not out.shape
            elif len(shape1) < 4 and len(shape2) < 4:
                m = () if len(shape1) == 1 else (shape1[-1 if op & TURN_A else -2],)
                n = () if len(shape2) == 1 else (shape2[-2 if op & TURN_B else -1],)
                out = _empty(max(shape1[-3:-2], shape2[-3:-2]) + m + n, dt)
            elif len(shape1) > 3 and (len(shape2) == 2 or shape1[:-2] == shape2[:-2]):
                m, n = shape1[-1 if op & TURN_A else -2], shape2[-2 if op & TURN_B else -1]
                out = _empty((*shape1[:-2], m, n), dt)
            else:
                return None
        copied = False
        if c is not out and (c is not None or beta != 0):
            if type(c) is not _ndarray or c.dtype is not dt or c.shape != out.shape:
                return None
            copied = beta != 0  # into out, before the product: only once all is checked
        if copied:
            terms = crowded = 0
        state = code(
            kernel, kc_max, terms, crowded, near, far, l2_bytes, spare, x1, x2, out, _ndarray, dt, op, alpha, beta
        )
    except (AttributeError, IndexError, TypeError, ValueError, MemoryError):
        return None  # not arrays, or not of shapes that fit: the general way says so
    if state == DECLINED:
        folded = None if copied or x1.ndim < 3 else _folded(x1, x2, out, op)
        if folded is not None:
            result = _by_lane(*folded, folded[2], op, alpha, beta, threads)
            return None if result is None else out
        of_stack = not copied and (x1.ndim == 3 or x2.ndim == 3)
        return _by_stack_lane(x1, x2, out, op, alpha, beta, threads) if of_stack else None
    if state == PLAIN:
        return None
    if state != DONE:
        key = (state, threads or get_num_threads())
        route = routes.get(key) or _planned(routes, key, dt)
        if copied:
            np.copyto(out, c)
        route(alpha, x1, x2, beta, out, op | (state & EXCHANGE))
    return out[()] if scalar else out


def _planned(routes: Any, key: tuple[int, int], dtype: Any) -> Any:
    """Plan a product that the lane has not met, and keep what runs it."""
    if len(routes) >= _MOST_ROUTES:
        routes.clear()
    route = routes[key] = driver().planned(key[0], _operands.kernel_dtype(dtype), key[1])  # type: ignore[arg-type]
    return route


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
        result = _by_lane(x1, x2, out, None, VECTORS, 1.0, 0.0, None)
        if result is not None:
            return result
    return general_matmul(x1, x2, out, casting, order, dtype, subok, axes)
