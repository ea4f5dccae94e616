"""The few vector words that the generator speaks, on llvmlite.

Knows: how to say fma, broadcast, masked load and the like in LLVM IR. Does not know:
tiles, panels or GEMM. Called by ``emit``, ``packer`` and the glue.

LLVM's ``fma`` intrinsics are called by name because llvmlite's ``builder.fma`` refuses
vectors. No fast-math flag is ever set: the order of additions is the product.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from llvmlite import ir

__all__ = [
    "I1", "I32", "I64", "PTR", "add_target", "at", "broadcast", "concatenate", "constant_vector", "count_loop",
    "fma",
    "interleave", "keep_loads_here", "lane_mask", "load", "masked_load", "masked_store", "opaque", "pick_lane",
    "prefetch_read", "prefetch_write", "real_type", "stack_vectors", "store", "store_first",
    "transpose_parts", "uninterleave",
]  # fmt: skip

I1 = ir.IntType(1)
I8 = ir.IntType(8)
I32 = ir.IntType(32)
I64 = ir.IntType(64)
PTR = ir.PointerType()


def real_type(bits: int) -> ir.Type:
    """Return LLVM's float (32) or double (64)."""
    return {32: ir.FloatType(), 64: ir.DoubleType()}[bits]


def _suffix(typ: ir.Type) -> str:
    scalar = typ.element if isinstance(typ, ir.VectorType) else typ
    word = {"float": "f32", "double": "f64"}[str(scalar)]
    return f"v{typ.count}{word}" if isinstance(typ, ir.VectorType) else word


def _intrinsic(b: ir.IRBuilder, name: str, result: ir.Type, args: Sequence[ir.Type]) -> ir.Function:
    existing = b.module.globals.get(name)
    return existing or ir.Function(b.module, ir.FunctionType(result, list(args)), name)


def fma(b: ir.IRBuilder, x: ir.Value, y: ir.Value, acc: ir.Value, *, fused: bool, name: str = "") -> ir.Value:
    """Emit ``x * y + acc``: rounded once where ``fused``, else a product and a sum (SSE2)."""
    if not fused:
        return b.fadd(b.fmul(x, y), acc, name=name)
    f = _intrinsic(b, f"llvm.fma.{_suffix(acc.type)}", acc.type, [acc.type] * 3)
    return b.call(f, [x, y, acc], name=name)


def at(b: ir.IRBuilder, base: ir.Value, offset_bytes: ir.Value | int, name: str = "") -> ir.Value:
    """Emit the address ``base + offset_bytes``."""
    if isinstance(offset_bytes, int):
        if offset_bytes == 0:
            return base
        offset_bytes = I64(offset_bytes)
    return b.gep(base, [offset_bytes], source_etype=I8, name=name)


def load(b: ir.IRBuilder, address: ir.Value, typ: ir.Type, name: str = "", align: int = 1) -> ir.Value:
    """Emit a load; ``align`` in bytes, 1 = nothing is assumed (costs nothing on the sets here)."""
    return b.load(address, typ=typ, align=align, name=name)


def store(b: ir.IRBuilder, value: ir.Value, address: ir.Value, align: int = 1) -> None:
    """Emit a store; ``align`` in bytes."""
    b.store(value, address, align=align)


def stack_vectors(b: ir.IRBuilder, vector: ir.VectorType, count: int, name: str) -> ir.Value:
    """Emit room for ``count`` vectors in this function's stack frame; return its address."""
    with b.goto_block(b.function.entry_basic_block):
        room = b.alloca(ir.ArrayType(vector, count), name=name)
    room.type = PTR  # llvmlite types it as a pointer to the array
    return room


def broadcast(b: ir.IRBuilder, scalar: ir.Value, lanes: int, name: str = "") -> ir.Value:
    """Emit a vector whose lanes all hold ``scalar``."""
    vector = ir.VectorType(scalar.type, lanes)
    first = b.insert_element(ir.Constant(vector, ir.Undefined), scalar, I32(0))
    return b.shuffle_vector(first, first, ir.Constant(ir.VectorType(I32, lanes), None), name=name)


def pick_lane(b: ir.IRBuilder, vector: ir.Value, lane: int, lanes: int, name: str = "") -> ir.Value:
    """Emit a vector whose lanes all hold lane ``lane`` of ``vector`` (an fma by lane on NEON)."""
    index = constant_vector(I32, [lane] * lanes)
    return b.shuffle_vector(vector, vector, index, name=name)


def constant_vector(element: ir.Type, values: Sequence[int]) -> ir.Constant:
    """Return the constant vector of ``values``."""
    return ir.Constant(ir.VectorType(element, len(values)), list(values))


