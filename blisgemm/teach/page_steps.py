"""The steps of one setting as the page plays them: a trace and its counts, as columns of integers.

Knows: which facts of a step a picture needs, and how many steps one can play. Does not know: how steps come about
(``trace``), how misses are counted (``cachesim``), which settings there are (``page_model``), or how they are drawn
(``web``). Called by ``page_model``.

The page works nothing out: what a block is at a step, what the packed buffers hold and what each level is meant to keep
is a column here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from ..blocking import Footprint, footprints
from ..machine.facts import Machine
from ..ukernel.spec import KernelSpec
from .cachesim import Counts
from .trace import MICROKERNEL, PACK_A, PACK_B, Trace

__all__ = ["MOST_STEPS", "Loop", "steps_of", "thinned"]

# Steps that are played one by one, at most; source: our choice (five minutes at 30 a second). A longer trace is thinned
# to whole micro-panels, then to whole blocks, then to whole panels.
MOST_STEPS = 10000

_TURNED = "The library computes C transposed here, as B transposed times A transposed: that is what is drawn."

_GRAINS: tuple[tuple[str, ...], ...] = (("ic", "pc", "jc", "ir"), ("ic", "pc", "jc"), ("ic", "pc"), ("ic",))
_GRAIN_WORDS = (
    "a micro-panel of A meets a block of B",
    "a panel of A meets a block of B",
    "a panel of A meets kc rows of B",
    "some rows of C are made",
)


@dataclass(frozen=True)
class Loop:
    """One loop as the page lists it: the event's field that says where it is, its step and extent, its purpose."""

    name: str
    field: str
    step: int
    extent: int
    what: str


def thinned(trace: Trace, most: int = MOST_STEPS) -> tuple[npt.NDArray[np.intp], str]:
    """Return where each shown step begins among the events, and what a step stands for (empty: one event).

    Steps are as fine as ``most`` allows: single microkernels, else all those of one micro-panel, block or panel.

    Example:
        >>> from .trace import trace
        >>> steps = trace(8, 8, 4, mr=2, nr=2, blocking=(8, 8, 4), half=False)
        >>> len(thinned(steps)[0]), len(thinned(steps, most=8)[0])
        (18, 6)
    """
    events = trace.events
    if len(events) <= most:
        return np.arange(len(events)), ""
    starts, words = np.arange(len(events)), ""
    for grain, words in zip(_GRAINS, _GRAIN_WORDS, strict=True):  # noqa: B007  (the last one that was tried is told)
        changed = np.zeros(len(events), bool)
        changed[0] = True
        for field in ("kind", *grain):
            changed[1:] |= events[field][1:] != events[field][:-1]
        starts = np.flatnonzero(changed)
        if len(starts) <= most:
            break
    if (events["ic"] < 0).all():  # no blocks
        words = "a row of micro-tiles is made" if trace.kernel else "the two inner loops go round"
    calls = np.diff(np.append(starts, len(events)))[events["kind"][starts] == MICROKERNEL]
    most_calls = f"{calls.min()} to {calls.max()}" if calls.min() < calls.max() else f"{calls.max()}"
    return starts, (
        f"{len(events):,} steps are too many to play one by one. Here a step is what happens while {words}: "
        f"{most_calls} rounds of the innermost work at once, or all packing for them. Extents and counts are true."
    )


def steps_of(
    trace: Trace, machine: Machine, kernel: KernelSpec | None, counts: Counts, loops: tuple[Loop, ...],
    most: int = MOST_STEPS,
) -> dict[str, Any]:  # fmt: skip
    """Return everything that the page shows of one setting, as JSON has it; counts as differences along the steps.

    Args:
        trace, counts: the steps, and what they did to the caches, after each of them.
        machine, kernel: whose caches and registers; the kernel has the trace's micro-tile. ``None``: plain loops.
        loops: the loops, outermost first.
        most: steps at most (``thinned``).
    """
    starts, note = thinned(trace, most)
    ends = np.append(starts[1:], len(trace.events))
    columns = _columns(trace, starts)
    packs = trace.path == "packed"
    levels = _levels(trace, machine, kernel, columns)
    differences = sorted(set(columns) - {"kind", "calls"})
    plain = {name: (np.diff(column, prepend=0) if name in differences else column) for name, column in columns.items()}
    met = [x for x in range(len(counts.operands)) if counts.hits[:, x].any() or counts.misses[:, x].any()]
    history = {
        name: np.diff(after[ends - 1][:, :, met], axis=0, prepend=0).transpose(1, 2, 0).tolist()
        for name, after in (
            ("hits", counts.hits_after), ("misses", counts.misses_after), ("resident", counts.resident_after),
        )
    }  # fmt: skip
    return {
        "m": trace.m,
        "n": trace.n,
        "k": trace.k,
        "terms": max(1, trace.k),
        "length": len(starts),
        "columns": {name: column.tolist() for name, column in plain.items()},
        "differences": differences,
        "marks": _marks(trace, columns),
        "cuts": _cuts(trace),
        "packs": packs,
        "blocks": {name: getattr(trace, name) for name in ("mr", "nr", "mc", "nc", "kc", "half")},
        "kernel": _registers(kernel),
        "loops": [
            {"name": x.name, "column": x.field, "step": x.step, "extent": x.extent, "what": x.what} for x in loops
        ],
        "levels": levels,
        "counted": {
            "levels": [f"L{x.level}" for x in counts.levels],
            "lines": [x.sets * x.ways for x in counts.levels],
            "line_bytes": counts.levels[0].line_bytes,
            "operands": [counts.operands[x] for x in met],
        },
        **history,
        "notes": [note] * bool(note) + [_TURNED] * trace.swapped,
    }


