"""Run a plan on operands: buffers, threads, one compiled call.

Knows: which compiled function a path is, and how a batch is walked. Does not know: how a plan is chosen or what
arguments may be. Called by ``api``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from .compiled import code_address, entry_point, real_dtype
from .errors import BlisgemmValueError
from .operands import Operands, kernel_dtype
from .outcome import CONJ_BOTH, EXCHANGE, read_key
from .parallel import ALONE, Team, in_region
from .plan import ONE_THREAD_TERMS, PASSING, Plan, plan_for
from .rules import A_CROWDED_BYTES, CROWDED_BYTES, is_swapped
from .table import Table, enter
from .ways import wants_turn
from .workspace import borrow, give_back

__all__ = ["plan_operands", "planned", "route_of", "run"]

Array = np.ndarray[Any, Any]

# Bytes of operands up to which the lane calls a product itself: those 100 us hold the GIL. Source: our choice.
NEAR_BYTES = 1024 * 1024

# What runs a plan: called with (alpha, a, b, beta, c, op), operands checked, op as ``outcome`` says it.
Route = Callable[[Any, Array, Array, Any, Array, int], None]


def plan_operands(operands: Operands, threads: int) -> Plan:
    """Return the plan for checked operands as they lie in memory."""
    m, n, k = operands.extents
    batch = math.prod(operands.target.shape[:-2])
    nothing = operands.alpha == 0 and m and n and batch and k
    a, b = operands.a, operands.b
    swapped = _is_swapped(operands.target)
    if _may_turn(a, b, operands.target, swapped):
        swapped = not swapped
    if swapped:
        a, b = b.swapaxes(-1, -2), a.swapaxes(-1, -2)
    dtype = kernel_dtype(operands.target.dtype)
    if nothing:
        plan = plan_for(m, n, 0, dtype, threads, _access(b), swapped, batch=batch, a_rows=_has_rows(a))
        return replace(plan, k=k, reasons=("path: alpha = 0, so A and B are not read, and the result is beta * C",))
    crowded = a.strides[-2] % A_CROWDED_BYTES == 0
    return plan_for(
        m, n, k, dtype, threads, _access(b), swapped, batch=batch, a_rows=_has_rows(a), a_crowded=crowded
    )  # fmt: skip


def _has_rows(a: Array) -> bool:
    """Whether A's rows are contiguous."""
    return bool(a.strides[-1] == a.itemsize or a.shape[-1] == 1)


def _access(b: Array) -> str:
    """Return how B lies, as a word of ``outcome.ACCESSES``."""
    if b.strides[-1] == b.itemsize or b.shape[-1] == 1:
        return "crowded" if b.strides[-2] % CROWDED_BYTES == 0 and b.shape[-2] > 1 else "rows"
    if b.ndim == 2 and (b.strides[0] == b.itemsize or b.shape[0] == 1):
        return "columns"
    return "general"


def _is_swapped(c: Array) -> bool:
    m, n = c.shape[-2:]
    return is_swapped(m, n, c.strides[-2] == c.itemsize, c.strides[-1] == c.itemsize)


def _may_turn(a: Array, b: Array, c: Array, swapped: bool) -> bool:
    dtype = kernel_dtype(c.dtype)
    if c.ndim != 2 or dtype is None:
        return False
    (m, k), n = a.shape, b.shape[1]
    a_rows, b_columns = a.strides[1] == a.itemsize, b.strides[0] == b.itemsize
    return wants_turn(m, n, k, dtype, swapped=swapped, a_rows=a_rows, b_columns=b_columns)


