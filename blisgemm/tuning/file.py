"""The tuning file: where it is, and reading it once, whatever state it is in.

Knows: the user's config folder, ``BLISGEMM_TUNING``, and how a file that cannot be used is told. Does not know: what
the choices mean (``choices``). Called by ``plan`` (``in_force``, on the first plan), ``cli.tune`` and ``cli.info``.

Nothing in here raises: a product must not fail for a file beside it. What is damaged, for another machine or makes
no sense is left out, with one warning per process, and the plan says so too.

The config folder takes five lines here, not a dependency: the core reads it too, and ``cache`` finds its own alike. The
file is named after the machine and the vector set, so that a home shared by several kinds of machines serves each.
"""

from __future__ import annotations

import os
import re
import stat
import sys
import threading
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

from .._version import __version__
from ..errors import BlisgemmWarning
from ..machine.facts import Machine
from .choices import NOTHING, Tuning, from_document

__all__ = ["MAX_BYTES", "default_file", "file_in_use", "in_force", "parse", "read", "read_again", "shown"]

MAX_BYTES = 1 << 20  # a tuning file has a few kilobytes

_lock = threading.Lock()
_in_force: Tuning | None = None  # read by the first plan of the process


def default_file(machine: Machine) -> Path:
    """Return the file in the user's config folder for this machine and vector set; it need not exist."""
    if sys.platform == "win32":
        base = Path(os.environ.get("APPDATA") or os.path.expanduser(r"~\AppData\Roaming"))
    elif sys.platform == "darwin":
        base = Path(os.path.expanduser("~/Library/Application Support"))
    else:
        folder = os.environ.get("XDG_CONFIG_HOME", "")
        base = Path(folder if os.path.isabs(folder) else os.path.expanduser("~/.config"))
    name = re.sub(r"[^A-Za-z0-9._-]", "_", f"tuning-{machine.name}-{machine.isa.name}.toml")
    return base / "blisgemm" / name


def file_in_use(machine: Machine) -> Path | None:
    """Return the file that plans read, whether or not it exists; ``None`` if ``BLISGEMM_TUNING`` is off or empty."""
    override = os.environ.get("BLISGEMM_TUNING")
    if override is None:
        return default_file(machine)
    return None if override.strip().lower() in ("", "off") else Path(os.path.expanduser(override))


def shown(path: Path) -> str:
    """Return a path as people read it: ``~`` for their home."""
    home, text = os.path.expanduser("~"), str(path)
    return f"~{text[len(home) :]}" if len(home) > 1 and text.startswith(home + os.sep) else text


def in_force(machine: Machine) -> Tuning:
    """Return the tuning that plans of this process use, read on the first call; warn once if any of it is ignored."""
    global _in_force
    found = _in_force
    if found is not None:
        return found
    with _lock:
        if _in_force is not None:
            return _in_force
        path = file_in_use(machine)
        _in_force = found = NOTHING if path is None else read(path, machine, named="BLISGEMM_TUNING" in os.environ)
    if found.ignored:
        # a program that turns warnings into errors asked for errors of its own; the plan still tells
        with suppress(BlisgemmWarning):
            warnings.warn(f"tuning file {found.source}: {found.ignored}", BlisgemmWarning, stacklevel=3)
    return found


def read_again() -> None:
    """Forget what was read: the next plan that is made reads the file anew (plans that are cached stay)."""
    global _in_force
    with _lock:
        _in_force = None


def read(path: Path, machine: Machine, named: bool = False) -> Tuning:
    """Return what a file holds for this machine; never raises.

    ``named``: the user named it, so that its absence is worth a word.
    """
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return _nothing(path, "it is not a regular file")
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return _nothing(path, "there is no such file") if named else NOTHING
    except (OSError, ValueError) as error:
        return _nothing(path, f"it cannot be read ({getattr(error, 'strerror', None) or error})")
    if len(data) > MAX_BYTES:
        return _nothing(path, f"it is larger than {MAX_BYTES:,} bytes")
    try:
        document = parse(data)
        choices, problems = from_document(document, machine, __version__)
    except Exception as error:  # bytes that are no text, text that is no TOML, nesting without end, tomli missing
        return _nothing(path, f"it is damaged ({' '.join(str(error).split())[:120] or type(error).__name__})")
    if not problems:
        return Tuning(choices, shown(path))
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    part = "partly ignored" if choices else "ignored"
    return Tuning(choices, shown(path), f"{part}: {problems[0]}{more}")


def parse(data: bytes) -> Any:
    """Return the document of a TOML file's bytes."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    return tomllib.loads(data.decode())


def _nothing(path: Path, why: str) -> Tuning:
    return Tuning((), shown(path), f"ignored: {why}")


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
