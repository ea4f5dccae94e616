"""The way of a product: which path, which kernel, and why, from extents, how B lies and the machine.

Knows: how extents and layout decide. Does not know: from where on each path pays (``limits``), what the compiled lane
decides alike (``rules``), blocks, threads, or what a plan is (``plan``). Called by ``plan`` (per new plan), ``driver``
(``wants_turn``), ``lane_limits``, ``lane`` and ``tuner`` (``model_limits``).
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

from . import limits
from .blocking import kc_for
from .errors import BlisgemmValueError, OverrideError
from .machine import current, host_isas
from .machine.facts import Machine
from .rules import COPIED_ROWS, CROWDED_BYTES, LANE_ROWS, is_copied, is_narrow, is_near, is_turned
from .ukernel import catalog
from .ukernel.spec import KernelSpec, rows_together

if TYPE_CHECKING:  # loaded by the first plan, not by the import of the package, which never needs it
    from .tuning import Tuning

__all__ = [
    "Way",
    "choose_kernel",
    "choose_way",
    "direct_terms",
    "direct_tile_terms",
    "few_of",
    "model_limits",
    "narrow_limits",
    "reads_a_as_it_lies",
    "runnable",
    "strip_steps",
    "turned_columns",
    "wants_turn",
]


@dataclass(frozen=True)
class Way:
    """How a product goes: the path, the kernel's role, the order of the direct path, whether B's items are copied."""

    path: str
    role: str
    rows_first: bool = False
    copied: bool = False


@cache
def _forced_kernel() -> KernelSpec | None:
    """Return the row that ``BLISGEMM_KERNEL`` names; it holds for the row's own dtype."""
    name = os.environ.get("BLISGEMM_KERNEL")
    if not name:
        return None
    try:
        return runnable(catalog.by_name(name))
    except BlisgemmValueError as error:
        raise OverrideError(f"BLISGEMM_KERNEL: {str(error).removeprefix('kernel: ')}") from None


def runnable(spec: KernelSpec) -> KernelSpec:
    """Return the kernel.

    Raises:
        BlisgemmValueError: this machine can't run it.
    """
    here = [isa.name for isa in host_isas()]
    if spec.isa.name not in here:
        raise BlisgemmValueError(f"kernel: expected one that this machine can run ({', '.join(here)}); got {spec.name}")
    return spec