def run(plan: Plan, operands: Operands) -> Array:
    """Compute ``operands.out`` by ``plan`` and return it."""
    a, b, c, op = operands.a, operands.b, operands.target, operands.conj
    target = c
    swapped = _is_swapped(c)  # C' = B' A': the same bits, and the same loops
    if plan.swapped != swapped and _may_turn(a, b, c, swapped):
        swapped = plan.swapped
    if swapped and c.ndim == 2:
        op |= EXCHANGE
    elif swapped:
        a, b, c = b.swapaxes(-1, -2), a.swapaxes(-1, -2), c.swapaxes(-1, -2)
        op = (op >> 1 | op << 1) & CONJ_BOTH
    if plan.path in ("direct", *PASSING):
        access = _access(a.T if op & EXCHANGE else b).replace("crowded", "rows")
        if plan.access not in (access, "copied"):
            raise BlisgemmValueError(
                f"plan: expected a plan whose path fits these operands; got the {plan.path} path by {plan.access} of "
                f"{'op(A) transposed' if swapped else 'op(B)'}, which don't have unit stride"
            )
    if plan.half and not _has_rows(b.T if op & EXCHANGE else a):
        raise BlisgemmValueError(
            "plan: expected one that fits these operands; got one that reads A as it lies, but the rows of "
            f"{'op(B) transposed' if swapped else 'op(A)'} are not contiguous"
        )
    # its buffer holds the sums of other rows, or copies of another operand
    if (plan.path in PASSING or plan.access == "copied") and plan.swapped != swapped:
        other = "copies are of the other operand" if plan.access == "copied" else f"{plan.path} path has other rows"
        raise BlisgemmValueError(
            f"plan: expected one for C {'by columns' if swapped else 'by rows'}; got one for C "
            f"{'by columns' if plan.swapped else 'by rows'}, whose {other}"
        )
    if operands.source is not None:
        np.copyto(target, operands.source, casting="unsafe")  # checked against the caller's rule before
    if plan.path == "scale":
        _scale(target, operands.beta)
    elif plan.path != "empty":
        _run_stack(plan, a, b, c, operands.alpha, operands.beta, op)
    if operands.out is not target:
        np.copyto(operands.out, target, casting="unsafe")
    return operands.out


def planned(key: int, dtype: str, threads: int, table: Table) -> Route:
    """Return what runs the product that a key of the fast lane tells of.

    What is worth one thread only and needs no buffers, the lane may call itself from then on, holding the GIL.
    """
    m, n, k, access, op, a_rows, a_crowded = read_key(key)
    plan = plan_for(m, n, k, dtype, threads, access, bool(op & EXCHANGE), a_rows=a_rows, a_crowded=a_crowded)
    if plan.path == "direct" and plan.access != "copied" and m * n * k <= ONE_THREAD_TERMS:
        name, (kernel, kc, rows_first, _), _ = _entry(plan, False)
        small = m * n * k * kernel.chains <= ONE_THREAD_TERMS
        if small and (m * k + k * n + m * n) * kernel.itemsize <= NEAR_BYTES:
            enter(table, key, code_address(name, kernel), kc, rows_first)
    return route_of(plan)


def _scale(c: Array, beta: Any) -> None:
    """Compute ``c := beta * c`` without reading c when beta is zero; a real beta scales re and im apart."""
    if beta == 0:
        c[...] = 0
    elif c.dtype.kind == "c" and beta.imag == 0:
        for part in (c.real, c.imag):
            np.multiply(part, beta.real, out=part)
    else:
        np.multiply(c, beta, out=c)


def _run_stack(plan: Plan, a: Array, b: Array, c: Array, alpha: Any, beta: Any, op: int) -> None:
    """Run every product of the batch: as one compiled loop over items, or item by item where each is worth threads."""
    if c.ndim == 2:
        _run_matrix(plan, a, b, c, alpha, beta, op)
        return
    if plan.path in PASSING or (plan.path == "packed" and plan.batch_ways == 1 and plan.threads > 1):
        for index in np.ndindex(c.shape[:-2]):
            _run_matrix(plan, a[index], b[index], c[index], alpha, beta, op)
        return
    stack = route_of(plan, of_stack=True)
    for a3, b3, c3 in _stacks(a, b, c):
        stack(alpha, a3, b3, beta, c3, op)


def _stacks(a: Array, b: Array, c: Array) -> Any:
    """Yield the batch as 3-D views: one if its dimensions collapse, else one per leading index."""
    if c.ndim > 3:
        views = [_collapsed(x) for x in (a, b, c)]
        if any(view is None for view in views):
            for index in np.ndindex(c.shape[:1]):
                yield from _stacks(a[index], b[index], c[index])
            return
        a, b, c = (view for view in views if view is not None)
    yield a, b, c


