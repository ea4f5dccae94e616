"""The few words of the GPU that the kernels speak, as Numba CUDA intrinsics.

Knows: how register fragments are held (tuples, which LLVM takes apart into registers), and how memory is read, written
and copied by address. Does not know: tiles, products. Called by ``kernels`` and ``ladder`` only; with ``compile`` the
one place that touches the Numba CUDA compiler.

Addresses are integers: 64 bits in global memory, 32 bits in the window of shared memory. A *generation* loop (a Python
``for`` inside ``codegen``) writes copies of instructions; nothing here loops when it runs.

Source: PTX ISA 8.8, "Instruction Set"; the idea of tuples as fragments was found by experiment (CONTRIBUTING).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.cuda import cgutils, types
from numba.cuda.extending import intrinsic
from numba.cuda.typing import signature

__all__ = [
    "F32",
    "F64",
    "GLOBAL",
    "I32",
    "I64",
    "SHARED",
    "address_of",
    "asm",
    "commit_copies",
    "constant",
    "copy_async",
    "count_arrival",
    "either",
    "fence",
    "fma",
    "intrinsic_of",
    "load",
    "load_once",
    "nothing",
    "of_type",
    "pack",
    "reset",
    "shared_base",
    "store",
    "types",
    "udiv",
    "unpack",
    "urem",
    "wait_for_copies",
]  # fmt: skip

I8, I32, I64 = (ir.IntType(bits) for bits in (8, 32, 64))
F32, F64 = ir.FloatType(), ir.DoubleType()
GLOBAL, SHARED = 1, 3  # NVVM's address spaces

_CONSTRAINTS = {"float": "f", "double": "d", "i32": "r", "i64": "l", "i16": "h"}


def of_type(reals: str) -> tuple[Any, ir.Type]:
    """Return Numba's and LLVM's type of ``float32`` or ``float64``."""
    return (types.float32, F32) if reals == "float32" else (types.float64, F64)


def constant(value: int, type_: ir.Type = I32) -> ir.Constant:
    """Return an integer."""
    return ir.Constant(type_, value)


def unpack(b: ir.IRBuilder, aggregate: ir.Value, count: int) -> list[ir.Value]:
    """Return the registers of a fragment."""
    return [b.extract_value(aggregate, i) for i in range(count)]


def pack(b: ir.IRBuilder, values: list[ir.Value]) -> ir.Value:
    """Return a fragment of registers: what a Numba ``UniTuple`` is in LLVM."""
    aggregate = ir.Constant(ir.ArrayType(values[0].type, len(values)), ir.Undefined)
    for i, value in enumerate(values):
        aggregate = b.insert_value(aggregate, value, i)
    return aggregate


def asm(
    b: ir.IRBuilder, text: str, inputs: list[ir.Value], outputs: list[ir.Type] | None = None, *, tied: int = 0,
    ordered: bool = True,
) -> Any:  # fmt: skip
    """Emit one PTX statement; return its outputs.

    Args:
        text: with ``$0`` ... for outputs, then inputs; statements end with ``;``.
        tied: so many first inputs are the outputs' old values.
        ordered: whether it touches memory, and may not move past others that do.
    """
    outputs = outputs or []
    names = [f"={_CONSTRAINTS[str(out)]}" for out in outputs]
    names += [str(i) if i < tied else _CONSTRAINTS[str(value.type)] for i, value in enumerate(inputs)]
    names += ["~{memory}"] * ordered
    returns = ir.VoidType() if not outputs else outputs[0] if len(outputs) == 1 else ir.LiteralStructType(outputs)
    function = ir.FunctionType(returns, [value.type for value in inputs])
    result = b.call(ir.InlineAsm(function, text, ",".join(names), side_effect=ordered), inputs)
    return result if len(outputs) < 2 else [b.extract_value(result, i) for i in range(len(outputs))]


def address_of(b: ir.IRBuilder, base: ir.Value, offset: int) -> ir.Value:
    """Return ``base + offset`` bytes."""
    return base if offset == 0 else b.add(base, ir.Constant(base.type, offset))


def load(b: ir.IRBuilder, address: ir.Value, type_: ir.Type, count: int, space: int) -> list[ir.Value]:
    """Emit one load of ``count`` adjacent values, aligned to all of them together."""
    vector = ir.VectorType(type_, count) if count > 1 else type_
    value = b.load(b.inttoptr(address, ir.PointerType(vector, space)))
    value.align = count * _bytes(type_)
    return [value] if count == 1 else [b.extract_element(value, constant(i)) for i in range(count)]


def load_once(b: ir.IRBuilder, address: ir.Value, type_: ir.Type, count: int) -> list[ir.Value]:
    """Emit one load of adjacent values of global memory that nobody changes, past L1; it stays where it is written."""
    most = 16 // _bytes(type_)
    if count > most:
        return [
            x for i in range(0, count, most) for x in load_once(b, address_of(b, address, 16 * i // most), type_, most)
        ]
    names = ", ".join(f"${i}" for i in range(count))
    vector = f".v{count}" if count > 1 else ""
    text = f"ld.global.nc.L1::no_allocate{vector}.f{8 * _bytes(type_)} {{{names}}}, [${count}];"
    found = asm(b, text if count > 1 else text.replace("{$0}", "$0"), [address], [type_] * count)
    return list(found) if count > 1 else [found]


def either(
    b: ir.IRBuilder, exists: ir.Value, emit: Callable[[], list[ir.Value]], type_: ir.Type, count: int
) -> list[ir.Value]:
    """Emit what ``emit`` does if something exists, else ``count`` zeros."""
    before = b.block
    with b.if_then(exists):
        found = emit()
        inside = b.block
    chosen = []
    for value in found[:count]:
        phi = b.phi(type_)
        phi.add_incoming(ir.Constant(type_, 0.0), before)
        phi.add_incoming(value, inside)
        chosen.append(phi)
    return chosen


def store(b: ir.IRBuilder, values: list[ir.Value], address: ir.Value, space: int) -> None:
    """Emit one store of adjacent values, aligned to all of them together."""
    type_, count = values[0].type, len(values)
    value = values[0]
    if count > 1:
        value = ir.Constant(ir.VectorType(type_, count), ir.Undefined)
        for i, element in enumerate(values):
            value = b.insert_element(value, element, constant(i))
    instruction = b.store(value, b.inttoptr(address, ir.PointerType(value.type, space)))
    instruction.align = count * _bytes(type_)


def _bytes(type_: ir.Type) -> int:
    return {"float": 4, "double": 8, "half": 2, "i16": 2, "i32": 4, "i64": 8}[str(type_)]


def fma(b: ir.IRBuilder, x: ir.Value, y: ir.Value, z: ir.Value) -> ir.Value:
    """Emit ``x * y + z``, rounded once."""
    return b.fma(x, y, z)


def copy_async(b: ir.IRBuilder, shared: ir.Value, source: ir.Value, size: int, valid: ir.Value | None) -> None:
    """Emit a copy of ``size`` (4, 8 or 16) bytes from global to shared memory that goes on by itself (sm_80).

    ``valid``: how many of them to read; the others become zeros, and with none ``source`` may be any address.
    """
    text = f"cp.async.c{'g' if size == 16 else 'a'}.shared.global [$0], [$1], {size}"
    asm(b, f"{text};" if valid is None else f"{text}, $2;", [shared, source] + ([] if valid is None else [valid]))


def _statement(text: str) -> Any:
    @intrinsic
    def word(typingctx):  # type: ignore[no-untyped-def]
        def codegen(context, builder, sig, args):  # type: ignore[no-untyped-def]
            asm(builder, text, [])
            return context.get_dummy_value()

        return signature(types.void), codegen

    return word


commit_copies = _statement("cp.async.commit_group;")
fence = _statement("fence.acq_rel.gpu;")


def wait_for_copies(groups: int) -> Any:
    """Return the word that waits until at most ``groups`` groups of copies are under way."""
    return _statement(f"cp.async.wait_group {groups};")


@intrinsic
def shared_base(typingctx):  # type: ignore[no-untyped-def]
    """Return the address of dynamic shared memory."""

    def codegen(context, builder, sig, args):  # type: ignore[no-untyped-def]
        name = "_blisgemm_shared"
        found = builder.module.globals.get(name)
        if found is None:
            found = cgutils.add_global_variable(builder.module, ir.ArrayType(I8, 0), name, SHARED)
            found.align = 128
            found.linkage = "external"
        return builder.ptrtoint(found, I32)

    return signature(types.int32), codegen


@intrinsic
def count_arrival(typingctx, address):  # type: ignore[no-untyped-def]
    """Add 1 to the int32 at a global address; return what it was. Orders memory before and after on the whole GPU."""

    def codegen(context, builder, sig, args):  # type: ignore[no-untyped-def]
        return asm(builder, "atom.add.acq_rel.gpu.global.u32 $0, [$1], 1;", list(args), [I32])

    return signature(types.int32, types.int64), codegen


@intrinsic
def udiv(typingctx, a, b):  # type: ignore[no-untyped-def]
    """Return ``a // b`` of int32 that are not negative (Python's ``//`` also tests for zero and for signs)."""

    def codegen(context, builder, sig, args):  # type: ignore[no-untyped-def]
        return builder.udiv(*args)

    return signature(types.int32, types.int32, types.int32), codegen