def choose_kernel(dtype: str, role: str, m: int = 0, n: int = 0) -> tuple[KernelSpec, str]:
    """Return the kernel for a dtype in a role of ``catalog.ROLES`` on this machine, and why.

    Of several packed ones it is the first, unless m x n fills the tiles of another by ``limits.TILE_GAIN`` better.
    """
    forced = _forced_kernel()
    if forced is not None and forced.acc_dtype == dtype:
        return forced, f"kernel: BLISGEMM_KERNEL names {forced.name}"
    machine = current()
    spec, *others = catalog.candidates(dtype, machine.isa, role)

    def padded(tile: KernelSpec) -> int:
        return -(-m // tile.mr) * tile.mr * -(-n // tile.nr) * tile.nr

    for other in others if role == "packed" else ():
        if limits.TILE_GAIN * padded(other) < padded(spec):
            text = f"kernel: {other.name}, since {spec.name} would compute {padded(spec):,} elements of C for {m * n:,}"
            return other, f"{text}, this one {padded(other):,}"
    return spec, f"kernel: {spec.name} is the {role} kernel of {machine.isa.name}"


def wants_turn(m: int, n: int, k: int, dtype: str, *, swapped: bool, a_rows: bool, b_columns: bool) -> bool:
    """Whether the other one of C = A B and C' = B' A' is computed than ``is_swapped`` says, for few columns of B.

    Args:
        swapped: what ``is_swapped`` says.
        a_rows, b_columns: whether A's rows, B's columns are contiguous.
    """
    rows, columns, contiguous = (n, m, b_columns) if swapped else (m, n, a_rows)
    left_bytes = rows * k * catalog.candidates(dtype, current().isa, "direct")[0].itemsize
    return is_turned(rows, columns, k, left_bytes, contiguous, *turned_columns(dtype))


def turned_columns(dtype: str) -> tuple[int, int, int, int]:
    """Return the row of ``limits.TURNED_COLUMNS`` for this machine, and the bytes of L2 that part the last two."""
    l2 = current().l2
    return *limits.TURNED_COLUMNS.get((current().isa.name, dtype), (0, 0, 0)), l2.size_bytes // l2.cores


@dataclass(frozen=True)
class _Asked:
    """A product as ``choose_way`` is asked for it, and what follows at once.

    Attributes:
        access, batch, threads, a_rows, a_crowded: as ``plan.plan_for`` takes them.
        itemsize: of an element, in bytes.
    """

    machine: Machine
    m: int
    n: int
    k: int
    dtype: str
    access: str
    batch: int
    threads: int
    a_rows: bool
    a_crowded: bool
    itemsize: int

    @property
    def terms(self) -> int:
        return self.m * self.n * self.k

    @property
    def by_rows(self) -> bool:
        return self.access in ("rows", "crowded")

    @property
    def row(self) -> tuple[str, str]:
        """Which row of a table of ``limits`` is meant."""
        return self.machine.isa.name, self.dtype

    @property
    def as_they_lie(self) -> bool:
        """Whether both operands can be read along their rows, as rules of near blocks want it."""
        return self.by_rows and self.a_rows and self.m > 1 and self.batch == 1

    @property
    def near(self) -> limits.Near | None:
        """The rule of near blocks by the elements of C, where it holds."""
        return limits.NEAR.get(self.row) if self.as_they_lie else None

    @property
    def near_terms(self) -> int | None:
        """The rule of near blocks by terms, where it holds."""
        return limits.NEAR_TERMS.get(self.row) if self.as_they_lie else None

    @property
    def ruled(self) -> bool:
        """Whether one of the two holds: a vector set has one at most."""
        return self.near is not None or self.near_terms is not None

    @property
    def is_near(self) -> bool:
        """Whether a kc block of B stays in L2 as it lies."""
        return self.b_block_bytes <= limits.NEAR_SHARE * self.l2_bytes

    @property
    def l2_bytes(self) -> int:
        return self.machine.l2.size_bytes // self.machine.l2.cores

    @property
    def b_bytes(self) -> int:
        return self.k * self.n * self.itemsize

    @property
    def b_block_bytes(self) -> int:
        """Bytes of a kc block of all of B."""
        return kc_for(self.dtype, self.k) * self.n * self.itemsize


def _kernel(asked: _Asked, role: str) -> KernelSpec:
    """Return the kernel of a role. (No method: the page of another machine's plans relinks functions.)"""
    return choose_kernel(asked.dtype, role)[0]


def choose_way(
    machine: Machine, m: int, n: int, k: int, dtype: str, access: str, tuning: Tuning, threads: int, batch: int,
    a_rows: bool = True, a_crowded: bool = False,
) -> tuple[Way, str, tuple[str, ...]]:  # fmt: skip
    """Return the way, why, and what of it is tuned."""
    from .tuning import direct_limits

    itemsize = choose_kernel(dtype, "direct")[0].itemsize
    asked = _Asked(machine, m, n, k, dtype, access, batch, threads, a_rows, a_crowded, itemsize)
    alone, crowded, item = direct_terms(dtype)
    # a tuned limit raises that of a product alone only: where rows crowd L1, or in a batch, it may not exceed ``most``
    most = min(crowded if access == "crowded" else alone, alone if batch == 1 else item)
    terms, share = model_limits(dtype)
    if asked.ruled:
        most = alone = terms
    model = _way_within(asked, min(terms, most), share)
    if access == "crowded" and model[0].path == "packed" and asked.terms <= alone and asked.near is None:
        model = model[0], f"{model[1]} where B's rows lie a multiple of {CROWDED_BYTES} bytes apart"
    kernels = tuple(_kernel(asked, role).name for role in ("direct", "wide"))
    terms, share, reasons = direct_limits(tuning, dtype, kernels, threads, terms, share)
    if not reasons:
        return *model, ()
    terms = terms if most == alone else min(terms, most)
    tuned = _way_within(asked, terms, share)
    return (*model, ()) if tuned[0] == model[0] else (*tuned, reasons)


def direct_terms(dtype: str) -> tuple[int, int, int]:
    """Return up to how many terms products go direct here: alone, alone if B's rows crowd L1, as an item of a batch."""
    alone, crowded, item = limits.DIRECT_EDGES.get((current().isa.name, dtype), limits.DIRECT_EDGES_ELSEWHERE)
    return alone**3, crowded**3, item**3


def direct_tile_terms(dtype: str) -> int:
    """Return up to how many terms small products take the direct tile; larger ones the wide one."""
    return int(limits.DIRECT_TILE_EDGES.get((current().isa.name, dtype), 2**20)) ** 3


def model_limits(dtype: str) -> tuple[int, float]:
    """Return up to how many terms, and to what share of L2 for B, products go direct here unless it is tuned.

    Terms of squares, where it is the elements of C that decide (``limits.NEAR``).
    """
    machine = current()
    row = (machine.isa.name, dtype)
    near, edge = limits.NEAR.get(row), limits.NEAR_TERMS.get(row)
    terms = near.edge**3 if near else edge**3 if edge else direct_terms(dtype)[0]
    return terms, limits.DIRECT_SHARE_OF_L2.get((machine.name, machine.isa.name), 0.0)


def _way_within(asked: _Asked, terms: int, share: float) -> tuple[Way, str]:
    """Return the way, and why, if products go direct up to so many terms, or with B in a share of L2."""
    way, why = _wider_way(asked, terms, share)
    of_direct_tiles = way.path == "direct" and way.role in ("direct", "wide") and not way.copied and asked.batch == 1
    tile_rows, few = _kernel(asked, "direct").mr, narrow_limits(asked.dtype)
    if of_direct_tiles and is_narrow(asked.m, asked.n, asked.terms, tile_rows, asked.a_crowded, *few):
        return replace(way, role="narrow"), f"{why}; {asked.n} columns are one vector"
    return way, why


def _wider_way(asked: _Asked, terms: int, share: float) -> tuple[Way, str]:
    """Return the same without narrow tiles."""
    m, n, k = asked.m, asked.n, asked.k
    small, row, column = (_kernel(asked, role) for role in ("direct", "row", "column"))
    least_rows = m if asked.batch == 1 else COPIED_ROWS
    if not asked.by_rows and k <= kc_for(asked.dtype, k) and is_copied(asked.terms * small.chains, least_rows, k, n):
        return Way("direct", "direct", copied=True), (
            f"path: m n k = {asked.terms:,}, so little that B, without rows of unit stride, is copied, not packed"
        )
    if asked.access == "general":
        return Way("packed", "row" if m <= row.mr else "packed"), (
            "path: neither B's rows nor its columns have unit stride, so vectors of it must be packed"
        )
    if asked.access == "columns":
        if m <= limits.COLUMN_ROWS.get(asked.machine.isa.name, limits.COLUMN_ROWS_ELSEWHERE):
            return Way("direct", "column"), (
                f"path: {m} rows use each element of B {'once' if m <= column.mr else 'little'}; vectors of its "
                "columns are transposed in registers"
            )
        return Way("packed", "packed"), "path: B's columns have unit stride, so vectors of it must be packed"
    near, at_once = asked.near, min(terms, limits.NEAR_LANE_EDGE**3)
    if (
        asked.ruled and asked.terms <= at_once and k <= kc_for(asked.dtype, k)
    ):  # as the lane does it, which has one tile
        why = f"path: m n k = {asked.terms:,} <= {at_once:,}, too little work to repay packing or a choice of tiles"
        return Way("direct", "direct"), why
    if near is not None and asked.is_near:
        return _way_near(asked, near, terms, share)
    if asked.near_terms is not None:
        return _way_by_terms(asked, terms, share)
    return _passing_way(asked, 0 if near else terms) or _way_by_work(asked, 0 if near else terms, share)


def _way_near(asked: _Asked, near: limits.Near, terms: int, share: float) -> tuple[Way, str]:
    """Return the way of a product of which each block of B stays in L2 as it lies: packing it is for a large C."""
    m, n, k = asked.m, asked.n, asked.k
    edge = round(terms ** (1 / 3))
    elements = (min(edge, near.shallow_edge) if k <= limits.SHALLOW_STEPS else edge) ** 2
    small, wide = _kernel(asked, "direct"), _kernel(asked, "wide")
    block = f"a block of B, {asked.b_block_bytes / 1024:,.3g} KiB, stays in L2 as it lies"
    few = m <= limits.NEAR_ROWS or n <= limits.NEAR_COLUMNS
    if m * n > elements and not few and asked.b_bytes > share * asked.l2_bytes:
        return Way("packed", "packed"), (
            f"path: {block}, but C has {m * n:,} > {elements:,} elements, enough to repay packing"
        )
    padded_small, padded_wide = (-(-n // spec.nr) * spec.nr for spec in (small, wide))
    deep = asked.b_block_bytes > limits.WIDE_BYTES and k > limits.WIDE_STEPS
    role = "wide" if deep and padded_wide <= limits.WIDE_PADDING * padded_small else "direct"
    return Way("direct", role, rows_first=m > small.mr), f"path: {block}, and C, {m * n:,} elements, uses it little"


def _way_by_terms(asked: _Asked, terms: int, share: float) -> tuple[Way, str]:
    """Return the way where near blocks of B are read as they lie for few rows, little work or few columns."""
    m, n, b_bytes, row_bytes = asked.m, asked.n, asked.b_bytes, asked.n * asked.itemsize
    small, wide, row = (_kernel(asked, role) for role in ("direct", "wide", "row"))
    padded_rows = -(-m // small.mr) * small.mr
    crowded = asked.access == "crowded" and asked.k > limits.CROWDED_STEPS
    room = asked.l2_bytes * (limits.SWEPT_CROWDED_SHARE if crowded else 1)
    near_rows = m <= limits.SWEPT_NEAR_ROWS and padded_rows >= limits.SWEPT_PADDING * m
    passes = near_rows and b_bytes > room
    passes = passes or (m <= few_of(asked.machine, asked.dtype)[0] and not _is_near_anyway(asked))
    if row_bytes >= limits.SWEPT_ROW_BYTES and passes:
        why = f"path: {m} rows use B's {b_bytes / 1024:,.3g} KiB little: it passes by, "
        return Way("sweep", "row"), f"{why}whole rows side by side, for {rows_together(row, m)} of A at once"
    padded_small = padded_rows * -(-n // small.nr) * small.nr
    padded_wide = -(-m // wide.mr) * wide.mr * -(-n // wide.nr) * wide.nr
    role = "wide" if limits.NEAR_WIDE_GAIN * padded_wide < padded_small and not crowded else "direct"
    some = asked.is_near and m <= limits.NEAR_SOME_ROWS and row_bytes <= limits.NEAR_SHORT_BYTES
    if m <= limits.NEAR_FEW_ROWS or some:
        return Way("direct", role), f"path: {m} rows use B little, and it is read as it lies"
    most = min(terms, direct_terms(asked.dtype)[1]) if crowded else terms
    if row_bytes > limits.NEAR_LONG_BYTES and (crowded or m > limits.NEAR_LONG_ROWS):
        most = min(most, limits.NEAR_LONG_EDGE**3)
    if asked.is_near and asked.terms <= most:
        why = f"path: m n k = {asked.terms:,} <= {most:,}, too little work to repay packing"
        return Way("direct", "direct", rows_first=True), why
    if b_bytes <= share * asked.l2_bytes:
        return Way("direct", "direct", rows_first=True), f"path: {_say_room(asked, share)}, where packing gains nothing"
    if _is_small_as_it_lies(asked):
        why = f"path: C's {m * n:,} elements in {n} columns use A and B little, so packing them gains nothing"
        return Way("direct", "direct", rows_first=True), why
    return Way("packed", "packed"), f"path: m n k = {asked.terms:,} > {most:,}, enough work to repay packing"


def _say_room(asked: _Asked, share: float) -> str:
    """Say that B stays in the share of L2 that it may take as it lies."""
    return f"B's {asked.b_bytes // 1024:,} KiB stay in L2 ({int(asked.l2_bytes * share) // 1024:,} KiB used so)"


def _is_small_as_it_lies(asked: _Asked) -> bool:
    """Whether C is so small that blocks of A and B stay near as they lie."""
    columns, elements = limits.AS_IT_LIES.get(asked.row, limits.AS_IT_LIES_ELSEWHERE)
    crowding = 2 if asked.access == "crowded" else 1
    small = asked.n <= columns // crowding or asked.m * asked.n <= elements // crowding
    return small and asked.b_block_bytes <= asked.l2_bytes // 2


def _passing_way(asked: _Asked, terms: int) -> tuple[Way, str] | None:
    """Return the way of a few rows that B passes by, or ``None``: too many rows, or too little of B for that."""
    m, small, row = asked.m, _kernel(asked, "direct"), _kernel(asked, "row")
    sweep_rows = few_of(asked.machine, asked.dtype)[0]
    stream_rows, strip_rows = _rows_that_pass(asked)
    short_bytes = limits.SHORT_ROW_BYTES.get(asked.machine.isa.name, limits.SHORT_ROW_BYTES_ELSEWHERE)
    short = asked.n * small.itemsize <= short_bytes
    if m > max(stream_rows, strip_rows) or asked.batch > 1 or short or _is_near_anyway(asked):
        return None
    if m > min(sweep_rows, LANE_ROWS) and asked.terms <= terms:
        return None
    why = f"path: {m} rows use each element of B {'once' if m <= small.mr else 'little'}: it passes by, "
    if m <= sweep_rows:
        return Way("sweep", "row"), f"{why}whole rows side by side, for {rows_together(row, m)} of A at once"
    if m <= stream_rows:
        return Way("stream", "direct" if m <= small.mr else "packed"), f"{why}row after row of micro-tiles"
    return Way("strips", "packed"), f"{why}strips of a few rows, each of which meets all rows of A"


def _rows_that_pass(asked: _Asked) -> tuple[int, int]:
    """Return up to how many rows B streams by, and up to how many it passes in strips."""
    _, near_rows, far_rows, _ = few_of(asked.machine, asked.dtype)
    if asked.b_bytes > limits.STRIP_BYTES.get(asked.row, asked.b_bytes):
        return _kernel(asked, "direct").mr, 0
    return near_rows if asked.b_bytes <= asked.l2_bytes // 2 else far_rows, limits.STRIP_ROWS.get(asked.row, 0)


def _is_near_anyway(asked: _Asked) -> bool:
    """Whether B is so small that it need not pass to be read once."""
    by_rows = asked.m <= LANE_ROWS or asked.machine.isa.name == "avx2"
    return is_near(asked.m, asked.b_bytes) if by_rows else asked.b_bytes <= limits.PASSING_BYTES


def _way_by_work(asked: _Asked, terms: int, share: float) -> tuple[Way, str]:
    """Return the way, direct or packed, of a product that B doesn't pass by."""
    m, n, b_bytes = asked.m, asked.n, asked.b_bytes
    small, wide, row = (_kernel(asked, role) for role in ("direct", "wide", "row"))
    if asked.terms <= terms:
        role = "wide" if asked.terms > direct_tile_terms(asked.dtype) and asked.batch == 1 else "direct"
        return Way("direct", role), f"path: m n k = {asked.terms:,} <= {terms:,}, too little work to repay packing"
    if m <= max(_rows_that_pass(asked)) and asked.batch == 1 and _is_near_anyway(asked) and m > row.mr:
        return Way("direct", "direct"), f"path: {m} rows use B little, and its {b_bytes // 1024:,} KiB stay near"
    if m <= max(small.mr, row.mr):
        why = f"path: {m} rows use each element of B once, so packing it would be a copy for nothing"
        return Way("direct", "row" if m <= row.mr else "wide" if m <= wide.mr else "direct"), why
    if _is_small_as_it_lies(asked):
        gram = not asked.a_rows and asked.threads == 1 and asked.machine.isa.name in limits.STREAMED_GRAMS
        if gram and 0 < narrow_limits(asked.dtype)[0] < n and asked.batch == 1:
            return Way("stream", "direct"), f"path: C's {m * n:,} elements meet a few values of p of A and B at a time"
        why = f"path: C's {m * n:,} elements in {n} columns use A and B little, so packing them gains nothing"
        return Way("direct", "direct", rows_first=m > small.mr), why
    room = int(asked.l2_bytes * share)
    if b_bytes <= room:
        why = f"path: {_say_room(asked, share)}, where packing gains nothing"
        # padding columns to whole tiles may cost more than the 3 to 7 % that the wide tile gains (catalog)
        padded_small, padded_wide = (-(-n // spec.nr) * spec.nr for spec in (small, wide))
        return Way("direct", "wide" if padded_wide <= 1.04 * padded_small else "direct"), why
    if asked.near is not None:
        block = f"a block of B, {asked.b_block_bytes / 1024:,.3g} KiB, does not stay in L2 as it lies"
        return Way("packed", "packed"), f"path: {block}, and {m} rows use it enough to repay packing"
    why = f"path: m n k = {asked.terms:,} > {terms:,}, enough work to repay packing"
    if room:
        why += f", and B's {b_bytes // 1024:,} KiB exceed the {room // 1024:,} KiB of L2 that it could use as it lies"
    return Way("packed", "packed"), why


def narrow_limits(dtype: str) -> tuple[int, int, int]:
    """Return for narrow tiles: the most columns, as a rule and where A's rows crowd L1, and the terms; 0: never."""
    narrow, small = (choose_kernel(dtype, role)[0] for role in ("narrow", "direct"))
    columns = 0 if narrow == small else narrow.nr
    return columns, columns if current().isa.name in limits.NARROW_CROWDED else 0, limits.NARROW_TERMS


def reads_a_as_it_lies(machine: Machine, dtype: str, n: int) -> bool:
    """Whether the packed path packs B only, where A's rows are contiguous."""
    return n <= limits.UNPACKED_A_COLUMNS.get((machine.isa.name, dtype), 0)


def strip_steps(m: int) -> int:
    """Return how many values of p a strip of B has for m rows."""
    rows, few, many = limits.STRIP_STEPS
    return few if m <= rows else many


def few_of(machine: Machine, dtype: str) -> tuple[int, int, int, int]:
    """Return the row of ``limits.FEW`` for a dtype on this machine's vector set."""
    return limits.FEW.get((machine.isa.name, dtype), limits.FEW_ELSEWHERE)
