"""Measure products against NumPy, MKL, torch, OpenBLAS and BLIS, and write or draw the results.

Knows: the options, and what goes where. Does not know: how anything is measured or drawn (``bench``).
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from ..bench import environment, tables
from ..bench.shapes import SETS, Case, parse_shapes
from ..errors import BlisgemmValueError
from .console import CommandError, check_markers, check_output, check_picture, verbatim
from .seconds import seconds_argument

if TYPE_CHECKING:
    from ..bench.results import Row, Run

__all__ = ["HELP", "add_arguments", "run"]

HELP = "measure products against NumPy, MKL, torch, OpenBLAS and BLIS"

_PEERS = ("numpy", "mkl", "torch", "openblas", "blis")
_DTYPES = {"f32": "float32", "f64": "float64", "c64": "complex64", "c128": "complex128"}
_OUTPUTS = ("--json", "--csv", "--plot", "--plot-kind", "--write-readme", "--table", "--marker")
_PLOT_KINDS = ("rate", "ratio", "blocking", "threads")
# Options that only measuring uses, and those of a table that is written, with what they are unless given.
_MEASURING: dict[str, Any] = {
    "shapes": parse_shapes("square"), "dtype": ["f32", "f64"], "threads": [1], "peers": list(_PEERS), "seconds": 2.0,
    "arch": None, "cold": False, "new": False,
}  # fmt: skip
_OF_TABLE = {"table": "rows", "marker": "bench"}
README = Path(__file__).resolve().parents[2] / "README.md"


def _words(known: Sequence[str]) -> Callable[[str], list[str]]:
    """Return an argparse type: words of ``known`` by commas."""

    def parse(text: str) -> list[str]:
        words = [word.strip() for word in text.split(",")]
        for word in words:
            if word not in known:
                raise argparse.ArgumentTypeError(f"expected any of {', '.join(known)} by commas; got {word!r}")
        return list(dict.fromkeys(words))

    return parse


def _shapes(text: str) -> list[Case]:
    try:
        return parse_shapes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _threads(text: str) -> list[int]:
    try:
        counts = [int(word) for word in text.split(",")]
    except ValueError:
        counts = [0]
    if min(counts) < 1:
        raise argparse.ArgumentTypeError(f"expected integers of at least 1 by commas; got {text!r}")
    return list(dict.fromkeys(counts))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what is measured, against whom, and where the results go."""
    parser.epilog = (
        "Every library first multiplies small integers, which must come out exact; then all take turns in one "
        "process. Printed: microseconds, GFLOP/s, the share of the fma peak of as many threads (measured in between), "
        "and for each peer how many times as long it took (median over the rounds; above 1 blisgemm is faster). "
        "Status 1: blisgemm was wrong."
    )
    parser.add_argument(
        "--shapes", type=_shapes, help=f"any of {', '.join(SETS)}, MxNxK or N, by commas (default: square)"
    )
    parser.add_argument("--dtype", type=_words(tuple(_DTYPES)), help="f32, f64, c64, c128 by commas (default: f32,f64)")
    parser.add_argument("--threads", type=_threads, help="numbers of threads by commas (default: 1)")
    parser.add_argument("--peers", type=_words(_PEERS), help=f"of {', '.join(_PEERS)} (default: all)")
    parser.add_argument("--seconds", type=seconds_argument, help="about how long per row (default: 2)")
    parser.add_argument("--arch", help="as BLISGEMM_ARCH, for the peers too: haswell forces AVX2")
    parser.add_argument(
        "--cold", action="store_const", const=True, help="rotate operands through more memory than the caches"
    )
    parser.add_argument(
        "--new", action="store_const", const=True, help="let every call make a new array in place of using out="
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything as JSON")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write one line per row and library")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw a picture (.png, .svg); one per set of shapes")
    parser.add_argument("--plot-kind", choices=_PLOT_KINDS, help="default: rate for squares, else ratio")
    parser.add_argument(
        "--write-readme", nargs="?", type=Path, const=README, metavar="FILE",
        help="put a table between the markers of README.md",
    )  # fmt: skip
    parser.add_argument(
        "--table", choices=("rows", "sets"), help="a line for each row (default), or for each set of shapes"
    )
    parser.add_argument("--marker", help="name of the markers (default: bench)")
    parser.add_argument(
        "--from", dest="saved", type=Path, nargs="+", metavar="FILE",
        help="measure nothing: tables and pictures of what --json has written, on one machine with the same versions",
    )  # fmt: skip


