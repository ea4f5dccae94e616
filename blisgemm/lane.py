"""The fast lane: plain operands, checked by compiled code, and done there if they are few; what is left goes on by key.

Knows: what is plain, how outputs are made, when a lane is opened, which batches are one product. Does not know: what
arguments mean beyond that (``operands``, ``gufunc``), which path is best (``ways``). Called by ``api``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from . import operands as _operands
from .forking import compiling
from .gufunc import driver
from .lane_limits import fast_lane_kc, fast_lane_terms, stack_lane_terms
from .outcome import DECLINED, DONE, EXCHANGE, PLAIN, TURN_A, TURN_B
from .parallel import get_num_threads
from .rules import LANE_BATCH, SPARE_EXTENT
from .table import new_table
from .ways import choose_kernel, narrow_limits, turned_columns

__all__ = ["by_lane", "folded_by_lane", "forget_lanes", "is_plain", "lane_of", "planned", "turned"]

_ndarray = np.ndarray
_empty = np.empty

# dtype object -> (compiled fast lane, its kernel, table, table where it may only check, spare, routes); from the first
# product of one. routes: (key, threads) -> what runs such a product
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


def turned(trans_a: Any, trans_b: Any) -> int | None:
    """Return what the two arguments mean as bits of ``op``; ``None`` if the general way must look at them."""
    if type(trans_a) not in (bool, str) or type(trans_b) not in (bool, str):
        return None
    of_a, of_b = _OPS_OF_A.get(trans_a), _OPS_OF_B.get(trans_b)
    return None if of_a is None or of_b is None else of_a | of_b


def is_plain(factor: Any) -> bool:
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
    get_num_threads()  # a setting that makes no sense is an error of the first product, not of the first large one
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
    few = (*turned_columns(name), *narrow_limits(name))
    table, checks_only = (new_table(fast_lane_kc(name), *terms, *few) for terms in (fast_lane_terms(name), (0, 0)))
    lane = (entry_point("fast_lane", kernel), kernel, table, checks_only, spare, routes)
    _lanes[x1.dtype] = lane
    return lane


def _by_stack_lane(
    lane_of_two: Any, x1: Any, x2: Any, out: Any, op: int, alpha: Any, beta: Any, threads: int | None
) -> Any:
    """Return a small product of batches in ``out``, or ``None``; nothing is written then. As ``by_lane``."""
    dt = x1.dtype
    lane = _stack_lanes.get(dt)
    if lane is None:
        from .compiled import entry_point

        _, kernel, table, _, spare, _ = lane_of_two
        kc_max = int(table[0])
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


def folded_by_lane(a: Any, b: Any, out: Any, told: dict[str, Any]) -> tuple[Any, Any, Any] | None:
    """Return what ``_folded`` returns where ``gemm``, told all that, would ask it."""
    op = turned(told["trans_a"], told["trans_b"])
    plain = told["dtype"] is told["acc_dtype"] is None and told["casting"] == "same_kind" and told["order"] == "K"
    plain = plain and is_plain(told["alpha"]) and (told["beta"] == 0 or is_plain(told["beta"]))
    if op is None or not plain or type(a) is not _ndarray or a.ndim < 3 or a.dtype is not getattr(b, "dtype", None):
        return None
    return _folded(a, b, out, op) if out.dtype is a.dtype else None


def by_lane(x1: Any, x2: Any, out: Any, c: Any, op: int, alpha: Any, beta: Any, threads: int | None) -> Any:
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
        code, kernel, table, checks_only, spare, routes = lane
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
        state = code(kernel, checks_only if copied else table, spare, x1, x2, out, _ndarray, dt, op, alpha, beta)
    except (AttributeError, IndexError, TypeError, ValueError, MemoryError):
        return None  # not arrays, or not of shapes that fit: the general way says so
    if state == DECLINED:
        if not type(x1) is type(x2) is type(out) is _ndarray:
            return None
        folded = None if copied or x1.ndim < 3 else _folded(x1, x2, out, op)
        if folded is not None:
            result = by_lane(*folded, folded[2], op, alpha, beta, threads)
            return None if result is None else out
        of_stack = not copied and (x1.ndim == 3 or x2.ndim == 3)
        return _by_stack_lane(lane, x1, x2, out, op, alpha, beta, threads) if of_stack else None
    if state == PLAIN:
        return None
    if state != DONE:
        key = (state, threads or get_num_threads())
        route = routes.get(key) or planned(lane, key, dt)
        if copied:
            np.copyto(out, c)
        route(alpha, x1, x2, beta, out, op | (state & EXCHANGE))
    return out[()] if scalar else out


def planned(lane: Any, key: tuple[int, int], dtype: Any) -> Any:
    """Plan a product that the lane has not met, and keep what runs it."""
    *_, table, _, _, routes = lane
    if len(routes) >= _MOST_ROUTES:
        routes.clear()
    name = _operands.kernel_dtype(dtype)
    route = routes[key] = driver().planned(key[0], name, key[1], table)
    return route


def lane_of(dtype: Any) -> Any:
    """Return the lane of a dtype object that has had a product, as it is kept."""
    return _lanes[dtype]


def forget_lanes() -> None:
    """Close all lanes, with all that they have planned: for tests that change what plans are made from."""
    _lanes.clear()
    _stack_lanes.clear()
