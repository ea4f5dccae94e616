"""One k step of a kernel as people read it: its counts beside what the tile needs, the register map drawn.

Knows: how an account and a map are laid out, as lines of words with a role each. Does not know: colours
(``cli.asm``) or how registers are followed (``registers``). Called by ``cli.asm``, notebooks and tests.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from ..ukernel.assembly import KLoop, assemble, k_loop, target_of, triple_of
from ..ukernel.catalog import by_name
from ..ukernel.emit import Access
from ..ukernel.spec import KernelSpec
from .registers import RegisterMap, register_map

__all__ = [
    "KStep",
    "Need",
    "Word",
    "draw_map",
    "needs",
    "read_kernel",
    "roles_in",
]

Word = tuple[str, str]  # a text and its role: "sum", "A", "B", "product", "frame", ""

_REGISTER = r"%[xyz]mm\d+|\b[vqds]\d+(?:\.\w+)?(?:\[\d+\])?|\bf[tas]\d+\b"


@dataclass(frozen=True)
class Need:
    """What one k step does of a kind, and what the tile asks for.

    Args:
        what: such as ``fmas``.
        counted: instructions per step.
        needed: as the tile has it; ``None``: nothing is said about it.
        why: what they are for.
    """

    what: str
    counted: float
    needed: float | None
    why: str


@dataclass(frozen=True)
class KStep:
    """A kernel's assembly, its k loop and its registers.

    Args:
        spec: the kernel. arch, cpu: what it was compiled for. access: where it finds A and B.
        text: all of the assembly. loop: its k loop. registers: what they hold.
    """

    spec: KernelSpec
    arch: str
    cpu: str
    access: str
    text: str
    loop: KLoop
    registers: RegisterMap

    @property
    def title(self) -> str:
        """The kernel and its processor."""
        return f"{self.spec.name}@{self.cpu}"

    def __str__(self) -> str:
        """The counts of one k step, then the register map."""
        head = f"{self.title} ({self.arch}), {self.loop.steps} k step{'s' * (self.loop.steps != 1)} a turn; per step:"
        counts = [
            f"  {need.what:<22}{need.counted:>6g}"
            + (f"   needed {need.needed:>4g}" if need.needed is not None else " " * 14)
            + f"   {need.why}"
            for need in needs(self)
        ]
        drawn = ["".join(text for text, _ in line) for line in draw_map(self)]
        return "\n".join([head, *counts, "", *drawn])

    def facts(self) -> dict[str, Any]:
        """Return everything but the text, as values that JSON can hold."""
        held = self.registers
        return {
            "kernel": self.spec.name,
            "arch": self.arch,
            "cpu": self.cpu,
            "access": self.access,
            "steps": self.loop.steps,
            "instructions": len(self.loop.lines) - 1,
            "per_step": [asdict(need) for need in needs(self)],
            "account": self.spec.register_account,
            "vector_registers": self.loop.registers,
            "registers": {
                "sums": [asdict(cell) for cell in held.cells],
                "a": list(held.a),
                "b": list(held.b),
                "products": list(held.products),
                "elements_of_a": held.elements_of_a,
                "vectors_of_b": held.vectors_of_b,
                "why_not": held.why_not,
            },
            "loop": list(self.loop.lines),
        }


def read_kernel(
    spec: KernelSpec | str, access: Access = Access.PACKED, cpu: str | None = None, arch: str | None = None
) -> KStep:
    """Compile a kernel for a processor and read its k loop.

    Args:
        spec: the kernel, or its name in the catalog.
        access, cpu: as for ``assemble``.
        arch: of a kernel of the set generic.

    Example:
        >>> step = read_kernel("f32_8x12_neon")
        >>> step.cpu, [(need.what, need.counted, need.needed) for need in needs(step)][:2]
        ('generic', [('fmas', 24.0, 24), ('vector loads', 5.0, 5)])
    """
    spec = by_name(spec) if isinstance(spec, str) else spec
    triple = triple_of(arch) if arch else None
    found_arch, found_cpu = target_of(spec, cpu, triple)
    text = assemble(spec, access, cpu, triple)
    return KStep(spec, found_arch, found_cpu, access.value, text, k_loop(text, spec), register_map(text, spec))


def needs(step: KStep) -> tuple[Need, ...]:
    """Return the counts of one k step beside what the tile needs.

    B takes one load a vector. An element of A comes by a broadcast from memory; on SSE2 by a load and a shuffle; on
    NEON by vectors of which multiply-adds pick a lane, or one by one where a column of A fills no vector.
    """
    spec, loop = step.spec, step.loop
    steps = loop.steps or 1
    of_b, of_a = spec.planes * spec.row_vectors, spec.planes * spec.mr
    loads: float | None = of_b
    broadcasts: float | None = of_a
    why_loads, why_broadcasts = f"{_many(of_b, 'vector')} of B", f"{_many(of_a, 'element')} of A"
    if spec.isa.name == "sse2":
        loads, why_loads = of_b + of_a, f"{why_loads}, {why_broadcasts}"
    elif spec.isa.broadcast == "lane":
        whole = spec.mr % spec.lanes == 0
        of_a = of_a // spec.lanes if whole else of_a
        loads, broadcasts = of_b + of_a, 0
        why_loads += f", {_many(of_a, 'vector' if whole else 'element')} of A"
        why_broadcasts = "each fma picks a lane of A"
    elif spec.isa.name == "generic":
        loads = broadcasts = None
        why_loads += ", and A where it is loaded first"
    if step.cpu != spec.isa.llvm_cpu and spec.isa.name != "generic":
        loads = broadcasts = None  # another processor may have other instructions
    product = "fmas" if spec.isa.fma else "products"
    chains = f" x {spec.chains} sums" if spec.chains > 1 else ""
    found = [
        Need(
            product,
            loop.fmas / steps,
            spec.fmas_per_k,
            f"{_many(spec.mr, 'row')} x {_many(spec.row_vectors, 'vector')}{chains}",
        ),
        Need("vector loads", loop.loads / steps, loads, why_loads),
        Need("broadcasts", loop.broadcasts / steps, broadcasts, why_broadcasts),
        Need("stores", loop.stores / steps, 0, "of sums or vectors that found no register"),
        Need("accesses of the stack", loop.stack_accesses / steps, 0, "spilled pointers, sums or vectors"),
        Need("prefetches", loop.prefetches / steps, None, "lines of B asked for ahead"),
        Need("others", loop.others / steps, None, "moves, addresses, the loop itself"),
    ]
    if loop.calls:
        found.append(Need("calls", loop.calls / steps, 0, "of a function: this processor has no fma"))
    return tuple(found)


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"


# ---- the map ------------------------------------------------------------------------------------


def draw_map(step: KStep, *, boxes: bool = True) -> list[list[Word]]:
    """Return the register map as lines of words: B's registers above, A's at the left, sums between them.

    Args:
        step: a kernel.
        boxes: with lines of box-drawing characters, or plain ones.
    """
    held, spec = step.registers, step.spec
    if held.why_not:
        return [[(f"no register map: {held.why_not}", "")]]
    across, down, corner = ("─", "│", "┌┬┐├┼┤└┴┘") if boxes else ("-", "|", "+++++++++")
    columns = sorted({cell.column for cell in held.cells})
    lanes = held.cells[0].lanes
    wide = max(len(name) for name in (*held.accumulators, f"j {columns[-1]}-{columns[-1] + lanes - 1}"))
    left = max(len(f"{cell.of_a}  i {cell.row} {cell.chain}") for cell in held.cells)

    def rule(place: int) -> list[Word]:
        start, middle, end = list(corner[place : place + 3])
        return [(" " * left + " " + start + middle.join([across * (wide + 2)] * len(columns)) + end, "frame")]

    lines: list[list[Word]] = [[(" " * (left + 2), "")]]
    lines[0] += [(f" {f'j {j}-{j + lanes - 1}':<{wide + 2}}", "") for j in columns]
    planes = {"B re": ("rr", "ir"), "B im": ("ii", "ri")} if spec.complex else {"B": ("",)}
    for name, chains in planes.items():
        line: list[Word] = [(f"{name:>{left}}  ", "B")]
        for j in columns:
            of_b = next(cell.of_b for cell in held.cells if cell.column == j and cell.chain in chains)
            line.append((f" {of_b:<{wide + 2}}", "B"))
        lines.append(line)
    lines.append(rule(0))
    for (_, chain), cells in itertools.groupby(_by_row(held), key=lambda cell: (cell.row, cell.chain)):
        row = list(cells)
        label = f"i {row[0].row} {chain}".strip()
        line = [(f"{row[0].of_a:<{left - len(label)}}", "A"), (label, ""), (f" {down}", "frame")]
        for cell in row:
            line += [(f" {cell.register:<{wide + 1}}", "sum"), (down, "frame")]
        lines.append(line)
    return [*lines, rule(6), *_legend(step)]


def _by_row(held: RegisterMap) -> list[Any]:
    order = {"": 0, "rr": 0, "ii": 1, "ri": 2, "ir": 3}
    return sorted(held.cells, key=lambda cell: (cell.row, order[cell.chain], cell.column))


def _legend(step: KStep) -> Iterator[list[Word]]:
    """Yield what the registers are for, by number, and the account."""
    held, spec = step.registers, step.spec
    prefix = re.sub(r"\d+$", "", held.cells[0].register)
    count = max(spec.isa.registers, *(_number(r) + 1 for r in (*held.accumulators, *held.a, *held.b, *held.products)))
    marks = {"sum": "C", "A": "A", "B": "B", "A and B": "*", "product": "p", "": "."}
    roles = [held.role(f"{prefix}{number}") for number in range(count)]
    yield [(f"{prefix}0 to {prefix}{count - 1}: ", ""), *((marks[role], role) for role in roles)]
    yield [
        ("C", "sum"), (" sums, ", ""), ("A", "A"), (" elements of A, ", ""), ("B", "B"), (" vectors of B, ", ""),
        *([("*", "A and B"), (" one after the other, ", "")] if "A and B" in roles else []),
        *([("p", "product"), (" products before they are added, ", "")] if held.products else []),
        (". free or loaded ahead", ""),
    ]  # fmt: skip
    yield [(f"by the spec: {spec.register_account}; named here: {step.loop.registers}", "")]


def _number(register: str) -> int:
    found = re.search(r"\d+$", register)
    return int(found[0]) if found else 0


def roles_in(step: KStep, line: str) -> list[Word]:
    """Return an instruction as words, its vector registers with their roles."""
    words: list[Word] = []
    end = 0
    for found in re.finditer(_REGISTER, line):
        words += [(line[end : found.start()], ""), (found[0], _role(step, found[0]))]
        end = found.end()
    return [word for word in (*words, (line[end:], "")) if word[0]]


def _role(step: KStep, register: str) -> str:
    plain = re.sub(r"^%|\..*$|\[.*", "", register)
    if step.arch == "aarch64":
        plain = re.sub(r"^[qds]", "v", plain)
    role = step.registers.role(plain)
    return role if role != "A and B" or "." not in register else "A" if "[" in register else "B"
