"""Read a kernel as assembly, for any processor that LLVM knows, and count what its k loop does.

Knows: how to compile one microkernel for another processor, and what is worth counting. Does not
know: what the kernel means (``emit``) or how instructions are spelled (``dialects``). Called by
``cli.asm`` and by the tests that hold every kernel to its account.

Nothing runs here, so a laptop reads the kernels of all machines. The text is what LLVM makes
of the very function that ``bind`` hands to Numba, with the same optimisation level.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

from llvmlite import ir

from ..errors import BlisgemmValueError
from ..machine import host_arch
from .dialects import ARCHES, CALL, PREFETCH, Dialect, innermost_loops
from .emit import Access, emit_microkernel
from .spec import KernelSpec
from .sweep import emit_sums

__all__ = [
    "ARCHES", "KLoop", "arch_of_text", "assemble", "assemble_sweep", "cpus_of", "k_loop", "target_of", "triple_of",
]  # fmt: skip


@dataclass(frozen=True)
class KLoop:
    """The loop over p of one kernel, counted per turn.

    Args:
        lines: its instructions, label first.
        steps: k steps per turn: multiply-adds divided by those of one step.
        fmas: multiply-add instructions (for a set without fma: products, each with its sum).
        loads: loads into vector registers that do not broadcast.
        broadcasts: instructions that spread one element over all lanes, from memory or register.
        stack_accesses: reads and writes of the stack, which are spills (or late arguments).
        stores: vector registers written to memory.
        prefetches: lines asked for ahead.
        others: instructions that are none of these: moves, addresses, sums of separate products, the loop.
        calls: calls of a function, such as ``fmaf`` where a processor has no fma.
        registers: different vector registers named.
    """

    lines: tuple[str, ...]
    steps: int
    fmas: int
    loads: int
    broadcasts: int
    stack_accesses: int
    stores: int
    prefetches: int
    others: int
    calls: int
    registers: int


def assemble(spec: KernelSpec, access: Access, cpu: str | None = None, triple: str | None = None) -> str:
    """Return the assembly of one microkernel.

    Args:
        spec: the kernel.
        access: where it finds A and B.
        cpu: LLVM's name of the processor; ``None`` is the one the kernel is always compiled for.
        triple: LLVM's name of the target; ``None`` derives it from the kernel's set and the cpu.

    Raises:
        BlisgemmValueError: no target has a processor of that name.

    Example:
        >>> from blisgemm.machine.isas import NEON
        >>> spec = KernelSpec("float32", "float32", "float32", 8, 12, NEON)
        >>> "fmla" in assemble(spec, Access.PACKED)  # on any host
        True
    """
    return _assembled(spec, access.value, lambda module, one: emit_microkernel(module, one, access), cpu, triple)


def assemble_sweep(spec: KernelSpec, rows: int, cpu: str | None = None, triple: str | None = None) -> str:
    """Return the assembly of what adds to the sums of ``rows`` rows in ``sweep``; others as ``assemble`` has them."""
    return _assembled(spec, f"sweep of {rows}", lambda module, one: emit_sums(module, one, rows), cpu, triple)


def _assembled(
    spec: KernelSpec, name: str, emit: Callable[[ir.Module, KernelSpec], ir.Function], cpu: str | None,
    triple: str | None,
) -> str:  # fmt: skip
    """Return the assembly of the function that ``emit`` puts into a module."""
    import llvmlite.binding as llvm  # type: ignore[import-untyped, unused-ignore]

    arch, cpu = target_of(spec, cpu, triple)
    triple = triple or ARCHES[arch].triple
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(triple).create_target_machine(cpu=cpu, opt=3, codemodel="default")
    module = ir.Module(name=spec.name)
    module.triple, module.data_layout = triple, str(machine.target_data)
    function = emit(module, replace(spec, isa=replace(spec.isa, llvm_cpu=cpu)))
    function.linkage = ""  # an internal function that nobody calls would be dropped
    parsed = llvm.parse_assembly(str(module))
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=3))
    builder.getModulePassManager().run(parsed, builder)
    head = f"# {spec.name} {name} for {arch} {cpu}, LLVM {'.'.join(map(str, llvm.llvm_version_info))}"
    return f"{head}\n{machine.emit_assembly(parsed)}"


def target_of(spec: KernelSpec, cpu: str | None = None, triple: str | None = None) -> tuple[str, str]:
    """Return the architecture and the processor that a kernel is compiled for.

    Without a processor: the one that the kernel is always compiled for, which for the set ``generic``
    is this host. With one: the first architecture that has it, the kernel's own or the host's before
    others; vectors wider than it has are split by LLVM.

    Raises:
        BlisgemmValueError: the architecture is not one of ``ARCHES``, or none has such a processor.
    """
    own = _arch_of(host_arch(), default="x86_64") if spec.isa.arch == "any" else spec.isa.arch
    first = _arch_of(triple) if triple else own
    if cpu is None:
        return first, _own_cpu(spec, first)
    arches = (first,) if triple else (first, *(arch for arch in ARCHES if arch != first))
    for arch in arches:
        if cpu in cpus_of(arch):
            return arch, cpu
    import difflib

    near = difflib.get_close_matches(cpu, [name for arch in arches for name in cpus_of(arch)], n=3)
    raise BlisgemmValueError(
        f"cpu: expected a processor that LLVM knows for {', '.join(arches)}; got {cpu!r}"
        f"{', which is near ' + ', '.join(near) if near else ''} (the name 'help' lists them)"
    )


def triple_of(arch: str) -> str:
    """Return LLVM's triple of an architecture of ``ARCHES``.

    Raises:
        BlisgemmValueError: it is not one of them.
    """
    return ARCHES[_arch_of(arch)].triple


def _own_cpu(spec: KernelSpec, arch: str) -> str:
    if spec.isa.llvm_cpu is not None and spec.isa.arch == arch:
        return spec.isa.llvm_cpu
    if arch == _arch_of(host_arch(), default=""):
        import llvmlite.binding as llvm

        name = str(llvm.get_host_cpu_name())
        return name if name != "generic" else ARCHES[arch].cpu
    return ARCHES[arch].cpu


def _arch_of(text: str, default: str | None = None) -> str:
    """Return the key of ``ARCHES`` that a triple or a system's word begins with."""
    word = re.split(r"[-\s]", text, maxsplit=1)[0].lower()
    word = {"powerpc64le": "ppc64le", "amd64": "x86_64", "arm64": "aarch64"}.get(word, word)
    if word in ARCHES:
        return word
    if default is not None:
        return default
    raise BlisgemmValueError(f"triple: expected the architecture to be one of {', '.join(ARCHES)}; got {text!r}")


