"""A plan explained: where its blocks lie, what they move, what that takes, and what else there was.

Knows: how the parts of an explanation are put together and read as text. Does not know: any rule or model (``plan``,
``traffic``, ``rates``, ``roofline``, ``alternatives``), or HTML (``html``). Called by ``python -m blisgemm explain``,
notebooks and people.

    >>> from blisgemm.teach.explain import explain
    >>> explained = explain(1000, 1000, 1000, machine="haswell", threads=1)
    >>> explained.ruling.name
    'compute'
    >>> [alternative.name for alternative in explained.alternatives if alternative.kind == "nc"]
    ['nc = 128', 'nc = 32']
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..blocking import Footprint, footprints
from ..machine.facts import Machine
from ..parallel import check_threads
from ..plan import Plan
from .alternatives import LOW, Alternative, alternatives_to, loads_per_k
from .elsewhere import machine_named, plan_on
from .figures import bar, bytes_text, rate_text, seconds_text, share_text, three, work_text
from .rates import Rates, data_sheet
from .roofline import Bound, bounds_of, ruling
from .traffic import Traffic, traffic_of

__all__ = ["MODEL", "Explanation", "explain", "places_of"]

_PLACES = ("registers", "L1", "L2", "L3", "memory")
_ALIKE = 0.05  # ratios of bytes nearer to 1 are not worth a reader's time

MODEL = (
    "Bytes: if all that one turn of a loop touches fits in a cache, the next turn finds it there, and the loop fetches "
    "each line once; if not, every turn fetches anew. A line that is written is fetched, and sent back later. Caches "
    "hold whatever fits, and nothing at first; beta = 0; other cores are idle.",
    "Times: each limit alone, the others taking nothing; the longest rules, if all overlap. If none overlap, their sum "
    "counts. Neither sees latency, the instructions of packing, or edges. Where an alternative seems faster than what "
    "runs, a measurement decided (the sources stand in blisgemm/limits.py and blisgemm/blocking.py).",
)


@dataclass(frozen=True)
class Explanation:
    """A plan with what follows from it.

    Attributes:
        plan: as ``make_plan`` returns it on the machine.
        places: what each block occupies, nearest to the fmas first.
        traffic: expected bytes at each level; ``None`` where NumPy multiplies.
        rates: how fast the machine is; ``None`` where nobody says.
        bounds: what each limit alone would take; empty without rates.
        alternatives: what was not chosen.
        notes: what could not be said, and why.
    """

    plan: Plan
    places: tuple[Footprint, ...]
    traffic: Traffic | None
    rates: Rates | None
    bounds: tuple[Bound, ...]
    alternatives: tuple[Alternative, ...]
    notes: tuple[str, ...] = ()

    @property
    def ruling(self) -> Bound | None:
        """The limit that takes longest."""
        return ruling(self.bounds) if self.bounds else None

    @property
    def serial(self) -> float | None:
        """Seconds if all limits took their time one after another: the other end of what may be expected."""
        return sum(bound.seconds for bound in self.bounds) if self.bounds else None

    @property
    def attainable(self) -> float | None:
        """Flops per second that the ruling limit allows."""
        worst = self.ruling
        return self.traffic.flops / worst.seconds if self.traffic and worst and worst.seconds else None

    def __str__(self) -> str:
        parts = [str(self.plan)]
        for title, lines in (
            ("where the blocks lie", _say_places(self)),
            ("expected traffic, each level with what is nearer to the fmas", _say_traffic(self)),
            ("expected time at each limit", _say_bounds(self)),
            ("not chosen", _say_alternatives(self)),
            ("the model", [*MODEL, *self.notes]),
        ):
            if lines:
                parts.append("\n".join([title, *(f"  {line}" for line in lines)]))
        return "\n\n".join(parts)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values for JSON. Units: bytes, seconds, flops and what the names say."""
        plan, machine, traffic = self.plan, self.plan.machine, self.traffic
        kernel, blocking, worst = plan.kernel, plan.blocking, self.ruling
        return {
            "product": {"m": plan.m, "n": plan.n, "k": plan.k, "dtype": plan.dtype, "batch": plan.batch},
            "machine": {
                "name": machine.name, "arch": machine.arch, "isa": machine.isa.name, "cores": machine.cores,
                "source": machine.source, "notes": list(machine.notes),
                "caches": [
                    {"level": c.level, "bytes": c.size_bytes, "ways": c.ways, "line_bytes": c.line_bytes,
                     "cores": c.cores}
                    for c in machine.caches
                ],
            },
            "plan": {
                "path": plan.path, "access": plan.access, "half": plan.half, "swapped": plan.swapped,
                "rows_first": plan.rows_first, "threads": plan.threads, "workspace_bytes": plan.workspace_bytes,
                "bits": plan.bits,
                "reasons": [*plan.reasons, *(blocking.reasons if blocking else ())],
                "kernel": None if kernel is None else {
                    "name": kernel.name, "mr": kernel.mr, "nr": kernel.nr, "registers": kernel.register_account,
                    "fmas_per_k": kernel.fmas_per_k, "loads_per_k": loads_per_k(kernel),
                },
                "blocking": None if blocking is None else {
                    "mc": blocking.mc, "nc": blocking.nc, "kc": blocking.kc, "mt": blocking.mt, "nb": blocking.nb,
                },
            },
            "places": [
                {"what": p.what, "level": _PLACES[p.level], "bytes": p.bytes, "cache_bytes": p.cache_bytes,
                 "share": p.share}
                for p in self.places
            ],
            "flops": traffic.flops if traffic else None,
            "traffic": [
                {"level": each.level, "bytes": each.bytes, "operands": dict(each.operands),
                 "flops_per_byte": traffic.flops / each.bytes if each.bytes else None}
                for each in traffic.levels
            ] if traffic else [],
            "rates": {"source": self.rates.source} if self.rates else None,
            "bounds": [
                {"name": b.name, "amount": b.amount, "per_second": b.rate, "seconds": b.seconds} for b in self.bounds
            ],
            "ruling": worst.name if worst else None,
            "attainable_flops_per_second": self.attainable,
            "serial_seconds": self.serial,
            "alternatives": [
                {"kind": a.kind, "name": a.name, "threads": a.threads, "traffic": dict(a.levels),
                 "seconds": a.seconds, "bound": a.bound, "serial_seconds": a.serial, "why": a.why}
                for a in self.alternatives
            ],
            "model": list(MODEL),
            "notes": list(self.notes),
        }  # fmt: skip

    def _repr_html_(self) -> str:
        """Return what a notebook shows: one element, styles inside, nothing fetched."""
        from .html import fragment

        return fragment(self)


