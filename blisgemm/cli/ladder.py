"""Climb the ladder: time nine ways to multiply matrices, from three plain loops to the library.

Knows: the options, and what goes where. Does not know: what a rung does (``ladder``), how it is timed or drawn
(``bench.rungs``, ``bench.rungs_picture``).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from .console import check_markers, check_output, check_picture, figures_table, print_table, seconds_text, verbatim
from .seconds import seconds_argument

if TYPE_CHECKING:
    from ..bench.rungs import Climb, Timed

__all__ = ["HELP", "add_arguments", "run"]

HELP = "time the ladder from three plain loops to the library"

_DTYPES = {"f32": "float32", "f64": "float64"}
_OUTPUTS = ("--json", "--plot", "--write-readme")
README = Path(__file__).resolve().parents[2] / "README.md"
_LEAST_N = 16  # one tile of every rung; below it times are those of the call
_STDOUT = Path("-")


def _extent(text: str) -> int:
    if not text.isdecimal() or int(text) < _LEAST_N:
        raise argparse.ArgumentTypeError(f"expected an integer of at least {_LEAST_N}; got {text!r}")
    return int(text)


def _threads(text: str) -> int:
    most = os.cpu_count() or 1
    if not text.isdecimal() or not 1 <= int(text) <= most:
        raise argparse.ArgumentTypeError(f"expected a number from 1 to {most}; got {text!r}")
    return int(text)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what is timed, and where the results go."""
    parser.epilog = (
        "Every rung first multiplies small integers, which must come out exact; then all take turns on one thread, the "
        "last also on several. Printed: GFLOP/s, and the shares of the measured fma peak and of NumPy's speed on as "
        "many threads. Status 1: a rung was wrong. The rungs are read in blisgemm/ladder, a page each."
    )
    parser.add_argument("--n", type=_extent, default=512, help="m = n = k (default: 512); rung 0 takes a smaller one")
    parser.add_argument("--dtype", choices=tuple(_DTYPES), default="f32", help="f32 (default) or f64")
    parser.add_argument("--threads", type=_threads, help="of the last rung (default: all it may use)")
    parser.add_argument(
        "--seconds", type=seconds_argument, default=4.0, help="about how long for the rungs (default: 4)"
    )
    parser.add_argument("--list", action="store_true", help="only say what the rungs are, here and elsewhere")
    parser.add_argument("--json", nargs="?", type=Path, const=_STDOUT, metavar="FILE", help="as JSON, in place of text")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw a picture (.png, .svg)")
    parser.add_argument(
        "--write-readme", nargs="?", type=Path, const=README, metavar="FILE",
        help="put the table between the ladder markers of README.md",
    )  # fmt: skip


def run(args: argparse.Namespace, console: Console) -> int:
    """List the rungs, or time, print and write them; return 1 if one was wrong."""
    if args.list:
        _print_list(console)
        return 0
    _check_outputs(args)
    from ..parallel import get_num_threads

    threads = args.threads or get_num_threads()
    _settle_environment(threads)
    from ..bench.environment import machine_line
    from ..bench.exact import WrongResultError
    from ..bench.rungs import climb

    try:
        found = climb(args.n, _DTYPES[args.dtype], threads, args.seconds)
    except WrongResultError as error:
        verbatim(console, f"WRONG {error}", "bold red")
        return 1
    if args.json == _STDOUT:
        verbatim(console, _json(found))
    else:
        verbatim(console, machine_line())
        _print_climb(console, found)
    _write(args, console, found)
    return 0


def _settle_environment(threads: int) -> None:
    """Start the process again if NumPy's BLAS has been loaded with other variables than this run needs."""
    from ..bench import environment

    wanted = environment.variables(threads)
    if sys.argv[1:2] == ["ladder"] and any(os.environ.get(name) != value for name, value in wanted.items()):
        environment.start_again(os.environ | wanted)


def _check_outputs(args: argparse.Namespace) -> None:
    """Raise for a place that can't be written or a picture that can't be drawn, before the measuring."""
    for option in ("json", "plot", "write_readme"):
        path, name = getattr(args, option), f"--{option.replace('_', '-')}"
        if path not in (None, _STDOUT):
            (check_picture if option == "plot" else check_output)(name, path)
    if args.write_readme is not None:
        check_markers("--write-readme", args.write_readme, "ladder")