@lru_cache
def cpus_of(arch: str) -> tuple[str, ...]:
    """Return the processors that LLVM knows for an architecture of ``ARCHES``.

    LLVM accepts any name and only prints a warning, and it prints the list for the name ``help``,
    to standard error in both cases: a child process is asked, whose output is ours alone.
    """
    program = (
        "import llvmlite.binding as llvm; llvm.initialize_all_targets(); llvm.initialize_all_asmprinters(); "
        f"llvm.Target.from_triple({ARCHES[arch].triple!r}).create_target_machine(cpu='help')"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    return tuple(re.findall(r"(?m)^\s+(\S+)\s+- Select the \S+ processor", answer.stderr))


def k_loop(assembly: str, spec: KernelSpec) -> KLoop:
    """Find the loop over p, and count what one turn of it does.

    It is the loop that updates the most elements a turn: the one over the k steps that are left updates
    fewer, and those that write C hardly any. Of the variants of a direct kernel it is that of the whole tile: its
    multiply-adds are the tile's, in the most registers (LLVM may unroll a smaller one to as many).

    Args:
        assembly: what ``assemble`` returned; its first line names the architecture.
        spec: the kernel that it was made from.

    Raises:
        BlisgemmValueError: the text holds no loop with a multiply-add.
    """
    dialect = ARCHES[arch_of_text(assembly)]
    if re.search(dialect.frame, assembly):
        dialect = replace(dialect, stack=f"{dialect.stack}|{dialect.by_frame}")
    counted = [_count(lines, dialect, spec) for lines in innermost_loops(assembly)]
    tile = [pair for pair in counted if pair[0] and pair[1].fmas % spec.fmas_per_k == 0 and "_packed" not in assembly]
    best = (lambda pair: (pair[1].registers, -pair[1].steps)) if tile else (lambda pair: pair[0])
    elements, found = max(tile or counted, key=best, default=(0, None))
    if found is None or elements == 0:
        raise BlisgemmValueError(f"assembly: expected a loop with multiply-adds of {spec.name}; found none")
    return found


def arch_of_text(assembly: str) -> str:
    """Return the architecture that ``assemble`` has written on the first line of its text."""
    return _arch_of(assembly.partition(" for ")[2])


def _count(lines: list[str], dialect: Dialect, spec: KernelSpec) -> tuple[int, KLoop]:
    """Return how many elements a turn of the loop updates, and all counts."""
    fmas = lanes = loads = broadcasts = stacked = stores = prefetches = others = calls = 0
    registers: set[str] = set()
    for text in map(str.strip, lines):
        width = _fma_lanes(text, dialect, spec)
        broadcast = bool(re.match(dialect.broadcast, text))
        is_load = re.match(dialect.load, text) and not broadcast
        fmas, lanes, broadcasts = fmas + (width > 0), lanes + width, broadcasts + broadcast
        loads += 0 if not is_load else 2 if text.startswith("ldp") else 1
        stacked += bool(re.search(dialect.stack, text))
        calls += bool(re.match(CALL, text))
        is_store, ahead = bool(re.match(dialect.store, text)), bool(re.match(PREFETCH, text))
        stores, prefetches = stores + is_store, prefetches + ahead
        others += not (width or broadcast or is_load or is_store or ahead or text.endswith(":"))
        registers |= _registers(text, dialect)
    elements = lanes or calls
    steps = elements // (spec.mr * spec.nr * spec.chains)
    counts = (steps, fmas, loads, broadcasts, stacked, stores, prefetches, others, calls, len(registers))
    return elements, KLoop(tuple(lines), *counts)


def _fma_lanes(text: str, dialect: Dialect, spec: KernelSpec) -> int:
    """Return how many elements this multiply-add updates; 0 if it is none."""
    if not spec.isa.fma:
        return spec.lanes if re.match(dialect.product, text) else 0
    for pattern, bits in dialect.lanes:
        if re.match(pattern, text):
            return spec.lanes if bits is None else bits // spec.real_bits or 1
    return 0


def _registers(text: str, dialect: Dialect) -> set[str]:
    if dialect.register:
        return set(re.findall(dialect.register, text))
    # Power writes bare numbers: of vector instructions all operands are registers, of loads the first.
    if re.match(r"x[vsx]", text):
        return set(re.findall(r"\b\d+\b", text))
    return set(re.findall(r"^lxv\w*\s+(\d+)", text))