def _registers(kernel: KernelSpec | None) -> dict[str, Any] | None:
    """Return how the micro-tile lies in vector registers."""
    if kernel is None:
        return None
    names = ("name", "mr", "nr", "lanes", "row_vectors", "chains", "register_account")
    return {name: getattr(kernel, name) for name in names}


def _columns(trace: Trace, starts: npt.NDArray[np.intp]) -> dict[str, npt.NDArray[Any]]:
    """Return the columns of the shown steps: the events' own, their blocks' extents, what packed buffers hold."""
    events = trace.events
    columns: dict[str, npt.NDArray[Any]] = {"kind": events["kind"][starts]}
    columns["calls"] = np.diff(np.append(starts, len(events)))
    for name in ("ic", "pc", "jc", "ir", "jr"):
        columns[name] = events[name][starts]
    for name in ("i0", "j0", "p0"):
        columns[name] = np.minimum.reduceat(events[name], starts)
    for name in ("i1", "j1", "p1"):
        columns[name] = np.maximum.reduceat(events[name], starts)
    jc = _filled_from_behind(events["jc"], events["kind"] == PACK_A)[starts]
    for name, at, step, extent in (
        ("I", events["ic"][starts], trace.mc, trace.m),
        ("J", jc, trace.nc, trace.n),
        ("P", events["pc"][starts], trace.kc, trace.k),
    ):
        columns[f"{name}0"] = np.maximum(at, 0)
        columns[f"{name}1"] = np.where(at < 0, 0, np.minimum(at + step, extent))
    for kind, letter, index, block in ((PACK_A, "a", "i", ("ic", "pc")), (PACK_B, "b", "j", ("ic", "pc", "jc"))):
        low, high = _held(events, kind, index, block)
        last = np.append(starts[1:], len(events)) - 1
        columns[f"{letter}0"], columns[f"{letter}1"] = low[last], high[last]
    return columns


def _filled_from_behind(column: npt.NDArray[Any], absent: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the column with absent values replaced by the next one that is there."""
    out = column.copy()
    for index in range(len(out) - 2, -1, -1):
        if absent[index]:
            out[index] = out[index + 1]
    return out


def _held(events: Any, kind: int, index: str, block: tuple[str, ...]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return which rows of A, or columns of B, a packed buffer holds after each event: from, to."""
    numbers = np.flatnonzero(events["kind"] == kind)
    held = [(0, 0)]
    now: tuple[int, ...] | None = None
    for event in events[numbers]:
        at = tuple(int(event[name]) for name in block)
        start, end = int(event[f"{index}0"]), int(event[f"{index}1"])
        held.append((min(held[-1][0], start), max(held[-1][1], end)) if at == now else (start, end))
        now = at
    so_far = np.searchsorted(numbers, np.arange(len(events)), side="right")
    low, high = np.array(held, np.int32)[so_far].T
    return low, high


def _marks(trace: Trace, columns: dict[str, npt.NDArray[Any]]) -> list[int]:
    """Return the steps where packing begins, or a block changes."""
    fields = ["kind", "ic", "pc", "jc"] if (columns["ic"] >= 0).any() else ["ir"]
    changed = np.zeros(len(columns["kind"]), bool)
    for field in fields:
        changed[1:] |= columns[field][1:] != columns[field][:-1]
    return [0, *np.flatnonzero(changed).tolist()]


def _cuts(trace: Trace) -> dict[str, int]:
    """Return the distance of the lines between blocks along i, j and p; 0 where there are none."""
    steps = {"i": trace.mc, "j": trace.nc, "p": trace.kc}
    extents = {"i": trace.m, "j": trace.n, "p": trace.k}
    return {index: step if 0 < step < extents[index] else 0 for index, step in steps.items()}


def _levels(
    trace: Trace, machine: Machine, kernel: KernelSpec | None, columns: dict[str, npt.NDArray[Any]]
) -> list[dict[str, Any]]:  # fmt: skip
    """Return the levels with what the model means to stay there, and add the bytes of that at each step as columns."""
    found: list[dict[str, Any]] = [
        {"name": f"L{x.level}", "bytes": x.size_bytes, "shared": x.cores, "parts": []} for x in machine.caches
    ]
    if kernel is None:  # plain loops, which mean nothing to stay anywhere
        return found
    packed = trace.path == "packed"
    rows = columns["I1"] - columns["I0"] if trace.half else columns["a1"] - columns["a0"]
    wide = columns["b1"] - columns["b0"]
    terms = columns["P1"] - columns["P0"]
    every = list(zip(rows.tolist(), wide.tolist(), terms.tolist(), strict=True))
    prints = {key: _footprints(machine, kernel, *key) for key in set(every)}
    for place, sample in enumerate(next(iter(prints.values()))[1:], start=1):
        if sample.level > (len(found) if packed else 1):
            continue
        name = f"h{place}"
        sizes = np.array([prints[key][place].bytes for key in every])
        columns[name] = np.where(columns["kind"] == MICROKERNEL, sizes, 0) if sample.level == 1 else sizes
        found[sample.level - 1]["parts"].append({"what": sample.what, "of": sample.cache_bytes, "column": name})
    return found


@lru_cache(maxsize=4096)
def _footprints(machine: Machine, kernel: KernelSpec, rows: int, wide: int, terms: int) -> tuple[Footprint, ...]:
    return footprints(machine, kernel, rows, wide, terms)