def _print_climb(console: Console, found: Climb) -> None:
    console.print()
    table = figures_table("rung", "its idea", "GFLOP/s", "of peak", "of NumPy", left=2)
    for timed in found.rungs:
        table.add_row(timed.name, f"{timed.title}{timed.beside(found.n)}", *_figures(timed))
    print_table(console, table)
    console.print()
    table = figures_table("rung 2 in all six orders", "GFLOP/s", "of peak", "of NumPy")
    for timed in found.orders:
        table.add_row(f"{timed.name}, inner loop along {timed.name[-1]}", *_figures(timed))
    print_table(console, table)
    first = found.rungs[0]
    if first.n != found.n:
        seconds = seconds_text(2e-9 * found.n**3 / first.gflops)
        verbatim(console, f"\nr0 is timed at n = {first.n}: at {found.n} one product would take {seconds}.")
    how = f"{found.dtype}, n = {found.n}, one thread by {found.clock}"
    verbatim(console, f"{how}; fma peak {found.peak_gflops:.3g} GFLOP/s a thread.")
    _print_gpu(console)


def _print_gpu(console: Console) -> None:
    from ..cuda.ladder import RUNGS

    names = ", ".join(rung.name.split("_")[0] for rung in RUNGS)
    verbatim(console, f"{names}: need a GPU, and bench/cuda_ladder.py, which times them there.")


def _figures(timed: Timed) -> list[str]:
    share = "-" if timed.of_numpy is None else _share(timed.of_numpy)
    return [_rate(timed.gflops), _share(timed.of_peak), share]


def _rate(gflops: float) -> str:
    return f"{gflops:.3g}" if gflops >= 0.001 else f"{gflops:.1g}"


def _share(share: float) -> str:
    return f"{share:.0%}" if share >= 0.1 else f"{share * 100:.2g}%"


def _print_list(console: Console) -> None:
    from ..cuda.ladder import RUNGS as GPU_RUNGS
    from ..ladder import RUNGS

    for rung in RUNGS:
        beside = {"LAFF": rung.laff, "CUDA worklog": rung.worklog, "ulmBLAS": rung.ulmblas}
        elsewhere = "; ".join(f"{what} {place}" for what, place in beside.items() if place)
        verbatim(console, f"{rung.short}  {rung.title}", "bold")
        verbatim(console, f"    blisgemm/ladder/{rung.name}.py")
        verbatim(console, f"    {elsewhere}" if elsewhere else "    no counterpart")
    for of_gpu in GPU_RUNGS:
        verbatim(console, f"{of_gpu.name.split('_')[0]}  {of_gpu.idea}", "bold")
        verbatim(console, f"    blisgemm/cuda/ladder/{of_gpu.name}.py")
        verbatim(
            console, f"    CUDA worklog kernel {of_gpu.counterpart}" if of_gpu.counterpart else "    no counterpart"
        )
    _print_gpu(console)


def _json(found: Climb) -> str:
    from ..bench import environment

    facts: dict[str, Any] = {"command": environment.command_line(without=_OUTPUTS)}
    facts |= {"machine": environment.machine_facts(), **dataclasses.asdict(found)}
    return json.dumps(facts, indent=1)


def _markdown(found: Climb) -> str:
    from ..bench import environment
    from ..bench.tables import markdown_table

    header = ["rung: its idea", "GFLOP/s", "of peak", "of NumPy"]
    rows = [
        [f"[{x.name}](blisgemm/ladder/{_file(x.name)}): {x.title}{x.beside(found.n)}", *_figures(x)]
        for x in found.rungs
    ]
    orders = ", ".join(f"{timed.name} {_rate(timed.gflops)}" for timed in found.orders)
    how = f"{found.dtype}, n = {found.n}; one thread in {found.clock}, several in wall time; medians"
    command = environment.command_line(without=_OUTPUTS)
    return (
        f"{markdown_table(header, rows)}\n\nRung 2 in its six orders, GFLOP/s: {orders}.\n\n"
        f"{how}. {environment.machine_line()}. `{command}`."
    )


def _file(short: str) -> str:
    from ..ladder import rung_of

    return f"{rung_of(short).name}.py"


def _write(args: argparse.Namespace, console: Console, found: Climb) -> None:
    written = []
    if args.json not in (None, _STDOUT):
        args.json.write_text(_json(found) + "\n", encoding="utf-8")
        written.append(args.json)
    if args.plot is not None:
        from ..bench.environment import machine_facts
        from ..bench.rungs_picture import draw_climb

        facts = machine_facts()
        draw_climb(args.plot, found, f"{facts['processor']} ({facts['machine']}, {facts['vectors']}), {facts['date']}")
        written.append(args.plot)
    if args.write_readme is not None:
        from ..bench.tables import write_between

        write_between(args.write_readme, "ladder", _markdown(found))
        written.append(args.write_readme)
    for path in written if args.json != _STDOUT else ():
        verbatim(console, f"wrote {path}")
