"""Copies of k slabs of A and B into shared memory.

Knows: which thread copies which bytes of a slab, and what it does where the operand ends. Does not know: what is
computed from it. Called by ``gemm``.

A slab of an operand has a *slow* and a *fast* axis; elements are adjacent along the fast one, in global memory as in
shared memory (``tiles``: layout k: slow = the operand's own rows, fast = p; layout r: the other way round). It is
copied in chunks of ``vector`` elements, chunk t by thread t and on in steps of the number of threads::

    slow 0 | chunk 0   chunk 1   ...  chunk per_row-1 | pad
    slow 1 | chunk per_row ...                        | pad

A turned operand (from layout k to r) is copied element by element, from rows of 32 bytes, to where its axes are
exchanged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from ..ptx import (
    F32,
    F64,
    I64,
    SHARED,
    address_of,
    constant,
    copy_async,
    intrinsic_of,
    load,
    store,
    types,
)
from ..tiles import KernelSpec, Operand

__all__ = ["Copy", "copy_of", "stage_of"]


@dataclass(frozen=True)
class Copy:
    """How the threads of a block copy a slab. Units: elements.

    across: threads side by side along the fast axis. places: where each chunk of a thread is, (slow, fast), beside its
    first one. slow_unit, fast_unit: how far the next one along each axis is in shared memory. slow_extent: where the
    slab ends, if threads begin beyond it; else 0.
    """

    vector: int
    itemsize: int
    across: int
    places: tuple[tuple[int, int], ...]
    slow_unit: int
    fast_unit: int
    slow_extent: int


def copy_of(spec: KernelSpec, operand: Operand, rows: int) -> Copy:
    """Return how ``rows`` x bk of an operand are copied."""
    tile = spec.tile
    fast, slow = (tile.bk, rows) if operand.layout == "k" else (rows, tile.bk)
    across, leading = spec.across(operand, rows), spec.leading(operand, rows)
    down = tile.threads // across  # slow rows that all threads cover together
    places = tuple((i, j) for i in range(0, slow, down) for j in range(0, fast, across * operand.vector))
    units = (1, leading) if operand.turned else (leading, 1)
    return Copy(operand.vector, spec.itemsize, across, places, *units, slow if slow < down else 0)


def stage_of(spec: KernelSpec, copy: Copy) -> Any:
    """Return the word ``stage(shared, source, leading_bytes, slow, fast, slow_left, fast_left)``.

    It copies this thread's chunks of a slab.

    Args of the word:
        shared, source: addresses of the thread's first chunk. leading_bytes: distance of slow rows in global memory.
        slow, fast: place of that chunk in the slab.
        slow_left, fast_left: how many slow rows and fast elements there are from the slab's start; what lies beyond
            becomes zeros. Not looked at without ``spec.edges``.
    """
    item = copy.itemsize
    size = copy.vector * item

    def emit(b: ir.IRBuilder, args: list[ir.Value]) -> None:
        slow = args[3]
        if copy.slow_extent:
            with b.if_then(b.icmp_signed("<", slow, constant(copy.slow_extent))):
                copies(b, args)
        else:
            copies(b, args)

    def copies(b: ir.IRBuilder, args: list[ir.Value]) -> None:
        shared, source, leading, slow, fast, slow_left, fast_left = args
        valid_of: dict[int, ir.Value] = {}
        for slow_at, fast_at in copy.places:  # generation loop
            target = address_of(b, shared, (slow_at * copy.slow_unit + fast_at * copy.fast_unit) * item)
            step = b.mul(leading, constant(slow_at, I64)) if slow_at else None
            address = address_of(b, b.add(source, step) if step is not None else source, fast_at * item)
            valid = None
            if spec.edges:
                if fast_at not in valid_of:
                    left = b.sub(fast_left, address_of(b, fast, fast_at))
                    valid_of[fast_at] = b.mul(_clamped(b, left, copy.vector), constant(item))
                exists = b.icmp_signed("<", address_of(b, slow, slow_at), slow_left)
                valid = b.select(exists, valid_of[fast_at], constant(0))
            if spec.copies == "async":
                copy_async(b, target, address, size, valid)
            else:
                _copy_plain(b, target, address, copy, spec, valid)

    int32, int64 = types.int32, types.int64
    return intrinsic_of("stage", (int32, int64, int64, int32, int32, int32, int32), emit)


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
        before = b.block
        with b.if_then(exists):
            (value,) = load(b, address_of(b, address, i * real_bytes), real, 1, 1)
            inside = b.block
        chosen = b.phi(real)
        chosen.add_incoming(ir.Constant(real, 0.0), before)
        chosen.add_incoming(value, inside)
        values.append(chosen)
    store(b, values, target, SHARED)