def _collapsed(x: Array) -> Array | None:
    """Return ``x`` with its batch dimensions as one, or ``None`` where that takes a copy."""
    extents = [(e, s) for e, s in zip(x.shape[:-2], x.strides[:-2], strict=True) if e != 1]
    for (_, outer), (extent, inner) in pairwise(extents):
        if outer != extent * inner:
            return None
    items, stride = int(np.prod(x.shape[:-2])), extents[-1][1] if extents else 0
    return np.lib.stride_tricks.as_strided(x, (items, *x.shape[-2:]), (stride, *x.strides[-2:]))


def _run_matrix(plan: Plan, a: Array, b: Array, c: Array, alpha: Any, beta: Any, op: int) -> None:
    route_of(plan)(alpha, a, b, beta, c, op)


# (identity of a plan, whether for a stack) -> (the plan, kept so that its identity stays its own, what runs it)
_routes: dict[tuple[int, bool], tuple[Plan, Route]] = {}
_MOST_ROUTES = 4096  # as many as ``plan_for`` keeps


def route_of(plan: Plan, *, of_stack: bool = False) -> Route:
    """Return what runs ``plan`` on three checked matrices, or on three 3-D arrays of them; made once per plan."""
    key = (id(plan), of_stack)
    found = _routes.get(key)
    if found is not None:
        return found[1]
    route = _made_route(plan, of_stack)
    if len(_routes) >= _MOST_ROUTES:
        _routes.clear()
    _routes[key] = (plan, route)
    return route


def _made_route(plan: Plan, of_stack: bool) -> Route:
    kernel = plan.kernel
    assert kernel is not None
    name, head, shapes = _entry(plan, of_stack)
    of_buffers = np.dtype(kernel.acc_dtype) if plan.access == "copied" else real_dtype(kernel)
    buffers = (shapes, of_buffers) if shapes else None
    threads = plan.batch_ways if of_stack else plan.threads
    code = entry_point(name, kernel)

    def serial(alpha: Any, a: Array, b: Array, beta: Any, c: Array, op: int, team: Team = ALONE) -> None:
        if buffers is None:
            code(*head, alpha, a, b, beta, c, op, team)
            return
        piece = borrow(buffers)
        try:
            code(*head, alpha, a, b, beta, c, op, *piece.arrays, team)
        finally:
            give_back(piece)

    def parallel(alpha: Any, a: Array, b: Array, beta: Any, c: Array, op: int) -> None:
        in_region(threads, lambda team: serial(alpha, a, b, beta, c, op, team))

    return parallel if threads > 1 else serial


def _entry(plan: Plan, of_stack: bool) -> tuple[str, tuple[Any, ...], tuple[tuple[int, ...], ...]]:
    """Return the name of the plan's entry point, its arguments before alpha, and the shapes of its buffers."""
    kernel, blocking = plan.kernel, plan.blocking
    assert kernel is not None and blocking is not None
    ways: Any = plan.batch_ways if of_stack else (plan.ic_ways, plan.jr_ways)
    if plan.path == "direct" and of_stack and plan.access == "copied":
        return "run_batch_copied", (kernel, blocking.kc, ways), (plan.copies_shape,)
    if plan.path == "direct" and of_stack:
        return "run_batch_direct", (kernel, blocking.kc, ways), ()
    if plan.path == "direct" and plan.access == "copied":
        return "run_copied", (kernel, blocking.kc), (plan.copies_shape,)
    if plan.path == "direct":
        name = "run_direct" if plan.access == "rows" else "run_columns"
        return name, (kernel, blocking.kc, plan.rows_first, ways), ()
    if plan.path in PASSING:
        return f"run_{plan.path}", (kernel, blocking.kc, plan.step, plan.jr_ways), plan.waiting_shapes
    head = (kernel, (blocking.mc, blocking.nc, blocking.kc, blocking.mt))
    access = "half" if plan.half else "packed"
    if not of_stack:
        return f"run_{access}{'_together' if plan.ic_ways > 1 else ''}", head, plan.packed_shapes
    return f"run_batch_{access}", (*head, plan.batch_ways), plan.packed_shapes
