"""Copies of k slabs of A and B into shared memory.

Knows: which thread copies which bytes of a slab, and what it does where the operand ends. Does not know: what is
computed from it. Called by ``gemm``.

A slab of an operand has a *slow* and a *fast* axis; elements are adjacent along the fast one, in global memory as in
shared memory (``tiles``: layout k: slow = the operand's own rows, fast = p; layout r: the other way round). It is
copied in chunks of ``vector`` elements, chunk t by thread t and on in steps of the number of threads::

    slow 0 | chunk 0   chunk 1   ...  chunk per_row-1 | pad
    slow 1 | chunk per_row ...                        | pad

A turned operand (from layout k to r) is copied from rows of 32 bytes to where its axes are exchanged: element by
element where its rows begin anywhere; otherwise 16 bytes at once wait in registers while a slab is multiplied, and are
then stored one by one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from llvmlite import ir

from ..ptx import (
    F32,
    F64,
    GLOBAL,
    I64,
    SHARED,
    address_of,
    constant,
    copy_async,
    either,
    intrinsic_of,
    load,
    load_once,
    of_type,
    pack,
    store,
    types,
    unpack,
)
from ..tiles import KernelSpec, Operand

__all__ = ["Copy", "copy_of", "stage_of"]


@dataclass(frozen=True)
class Copy:
    """How the threads of a block copy a slab. Units: elements.

    across: threads side by side along the fast axis. places: where each chunk of a thread is, (slow, fast), beside its
    first one. slow_unit, fast_unit: how far the next one along each axis is in shared memory. slow_extent: where the
    slab ends, if threads begin beyond it; else 0. held: whether chunks wait in registers on the way.
    """

    vector: int
    itemsize: int
    across: int
    places: tuple[tuple[int, int], ...]
    slow_unit: int
    fast_unit: int
    slow_extent: int
    held: bool


def copy_of(spec: KernelSpec, operand: Operand, rows: int) -> Copy:
    """Return how ``rows`` x bk of an operand are copied."""
    tile = spec.tile
    fast, slow = (tile.bk, rows) if operand.layout == "k" else (rows, tile.bk)
    across, leading = spec.across(operand, rows), spec.leading(operand, rows)
    down = tile.threads // across  # slow rows that all threads cover together
    places = tuple((i, j) for i in range(0, slow, down) for j in range(0, fast, across * operand.vector))
    units = (1, leading) if operand.turned else (leading, 1)
    extent = slow if slow < down else 0
    return Copy(operand.vector, spec.itemsize, across, places, *units, extent, operand.turned and operand.vector > 1)


def stage_of(spec: KernelSpec, copy: Copy) -> tuple[Any, Any]:
    """Return the words ``held = fetch(...)`` and ``put(...)``, which together copy this thread's chunks of a slab.

    What is not held is copied by ``fetch`` alone, and ``put`` does nothing.

    Args of ``fetch(more, shared, source, leading_bytes, slow, fast, slow_left, fast_left)``:
        more: whether there is a slab to copy.
        shared, source: addresses of the thread's first chunk. leading_bytes: distance of slow rows in global memory.
        slow, fast: place of that chunk in the slab.
        slow_left, fast_left: how many slow rows and fast elements there are from the slab's start; what lies beyond
            becomes zeros. Not looked at without ``spec.edges``.
    Args of ``put(held, more, shared, slow)``: as above.
    """
    int32, int64, boolean = types.int32, types.int64, types.boolean
    arguments = (boolean, int32, int64, int64, int32, int32, int32, int32)
    if copy.held:
        tuple_type = types.UniTuple(of_type(spec.reals)[0], len(copy.places) * copy.vector)
        fetch = intrinsic_of("fetch", arguments, lambda b, args: _fetch(b, spec, copy, args), tuple_type)
        return fetch, intrinsic_of("put", (tuple_type, boolean, int32, int32), lambda b, args: _put(b, copy, args))

    def emit(b: ir.IRBuilder, args: list[ir.Value]) -> ir.Value:
        with b.if_then(_copies_here(b, copy, args[0], args[4])):
            _copy(b, spec, copy, args[1:])
        return constant(0)

    return (
        intrinsic_of("fetch", arguments, emit, int32),
        intrinsic_of("put", (int32, boolean, int32, int32), lambda b, args: None),
    )


def _copies_here(b: ir.IRBuilder, copy: Copy, more: ir.Value, slow: ir.Value) -> ir.Value:
    """Emit whether this thread has anything to copy."""
    if not copy.slow_extent:
        return more
    return b.and_(more, b.icmp_signed("<", slow, constant(copy.slow_extent)))


def _copy(b: ir.IRBuilder, spec: KernelSpec, copy: Copy, args: list[ir.Value]) -> None:
    """Emit copies straight into shared memory."""
    shared, source, leading, slow, fast, slow_left, fast_left = args
    item = copy.itemsize
    valid_of: dict[int, ir.Value] = {}
    for slow_at, fast_at in copy.places:  # generation loop
        target = address_of(b, shared, (slow_at * copy.slow_unit + fast_at * copy.fast_unit) * item)
        address = _address(b, source, leading, slow_at, fast_at * item)
        valid = None
        if spec.edges:
            if fast_at not in valid_of:
                left = b.sub(fast_left, address_of(b, fast, fast_at))
                valid_of[fast_at] = b.mul(_clamped(b, left, copy.vector), constant(item))
            exists = b.icmp_signed("<", address_of(b, slow, slow_at), slow_left)
            valid = b.select(exists, valid_of[fast_at], constant(0))
        if spec.copies == "async":
            copy_async(b, target, address, copy.vector * item, valid)
        else:
            _copy_plain(b, target, address, copy, spec, valid)


def _address(b: ir.IRBuilder, source: ir.Value, leading: ir.Value, slow: int, fast_bytes: int) -> ir.Value:
    """Emit the address of a chunk."""
    row = b.add(source, b.mul(leading, constant(slow, I64))) if slow else source
    return address_of(b, row, fast_bytes)


def _fetch(b: ir.IRBuilder, spec: KernelSpec, copy: Copy, args: list[ir.Value]) -> ir.Value:
    """Emit loads of all chunks into registers. A chunk exists as a whole or not at all."""
    more, _, source, leading, slow, fast, slow_left, fast_left = args
    real = of_type(spec.reals)[1]
    held = []
    more = _copies_here(b, copy, more, slow)
    for slow_at, fast_at in copy.places:  # generation loop
        exists = more
        if spec.edges:
            row_exists = b.icmp_signed("<", address_of(b, slow, slow_at), slow_left)
            column_exists = b.icmp_signed("<", address_of(b, fast, fast_at), fast_left)
            exists = b.and_(exists, b.and_(row_exists, column_exists))
        address = _address(b, source, leading, slow_at, fast_at * copy.itemsize)
        held += either(b, exists, partial(load_once, b, address, real, copy.vector), real, copy.vector)
    return pack(b, held)


def _put(b: ir.IRBuilder, copy: Copy, args: list[ir.Value]) -> None:
    """Emit stores of what ``fetch`` returned, to where the axes are exchanged."""
    held, more, shared, slow = args
    values = unpack(b, held, len(copy.places) * copy.vector)
    with b.if_then(_copies_here(b, copy, more, slow)):
        for i, (slow_at, fast_at) in enumerate(copy.places):  # generation loop
            for q in range(copy.vector):
                place = slow_at * copy.slow_unit + (fast_at + q) * copy.fast_unit
                store(b, [values[i * copy.vector + q]], address_of(b, shared, place * copy.itemsize), SHARED)


def _clamped(b: ir.IRBuilder, value: ir.Value, most: int) -> ir.Value:
    """Emit the value, at least 0 and at most ``most``."""
    value = b.select(b.icmp_signed("<", value, constant(0)), constant(0), value)
    return b.select(b.icmp_signed(">", value, constant(most)), constant(most), value)


def _copy_plain(
    b: ir.IRBuilder, target: ir.Value, address: ir.Value, copy: Copy, spec: KernelSpec, valid: ir.Value | None
) -> None:
    """Emit a copy through registers, for cards without asynchronous ones."""
    real = F32 if spec.reals == "float32" else F64
    bits = ir.IntType(32 if spec.reals == "float32" else 64)
    reals, real_bytes = copy.vector * spec.planes, 4 if spec.reals == "float32" else 8
    if valid is None:
        store(b, load(b, address, bits, reals, 1), target, SHARED)
        return
    values = []
    for i in range(reals):  # generation loop: elements that don't exist are not touched
        exists = b.icmp_signed("<", constant(i * real_bytes), valid)
        values += either(b, exists, partial(load, b, address_of(b, address, i * real_bytes), real, 1, GLOBAL), real, 1)
    store(b, values, target, SHARED)
