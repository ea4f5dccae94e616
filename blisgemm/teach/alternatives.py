"""What a plan did not choose, what it would cost by the model, and the rule that speaks against it.

Knows: which neighbours of a plan are worth a look: other kernels, other paths, half and twice nc and mc, the answer of
Low et al. Does not know: any rule of its own; every alternative is made by the functions that choose (``plan``,
``ways``, ``blocking``), and its cost by ``traffic`` and ``roofline``. Called by ``explain``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from ..blocking import A_SHARE, B_SHARE, even_columns, even_rows, footprints, kc_for, low_et_al, pack_together
from ..errors import BlisgemmValueError
from ..limits import STRIP_ROWS, TILE_GAIN
from ..plan import PASSING, Plan
from ..ukernel import catalog
from ..ukernel.spec import KernelSpec
from ..ways import few_of
from .figures import share_text
from .rates import Rates
from .roofline import bounds_of, ruling
from .traffic import traffic_of

__all__ = ["LOW", "Alternative", "alternatives_to", "loads_per_k"]

LOW = "Low et al."
_PATHS = ("direct", *PASSING, "packed")


@dataclass(frozen=True)
class Alternative:
    """One thing that the model rejected.

    Attributes:
        kind: ``path``, ``kernel``, ``nc``, ``mc`` or ``Low et al.``. name: the value that was not taken.
        why: what speaks against it.
        levels: (level, bytes) expected; empty where the product cannot go that way.
        threads: that would work on it.
        seconds, bound: of the limit that rules; serial: of all limits, one after another. ``None`` without rates.
    """

    kind: str
    name: str
    why: str
    levels: tuple[tuple[str, int], ...] = ()
    threads: int = 1
    seconds: float | None = None
    bound: str | None = None
    serial: float | None = None


Maker = Callable[..., Plan]


def loads_per_k(spec: KernelSpec) -> int:
    """Return how many loads one k step of a kernel takes: each element of A's column, each vector of B's row.

    Example:
        >>> loads_per_k(catalog.by_name("f32_6x16_avx2"))
        8
    """
    return spec.planes * (spec.mr + spec.row_vectors)


def alternatives_to(plan: Plan, make: Maker, rates: Rates | None) -> tuple[Alternative, ...]:
    """Return the alternatives to a plan.

    Args:
        make: returns the plan of the same product on the same machine with a path or kernel asked for.
        rates: of the machine, if known.
    """
    if plan.kernel is None or plan.blocking is None:
        return ()
    found = []
    for kind, name, candidate, why in _candidates(plan, plan.kernel, make):
        if candidate is None:
            found.append(Alternative(kind, name, why))
            continue
        traffic, threads = traffic_of(candidate), candidate.threads
        other = Alternative(kind, name, why, tuple((each.level, each.bytes) for each in traffic.levels), threads)
        if rates is not None:
            bounds = bounds_of(traffic, rates, plan.dtype, threads)
            worst = ruling(bounds)
            serial = sum(bound.seconds for bound in bounds)
            other = replace(other, seconds=worst.seconds, bound=worst.name, serial=serial)
        found.append(other)
    return tuple(found)


Found = tuple[str, str, "Plan | None", str]


def _candidates(plan: Plan, kernel: KernelSpec, make: Maker) -> Iterator[Found]:
    yield from _paths(plan, make)
    yield from _kernels(plan, kernel, make)
    if plan.path == "packed":
        yield from _columns(plan, kernel)
        yield from _rows(plan, kernel)
        yield _low(plan, kernel)


def _paths(plan: Plan, make: Maker) -> Iterator[Found]:
    rule = plan.reasons[0].removeprefix("path: ") if plan.reasons else ""
    m = plan.n if plan.swapped else plan.m
    sweep_rows, stream_rows, _, _ = few_of(plan.machine, plan.dtype)
    strip_rows = STRIP_ROWS.get((plan.machine.isa.name, plan.dtype), 0)
    rows = {"sweep": sweep_rows, "stream": stream_rows, "strips": strip_rows}
    for path in _PATHS:
        if path == plan.path:
            continue
        why = f"it is for at most {rows[path]} rows, here are {m}" if m > rows.get(path, m) else rule
        if rows.get(path, 1) == 0:
            why = f"on {plan.machine.isa.name} it was not measured to win with any number of rows"
        try:
            yield "path", path, make(path=path), why
        except BlisgemmValueError as error:
            yield "path", path, None, f"not possible: {error}"


def _kernels(plan: Plan, kernel: KernelSpec, make: Maker) -> Iterator[Found]:
    """Every other kernel of the dtype and vector set, on the same path."""
    m, n = (plan.n, plan.m) if plan.swapped else (plan.m, plan.n)
    roles = _roles(kernel)
    for spec in catalog.kernels(kernel.acc_dtype, kernel.isa.name):
        if spec == kernel:
            continue
        account = f"{loads_per_k(spec)} loads for {spec.fmas_per_k} fmas, {kernel.name} {loads_per_k(kernel)}"
        account += f" for {kernel.fmas_per_k}"
        common = [role for role in _roles(spec) if role in roles]
        if common:
            first = catalog.preferred(spec.acc_dtype, spec.isa, common[0])
            why = f"{spec.name} computes {_padded(spec, m, n):,} elements with its padding, {kernel.name} "
            why += f"{_padded(kernel, m, n):,}; the first choice, {first.name}, yields only to one that computes "
            why += f"{share_text(1 - 1 / TILE_GAIN)} less"
        else:
            why = f"it is a {', '.join(_roles(spec))} kernel"
        try:
            candidate = make(path=plan.path, kernel=spec)
        except BlisgemmValueError as error:
            yield "kernel", spec.name, None, f"not possible: {error}"
            continue
        yield "kernel", spec.name, candidate, f"{why}; {account}"


def _roles(spec: KernelSpec) -> tuple[str, ...]:
    return tuple(role for role in catalog.ROLES if spec in catalog.candidates(spec.acc_dtype, spec.isa, role))


def _padded(spec: KernelSpec, m: int, n: int) -> int:
    return -(-m // spec.mr) * spec.mr * -(-n // spec.nr) * spec.nr


def _with(plan: Plan, kernel: KernelSpec, n: int, **sizes: Any) -> Plan:
    """Return the plan with other blocks, their footprints and what is packed together computed anew."""
    assert plan.blocking is not None
    changed = replace(plan.blocking, reasons=(), **sizes)
    threads = plan.ic_ways
    if threads == 1:
        changed = replace(changed, mt=changed.mc, nb=changed.nc)
    places = footprints(plan.machine, kernel, changed.mc, changed.nc, changed.kc, threads)
    changed = replace(changed, footprints=places)
    return replace(plan, blocking=pack_together(kernel, changed, n) if threads > 1 else changed)


def _reason(plan: Plan, what: str) -> str:
    assert plan.blocking is not None
    return next((text for text in plan.blocking.reasons if text.startswith(what)), "")


def _share(plan: Plan, what: str) -> str:
    assert plan.blocking is not None
    place = next(each for each in plan.blocking.footprints if each.what == what)
    where = ("registers", "L1", "L2", "L3", "memory")[place.level]
    return f"{share_text(place.share)} of {where}" if place.cache_bytes else where


def _columns(plan: Plan, kernel: KernelSpec) -> Iterator[Found]:
    """Twice and half nc."""
    blocking = plan.blocking
    assert blocking is not None
    n = plan.m if plan.swapped else plan.n
    limit = share_text(B_SHARE[0] / B_SHARE[1])
    for nc in _neighbours(blocking.nc, even_columns(kernel, n, 2 * blocking.nc), blocking.nc // 2, kernel.nr):
        candidate = _with(plan, kernel, n, nc=nc)
        takes = f"the block of B would take {_share(candidate, 'block of B')}"
        if nc > blocking.nc:
            why = f"{takes}, at most {limit} are for it; {_reason(plan, 'nc')}"
        else:
            passes = f"A would pass {-(-n // nc)} times in place of {-(-n // blocking.nc)}"
            why = f"{takes}, but {passes}"
        yield "nc", f"nc = {nc}", candidate, why


def _rows(plan: Plan, kernel: KernelSpec) -> Iterator[Found]:
    """Twice and half mc."""
    blocking = plan.blocking
    assert blocking is not None
    if plan.half:  # A is read as it lies: all its rows are one panel
        return
    m, n = (plan.n, plan.m) if plan.swapped else (plan.m, plan.n)
    limit = share_text(A_SHARE[0] / A_SHARE[1])
    for mc in _neighbours(blocking.mc, even_rows(kernel, m, 2 * blocking.mc), blocking.mc // 2, kernel.mr):
        candidate = _with(plan, kernel, n, mc=mc, mt=even_rows(kernel, min(mc, m), min(mc, blocking.mt)))
        takes = f"the panel of A would take {_share(candidate, 'panel of A')}"
        if mc > blocking.mc:
            why = f"{takes}, at most {limit} are for it; {_reason(plan, 'mc')}"
        else:
            why = f"{takes}, but B would be packed {-(-m // mc)} times in place of {-(-m // blocking.mc)}"
        yield "mc", f"mc = {mc}", candidate, why


def _neighbours(chosen: int, more: int, less: int, step: int) -> tuple[int, ...]:
    """Return the larger and the smaller neighbour, whole micro-panels, where there are any."""
    less = less // step * step
    return tuple(size for size in (more, less) if size >= step and size != chosen)


def _low(plan: Plan, kernel: KernelSpec) -> Found:
    """The analytical model's answer, rounded to whole micro-panels and to the product."""
    blocking = plan.blocking
    assert blocking is not None
    m, n = (plan.n, plan.m) if plan.swapped else (plan.m, plan.n)
    answer = low_et_al(plan.machine, kernel)
    mc = even_rows(kernel, m, answer.mc) if answer.mc is not None and not plan.half else blocking.mc
    nc, kc = even_columns(kernel, n, answer.nc), min(answer.kc, max(plan.k, 1))
    candidate = _with(plan, kernel, n, mc=mc, nc=nc, kc=kc, mt=even_rows(kernel, min(mc, m), min(mc, blocking.mt)))
    why = answer.text
    if kc != kc_for(plan.dtype, plan.k):
        why += f". Its kc is not the library's {kc_for(plan.dtype, plan.k)}, so the last bits would be others"
    return LOW, f"mc {mc} nc {nc} kc {kc}", candidate, why
