"""Draw the roofline: how fast this machine, another or a GPU can be, and where a product or the ladder lies under it.

Knows: the options, what is measured and in which order. Does not know: bytes, rates or charts (``teach``), or how
anything is timed (``bench.rates``, ``bench.rungs``).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from .console import CommandError, check_picture, verbatim

if TYPE_CHECKING:
    from ..plan import Plan
    from ..teach.rates import Rates
    from ..teach.roofline import Point, Roofline

__all__ = ["HELP", "add_arguments", "run"]

HELP = "how fast a machine can be, and where a product lies under its roofs"

_TIMED_SECONDS = 0.5  # of a product


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the machine, what is placed, and the forms."""
    parser.add_argument("extents", type=int, nargs="*", metavar="M N K", help="a product to place")
    parser.add_argument("--dtype", default="float32", help="element type (default: float32)")
    parser.add_argument("--threads", type=int, help="so many threads (default: 1)")
    parser.add_argument(
        "--machine", metavar="NAME", help="a machine's data sheet, such as haswell, in place of measuring"
    )
    parser.add_argument("--device", metavar="NAME", help="a GPU's data sheet, such as h200")
    parser.add_argument("--time", action="store_true", help="time the product here as well")
    parser.add_argument(
        "--ladder", type=int, metavar="N", help="time the ladder's rungs at m = n = k = N and place them"
    )
    parser.add_argument("--seconds", type=float, default=3.0, help="about how long to measure the roofs (default: 3)")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw a picture (.png, .svg)")
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(args: argparse.Namespace, console: Console) -> int:
    """Measure or look up the roofs, place what is asked for, and print or draw it."""
    _check(args)
    words = ""
    if args.device is not None:
        from ..teach.placing import device_roofline

        chart, words = device_roofline(args.device, tuple(args.extents) or None, args.dtype)
    else:
        chart = _on_cpu(args, console)
    if args.plot is not None:
        from ..teach.roofplot import draw_roofline

        draw_roofline(chart, args.plot)
    verbatim(console, json.dumps(chart.to_dict(), indent=2, ensure_ascii=False) if args.json else str(chart))
    if words and not args.json:
        verbatim(console, words)
    return 0


def _check(args: argparse.Namespace) -> None:
    if len(args.extents) not in (0, 3) or any(extent < 1 for extent in args.extents):
        raise CommandError(f"M N K: expected three extents of at least 1; got {' '.join(map(str, args.extents))}")
    if args.machine is not None and args.device is not None:
        raise CommandError("--machine: expected nothing beside --device")
    if args.machine is not None or args.device is not None:
        if args.time or args.ladder is not None:
            raise CommandError("--time, --ladder: expected on this machine only, without --machine or --device")
    elif args.dtype not in ("float32", "float64", "complex64", "complex128"):
        raise CommandError(f"--dtype: expected float32, float64, complex64 or complex128; got {args.dtype}")
    if args.time and not args.extents:
        raise CommandError("--time: expected M N K")
    if args.ladder is not None and (args.ladder < 16 or args.dtype not in ("float32", "float64")):
        raise CommandError("--ladder: expected at least 16, in float32 or float64")
    if not 0 < args.seconds < 3600:
        raise CommandError(f"--seconds: expected a positive number; got {args.seconds}")
    if args.device is not None and args.threads is not None:
        raise CommandError("--threads: expected nothing beside --device")
    if args.plot is not None:
        check_picture("--plot", args.plot)


def _on_cpu(args: argparse.Namespace, console: Console) -> Roofline:
    from ..parallel import check_threads
    from ..teach.elsewhere import machine_named, plan_on
    from ..teach.placing import product_roofline

    threads = check_threads(args.threads) if args.threads is not None else 1
    plan: Plan | None = None
    if args.extents:
        m, n, k = args.extents
        plan = plan_on(args.machine, m, n, k, args.dtype, threads=threads)
    rates: Rates | None = None
    measured: float | None = None
    points: tuple[Point, ...] = ()
    if args.machine is None:
        from ..bench.rates import measure_rates

        with console.status("measuring") as status:
            rates = measure_rates(args.dtype, threads, args.seconds, lambda what: status.update(f"measuring {what}"))
            if plan is not None and args.time:
                status.update("timing the product")
                measured = _time(plan, threads)
            if args.ladder is not None:
                status.update("climbing the ladder")
                points = _climb(args.ladder, args.dtype)
    return product_roofline(plan, args.dtype, threads, rates, machine_named(args.machine), measured, points)


def _time(plan: Plan, threads: int) -> float:
    """Return flops per second of a product: the median of repeated calls, operands hot."""
    from ..bench.rates import time_product

    return time_product(plan, threads, _TIMED_SECONDS)


def _climb(n: int, dtype: str) -> tuple[Point, ...]:
    from ..bench.rungs import climb
    from ..teach.elsewhere import plan_on
    from ..teach.placing import rung_points

    found = climb(n, dtype, 1, 4.0)
    plan = plan_on(None, n, n, n, dtype, path="packed", threads=1)
    return rung_points([(rung.name, rung.gflops * 1e9) for rung in found.rungs if rung.threads == 1], plan)
