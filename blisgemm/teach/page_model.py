"""What the page can show of one product: orders of access, block sizes to choose from, the steps of each setting.

Knows: which settings are worth a place on a slider. Does not know: how steps are recorded (``page_orders``), misses
counted (``cachesim``), a setting becomes columns (``page_steps``) or a page is written (``page``). Called by ``page``
and ``server``.
"""

from __future__ import annotations

import base64
import gzip
import itertools
import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..blocking import low_et_al
from ..errors import BlisgemmTypeError, BlisgemmValueError
from ..machine.facts import Machine
from ..ukernel.spec import SHORT_NAMES
from .elsewhere import machine_named, plan_on
from .page_orders import ORDERS, Order, Problem
from .page_steps import steps_of

__all__ = ["AXES", "SMALL", "Axis", "PageModel", "make_model"]

# What a slider says beside its name.
AXES = {"mr": "rows of a micro-tile", "nr": "columns of a micro-tile", "mc": "rows of a panel of A",
        "nc": "columns of a block of B", "kc": "terms in a block"}  # fmt: skip

# Up to this extent a product is shown on the teaching machine unless another is asked for, and micro-tiles can be
# chosen. Source: our choice; three matrices of 128 x 128 float32 are three times its L3.
SMALL = 128

# Up to this extent sliders have three sizes of a block, beyond it two, and the one to start with. Source: our choice;
# pages of 64 x 64 x 64 and of 96 x 96 x 96 take 15 s to make on two cores of a Zen 3, of which compiling takes 6.
TINY = 64

# Of one setting, and of all that a page holds. Source: our choice; 2**30 terms take 2 s on a Zen 3, 2**18 steps 200 MB;
# squares up to 1200 fit in a page, up to 2000 on a server.
_MOST_STEPS, _MOST_TERMS = 1 << 18, 1 << 33
_MOST_STEPS_OF_ALL, _MOST_TERMS_OF_ALL = 1 << 23, 1 << 36

_LARGEST_BLOCK = 1 << 30  # its sum with an extent has 32 bits

_MOST_STOPS = 64  # of a slider whose settings are made when they are asked for; source: our choice, as pixels allow


@dataclass(frozen=True)
class Axis:
    """One slider: the values that there are, and the place of the one to start with."""

    name: str
    values: tuple[int, ...]
    start: int


