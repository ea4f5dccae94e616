"""What was measured, as values: rows, their summaries, and the same as JSON (also back again) and CSV.

Knows: which numbers a row has and what they mean together. Does not know: how they were measured or how they
look. Called by ``trial``, ``tables``, ``plots`` and ``cli.bench``.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from .measure import Spread, geometric_mean
from .shapes import Case

__all__ = [
    "BEST",
    "OURS",
    "Roof",
    "Row",
    "Run",
    "Summary",
    "merged",
    "read_json",
    "summarize",
    "write_csv",
    "write_json",
]

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
    def of_peak(self) -> float:
        """Our share of the fma peak."""
        return self.gflops() / self.peak_gflops


@dataclass(frozen=True)
class Summary:
    """One set of shapes, dtype and number of threads against one peer: geometric mean and minimum of the ratios.

    Attributes:
        least_roof: the least of our shares of a roofline below the fma peak, of single products that take long enough
            for it to matter (``_LONG_ENOUGH``); 1 where there is none.
    """

    group: str
    dtype: str
    threads: int
    peer: str
    rows: int
    geometric_mean: float
    minimum: float
    minimum_at: str
    least_roof: float = 1.0


@dataclass(frozen=True)
class Run:
    """A whole run."""

    command: str
    machine: dict[str, str]
    peers: dict[str, str]
    absent: dict[str, str]
    rows: list[Row]


def merged(runs: Sequence[Run]) -> Run:
    """Return runs on one machine as one, their commands in a row. They may have had some of its cores each.

    Raises:
        ValueError: they are of several machines, or of other versions.
    """
    first = runs[0]
    for run in runs:
        facts = {name: (first.machine.get(name), run.machine.get(name)) for name in {**first.machine, **run.machine}}
        for name, (expected, got) in facts.items():
            if name not in ("date", "cores") and expected != got:
                raise ValueError(f"expected runs of one machine and its versions; {name}: {expected!r} and {got!r}")
    commands = _together(list(dict.fromkeys(run.command for run in runs)))
    dates = sorted({run.machine["date"] for run in runs})
    cores = max((run.machine.get("cores", "1") for run in runs), key=int)
    machine = {**first.machine, "cores": cores, "date": " to ".join(dict.fromkeys([dates[0], dates[-1]]))}
    peers = {name: version for run in runs for name, version in run.peers.items()}
    absent = {name: why for run in runs for name, why in run.absent.items() if name not in peers}
    return Run(commands, machine, peers, absent, [row for run in runs for row in run.rows])


def _together(commands: list[str]) -> str:
    """Return commands as one line of code: how they all begin, and what each goes on with."""
    if len(commands) == 1:
        return commands[0]
    words = [command.split(" ") for command in commands]
    differ = (at for at, column in enumerate(zip(*words, strict=False)) if len(set(column)) > 1)
    same = next(differ, min(map(len, words)))
    return f"{' '.join(words[0][:same])}` with `{'`, `'.join(' '.join(each[same:]) for each in words)}"


def summarize(rows: Sequence[Row]) -> list[Summary]:
    """Return the summaries, peers in the rows' order and the best peer last."""
    groups: dict[tuple[str, str, int], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.case.group, row.dtype, row.threads), []).append(row)
    found = []
    for (group, dtype, threads), members in groups.items():
        peers = list(dict.fromkeys(peer for row in members for peer in row.ratios if peer != BEST))
        for peer in [*peers, BEST] if peers else []:
            those = [row for row in members if peer in row.ratios]
            worst = min(those, key=lambda row: row.ratios[peer].median)
            mean = geometric_mean(row.ratios[peer].median for row in those)
            roof = min((row.roof.share for row in those if row.roof and _is_long(row)), default=1.0)
            least = worst.ratios[peer].median
            found.append(Summary(group, dtype, threads, peer, len(those), mean, least, worst.case.label, roof))
    return found


def _is_long(row: Row) -> bool:
    return row.seconds[OURS].median > _LONG_ENOUGH and not row.case.batch


def _flat(row: Row) -> dict[str, Any]:
    """Return the row with its derived numbers, for JSON."""
    flat = asdict(row)
    case = flat.pop("case")
    gflops = {name: row.gflops(name) for name in row.seconds}
    return {**case, "label": row.case.label, **flat, "gflops": gflops, "of_peak": row.of_peak}


_FORMAT = 2  # counts changes of the layout; 1 had the peak of our own microkernel in place of bare fmas


def write_json(path: Path, run: Run) -> None:
    """Write everything."""
    whole = {
        "format": _FORMAT, "command": run.command, "machine": run.machine, "peers": run.peers, "absent": run.absent,
        "rows": [_flat(row) for row in run.rows], "summaries": [asdict(s) for s in summarize(run.rows)],
    }  # fmt: skip
    path.write_text(json.dumps(whole, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")


def read_json(path: Path) -> Run:
    """Return the run that ``write_json`` wrote.

    Raises:
        ValueError: the file is something else.
    """
    try:
        whole = json.loads(path.read_text(encoding="utf-8"))
        if whole["format"] != _FORMAT:
            raise ValueError(f"expected format {_FORMAT}; got {whole['format']!r}")
        rows = [_row(flat) for flat in whole["rows"]]
        return Run(whole["command"], whole["machine"], whole["peers"], whole["absent"], rows)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: expected a file that bench --json wrote; {type(error).__name__}: {error}") from None


def _row(flat: dict[str, Any]) -> Row:
    """Return the row of a flat one."""
    about: dict[str, Any] = {x.name: flat[x.name] for x in fields(Case)}
    case = Case(**{**about, "batch": tuple(about["batch"])})
    own: dict[str, Any] = {x.name: flat[x.name] for x in fields(Row) if x.name != "case"}
    for name in ("seconds", "ratios"):
        own[name] = {library: Spread(**values) for library, values in own[name].items()}
    own["roof"] = Roof(**own["roof"]) if own["roof"] else None
    return Row(case=case, **own)


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