def explain(
    m: int, n: int, k: int, dtype: Any = "float32", *, machine: Machine | str | None = None,
    threads: int | None = None, rates: Rates | None = None,
) -> Explanation:  # fmt: skip
    """Explain an m x k by k x n product of C-contiguous arrays.

    Args:
        m, n, k, dtype: as ``make_plan`` takes them.
        machine: a Machine, a name of ``machine.known`` or ``"teaching"``; ``None``: this one.
        threads: at most so many; ``None``: all that may be used here, or every core of the other machine.
        rates: measured ones (``bench.rates``), in place of the data sheet's.

    Raises:
        BlisgemmTypeError, BlisgemmValueError: an argument is not as above.

    Example:
        >>> explained = explain(2000, 2000, 2000, "float64", machine="zen4", threads=1)
        >>> explained.plan.kernel.name, explained.traffic.levels[-1].level
        ('f64_8x24_avx512', 'memory')
    """
    there = machine_named(machine)
    if threads is not None:
        threads = check_threads(threads)
    elif machine is not None:
        threads = there.cores

    def make(**choices: Any) -> Plan:
        return plan_on(machine, m, n, k, dtype, threads=threads, **choices)

    return explain_plan(make(), make, rates)


def explain_plan(plan: Plan, make: Any = None, rates: Rates | None = None) -> Explanation:
    """Explain a plan that is there.

    Args:
        make: returns plans of the same product with a path or kernel asked for; ``None``: no alternatives.
        rates: as ``explain`` takes them.
    """
    notes: list[str] = []
    if plan.path == "numpy":
        return Explanation(plan, (), None, None, (), (), ("NumPy multiplies, in loops that are not the library's.",))
    rates = rates if rates is not None else data_sheet(plan.machine)
    traffic = traffic_of(plan)
    bounds: tuple[Bound, ...] = ()
    if rates is None:
        notes.append(
            f"No times: no data sheet of {plan.machine.name} says what its multiply-adds and memory do "
            "(python -m blisgemm roofline measures those of this machine)."
        )
    else:
        bounds = bounds_of(traffic, rates, plan.dtype, plan.threads)
        known = {bound.name for bound in bounds}
        absent = [each.level for each in traffic.levels if each.level not in known]
        if absent:
            notes.append(f"No figure for the bandwidth of {', '.join(absent)} is public, so it is no limit here.")
        notes.append(f"Rates: {rates.source}.")
    others = alternatives_to(plan, make, rates) if make is not None else ()
    return Explanation(plan, places_of(plan), traffic, rates, bounds, others, tuple(notes))


