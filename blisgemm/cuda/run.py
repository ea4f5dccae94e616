"""Run a product on a device: layouts, plan, copies of what has no unit stride, one launch.

Knows: how described arrays become a plan's terms and a launch's arguments. Does not know: what libraries arrays come
from, what arguments a call may have. Called by ``api`` and ``host``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import Any

from . import driver
from .code import copy_kernel, gemm_kernel, scale_kernel
from .device import Device
from .plan import Layout, Plan, plan_for
from .view import ITEM_BYTES, View

__all__ = ["Factors", "copy_items", "device_of", "multiply", "plan_of"]

_FORMATS = {"float32": "f", "complex64": "f", "float64": "d", "complex128": "d"}
_MOST_ITEMS = 65535  # of a grid's third axis
_MOST_ROUTES = 4096


@dataclass(frozen=True)
class Factors:
    """``alpha * op(a) op(b) + beta * c``; op conjugates or not."""

    alpha: complex = 1.0
    beta: complex = 0.0
    conj_a: bool = False
    conj_b: bool = False


@dataclass(slots=True)
class _Matrices:
    """A stack of matrices of one shape in memory. Strides in elements, of items, rows and columns."""

    pointer: int
    strides: tuple[int, int, int]
    rows: int
    columns: int


@dataclass(slots=True)
class _Route:
    """What a product of known extents, strides and alignment takes: made once, used by every later one."""

    plan: Plan
    kernel: driver.Kernel
    format: str
    spare: list[driver.Arguments] = field(default_factory=list)


_routes: dict[tuple[Any, ...], _Route] = {}


@cache
def device_of(ordinal: int) -> Device:
    """Return the facts of a device."""
    facts = driver.attributes(ordinal)
    return Device(
        facts["name"], tuple(facts["capability"]), facts["multiprocessors"], facts["shared_bytes_per_block"],
        facts["shared_bytes_per_multiprocessor"], facts["registers_per_multiprocessor"],
        facts["threads_per_multiprocessor"], facts["l2_bytes"], facts["memory_bytes"], facts["clock_khz"] / 1e6,
    )  # fmt: skip


def multiply(a: View, b: View, c: View, factors: Factors, stream: int) -> None:
    """Compute ``c := alpha * op(a) op(b) + beta * c`` on c's device, on a stream.

    Args:
        a, b, c: ... x m x k, ... x k x n and ... x m x n, of one dtype (c may have another), batch dimensions alike;
            none overlaps c. The device must be current.
    """
    if 0 in c.shape:
        return
    if factors.alpha == 0 or a.shape[-1] == 0:
        for (c_items,), items in _stacks((c,)):
            _scale(c_items, items, c.dtype, factors.beta, c.device, stream)
        return
    for (a_items, b_items, c_items), items in _stacks((a, b, c)):
        for first in range(0, items, _MOST_ITEMS):
            count = min(_MOST_ITEMS, items - first)
            stacks = [_from_item(x, first, v.dtype) for x, v in ((a_items, a), (b_items, b), (c_items, c))]
            _launch(stacks[0], stacks[1], stacks[2], count, a.dtype, c.dtype, factors, c.device, stream)


def _from_item(x: _Matrices, first: int, dtype: str) -> _Matrices:
    """Return the matrices from item ``first`` on."""
    if first == 0:
        return x
    return _Matrices(x.pointer + first * x.strides[0] * ITEM_BYTES[dtype], x.strides, x.rows, x.columns)


def plan_of(a: View, b: View, c: View, factors: Factors, device: Device) -> Plan:
    """Return the plan of a product, of its first stack if the batch is not one."""
    (a_items, b_items, c_items), items = next(iter(_stacks((a, b, c))))
    return _planned(a_items, b_items, c_items, items, a.dtype, c.dtype, factors, device)[0]


# ---- batches -----------------------------------------------------------------------------------------


def _stacks(views: tuple[View, ...]) -> Any:
    """Yield (matrices of each view, items): one stack if the batch dimensions collapse, else one per leading index."""
    if len(views[0].shape) == 2:  # the case that must be quick
        yield tuple(_Matrices(v.pointer, (0, *v.strides), *v.shape) for v in views), 1  # type: ignore[arg-type]
        return
    batch = views[0].shape[:-2]
    items = math.prod(batch)
    strides = [_collapsed(batch, view.strides[:-2]) for view in views]
    if None not in strides:
        yield (
            tuple(
                _Matrices(v.pointer, (s, *v.strides[-2:]), *v.shape[-2:])  # type: ignore[arg-type]
                for v, s in zip(views, strides, strict=True)
            ),
            items,
        )
        return
    for index in range(batch[0]):
        inner = tuple(
            View(v.pointer + index * v.strides[0] * ITEM_BYTES[v.dtype], v.shape[1:], v.strides[1:], v.dtype, v.device,
                 v.kind, v.owner)
            for v in views
        )  # fmt: skip
        yield from _stacks(inner)


def _collapsed(extents: tuple[int, ...], strides: tuple[int, ...]) -> int | None:
    """Return the stride of batch dimensions taken as one, or ``None`` if they aren't evenly apart."""
    real = [(e, s) for e, s in zip(extents, strides, strict=True) if e != 1]
    for (_, outer), (extent, inner) in pairwise(real):
        if outer != extent * inner:
            return None
    return real[-1][1] if real else 0


