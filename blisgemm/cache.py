"""The disk cache of compiled code: one checked file per compiled function and signature.

Knows: where compiled code is kept and how a file is trusted. Does not know: what is compiled. Called
by ``compiled`` and ``teach.lru`` (which attach it to Numba's dispatchers) and the CLI.

Numba's own cache can't be used as it is: it raises where no folder is writable, doesn't notice
edits in other files, and believes whatever it reads. Here a file is named by a hash of
everything that shaped its code (function, signature, CPU and its features, versions, and the
source of every module that is compiled or generates code), and starts with the SHA-256 of the
rest. A file that can't be read, doesn't match or doesn't load is the same as no file: the
function is compiled and the file written anew. Files appear by rename, so two first runs at once
are safe. Nothing that goes wrong here reaches the caller.

Trust: like Numba's, entries are pickles. The folder is made readable by its owner only.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from .verbose import say

__all__ = ["DiskCache", "cache_dir", "clear", "entries", "entries_in"]

_SUFFIX = ".blisgemm"
_MAX_FILES = 400  # about 100 MB; an entry is 50 to 300 KB
_DIGEST_BYTES = 32

# Every module whose text shapes machine code. Relative to the package.
_COMPILED_SOURCES = (
    "checks.py", "links.py", "table.py", "entry.py", "outcome.py", "rules.py", "loops.py", "pack.py", "team.py",
    "ukernel", "machine/facts.py", "machine/isas.py",
)  # fmt: skip


def cache_dir() -> Path | None:
    """Return the cache folder (it may not exist yet); ``None`` if caching is off.

    ``BLISGEMM_CACHE_DIR`` names another folder; set to the empty string it turns the cache off.
    """
    override = os.environ.get("BLISGEMM_CACHE_DIR")
    if override is not None:
        return Path(override) if override else None
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or tempfile.gettempdir())
    elif sys.platform == "darwin":
        base = Path(os.path.expanduser("~/Library/Caches"))
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
    return base / "blisgemm"


def entries() -> list[Path]:
    """Return the files of the cache, oldest first; empty if the folder can't be read."""
    return entries_in(cache_dir(), _SUFFIX)


def entries_in(folder: Path | None, suffix: str) -> list[Path]:
    """Return the files of a folder whose names end so, oldest first; empty if it can't be read."""
    found = []
    try:
        for path in folder.glob(f"*{suffix}") if folder else ():
            try:
                found.append((path.stat().st_mtime, path))
            except OSError:  # removed by another process meanwhile
                continue
    except OSError:
        return []
    return [path for _, path in sorted(found)]


def clear() -> int:
    """Delete every entry; return how many there were."""
    found = entries()
    for path in found:
        path.unlink(missing_ok=True)
    return len(found)


@cache
def source_digest() -> str:
    """Return a hash of the text of every module that shapes compiled code."""
    package = Path(__file__).parent
    digest = hashlib.sha256()
    for name in _COMPILED_SOURCES:
        path = package / name
        for file in sorted(path.glob("*.py")) if path.is_dir() else [path]:
            try:
                digest.update(file.name.encode() + file.read_bytes())
            except OSError:  # no source at hand (a zip, a frozen program): the version must do
                from ._version import __version__

                digest.update(f"{name} {__version__}".encode())
    return digest.hexdigest()


class DiskCache:
    """What a Numba dispatcher asks of its cache, for one entry point.

    Source: the interface of ``numba.core.caching._Cache``.
    """

    def __init__(self, name: str) -> None:
        self._name = name  # of the entry point: one Python function may be compiled with different options

    @property
    def cache_path(self) -> str:
        return str(cache_dir() or "")

    def enable(self) -> None: ...

    def disable(self) -> None: ...

    def flush(self) -> None: ...

    def _path(self, sig: Any, codegen: Any) -> Path | None:
        folder = cache_dir()
        if folder is None:
            return None
        import llvmlite
        import numba

        key = (
            self._name, str(sig), codegen.magic_tuple(), sys.version, getattr(sys, "abiflags", ""),
            numba.__version__, llvmlite.__version__, source_digest(),
        )  # fmt: skip
        return folder / (hashlib.sha256(repr(key).encode()).hexdigest()[:40] + _SUFFIX)

    def has(self, sig: Any, target_context: Any) -> bool:
        """Whether there is an entry for ``sig``; it may still turn out to be damaged."""
        path = self._path(sig, target_context.codegen())
        return path is not None and path.exists()

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the compiled function for ``sig``, or ``None`` if there is no good entry."""
        from numba.core import compiler
        from numba.core.runtime import rtsys

        # All that loaded code needs. Numba's own cache calls refresh(), which imports what compiling needs, SciPy too.
        rtsys.initialize(target_context)
        path = self._path(sig, target_context.codegen())
        if path is None:
            return None
        try:
            blob = path.read_bytes()
        except OSError:
            return None
        digest, payload = blob[:_DIGEST_BYTES], blob[_DIGEST_BYTES:]
        if hashlib.sha256(payload).digest() != digest:
            say(f"cache entry {path.name} is damaged; compiling {self._name} again")
            return None
        try:
            return compiler.CompileResult._rebuild(target_context, *pickle.loads(payload))
        except Exception as error:  # a file that doesn't load is the same as no file
            say(f"cache entry {path.name} doesn't load ({error!r}); compiling {self._name} again")
            return None

    def save_overload(self, sig: Any, result: Any) -> None:
        """Write the compiled function; failing to is no error."""
        from numba.core import serialize

        path = self._path(sig, result.codegen)
        if path is None or result.library.has_dynamic_globals or any(not x.can_cache for x in result.lifted):
            return
        try:
            payload = serialize.dumps(result._reduce())
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.stem, suffix=".tmp")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(hashlib.sha256(payload).digest() + payload)
                os.replace(temporary, path)
            except BaseException:
                os.unlink(temporary)
                raise
            for old in entries()[:-_MAX_FILES]:
                old.unlink(missing_ok=True)
        except OSError as error:
            say(f"can't write the cache folder {path.parent}: {error}")
