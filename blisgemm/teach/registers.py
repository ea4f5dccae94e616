"""Which register holds what while a k loop runs, read from its assembly.

Knows: how values flow from loads into multiply-adds. Does not know: how kernels are emitted, or instructions spelled
(``instructions``). Called by ``cli.asm`` and the tests that hold every kernel's registers to its account.

Nothing is taken from the generator: an accumulator is what a multiply-add adds to, its column is the vector that it was
multiplied by, its row the single element. The order of rows and columns is that of their addresses in the micro-panels.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ..ukernel.assembly import KLoop, arch_of_text, k_loop
from ..ukernel.spec import KernelSpec
from .instructions import READERS, Advance, Copy, Fma, Load, Memory, Operand, Product, Sum

__all__ = ["CHAINS", "Cell", "RegisterMap", "register_map"]

# The four sums of a complex product, by the plane (re 0, im 1) of A and of B.
CHAINS = {(0, 0): "rr", (1, 1): "ii", (0, 1): "ri", (1, 0): "ir"}


@dataclass(frozen=True)
class Cell:
    """One accumulator.

    Args:
        register: its name.
        row: of the micro-tile.
        column: the first of those that its lanes hold.
        lanes: how many.
        chain: ``""``, or which of the four sums of a complex product.
        of_a, of_b: the registers that were multiplied into it in the first step ("memory" where there was none).
    """

    register: str
    row: int
    column: int
    lanes: int
    chain: str
    of_a: str
    of_b: str


@dataclass(frozen=True)
class RegisterMap:
    """The vector registers of a k loop, by what they hold.

    Args:
        cells: the accumulators, by row, column and chain.
        a, b: registers that elements of A and vectors of B pass through, in the order of their first use.
        products: registers of products before they are added, where there is no fma.
        elements_of_a, vectors_of_b: different ones that one k step multiplies.
        why_not: why there is no map; empty if there is one.
    """

    cells: tuple[Cell, ...]
    a: tuple[str, ...] = ()
    b: tuple[str, ...] = ()
    products: tuple[str, ...] = ()
    elements_of_a: int = 0
    vectors_of_b: int = 0
    why_not: str = ""

    @property
    def accumulators(self) -> tuple[str, ...]:
        """Registers of sums."""
        return tuple(cell.register for cell in self.cells)

    def role(self, register: str) -> str:
        """Return ``sum``, ``A``, ``B``, ``A and B``, ``product`` or nothing."""
        if register in self.accumulators:
            return "sum"
        if register in self.products:
            return "product"
        return " and ".join(name for name, held in (("A", self.a), ("B", self.b)) if register in held)


@dataclass(frozen=True)
class _Value:
    """What a register holds: an element of A or a vector of B by its address, the sum of a chain, a product."""

    kind: str  # "element", "vector", "sum", "product"
    address: tuple[object, ...] = ()
    factors: tuple[_Value, ...] = ()
    root: str = ""
    home: str = field(default="", compare=False)  # the register it was loaded into


@dataclass
class _State:
    """Registers while a turn of the loop is followed."""

    constants: dict[str, int]
    held: dict[str, _Value] = field(default_factory=dict)
    moved: dict[str, int] = field(default_factory=dict)
    ages: dict[str, int] = field(default_factory=dict)  # how often a pointer went to somewhere unknown
    roles: dict[str, dict[str, None]] = field(default_factory=lambda: {"A": {}, "B": {}, "product": {}})
    first: dict[str, tuple[_Value, _Value, str, str]] = field(default_factory=dict)
    fmas: int = 0


def register_map(assembly: str, spec: KernelSpec) -> RegisterMap:
    """Return which register of the k loop holds which part of the micro-tile.

    Args:
        assembly: what ``assemble`` returned.
        spec: the kernel that it was made from.

    Example:
        >>> from blisgemm.ukernel import catalog
        >>> from blisgemm.ukernel.assembly import assemble
        >>> from blisgemm.ukernel.emit import Access
        >>> spec = catalog.by_name("f32_6x16_avx2")
        >>> found = register_map(assemble(spec, Access.PACKED), spec)
        >>> len(found.cells), found.cells[-1].row, found.cells[-1].column, len(set(found.accumulators))
        (12, 5, 8, 12)
    """
    loop = k_loop(assembly, spec)
    if loop.calls:
        return RegisterMap((), why_not="every term is a call of a function: this processor has no fma")
    if loop.stores:
        return RegisterMap((), why_not=f"sums don't stay in registers: {loop.stores} stores in {loop.steps} steps")
    arch = arch_of_text(assembly)
    state = _State(_constants(assembly, loop))
    _follow(state, loop, arch)  # so that what the turn before has loaded is known
    state = _State(state.constants, {k: v for k, v in state.held.items() if v.kind in ("element", "vector")})
    _follow(state, loop, arch)
    return _assign(state, spec)


def _constants(assembly: str, loop: KLoop) -> dict[str, int]:
    """Return the registers that hold a constant in the loop: Power adds them to pointers."""
    before = assembly.partition(f"\n{loop.lines[0].partition(':')[0]}:")[0]
    return {register: int(value) for register, value in re.findall(r"(?m)^\s+li\s+(\w+), (-?\d+)$", before)}


def _follow(state: _State, loop: KLoop, arch: str) -> None:
    read = READERS[arch]
    for line in loop.lines:
        if line.rstrip().endswith(":") or not line.strip():
            continue
        for effect in read(line):
            match effect:
                case Load(dst, memory):
                    state.held[dst] = replace(_at(state, memory), home=dst)
                case Copy(dst, src, lane):
                    _copy(state, dst, src, lane)
                case Fma(dst, addend, x, y):
                    _add(state, dst, addend, (x, y))
                case Product(dst, x, y):
                    _note(state, [z for z in (x, y) if z.register != dst], dst)
                    state.held[dst] = _Value("product", factors=tuple(_value(state, z) for z in (x, y)))
                case Sum(dst, x, y):
                    _sum(state, dst, x, y)
                case Advance(register, by):
                    _advance(state, register, by)


def _advance(state: _State, register: str, by: int | None) -> None:
    if by is None:
        state.ages[register] = state.ages.get(register, 0) + 1
    state.moved[register] = 0 if by is None else state.moved.get(register, 0) + by


def _at(state: _State, memory: Memory) -> _Value:
    """Return what lies at an address, told by its pointers and its distance from where they were."""
    bases, distance = [], memory.distance
    for base in memory.bases:
        place, _, constant = base.partition("+")
        distance += int(constant or 0)
        if base in state.held:  # a pointer that was another one and a constant
            place, _, constant = state.held[base].root.partition("+")
            distance += int(constant or 0)
        distance += state.moved.get(place, 0) + state.constants.get(place, 0)
        if place not in state.constants:
            bases.append(f"{place}, {state.ages.get(place, 0)}")
    return _Value("vector" if memory.wide else "element", (tuple(bases), distance))


def _copy(state: _State, dst: str, src: str, lane: int | None) -> None:
    if "+" in src:
        state.held[dst] = _Value("pointer", root=src)
    elif src in state.held:
        value = state.held[src]
        _note(state, (Operand(src),))
        state.held[dst] = value if lane is None else _Value("element", (*value.address, lane), home=dst)


def _value(state: _State, operand: Operand) -> _Value:
    """Return what an operand holds."""
    if operand.memory:
        return _at(state, operand.memory)
    value = state.held.get(operand.register, _Value("unknown", root=operand.register))
    return value if operand.lane is None else _Value("element", (*value.address, operand.lane))


def _note(state: _State, operands: Sequence[Operand], product: str = "") -> None:
    """Remember what the registers of a multiplication were for."""
    for operand in operands:
        kind = _value(state, operand).kind
        if operand.register and kind in ("element", "vector"):
            state.roles["A" if kind == "element" else "B"].setdefault(operand.register)
    if product:
        state.roles["product"].setdefault(product)


def _add(state: _State, dst: str, addend: str, factors: tuple[Operand, Operand]) -> None:
    values = (_value(state, factors[0]), _value(state, factors[1]))
    _note(state, factors)
    names = tuple(_name(operand) for operand in factors)
    _chain(state, dst, addend, values, names)


def _name(operand: Operand) -> str:
    lane = "" if operand.lane is None else f"[{operand.lane}]"
    return f"{operand.register}{lane}" or "memory"


def _sum(state: _State, dst: str, x: str, y: str) -> None:
    for product, addend in ((x, y), (y, x)):
        value = state.held.get(product)
        if value is not None and value.kind == "product":
            _chain(state, dst, addend, value.factors, [factor.home or "memory" for factor in value.factors])
            return


def _chain(state: _State, dst: str, addend: str, values: Sequence[_Value], names: Sequence[str]) -> None:
    """Follow a sum: it began in the register that the turn began with."""
    old = state.held.get(addend)
    root = old.root if old is not None and old.kind == "sum" else addend
    state.fmas += 1
    if root not in state.first and len(values) == 2:
        element, vector = (0, 1) if values[0].kind == "element" else (1, 0)
        state.first[root] = (values[element], values[vector], names[element], names[vector])
    state.held[dst] = _Value("sum", root=root)


def _assign(state: _State, spec: KernelSpec) -> RegisterMap:
    """Order the chains by the addresses of what was multiplied into them in the first step."""
    kinds = {(a.kind, b.kind) for a, b, _, _ in state.first.values()}
    if kinds != {("element", "vector")}:
        return RegisterMap((), why_not="the multiply-adds are no products of an element of A and a vector of B")
    elements = _ordered([a for a, _, _, _ in state.first.values()])
    vectors = _ordered([b for _, b, _, _ in state.first.values()])
    per_plane = len(vectors) // spec.planes
    if len(elements) != spec.mr * spec.planes or per_plane * spec.planes != len(vectors) or spec.nr % per_plane:
        numbers = f"{len(elements)} elements of A and {len(vectors)} of B's vectors"
        return RegisterMap((), why_not=f"a step multiplies {numbers}, which are not the tile's")
    lanes, cells = spec.nr // per_plane, []
    for register, (element, vector, of_a, of_b) in state.first.items():
        plane_a, row = divmod(elements.index(element), spec.mr)
        plane_b, place = divmod(vectors.index(vector), per_plane)
        chain = CHAINS[plane_a, plane_b] if spec.complex else ""
        cells.append(Cell(register, row, place * lanes, lanes, chain, of_a, of_b))
    order = list(CHAINS.values())
    cells.sort(key=lambda cell: (cell.row, cell.column, order.index(cell.chain) if cell.chain else 0))
    sums = {cell.register for cell in cells}
    a, b, products = (tuple(r for r in state.roles[name] if r not in sums) for name in ("A", "B", "product"))
    return RegisterMap(tuple(cells), a, b, products, len(elements), len(vectors))


def _ordered(values: Sequence[_Value]) -> list[_Value]:
    """Return the different values by address: distance and lane where all have the same pointers, else as they came."""
    different = list(dict.fromkeys(values))
    if len({value.address[0] for value in different}) > 1:
        return different
    return sorted(different, key=lambda value: tuple(int(str(x)) for x in value.address[1:]))
