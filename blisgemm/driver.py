"""Run a plan on operands: buffers, threads, one compiled call.

Knows: which compiled function a path is, and how a batch is walked. Does not know: how a plan is chosen or what
arguments may be. Called by ``api``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from .compiled import entry_point, real_dtype
from .errors import BlisgemmValueError
from .operands import Operands, kernel_dtype
from .parallel import region
from .plan import Plan, plan_for, wants_swap
from .workspace import borrow

__all__ = ["plan_operands", "run", "run_plain"]

Array = np.ndarray[Any, Any]


def plan_operands(operands: Operands, threads: int) -> Plan:
    """Return the plan for checked operands as they lie in memory."""
    m, n, k = operands.extents
    batch = math.prod(operands.target.shape[:-2])
    if operands.alpha == 0 and m and n and batch:
        k = 0  # A and B are not read
    swapped = _is_swapped(operands.target)
    b = operands.a.swapaxes(-1, -2) if swapped else operands.b
    return plan_for(m, n, k, kernel_dtype(operands.target.dtype), threads, _access(b), swapped, batch=batch)


def _access(b: Array) -> str:
    """Return how B lies: by ``rows`` or ``columns`` of unit stride, or ``general``."""
    if b.strides[-1] == b.itemsize or b.shape[-1] == 1:
        return "rows"
    if b.ndim == 2 and (b.strides[0] == b.itemsize or b.shape[0] == 1):
        return "columns"
    return "general"


def _is_swapped(c: Array) -> bool:
    m, n = c.shape[-2:]
    return wants_swap(m, n, unit_row=c.strides[-2] == c.itemsize, unit_column=c.strides[-1] == c.itemsize)


def run(plan: Plan, operands: Operands) -> Array:
    """Compute ``operands.out`` by ``plan`` and return it."""
    a, b, c, conj = operands.a, operands.b, operands.target, operands.conj
    target = c
    if _is_swapped(c):  # C' = B' A': the same bits, and the same loops
        a, b, c = b.swapaxes(-1, -2), a.swapaxes(-1, -2), c.swapaxes(-1, -2)
        conj = (conj >> 1 | conj << 1) & 3
    if b.shape[-1] == 1 and b.strides[-1] != b.itemsize:
        # one column: any stride will do, and this one lets the direct path read it
        b = np.lib.stride_tricks.as_strided(b, strides=(*b.strides[:-1], b.itemsize))
    if plan.path in ("direct", "stream", "sweep") and plan.access != _access(b):
        raise BlisgemmValueError(
            f"plan: expected a plan whose path fits these operands; got the {plan.path} path by {plan.access} of "
            f"{'op(A) transposed' if c is not target else 'op(B)'}, which don't have unit stride"
        )
    if operands.source is not None:
        np.copyto(target, operands.source, casting="unsafe")  # checked against the caller's rule before
    if plan.path == "scale":
        _scale(target, operands.beta)
    elif plan.path != "empty":
        _run_stack(plan, a, b, c, operands.alpha, operands.beta, conj)
    if operands.out is not target:
        np.copyto(operands.out, target, casting="unsafe")
    return operands.out


def run_plain(a: Array, b: Array, out: Array, dtype: str, threads: int) -> None:
    """Compute ``out[:] = a @ b`` for matrices that the fast lane found plain: checked, not overlapping."""
    plan = plan_for(a.shape[0], b.shape[1], a.shape[1], dtype, threads, _access(b))
    kernel = plan.kernel
    assert kernel is not None
    _run_matrix(plan, a, b, out, kernel.one, kernel.zero, 0)


def _scale(c: Array, beta: Any) -> None:
    """Compute ``c := beta * c`` without reading c when beta is zero; a real beta scales re and im apart."""
    if beta == 0:
        c[...] = 0
    elif c.dtype.kind == "c" and beta.imag == 0:
        for part in (c.real, c.imag):
            np.multiply(part, beta.real, out=part)
    else:
        np.multiply(c, beta, out=c)


def _run_stack(plan: Plan, a: Array, b: Array, c: Array, alpha: Any, beta: Any, conj: int) -> None:
    """Run every product of the batch: matrix by matrix, or as one compiled loop over items."""
    if c.ndim == 2:
        _run_matrix(plan, a, b, c, alpha, beta, conj)
        return
    if plan.path in ("stream", "sweep") or (plan.batch_ways == 1 and plan.path == "packed"):
        for index in np.ndindex(c.shape[:-2]):
            _run_matrix(plan, a[index], b[index], c[index], alpha, beta, conj)
        return
    for a3, b3, c3 in _stacks(a, b, c):
        if plan.path == "direct":
            _run_batch_direct(plan, a3, b3, c3, alpha, beta, conj)
        else:
            _run_batch_packed(plan, a3, b3, c3, alpha, beta, conj)


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


def _run_matrix(plan: Plan, a: Array, b: Array, c: Array, alpha: Any, beta: Any, conj: int) -> None:
    kernel, blocking = plan.kernel, plan.blocking
    assert kernel is not None and blocking is not None
    if plan.path == "direct":
        with region(plan.threads) as threads:
            code = _serial_or_parallel("run_direct" if plan.access == "rows" else "run_columns", kernel, threads)
            code(kernel, blocking.kc, plan.rows_first, (plan.ic_ways, plan.jr_ways), alpha, a, b, beta, c, conj)
        return
    if plan.path in ("stream", "sweep"):
        with region(plan.threads) as threads, borrow(plan.sums_shape, (0,), real_dtype(kernel)) as (sums, _):
            code = _serial_or_parallel(f"run_{plan.path}", kernel, threads)
            code(kernel, blocking.kc, plan.step, plan.jr_ways, alpha, a, b, beta, c, conj, sums)
        return
    a_shape, b_shape = plan.packed_shapes
    with region(plan.threads) as threads, borrow(a_shape, b_shape, real_dtype(kernel)) as (a_pack, b_pack):
        code = _serial_or_parallel("run_packed", kernel, threads)
        code(
            kernel, (blocking.mc, blocking.nc, blocking.kc), plan.rows_first, (plan.ic_ways, plan.jr_ways),
            alpha, a, b, beta, c, conj, a_pack, b_pack,
        )  # fmt: skip


def _serial_or_parallel(name: str, kernel: Any, threads: int) -> Callable[..., Any]:
    return entry_point(name if threads == 1 else f"{name}_parallel", kernel)


def _run_batch_direct(plan: Plan, a: Array, b: Array, c: Array, alpha: Any, beta: Any, conj: int) -> None:
    assert plan.kernel is not None and plan.blocking is not None
    with region(plan.batch_ways) as threads:
        code = _serial_or_parallel("run_batch_direct", plan.kernel, threads)
        code(plan.kernel, plan.blocking.kc, plan.batch_ways, alpha, a, b, beta, c, conj)


def _run_batch_packed(plan: Plan, a: Array, b: Array, c: Array, alpha: Any, beta: Any, conj: int) -> None:
    kernel, blocking = plan.kernel, plan.blocking
    assert kernel is not None and blocking is not None
    a_shape, (panels, length) = plan.packed_shapes
    b_shape = (plan.batch_ways, panels // plan.batch_ways, length)
    with region(plan.batch_ways) as threads, borrow(a_shape, b_shape, real_dtype(kernel)) as (a_pack, b_pack):
        code = _serial_or_parallel("run_batch_packed", kernel, threads)
        code(
            kernel, (blocking.mc, blocking.nc, blocking.kc), plan.rows_first, plan.batch_ways,
            alpha, a, b, beta, c, conj, a_pack, b_pack,
        )  # fmt: skip
