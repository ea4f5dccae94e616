"""Words for the upper rungs: adjacent elements read and written together, with or without an end inside them.

Knows: 128-bit accesses and what stands in for them. Does not know: tiles. Called by rungs g5 and g6.

A fragment is a tuple of float32: LLVM takes it apart into registers, where an array would have to be in memory. A
*generation* loop (a Python ``for`` in an ``emit`` function) writes copies of instructions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from ..ptx import (
    F32,
    GLOBAL,
    I64,
    SHARED,
    address_of,
    constant,
    copy_async,
    intrinsic_of,
    load,
    pack,
    store,
    types,
    unpack,
)

__all__ = ["FOUR", "copy_rows_of", "read4", "shared4", "store_shared4", "tile_of", "write_tile_of", "zeros_of"]

FOUR = types.UniTuple(types.float32, 4)


def tile_of(count: int) -> Any:
    """Return the type of a fragment."""
    return types.UniTuple(types.float32, count)


def zeros_of(count: int) -> Any:
    """Return the word ``zeros()``: a fragment of zeros."""
    return intrinsic_of("zeros", (), lambda b, args: pack(b, [ir.Constant(F32, 0.0)] * count), tile_of(count))


def _emit_read4(b: ir.IRBuilder, args: list[ir.Value]) -> ir.Value:
    address, left, aligned, readable = args
    whole = b.and_(aligned, b.icmp_signed(">=", left, constant(4)))
    with b.if_else(whole) as (together, singly):
        with together:
            vector = load(b, address, F32, 4, GLOBAL)
            after_vector = b.block
        with singly:
            singles = []
            for q in range(4):  # generation loop
                exists = b.icmp_signed(">", left, constant(q))
                (value,) = load(b, b.select(exists, address_of(b, address, 4 * q), readable), F32, 1, GLOBAL)
                singles.append(b.select(exists, value, ir.Constant(F32, 0.0)))
            after_singles = b.block
    values = []
    for one, other in zip(vector, singles, strict=True):
        value = b.phi(F32)
        value.add_incoming(one, after_vector)
        value.add_incoming(other, after_singles)
        values.append(value)
    return pack(b, values)


# read4(address, left, aligned, readable): four adjacent floats of global memory, zeros from the ``left``-th on; in one
# load if rows are ``aligned`` to 16 bytes. readable: any address that may be read.
read4 = intrinsic_of("read4", (types.int64, types.int32, types.boolean, types.int64), _emit_read4, FOUR)

# shared4(address): four adjacent floats of shared memory, in one load.
shared4 = intrinsic_of("shared4", (types.int32,), lambda b, args: pack(b, load(b, args[0], F32, 4, SHARED)), FOUR)

# store_shared4(address, fragment): the same way back.
store_shared4 = intrinsic_of(
    "store_shared4", (types.int32, FOUR), lambda b, args: store(b, unpack(b, args[1], 4), args[0], SHARED)
)


def copy_rows_of(rows: Sequence[int], pitch: int) -> Any:
    """Return the word ``copy(shared, source, row_bytes, rows_left, left, aligned)``.

    It begins to copy four adjacent floats of some rows of global memory to shared memory; zeros where they don't exist.

    Args:
        rows: how far each row is from the first. pitch: floats from one row to the next in shared memory.

    Args of the word:
        shared, source: addresses of the first row's four. row_bytes: distance of rows in global memory.
        rows_left, left: how many rows, and floats of a row, exist from there on. aligned: rows, to 16 bytes.
    """

    def emit(b: ir.IRBuilder, args: list[ir.Value]) -> None:
        shared, source, row_bytes, rows_left, left, aligned = args
        with b.if_else(aligned) as branches:
            for branch, size in zip(branches, (16, 4), strict=True):  # generation loops: one copy a row, or four
                with branch:
                    for row, at in [(row, at) for row in rows for at in range(0, 16, size)]:
                        in_row = b.icmp_signed(">", left, constant(at // 4))
                        exists = b.and_(b.icmp_signed(">", rows_left, constant(row)), in_row)
                        address = address_of(b, b.add(source, b.mul(row_bytes, constant(row, I64))), at)
                        valid = b.select(exists, constant(size), constant(0))
                        copy_async(b, address_of(b, shared, row * pitch * 4 + at), address, size, valid)

    arguments = (types.int32, types.int64, types.int64, types.int32, types.int32, types.boolean)
    return intrinsic_of("copy", arguments, emit)


def write_tile_of(rows: Sequence[int], columns: Sequence[int]) -> Any:
    """Return the word ``write_tile(sums, address, row_bytes, rows_left, columns_left, aligned)``.

    It stores a thread tile to global memory, four adjacent columns at a time, as far as C goes.

    Args:
        rows, columns: where the tile's rows and its groups of four columns are, from its first element on.

    Args of the word:
        sums: by rows. address: of the first element. row_bytes: distance of C's rows.
        rows_left, columns_left: how many C has from the first element on. aligned: C's rows, to 16 bytes.
    """
    width = 4 * len(columns)

    def emit(b: ir.IRBuilder, args: list[ir.Value]) -> None:
        sums, address, row_bytes, rows_left, columns_left, aligned = args
        values = unpack(b, sums, len(rows) * width)
        for r, row in enumerate(rows):  # generation loops
            in_row = b.icmp_signed(">", rows_left, constant(row))
            row_address = b.add(address, b.mul(row_bytes, constant(row, I64)))
            for g, column in enumerate(columns):
                at = address_of(b, row_address, 4 * column)
                four = values[r * width + 4 * g : r * width + 4 * g + 4]
                whole = b.and_(aligned, b.icmp_signed(">", columns_left, constant(column + 3)))
                with b.if_then(in_row), b.if_else(whole) as (together, singly):
                    with together:
                        store(b, four, at, GLOBAL)
                    with singly:
                        for q, value in enumerate(four):
                            with b.if_then(b.icmp_signed(">", columns_left, constant(column + q))):
                                store(b, [value], address_of(b, at, 4 * q), GLOBAL)

    arguments = (tile_of(len(rows) * width), types.int64, types.int64, types.int32, types.int32, types.boolean)
    return intrinsic_of("write_tile", arguments, emit)
