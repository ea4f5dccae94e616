"""Say what would run for an m x k by k x n product, and why.

Knows: which choices a plan takes. Does not know: how it is made (``plan``).
"""

from __future__ import annotations

import argparse

from rich.console import Console

from ..errors import BlisgemmValueError
from .console import print_plan

__all__ = ["HELP", "add_arguments", "run"]

HELP = "what would run for a product, and why"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the extents and the choices."""
    parser.add_argument("m", type=int, help="rows of A and C")
    parser.add_argument("n", type=int, help="columns of B and C")
    parser.add_argument("k", type=int, help="columns of A, rows of B")
    parser.add_argument("--dtype", default="float32", help="element type (default: float32)")
    parser.add_argument("--kernel", help="a kernel of the catalog, such as f32_6x16_avx2")
    parser.add_argument("--threads", type=int, help="at most so many threads")
    parser.add_argument("--device", help="a GPU by name, such as h200 or rtx4090: its plan, without needing one here")


def run(args: argparse.Namespace, console: Console) -> int:
    """Print the plan."""
    if args.device is not None:
        for name in ("kernel", "threads"):
            if getattr(args, name) is not None:
                raise BlisgemmValueError(f"{name}: expected nothing beside --device; got {getattr(args, name)}")
        from .. import cuda

        print_plan(console, str(cuda.make_plan(args.m, args.n, args.k, args.dtype, device=args.device)))
        return 0
    from ..plan import make_plan

    plan = make_plan(args.m, args.n, args.k, args.dtype, kernel=args.kernel, threads=args.threads)
    print_plan(console, str(plan))
    return 0
