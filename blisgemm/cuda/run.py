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
from .plan import Layout, Plan, computes_transposed, plan_for
from .tiles import Step
from .view import ITEM_BYTES, View

__all__ = ["Factors", "Route", "copy_items", "device_of", "multiply", "plan_of", "route_of", "single"]

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
    atomic: bool = False


@dataclass(slots=True)
class _Matrices:
    """A stack of matrices of one shape in memory. Strides in elements, of items, rows and columns."""

    pointer: int
    strides: tuple[int, int, int]
    rows: int
    columns: int


@dataclass(slots=True, eq=False)
class Route:
    """What a product of known extents, strides and alignment takes: made once, used by every later one.

    steady: the launch's arguments that no call changes. packs: for A and B, what is copied first.
    """

    plan: Plan
    kernel: driver.Kernel
    format: str
    steady: tuple[int, ...]
    packs: tuple[_Pack | None, _Pack | None]
    spare: list[driver.Arguments] = field(default_factory=list)
    # of the plan, computed once
    swapped: bool = field(init=False)
    grid: tuple[int, int, int] = field(init=False)
    threads: int = field(init=False)
    shared_bytes: int = field(init=False)
    parts_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        plan = self.plan
        self.swapped, self.grid, self.parts_bytes = plan.swapped, (plan.blocks, 1, plan.batch), plan.parts_bytes
        self.threads, self.shared_bytes = plan.spec.tile.threads, plan.spec.shared_bytes

    def launch(
        self, a: int, b: int, c: int, alpha: complex, beta: complex, stream: int, extra: tuple[Any, ...]
    ) -> None:
        """Compute the product of matrices at these addresses; the device must be current."""
        if self.swapped:
            a, b = b, a
        temporary: list[int] = []
        try:
            if self.packs != (None, None):
                a, b = (
                    x if pack is None else pack.made(x, self.kernel.ordinal, stream, temporary)
                    for x, pack in zip((a, b), self.packs, strict=True)
                )
            parts = counters = 0
            if self.parts_bytes:
                parts = driver.workspace(self.parts_bytes, self.kernel.ordinal, stream)
                tiles = self.plan.tiles_m * self.plan.tiles_n * self.plan.batch
                counters = driver.counters(tiles, self.kernel.ordinal, stream)
            values = (a, b, c, *self.steady, alpha.real, alpha.imag, beta.real, beta.imag, parts, counters, *extra)
            try:
                arguments = self.spare.pop()  # two threads never get the same
                arguments.repack(values)
            except IndexError:
                arguments = driver.pack(self.format, values)
            driver.launch(self.kernel, self.grid, self.threads, self.shared_bytes, stream, arguments)
            self.spare.append(arguments)
        finally:
            for pointer in temporary:
                driver.free(pointer, stream)


@dataclass(frozen=True)
class _Pack:
    """A copy of an operand whose rows are contiguous and begin on 16 bytes. Strides in elements."""

    source: tuple[int, int, int]
    target: tuple[int, int, int]
    items: int
    rows: int
    columns: int
    item_bytes: int

    def made(self, pointer: int, ordinal: int, stream: int, temporary: list[int]) -> int:
        """Copy what is at ``pointer``; return where the copy is, and note it in ``temporary``."""
        target = driver.allocate(self.items * self.rows * self.target[1] * self.item_bytes, stream)
        temporary.append(target)
        copy_items(
            target,
            self.target,
            pointer,
            self.source,
            self.items,
            self.rows,
            self.columns,
            self.item_bytes,
            ordinal,
            stream,
        )
        return target


_routes: dict[tuple[Any, ...], Route] = {}


@cache
def device_of(ordinal: int) -> Device:
    """Return the facts of a device."""
    facts = driver.attributes(ordinal)
    return Device(
        facts["name"], tuple(facts["capability"]), facts["multiprocessors"], facts["shared_bytes_per_block"],
        facts["shared_bytes_per_multiprocessor"], facts["registers_per_multiprocessor"],
        facts["threads_per_multiprocessor"], facts["l2_bytes"], facts["memory_bytes"], facts["clock_khz"] / 1e6,
    )  # fmt: skip


def multiply(
    a: View, b: View, c: View, factors: Factors, stream: int, steps: tuple[Step, ...] = (), extra_format: str = "",
    extra: tuple[Any, ...] = (),
) -> None:  # fmt: skip
    """Compute ``c := alpha * op(a) op(b) + beta * c`` on c's device, on a stream.

    Args:
        a, b, c: ... x m x k, ... x k x n and ... x m x n, of one dtype (c may have another), batch dimensions alike;
            none overlaps c. The device must be current.
    """
    if 0 in c.shape:
        return
    nothing = factors.alpha == 0 or a.shape[-1] == 0
    if nothing and (steps or c.dtype not in _FORMATS):  # no slabs: the sums are zeros, and a and b are not read
        a = View(a.pointer, (*a.shape[:-1], 0), a.strides, a.dtype, a.device, a.kind, a.owner)
    elif nothing:
        for (c_items,), items in _stacks((c,)):
            _scale(c_items, items, c.dtype, factors.beta, c.device, stream)
        return
    for (a_items, b_items, c_items), items in _stacks((a, b, c)):
        for first in range(0, items, _MOST_ITEMS):
            count = min(_MOST_ITEMS, items - first)
            stacks = [_from_item(x, first, v.dtype) for x, v in ((a_items, a), (b_items, b), (c_items, c))]
            x, y, z = stacks
            route = route_of(x, y, z, count, a.dtype, c.dtype, factors, c.device, steps, extra_format)
            beta = factors.beta
            if route.plan.spec.reduction == "atomic":
                _scale(z, count, c.dtype, beta, c.device, stream)
                beta = 0
            route.launch(x.pointer, y.pointer, z.pointer, factors.alpha, beta, stream, extra)


