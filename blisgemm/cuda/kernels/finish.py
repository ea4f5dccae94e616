"""What becomes of a thread's sums: alpha, beta, the epilogue, edges, and the way to C.

Knows: how each element of C is formed and stored; how parts of a tile wait in memory and are added up. Does not know:
how sums came about. Called by ``gemm``.

    c[i, j] = alpha * s                  where beta = 0  (C is not read)
            = fma(alpha, s, beta * c)    otherwise
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from ..ptx import (
    F32,
    F64,
    GLOBAL,
    I64,
    address_of,
    asm,
    constant,
    fma,
    intrinsic_of,
    load,
    of_type,
    pack,
    signature,
    store,
    unpack,
)
from ..ptx import types as numba_types
from ..tiles import KernelSpec
from .threadtile import Fragments
from .words import function_of

__all__ = ["add_part_of", "extra_type_of", "keep_part_of", "store_of"]

_PART_BYTES = 16  # of sums that one thread writes at once

Planes = list[ir.Value]


def store_of(spec: KernelSpec, fragments: Fragments) -> Any:
    """Return the word that turns sums into elements of C.

    Args of the word:
        sums. c: address of the element at this lane's place. rs_c, cs_c: strides in bytes.
        rows_left, columns_left: how many there are from this lane's place on. alpha, beta: (re, im) each.
        item, row, column: which element that is. extra: the arguments of the epilogue's steps.
    """
    real_numba, _ = of_type(spec.reals)
    int32, int64 = numba_types.int32, numba_types.int64
    extra_type = extra_type_of(spec)

    def emit(b: ir.IRBuilder, args: list[ir.Value], context: Any) -> None:
        sums, c, rs_c, cs_c, rows_left, columns_left, *factors, item, row, column, extra = args
        steps = Steps(b, context, spec, extra_type, extra) if spec.epilogue else None
        alpha, beta = factors[: spec.planes], factors[2 : 2 + spec.planes]
        values = unpack(b, sums, spec.sums)
        order = sorted(range(len(fragments.places)), key=fragments.places.__getitem__)
        for first in range(0, len(order), spec.c_vector):  # generation loop
            i, j = fragments.places[order[first]]
            address = b.add(c, b.mul(rs_c, constant(i, I64))) if i else c
            if spec.c_vector > 1:
                address = address_of(b, address, j * spec.out_itemsize)
            elif j:
                address = b.add(address, b.mul(cs_c, constant(j, I64)))
            place = (item, _index(b, row, i), _index(b, column, j))
            group = [values[q * spec.planes : (q + 1) * spec.planes] for q in order[first : first + spec.c_vector]]

            if spec.reduction == "atomic":
                _add_group(b, spec, group, address, cs_c, alpha, (rows_left, columns_left), (i, j))
                continue

            def elements(address: ir.Value = address, group: list[Planes] = group, place: Any = place) -> None:
                old = _load_c(b, spec, address) if spec.reads_c else [None] * spec.c_vector
                done = [_scaled(b, spec, s, before, alpha, beta) for s, before in zip(group, old, strict=True)]
                if steps is not None:
                    done = [steps.done(x, place[0], place[1], _index(b, place[2], q)) for q, x in enumerate(done)]
                _store_c(b, spec, [x for planes in done for x in planes], address)

            if not spec.edges:
                elements()
                continue
            exists = b.and_(b.icmp_signed("<", constant(i), rows_left), b.icmp_signed("<", constant(j), columns_left))
            with b.if_then(exists):
                elements()

    sums_type = numba_types.UniTuple(real_numba, spec.sums)
    of_place = (int64, int64, int64)
    arguments = (sums_type, *of_place, int32, int32, *(real_numba,) * 4, *of_place, extra_type)
    return intrinsic_of("store_tile", arguments, emit, with_context=True)


def _add_group(
    b: ir.IRBuilder, spec: KernelSpec, group: list[Planes], address: ir.Value, cs_c: ir.Value, alpha: Planes,
    left: tuple[ir.Value, ir.Value], at: tuple[int, int],
) -> None:  # fmt: skip
    """Emit the additions of ``alpha * sums`` to elements of C, one by one and in no order."""
    real = "f32" if spec.reals == "float32" else "f64"
    size = 4 if spec.reals == "float32" else 8
    exists = b.and_(b.icmp_signed("<", constant(at[0]), left[0]), b.icmp_signed("<", constant(at[1]), left[1]))
    with b.if_then(exists):
        for q, sums in enumerate(group):  # generation loop
            here = b.add(address, b.mul(cs_c, constant(q, I64))) if q else address
            for plane, value in enumerate(_product(b, alpha, sums)):
                asm(b, f"red.global.add.{real} [$0], $1;", [address_of(b, here, plane * size), value])


def _index(b: ir.IRBuilder, start: ir.Value, offset: int) -> ir.Value:
    return b.add(start, constant(offset, I64)) if offset else start


# ---- the epilogue ------------------------------------------------------------------------------------


def extra_type_of(spec: KernelSpec) -> Any:
    """Return the Numba type of the epilogue's arguments: a tuple of numbers and arrays."""
    return numba_types.Tuple([_numba_type(name) for step in spec.epilogue for name in step.arguments])


