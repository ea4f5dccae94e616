"""The command line, ``python -m blisgemm``: one file per command.

Knows: which commands exist, and how an error ends the process. Does not know: what a command does.
Called by ``__main__`` and the ``blisgemm`` script. Rich is imported here and nowhere else in the
package, so that a program which only multiplies matrices does not need it.

A command is a module with ``HELP``, ``add_arguments(parser)`` and ``run(args, console) -> status``. Status
0 is success, 1 a check that failed, 2 an input that cannot be used: one line on standard error.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from contextlib import suppress

__all__ = ["COMMANDS", "main"]

COMMANDS = (
    "demo", "info", "mul", "explain", "asm", "bench", "ladder", "roofline", "trace", "page", "serve", "tune",
    "selftest",
)  # fmt: skip

_DESCRIPTION = "Matrix multiply after Goto and BLIS: fast on any array, the same bits on every machine."
_EXAMPLES = """\
examples:
  python -m blisgemm demo                        see it work, and how fast it is here
  python -m blisgemm mul a.npy b.csv -o c.npy    multiply matrices in files
  python -m blisgemm explain 1000 1000 1000      what would run for this product, and why
  python -m blisgemm asm f32_8x12_neon           read a kernel, for any processor
  python -m blisgemm bench --shapes 1000,skinny  measure against NumPy, MKL, torch and others
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status.

    Args:
        argv: the words after the program's name; ``None`` takes those of the process.
    """
    if importlib.util.find_spec("rich") is None:
        return _fail("blisgemm", "the command line needs the package rich: pip install 'blisgemm[cli]'")
    parser = _make_parser()
    try:
        args = parser.parse_args(argv)
    except SystemExit as end:  # argparse has printed its message
        return end.code if isinstance(end.code, int) else 2
    if args.command is None:
        parser.print_help()
        return 0
    return _run(args)


def _make_parser() -> argparse.ArgumentParser:
    from .._version import __version__

    started_by_module = os.path.basename(sys.argv[0]) == "__main__.py"
    parser = argparse.ArgumentParser(
        prog="python -m blisgemm" if started_by_module else "blisgemm",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"blisgemm {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="command")
    for name in COMMANDS:
        module = importlib.import_module(f".{name}", __name__)
        command = commands.add_parser(name, help=module.HELP, description=(module.__doc__ or "").partition("\n")[0])
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    return parser


def _run(args: argparse.Namespace) -> int:
    from ..errors import BlisgemmError
    from .console import CommandError, make_console

    name = f"blisgemm {args.command}"
    try:
        return int(args.run(args, make_console()))
    except (BlisgemmError, CommandError) as error:
        return _fail(name, str(error))
    except MemoryError as error:
        return _fail(name, f"not enough memory: {error}" if str(error) else "not enough memory")
    except BrokenPipeError:  # the reader, such as head, has seen enough
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141  # 128 + SIGPIPE, as shells count
    except OSError as error:  # a file that a command was to write or read, or standard output
        place = "" if error.filename is None else f"{error.filename}: "
        return _fail(name, f"{place}{error.strerror or error}")
    except KeyboardInterrupt:
        sys.stderr.write("\n")
        return 130  # 128 + SIGINT, as shells count


def _fail(name: str, message: str) -> int:
    sys.stderr.write(f"{name}: error: {' '.join(message.split())}\n")
    return 2
