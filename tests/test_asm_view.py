"""The register map and the account of every kernel, read from its assembly.

Knows: what a tile needs (``spec``). Nothing depends on the host: kernels are compiled for the processors of their sets,
those of the set generic for three architectures.
"""

from __future__ import annotations

import io
import json
import re
from functools import cache

import pytest
from rich.console import Console

from blisgemm.cli import main
from blisgemm.cli.asm import _print_kernel
from blisgemm.teach.instructions import READERS, Advance, Copy, Fma, Load, Memory, Operand, Product, Sum
from blisgemm.teach.kdiff import difference, folded, spelled_by_role
from blisgemm.teach.kstep import KStep, draw_map, needs, read_kernel
from blisgemm.teach.registers import CHAINS, register_map
from blisgemm.ukernel import catalog
from blisgemm.ukernel.emit import Access

GENERIC_CPUS = ("pwr9", "cortex-a72", "haswell", "spacemit-x60")
KERNELS = [
    (spec.name, cpu) for spec in catalog.kernels() for cpu in (GENERIC_CPUS if spec.isa.arch == "any" else (None,))
]
every_kernel = pytest.mark.parametrize(("name", "cpu"), KERNELS)


@cache
def step_of(name: str, cpu: str | None = None, access: Access | None = None) -> KStep:
    """Read the k loop of a kernel, by default with micro-panels, or as it lies where it is only ever used so."""
    spec = catalog.by_name(name)
    return read_kernel(spec, access or (Access.ROWS if catalog.is_narrow(spec) else Access.PACKED), cpu)


# ---- every kernel --------------------------------------------------------------------------------


@every_kernel
def test_the_map_covers_the_tile_with_one_register_each(name: str, cpu: str | None) -> None:
    step = step_of(name, cpu)
    spec, held = step.spec, step.registers
    assert held.why_not == ""
    places = {(cell.row, cell.column, cell.chain) for cell in held.cells}
    chains = CHAINS.values() if spec.complex else ("",)
    assert places == {(i, j, c) for i in range(spec.mr) for j in range(0, spec.nr, spec.lanes) for c in chains}
    assert all(cell.lanes == spec.lanes for cell in held.cells)
    assert len(held.cells) == len(set(held.accumulators)) == spec.mr * spec.nr // spec.lanes * spec.chains


@every_kernel
def test_sums_share_no_register_with_operands(name: str, cpu: str | None) -> None:
    held = step_of(name, cpu).registers
    used_once = catalog.by_name(name).row_vectors == 1  # then a fma may read the element of A from memory
    assert (held.a or used_once) and held.b
    assert not set(held.accumulators) & {*held.a, *held.b, *held.products}
    assert bool(held.products) == (not catalog.by_name(name).isa.fma)


@every_kernel
def test_a_step_multiplies_each_element_of_a_with_each_vector_of_b(name: str, cpu: str | None) -> None:
    step = step_of(name, cpu)
    spec, held = step.spec, step.registers
    assert (held.elements_of_a, held.vectors_of_b) == (spec.mr * spec.planes, spec.row_vectors * spec.planes)


@every_kernel
def test_counts_per_step_equal_the_spec(name: str, cpu: str | None) -> None:
    step = step_of(name, cpu)
    spec, found = step.spec, {need.what: need for need in needs(step)}
    assert found["fmas" if spec.isa.fma else "products"].counted == spec.fmas_per_k
    assert found["stores"].counted == found["accesses of the stack"].counted == 0
    loads, broadcasts = found["vector loads"], found["broadcasts"]
    moved = loads.counted + broadcasts.counted
    if loads.needed is None:  # generic: A comes by a load or a broadcast, as the processor has it
        assert moved == spec.planes * (spec.row_vectors + spec.mr)
    else:
        assert moved == loads.needed + broadcasts.needed
        if spec.isa.broadcast == "memory":
            assert (loads.counted, broadcasts.counted) == (loads.needed, broadcasts.needed)
    assert step.loop.registers >= len({*step.registers.accumulators, *step.registers.a, *step.registers.b})


