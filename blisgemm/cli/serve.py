"""Serve that page on this computer alone, and work out any blocks as its sliders ask for them.

Knows: how the server is started and stopped. Does not know: what it answers (``teach.server``).
"""

from __future__ import annotations

import argparse

from rich.console import Console

from .console import CommandError
from .page import add_product, blocking_of

__all__ = ["HELP", "add_arguments", "run"]

HELP = "the same page from this computer, for any blocks"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the product and the port."""
    add_product(parser)
    parser.add_argument("--port", type=int, default=8000, help="port on 127.0.0.1; 0: any that is free (default: 8000)")


def run(args: argparse.Namespace, console: Console) -> int:
    """Serve until interrupted."""
    from ..teach.page_model import make_model
    from ..teach.server import make_server

    model = make_model(
        args.m, args.n, args.k, machine=args.machine, dtype=args.dtype, blocking=blocking_of(args.blocking), mr=args.mr,
        nr=args.nr, every=True,
    )  # fmt: skip
    try:
        server = make_server(model, args.port)
    except OSError as error:
        raise CommandError(f"port {args.port}: {error.strerror or error}") from None
    with server:
        try:
            _say(console, f"http://127.0.0.1:{server.server_port}/  (Ctrl-C stops)")
            server.serve_forever()
        except KeyboardInterrupt:
            _say(console, "stopped")
    return 0


def _say(console: Console, text: str) -> None:
    """Write a line at once, past Rich's buffer, which would repeat a line that Ctrl-C interrupts."""
    console.file.write(f"{text}\n")
    console.file.flush()
