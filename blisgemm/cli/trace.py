"""Follow the five loops step by step, and watch the caches: what a product packs, multiplies, hits and misses.

Knows: the options and tables. Does not know: how steps are recorded or misses counted (``teach``).
"""

from __future__ import annotations

import argparse
import textwrap
from typing import TYPE_CHECKING

from rich.console import Console

from ..errors import BlisgemmValueError
from .console import bytes_text, figures_table, print_facts, print_table, verbatim

if TYPE_CHECKING:
    from ..machine.facts import Machine
    from ..teach.cachesim import Counts
    from ..teach.trace import Trace
    from ..teach.traffic import Traffic

__all__ = ["HELP", "add_arguments", "run"]

HELP = "follow the five loops step by step, and count what the caches do"

# Terms up to which the triple loop is counted beside a product for comparison; it takes a second. Source: our choice.
_PLAIN_TERMS = 256**3

_ORDER = "ijk"  # of the triple loop, as everybody writes it first


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the extents, the machine, the blocks and the forms."""
    parser.add_argument("m", type=int, help="rows of A and C")
    parser.add_argument("n", type=int, help="columns of B and C")
    parser.add_argument("k", type=int, help="columns of A, rows of B")
    parser.add_argument("--dtype", default="float32", help="element type (default: float32)")
    parser.add_argument(
        "--machine", metavar="NAME", help="a known machine, such as haswell, or teaching (default: here)"
    )
    parser.add_argument("--blocking", metavar="MC,NC,KC", help="cache blocks in place of the model's")
    parser.add_argument("--mr", type=int, help="rows of the micro-tile, with --nr, in place of a kernel's")
    parser.add_argument("--nr", type=int, help="columns of the micro-tile")
    parser.add_argument("--kernel", help="a kernel of the catalog, such as f32_6x16_avx2")
    parser.add_argument("--path", help="direct, sweep, stream, strips or packed, in place of the rule")
    parser.add_argument("--half", action=argparse.BooleanOptionalAction, help="read A as it lies, or pack it")
    parser.add_argument("--threads", type=int, default=1, help="for how many threads the work is cut (default: 1)")
    parser.add_argument("--steps", type=int, default=16, help="steps to show (default: 16)")
    parser.add_argument("--from", type=int, default=0, dest="first", metavar="STEP", help="the first of them")
    parser.add_argument("--cache", action="store_true", help="count hits, misses and traffic, beside the textbook's")
    parser.add_argument("--json", action="store_true", help="as JSON: all steps, and with --cache all counts")


def run(args: argparse.Namespace, console: Console) -> int:
    """Trace the product and print its steps, and what they do to the caches."""
    for name, value in (("--steps", args.steps), ("--from", args.first)):
        if value < 0:
            raise BlisgemmValueError(f"{name}: expected at least 0; got {value}")
    from ..teach.elsewhere import machine_named
    from ..teach.trace import trace

    steps = trace(
        args.m, args.n, args.k, machine=args.machine, dtype=args.dtype, kernel=args.kernel,
        blocking=_blocking(args.blocking), path=args.path, mr=args.mr, nr=args.nr, half=args.half, threads=args.threads,
    )  # fmt: skip
    machine = machine_named(args.machine)
    if args.json:
        _print_json(console, steps, machine, args.cache)
        return 0
    _print_steps(console, steps, args.first, args.steps)
    if args.cache:
        _print_cache(console, steps, machine)
    return 0


def _blocking(text: str | None) -> tuple[int, int, int] | None:
    if text is None:
        return None
    parts = text.replace(" ", "").split(",")
    if len(parts) != 3 or not all(part.isdecimal() for part in parts):
        raise BlisgemmValueError(f"--blocking: expected MC,NC,KC, three integers; got {text!r}")
    mc, nc, kc = (int(part) for part in parts)
    return mc, nc, kc


def _print_json(console: Console, steps: Trace, machine: Machine, cache: bool) -> None:
    import json

    told = steps.to_dict()
    if cache:
        from ..teach.cachesim import simulate_trace

        told["cache"] = simulate_trace(steps, machine).to_dict()
    verbatim(console, json.dumps(told, separators=(",", ":")))


def _print_steps(console: Console, steps: Trace, first: int, most: int) -> None:
    """Print the product, its blocks, how often each kind of step comes, and some of the steps."""
    from ..teach.trace import KINDS

    counts = ", ".join(f"{steps.count(kind):,} {name}" for kind, name in enumerate(KINDS) if steps.count(kind))
    facts = [
        ("product", f"({steps.m} x {steps.k}) * ({steps.k} x {steps.n}), {steps.dtype}, on {steps.machine}"),
        ("path", steps.path + (", A as it lies" if steps.half else "") + (", transposed" if steps.swapped else "")),
        ("micro-tile", f"mr {steps.mr}  nr {steps.nr}" + (f"  ({steps.kernel})" if steps.kernel else "")),
        ("blocks", f"mc {steps.mc}  nc {steps.nc}  kc {steps.kc}" if steps.path == "packed" else f"kc {steps.kc}"),
        ("steps", counts or "none"),
    ]
    print_facts(console, facts)
    shown = list(steps.lines(first, most))
    if shown:
        verbatim(console, "")
    for line in shown:
        verbatim(console, line)
    left = len(steps) - first - len(shown)
    if left > 0:
        verbatim(console, f"     ...  {left:,} more (--from, --steps)")


def _print_cache(console: Console, steps: Trace, machine: Machine) -> None:
    """Print hits and misses by level and operand, then bytes between the levels beside the textbook's."""
    from ..teach.cachesim import simulate_trace
    from ..teach.traffic import WHY_THEY_DIFFER, trace_traffic

    counts = simulate_trace(steps, machine)
    _print_misses(console, counts)
    expected = trace_traffic(steps, machine) if len(steps) else None
    plain = _plain(steps, machine)
    _print_traffic(console, counts, expected, plain)
    if expected is not None:
        verbatim(console, "")
        verbatim(console, textwrap.fill(f"Where they differ: {WHY_THEY_DIFFER}", min(console.width, 120)))
    _print_textbook(console, steps, counts)


