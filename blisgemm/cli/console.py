"""How the commands print: one console, one table style, numbers with their units.

Knows: Rich. Does not know: what is printed. Called by every command.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

__all__ = [
    "CommandError", "bytes_text", "can_draw", "check_markers", "check_output", "check_picture", "figures_table",
    "make_console", "print_facts", "print_plan", "print_table", "seconds_text", "verbatim",
]  # fmt: skip


_FACT_INDENT = 12
_WIDEST = 1000  # columns of a table; more than any has
_NARROWEST = 12  # columns for a fact; on a narrower terminal its lines go on in the next
_PLAN_INDENT = 12  # past the words "path", "kernel", "because" of str(plan)


class CommandError(Exception):
    """An input that a command cannot use; the message is one line."""


def check_output(option: str, path: Path) -> None:
    """Check, before any work is done, that a file can be made there.

    Raises:
        CommandError: its folder isn't there, or it is a folder itself.
    """
    if not path.parent.is_dir():
        raise CommandError(f"{option}: expected a file in an existing folder; {path.parent} isn't one")
    if path.is_dir():
        raise CommandError(f"{option}: expected a file; {path} is a folder")


def check_picture(option: str, path: Path) -> None:
    """Check, before any work is done, that a picture can be drawn there.

    Raises:
        CommandError: as ``check_output``; or matplotlib isn't there, or knows no such format.
    """
    check_output(option, path)
    try:
        import matplotlib  # noqa: F401
        from matplotlib.backend_bases import FigureCanvasBase
    except ImportError:
        raise CommandError(f"{option} needs matplotlib: pip install 'blisgemm[plot]'") from None
    known = FigureCanvasBase.get_supported_filetypes()
    if path.suffix[1:].lower() not in known:
        raise CommandError(f"{option}: expected a file that ends in one of .{', .'.join(sorted(known))}; got {path}")


def check_markers(option: str, path: Path, name: str) -> None:
    """Check, before any work is done, that a table can be put between the markers of that name in a file.

    Raises:
        CommandError: there is no such file, or it doesn't have each of them once.
    """
    from ..bench import tables
    from ..errors import BlisgemmValueError

    if not path.is_file():
        raise CommandError(f"{option}: expected a file with the {name} markers; {path} isn't there")
    try:
        tables.check_markers(path, name)
    except BlisgemmValueError as error:
        raise CommandError(f"{option}: {error}") from None


class _Console(Console):
    """A console whose reader may leave: the command ends as the shell expects, not Rich's way."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def make_console() -> Console:
    """Return the console of standard output: no colour unless it is a terminal, nothing guessed from text."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # an encoding without ᵀ or █ is no reason to stop
    return _Console(highlight=False, markup=False, emoji=False, soft_wrap=False)


def verbatim(console: Console, text: str, style: str | None = None) -> None:
    """Print text as it is: no wrapping, no padding, no interpretation."""
    console.print(text, style=style, soft_wrap=True)


def can_draw(console: Console) -> bool:
    """Whether block characters survive the output's encoding."""
    return console.encoding.lower().startswith("utf")


def print_facts(console: Console, facts: Iterable[tuple[str, str]]) -> None:
    """Print two columns: what, and the fact, wrapped beside it."""
    for what, fact in facts:
        lines = textwrap.wrap(fact, max(_NARROWEST, console.width - _FACT_INDENT), break_on_hyphens=False) or [""]
        for line in lines:
            console.print(Text(f"{what:<{_FACT_INDENT}}", style="bold") + Text(line, style="not bold"), soft_wrap=True)
            what = ""


def print_plan(console: Console, plan: str) -> None:
    """Print a plan: as it is into a pipe, its long lines wrapped on a terminal."""
    for line in plan.splitlines():
        if console.is_terminal:
            line = textwrap.fill(
                line, max(2 * _NARROWEST, console.width), subsequent_indent=" " * _PLAN_INDENT, break_on_hyphens=False
            )
        verbatim(console, line)


def figures_table(*columns: str, left: int = 1) -> Table:
    """Return a table of figures: the first ``left`` columns lean left, the others right."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold", show_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number < left else "right", no_wrap=True)
    return table


def print_table(console: Console, table: Table) -> None:
    """Print a table as wide as its figures are: a narrow terminal breaks its lines, but no digit is left out."""
    table.width = console.measure(table, options=console.options.update(width=_WIDEST)).maximum
    console.print(table, crop=False)


def bytes_text(count: int) -> str:
    """Return bytes with a binary unit: ``48 KiB``, ``1.25 MiB``."""
    value, unit = float(count), "bytes"
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{value:.3g} {unit}" if value < 1000 else f"{value:.0f} {unit}"


def seconds_text(seconds: float) -> str:
    """Return a duration with the unit that suits it."""
    for factor, unit in ((1.0, "s"), (1e3, "ms")):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"