def _from_item(x: _Matrices, first: int, dtype: str) -> _Matrices:
    """Return the matrices from item ``first`` on."""
    if first == 0:
        return x
    return _Matrices(x.pointer + first * x.strides[0] * ITEM_BYTES[dtype], x.strides, x.rows, x.columns)


def single(view: View) -> _Matrices:
    """Return a 2-d array as one matrix."""
    return _Matrices(view.pointer, (0, *view.strides), *view.shape)  # type: ignore[arg-type]


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


def _layout(x: _Matrices, item_bytes: int) -> Layout:
    """Return how an operand of rows x k lies. Copies are of 4, 8 or 16 bytes, each aligned to itself."""
    _, row, step = x.strides
    if step == 1 or (x.columns == 1 and row != 1):
        order, leading, slow = "k", row, x.rows
    elif row == 1 or x.rows == 1:
        order, leading, slow = "r", step, x.columns
    else:
        return Layout("k", 1, packed=True)
    alignment = x.pointer | x.strides[0] * item_bytes | (leading * item_bytes if slow > 1 else 0)
    if alignment % item_bytes:
        return Layout("k", 1, packed=True)
    vector = max(1, 16 // item_bytes)
    while alignment % (vector * item_bytes):
        vector //= 2
    return Layout(order, vector)


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
    a: _Matrices,
    b: _Matrices,
    c: _Matrices,
    items: int,
    dtype: str,
    out: str,
    factors: Factors,
    device: Device,
    steps: tuple[Step, ...] = (),
) -> tuple[Plan, tuple[int, ...], tuple[_Pack | None, _Pack | None]]:
    """Return the plan, the steady arguments of its launch, and what must be copied first."""
    m, n, k = c.rows, c.columns, a.columns
    swapped = computes_transposed(m, n, by_columns=c.strides[2] != 1 and c.strides[1] == 1)
    conj = (factors.conj_a, factors.conj_b)
    if swapped:
        a, b, c, m, n, conj = _turned(b), _turned(a), _turned(c), n, m, conj[::-1]
    b = _turned(b)  # the rows of this operand are B's columns
    size, out_size = ITEM_BYTES[dtype], ITEM_BYTES[out]
    of_a, of_b = _layout(a, size), _layout(b, size)
    plan = plan_for(
        device,
        m,
        n,
        k,
        dtype,
        of_a,
        of_b,
        _vector_of_c(c, out_size, max(1, 16 // max(size, out_size))),
        batch=items,
        reads_c=factors.beta != 0,
        out=out,
        conj_a=conj[0] and dtype.startswith("complex"),
        conj_b=conj[1] and dtype.startswith("complex"),
        swapped=swapped,
        epilogue=steps,
        atomic=factors.atomic and not steps and out == dtype,
    )
    packs: list[_Pack | None] = []
    strides: list[tuple[int, int, int]] = []
    for x, layout in ((a, of_a), (b, of_b)):
        packs.append(_pack_of(x, items, size) if layout.packed else None)
        strides.append(x.strides if packs[-1] is None else packs[-1].target)  # type: ignore[union-attr]
    leads = [of[1 if layout.order == "k" else 2] * size for of, layout in zip(strides, (of_a, of_b), strict=True)]
    of_c = [c.strides[1] * out_size, c.strides[2] * out_size]
    following = [strides[0][0] * size, strides[1][0] * size, c.strides[0] * out_size]
    steady = (*leads, *of_c, *following, m, n, k, plan.tiles_m, plan.tiles_n, plan.whole)
    return plan, steady, (packs[0], packs[1])


def _pack_of(x: _Matrices, items: int, size: int) -> _Pack:
    """Return how an operand is copied; once if all items are the same."""
    per_chunk = max(1, 16 // size)
    leading = -(-x.columns // per_chunk) * per_chunk
    count = 1 if x.strides[0] == 0 else items
    return _Pack(x.strides, (0 if count == 1 else x.rows * leading, leading, 1), count, x.rows, x.columns, size)


# ---- launches ----------------------------------------------------------------------------------------


def route_of(
    a: _Matrices, b: _Matrices, c: _Matrices, items: int, dtype: str, out: str, factors: Factors, ordinal: int,
    steps: tuple[Step, ...] = (), extra_format: str = "",
) -> Route:  # fmt: skip
    """Return what runs such products; made once, and kept."""
    key = (
        c.rows, c.columns, a.columns, a.strides, b.strides, c.strides, items, dtype, out, ordinal, factors.beta == 0,
        factors.conj_a, factors.conj_b, factors.atomic, a.pointer & 15, b.pointer & 15, c.pointer & 15, steps,
    )  # fmt: skip
    route = _routes.get(key)
    if route is None:
        plan, steady, packs = _planned(a, b, c, items, dtype, out, factors, device_of(ordinal), steps)
        kernel = gemm_kernel(plan.spec, ordinal)
        format_ = "q" * 10 + "i" * 6 + _FORMATS[dtype] * 4 + "qq" + extra_format
        route = Route(plan, kernel, format_, steady, packs)
        if len(_routes) >= _MOST_ROUTES:
            _routes.clear()
        _routes[key] = route
    return route


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
