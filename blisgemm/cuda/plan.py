"""A GPU plan: which kernel will run for a product, how it is divided, and why; printed and executed alike.

Knows: how tiles and the division of work are chosen from extents, layouts and the card. Does not know: arrays, CUDA,
how anything is run. Called by ``run`` (per call, cached) and by people (``make_plan``, ``explain``).

The model: a multiprocessor with b blocks of threads computes at 1 - 2^-b of its full speed (b as many as fit), since
one block alone waits for its copies. ``tiles`` takes as long as the fullest multiprocessor; ``streamk`` divides slabs
evenly, but blocks that
go on from tile to tile are slower, and parts of tiles go through memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from ..errors import BlisgemmTypeError, BlisgemmValueError
from .catalog import FEW_ROWS, Entry, tiles_for
from .device import KNOWN_DEVICES, Device
from .tiles import SHORT, KernelSpec, Operand, Step

__all__ = ["Layout", "Plan", "computes_transposed", "make_plan", "plan_for"]

# A block that does parts of tiles should have so many steps of k at least, or the parts cost more than they spare.
# Source: one H200, 2026-11-30, float32: with 128 512 and 768 reach 0.95 and 0.82 of cuBLAS, with 256 1.04 and 0.88;
# with 384 and 512 1000 and 1024 lose 10 %.
_LEAST_STEPS = 256
_MOST_PARTS = 8  # of a tile of a few rows; our choice: adding one takes about as long as a read of memory
# Microseconds that parts of tiles cost: written, counted and added up, and what a launch takes in any case.
_PARTS_US, _LAUNCH_US = 5.0, 2.0
_CLOCK_GHZ = 1.7  # where nobody says; it scales both sides


@dataclass(frozen=True)
class Layout:
    """How an operand lies: ``k`` or ``r`` (see ``tiles``), elements that may be copied at once; ``packed``: it is
    copied to layout k first, since neither axis has unit stride."""

    order: str
    vector: int
    packed: bool = False


@dataclass(frozen=True)
class Plan:
    """How ``m x k`` times ``k x n`` will be computed on a card.

    Attributes:
        m, n, k, batch, dtype: of the product as it is computed (``swapped``: C' = B' A', since C lies by columns).
        spec: the kernel. blocks: of threads, over C; whole: of ``streamk``, tiles that are not divided.
        parts_bytes: memory for parts of tiles; packed_bytes: for copies of A and B.
        reasons: why, in words.
    """

    m: int
    n: int
    k: int
    batch: int
    dtype: str
    device: Device
    spec: KernelSpec
    tiles_m: int
    tiles_n: int
    blocks: int
    whole: int
    pack_a: bool = False
    pack_b: bool = False
    swapped: bool = False
    reasons: tuple[str, ...] = ()

    @property
    def parts_bytes(self) -> int:
        divided = self.spec.schedule == "streamk" and self.spec.reduction == "ordered"
        return 2 * self.blocks * self.batch * self.spec.sum_bytes if divided else 0

    @property
    def packed_bytes(self) -> int:
        rows = self.m * self.pack_a + self.n * self.pack_b
        return rows * self.k * self.spec.itemsize * self.batch

    def __str__(self) -> str:
        """The plan in words and numbers, one fact a line."""
        spec, tile = self.spec, self.spec.tile
        times = f"{self.batch} times " if self.batch != 1 else ""
        engine = "tensor cores of float64" if spec.dmma else "fmas"
        slabs = -(-self.k // tile.bk)
        lines = [
            f"{times}({self.m} x {self.k}) * ({self.k} x {self.n}), {self.dtype}, on {self.device.name}",
            f"kernel    {spec.name}",
            f"block     {tile.bm} x {tile.bn} of C by {tile.bk} of k, {tile.threads} threads, "
            f"{spec.shared_bytes / 1024:g} KiB of shared memory in {tile.stages} stages",
            f"warp      {tile.wm} x {tile.wn}, thread {tile.tm} x {tile.tn}, by {engine}",
        ]
        if spec.streams:
            lines[2:] = [
                f"block     {tile.tm} x {tile.bn} of C by {tile.bk} of k, {tile.threads} threads",
                f"thread    {tile.tm} x {tile.tn} of C, elements straight from memory "
                + ("along k, the lanes of a warp together" if tile.engine == "dots" else "along B's rows"),
            ]
        lines += [
            f"grid      {self.tiles_m} x {self.tiles_n} tiles of {slabs} slabs, "
            f"{self.blocks * self.batch} blocks of threads"
            + (f", {self.whole} tiles whole and the others divided" if spec.schedule == "streamk" else ""),
            f"memory    {self.parts_bytes / 1024:,.0f} KiB for parts, {self.packed_bytes / 1024:,.0f} KiB for copies",
        ]
        if self.swapped:
            lines.insert(1, "layout    computed as C' = B' * A' (transposed), since C lies by columns or has few")
        lines += [f"because   {self.reasons[0]}"] * bool(self.reasons)
        return "\n".join(lines + [f"          {reason}" for reason in self.reasons[1:]])


@lru_cache(maxsize=4096)
def plan_for(
    device: Device, m: int, n: int, k: int, dtype: str, a: Layout, b: Layout, c_vector: int, *, batch: int = 1,
    reads_c: bool = False, out: str = "", conj_a: bool = False, conj_b: bool = False, swapped: bool = False,
    epilogue: tuple[Step, ...] = (), atomic: bool = False,
) -> Plan:  # fmt: skip
    """Return the plan for checked arguments; cached. c_vector: elements of C that lie adjacent and aligned."""
    reasons = [
        f"{name}: neither axis has unit stride, so it is copied first" for name, x in (("A", a), ("B", b)) if x.packed
    ]
    best: tuple[float, Entry, str, int, int, str] | None = None
    specs: dict[Entry, KernelSpec] = {}
    for entry in tiles_for(dtype, device.capability):
        spec = _spec_for(entry, dtype, a, b, m, n, k, device)
        if spec is None or spec.shared_bytes > device.shared_bytes_per_block:
            continue
        specs[entry] = spec
        for found in _schedules(device, entry, spec, m, n, k, batch):
            if best is None or found[0] < best[0]:
                best = found
    if best is None:
        raise BlisgemmValueError(f"device: {device.name} has too little shared memory for any kernel of {dtype}")
    _, entry, schedule, blocks, whole, why = best
    tile, spec = entry.tile, specs[entry]
    vector = min(c_vector, {"simt": spec.group_elements, "rows": spec.b.vector, "dots": 1}.get(tile.engine, 2))
    if tile.engine == "simt" and spec.b.shared != "r":
        vector = 1
    edges = spec.streams or bool(m % tile.bm or n % tile.bn or k % tile.bk)
    spec = spec.with_(
        c_vector=vector, edges=edges, reads_c=reads_c, schedule=schedule, out=out or dtype, conj_a=conj_a,
        conj_b=conj_b, swapped=swapped and bool(epilogue), epilogue=epilogue,
        reduction="atomic" if atomic and schedule == "streamk" else "ordered",
        tile=replace(tile, blocks=_bound(device, spec, entry, schedule)),
    )  # fmt: skip
    reasons.append(why)
    if spec.reduction == "atomic":
        reasons.append(
            "reduction: parts of tiles are added to C as they come, as asked for: bits may differ between runs"
        )
    if spec.streams:
        reasons.append(
            f"{m} of {FEW_ROWS} rows at most: B goes straight from memory to registers, which bounds the time"
        )
    elif edges:
        reasons.append(f"{m} x {n} x {k} ends inside tiles: lanes beyond the end copy zeros and store nothing")
    tiles_m, tiles_n = -(-m // tile.bm), -(-n // tile.bn)
    return Plan(
        m,
        n,
        k,
        batch,
        dtype,
        device,
        spec,
        tiles_m,
        tiles_n,
        blocks,
        whole,
        a.packed,
        b.packed,
        swapped,
        tuple(reasons),
    )


def _bound(device: Device, spec: KernelSpec, entry: Entry, schedule: str) -> int:
    """Return how many blocks of threads shall fit on a multiprocessor, which bounds a thread's registers.

    No more than shared memory allows. From compute capability 10.0 on the compiler needs more than 128 registers for
    ``streamk`` in float32, or it spills (nvJitLink 13.5).
    """
    by_shared = device.shared_bytes_per_multiprocessor // (spec.shared_bytes + 1024)
    most = spec.tile.blocks
    if schedule == "streamk":
        most = entry.divided_blocks or (3 if device.capability >= (10, 0) else most)
    return max(1, min(spec.tile.blocks, by_shared, most))


def computes_transposed(m: int, n: int, *, by_columns: bool) -> bool:
    """Return whether C' = B' A' is computed: where C lies by columns, or has few columns; few rows need no exchange."""
    return n <= FEW_ROWS < m or (by_columns and not m <= FEW_ROWS)


def _spec_for(
    entry: Entry, dtype: str, a: Layout, b: Layout, m: int, n: int, k: int, device: Device
) -> KernelSpec | None:
    """Return the kernel of a tile for these layouts; ``None`` if it is not for them."""
    copies = "async" if device.asynchronous else "plain"
    streams = entry.tile.engine in ("rows", "dots")
    if streams != (m <= FEW_ROWS):
        return None
    if streams:
        if m > entry.tile.tm or (m <= entry.tile.tm // 2) or (b.order == "k") != (entry.tile.engine == "dots"):
            return None
        adjacent, vector = (k if b.order == "k" else n), b.vector
        while adjacent % vector:
            vector //= 2
        return KernelSpec(dtype, entry.tile, Operand(a.order, 1), Operand(b.order, vector), copies=copies)
    operands = []
    for layout in (a, b):
        # fmas read rows of shared memory; elements along p are turned on the way, or their reads take many registers
        turned = layout.order == "k" and entry.tile.engine == "simt" and dtype == "float32"
        held = entry.held and layout.vector == 4 and k % 4 == 0
        vector = 1 if turned and not held else layout.vector
        operands.append(Operand(layout.order, vector, turned))
    try:
        return KernelSpec(dtype, entry.tile, operands[0], operands[1], copies=copies)
    except BlisgemmValueError:
        return None


def _speed(blocks: int, fits: int) -> float:
    """Return the share of its full speed that a multiprocessor reaches with so many blocks, of those that fit."""
    return float((1 - 0.5**blocks) / (1 - 0.5**fits))


def _copy_speed(spec: KernelSpec, entry: Entry) -> float:
    """Return the share of a kernel's speed that the way of its copies leaves it."""
    a, b = spec.a, spec.b
    speed = 1.0
    if spec.streams:
        return speed
    if a.turned or b.turned:
        speed = entry.turned[2 if a.turned and b.turned else 0 if a.turned else 1]
    narrow = [x.vector * spec.itemsize < 16 and not (x.turned and not entry.held) for x in (a, b)]
    if any(narrow):
        speed = entry.narrow * (0.93 if a.turned and b.turned else 1.0)
    if a.shared == b.shared == "k" and spec.tile.bk * spec.itemsize < 128:
        speed *= 0.75  # both from rows of 64 bytes: float64 n = 4096 with B transposed 35 TFLOP/s, without 46
    return speed


def _schedules(
    device: Device, entry: Entry, spec: KernelSpec, m: int, n: int, k: int, batch: int
) -> list[tuple[float, Entry, str, int, int, str]]:
    """Return the ways to divide the work: (microseconds by the model, tile, schedule, blocks, whole tiles, why)."""
    tile = entry.tile
    tiles = -(-m // tile.bm) * -(-n // tile.bn)
    slabs = -(-k // tile.bk)
    fits = device.blocks(tile.threads, entry.registers, spec.shared_bytes)
    if not fits:
        return []
    places = device.multiprocessors * fits
    rows = tile.tm if spec.streams else tile.bm
    work = rows * tile.bn * tile.bk * (4 if spec.complex else 1)  # real fmas in a slab
    clock = (device.clock_ghz or _CLOCK_GHZ) * 1e3
    speed = entry.speed * _copy_speed(spec, entry)
    slab_us = work / (device.fmas(spec.reals) * speed * clock)  # of one block with the multiprocessor's speed
    waves, rest = divmod(tiles * batch, places)
    last = -(-rest // device.multiprocessors)
    alone = waves * fits * slabs * slab_us + (last * slabs * slab_us / _speed(last, fits) if last else 0.0)
    why = f"{tiles * batch:,} tiles of {tile.bm} x {tile.bn} for {places} places: {waves} waves and {rest} more"
    found = [(alone + _LAUNCH_US, entry, "tiles", tiles, 0, why)]
    total = tiles * slabs
    bound = _bound(device, spec, entry, "streamk")
    if bound < spec.tile.blocks:
        fits = min(fits, bound)
        places = device.multiprocessors * fits
    if batch <= places and total > 1 and slabs > 1:
        of_item = places // batch  # each item of a batch has blocks of its own
        if spec.streams:  # their parts take long to add up beside the little that is computed
            of_item = min(of_item, tiles * _MOST_PARTS)
        blocks = max(1, min(of_item, total * tile.bk // _LEAST_STEPS))
        whole = max(0, tiles // of_item - 1) * of_item
        if whole:
            blocks = of_item
        share = -(-(total - whole * slabs) // blocks) + whole // blocks * slabs
        busy = -(-blocks * batch // device.multiprocessors)
        even = share * busy * slab_us / _speed(busy, fits) / entry.divided
        text = (
            f"{tiles:,} tiles of {tile.bm} x {tile.bn} would leave places empty: {slabs} slabs each are divided evenly"
        )
        found.append((even + _PARTS_US + _LAUNCH_US, entry, "streamk", blocks, whole, text))
    return found


def make_plan(
    m: int, n: int, k: int, dtype: Any = "float32", *, device: str | Device = "h200", trans_a: Any = False,
    trans_b: Any = False, batch: int = 1,
) -> Plan:  # fmt: skip
    """Return the plan for contiguous operands on a card by name, or by its facts; no GPU is needed.

    Args:
        m, n, k: extents, at least 1. dtype: float32, float64, complex64 or complex128.
        device: a name of ``KNOWN_DEVICES`` or a Device. trans_a, trans_b: whether A, B come transposed. batch: items.

    Raises:
        BlisgemmTypeError, BlisgemmValueError: an argument is not as above.

    Example:
        >>> print(make_plan(4096, 4096, 4096).spec.tile.name)
        simt_64x128x16_w32x64_t8x8_s3
    """
    import numpy as np

    m, n, k, batch = (_extent(name, x) for name, x in (("m", m), ("n", n), ("k", k), ("batch", batch)))
    try:
        word = np.dtype(dtype).name
    except TypeError:
        raise BlisgemmTypeError(f"dtype: expected a NumPy dtype; got {dtype!r}") from None
    if word not in SHORT:
        raise BlisgemmTypeError(f"dtype: expected one of {', '.join(SHORT)}; got {word}")
    for name, value in (("trans_a", trans_a), ("trans_b", trans_b)):
        if type(value) not in (bool, str) or value not in (False, True, "N", "T", "C", "R"):
            raise BlisgemmValueError(f"{name}: expected False, True, 'N', 'T', 'C' or 'R'; got {value!r}")
    if isinstance(device, str):
        found = KNOWN_DEVICES.get(device.lower().replace(" ", ""))
        if found is None:
            raise BlisgemmValueError(f"device: expected one of {', '.join(KNOWN_DEVICES)}; got {device!r}")
        device = found
    if not isinstance(device, Device):
        raise BlisgemmTypeError(f"device: expected a name or a Device; got {device!r}")
    size = {"float32": 4, "float64": 8, "complex64": 8, "complex128": 16}[word]

    def vector(adjacent: int) -> int:
        return next(v for v in (16 // size, 2, 1) if v <= max(1, 16 // size) and adjacent % v == 0)

    a = Layout("r", vector(m)) if trans_a in (True, "T", "C") else Layout("k", vector(k))
    b = Layout("k", vector(k)) if trans_b in (True, "T", "C") else Layout("r", vector(n))
    if computes_transposed(m, n, by_columns=False):
        return plan_for(device, n, m, k, word, b, a, vector(m) if n == 1 else 1, batch=batch, swapped=True)
    return plan_for(device, m, n, k, word, a, b, vector(n), batch=batch)


def _extent(name: str, value: Any) -> int:
    try:
        if isinstance(value, bool):
            raise TypeError
        extent = int(value.__index__())
    except (AttributeError, TypeError):
        raise BlisgemmTypeError(f"{name}: expected an integer >= 1; got {value!r}") from None
    if not 1 <= extent < 2**31:
        raise BlisgemmValueError(f"{name}: expected an integer from 1 to 2**31 - 1; got {value}")
    return extent
