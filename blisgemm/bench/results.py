"""What was measured, as values: rows, their summaries, and the same as JSON and CSV.

Knows: which numbers a row has and what they mean together. Does not know: how they were measured or how they
look, or how JSON is read (``saved``). Called by ``trial``, ``tables``, ``plots``, ``saved``, ``merge`` and
``cli.bench``.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .measure import Spread, geometric_mean
from .shapes import Case

__all__ = [
    "BEST",
    "FORMAT",
    "OURS",
    "Alike",
    "Roof",
    "Row",
    "Run",
    "Summary",
    "summarize",
    "write_csv",
    "write_json",
]

Alike = tuple[str, str, int, str, str]  # set of shapes, dtype, threads, state, out

OURS, BEST = "blisgemm", "best"
_LONG_ENOUGH = 20e-6  # seconds of a product, from which on a call, 0.3 to 1 µs, is a few per cent


@dataclass(frozen=True)
class Roof:
    """The roofline's answer: min(fma peak, bandwidth x flops per byte). Source: Williams et al., CACM 52(4), 2009."""

    level: str
    bytes_per_second: float
    gflops: float
    share: float


@dataclass(frozen=True)
class Row:
    """One case, one dtype, one number of threads.

    Attributes:
        out: ``given`` (the result is written where it was before) or ``new`` (each call takes memory for it).
        state: ``hot`` (the same operands again and again) or ``cold`` (a new set for each call).
        rotated_bytes: what the rotating sets take together; of one set if hot.
        clock: ``CPU time`` or ``wall time``.
        flops: of one call.
        seconds: per call, by library; blisgemm is one of them.
        peak_gflops: the measured fma peak of so many threads together.
        ratios: how many times as long a peer took, round by round; ``best`` is the fastest peer.
        best: the name of that peer.
        skipped: why a peer isn't in the row.
    """

    case: Case
    dtype: str
    threads: int
    out: str
    state: str
    rotated_bytes: int
    clock: str
    path: str
    kernel: str
    flops: int
    rounds: int
    seconds: dict[str, Spread]
    peak_gflops: float
    roof: Roof | None
    ratios: dict[str, Spread]
    best: str
    skipped: dict[str, str] = field(default_factory=dict)

    def gflops(self, name: str = OURS) -> float:
        """Return a library's GFLOP/s by its median time."""
        return self.flops / self.seconds[name].median / 1e9

    def beyond_peak(self) -> list[str]:
        """Return the peers that were a fifth faster than our fma peak allows: they use wider vectors, or more."""
        return [name for name in self.seconds if name != OURS and self.gflops(name) > 1.2 * self.peak_gflops]

    @property
    def alike(self) -> Alike:
        """What the rows of one mean have in common."""
        return self.case.group, self.dtype, self.threads, self.state, self.out

    @property
    def of_peak(self) -> float:
        """Our share of the fma peak."""
        return self.gflops() / self.peak_gflops


@dataclass(frozen=True)
class Summary:
    """One set of shapes, measured alike, against one peer: geometric mean and minimum of the ratios.

    Attributes:
        state, out: as a row's: hot and cold operands, results given and new are never in one mean.
        least_roof: the least of our shares of a roofline below the fma peak, of single products that take long enough
            for it to matter (``_LONG_ENOUGH``); 1 where there is none.
    """

    group: str
    dtype: str
    threads: int
    state: str
    out: str
    peer: str
    rows: int
    geometric_mean: float
    minimum: float
    minimum_at: str
    least_roof: float = 1.0

    @property
    def alike(self) -> Alike:
        """What its rows have in common."""
        return self.group, self.dtype, self.threads, self.state, self.out


