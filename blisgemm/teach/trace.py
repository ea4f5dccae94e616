"""What the loops do, step by step: the very text of ``loops``, run with words that record in place of compute.

Knows: which words of ``loops`` act, and what a recorded step is. Does not know: caches (``cachesim``), pictures, or how
a plan is chosen. Called by ``cachesim``, ``python -m blisgemm trace`` and whatever draws the loops.

The functions of ``loops`` are made anew from their own code (``relink``) with a packer and microkernels that note which
part of A, B and C they were given, and with a ``range`` that remembers where each loop is. So a trace cannot differ
from what runs, and neither ``loops`` nor compiled code knows of it. Nothing is compiled and no matrix is allocated.

Source of the loops' order: ``loops``.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..blocking import Blocking, choose_blocking, tiles_for
from ..errors import BlisgemmTypeError, BlisgemmValueError
from ..machine.facts import Isa, Machine
from ..plan import Plan
from ..ukernel.spec import SHORT_NAMES, KernelSpec, rows_together
from .elsewhere import machine_named, plan_on
from .region import Region
from .relink import relinked

__all__ = [
    "EVENT", "KINDS", "MICROKERNEL", "MOST_EVENTS", "PACK_A", "PACK_B", "Events", "Trace", "least_events", "trace",
    "trace_plan",
]  # fmt: skip

KINDS = ("pack_a", "pack_b", "microkernel")
PACK_A, PACK_B, MICROKERNEL = range(3)

# One step. ``ic pc jc ir jr``: where the loops are, in elements, -1 for a loop that is not there; i0:i1, j0:j1, p0:p1:
# which rows of A and C, columns of B and C, and terms it touches (0:0 for an index that the operand doesn't have).
EVENT = np.dtype(
    [(name, np.int32) for name in ("kind", *("ic", "pc", "jc", "ir", "jr"), *("i0", "i1", "j0", "j1", "p0", "p1"))]
)

# Steps of a trace at most, some ten seconds and 200 MB; source: our choice, squares up to 4000 on any known machine.
MOST_EVENTS = 1 << 22

# A pretended vector set for tiles of any size: vectors of one element, as many registers as one likes.
_ANY_TILE = Isa("any", "any", 4, 1 << 30, True, False, True, "memory", (), None)


@dataclass(frozen=True)
class Trace:
    """The steps of one product, in order, and the blocks that they follow.

    Attributes:
        m, n, k: extents of the product that the loops compute: where ``swapped``, that of the transposes.
        dtype: element type. path: as a plan's. access: how the kernel reads B, ``packed`` where it is packed.
        mr, nr, mc, nc, kc: micro-tile and cache blocks, in elements; mt, nb: a team's (``blocking``), else mc, nc. On
            the sweep path mr is how many rows meet B at once.
        buffers: for packed panels of A and columns of B: two each, in turn, where a team packs ahead.
        half: whether A is read as it lies while B is packed.
        swapped: whether C' = B' A' is computed.
        kernel: the name of the microkernel. machine: whose blocks they are.
        events: a structured array (``EVENT``), one row a step.
        rows_first: whether the direct path goes along the rows of C. step: values of p in one pass where B passes by.
    """

    m: int
    n: int
    k: int
    dtype: str
    path: str
    access: str
    mr: int
    nr: int
    mc: int
    nc: int
    kc: int
    mt: int
    nb: int
    half: bool
    swapped: bool
    kernel: str
    machine: str
    events: npt.NDArray[Any] = field(repr=False, compare=False)
    rows_first: bool = False
    step: int = 0
    buffers: tuple[int, int] = (1, 1)

    def __len__(self) -> int:
        return len(self.events)

    def count(self, kind: int) -> int:
        """Return how many steps there are of a kind: ``PACK_A``, ``PACK_B`` or ``MICROKERNEL``."""
        return int((self.events["kind"] == kind).sum())

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain Python values; ``events`` is a list of rows, ``fields`` their columns."""
        facts = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "events"}
        rows = self.events.view(np.int32).reshape(len(self), len(EVENT.names or ())).tolist()
        return {**facts, "kinds": list(KINDS), "fields": list(EVENT.names or ()), "events": rows}

    def to_json(self) -> str:
        """Return ``to_dict`` as JSON."""
        return json.dumps(self.to_dict(), separators=(",", ":"))

    def lines(self, first: int = 0, most: int | None = None) -> Iterator[str]:
        """Yield steps as words, ``most`` of them from ``first`` on."""
        if first < 0:
            raise BlisgemmValueError(f"first: expected at least 0; got {first}")
        end = len(self) if most is None else min(len(self), first + most)
        for number in range(first, end):
            yield f"{number:>8}  {_words(self.events[number])}"

    def __str__(self) -> str:
        """The blocks, and the first steps."""
        shown = 24  # a screen; source: our choice
        head = f"({self.m} x {self.k}) * ({self.k} x {self.n}), {self.dtype}, {self.path}, blocks for {self.machine}"
        blocks = f"mr {self.mr}  nr {self.nr}  mc {self.mc}  nc {self.nc}  kc {self.kc}"
        counts = ", ".join(f"{self.count(kind)} {name}" for kind, name in enumerate(KINDS) if self.count(kind))
        rest = [f"     ...  {len(self) - shown} more"] * (len(self) > shown)
        return "\n".join([head, blocks, counts or "no steps", *self.lines(0, shown), *rest])