@pytest.mark.parametrize("name", ["f32_8x48_avx512", "f32_6x16_avx2", "f64_8x16_avx512", "f32_8x8_neon"])
@pytest.mark.parametrize("access", [Access.HALF, Access.ROWS], ids=lambda access: access.value)
def test_kernels_on_matrices_as_they_lie_have_a_map_too(name: str, access: Access) -> None:
    held = step_of(name, None, access).registers
    assert held.why_not == "" and len(set(held.accumulators)) == catalog.by_name(name).accumulators


# ---- worked out by hand --------------------------------------------------------------------------

TEXT = """# f32_2x8_avx2 packed for x86_64 haswell, LLVM 0
name:
\tvxorps\t%xmm0, %xmm0, %xmm0
.LBB0_1:
\tvmovaps\t(%rsi), %ymm9
\tvbroadcastss\t4(%rdi), %ymm3
\tvbroadcastss\t(%rdi), %ymm4
\tvfmadd231ps\t%ymm9, %ymm3, %ymm5
\tvfmadd231ps\t%ymm9, %ymm4, %ymm7
\tvmovaps\t%ymm9, %ymm8
\taddq\t$32, %rsi
\taddq\t$8, %rdi
\tdecq\t%rcx
\tjne\t.LBB0_1
\tretq
"""


def test_rows_are_ordered_by_address_not_by_appearance() -> None:
    from blisgemm.machine.isas import AVX2
    from blisgemm.ukernel.spec import KernelSpec

    spec = KernelSpec("float32", "float32", "float32", 2, 8, AVX2)
    held = register_map(TEXT, spec)
    assert [(c.register, c.row, c.column, c.of_a, c.of_b) for c in held.cells] == [
        ("ymm7", 0, 0, "ymm4", "ymm9"),
        ("ymm5", 1, 0, "ymm3", "ymm9"),
    ]
    assert (held.a, held.b) == (("ymm3", "ymm4"), ("ymm9",))
    swapped = TEXT.replace("vbroadcastss\t4(%rdi), %ymm3", "addq\t$4, %rdi\n\tvbroadcastss\t4(%rdi), %ymm3")
    assert [c.register for c in register_map(swapped.replace("(%rdi), %ymm4", "-4(%rdi), %ymm4"), spec).cells] == [
        "ymm7",
        "ymm5",
    ]