def _numba_type(name: str) -> Any:
    kind, _, axes = name.partition("[")
    element = getattr(numba_types, kind)
    return numba_types.Array(element, int(axes[:-1]), "A") if axes else element


class Steps:
    """The epilogue's functions, applied to one element after the other."""

    def __init__(self, b: ir.IRBuilder, context: Any, spec: KernelSpec, extra_type: Any, extra: ir.Value) -> None:
        self.b, self.context, self.spec = b, context, spec
        kinds = list(extra_type.types)
        values = [b.extract_value(extra, i) for i in range(len(kinds))]
        self.element = getattr(numba_types, spec.dtype)
        self.calls: list[tuple[Any, Any, list[ir.Value]]] = []
        at = 0
        for step in spec.epilogue:
            count = len(step.arguments)
            function = step.function
            index = (numba_types.int64,) * (2 if function is not None else 3)
            typed = signature(self.element, self.element, *index, *kinds[at : at + count])
            self.calls.append((function or function_of(step.word, spec.reals), typed, values[at : at + count]))
            at += count

    def done(self, x: Planes, item: ir.Value, row: ir.Value, column: ir.Value) -> Planes:
        """Emit all steps for one element; return it."""
        if self.spec.swapped:
            row, column = column, row
        value = x[0]
        if self.spec.complex:
            value = ir.Constant(ir.LiteralStructType([p.type for p in x]), ir.Undefined)
            for plane, part in enumerate(x):
                value = self.b.insert_value(value, part, plane)
        for function, typed, arguments in self.calls:
            place = [row, column] if len(typed.args) - len(arguments) == 3 else [item, row, column]
            value = self.context.compile_internal(self.b, function, typed, [value, *place, *arguments])
        return [self.b.extract_value(value, 0), self.b.extract_value(value, 1)] if self.spec.complex else [value]


def _scaled(b: ir.IRBuilder, spec: KernelSpec, s: Planes, old: Planes | None, alpha: Planes, beta: Planes) -> Planes:
    if old is None:
        return _product(b, alpha, s)
    kept = _product(b, beta, old)
    if not spec.complex:
        return [fma(b, alpha[0], s[0], kept[0])]
    minus = b.fsub(ir.Constant(s[1].type, -0.0), alpha[1])
    return [
        fma(b, minus, s[1], fma(b, alpha[0], s[0], kept[0])),
        fma(b, alpha[1], s[0], fma(b, alpha[0], s[1], kept[1])),
    ]


def _product(b: ir.IRBuilder, x: Planes, y: Planes) -> Planes:
    if len(x) == 1:
        return [b.fmul(x[0], y[0])]
    return [
        b.fsub(b.fmul(x[0], y[0]), b.fmul(x[1], y[1])),
        b.fadd(b.fmul(x[0], y[1]), b.fmul(x[1], y[0])),
    ]