def places_of(plan: Plan) -> tuple[Footprint, ...]:
    """Return what each block of a plan occupies: the packed path's blocks, or of other paths what stays near.

    Where nothing is packed, it is the micro-panels as they lie, and the operand all of which passes again and again.
    """
    kernel, blocking = plan.kernel, plan.blocking
    if kernel is None or blocking is None:
        return ()
    if plan.path == "packed":
        return blocking.footprints
    m, n = (plan.n, plan.m) if plan.swapped else (plan.m, plan.n)
    size = kernel.itemsize
    near = footprints(plan.machine, kernel, m, n, min(blocking.kc, plan.k), plan.threads)[:3]
    if plan.path == "direct":
        what, count = ("B", plan.k * n * size) if plan.rows_first else ("A", m * plan.k * size)
        return (*near, _fitting(plan, f"all of {what}", count // _own(plan)))
    sums = 1
    for extent in plan.sums_shape[1:]:
        sums *= extent
    columns = kernel.nr if plan.path == "strips" else blocking.nc
    return near[0], _fitting(plan, f"{plan.step} rows of B", plan.step * min(columns, n) * size), _fitting(
        plan, "waiting sums", sums * kernel.real_bits // 8
    )  # fmt: skip


def _own(plan: Plan) -> int:
    """Return into how many parts threads divide what passes on the direct path."""
    return plan.jr_ways if plan.rows_first else plan.ic_ways


def _fitting(plan: Plan, what: str, count: int) -> Footprint:
    """Return the footprint in the nearest level that holds it."""
    machine, threads = plan.machine, plan.threads
    for cache in machine.caches:
        part = cache.size_bytes // min(threads, cache.cores) if cache.level < 3 else cache.size_bytes
        if count <= part:
            return Footprint(what, cache.level, count, part, count / part)
    return Footprint(what, 4, count, 0, 0.0)


def _say_places(it: Explanation) -> list[str]:
    return [
        f"{place.what:<18} {_PLACES[place.level]:<9} {bytes_text(place.bytes):>9}"
        + (f" of {bytes_text(place.cache_bytes):<8} {bar(place.share)} {share_text(place.share)}" * bool(place.share))
        for place in it.places
    ]


def _say_traffic(it: Explanation) -> list[str]:
    if it.traffic is None or not it.traffic.levels:
        return []
    names = [name for name, _ in it.traffic.levels[0].operands]
    lines = [f"{'':<8}" + "".join(f"{name:>12}" for name in names) + f"{'in all':>12}{'FLOP/byte':>11}"]
    for each in it.traffic.levels:
        cells = "".join(f"{bytes_text(count) if count else '0':>12}" for _, count in each.operands)
        intensity = three(it.traffic.intensity(each.level)) if each.bytes else ""
        lines.append(f"{each.level:<8}{cells}{bytes_text(each.bytes):>12}{intensity:>11}")
    return lines


def _say_bounds(it: Explanation) -> list[str]:
    worst = it.ruling
    if worst is None or it.traffic is None:
        return []
    lines = []
    for bound in it.bounds:
        what = work_text(bound.rate) if bound.name == "compute" else rate_text(bound.rate)
        share = bound.seconds / worst.seconds if worst.seconds else 0.0
        lines.append(
            f"{bound.name:<8} {seconds_text(bound.seconds):>9} at {what:<14} {bar(share)}" + " rules" * (bound is worst)
        )
    if it.attainable and it.serial:
        threads = f"{it.plan.threads} thread{'s' * (it.plan.threads > 1)}"
        lines.append(f"so at most {work_text(it.attainable)} on {threads}; if nothing overlapped, {_rate(it)}")
    return lines


def _rate(it: Explanation) -> str:
    assert it.traffic is not None
    assert it.serial
    return work_text(it.traffic.flops / it.serial)


def _say_alternatives(it: Explanation) -> list[str]:
    plan, lines = str(it.plan), []
    if it.alternatives and it.ruling and it.serial:
        lines.append(f"(what runs: {seconds_text(it.ruling.seconds)} to {seconds_text(it.serial)})")
    for other in it.alternatives:
        head = other.name if other.name.startswith(other.kind) else f"{other.kind}: {other.name}"
        times, more = cost_of(other, it)
        lines.append(": ".join(filter(None, (head, "; bytes ".join(filter(None, (times, more)))))))
        lines.append(f"  {other.why if other.kind != LOW or other.why not in plan else 'see the last reason above'}")
    return lines


def cost_of(other: Alternative, it: Explanation) -> tuple[str, str]:
    """Return what an alternative would cost by the model: its times, and how many times the bytes at which levels."""
    times, more = "", ""
    if other.seconds is not None and other.serial is not None:
        threads = f" on {other.threads} thread{'s' * (other.threads > 1)}" if other.threads != it.plan.threads else ""
        times = f"{seconds_text(other.seconds)} to {seconds_text(other.serial)}{threads}"
    if it.traffic is not None and other.levels:
        ratios = [
            (level, count / it.traffic.bytes_of(level)) for level, count in other.levels if it.traffic.bytes_of(level)
        ]
        changed = [f"{level} × {ratio:.2f}" for level, ratio in ratios if abs(ratio - 1) > _ALIKE]
        more = ", ".join(changed) or "about the same"
    return times, more
