"""Write one HTML file that plays the five loops of a product, step by step.

Knows: how the choices are told. Does not know: what the page holds (``teach.page_model``) or how it is made
(``teach.page``).
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console

from ..errors import BlisgemmValueError
from .console import CommandError, bytes_text, check_output, verbatim

__all__ = ["HELP", "add_arguments", "add_product", "blocking_of", "run"]

HELP = "a page that plays the five loops, with caches and registers"


def add_product(parser: argparse.ArgumentParser) -> None:
    """Declare the product, the machine and the blocks to start with."""
    parser.add_argument("m", type=int, help="rows of A and C")
    parser.add_argument("n", type=int, help="columns of B and C")
    parser.add_argument("k", type=int, help="columns of A, rows of B")
    parser.add_argument(
        "--machine",
        metavar="NAME",
        help="a machine by name, such as haswell (default: teaching, a tiny one, for small products, else this one)",
    )
    parser.add_argument("--dtype", default="float32", help="element type (default: float32)")
    parser.add_argument("--blocking", metavar="MC,NC,KC", help="the blocks to start with")
    parser.add_argument("--mr", type=int, help="rows of the micro-tile, for this one alone")
    parser.add_argument("--nr", type=int, help="columns of the micro-tile, for this one alone")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the product and the file."""
    add_product(parser)
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="where to write the page")


def blocking_of(text: str | None) -> tuple[int, int, int] | None:
    """Return (mc, nc, kc) of ``MC,NC,KC``.

    Raises:
        BlisgemmValueError: not three integers.
    """
    if text is None:
        return None
    try:
        mc, nc, kc = (int(part) for part in text.split(","))
    except ValueError:
        raise BlisgemmValueError(f"blocking: expected three integers MC,NC,KC; got {text!r}") from None
    return mc, nc, kc


def run(args: argparse.Namespace, console: Console) -> int:
    """Make the page and write it."""
    from ..teach.page import page

    check_output("-o", Path(args.output))
    text = page(
        args.m, args.n, args.k, machine=args.machine, dtype=args.dtype, blocking=blocking_of(args.blocking), mr=args.mr,
        nr=args.nr,
    ).encode()  # fmt: skip
    try:
        Path(args.output).write_bytes(text)
    except OSError as error:
        raise CommandError(f"{args.output}: {error.strerror or error}") from None
    verbatim(console, f"{args.output}: {bytes_text(len(text))}; open it in a browser, it needs no network")
    return 0
