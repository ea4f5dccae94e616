"""Measure which blocks, tiles and limits beat the model on this machine, and keep those that do.

Knows: the words of the command, the table, and how the file is written: whole or not at all. Does not know: what is
tried and what wins (``tuner``), what a file may hold (``tuning``), how a product is timed (``products``).
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import importlib.util
import math
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from ..errors import BlisgemmWarning
from .console import CommandError, figures_table, print_table, verbatim
from .race import other_work

__all__ = ["HELP", "add_arguments", "run"]

HELP = "measure what is faster than the model on this machine (a minute)"

_SECONDS = 60.0
_NAMES = {"direct_share": "direct: B/L2", "direct_terms": "direct: m n k"}  # for the table; others as they are


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what to tune, for how long, and where to."""
    parser.add_argument("--dtype", default="f32,f64", metavar="LIST", help="of f32,f64,c64,c128 (default: f32,f64)")
    parser.add_argument("--threads", type=int, metavar="N", help="what products may use (default: all)")
    parser.add_argument("--seconds", type=float, default=_SECONDS, help=f"for all of it (default: {_SECONDS:.0f})")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="in place of the file in use")
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--dry-run", action="store_true", help="measure, save nothing")
    instead.add_argument("--show", action="store_true", help="print the file in use, measure nothing")
    instead.add_argument("--forget", action="store_true", help="delete the file in use, measure nothing")


def run(args: argparse.Namespace, console: Console) -> int:
    """Tune, show or forget."""
    from ..machine import current
    from ..tuning import default_file, file_in_use

    machine = current()
    path = args.output or file_in_use(machine)
    if args.show:
        return _show(console, path)
    if args.forget:
        return _forget(console, path or default_file(machine))
    dtypes, threads = _dtypes(args.dtype), _threads(args.threads)
    if not (math.isfinite(args.seconds) and args.seconds > 0):
        raise CommandError(f"--seconds: expected a number above 0; got {args.seconds:g}")
    target = path or default_file(machine)
    if not args.dry_run:
        _expect_writable(target)
    if busy := other_work():
        console.print(busy, style="yellow")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", BlisgemmWarning)  # of the file that is about to be written
            findings = list(_search(console, dtypes, threads, args.seconds))
    except KeyboardInterrupt:
        sys.stderr.write("\nblisgemm tune: interrupted, nothing is saved\n")
        return 130  # 128 + SIGINT, as shells count
    _print_table(console, findings, threads)
    choices = [finding.choice for finding in findings if finding.choice is not None]
    if args.dry_run:
        verbatim(console, "Nothing is saved (--dry-run).")
        return 0
    return _keep(console, target, choices, {(dtype, threads) for dtype in dtypes})


def _dtypes(text: str) -> list[str]:
    from ..ukernel.spec import SHORT_NAMES

    long_names = {short: name for name, short in SHORT_NAMES.items()}
    names = [long_names.get(word.strip(), word.strip()) for word in text.split(",") if word.strip()]
    unknown = [name for name in names if name not in SHORT_NAMES]
    if unknown or not names:
        raise CommandError(f"--dtype: expected a list of {', '.join(long_names)}; got {text!r}")
    return list(dict.fromkeys(names))


def _threads(asked: int | None) -> int:
    from ..parallel import check_threads, get_num_threads

    most = get_num_threads()
    threads = most if asked is None else check_threads(asked, "--threads")
    if threads > most:
        raise CommandError(f"--threads: expected at most {most}, which products may use here; got {threads}")
    return threads


# ---- search and table ------------------------------------------------------------------------------


def _search(console: Console, dtypes: Sequence[str], threads: int, seconds: float) -> Iterator[Any]:
    from ..tuner import find_choices
    from .products import ProductWatch

    today = datetime.date.today().isoformat()
    with _bar(console, seconds) as (tell, tick):
        for dtype in dtypes:
            watch = ProductWatch(dtype, tick)

            def say(text: str, dtype: str = dtype) -> None:
                tell(f"{dtype}, {threads} thread{'s' * (threads > 1)}: {text}")

            yield from find_choices(dtype, threads, seconds / len(dtypes), watch, today, say)


@contextlib.contextmanager
def _bar(console: Console, seconds: float) -> Iterator[tuple[Callable[[str], None], Callable[[], None]]]:
    """Show a bar on a terminal, nothing elsewhere; yields what names the next step and what moves it on."""
    columns = (BarColumn(24), TimeRemainingColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=seconds)

        def tick() -> None:
            progress.update(task, completed=min(seconds, progress.tasks[0].elapsed or 0))

        yield lambda text: progress.update(task, description=text), tick