def _load_c(b: ir.IRBuilder, spec: KernelSpec, address: ir.Value) -> list[Planes]:
    """Emit the elements of C at ``address``, in the type of the sums."""
    real = of_type(spec.reals)[1]
    raw = load(b, address, _memory_type(spec), spec.c_vector * spec.planes, GLOBAL)
    reals = [_from_memory(b, spec.out, x, real) for x in raw]
    return [reals[q : q + spec.planes] for q in range(0, len(reals), spec.planes)]


def _store_c(b: ir.IRBuilder, spec: KernelSpec, reals: list[ir.Value], address: ir.Value) -> None:
    store(b, [_to_memory(b, spec.out, x) for x in reals], address, GLOBAL)


def _memory_type(spec: KernelSpec) -> ir.Type:
    return {
        "float32": F32, "complex64": F32, "float64": F64, "complex128": F64,
        "float16": ir.IntType(16), "bfloat16": ir.IntType(16),
    }[spec.out]  # fmt: skip


def _to_memory(b: ir.IRBuilder, out: str, x: ir.Value) -> ir.Value:
    """Emit a conversion to what is stored, rounded once, to the nearest."""
    if out in ("float16", "bfloat16"):
        kind = "f16" if out == "float16" else "bf16"
        if x.type == F64 and kind == "bf16":
            x = b.fptrunc(x, F32)
        return asm(
            b, f"cvt.rn.{kind}.{'f64' if x.type == F64 else 'f32'} $0, $1;", [x], [ir.IntType(16)], ordered=False
        )
    target = F32 if out in ("float32", "complex64") else F64
    if x.type == target:
        return x
    return b.fptrunc(x, F32) if target == F32 else b.fpext(x, F64)


def _from_memory(b: ir.IRBuilder, out: str, x: ir.Value, real: ir.Type) -> ir.Value:
    if out == "float16":
        x = asm(b, "cvt.f32.f16 $0, $1;", [x], [F32], ordered=False)
    elif out == "bfloat16":
        x = b.bitcast(b.shl(b.zext(x, ir.IntType(32)), constant(16)), F32)
    if x.type == real:
        return x
    return b.fpext(x, real) if real == F64 else b.fptrunc(x, real)


# ---- parts of a tile that wait in memory -------------------------------------------------------------


def _chunks(spec: KernelSpec) -> tuple[int, int]:
    """Return how many reals a thread writes at once, and the bytes from one of its chunks to the next."""
    per = _PART_BYTES // (4 if spec.reals == "float32" else 8)
    return per, _PART_BYTES * spec.tile.threads


def keep_part_of(spec: KernelSpec) -> Any:
    """Return the word ``keep(sums, address)``: write this thread's sums, beside those of its neighbours."""
    real_numba, _ = of_type(spec.reals)
    per, step = _chunks(spec)

    def emit(b: ir.IRBuilder, args: list[ir.Value]) -> None:
        values = unpack(b, args[0], spec.sums)
        for i in range(0, spec.sums, per):  # generation loop
            store(b, values[i : i + per], address_of(b, args[1], i // per * step), GLOBAL)

    return intrinsic_of("keep_part", (numba_types.UniTuple(real_numba, spec.sums), numba_types.int64), emit)


def add_part_of(spec: KernelSpec) -> Any:
    """Return the word ``add(sums, address)``: the sums plus what ``keep`` wrote there."""
    real_numba, real = of_type(spec.reals)
    per, step = _chunks(spec)
    sums = numba_types.UniTuple(real_numba, spec.sums)

    def emit(b: ir.IRBuilder, args: list[ir.Value]) -> ir.Value:
        values = unpack(b, args[0], spec.sums)
        for i in range(0, spec.sums, per):  # generation loop
            part = load(b, address_of(b, args[1], i // per * step), real, per, GLOBAL)
            values[i : i + per] = [b.fadd(x, y) for x, y in zip(values[i : i + per], part, strict=True)]
        return pack(b, values)

    return intrinsic_of("add_part", (sums, numba_types.int64), emit, sums)