def lane_mask(b: ir.IRBuilder, limit: ir.Value, positions: Sequence[int], name: str = "") -> ir.Value:
    """Emit the mask of the lanes whose position is below ``limit`` (i64)."""
    limit32 = b.trunc(limit, I32)
    return b.icmp_signed("<", constant_vector(I32, positions), broadcast(b, limit32, len(positions)), name=name)


def masked_load(b: ir.IRBuilder, address: ir.Value, mask: ir.Value, typ: ir.VectorType, name: str = "") -> ir.Value:
    """Emit a load of the lanes in ``mask``; the others are 0 and their memory isn't touched."""
    f = _intrinsic(b, f"llvm.masked.load.{_suffix(typ)}.p0", typ, [PTR, I32, mask.type, typ])
    return b.call(f, [address, I32(1), mask, ir.Constant(typ, None)], name=name)


def masked_store(b: ir.IRBuilder, value: ir.Value, address: ir.Value, mask: ir.Value) -> None:
    """Emit a store of the lanes in ``mask``; the memory of the others isn't touched."""
    f = _intrinsic(b, f"llvm.masked.store.{_suffix(value.type)}.p0", ir.VoidType(), [value.type, PTR, I32, mask.type])
    b.call(f, [value, address, I32(1), mask])


def uninterleave(b: ir.IRBuilder, low: ir.Value, high: ir.Value, lanes: int) -> tuple[ir.Value, ir.Value]:
    """Emit (re, im) from two vectors of adjacent (re, im) pairs."""
    even = constant_vector(I32, range(0, 2 * lanes, 2))
    odd = constant_vector(I32, range(1, 2 * lanes, 2))
    return b.shuffle_vector(low, high, even, name="re"), b.shuffle_vector(low, high, odd, name="im")


def interleave(b: ir.IRBuilder, re: ir.Value, im: ir.Value, lanes: int) -> tuple[ir.Value, ir.Value]:
    """Emit two vectors of adjacent (re, im) pairs: the inverse of ``uninterleave``."""
    pairs = [index for lane in range(lanes) for index in (lane, lanes + lane)]
    low, high = constant_vector(I32, pairs[:lanes]), constant_vector(I32, pairs[lanes:])
    return b.shuffle_vector(re, im, low), b.shuffle_vector(re, im, high)


