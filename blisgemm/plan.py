"""A plan: what will run for a product and why, as a value that is printed and executed alike.

Knows: how a way gets its blocks and threads. Does not know: which way pays where (``ways``), arrays, or how anything is
run. Called by ``api`` and ``driver`` (per call, cached) and by people (``make_plan``, ``explain``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from .blocking import Blocking, choose_blocking, footprints, kc_for, low_et_al, pack_together, tiles_for
from .errors import BlisgemmTypeError, BlisgemmValueError
from .machine import current
from .machine.facts import Machine
from .parallel import check_threads, choose_ways, get_num_threads, useful_threads
from .rules import A_CROWDED_BYTES, CROWDED_BYTES, is_swapped
from .ukernel import catalog
from .ukernel.spec import SHORT_NAMES, SWEEP_STEPS, KernelSpec
from .ways import (
    Way,
    choose_kernel,
    choose_way,
    few_of,
    reads_a_as_it_lies,
    runnable,
    strip_steps,
    turned_columns,
    wants_turn,
)
from .workspace import buffer_bytes

if TYPE_CHECKING:  # loaded by the first plan, not by the import of the package, which never needs it
    from .tuning import Tuning

__all__ = ["ONE_THREAD_TERMS", "PASSING", "PATHS", "Plan", "make_plan", "numpy_plan", "plan_for"]

# Up to so many terms a product stays on one thread. Source: Zen 3 VM, 2 cores, quiet, 2026-11-30, two threads' time by
# one's, packed, n = 96, 112, 128, 150: f32 1.43 1.41 1.21 1.01, f64 1.36 1.25 1.15 0.97, c64 1.17 0.87 0.92 0.81.
ONE_THREAD_TERMS = 128**3

PATHS = ("empty", "scale", "direct", "sweep", "stream", "strips", "packed", "numpy")
PASSING = ("sweep", "stream", "strips")  # B passes by, a few of its rows at a time, while sums wait


@dataclass(frozen=True)
class Plan:
    """How ``m x k`` times ``k x n`` will be computed.

    Attributes:
        m, n, k: extents as the caller gave them; dtype: element type of the sums and of C.
        path: ``empty`` (nothing to do), ``scale`` (A and B not read), ``direct`` (no packing), ``sweep``,
            ``stream``, ``strips`` (few rows: B passes once), ``packed`` (the five loops) or ``numpy`` (NumPy itself
            does it).
        kernel, blocking: what the path uses; ``None`` where it has none.
        ic_ways, jr_ways: threads over rows and over columns of C; on the packed path ic_ways is all of them, who share
            the tiles of each panel as they get free.
        batch: how many products of this shape; batch_ways: threads over them.
        access: how a direct kernel reads B: ``rows`` (unit column stride), ``columns`` (unit row stride) or ``copied``
            (a copy that has unit column stride; in a batch, of one item after the other).
        half: whether the packed path reads A as it lies and packs B only.
        rows_first: whether the direct path goes along the rows of C rather than down its columns.
        step: values of p in one pass over B's columns, where B passes by.
        swapped: whether C's transpose is computed, as op(B) transposed times op(A) transposed.
        reasons: why, in words.
    """

    m: int
    n: int
    k: int
    dtype: str
    path: str
    kernel: KernelSpec | None
    blocking: Blocking | None
    machine: Machine
    ic_ways: int = 1
    jr_ways: int = 1
    batch: int = 1
    batch_ways: int = 1
    swapped: bool = False
    access: str = "rows"
    half: bool = False
    rows_first: bool = False
    step: int = 0
    reasons: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.path not in PATHS:
            raise BlisgemmValueError(f"path: expected one of {', '.join(PATHS)}; got {self.path!r}")
        for name in ("ic_ways", "jr_ways", "batch_ways"):
            if getattr(self, name) < 1:
                raise BlisgemmValueError(f"{name}: expected at least 1; got {getattr(self, name)}")
        if self.batch_ways > 1 and self.ic_ways * self.jr_ways > 1:
            got = f"ic_ways {self.ic_ways}, jr_ways {self.jr_ways}, batch_ways {self.batch_ways}"
            raise BlisgemmValueError(f"batch_ways: expected 1 where threads share a product; got {got}")
        if self.path == "packed" and self.jr_ways > 1:
            raise BlisgemmValueError(
                f"jr_ways: expected 1 on the packed path, whose threads are all of ic_ways; got {self.jr_ways}"
            )
        allowed = {"direct": ("rows", "columns", "copied"), "packed": ("rows", "columns")}.get(self.path, ("rows",))
        if self.access not in allowed:
            raise BlisgemmValueError(
                f"access: expected {' or '.join(allowed)} on the {self.path} path; got {self.access!r}"
            )
        if self.kernel is not None and self.blocking is not None:
            if self.path == "packed":
                _check_blocking((self.blocking.mc, self.blocking.nc, self.blocking.kc), self.kernel)
                _check_tiles(self.blocking, self.kernel)
            else:
                _check_steps(self.blocking, self.step, self.kernel, self.path)

    @property
    def threads(self) -> int:
        """Threads that work on it."""
        return self.ic_ways * self.jr_ways * self.batch_ways

    @property
    def bits(self) -> str:
        """What is promised about rounding."""
        if self.path in ("direct", *PASSING, "packed") and self.kernel is not None:
            if not self.kernel.isa.fma:
                return f"own: {self.kernel.isa.name} has no fused multiply-add, so bits differ from other machines"
            if self.blocking is not None and self.blocking.kc != kc_for(self.dtype, self.k):
                return f"own: kc {self.blocking.kc} was forced; the library's is {kc_for(self.dtype, self.k)}"
            return "the same on every machine, path, kernel, layout and number of threads"
        return "NumPy's own" if self.path == "numpy" else "exact"

    @cached_property
    def packed_shapes(self) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        """Shapes, in reals, of packed panels of A and of what is packed of B: (buffers, micro-panels, reals).

        A batch has buffers for each thread. A team packs ahead: step s reads buffer s mod 2 and fills the other. One is
        enough only where nothing is packed a second time, whichever of C and C' is computed: that follows from how C
        lies, and a plan may meet another C than it was made for.
        """
        kernel, blocking = self.kernel, self.blocking
        if self.path != "packed" or kernel is None or blocking is None:
            return (0, 0, 0), (0, 0, 0)
        kc = min(blocking.kc, self.k) * kernel.planes
        rows = 0 if self.half else blocking.mc
        columns, of_a, of_b = blocking.nc, self.batch_ways, self.batch_ways
        if self.ic_ways > 1:
            columns, longest = blocking.nb, max(self.m, self.n)
            panels = -(-longest // blocking.mc) * -(-self.k // blocking.kc)
            of_a, of_b = min(2, panels), min(2, panels * -(-longest // columns))
        return (of_a, rows // kernel.mr, kc * kernel.mr), (of_b, columns // kernel.nr, kc * kernel.nr)

    @property
    def sums_shape(self) -> tuple[int, ...]:
        """Shape, in reals, of the waiting sums: sweep (threads, rows, columns); else (threads, tiles..., sums)."""
        kernel, blocking = self.kernel, self.blocking
        if kernel is None or blocking is None or self.path not in PASSING:
            return (0,)
        rows = self.n if self.swapped else self.m
        if self.path == "sweep":
            return self.threads, rows, blocking.nc * kernel.chains
        return self.threads, blocking.nc // kernel.nr, -(-rows // kernel.mr), kernel.sums

    @property
    def waiting_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes, in reals, of all that is borrowed where B passes by: sums; strips: a kc block of A, a strip of B."""
        if self.path != "strips" or self.kernel is None or self.blocking is None:
            return (self.sums_shape,)
        kernel, (threads, _, tiles, _) = self.kernel, self.sums_shape
        of_a = (threads, tiles, min(self.blocking.kc, self.k) * kernel.mr * kernel.planes)
        return self.sums_shape, of_a, (threads, self.step * kernel.nr * kernel.planes)

    @property
    def copies_shape(self) -> tuple[int, int, int]:
        """Shape, in elements, of the copies of B's items: (threads, rows, columns)."""
        if self.access != "copied":
            return 0, 0, 0
        return self.batch_ways, self.k, self.m if self.swapped else self.n

    @property
    def workspace_bytes(self) -> int:
        """Bytes that the run borrows: panels of A and blocks of B (``packed_shapes``), sums or a copy."""
        if self.kernel is None:
            return 0
        if self.access == "copied":
            return buffer_bytes(math.prod(self.copies_shape) * self.kernel.itemsize, 0)
        if self.path in PASSING:
            return buffer_bytes(*(math.prod(shape) * self.kernel.real_bits // 8 for shape in self.waiting_shapes))
        return buffer_bytes(*(math.prod(shape) * self.kernel.real_bits // 8 for shape in self.packed_shapes))

    def __str__(self) -> str:
        """The plan in words and numbers, one fact a line."""
        times = f"{self.batch} times " if self.batch != 1 else ""
        lines = [
            f"{times}({self.m} x {self.k}) * ({self.k} x {self.n}), {self.dtype}, on {self.machine.name}",
            f"path      {self.path}"
            + (", A as it lies" if self.half else "")
            + (", computed as C' = B' * A' (transposed)" if self.swapped else ""),
        ]
        if self.kernel is not None:
            spec = self.kernel
            lines.append(
                f"kernel    {spec.name}: {spec.register_account} vector registers of {spec.isa.vector_bytes} bytes"
            )
        if self.blocking is not None:
            blk = self.blocking
            lines.append(
                f"blocking  mc {blk.mc}  nc {blk.nc}  kc {blk.kc}"
                if self.path == "packed"
                else f"blocking  nc {blk.nc}  kc {blk.kc} in steps of {self.step}"
                if self.path in PASSING
                else f"blocking  kc {blk.kc}, B by "
                + ("copies, " if self.access == "copied" else f"its {self.access}, ")
                + ("along the rows of C" if self.rows_first else "down the columns of C")
            )
            if self.path == "packed":
                lines += [f"  {footprint}" for footprint in blk.footprints]
        shared = f" x {self.batch_ways} over the batch" if self.batch_ways > 1 else ""
        how = f"ic {self.ic_ways} x jr {self.jr_ways}{shared}"
        if self.path == "packed" and self.blocking is not None and self.ic_ways > 1:
            how = f"each takes tiles of {self.blocking.mt} x {self.blocking.nc} of C as it gets free"
        lines.append(f"threads   {self.threads}: {how}")
        if self.path in ("packed", *PASSING) or self.access == "copied":
            lines.append(f"workspace {self.workspace_bytes / 1024:,.0f} KiB")
        lines.append(f"bits      {self.bits}")
        reasons = self.reasons + (self.blocking.reasons if self.blocking and self.path == "packed" else ())
        if self.path == "packed" and self.kernel is not None:
            reasons = (*reasons, low_et_al(self.machine, self.kernel).text)
        lines += [f"because   {reasons[0]}"] * bool(reasons) + [f"          {reason}" for reason in reasons[1:]]
        return "\n".join(lines)


def numpy_plan(m: int, n: int, k: int, dtype: str, reason: str) -> Plan:
    """Return the plan of a product that NumPy computes."""
    return Plan(m, n, k, dtype, "numpy", None, None, current(), reasons=(reason,))


def make_plan(
    m: int, n: int, k: int, dtype: Any = "float32", *, kernel: str | KernelSpec | None = None,
    blocking: tuple[int, int, int] | None = None, path: str | None = None, threads: int | None = None,
) -> Plan:  # fmt: skip
    """Return the plan for an m x k by k x n product of C-contiguous arrays.

    Args:
        m, n, k: extents, at least 0.
        dtype: element type, as NumPy reads it.
        kernel: a name of the catalog or a KernelSpec, in place of the machine's own.
        blocking: (mc, nc, kc) in elements, in place of the model's; mc a multiple of mr, nc of nr, of ``kernel`` or
            else of the dtype's first packed one. A kc other than the library's may change the last bits.
        path: ``direct``, ``sweep``, ``stream``, ``strips`` or ``packed``, in place of the rule.
        threads: at most so many, in place of ``get_num_threads()``.

    Raises:
        BlisgemmTypeError, BlisgemmValueError: an argument is not as above.

    Example:
        >>> import blisgemm
        >>> blisgemm.make_plan(8, 8, 8, "float64").path
        'direct'
    """
    m, n, k = _extent("m", m), _extent("n", n), _extent("k", k)
    try:
        name = np.dtype(dtype).name
    except TypeError:
        raise BlisgemmTypeError(f"dtype: expected a NumPy dtype; got {dtype!r}") from None
    if path not in (None, "direct", *PASSING, "packed"):
        raise BlisgemmValueError(
            f"path: expected 'direct', 'sweep', 'stream', 'strips', 'packed' or None; got {path!r}"
        )
    if name not in SHORT_NAMES:
        for argument, value in (("kernel", kernel), ("blocking", blocking), ("path", path)):
            if value is not None:
                raise BlisgemmValueError(f"{argument}: expected None, as {name} has no kernels; got {value!r}")
        return numpy_plan(m, n, k, name, f"dtype: {name} has no kernel yet, so NumPy multiplies it")
    spec = catalog.by_name(kernel) if isinstance(kernel, str) else kernel
    if spec is not None:
        if not isinstance(spec, KernelSpec):
            raise BlisgemmTypeError(f"kernel: expected a name or a KernelSpec; got {kernel!r}")
        if spec.acc_dtype != name:
            raise BlisgemmValueError(f"kernel: expected one for {name}; got {spec.name}")
        runnable(spec)
    if blocking is not None:
        blocking = _check_blocking(blocking, spec or choose_kernel(name, "packed")[0])
    limit = get_num_threads() if threads is None else check_threads(threads)
    swapped = is_swapped(m, n, unit_row=False, unit_column=True)
    if path is None and wants_turn(m, n, k, name, swapped=swapped, a_rows=True, b_columns=n == 1):
        swapped = not swapped
    access = "columns" if swapped and k > 1 else "rows"  # A's transpose, if C-contiguous, has unit row stride
    if access == "rows" and not swapped and k > 1 and n * np.dtype(name).itemsize % CROWDED_BYTES == 0:
        access = "crowded"
    # A's rows are k elements long; those of B transposed are one element apart
    crowded = not swapped and k * np.dtype(name).itemsize % A_CROWDED_BYTES == 0
    return plan_for(m, n, k, name, limit, access, swapped, spec, blocking, path, a_crowded=crowded)


def _extent(name: str, value: Any) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise BlisgemmTypeError(f"{name}: expected an integer >= 0; got {value!r}")
    extent = int(value.__index__())
    if extent < 0:
        raise BlisgemmValueError(f"{name}: expected an integer >= 0; got {value!r}")
    if extent >= 2**63:
        raise BlisgemmValueError(f"{name}: expected an integer below 2**63; got {value!r}")
    return extent


def _check_blocking(blocking: Any, kernel: KernelSpec) -> tuple[int, int, int]:
    try:
        mc, nc, kc = (int(x.__index__()) for x in blocking)
    except (TypeError, ValueError, AttributeError):
        raise BlisgemmTypeError(f"blocking: expected three integers (mc, nc, kc); got {blocking!r}") from None
    if min(mc, nc, kc) < 1 or mc % kernel.mr or nc % kernel.nr:
        raise BlisgemmValueError(
            f"blocking: expected (mc, nc, kc) with mc a multiple of mr = {kernel.mr}, nc of nr = {kernel.nr} of "
            f"{kernel.name} (kernel= names another), kc >= 1; got {blocking!r}"
        )
    return mc, nc, kc


def _check_tiles(blocking: Blocking, kernel: KernelSpec) -> None:
    """Raise unless the tiles that threads take begin where micro-panels do."""
    mt, nb = blocking.mt, blocking.nb
    if min(mt, nb) < 1 or mt % kernel.mr or nb % kernel.nr:
        raise BlisgemmValueError(
            f"blocking: expected mt a multiple of mr = {kernel.mr}, nb of nr = {kernel.nr}; got mt {mt}, nb {nb}"
        )


def _check_steps(blocking: Blocking, step: int, kernel: KernelSpec, path: str) -> None:
    """Raise unless the loops of a path without packing advance."""
    if blocking.kc < 1:
        raise BlisgemmValueError(f"blocking: expected kc >= 1; got {blocking.kc}")
    width = kernel.lanes if path == "sweep" else kernel.nr
    if path in PASSING and (step < 1 or blocking.nc < 1 or blocking.nc % width):
        raise BlisgemmValueError(
            f"step, nc: expected step >= 1 and nc a positive multiple of {width}; got {step}, {blocking.nc}"
        )


@lru_cache(maxsize=4096)
def plan_for(
    m: int, n: int, k: int, dtype: str, threads: int, access: str, swapped: bool = False,
    kernel: KernelSpec | None = None, blocking: tuple[int, int, int] | None = None, path: str | None = None,
    batch: int = 1, tuning: Tuning | None = None, a_rows: bool = True, a_crowded: bool = False,
) -> Plan:  # fmt: skip
    """Return the plan for checked arguments; cached.

    Args:
        access: how B (A transposed, if swapped) lies: ``rows`` (unit column stride), ``columns`` (unit row stride)
            or ``general``; the direct path needs one of the first two, those on which B passes rows. ``crowded``:
            rows, of which few sets of L1 hold all.
        swapped: see ``rules.is_swapped``.
        batch: number of products of this shape.
        tuning: in place of what the user's tuning file says.
        a_rows: whether A (B transposed, if swapped) has unit column stride.
        a_crowded: whether its rows lie a multiple of ``rules.A_CROWDED_BYTES`` apart.
    """
    from .tuning import in_force, tuned_blocking

    machine = current()
    plan = Plan(m, n, k, dtype, "direct", None, None, machine, batch=batch, swapped=swapped)
    if m == 0 or n == 0 or batch == 0:
        return replace(plan, path="empty", reasons=("path: the result has no elements",))
    if k == 0:
        return replace(plan, path="scale", reasons=("path: k = 0, so the result is beta * C",))
    if swapped:
        m, n = n, m
    if tuning is None:
        tuning = in_force(machine)
    way, why = Way(path or "packed", path or "packed"), "path: as asked for"
    turned = (
        swapped and m <= max(turned_columns(dtype)[:3]) and access == "columns"
    )  # of A B: m is the number of its columns
    notes = [f"layout: {m} columns of B fill no vectors; turned, vectors lie along A's rows"] * (turned and m > 1)
    notes += [f"tuning file {tuning.source}: {tuning.ignored}"] * bool(tuning.ignored)
    if path is None:
        way, why, tuned = choose_way(machine, m, n, k, dtype, access, tuning, threads, batch, a_rows, a_crowded)
        notes += tuned
    else:
        way = replace(way, role={"sweep": "row", "stream": "direct", "strips": "packed"}.get(path, path))
        if path == "direct" and access == "columns":
            way = replace(way, role="column")
    if (way.path == "direct" and access == "general" and not way.copied) or (
        way.path in PASSING and access not in ("rows", "crowded")
    ):
        rows = "columns of A (one column of C is computed transposed)" if swapped else "rows of B"
        raise BlisgemmValueError(f"path: expected 'packed', as {path!r} needs {rows} with unit stride; got {path!r}")
    path = way.path
    spec, why_kernel = (kernel, "kernel: as asked for") if kernel else choose_kernel(dtype, way.role, m, n)
    useful = useful_threads(m * n * k * batch, threads)
    alone = 1 if m * n * k <= ONE_THREAD_TERMS else useful_threads(m * n * k, threads)
    batch_ways = min(useful, batch) if batch > 1 and (path == "direct" or batch >= useful) else 1
    reasons = [why, *notes, why_kernel]
    if batch_ways > 1:
        reasons.append(f"threads: {batch_ways} over the {batch} items of the batch")
    ic_ways, jr_ways = 1, 1
    if path in PASSING:
        columns = -(-n // (spec.lanes if path == "sweep" else spec.nr))
        jr_ways = min(useful_threads(m * n * k, threads, streaming=True), columns) if batch == 1 else 1
    elif path == "packed" and batch_ways == 1:
        micro_tiles = -(-m // spec.mr) * -(-n // spec.nr)
        ic_ways = min(alone, micro_tiles)
    elif path == "direct" and batch == 1:
        ic_ways, jr_ways = choose_ways(m, n, spec.mr, spec.nr, alone)
    half = False
    if path == "packed":
        # tuned for products that keep all the threads they may use busy, and are not a batch's items
        tunable = batch_ways == 1 and m > spec.mr and alone == threads
        half = a_rows and reads_a_as_it_lies(machine, dtype, n)
        if half:
            reasons.append("path: A's rows are contiguous, and so read as they lie; packing them gains nothing here")
        chosen = choose_blocking(machine, spec, m, n, k, ic_ways, half=half)
        if ic_ways > 1:
            chosen = tiles_for(spec, chosen, m, n, ic_ways)
        if tunable:
            chosen = tuned_blocking(tuning, machine, spec, chosen, m, n, threads, half=half)
        if blocking is not None:
            mc, nc, kc = blocking  # larger than the problem would only take memory
            mc, nc, kc = min(mc, -(-m // spec.mr) * spec.mr), min(nc, -(-n // spec.nr) * spec.nr), min(kc, k)
            sizes = footprints(machine, spec, mc, nc, kc, ic_ways)
            chosen = Blocking(mc=mc, nc=nc, kc=kc, footprints=sizes, reasons=("blocking: as asked for",))
            if ic_ways > 1:
                chosen = pack_together(spec, chosen, n)
    else:
        kc = blocking[2] if blocking is not None else kc_for(dtype, k)
        nc, why_nc = _waiting_columns(machine, spec, path, m, n, jr_ways)
        reasons += why_nc
        chosen = Blocking(mc=m, nc=nc, kc=kc, footprints=(), reasons=())
    steps = {"sweep": SWEEP_STEPS, "stream": few_of(machine, dtype)[-1], "strips": strip_steps(m)}
    return replace(
        plan, path=path, kernel=spec, blocking=chosen, ic_ways=ic_ways, jr_ways=jr_ways, batch_ways=batch_ways,
        access="copied" if way.copied else "columns" if access == "columns" else "rows", rows_first=way.rows_first,
        half=half, step=steps.get(path, 0),
        reasons=tuple(reasons),
    )  # fmt: skip


def _waiting_columns(
    machine: Machine, spec: KernelSpec, path: str, m: int, n: int, ways: int
) -> tuple[int, tuple[str, ...]]:
    """Return how many columns pass at once where B passes by, and why: their sums take a share of a cache."""
    if path not in PASSING:
        return n, ()
    cache, share, told = {
        "sweep": (machine.l2, 2, "half"), "stream": (machine.l1, 2, "half"), "strips": (machine.l2, 4, "a quarter"),
    }[path]  # fmt: skip
    width = spec.lanes if path == "sweep" else spec.nr
    column_bytes = -(-m // spec.mr) * spec.sums * spec.real_bits // 8 // spec.nr
    if path == "sweep":
        column_bytes = m * spec.chains * spec.real_bits // 8
    most = max(1, cache.size_bytes // cache.cores // share // column_bytes // width)
    columns = math.ceil(math.ceil(n / width) / ways)  # in widths, of the widest share of a thread
    nc = math.ceil(columns / math.ceil(columns / most)) * width
    return nc, (f"nc: the waiting sums of {nc} columns take up to {told} of L{cache.level}",)