def _words(event: Any) -> str:
    """Return one event as text: ``microkernel  ic 0 pc 0 jc 0 ir 0 jr 8  C[0:4, 8:16] += A[0:4, 0:8] B[0:8, 8:16]``."""
    i, j, p = (f"{event[x + '0']}:{event[x + '1']}" for x in "ijp")
    loops = " ".join(f"{name} {event[name]}" for name in ("ic", "pc", "jc", "ir", "jr") if event[name] >= 0)
    kind = int(event["kind"])
    what = (f"A[{i}, {p}]", f"B[{p}, {j}]", f"C[{i}, {j}] += A[{i}, {p}] B[{p}, {j}]")[kind]
    return f"{KINDS[kind]:<11}  {what:<50}  {loops}"


class Events:
    """Rows of ``EVENT`` as they come, up to ``MOST_EVENTS``."""

    def __init__(self) -> None:
        self._numbers = array("i")

    def append(self, row: tuple[int, ...]) -> None:
        """Add one row.

        Raises:
            BlisgemmValueError: there are too many.
        """
        if len(self._numbers) >= MOST_EVENTS * len(row):
            raise BlisgemmValueError(_too_many(f"more than {MOST_EVENTS:,}"))
        self._numbers.extend(row)

    def array(self) -> npt.NDArray[Any]:
        """Return them as an array that can't be written."""
        events = np.array(self._numbers, np.int32).view(EVENT)
        events.flags.writeable = False
        return events


def _too_many(count: str) -> str:
    return f"m, n, k: expected a product of at most {MOST_EVENTS:,} steps; got {count}; larger blocks have fewer"


