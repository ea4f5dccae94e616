"""How the commands print: one console, one table style, numbers with their units.

Knows: Rich. Does not know: what is printed. Called by every command.
"""

from __future__ import annotations

from collections.abc import Iterable

from rich import box
from rich.console import Console
from rich.table import Table

__all__ = [
    "CommandError", "bytes_text", "can_draw", "facts_table", "figures_table", "make_console", "seconds_text", "verbatim",
]  # fmt: skip


class CommandError(Exception):
    """An input that a command cannot use; the message is one line."""


def make_console() -> Console:
    """Return the console of standard output: no colour unless it is a terminal, nothing guessed from text."""
    return Console(highlight=False, markup=False, emoji=False, soft_wrap=False)


def verbatim(console: Console, text: str, style: str | None = None) -> None:
    """Print text as it is: no wrapping, no padding, no interpretation."""
    console.print(text, style=style, soft_wrap=True)


def can_draw(console: Console) -> bool:
    """Whether block characters survive the output's encoding."""
    return console.encoding.lower().startswith("utf")


def facts_table(facts: Iterable[tuple[str, str]]) -> Table:
    """Return two columns: what, and the fact, wrapped beside it."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True, min_width=10)
    table.add_column(overflow="fold")
    for what, fact in facts:
        table.add_row(what, fact)
    return table


def figures_table(*columns: str, left: int = 1) -> Table:
    """Return a table of figures: the first ``left`` columns lean left, the others right."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold", show_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number < left else "right", no_wrap=True)
    return table


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
