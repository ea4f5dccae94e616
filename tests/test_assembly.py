"""The kernels as assembly: every k loop does the fmas of its tile and nothing on the stack.

Knows: the account of a tile (``spec``) and how the text is counted (``ukernel.assembly``). Nothing here
depends on the host but the last group, which compares the text with what Numba compiles.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from blisgemm.errors import BlisgemmValueError
from blisgemm.machine import host_arch
from blisgemm.machine.facts import Isa
from blisgemm.machine.isas import AVX2, AVX512, NEON, SSE2
from blisgemm.ukernel import catalog
from blisgemm.ukernel.assembly import ARCHES, KLoop, assemble, assemble_sweep, cpus_of, k_loop, target_of
from blisgemm.ukernel.emit import Access
from blisgemm.ukernel.spec import KernelSpec, vectors_of_sweep

PACKED, HALF, DIRECT = Access.PACKED, Access.HALF, Access.ROWS
# Kernels of the set generic are compiled for the host; here for processors whose vectors have 128 bits.
GENERIC_CPUS = ("pwr9", "cortex-a72", "haswell")


@cache
def loop_of(name: str, access: Access, cpu: str | None) -> KLoop:
    spec = catalog.by_name(name)
    return k_loop(assemble(spec, access, cpu), spec)


def targets() -> list[tuple[str, str | None]]:
    found: list[tuple[str, str | None]] = []
    for spec in catalog.kernels():
        found += [(spec.name, cpu) for cpu in (GENERIC_CPUS if spec.isa.arch == "any" else (None,))]
    return found


@pytest.mark.parametrize("access", [PACKED, HALF, DIRECT], ids=lambda access: access.value)
@pytest.mark.parametrize(("name", "cpu"), targets())
def test_k_loop_does_one_fma_per_accumulator_and_step(name: str, cpu: str | None, access: Access) -> None:
    spec, loop = catalog.by_name(name), loop_of(name, access, cpu)
    assert loop.steps >= 1
    if access == PACKED:
        assert loop.steps == spec.unroll
    assert loop.fmas == spec.mr * spec.row_vectors * spec.chains * loop.steps
    assert loop.calls == 0
    assert loop.registers <= {"avx2": 16, "sse2": 16}.get(spec.isa.name, 32)


@pytest.mark.parametrize(("name", "cpu"), targets())
def test_packed_k_loop_keeps_off_the_stack(name: str, cpu: str | None) -> None:
    narrow = catalog.is_narrow(catalog.by_name(name))  # which never meet micro-panels
    loop = loop_of(name, DIRECT if narrow else PACKED, cpu)
    assert loop.stack_accesses == 0, "\n".join(loop.lines)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_half_packed_k_loop_keeps_off_the_stack_where_it_is_used(dtype: str) -> None:
    """In the kernels of first choice: a tile of 12 rows has more pointers than there are address registers."""
    loop = loop_of(catalog.preferred(dtype, AVX512, "packed").name, HALF, None)
    assert loop.stack_accesses == 0, "\n".join(loop.lines)


def test_avx2_loop_loads_b_and_broadcasts_a_once_per_step() -> None:
    spec = KernelSpec("float32", "float32", "float32", 6, 16, AVX2)
    loop = k_loop(assemble(spec, PACKED), spec)
    assert (loop.steps, loop.fmas, loop.loads, loop.broadcasts) == (4, 48, 4 * 2, 4 * 6)
    assert loop.lines[0].startswith(".L")
    assert "j" in loop.lines[-1].split()[0]


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("isa", [AVX512, AVX2, SSE2, NEON], ids=lambda isa: isa.name)
def test_sweep_of_any_number_of_rows_keeps_off_the_stack_and_loads_b_once_for_all(isa: Isa, dtype: str) -> None:
    spec = catalog.preferred(dtype, isa, "row")
    assert spec.sweep_rows >= 2
    for rows in range(1, spec.sweep_rows + 1):
        tile = replace(spec, mr=rows, nr=vectors_of_sweep(spec, rows) * spec.lanes)
        loop = k_loop(assemble_sweep(spec, rows), tile)
        assert loop.stack_accesses == 0, "\n".join(loop.lines)
        assert loop.fmas == loop.steps * tile.fmas_per_k > 0
        assert (loop.calls, loop.registers <= isa.registers) == (0, True)
        if rows > 1 and isa in (AVX512, AVX2):  # elsewhere an element of A is loaded as a vector's first lane
            assert loop.loads == loop.steps * tile.row_vectors * tile.planes


def test_spills_are_seen() -> None:
    # An AVX-512 tile of 24 vectors on a processor with 16 registers of half the width.
    spec = KernelSpec("float32", "float32", "float32", 8, 48, AVX512)
    loop = k_loop(assemble(spec, PACKED, "haswell"), spec)
    assert loop.fmas == 2 * spec.fmas_per_k * loop.steps
    assert loop.stack_accesses > 0
    assert loop.registers == 16


def test_missing_fma_is_seen_as_calls() -> None:
    spec = KernelSpec("float32", "float32", "float32", 6, 16, AVX2)
    loop = k_loop(assemble(spec, PACKED, "x86-64"), spec)
    assert loop.fmas == 0
    assert loop.calls == spec.mr * spec.nr * loop.steps


def test_lanes_split_to_scalars_count_as_one_step() -> None:
    spec = catalog.by_name("f32_4x8_generic")
    loop = k_loop(assemble(spec, PACKED, "sifive-u74"), spec)  # no vectors at all
    assert loop.fmas == spec.mr * spec.nr * loop.steps
    assert loop.steps == spec.unroll


@pytest.mark.parametrize(
    ("cpu", "arch"),
    [("znver4", "x86_64"), ("apple-m1", "aarch64"), ("pwr9", "ppc64le"), ("spacemit-x60", "riscv64")],
)
def test_generic_kernel_goes_where_the_processor_is(cpu: str, arch: str) -> None:
    spec = catalog.by_name("f32_4x8_generic")
    assert target_of(spec, cpu) == (arch, cpu)
    assert assemble(spec, PACKED, cpu).splitlines()[0].startswith(f"# {spec.name} packed for {arch} {cpu}, LLVM ")


def test_own_processor_is_the_one_the_kernel_is_always_compiled_for() -> None:
    for spec in catalog.kernels():
        if spec.isa.llvm_cpu is not None:
            assert target_of(spec) == (spec.isa.arch, spec.isa.llvm_cpu)
    assert target_of(catalog.by_name("f32_4x8_generic"), triple=ARCHES["ppc64le"].triple) == (
        "ppc64le",
        "ppc64le",
    )


@pytest.mark.parametrize("arch", ARCHES)
def test_llvm_lists_its_processors(arch: str) -> None:
    names = cpus_of(arch)
    assert len(names) > 20
    assert ARCHES[arch].cpu in names


def test_unknown_processor_names_near_ones() -> None:
    spec = KernelSpec("float32", "float32", "float32", 8, 12, NEON)
    with pytest.raises(BlisgemmValueError, match=r"got 'aple-m1', which is near apple-m1"):
        assemble(spec, PACKED, "aple-m1")
    with pytest.raises(BlisgemmValueError, match=r"triple: expected .* x86_64, .*; got 'vax'"):
        assemble(spec, PACKED, triple="vax")


def test_text_without_a_loop_is_refused() -> None:
    spec = catalog.by_name("f32_6x16_avx2")
    with pytest.raises(BlisgemmValueError, match="found none"):
        k_loop("# nothing for x86_64 haswell\nname:\n\tretq\n", spec)


@pytest.mark.skipif(host_arch() not in ("x86_64", "aarch64"), reason="no fixed processor for this host's kernels")
@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_numba_compiles_the_same_k_loop(dtype: str) -> None:
    """The text is what runs: the module that Numba made for this host holds a loop with the same counts."""
    import numba
    import numpy as np
    from numba import njit, types
    from support import chosen_kernel

    from blisgemm.ukernel.bind import microkernel

    @njit
    def call(kernel, m, n, k, alpha, a, b, beta, c, conj):  # type: ignore[no-untyped-def]
        microkernel(kernel, "packed", m, n, k, alpha, a, b, beta, c, conj)

    spec = chosen_kernel(dtype)
    reals = numba.typeof(np.zeros(3, f"float{spec.real_bits}"))
    scalar, matrix = numba.from_dtype(np.dtype(dtype)), numba.typeof(np.zeros((3, 3), dtype))
    call.compile((numba.typeof(spec), *(types.intp,) * 3, scalar, reals, reals, scalar, matrix, types.intp))
    text = call.inspect_asm(call.signatures[0])
    text = text[text.index(f"\nblisgemm_{spec.name}_{PACKED.value}:") :]
    arch, _ = target_of(spec)
    theirs, ours = k_loop(f"# Numba for {arch} host\n{text}", spec), k_loop(assemble(spec, PACKED), spec)
    assert replace(theirs, lines=()) == replace(ours, lines=())
    assert len(theirs.lines) == len(ours.lines)