# ---- layouts and plans -------------------------------------------------------------------------------


def _layout(x: _Matrices, item_bytes: int, least: int) -> tuple[Layout, int]:
    """Return how an operand of rows x k lies, and the distance of its slow rows in elements.

    least: bytes that a copy must be aligned to.
    """
    _, row, step = x.strides
    if step == 1 or (x.columns == 1 and row != 1):
        order, leading, slow = "k", row, x.rows
    elif row == 1 or x.rows == 1:
        order, leading, slow = "r", step, x.columns
    else:
        return Layout("k", 1, packed=True), 0
    alignment = x.pointer | x.strides[0] * item_bytes | (leading * item_bytes if slow > 1 else 0)
    if alignment % least:
        return Layout("k", 1, packed=True), 0
    vector = max(1, 16 // item_bytes)
    while alignment % (vector * item_bytes):
        vector //= 2
    return Layout(order, vector), leading


def _vector_of_c(c: _Matrices, item_bytes: int, most: int) -> int:
    """Return how many adjacent elements of C's rows can be stored at once."""
    if c.strides[2] != 1 and c.columns > 1:
        return 1
    alignment = c.pointer | c.strides[0] * item_bytes | (c.strides[1] * item_bytes if c.rows > 1 else 0)
    vector = most
    while vector > 1 and (c.columns % vector or alignment % (vector * item_bytes)):
        vector //= 2
    return vector


def _turned(x: _Matrices) -> _Matrices:
    return _Matrices(x.pointer, (x.strides[0], x.strides[2], x.strides[1]), x.columns, x.rows)


def _planned(
    a: _Matrices, b: _Matrices, c: _Matrices, items: int, dtype: str, out: str, factors: Factors, device: Device
) -> tuple[Plan, int, int]:
    """Return the plan, and the distances of slow rows of A and B as it has them."""
    m, n, k = c.rows, c.columns, a.columns
    swapped = c.strides[2] != 1 and c.strides[1] == 1 and m > 1
    conj = (factors.conj_a, factors.conj_b)
    if swapped:  # C' = B' A': rows of C' are contiguous
        a, b, c, m, n, conj = _turned(b), _turned(a), _turned(c), n, m, conj[::-1]
    size = ITEM_BYTES[dtype]
    # copies are of 4, 8 or 16 bytes, and each must be aligned to itself
    (of_a, lead_a), (of_b, lead_b) = _layout(a, size, size), _layout(_turned(b), size, size)
    vector = _vector_of_c(c, ITEM_BYTES[out], max(1, 16 // size))
    plan = plan_for(
        device, m, n, k, dtype, of_a, of_b, vector, batch=items, reads_c=factors.beta != 0, out=out,
        conj_a=conj[0] and dtype.startswith("complex"), conj_b=conj[1] and dtype.startswith("complex"),
        swapped=swapped,
    )  # fmt: skip
    return plan, lead_a, lead_b


# ---- launches ----------------------------------------------------------------------------------------


def _launch(
    a: _Matrices, b: _Matrices, c: _Matrices, items: int, dtype: str, out: str, factors: Factors, ordinal: int,
    stream: int,
) -> None:  # fmt: skip
    alpha, beta = factors.alpha, factors.beta
    key = (
        c.rows, c.columns, a.columns, a.strides, b.strides, c.strides, items, dtype, out, ordinal, beta == 0,
        factors.conj_a, factors.conj_b, a.pointer & 15, b.pointer & 15, c.pointer & 15,
    )  # fmt: skip
    route = _routes.get(key)
    if route is None:
        route = _new_route(key, a, b, c, items, dtype, out, factors, ordinal)
    plan, spec = route.plan, route.plan.spec
    if plan.swapped:
        a, b, c = _turned(b), _turned(a), _turned(c)
    size, out_size = spec.itemsize, spec.out_itemsize
    temporary: list[int] = []
    try:
        b = _turned(b)  # rows of the operand are columns of B
        if plan.pack_a:
            a = _packed(a, items, dtype, ordinal, stream, temporary)
        if plan.pack_b:
            b = _packed(b, items, dtype, ordinal, stream, temporary)
        lead_a, lead_b = (x.strides[1 if operand.layout == "k" else 2] for x, operand in ((a, spec.a), (b, spec.b)))
        parts = counters = 0
        if spec.schedule == "streamk":
            parts = driver.workspace(plan.parts_bytes, ordinal, stream)
            counters = driver.counters(plan.tiles_m * plan.tiles_n, ordinal, stream)
        values = (
            a.pointer, b.pointer, c.pointer, lead_a * size, lead_b * size, c.strides[1] * out_size,
            c.strides[2] * out_size, a.strides[0] * size, b.strides[0] * size, c.strides[0] * out_size, plan.m, plan.n,
            plan.k, plan.tiles_m, plan.tiles_n, plan.whole, alpha.real, alpha.imag, beta.real, beta.imag, parts,
            counters,
        )  # fmt: skip
        arguments = route.spare.pop() if route.spare else None
        if arguments is None:
            arguments = driver.pack(route.format, values)
        else:
            arguments.repack(values)
        driver.launch(route.kernel, (plan.blocks, 1, items), spec.tile.threads, spec.shared_bytes, stream, arguments)
        route.spare.append(arguments)
    finally:
        for pointer in temporary:
            driver.free(pointer, stream)


def _new_route(
    key: tuple[Any, ...], a: _Matrices, b: _Matrices, c: _Matrices, items: int, dtype: str, out: str, factors: Factors,
    ordinal: int,
) -> _Route:  # fmt: skip
    plan, _, _ = _planned(a, b, c, items, dtype, out, factors, device_of(ordinal))
    route = _Route(plan, gemm_kernel(plan.spec, ordinal), "q" * 10 + "i" * 6 + _FORMATS[dtype] * 4 + "qq")
    if len(_routes) >= _MOST_ROUTES:
        _routes.clear()
    _routes[key] = route
    return route


def _packed(x: _Matrices, items: int, dtype: str, ordinal: int, stream: int, temporary: list[int]) -> _Matrices:
    """Return a copy of the operand whose rows are contiguous and begin on 16 bytes; one item if all are the same."""
    size = ITEM_BYTES[dtype]
    per_chunk = max(1, 16 // size)
    leading = -(-x.columns // per_chunk) * per_chunk
    count = 1 if x.strides[0] == 0 else items
    pointer = driver.allocate(count * x.rows * leading * size, stream)
    temporary.append(pointer)
    copy = _Matrices(pointer, (0 if count == 1 else x.rows * leading, leading, 1), x.rows, x.columns)
    copy_items(copy.pointer, copy.strides, x.pointer, x.strides, count, x.rows, x.columns, size, ordinal, stream)
    return copy


def copy_items(
    target: int, target_strides: tuple[int, ...], source: int, source_strides: tuple[int, ...], items: int, rows: int,
    columns: int, size: int, ordinal: int, stream: int,
) -> None:  # fmt: skip
    """Copy items x rows x columns elements of ``size`` bytes between any strides (in elements)."""
    kernel = copy_kernel(size, ordinal)
    for first in range(0, items, _MOST_ITEMS):
        count = min(_MOST_ITEMS, items - first)
        starts = (x + first * strides[0] * size for x, strides in ((target, target_strides), (source, source_strides)))
        to, of = starts
        values = (
            to, *(s * size for s in target_strides), of, *(s * size for s in source_strides), rows, columns,
        )  # fmt: skip
        driver.launch(kernel, _grid(rows, columns, count), 256, 0, stream, driver.pack("qqqqqqqqii", values))


def _scale(c: _Matrices, items: int, dtype: str, beta: complex, ordinal: int, stream: int) -> None:
    size = ITEM_BYTES[dtype]
    kernel = scale_kernel(dtype, ordinal)
    for first in range(0, items, _MOST_ITEMS):
        count = min(_MOST_ITEMS, items - first)
        values = (
            c.pointer + first * c.strides[0] * size, *(s * size for s in c.strides), c.rows, c.columns, beta.real,
            beta.imag,
        )  # fmt: skip
        format_ = "qqqqii" + _FORMATS[dtype] * 2
        driver.launch(kernel, _grid(c.rows, c.columns, count), 256, 0, stream, driver.pack(format_, values))


def _grid(rows: int, columns: int, items: int) -> tuple[int, int, int]:
    return -(-columns // 32), min(-(-rows // 8), 65535), items