@pytest.mark.parametrize(
    ("arch", "line", "effects"),
    [
        ("x86_64", "\tvfmadd213ps\t8(%rax), %ymm1, %ymm2",
         [Fma("ymm2", "", Operand("ymm1"), Operand("ymm2"))]),
        ("x86_64", "\tvfmadd132pd\t%zmm3, %zmm1, %zmm2", [Fma("zmm2", "zmm1", Operand("zmm2"), Operand("zmm3"))]),
        ("x86_64", "\tvfmadd231ps\t-4(%rdi,%rax,4){1to16}, %zmm0, %zmm1",
         [Fma("zmm1", "zmm1", Operand("zmm0"), Operand(memory=Memory(("%rdi", "%rax", "4"), -4, False)))]),
        ("x86_64", "\tmulps\t%xmm10, %xmm13", [Product("xmm13", Operand("xmm10"), Operand("xmm13"))]),
        ("x86_64", "\taddps\t%xmm13, %xmm6", [Sum("xmm6", "xmm13", "xmm6")]),
        ("x86_64", "\tmovss\t-8(%rcx), %xmm1", [Load("xmm1", Memory(("%rcx",), -8, False))]),
        ("x86_64", "\tshufps\t$0, %xmm1, %xmm1", [Copy("xmm1", "xmm1")]),
        ("x86_64", "\tsubq\t$-128, %rbx", [Advance("%rbx", 128)]),
        ("x86_64", "\tprefetcht0\t(%r15)", []),
        ("aarch64", "\tldp\tq0, q1, [x8], #32",
         [Load("v0", Memory(("x8",), 0, True)), Load("v1", Memory(("x8",), 16, True)), Advance("x8", 32)]),
        ("aarch64", "\tldr\tq0, [x8, #16]!", [Advance("x8", 16), Load("v0", Memory(("x8",), 0, True))]),
        ("aarch64", "\tfmla\tv3.4s, v1.4s, v2.s[3]", [Fma("v3", "v3", Operand("v1"), Operand("v2", 3))]),
        ("aarch64", "\tldp\ts18, s19, [x16, #-32]",
         [Load("v18", Memory(("x16",), -32, False)), Load("v19", Memory(("x16",), -28, False))]),
        ("ppc64le", "\txvmaddasp 4, 10, 8", [Fma("vs4", "vs4", Operand("vs10"), Operand("vs8"))]),
        ("ppc64le", "\txvmaddmsp 4, 10, 8", [Fma("vs4", "vs8", Operand("vs10"), Operand("vs4"))]),
        ("ppc64le", "\tlxvwsx 10, 9, 28", [Load("vs10", Memory(("9", "28"), 0, False))]),
        ("riscv64", "\tvfmadd.vf\tv17, fa5, v13", [Fma("v17", "v13", Operand("fa5"), Operand("v17"))]),
    ],
)  # fmt: skip
def test_instructions_are_read_as_their_manuals_say(arch: str, line: str, effects: list[object]) -> None:
    assert list(READERS[arch](line)) == effects


def test_spills_and_missing_instructions_leave_no_map_and_say_why() -> None:
    assert "don't stay in registers" in step_of("f32_8x48_avx512", "haswell").registers.why_not
    assert "no fma" in step_of("f32_6x16_avx2", "x86-64").registers.why_not
    assert "no products" in step_of("f64_4x4_generic", "sifive-u74").registers.why_not
    text = "".join(word for line in draw_map(step_of("f32_8x48_avx512", "haswell")) for word, _ in line)
    assert text.startswith("no register map: sums don't stay")


# ---- what is shown -------------------------------------------------------------------------------


def test_the_drawn_map_names_every_register_in_its_place() -> None:
    step = step_of("f32_8x12_neon")
    lines = ["".join(word for word, _ in line) for line in draw_map(step)]
    rows = [line for line in lines if "│" in line]
    assert len(rows) == 8 and "j 0-3" in lines[0] and "j 8-11" in lines[0]
    for i, line in enumerate(rows):
        cells = [cell.strip() for cell in line.split("│")[1:-1]]
        assert cells == [c.register for c in step.registers.cells if c.row == i]
        assert re.search(rf"\[{i % 4}\] +i {i}\b", line)  # NEON picks lanes of two vectors of A
    strip = next(line for line in lines if line.startswith("v0 to v31: "))[len("v0 to v31: ") :]
    assert len(strip) == 32 and strip.count("C") == 24
    assert "│" not in "".join(word for line in draw_map(step, boxes=False) for word, _ in line)


def test_complex_kernels_show_four_sums_an_element() -> None:
    lines = ["".join(word for word, _ in line) for line in draw_map(step_of("c64_3x8_avx2"))]
    assert [line.split("│")[0].split()[-1] for line in lines if "│" in line] == ["rr", "ii", "ri", "ir"] * 3
    assert sum("B re" in line or "B im" in line for line in lines) == 2


def test_the_terminal_colours_registers_by_role() -> None:
    console = Console(force_terminal=True, color_system="standard", width=100, record=True, file=io.StringIO())
    _print_kernel(console, step_of("f32_6x16_avx2"), loop_only=True, map_only=False)
    text = console.export_text(styles=True)
    assert re.search(r"\x1b\[36m ?ymm11", text) and "\x1b[36m%ymm11" in text  # a sum
    assert "\x1b[33m%ymm14" in text and "\x1b[32m%ymm12" in text  # an element of A, a vector of B