def run(args: argparse.Namespace, console: Console) -> int:
    """Measure, print and write; return 1 if a product of blisgemm was wrong."""
    args = _settled(args)
    _check_outputs(args)
    if args.saved:
        runs = _read(args.saved)
        if args.plot_kind == "threads":
            _check_threads(runs)
        for each in runs:
            _print_summaries(console, each)
        _write(args, console, runs)
        return 0
    _settle_environment(max(args.threads), args.arch)
    result, status = _measure(args, console)
    if status != 1:
        _print_summaries(console, result)
        if result.rows:
            _write(args, console, [result])
    return status


def _settled(args: argparse.Namespace) -> argparse.Namespace:
    """Return the arguments with what they are unless given; raise for those that would do nothing."""
    for names, why in (
        (_MEASURING if args.saved else (), "expected none of these beside --from, which measures nothing"),
        (_OF_TABLE if args.write_readme is None else (), "expected --write-readme beside it"),
    ):
        given = [f"--{name}" for name in names if getattr(args, name) is not None]
        if given:
            raise CommandError(f"{', '.join(given)}: {why}")
    unless = {name: value for name, value in {**_MEASURING, **_OF_TABLE}.items() if getattr(args, name) is None}
    return argparse.Namespace(**{**vars(args), **unless})


def _check_threads(runs: Sequence[Run]) -> None:
    """Raise if no product was measured on several numbers of threads."""
    counts: dict[Any, set[int]] = {}
    for row in (row for run in runs for row in run.rows):
        counts.setdefault((row.case, row.dtype, row.state, row.out), set()).add(row.threads)
    if max(map(len, counts.values())) < 2:
        got = ", ".join(map(str, sorted(set().union(*counts.values()))))
        raise CommandError(
            f"--plot-kind threads: expected a product on at least two numbers of threads in the files of --from; "
            f"got threads {got}"
        )


def _read(paths: Sequence[Path]) -> list[Run]:
    from ..bench.merge import merged
    from ..bench.saved import read_json

    try:
        runs = [read_json(path) for path in paths]
        merged(runs, list(map(str, paths)))
    except (OSError, BlisgemmValueError) as error:
        raise CommandError(f"--from: {error}") from None
    return runs


def _measure(args: argparse.Namespace, console: Console) -> tuple[Run, int]:
    """Measure every row; return what there is, and the status: 1 for a wrong product, 130 if interrupted."""
    from ..bench.exact import WrongResultError
    from ..bench.results import Run
    from ..bench.trial import Trial, load_peers

    peers, absent = load_peers(args.peers, max(args.threads))
    for name, reason in absent.items():
        _note(f"{name}: absent: {reason}")
    machine = environment.machine_facts()
    date = machine.pop("date")
    verbatim(console, environment.machine_line())
    for name, peer in peers.items():
        verbatim(console, f"{tables.NAMES[name]} {peer.version}")
    trial = Trial(
        peers, args.seconds, lambda name, reason: _note(f"{name}: skipped: {reason}"), cold=args.cold, fresh=args.new
    )
    rows: list[Row] = []
    status = 0
    try:
        for group in dict.fromkeys(case.group for case in args.shapes):
            for threads in args.threads:
                for dtype in (_DTYPES[word] for word in args.dtype):
                    cases = [case for case in args.shapes if case.group == group]
                    width = max(len(case.label) for case in cases)
                    _print_head(console, f"{group}, {_how(args, threads)}", list(peers), width)
                    for case in cases:
                        rows.append(trial.measure(case, dtype, threads))
                        verbatim(console, tables.row_line(rows[-1], list(peers), width))
                        for name in rows[-1].beyond_peak() if args.arch else ():
                            _note(f"{name}: faster than the fma peak of {args.arch}: does it heed --arch?")
    except WrongResultError as error:
        verbatim(console, f"WRONG {error}", "bold red")
        status = 1
    except KeyboardInterrupt:  # what there is, is written
        status = 130
        _note(f"interrupted after {len(rows)} rows")
    versions = {name: peer.version for name, peer in peers.items()}
    command = environment.command_line(without=_OUTPUTS)
    return Run([command], [date], machine, versions, {**absent, **trial.wrong}, rows), status


def _note(text: str) -> None:
    sys.stdout.flush()
    sys.stderr.write(f"blisgemm bench: {text}\n")


