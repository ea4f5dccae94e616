"""Say what would run for an m x k by k x n product, and why.

Knows: which choices a plan takes, and in which forms it is explained. Does not know: how it is made (``plan``), or what
follows from it (``teach.explain``).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from ..errors import BlisgemmValueError
from .console import CommandError, check_output, print_plan, verbatim

if TYPE_CHECKING:
    from ..plan import Plan

__all__ = ["HELP", "add_arguments", "run"]

HELP = "what would run for a product, and why"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the extents, the choices and the forms."""
    parser.add_argument("m", type=int, help="rows of A and C")
    parser.add_argument("n", type=int, help="columns of B and C")
    parser.add_argument("k", type=int, help="columns of A, rows of B")
    parser.add_argument("--dtype", default="float32", help="element type (default: float32)")
    parser.add_argument("--kernel", help="a kernel of the catalog, such as f32_6x16_avx2")
    parser.add_argument("--threads", type=int, help="at most so many threads")
    parser.add_argument("--device", help="a GPU by name, such as h200 or rtx4090: its plan, without needing one here")
    parser.add_argument("--machine", metavar="NAME", help="another machine by name, such as haswell or apple-m1")
    parser.add_argument(
        "--deep", action="store_true", help="also caches, expected bytes and times, and what else there was"
    )
    parser.add_argument("--json", action="store_true", help="all of it as JSON")
    parser.add_argument("--html", metavar="FILE", type=Path, help="all of it as a page without external references")


def run(args: argparse.Namespace, console: Console) -> int:
    """Print the plan, or all that follows from it."""
    if args.device is not None:
        for name in ("kernel", "threads", "machine", "deep", "json", "html"):
            if getattr(args, name) not in (None, False):
                raise BlisgemmValueError(f"{name}: expected nothing beside --device; got {getattr(args, name)}")
        from .. import cuda

        print_plan(console, str(cuda.make_plan(args.m, args.n, args.k, args.dtype, device=args.device)))
        return 0
    from ..teach.elsewhere import machine_named, plan_on

    if args.html is not None:
        check_output("html", args.html)
    threads = args.threads
    if threads is None and args.machine is not None:
        threads = machine_named(args.machine).cores

    def make(**choices: object) -> Plan:
        choices = {"kernel": args.kernel, **choices}
        return plan_on(args.machine, args.m, args.n, args.k, args.dtype, threads=threads, **choices)

    plan = make()
    if not (args.deep or args.json or args.html):
        print_plan(console, str(plan))
        return 0
    from ..teach.explain import explain_plan

    explained = explain_plan(plan, make)
    if args.html is not None:
        from ..teach.html import page

        try:
            args.html.write_text(page(explained), encoding="utf-8")
        except OSError as error:
            raise CommandError(f"html: cannot write {args.html}: {error.strerror or error}") from None
    if args.json:
        verbatim(console, json.dumps(explained.to_dict(), indent=2, ensure_ascii=False))
    elif args.deep:
        print_plan(console, str(explained))
    else:
        verbatim(console, f"written to {args.html}")
    return 0