@intrinsic
def urem(typingctx, a, b):  # type: ignore[no-untyped-def]
    """Return ``a % b`` likewise."""

    def codegen(context, builder, sig, args):  # type: ignore[no-untyped-def]
        return builder.urem(*args)

    return signature(types.int32, types.int32, types.int32), codegen


def intrinsic_of(
    name: str, arguments: tuple[Any, ...], emit: Any, returns: Any = types.void, *, with_context: bool = False
) -> Any:
    """Return a word for kernels: ``emit(builder, argument values)`` writes its code and returns its value.

    Args:
        arguments, returns: Numba types; arguments are converted to them.
        with_context: whether ``emit`` takes Numba's context too, to compile Python functions with.
    """

    def codegen(context, builder, sig, args):  # type: ignore[no-untyped-def]
        value = emit(builder, list(args), *([context] if with_context else []))
        return context.get_dummy_value() if value is None else value

    # an intrinsic's parameters must have names of their own
    names = [f"x{i}" for i in range(len(arguments))]
    text = f"def {name}({', '.join(['typingctx', *names])}):\n    return made(), codegen\n"
    scope = {"made": lambda: signature(returns, *arguments), "codegen": codegen}
    exec(text, scope)  # the only way to give a function as many named parameters as a list has
    return intrinsic(scope[name])


def _emit_reset(b: ir.IRBuilder, args: list[ir.Value]) -> None:
    store(b, [constant(0)], args[0], GLOBAL)


reset = intrinsic_of("reset", (types.int64,), _emit_reset)  # a counter back to zero, for the next launch
nothing = intrinsic_of("nothing", (), lambda b, args: None)