def _print_misses(console: Console, counts: Counts) -> None:
    """Print a table of the levels, and one of the operands."""
    names = [f"L{level.level}" for level in counts.levels]
    verbatim(console, "")
    table = figures_table("cache", "size", "sets x ways", "hits", "misses", "share")
    for row, level in enumerate(counts.levels):
        hits, misses = int(counts.hits[row].sum()), int(counts.misses[row].sum())
        share = f"{misses / (hits + misses):.2%}" if hits + misses else ""
        sets = f"{level.sets:,} x {level.ways}"
        table.add_row(names[row], bytes_text(level.size_bytes), sets, f"{hits:,}", f"{misses:,}", share)
    print_table(console, table)
    verbatim(console, "")
    table = figures_table("misses", "accesses", *(f"of {name}" for name in names))
    for x, operand in enumerate(counts.operands):
        accesses = int(counts.hits[0, x] + counts.misses[0, x])
        if accesses:
            table.add_row(operand, f"{accesses:,}", *(f"{int(misses):,}" for misses in counts.misses[:, x]))
    print_table(console, table)


def _plain(steps: Trace, machine: Machine) -> tuple[str, list[int]]:
    """Return how the triple loop's bytes were got, and the bytes."""
    import numpy as np

    from ..teach.cachesim import loop_order_stream, simulate
    from ..teach.streams import sizes_of
    from ..teach.traffic import loops_traffic

    m, n, k, itemsize = steps.m, steps.n, steps.k, int(np.dtype(steps.dtype).itemsize)
    if m * n * k <= _PLAIN_TERMS:
        counts = simulate(loop_order_stream(_ORDER, m, n, k), machine, itemsize=itemsize, sizes=sizes_of(steps))
        return "counted", [counts.element_bytes, *counts.traffic_bytes]
    return "predicted", [each.bytes for each in loops_traffic(_ORDER, m, n, k, machine, itemsize=itemsize).levels]


def _print_traffic(console: Console, counts: Counts, expected: Traffic | None, plain: tuple[str, list[int]]) -> None:
    from ..teach.traffic import compare

    how, of_plain = plain
    verbatim(console, "")
    if expected is None:
        table = figures_table("bytes between", "counted", f"loops {_ORDER}, {how}")
        names = ["registers", *(f"L{x.level}" for x in counts.levels), "memory"]
        for row, count in enumerate((counts.element_bytes, *counts.traffic_bytes)):
            table.add_row(f"{names[row]} and {names[row + 1]}", f"{count:,}", f"{of_plain[row]:,}")
    else:
        table = figures_table("bytes between", "predicted", "counted", "ratio", f"loops {_ORDER}, {how}")
        for each, other in zip(compare(expected, counts), of_plain, strict=True):
            table.add_row(each.between, f"{each.predicted:,}", f"{each.counted:,}", f"{each.ratio:.2f}", f"{other:,}")
    print_table(console, table)


def _print_textbook(console: Console, steps: Trace, counts: Counts) -> None:
    """Print the reads of A and B that the textbook counts with and without tiles."""
    from ..teach.traffic import tile_reads

    m, n, k, mr, nr = steps.m, steps.n, steps.k, min(steps.mr, steps.m), min(steps.nr, steps.n)
    if not m * n * k:
        return
    naive, tiled = tile_reads(m, n, k), tile_reads(m, n, k, mr, nr)
    tiles = f"tiles of {mr} x {nr} in registers read m n k (1/{nr} + 1/{mr}) = {tiled:,.0f}"
    textbook = f"one element of C at a time reads 2 m n k = {naive:,.0f} elements of A and B; {tiles}"
    moved = zip(counts.levels, counts.traffic_bytes, strict=True)
    intensity = ", ".join(f"beyond L{level.level} {2 * m * n * k / x:.3g}" for level, x in moved if x)
    verbatim(console, "")
    print_facts(
        console,
        [("textbook", f"{textbook}, {naive / tiled:.1f} times fewer"), ("flops/byte", f"{intensity}, counted")],
    )
