"""Rows as text: one line each while a run goes on, a Markdown table at its end, a place in a file for it.

Knows: how a row looks. Does not know: how it was measured. Called by ``cli.bench`` and the scripts of ``bench/``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..errors import BlisgemmValueError
from .merge import merged
from .results import BEST, OURS, Alike, Row, Run, Summary, summarize

__all__ = [
    "NAMES",
    "SHORT",
    "about",
    "check_markers",
    "head_line",
    "markdown",
    "markdown_summaries",
    "markdown_table",
    "row_line",
    "summary_line",
    "write_between",
]

_MOST_LABELS = 8  # in a cell; source: our choice
_OUTS = {"given": "`out=` given", "new": "results in new arrays"}

NAMES = {"numpy": "NumPy", "mkl": "MKL", "torch": "torch", "openblas": "OpenBLAS", "blis": "BLIS", "best": "best"}
SHORT = {"float32": "f32", "float64": "f64", "complex64": "c64", "complex128": "c128"}


def head_line(peers: Sequence[str], width: int) -> str:
    """Return the line above the rows' lines; ``width``: of the longest label."""
    return f"{'':<{width}} {'':<4} {'µs':>8} {'GFLOP/s':>7} {'peak':>5}" + "".join(
        f" {NAMES.get(peer, peer):>{_width(peer)}}" for peer in peers
    )


def row_line(row: Row, peers: Sequence[str], width: int) -> str:
    """Return a row in one line: ratios as medians, the best peer by name with quartiles, the share of the roof."""
    microseconds = row.seconds[OURS].median * 1e6
    text = f"{microseconds:.4g}" if microseconds < 1e4 else f"{microseconds:.0f}"
    line = f"{row.case.label:<{width}} {SHORT[row.dtype]:<4} {text:>8} {row.gflops():>7.4g} {row.of_peak:>5.0%}"
    for peer in peers:
        ratio = f"{row.ratios[peer].median:.2f}" if peer in row.ratios else "-"
        line += f" {ratio:>{_width(peer)}}"
    if row.best and len(peers) > 1:
        line += f"  {NAMES.get(row.best, row.best)} {row.ratios[BEST]}"
    if row.roof:
        line += f"  {row.roof.share:.0%} of {row.roof.level} roof"
    return line


def _width(peer: str) -> int:
    return max(5, len(NAMES.get(peer, peer)))


def summary_line(summary: Summary) -> str:
    """Return a summary in one line."""
    threads = f"{summary.threads} thread" + "s" * (summary.threads > 1)
    new = ", new arrays" if summary.out == "new" else ""
    return (
        f"{summary.group:<8} {SHORT[summary.dtype]:<4} {threads:<9} {summary.state}{new} "
        f"× {NAMES.get(summary.peer, summary.peer):<8} "
        f"geometric mean {summary.geometric_mean:.2f}, least {summary.minimum:.2f} ({summary.minimum_at}), "
        f"{summary.rows} rows"
    )


def about(run: Run) -> str:
    """Return in a sentence or two what the numbers are of."""
    f = run.machine
    threads = sorted({row.threads for row in run.rows})
    states = sorted({row.state for row in run.rows})
    outs = {row.out for row in run.rows}
    given = " and ".join(text for out, text in _OUTS.items() if out in outs)
    clocks = sorted({row.clock for row in run.rows})
    counted = " and ".join(map(str, threads)) + (" threads" if threads != [1] else " thread")
    peers = "".join(f", {NAMES.get(name, name)} {version}" for name, version in run.peers.items() if name != "numpy")
    return (
        f"{counted}, {' and '.join(states)} caches, {' and '.join(clocks)}, {given}. {f['processor']} "
        f"({f['machine']}, {f['vectors']}; {f['caches']}; {f['cores']} cores), Python {f['python']}, "
        f"NumPy {f['numpy']}{peers}, Numba {f['numba']}, {run.date}. `{run.command}`."
    )