def least_events(m: int, n: int, k: int, mr: int, nr: int, kc: int) -> int:
    """Return how many microkernels there are at least, in tiles of mr x nr and blocks of kc terms."""
    return -(-m // mr) * -(-n // nr) * -(-k // kc)


class _Recorder:
    """The words of ``loops`` that act, each of which notes what it was given."""

    def __init__(self) -> None:
        self.rows = Events()
        self.loops: list[int] = []  # where each loop is that is under way, outermost first
        self.step_at: Callable[[int], tuple[int, ...]] | None = None  # of a team, whose outer loop goes through steps

    def range(self, *bounds: int) -> Iterator[int]:
        """Go through ``range(*bounds)`` and say where it is."""
        depth = len(self.loops)
        for index in range(*bounds):
            self.loops[depth:] = [index]
            yield index
        del self.loops[depth:]

    def _outer(self, ahead: int) -> tuple[int, int, int]:
        """Return where ic, pc and jb are; of a team, so many steps ahead."""
        if self.step_at is None:
            ic, pc, jb = (*self.loops[:3], -1)[:3]
            return ic, pc, jb
        ic, _, pc, _, jb, _ = self.step_at(self.loops[0] + ahead)
        return ic, pc, jb

    def pack_a(self, kernel: Any, panel: Region, out: Region) -> None:
        if panel.row == panel.row_end:
            return
        ic, pc, _ = self._outer(1)
        self.rows.append((PACK_A, ic, pc, -1, -1, -1, panel.row, panel.row_end, 0, 0, panel.column, panel.column_end))

    def pack_b(self, kernel: Any, block: Region, out: Region) -> None:
        if block.column == block.column_end:
            return
        ic, pc, jb = self._outer(1)
        self.rows.append((PACK_B, ic, pc, jb, -1, -1, 0, 0, block.column, block.column_end, block.row, block.row_end))

    def pack_a_for_strips(self, kernel: Any, panel: Region, out: Region) -> None:
        jc, pc = self.loops
        self.rows.append((PACK_A, 0, pc, jc, -1, -1, panel.row, panel.row_end, 0, 0, panel.column, panel.column_end))

    def pack_strip(self, kernel: Any, block: Region, out: Region) -> None:
        jc, pc, _, jr = self.loops
        span = (block.column, block.column_end, block.row, block.row_end)
        self.rows.append((PACK_B, 0, pc, jc, -1, jr - jc, 0, 0, *span))

    def microkernel_strip(
        self, kernel: Any, m_cur: int, n_cur: int, p_cur: int, alpha: Any, a: Region, b: Region, beta: Any, c: Region,
        conj: int, sums: Any, last: bool, ahead: Region, rows_ahead: int,
    ) -> None:  # fmt: skip
        jc, pc, p = self.loops[:3]
        self._note((-1, pc, jc, c.row, c.column - jc), m_cur, n_cur, p_cur, p, c)

    def copy(self, b: Region) -> None:
        """Note that all of B is copied."""
        self.rows.append((PACK_B, -1, -1, -1, -1, -1, 0, 0, b.column, b.column_end, b.row, b.row_end))

    def _note(self, at: tuple[int, ...], m_cur: int, n_cur: int, p_cur: int, p0: int, c: Region) -> None:
        i0, j0 = c.row, c.column
        self.rows.append((MICROKERNEL, *at, i0, i0 + m_cur, j0, j0 + n_cur, p0, p0 + p_cur))

    def microkernel_of(
        self, kernel: Any, access: str, m_cur: int, n_cur: int, kc_cur: int, alpha: Any, a: Region, a_pack: Any,
        ir: int, b: Any, beta: Any, c: Region, conj: int,
    ) -> None:  # fmt: skip
        ic, pc, _ = self._outer(0)
        jr = self.loops[-1]
        self._note((ic, pc, c.column - jr, ir, jr), m_cur, n_cur, kc_cur, a.column, c)

    def microkernel(
        self, kernel: Any, access: str, m_cur: int, n_cur: int, kc_cur: int, alpha: Any, a: Region, b: Region,
        beta: Any, c: Region, conj: int,
    ) -> None:  # fmt: skip
        self._note((-1, self.loops[0], -1, c.row, c.column), m_cur, n_cur, kc_cur, a.column, c)

    def microkernel_part(
        self, kernel: Any, m_cur: int, n_cur: int, p_cur: int, alpha: Any, a: Region, b: Region, beta: Any, c: Region,
        conj: int, sums: Any, last: bool,
    ) -> None:  # fmt: skip
        jc, pc = self.loops[:2]
        self._note((-1, pc, jc, c.row, c.column - jc), m_cur, n_cur, p_cur, a.column, c)

    def sweep(
        self, kernel: Any, m_cur: int, n_cur: int, p_cur: int, alpha: Any, a: Region, b: Region, beta: Any, c: Region,
        conj: int, sums: Any, last: bool,
    ) -> None:  # fmt: skip
        self.microkernel_part(kernel, m_cur, n_cur, p_cur, alpha, a, b, beta, c, conj, sums, last)

    def words(self, path: str) -> dict[str, Any]:
        """Return the names of ``loops`` and what they shall mean on a path."""
        names = ("range", "pack_a", "pack_b", "microkernel_of", "microkernel", "microkernel_part", "microkernel_strip")
        found = {name: getattr(self, name) for name in (*names, "sweep")}
        return found | ({"pack_a": self.pack_a_for_strips, "pack_b": self.pack_strip} if path == "strips" else {})


def trace(
    m: int, n: int, k: int, *, machine: Machine | str | None = None, dtype: Any = "float32",
    kernel: str | KernelSpec | None = None, blocking: tuple[int, int, int] | None = None, path: str | None = None,
    mr: int | None = None, nr: int | None = None, half: bool | None = None, threads: int = 1,
) -> Trace:  # fmt: skip
    """Run the loops for an m x k by k x n product of C-contiguous arrays, and return what they did.

    Args:
        m, n, k: extents, at least 0.
        machine: a Machine, a name of ``machine.known`` or ``"teaching"``; ``None`` is this one.
        dtype: element type, as NumPy reads it.
        kernel, path: as ``make_plan`` takes them, for any vector set.
        blocking: (mc, nc, kc) in elements, in place of the model's.
        mr, nr: a micro-tile of any size, in place of a kernel of the catalog. With it or ``blocking`` the path is
            ``packed`` unless ``path`` says otherwise.
        half: whether A is read as it lies while B is packed, in place of the machine's rule; for the packed path alone.
        threads: for how many threads the work is cut. The steps are those of one of them that finds the others busy.

    Raises:
        BlisgemmTypeError, BlisgemmValueError: an argument is not as above.

    Example:
        >>> steps = trace(4, 6, 2, mr=2, nr=3, blocking=(4, 6, 2), half=False)
        >>> for line in steps.lines(): print(line)
               0  pack_a       A[0:4, 0:2]                 ic 0 pc 0
               1  pack_b       B[0:2, 0:6]                 ic 0 pc 0 jc 0
               2  microkernel  C[0:2, 0:3] += A[0:2, 0:2] B[0:2, 0:3]  ic 0 pc 0 jc 0 ir 0 jr 0
               3  microkernel  C[0:2, 3:6] += A[0:2, 0:2] B[0:2, 3:6]  ic 0 pc 0 jc 0 ir 0 jr 3
               4  microkernel  C[2:4, 0:3] += A[2:4, 0:2] B[0:2, 0:3]  ic 0 pc 0 jc 0 ir 2 jr 0
               5  microkernel  C[2:4, 3:6] += A[2:4, 0:2] B[0:2, 3:6]  ic 0 pc 0 jc 0 ir 2 jr 3
    """
    if (mr is None) != (nr is None):
        raise BlisgemmValueError(f"mr, nr: expected both or neither; got mr={mr!r}, nr={nr!r}")
    if half is not None and not isinstance(half, (bool, np.bool_)):
        raise BlisgemmTypeError(f"half: expected True, False or None; got {half!r}")
    if half is not None and path not in (None, "packed"):
        raise BlisgemmValueError(f"half: expected None beside any path but packed; got {half!r} and {path!r}")
    there = machine_named(machine)
    on = None if machine is None and mr is None else there
    tile = _any_tile(dtype, mr, nr) if mr is not None and nr is not None else kernel
    if mr is not None and kernel is not None:
        raise BlisgemmValueError(f"kernel: expected None beside mr and nr; got {kernel!r}")
    if path is None and (blocking is not None or mr is not None or half is not None):
        path = "packed"
    plan = plan_on(on, m, n, k, dtype, kernel=tile, blocking=blocking, path=path, threads=threads)
    if half is not None and plan.path == "packed" and plan.kernel is not None and half != plan.half:
        chosen = plan.blocking
        if blocking is None:
            rows, columns = (n, m) if plan.swapped else (m, n)
            chosen = choose_blocking(there, plan.kernel, rows, columns, k, plan.threads, half=half)
            if plan.ic_ways > 1:
                chosen = tiles_for(plan.kernel, chosen, rows, columns, plan.ic_ways)
        plan = replace(plan, half=half, blocking=chosen)
    return trace_plan(plan)


def trace_plan(plan: Plan) -> Trace:
    """Run the loops as a plan says, for one item of its batch, and return what they did.

    Raises:
        BlisgemmTypeError: NumPy computes the product, so that there are no loops to follow; or no plan was given.
        BlisgemmValueError: there are more than ``MOST_EVENTS`` steps, or an extent passes 31 bits.
    """
    if not isinstance(plan, Plan):
        raise BlisgemmTypeError(f"plan: expected a Plan; got {plan!r}")
    if plan.path == "numpy":
        raise BlisgemmTypeError(f"dtype: expected one that has kernels; got {plan.dtype}, which NumPy multiplies")
    from .. import loops

    kernel, blocking = plan.kernel, plan.blocking
    m, n, k = (plan.n, plan.m, plan.k) if plan.swapped else (plan.m, plan.n, plan.k)
    for name, extent in (("m", plan.m), ("n", plan.n), ("k", plan.k)):
        if extent >= 1 << 31:
            raise BlisgemmValueError(f"{name}: expected less than 2**31 to trace; got {extent}")
    if kernel is not None and blocking is not None and plan.path in ("packed", "direct"):
        least = least_events(m, n, k, kernel.mr, kernel.nr, blocking.kc)
        if least > MOST_EVENTS:
            raise BlisgemmValueError(_too_many(f"{least:,} or more"))
    recorder = _Recorder()
    if kernel is not None and blocking is not None:
        _follow(relinked(loops, **recorder.words(plan.path)), recorder, plan, kernel, blocking, m, n, k)
    events = recorder.rows.array()
    packed, tile_rows = plan.path == "packed", kernel.mr if kernel else 1
    if kernel and plan.path == "sweep":
        tile_rows = rows_together(kernel, m)
    blocks = blocking or Blocking(m, n, max(1, k), (), ())
    together = (blocks.mt, blocks.nb) if plan.ic_ways > 1 else (blocks.mc, blocks.nc)
    return Trace(
        m, n, k, plan.dtype, plan.path, "packed" if packed else plan.access, tile_rows,
        kernel.nr if kernel else 1, blocks.mc, blocks.nc, min(blocks.kc, max(1, k)), *together, plan.half,
        plan.swapped, kernel.name if kernel else "", plan.machine.name, events,
        plan.rows_first and plan.access != "copied", plan.step,
        (plan.packed_shapes[0][0], plan.packed_shapes[1][0]) if packed else (1, 1),
    )  # fmt: skip


def _follow(
    words: dict[str, Any], recorder: _Recorder, plan: Plan, kernel: KernelSpec, blocking: Blocking, m: int, n: int,
    k: int,
) -> None:  # fmt: skip
    """Call the loop nest of the plan's path on operands that are extents only."""
    a, b, c = Region.whole(m, k), Region.whole(k, n), Region.whole(m, n)
    one, zero = kernel.one, kernel.zero
    if plan.path == "packed":
        blocks = (blocking.mc, blocking.nc, blocking.kc, blocking.mt)
        access = "half" if plan.half else "packed"
        a_packs, b_packs = (_Buffers(shape) for shape in plan.packed_shapes)
        if plan.ic_ways == 1:
            words["five_loops"](kernel, access, blocks, one, a, b, zero, c, 0, a_packs[0], b_packs[0])
            return
        columns = b_packs.shape[1] * kernel.nr
        recorder.step_at = lambda step: words["step_at"](step, m, n, k, blocking.mc, columns, blocking.kc)
        work = np.zeros(2, np.intp)
        words["five_loops_together"](kernel, access, blocks, one, a, b, zero, c, 0, a_packs, b_packs, work)
    elif plan.path == "direct":
        if plan.access == "copied":
            recorder.copy(b)
        access = "columns" if plan.access == "columns" else "rows"
        rows_first = plan.rows_first and plan.access != "copied"  # as ``entry.run_copied`` has it
        distance = k * kernel.itemsize  # of columns that follow each other in memory
        columns = words["columns_at_once"](kernel, distance) if access == "columns" else n
        words["direct"](kernel, access, columns, blocking.kc, rows_first, one, a, b, zero, c, 0)
    else:
        nest = words["sweep_rows" if plan.path == "sweep" else plan.path]
        packed = tuple(Region.whole(*shape[-2:]) for shape in plan.waiting_shapes[1:])
        nest(
            kernel,
            blocking.kc,
            plan.step,
            one,
            a,
            b,
            zero,
            c,
            0,
            np.zeros((*plan.sums_shape[1:-1], plan.sums_shape[-1])),
            *packed,
        )


class _Buffers:
    """Packed buffers that are extents only: micro-panels by their numbers."""

    def __init__(self, shape: tuple[int, int, int]) -> None:
        self.shape = shape

    def __getitem__(self, buffer: int) -> Region:
        return Region.whole(self.shape[1], 1)


def _any_tile(dtype: Any, mr: int, nr: int) -> KernelSpec:
    """Return a kernel of any tile, for the loops to go by: no code can be made of it."""
    try:
        name = np.dtype(dtype).name
    except TypeError:
        raise BlisgemmTypeError(f"dtype: expected a NumPy dtype; got {dtype!r}") from None
    if name not in SHORT_NAMES:
        raise BlisgemmValueError(f"dtype: expected one of {', '.join(SHORT_NAMES)} beside mr and nr; got {name}")
    for what, value in (("mr", mr), ("nr", nr)):
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise BlisgemmTypeError(f"{what}: expected an integer >= 1; got {value!r}")
    vector_bytes = 8 if name in ("float64", "complex128") else 4
    return KernelSpec(name, name, name, int(mr), int(nr), replace(_ANY_TILE, vector_bytes=vector_bytes))
