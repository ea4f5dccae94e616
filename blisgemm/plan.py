"""A plan: what will run for a product and why, as a value that is printed and executed alike.

Knows: how kernel, path, blocking and ways are chosen from facts. Does not know: arrays, or how anything is
run. Called by ``api`` and ``driver`` (per call, cached) and by people (``make_plan``, ``explain``).
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from .blocking import KC_MAX, Blocking, choose_blocking, footprints, kc_for, low_et_al
from .errors import BlisgemmTypeError, BlisgemmValueError, OverrideError
from .machine import current, host_isas
from .machine.facts import Machine
from .parallel import check_threads, choose_ways, get_num_threads, useful_threads
from .ukernel import catalog
from .ukernel.spec import SHORT_NAMES, KernelSpec
from .workspace import buffer_bytes

if TYPE_CHECKING:  # loaded by the first plan, not by the import of the package, which never needs it
    from .tuning import Tuning

__all__ = [
    "DIRECT_TERMS",
    "PATHS",
    "Plan",
    "choose_kernel",
    "fast_lane_kc",
    "fast_lane_terms",
    "make_plan",
    "model_limits",
    "numpy_plan",
    "plan_for",
    "wants_swap",
]

PATHS = ("empty", "scale", "direct", "packed", "numpy")

# Largest m * n * k that the fast lane does at once, on the calling thread and holding the GIL: 36 us in f32 to 340 us
# in c128 (AVX-512, Zen 4). OpenBLAS's small-matrix kernels go to 100^3
# (kernel/x86_64/sgemm_small_kernel_permit_skylakex.c); here direct won up to 128^3 on AVX-512, and on AVX2 in f64
# (bench/small.py, Zen 4, 2026-11-30).
DIRECT_TERMS = 128**3

# Share of L2 that B may take on the direct path, by machine and vector set; a machine without a row packs. Zen 4 with
# AVX-512 (8 rows at once, 48 or 24 columns): direct was 3 to 15 % faster than packed while B fit (f32 n <= 512, f64 n
# <= 360); AVX2 (4 rows: B is read twice as often, and wider tiles run out of address registers): only up to n = 160
# (2026-11-30). Emerald Rapids has no row: direct lost up to half there (f64, n = 512: 0.51 times NumPy, packed 0.9).
DIRECT_SHARE_OF_L2 = {("zen4", "avx512"): 1.0, ("zen4", "avx2"): 1 / 8}


@dataclass(frozen=True)
class Plan:
    """How ``m x k`` times ``k x n`` will be computed.

    Attributes:
        m, n, k: extents as the caller gave them; dtype: element type of the sums and of C.
        path: ``empty`` (nothing to do), ``scale`` (A and B not read), ``direct`` (no packing), ``packed``
            (the five loops) or ``numpy`` (NumPy itself does it).
        kernel, blocking: what the path uses; ``None`` where it has none.
        ic_ways, jr_ways: threads over rows and over columns of each panel.
        batch: how many products of this shape; batch_ways: threads over them.
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
    reasons: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.path not in PATHS:
            raise BlisgemmValueError(f"path: expected one of {', '.join(PATHS)}; got {self.path!r}")
        for name in ("ic_ways", "jr_ways", "batch_ways"):
            if getattr(self, name) < 1:
                raise BlisgemmValueError(f"{name}: expected at least 1; got {getattr(self, name)}")
        if self.kernel is not None and self.blocking is not None and self.path == "packed":
            _check_blocking((self.blocking.mc, self.blocking.nc, self.blocking.kc), self.kernel)

    @property
    def threads(self) -> int:
        """Threads that work on it."""
        return self.ic_ways * self.jr_ways * self.batch_ways

    @property
    def bits(self) -> str:
        """What is promised about rounding."""
        if self.path in ("direct", "packed") and self.kernel is not None:
            if not self.kernel.isa.fma:
                return f"own: {self.kernel.isa.name} has no fused multiply-add, so bits differ from other machines"
            if self.blocking is not None and self.blocking.kc != kc_for(self.dtype, self.k):
                return f"own: kc {self.blocking.kc} was forced; the library's is {kc_for(self.dtype, self.k)}"
            return "the same on every machine, path, kernel, layout and number of threads"
        return "NumPy's own" if self.path == "numpy" else "exact"

    @cached_property
    def packed_shapes(self) -> tuple[tuple[int, int, int], tuple[int, int]]:
        """Shapes, in reals, of the packed blocks of A (one per thread) and of a packed panel of B."""
        kernel, blocking = self.kernel, self.blocking
        if self.path != "packed" or kernel is None or blocking is None:
            return (0, 0, 0), (0, 0)
        kc = min(blocking.kc, self.k) * kernel.planes
        return (
            (self.threads, blocking.mc // kernel.mr, kc * kernel.mr),
            (self.batch_ways * (blocking.nc // kernel.nr), kc * kernel.nr),
        )

    @property
    def workspace_bytes(self) -> int:
        """Bytes of packed buffers that the run borrows: a block of A per thread and the panel of B."""
        if self.kernel is None:
            return 0
        a_bytes, b_bytes = (math.prod(shape) * self.kernel.real_bits // 8 for shape in self.packed_shapes)
        return buffer_bytes(a_bytes, b_bytes)

    def __str__(self) -> str:
        """The plan in words and numbers, one fact a line."""
        times = f"{self.batch} times " if self.batch != 1 else ""
        lines = [
            f"{times}({self.m} x {self.k}) * ({self.k} x {self.n}), {self.dtype}, on {self.machine.name}",
            f"path      {self.path}" + (", computed as C' = B' * A' (transposed)" if self.swapped else ""),
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
                else f"blocking  kc {blk.kc}"
            )
            if self.path == "packed":
                lines += [f"  {footprint}" for footprint in blk.footprints]
        shared = f" x {self.batch_ways} over the batch" if self.batch_ways > 1 else ""
        lines.append(f"threads   {self.threads}: ic {self.ic_ways} x jr {self.jr_ways}{shared}")
        if self.path == "packed":
            lines.append(f"workspace {self.workspace_bytes / 1024:,.0f} KiB")
        lines.append(f"bits      {self.bits}")
        reasons = self.reasons + (self.blocking.reasons if self.blocking and self.path == "packed" else ())
        if self.path == "packed" and self.kernel is not None:
            reasons = (*reasons, low_et_al(self.machine, self.kernel).text)
        lines += [f"because   {reasons[0]}"] * bool(reasons) + [f"          {reason}" for reason in reasons[1:]]
        return "\n".join(lines)


@cache
def _forced_kernel() -> KernelSpec | None:
    """Return the row that ``BLISGEMM_KERNEL`` names; it holds for the row's own dtype."""
    name = os.environ.get("BLISGEMM_KERNEL")
    if not name:
        return None
    try:
        return _runnable(catalog.by_name(name))
    except BlisgemmValueError as error:
        raise OverrideError(f"BLISGEMM_KERNEL: {str(error).removeprefix('kernel: ')}") from None


def _runnable(spec: KernelSpec) -> KernelSpec:
    here = [isa.name for isa in host_isas()]
    if spec.isa.name not in here:
        raise BlisgemmValueError(f"kernel: expected one that this machine can run ({', '.join(here)}); got {spec.name}")
    return spec


def choose_kernel(dtype: str, role: str) -> tuple[KernelSpec, str]:
    """Return the kernel for a dtype in a role of ``catalog.ROLES`` on this machine, and why."""
    forced = _forced_kernel()
    if forced is not None and forced.acc_dtype == dtype:
        return forced, f"kernel: BLISGEMM_KERNEL names {forced.name}"
    machine = current()
    spec = catalog.preferred(dtype, machine.isa, role)
    return spec, f"kernel: {spec.name} is the {role} kernel of {machine.isa.name}"


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
        blocking: (mc, nc, kc) in elements, in place of the model's; mc a multiple of mr, nc of nr. A kc other than
            the library's may change the last bits.
        path: ``direct`` or ``packed``, in place of the rule.
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
    if path not in (None, "direct", "packed"):
        raise BlisgemmValueError(f"path: expected 'direct', 'packed' or None; got {path!r}")
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
        _runnable(spec)
    if blocking is not None:
        blocking = _check_blocking(blocking, spec or choose_kernel(name, "packed")[0])
    limit = get_num_threads() if threads is None else check_threads(threads)
    swapped = wants_swap(m, n, unit_row=False, unit_column=True)
    # C-contiguous A transposed has rows only where they are one element long
    return plan_for(m, n, k, name, limit, not swapped or k == 1, swapped, spec, blocking, path)


def wants_swap(m: int, n: int, *, unit_row: bool, unit_column: bool) -> bool:
    """Whether to compute C' = B' A': C's transpose has the long unit-stride rows that a micro-tile wants.

    ``unit_row``, ``unit_column``: whether C's row and column stride are one element. A single column is
    always swapped, so that the lanes run over its rows.
    """
    if n == 1:
        return m > 1
    return m > 1 and unit_row and not unit_column


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
            f"blocking: expected (mc, nc, kc) with mc a multiple of mr = {kernel.mr}, nc of nr = {kernel.nr}, "
            f"kc >= 1; got {blocking!r}"
        )
    return mc, nc, kc


@lru_cache(maxsize=4096)
def plan_for(
    m: int, n: int, k: int, dtype: str, threads: int, b_has_rows: bool, swapped: bool = False,
    kernel: KernelSpec | None = None, blocking: tuple[int, int, int] | None = None, path: str | None = None,
    batch: int = 1, tuning: Tuning | None = None,
) -> Plan:  # fmt: skip
    """Return the plan for checked arguments; cached.

    Args:
        b_has_rows: whether the rows of B (of A transposed, if swapped) have unit column stride, which the direct
            path needs.
        swapped: see ``wants_swap``.
        batch: number of products of this shape.
        tuning: in place of what the user's tuning file says.
    """
    from .tuning import in_force, tuned_blocking, tuned_ways

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
    role = path or "packed"
    why, notes = "path: as asked for", [f"tuning file {tuning.source}: {tuning.ignored}"] * bool(tuning.ignored)
    if path is None:
        path, role, why, tuned = _choose_role(machine, m, n, k, dtype, b_has_rows, tuning, threads)
        notes += tuned
    if path == "direct" and not b_has_rows:
        rows = "columns of A (one column of C is computed transposed)" if swapped else "rows of B"
        raise BlisgemmValueError(f"path: expected 'packed', as 'direct' needs {rows} with unit stride; got 'direct'")
    spec, why_kernel = (kernel, "kernel: as asked for") if kernel else choose_kernel(dtype, role)
    useful = useful_threads(m * n * k * batch, threads)
    batch_ways = min(useful, batch) if batch > 1 and (path == "direct" or batch >= useful) else 1
    reasons = [why, *notes, why_kernel]
    if batch_ways > 1:
        reasons.append(f"threads: {batch_ways} over the {batch} items of the batch")
    ic_ways, jr_ways = 1, 1
    if (path == "packed" and batch_ways == 1) or (path == "direct" and batch == 1 and m * n * k > DIRECT_TERMS):
        ic_ways, jr_ways = choose_ways(m, n, spec.mr, spec.nr, useful_threads(m * n * k, threads))
    if path == "packed":
        # tuned for products that keep all the threads they may use busy, and are not a batch's items
        tunable = batch_ways == 1 and m > spec.mr and useful_threads(m * n * k, threads) == threads
        if tunable:
            (ic_ways, jr_ways), tuned = tuned_ways(tuning, spec, m, n, threads, (ic_ways, jr_ways))
            reasons += tuned
        chosen = choose_blocking(machine, spec, m, n, k, ic_ways, jr_ways)
        if tunable:
            chosen = tuned_blocking(tuning, machine, spec, chosen, m, n, threads, ic_ways, jr_ways)
        if m <= spec.mr:
            chosen = _stream_b(machine, spec, chosen, k)
        if blocking is not None:
            mc, nc, kc = blocking  # larger than the problem would only take memory
            mc, nc, kc = min(mc, -(-m // spec.mr) * spec.mr), min(nc, -(-n // spec.nr) * spec.nr), min(kc, k)
            sizes = footprints(machine, spec, mc, nc, kc, ic_ways * jr_ways)
            chosen = Blocking(mc=mc, nc=nc, kc=kc, footprints=sizes, reasons=("blocking: as asked for",))
    else:
        kc = blocking[2] if blocking is not None else kc_for(dtype, k)
        chosen = Blocking(mc=m, nc=n, kc=kc, footprints=(), reasons=())
    return replace(
        plan, path=path, kernel=spec, blocking=chosen, ic_ways=ic_ways, jr_ways=jr_ways, batch_ways=batch_ways,
        reasons=tuple(reasons),
    )  # fmt: skip


def _stream_b(machine: Machine, spec: KernelSpec, chosen: Blocking, k: int) -> Blocking:
    """Narrow the panel of B where only one micro-panel of A meets it: it is used once, so half of L2 holds it."""
    column_bytes = min(chosen.kc, k) * spec.itemsize
    nc = max(spec.nr, machine.l2.size_bytes // machine.l2.cores // 2 // column_bytes // spec.nr * spec.nr)
    if nc >= chosen.nc:
        return chosen
    reason = f"nc: {nc}, since one micro-panel of A uses the panel of B once: half of L2 holds it"
    return replace(chosen, nc=nc, reasons=(*chosen.reasons, reason))


def _choose_role(
    machine: Machine, m: int, n: int, k: int, dtype: str, b_has_rows: bool, tuning: Tuning, threads: int
) -> tuple[str, str, str, tuple[str, ...]]:
    """Return (path, the kernel's role, why, what of it is tuned)."""
    from .tuning import direct_limits

    terms, share = model_limits()
    model = _role_within(machine, m, n, k, dtype, b_has_rows, terms, share)
    kernels = tuple(choose_kernel(dtype, role)[0].name for role in ("direct", "wide"))
    terms, share, reasons = direct_limits(tuning, dtype, kernels, threads, terms, share)
    if not reasons:
        return *model, ()
    tuned = _role_within(machine, m, n, k, dtype, b_has_rows, terms, share)
    return *tuned, () if tuned[:2] == model[:2] else reasons


def model_limits() -> tuple[int, float]:
    """Return up to how many terms, and to what share of L2 for B, products go direct here unless it is tuned."""
    machine = current()
    return DIRECT_TERMS, DIRECT_SHARE_OF_L2.get((machine.name, machine.isa.name), 0.0)


def _role_within(
    machine: Machine, m: int, n: int, k: int, dtype: str, b_has_rows: bool, terms: int, share: float
) -> tuple[str, str, str]:
    """Return (path, the kernel's role, why) if products go direct up to so many terms, or with B in a share of L2."""
    small, wide, row = (choose_kernel(dtype, role)[0] for role in ("direct", "wide", "row"))
    if not b_has_rows:
        why = "path: B's columns are strided, so vectors of it must be packed"
        return "packed", "row" if m <= row.mr else "packed", why
    if m * n * k <= terms:
        return "direct", "direct", f"path: m n k = {m * n * k:,} <= {terms:,}, too little work to repay packing"
    if m <= max(small.mr, row.mr):
        why = f"path: {m} rows use each element of B once, so packing it would be a copy for nothing"
        return "direct", "row" if m <= row.mr else "wide", why
    if n <= small.nr:
        return (
            "direct",
            "direct",
            f"path: {n} columns use each element of A once, so packing it would be a copy for nothing",
        )
    b_bytes, l2_bytes = k * n * wide.itemsize, machine.l2.size_bytes // machine.l2.cores
    room = int(l2_bytes * share)
    if b_bytes <= room:
        why = (
            f"path: B's {b_bytes // 1024:,} KiB stay in L2 ({room // 1024:,} KiB used so), where packing gains nothing"
        )
        # padding columns to whole tiles may cost more than the 3 to 7 % that the wide tile gains (catalog)
        padded_small, padded_wide = (-(-n // spec.nr) * spec.nr for spec in (small, wide))
        return "direct", "wide" if padded_wide <= 1.04 * padded_small else "direct", why
    why = f"path: m n k = {m * n * k:,} > {terms:,}, enough work to repay packing"
    if room:
        why += f", and B's {b_bytes // 1024:,} KiB exceed the {room // 1024:,} KiB of L2 that it could use as it lies"
    return "packed", "packed", why


def fast_lane_kc(dtype: str) -> int:
    """Return the largest k that is one kc block."""
    return KC_MAX[dtype]


def fast_lane_terms(dtype: str) -> int:
    """Return the largest m * n * k that the fast lane does at once; a tuned limit may lower it, not raise it."""
    from .tuning import in_force, lane_terms

    return lane_terms(in_force(current()), dtype, DIRECT_TERMS)