def _print_table(console: Console, findings: Sequence[Any], threads: int) -> None:
    from ..ukernel.spec import SHORT_NAMES

    verbatim(console, f"Products on {threads} thread{'s' * (threads > 1)}", "bold")
    table = figures_table("dtype", "choice", "model", "best", "times as fast", "", left=2)
    table.columns[-1].justify = "left"
    for x in findings:
        ratio = f"{x.ratio.median:.3f} ({x.ratio.low:.3f}–{x.ratio.high:.3f})" if x.ratio else ""
        values = (_text(x.what, x.model), _text(x.what, x.best))
        style = "bold" if x.choice else None
        table.add_row(SHORT_NAMES[x.dtype], _NAMES.get(x.what, x.what), *values, ratio, x.note, style=style)
    print_table(console, table)
    console.print(
        "The model's time by the other's: median (quartiles) of rounds in turn, every product checked first. "
        "Kept: the median above 1.01, lower quartile above 1, no shape below 0.99, and a second time so."
    )


def _text(what: str, value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.1%}" if what == "direct_share" else f"{value:,}"


# ---- the file --------------------------------------------------------------------------------------


def _show(console: Console, path: Path | None) -> int:
    """Print the file as it is; 1 if plans ignore any of it."""
    from ..machine import current
    from ..tuning import read, shown

    if path is None:
        verbatim(console, "BLISGEMM_TUNING turns tuning off: the model decides.")
        return 0
    found = read(path, current(), named=True)
    if not path.exists():
        verbatim(console, f"There is no {shown(path)}: the model decides. python -m blisgemm tune makes it.")
        return 0
    verbatim(console, f"# {shown(path)}{': ' + found.ignored if found.ignored else ''}")
    with contextlib.suppress(OSError, ValueError):
        verbatim(console, path.read_text(encoding="utf-8").rstrip())
    return 1 if found.ignored else 0


def _forget(console: Console, path: Path) -> int:
    from ..tuning import shown

    try:
        path.unlink()
    except FileNotFoundError:
        verbatim(console, f"There is no {shown(path)}: nothing to forget.")
    except OSError as error:
        raise CommandError(f"cannot delete {shown(path)}: {error.strerror or error}") from None
    else:
        verbatim(console, f"Deleted {shown(path)}: the model decides, in processes that start from now on.")
    return 0


def _expect_writable(path: Path) -> None:
    """Raise before the minute is spent, not after it, if the file could not be written."""
    from ..tuning import shown

    if importlib.util.find_spec("tomli_w") is None:
        raise CommandError("saving needs the package tomli-w: pip install 'blisgemm[cli]', or --dry-run")
    try:
        if path.is_dir():
            raise IsADirectoryError(21, "it is a folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".tmp")
        os.close(handle)
        os.unlink(temporary)
    except OSError as error:
        raise CommandError(
            f"cannot write {shown(path)}: {error.strerror or error}; name another file with -o, or --dry-run"
        ) from None


def _keep(console: Console, path: Path, choices: Sequence[Any], tuned: set[tuple[str, int]]) -> int:
    """Save the new choices with those of a good file for other dtypes and threads, and say what that means."""
    from ..machine import current
    from ..tuning import file_in_use, read, shown

    machine = current()
    before = read(path, machine)
    if before.ignored:
        verbatim(console, f"{shown(path)} was {before.ignored}; it is written anew.")
    rest = [choice for choice in before.choices if (choice.dtype, choice.threads) not in tuned]
    if not choices and not rest and not path.exists():
        verbatim(console, "The model stands: nothing is faster by more than the noise, so nothing is saved.")
        return 0
    save(path, [*rest, *choices])
    kept = f"{len(choices)} choice{'s' * (len(choices) != 1)}"
    also = f", and {len(rest)} from before" if rest else ""
    verbatim(console, f"Saved {kept}{also} to {shown(path)}.")
    here = path == file_in_use(machine)
    verbatim(console, f"Processes that start from now on use it{'' if here else f' if BLISGEMM_TUNING={shown(path)}'}.")
    return 0


def save(path: Path, choices: Sequence[Any]) -> None:
    """Write a tuning file, read it back, and put it in place of the old one at once.

    Raises:
        CommandError: it cannot be written; the old file is as it was.
    """
    import tomli_w

    from .._version import __version__
    from ..machine import current
    from ..tuning import as_document, from_document, parse, shown

    machine = current()
    text = "# Written by python -m blisgemm tune; --forget deletes it.\n"
    text += tomli_w.dumps(as_document(choices, machine, __version__))
    if from_document(parse(text.encode()), machine, __version__) != (tuple(choices), []):
        raise CommandError(f"cannot write {shown(path)}: what was found would not be read back alike")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".tmp")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(text.encode())
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
    except OSError as error:
        raise CommandError(f"cannot write {shown(path)}: {error.strerror or error}") from None