def concatenate(b: ir.IRBuilder, parts: Sequence[ir.Value]) -> ir.Value:
    """Emit one vector of all the lanes of a power of two of equal vectors."""
    parts = list(parts)
    while len(parts) > 1:
        lanes = constant_vector(I32, range(2 * parts[0].type.count))
        parts = [b.shuffle_vector(low, high, lanes) for low, high in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def transpose_parts(b: ir.IRBuilder, rows: list[ir.Value], side: int) -> list[ir.Value]:
    """Emit the transpose of ``side`` vectors within every part of ``side`` lanes (2 or 4).

    Lane ``side * g + j`` of result i is lane ``side * g + i`` of row j. A step is a pair of unpacks, one
    instruction each on every set: x86 unpcklps/unpcklpd, Arm zip1/zip2.
    """
    if side == 2:
        return _unpack(b, rows[0], rows[1], 1, 2)
    low01, high01 = _unpack(b, rows[0], rows[1], 1, 4)
    low23, high23 = _unpack(b, rows[2], rows[3], 1, 4)
    return [*_unpack(b, low01, low23, 2, 4), *_unpack(b, high01, high23, 2, 4)]


def _unpack(b: ir.IRBuilder, x: ir.Value, y: ir.Value, unit: int, side: int) -> list[ir.Value]:
    """Emit, within every part, the low halves of x and y in turn by ``unit`` lanes, then the high halves."""
    lanes, results = x.type.count, []
    for half in range(2):
        index: list[int] = []
        for part in range(0, lanes, side):
            for start in range(half * side // 2, (half + 1) * side // 2, unit):
                for source in (0, lanes):
                    index += range(source + part + start, source + part + start + unit)
        results.append(b.shuffle_vector(x, y, constant_vector(I32, index)))
    return results


def store_first(b: ir.IRBuilder, rows: list[list[ir.Value]], addresses: list[ir.Value], count: ir.Value) -> None:
    """Emit a store of the first ``count`` lanes of every row; count is below the lanes of a row.

    Args:
        rows: the vectors of each row, in memory order: a power of two.
        addresses: where each row starts.

    In halves: whether the first half is stored is decided once for all rows. For sets without masked stores, and
    for AVX2, whose masked stores are microcoded on AMD (Zen 3: 18 to 40 micro-operations; Agner Fog's tables).
    """
    lanes = rows[0][0].type.count
    size = len(rows[0]) * lanes  # of what is left of each row
    byte_size = 4 if str(rows[0][0].type.element) == "float" else 8
    offset: ir.Value = I64(0)
    while size > 1:
        size //= 2
        take, skip, join = (b.append_basic_block(f"{name}_{size}") for name in ("take", "skip", "join"))
        b.cbranch(b.icmp_signed("!=", b.and_(count, I64(size)), I64(0)), take, skip)
        b.position_at_end(take)
        low, high = ([_half(b, row, part) for row in rows] for part in (0, 1))
        for row, address in zip(low, addresses, strict=True):
            for v, vector in enumerate(row):
                store(b, vector, at(b, at(b, address, offset), v * lanes * byte_size))
        after = b.add(offset, I64(size * byte_size))
        b.branch(join)
        b.position_at_end(skip)
        kept = [_half(b, row, 0) for row in rows]
        b.branch(join)
        b.position_at_end(join)
        rows = [[_either(b, h, take, k, skip) for h, k in zip(hs, ks, strict=True)]
                for hs, ks in zip(high, kept, strict=True)]  # fmt: skip
        offset = _either(b, after, take, offset, skip)


def _half(b: ir.IRBuilder, row: list[ir.Value], part: int) -> list[ir.Value]:
    """Emit the lower or upper half of the lanes of a row of vectors."""
    if len(row) > 1:
        half = len(row) // 2
        return row[part * half : (part + 1) * half]
    half = row[0].type.count // 2
    return [b.shuffle_vector(row[0], row[0], constant_vector(I32, range(part * half, (part + 1) * half)))]


def _either(b: ir.IRBuilder, x: ir.Value, from_x: ir.Block, y: ir.Value, from_y: ir.Block) -> ir.Value:
    phi = b.phi(x.type)
    phi.add_incoming(x, from_x)
    phi.add_incoming(y, from_y)
    return phi


def keep_loads_here(b: ir.IRBuilder) -> None:
    """Emit a barrier without an instruction: the compiler moves no load across it."""
    b.asm(ir.FunctionType(ir.VoidType(), []), "", "~{memory}", [], side_effect=True)


def opaque(b: ir.IRBuilder, address: ir.Value) -> ir.Value:
    """Emit the same address without an instruction, its origin hidden from the compiler.

    LLVM 22 otherwise moves the sums of addresses out of a loop, into more pointers than there are registers.
    """
    return b.asm(ir.FunctionType(PTR, [PTR]), "", "=r,0", [address], side_effect=False)


def prefetch_write(b: ir.IRBuilder, address: ir.Value) -> None:
    """Emit a hint that the line at ``address`` will be written soon."""
    _prefetch(b, address, write=1)


def prefetch_read(b: ir.IRBuilder, address: ir.Value) -> None:
    """Emit a hint that the line at ``address`` will be read soon; any address will do, none faults."""
    _prefetch(b, address, write=0)


def _prefetch(b: ir.IRBuilder, address: ir.Value, write: int) -> None:
    f = _intrinsic(b, "llvm.prefetch.p0", ir.VoidType(), [PTR, I32, I32, I32])
    b.call(f, [address, I32(write), I32(3), I32(1)])


Step = Callable[[ir.Value, list[ir.Value]], list[ir.Value]]


def count_loop(b: ir.IRBuilder, count: ir.Value, carried: Sequence[ir.Value], step: Step, name: str) -> list[ir.Value]:
    """Emit a run loop ``for index in range(count)`` over carried values, and return their last ones.

    ``step(index, values)`` emits one turn and returns the new values. The loop tests at
    its end, behind one test for ``count > 0``, as a compiler would lay it out.
    """
    before = b.block
    body = b.append_basic_block(f"{name}.body")
    done = b.append_basic_block(f"{name}.done")
    b.cbranch(b.icmp_signed(">", count, I64(0)), body, done)

    b.position_at_end(body)
    index = b.phi(I64, name=f"{name}.index")
    phis = [b.phi(value.type) for value in carried]
    results = step(index, list(phis))
    following = b.add(index, I64(1), flags=("nuw", "nsw"))
    last = b.block  # the step may have opened blocks of its own
    b.cbranch(b.icmp_signed("<", following, count), body, done)
    index.add_incoming(I64(0), before)
    index.add_incoming(following, last)
    for phi, start, result in zip(phis, carried, results, strict=True):
        phi.add_incoming(start, before)
        phi.add_incoming(result, last)

    b.position_at_end(done)
    outs = []
    for start, result in zip(carried, results, strict=True):
        out = b.phi(start.type)
        out.add_incoming(start, before)
        out.add_incoming(result, last)
        outs.append(out)
    return outs


def add_target(function: ir.Function, llvm_cpu: str | None) -> None:
    """Compile ``function`` for ``llvm_cpu`` whatever the module is compiled for; ``None``: for the host.

    llvmlite's attribute set knows no string attributes; they're added below its check.
    """
    if llvm_cpu is not None:
        set.add(function.attributes, f'"target-cpu"="{llvm_cpu}"')
        set.add(function.attributes, '"target-features"=""')