def test_asm_stays_a_file_for_an_assembler(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["asm", "f32_6x16_avx2"]) == 0
    text = capsys.readouterr().out
    assert all(line.isascii() or line.startswith("#") for line in text.splitlines())
    body = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    assert body.strip() == "\n".join(step_of("f32_6x16_avx2").text.expandtabs().splitlines()[1:]).strip()


def test_a_difference_tells_what_one_does_and_the_other_does_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["asm", "f32_6x16_avx2", "f32_4x24_avx2"]) == 0
    by_name = capsys.readouterr().out
    assert main(["asm", "f32_6x16_avx2", "--diff", "f32_4x24_avx2"]) == 0
    assert capsys.readouterr().out == by_name
    assert re.search(r"(?m)^vector loads +2 +3$", by_name) and re.search(r"(?m)^broadcasts +6 +4$", by_name)
    assert re.search(r"(?m)^loads and broadcasts per fma +0.667 +0.583$", by_name)
    six = "(2 x vmovaps memory, <B>; 6 x (vbroadcastss memory, <A>; 2 x vfmadd231ps <A>, <B>, <sum>))"
    assert f"- 4 x {six}" in by_name
    assert main(["asm", "f32_8x48_avx512", "--diff", "f32_8x48_avx512@znver4"]) == 0
    assert "+++ f32_8x48_avx512@znver4" in capsys.readouterr().out
    same = difference(step_of("f32_6x16_avx2"), step_of("f32_6x16_avx2"))
    assert same and not any(line[0] in "+-" for line in same)


def test_folding_keeps_every_line() -> None:
    def unfold(text: str) -> list[str]:
        found = re.fullmatch(r"(\d+) x (.*)", text)
        if not found:
            return [text]
        inner, parts, depth, start = found[2], [], 0, 0
        if inner.startswith("("):
            inner = inner[1:-1]
            for place, sign in enumerate(inner + ";"):
                depth += {"(": 1, ")": -1}.get(sign, 0)
                if sign == ";" and not depth:
                    parts.append(inner[start:place].strip())
                    start = place + 1
        else:
            parts = [inner]
        return int(found[1]) * [line for part in parts for line in unfold(part)]

    for name in ("f32_6x16_avx2", "f32_12x32_avx512", "f32_8x12_neon"):
        lines = spelled_by_role(step_of(name))
        short = folded(lines)
        assert len(short) < len(lines) / 2
        assert [line for text in short for line in unfold(text)] == lines


def test_json_holds_the_counts_and_the_map(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["asm", "f32_8x12_neon", "--cpu", "apple-m1", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["kernel"], facts["arch"], facts["cpu"], facts["steps"]) == ("f32_8x12_neon", "aarch64", "apple-m1", 4)
    assert facts["per_step"][0] == {"what": "fmas", "counted": 24, "needed": 24, "why": "8 rows x 3 vectors"}
    assert len(facts["registers"]["sums"]) == 24 and facts["registers"]["elements_of_a"] == 8
    assert main(["asm", "f32_6x16_avx2", "f32_4x24_avx2", "--json"]) == 0
    assert [one["kernel"] for one in json.loads(capsys.readouterr().out)] == ["f32_6x16_avx2", "f32_4x24_avx2"]


def test_asm_refuses_three_kernels(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["asm", "f32_6x16_avx2", "f32_4x24_avx2", "--diff", "f32_2x32_avx2"]) == 2
    assert "--diff: expected nothing beside a second kernel" in capsys.readouterr().err
    assert main(["asm", "f32_6x16_avx2", "--diff", "f32_4x24_avx2@abacus"]) == 2
    assert "cpu: expected a processor that LLVM knows" in capsys.readouterr().err