@dataclass(frozen=True)
class Run:
    """A whole run, or several of one machine put together (``merge``).

    Attributes:
        commands: what measured it, each once.
        dates: on which days, in order, as ISO 8601 writes them.
        machine: facts about it, and versions, by name.
        peers: their versions by name.
        absent: why a peer isn't there.
    """

    commands: list[str]
    dates: list[str]
    machine: dict[str, str]
    peers: dict[str, str]
    absent: dict[str, str]
    rows: list[Row]

    @property
    def command(self) -> str:
        """The commands as one line of code: how they all begin, and what each goes on with."""
        if len(self.commands) == 1:
            return self.commands[0]
        words = [command.split(" ") for command in self.commands]
        shortest = min(map(len, words))
        differ = (at for at in range(shortest) if len({each[at] for each in words}) > 1)
        same = next(differ, shortest - 1)  # each goes on with a word at least
        return f"{' '.join(words[0][:same])}` with `{'`, `'.join(' '.join(each[same:]) for each in words)}"

    @property
    def date(self) -> str:
        """The day, or the first and the last."""
        return " to ".join(dict.fromkeys([self.dates[0], self.dates[-1]]))


def summarize(rows: Sequence[Row]) -> list[Summary]:
    """Return the summaries, peers in the rows' order and the best peer last."""
    groups: dict[Alike, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.alike, []).append(row)
    found = []
    for alike, members in groups.items():
        peers = list(dict.fromkeys(peer for row in members for peer in row.ratios if peer != BEST))
        for peer in [*peers, BEST] if peers else []:
            those = [row for row in members if peer in row.ratios]
            worst = min(those, key=lambda row: row.ratios[peer].median)
            mean = geometric_mean(row.ratios[peer].median for row in those)
            roof = min((row.roof.share for row in those if row.roof and _is_long(row)), default=1.0)
            least = worst.ratios[peer].median
            found.append(Summary(*alike, peer, len(those), mean, least, worst.case.label, roof))
    return found


def _is_long(row: Row) -> bool:
    return row.seconds[OURS].median > _LONG_ENOUGH and not row.case.batch


def _flat(row: Row) -> dict[str, Any]:
    """Return the row with its derived numbers, for JSON."""
    flat = asdict(row)
    case = flat.pop("case")
    gflops = {name: row.gflops(name) for name in row.seconds}
    return {**case, "label": row.case.label, **flat, "gflops": gflops, "of_peak": row.of_peak}


FORMAT = 2  # counts changes of the layout; 1 had the peak of our own microkernel in place of bare fmas


def write_json(path: Path, run: Run) -> None:
    """Write everything; what can be told from the rest, such as labels and summaries, too."""
    whole = {
        "format": FORMAT, "command": run.command, "commands": run.commands,
        "machine": {**run.machine, "date": run.date}, "dates": run.dates, "peers": run.peers, "absent": run.absent,
        "rows": [_flat(row) for row in run.rows], "summaries": [asdict(s) for s in summarize(run.rows)],
    }  # fmt: skip
    path.write_text(json.dumps(whole, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")


def write_csv(path: Path, run: Run) -> None:
    """Write one line per row and library; blisgemm's own line has ratio 1. A skipped peer has its reason."""
    fields = [
        "set", "shape", "m", "n", "k", "batch", "dtype", "threads", "out", "state", "clock", "library",
        "seconds_low", "seconds_median", "seconds_high", "gflops", "peak_gflops", "of_peak", "roof_gflops", "ratio_low",
        "ratio_median", "ratio_high", "rounds", "path", "kernel", "skipped",
    ]  # fmt: skip
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fields)
        writer.writeheader()
        for row in run.rows:
            case = row.case
            about = {
                "set": case.group, "shape": case.label, "m": case.m, "n": case.n, "k": case.k,
                "batch": "x".join(map(str, case.batch)), "dtype": row.dtype, "threads": row.threads,
                "out": row.out, "state": row.state, "clock": row.clock, "peak_gflops": row.peak_gflops,
                "roof_gflops": row.roof.gflops if row.roof else "", "path": row.path, "kernel": row.kernel,
                "rounds": row.rounds,
            }  # fmt: skip
            for name, took in row.seconds.items():
                ratio = row.ratios.get(name, Spread(1.0, 1.0, 1.0))
                line = {
                    "library": name, "seconds_low": took.low, "seconds_median": took.median, "seconds_high": took.high,
                    "gflops": row.gflops(name), "of_peak": row.gflops(name) / row.peak_gflops,
                    "ratio_low": ratio.low, "ratio_median": ratio.median, "ratio_high": ratio.high,
                }  # fmt: skip
                writer.writerow({**about, **line})
            for name, reason in row.skipped.items():
                writer.writerow({**about, "library": name, "skipped": reason})