def markdown(run: Run) -> str:
    """Return the whole run as a Markdown table, and below it what it is of."""
    peers = [peer for peer in run.peers if any(peer in row.ratios for row in run.rows)]
    several = len({row.threads for row in run.rows}) > 1
    states, outs = _differ(run.rows)
    roofs = any(row.roof for row in run.rows)
    header = ["dtype", "m×n×k" if any(not row.case.label.isdigit() for row in run.rows) else "n"]
    header += ["threads"] * several + ["caches"] * states + ["out"] * outs
    header += ["GFLOP/s", "of peak"] + ["of roof"] * roofs
    header += [f"× {NAMES.get(peer, peer)}" for peer in peers]
    rows = []
    for row in run.rows:
        cells = [row.dtype, row.case.label] + [str(row.threads)] * several + [row.state] * states + [row.out] * outs
        cells += [f"{row.gflops():.3g}" if row.gflops() < 100 else f"{row.gflops():.0f}", f"{row.of_peak:.0%}"]
        cells += [f"{row.roof.share:.0%} ({row.roof.level})" if row.roof else ""] * roofs
        cells += [str(row.ratios[peer]) if peer in row.ratios else "" for peer in peers]
        rows.append(cells)
    return f"{markdown_table(header, rows)}\n\n{about(run)}"


def _differ(rows: Sequence[Row]) -> tuple[bool, bool]:
    """Return whether some rows are hot and some cold, and whether some results were given and some new."""
    return len({row.state for row in rows}) > 1, len({row.out for row in rows}) > 1


def markdown_summaries(runs: Sequence[Run]) -> str:
    """Return a line for each set of shapes that was measured alike in a run, and below it what they are of.

    The runs are of one machine and of the same versions.
    """
    whole = merged(runs)
    peers = list(whole.peers)
    states, outs = _differ(whole.rows)
    header = ["shapes", "threads", "dtype", *["caches"] * states, *["out"] * outs]
    header += [*(f"× {NAMES.get(peer, peer)}" for peer in peers), "× best", "least × best", "least of roof"]
    rows = []
    for run in runs:
        found: dict[Alike, dict[str, Summary]] = {}
        for summary in summarize(run.rows):
            found.setdefault(summary.alike, {})[summary.peer] = summary
        for alike, by_peer in found.items():
            group, dtype, threads, state, out = alike
            best = by_peer[BEST]
            name = group if group != "shape" else _shapes_of(run, alike)
            means = [f"{by_peer[peer].geometric_mean:.2f}" if peer in by_peer else "" for peer in peers]
            roof = f"{best.least_roof:.0%}" if best.least_roof < 1 else ""
            least = f"{best.minimum:.2f} ({best.minimum_at})"
            how = [str(threads), dtype, *[state] * states, *[out] * outs]
            rows.append([name, *how, *means, f"{best.geometric_mean:.2f}", least, roof])
    return f"{markdown_table(header, rows)}\n\n{about(whole)}"


def _shapes_of(run: Run, alike: Alike) -> str:
    """Return the shapes of a line that were given one by one: all, or the first and the last of many."""
    labels = list(dict.fromkeys(row.case.label for row in run.rows if row.alike == alike))
    if len(labels) > _MOST_LABELS:
        labels = [*labels[:2], f"… {labels[-1]} ({len(labels)})"]
    return ", ".join(labels)


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a Markdown table; all columns but the first are aligned to the right."""
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def write_between(path: Path, name: str, text: str) -> None:
    """Replace what stands between ``<!-- name:begin -->`` and ``<!-- name:end -->`` in a file.

    Raises:
        BlisgemmValueError: as ``check_markers``.
    """
    before, after = check_markers(path, name)
    path.write_text(f"{before}\n{text.strip()}\n{after}", encoding="utf-8")


def check_markers(path: Path, name: str) -> tuple[str, str]:
    """Return a file's text up to its begin marker, and from its end marker on; both with the markers.

    Raises:
        BlisgemmValueError: the file doesn't have each of them once, or the end comes first, or it is no text.
    """
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    try:
        whole = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise BlisgemmValueError(f"{path}: expected text in UTF-8; got {error}") from None
    if whole.count(begin) != 1 or whole.count(end) != 1:
        raise BlisgemmValueError(
            f"{path}: expected one {begin} and one {end}; got {whole.count(begin)} and {whole.count(end)}"
        )
    before, _, rest = whole.partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise BlisgemmValueError(f"{path}: expected {begin} before {end}; got them the other way round")
    return before + begin, end + after