@dataclass(frozen=True)
class PageModel:
    """A product, its machine, and what can be chosen on the page."""

    problem: Problem
    axes: tuple[Axis, ...]

    @property
    def orders(self) -> tuple[Order, ...]:
        """The orders of access that are shown."""
        return tuple(order for order in ORDERS if order.suits(self.problem))

    def largest(self, name: str) -> int:
        """Return the largest value that a block may be asked for."""
        m, n, k = self.problem.extents
        registers = self.problem.machine.isa.registers * self.problem.kernel(1, self.axis("nr").values[0]).lanes
        return {"mr": registers, "nr": registers, "mc": 2 * m, "nc": 2 * n, "kc": k}[name]

    def axis(self, name: str) -> Axis:
        """Return the slider of a block."""
        return next(axis for axis in self.axes if axis.name == name)

    @property
    def start(self) -> dict[str, int]:
        """The blocks to start with."""
        return {axis.name: axis.values[axis.start] for axis in self.axes}

    def order(self, key: str) -> Order:
        """Return the order of access with this key.

        Raises:
            BlisgemmValueError: there is none.
        """
        for order in self.orders:
            if order.key == key:
                return order
        raise BlisgemmValueError(f"rung: expected one of {', '.join(x.key for x in self.orders)}; got {key!r}")

    def setting(self, order: Order, blocks: Mapping[str, int]) -> dict[str, Any]:
        """Return one setting as the page reads it: its key, its totals, and its steps, compressed.

        Raises:
            BlisgemmValueError: a block isn't at least 1, the tile doesn't fit into the registers, or there are too many
                steps or terms.
        """
        for name in order.axes:
            if blocks[name] < 1:
                raise BlisgemmValueError(f"{name}: expected at least 1; got {blocks[name]}")
        self._check(order.least_steps(self.problem, blocks), self.problem.terms, _MOST_STEPS, _MOST_TERMS)
        machine = self.problem.machine
        found = order.record(self.problem, blocks)
        steps = steps_of(found.steps, machine, found.kernel, found.counts, found.loops)
        return {
            "key": " ".join([order.key, *(str(blocks[name]) for name in order.axes)]),
            "steps_count": steps["length"],
            "totals": found.counts.misses.sum(axis=1).tolist(),
            "memory_bytes": found.counts.traffic_bytes[-1],
            "data": _compressed(steps),
        }

    def settings(self) -> list[dict[str, Any]]:
        """Return every setting that the sliders can choose."""
        asked: list[tuple[Order, dict[str, int]]] = []
        for order in self.orders:
            axes = [axis.values if axis.name in order.axes else (axis.values[axis.start],) for axis in self.axes]
            asked += [(order, dict(zip(self.start, values, strict=True))) for values in itertools.product(*axes)]
        least = sum(order.least_steps(self.problem, blocks) for order, blocks in asked)
        self._check(least, len(asked) * self.problem.terms, _MOST_STEPS_OF_ALL, _MOST_TERMS_OF_ALL)
        with ThreadPoolExecutor() as pool:  # the simulator holds no lock
            return list(pool.map(lambda each: self.setting(*each), asked))

    def _check(self, steps: int, terms: int, most_steps: int, most_terms: int) -> None:
        """Raise BlisgemmValueError for what would take too long."""
        what = " x ".join(map(str, self.problem.extents))
        if steps > most_steps:
            raise BlisgemmValueError(f"blocks: expected at most {most_steps:,} steps to show of {what}; got {steps:,}")
        if terms > most_terms:
            raise BlisgemmValueError(f"m, n, k: expected at most {most_terms:,} terms to count; {what} has {terms:,}")

    def to_dict(self, *, served: bool = False) -> dict[str, Any]:
        """Return what the page reads: with every setting, or where it is ``served`` with the first one only."""
        problem, machine = self.problem, self.problem.machine
        first = self.order("r6")
        return {
            "subtitle": _subtitle(problem),
            "source": f"Caches: {machine.name}, from {machine.source}."
            if machine.source
            else f"Caches: {machine.name}.",
            "machine": {"name": machine.name, "line_bytes": machine.caches[-1].line_bytes},
            "rungs": [{"key": x.key, "name": x.name, "idea": x.idea, "axes": x.axes} for x in self.orders],
            "axes": [{"name": x.name, "values": x.values, "start": x.start, "what": AXES[x.name]} for x in self.axes],
            "sliders_note": "mc and nc are rounded up to whole micro-panels.",
            "start": first.key,
            "served": served,
            "settings": [self.setting(first, self.start)] if served else self.settings(),
        }