def _settle_environment(most_threads: int, arch: str | None) -> None:
    """Start the process again if BLAS libraries have been loaded with other variables than this run needs."""
    from ..machine import current
    from ..parallel import get_num_threads

    wanted = environment.variables(most_threads, arch)
    if most_threads > (os.cpu_count() or 1):
        raise CommandError(f"--threads: expected at most the {os.cpu_count()} CPUs; got {most_threads}")
    missing = {name for name, value in wanted.items() if os.environ.get(name) != value}
    if missing and sys.argv[1:2] == ["bench"]:
        environment.start_again(os.environ | wanted)
    if arch is not None and missing:
        raise CommandError("--arch: has to be known before NumPy is loaded: run `python -m blisgemm bench`")
    current()  # an --arch that cannot run here is an error before anything is measured
    get_num_threads()


def _check_outputs(args: argparse.Namespace) -> None:
    """Raise for a place that can't be written or a picture that can't be drawn, before the minutes of measuring."""
    for option in ("json", "csv", "plot", "write_readme"):
        path = getattr(args, option)
        name = f"--{option.replace('_', '-')}"
        if path is not None:
            (check_picture if option == "plot" else check_output)(name, path)
        if option == "write_readme" and path is not None:
            check_markers(name, path, args.marker)
    if args.plot is not None:
        if args.saved and args.plot_kind == "blocking":
            raise CommandError("--plot-kind blocking: expected a run that measures, without --from")
        if args.plot_kind == "threads" and len(args.threads) < 2 and not args.saved:
            raise CommandError("--plot-kind threads: expected at least two numbers in --threads, e.g. 1,2")
        if args.plot_kind == "blocking":
            _one_product(args.shapes)
    elif args.plot_kind is not None:
        raise CommandError(f"--plot-kind {args.plot_kind}: expected --plot FILE beside it")


def _how(args: argparse.Namespace, threads: int) -> str:
    new = ", new arrays" if args.new else ""
    return f"{threads} thread{'s' * (threads > 1)}, {'cold' if args.cold else 'hot'}{new}"


def _print_head(console: Console, what: str, peers: list[str], width: int) -> None:
    console.print()
    verbatim(console, f"{what}; below a peer: its time / ours", "bold")
    verbatim(console, tables.head_line(peers, width))


def _print_summaries(console: Console, result: Run) -> None:
    from ..bench.results import summarize

    summaries = summarize(result.rows)
    if summaries:
        console.print()
        verbatim(console, "Their time / ours over each set", "bold")
    for summary in summaries:
        verbatim(console, tables.summary_line(summary))


def _write(args: argparse.Namespace, console: Console, runs: Sequence[Run]) -> None:
    from ..bench.merge import merged
    from ..bench.results import write_csv, write_json

    result = merged(runs)
    writers: dict[str, Callable[[Path, Any], None]] = {"json": write_json, "csv": write_csv}
    for option, write in writers.items():
        path = getattr(args, option)
        if path is not None:
            write(path, result)
            verbatim(console, f"wrote {path}")
    if args.plot is not None:
        _plot(args, console, result)
    if args.write_readme is not None:
        table = tables.markdown_summaries(runs) if args.table == "sets" else tables.markdown(result)
        tables.write_between(args.write_readme, args.marker, table)
        verbatim(console, f"wrote {args.write_readme}")


def _plot(args: argparse.Namespace, console: Console, result: Run) -> None:
    from ..bench import plots

    if args.plot_kind == "blocking":
        from ..bench.blocks import measure_surface

        case = _one_product(args.shapes)
        seconds = max(args.seconds, 10.0)
        written = plots.draw_blocks(
            args.plot,
            [measure_surface(case, dtype, seconds) for dtype in dict.fromkeys(row.dtype for row in result.rows)],
        )
    else:
        written = plots.draw_rows(args.plot, result.rows, args.plot_kind)
    for path in written:
        verbatim(console, f"wrote {path}")


def _one_product(cases: Sequence[Case]) -> Case:
    """Return the product whose blocks are varied: the largest of at most 2000 cubed, two plain matrices."""
    plain = [x for x in cases if not x.batch and not x.vector and x.a == x.b == x.c == "C"]
    small = [x for x in plain if x.m * x.n * x.k <= 2000**3] or plain
    if not small:
        raise CommandError("--plot-kind blocking: expected a product of two plain matrices in --shapes, e.g. 1000")
    return max(small, key=lambda x: x.m * x.n * x.k)