def make_model(
    m: int, n: int, k: int, *, machine: Machine | str | None = None, dtype: Any = "float32",
    blocking: tuple[int, int, int] | None = None, mr: int | None = None, nr: int | None = None, every: bool = False,
) -> PageModel:  # fmt: skip
    """Return what the page can show of an m x k by k x n product.

    Args:
        m, n, k: extents, at least 1.
        machine: as ``trace`` takes it; ``None`` is the teaching machine for products up to ``SMALL``, else this one.
        dtype: float32, float64, complex64 or complex128.
        blocking: (mc, nc, kc) to start with. mr, nr: the micro-tile, in place of some to choose from.
        every: whether sliders have every size, for a server, in place of a few.

    Raises:
        BlisgemmTypeError, BlisgemmValueError: an argument is not as above, or the product too large to count.

    Example:
        >>> model = make_model(48, 48, 48)
        >>> model.problem.machine.name, model.start
        ('teaching', {'mr': 4, 'nr': 8, 'mc': 24, 'nc': 24, 'kc': 16})
    """
    for name, extent in (("m", m), ("n", n), ("k", k)):
        if isinstance(extent, bool) or not hasattr(extent, "__index__"):
            raise BlisgemmTypeError(f"{name}: expected an integer >= 1; got {extent!r}")
        if extent < 1:
            raise BlisgemmValueError(f"{name}: expected an integer >= 1, so that there are steps; got {extent}")
    small = max(m, n, k) <= SMALL
    there = machine_named("teaching" if machine is None and small else machine)
    problem = Problem(m, n, k, _dtype_name(dtype), there)
    own = plan_on(there, m, n, k, problem.dtype, path="packed", threads=1)
    assert own.kernel is not None and own.blocking is not None  # every dtype here has kernels
    tile = (own.kernel.mr if mr is None else mr, own.kernel.nr if nr is None else nr)
    lanes = problem.kernel(*tile).lanes  # raises where the tile does not fit
    model = own.blocking
    begin = {"mc": model.mc, "nc": model.nc, "kc": model.kc}
    if small:  # so that all five loops turn, and both micro-panels fit in L1
        paper = low_et_al(there, problem.kernel(*tile))
        begin = {"mc": _even(m, 2, tile[0]), "nc": _even(n, 2, tile[1]), "kc": min(paper.kc, _even(k, 2, 1))}
    if blocking is not None:
        try:
            mc, nc, kc = (int(x.__index__()) for x in blocking)
        except (TypeError, ValueError, AttributeError):
            raise BlisgemmTypeError(f"blocking: expected three integers (mc, nc, kc); got {blocking!r}") from None
        begin = {"mc": mc, "nc": nc, "kc": kc}
    for name, size in begin.items():
        if not 1 <= size <= _LARGEST_BLOCK:
            raise BlisgemmValueError(f"blocking: expected {name} of 1 to {_LARGEST_BLOCK}; got {size}")
    taller = {x for x in (range(1, 2 * there.isa.registers) if every else (2, 4, 6)) if _fits(problem, x, tile[1])}
    wider = {
        x * lanes for x in (range(1, there.isa.registers) if every else (1, 2)) if _fits(problem, tile[0], x * lanes)
    }
    if not every:
        wider = {x for x in wider if all(_fits(problem, y, x) for y in taller)}
    chosen = {
        "mr": ({tile[0]} if mr is not None or not (small or every) else taller | {tile[0]}, tile[0]),
        "nr": ({tile[1]} if nr is not None or not (small or every) else wider | {tile[1]}, tile[1]),
    }
    for name, extent, step in (("mc", m, tile[0]), ("nc", n, tile[1]), ("kc", k, 1)):
        whole = extent if small else begin[name]
        values = {_even(whole, part, step) for part in ((1, 2, 4) if max(m, n, k) <= TINY else (1, 2))}
        if every:
            values = set(range(step, extent + step, max(step, _even(extent, _MOST_STOPS, step))))
        chosen[name] = (values | {begin[name]}, begin[name])
    axes = []
    for name, (found, start) in chosen.items():
        values_found = tuple(sorted(found))
        axes.append(Axis(name, values_found, values_found.index(start)))
    return PageModel(problem, tuple(axes))


def _even(extent: int, parts: int, step: int) -> int:
    """Return the part of an extent in whole steps."""
    return _ceil(_ceil(extent, parts), step) * step


def _ceil(a: int, b: int) -> int:
    return -(-a // b)


def _fits(problem: Problem, mr: int, nr: int) -> bool:
    try:
        problem.kernel(mr, nr)
    except BlisgemmValueError:
        return False
    return True


def _dtype_name(dtype: Any) -> str:
    try:
        name = np.dtype(dtype).name
    except TypeError:
        raise BlisgemmTypeError(f"dtype: expected a NumPy dtype; got {dtype!r}") from None
    if name not in SHORT_NAMES:
        raise BlisgemmValueError(f"dtype: expected one of {', '.join(SHORT_NAMES)}; got {name}")
    return name


def _subtitle(problem: Problem) -> str:
    m, n, k, machine = problem.m, problem.n, problem.k, problem.machine
    caches = ", ".join(f"L{x.level} {_bytes(x.size_bytes)} in {x.ways} ways" for x in machine.caches)
    return (
        f"C ({m} × {n}) = A ({m} × {k}) · B ({k} × {n}) in {problem.dtype}, on the machine “{machine.name}”: {caches}."
    )


def _bytes(count: int) -> str:
    return f"{count / 2**20:.4g} MiB" if count >= 2**20 else f"{count / 2**10:.4g} KiB"


def _compressed(data: Any) -> str:
    """Return JSON, compressed and as letters; the same bytes whenever it is made."""
    plain = json.dumps(data, separators=(",", ":"), ensure_ascii=False).encode()
    return base64.b64encode(gzip.compress(plain, mtime=0)).decode()
