"""The disk cache of compiled GPU kernels: one checked file per kernel, read without any compiler.

Knows: where cubins are kept and how a file is trusted. Does not know: what a kernel computes, CUDA, Numba;
it imports neither. Called by ``compile``, and by whatever clears the caches.

A file is named by a hash of all that shaped the kernel (what the caller says, the text of the modules that
generate code, our version) and by one of the compiler's versions. Where the compiler isn't installed, which a
program that only runs kernels doesn't need, the newest file of any compiler's is taken.

Files start with the SHA-256 of the rest: a JSON header and the cubin's bytes, no pickle. A file that can't be read or
doesn't match is the same as no file. Files appear by rename. Nothing that goes wrong here reaches the caller.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from .._version import __version__
from ..cache import cache_dir, entries_in
from ..verbose import say

__all__ = ["Entry", "clear", "entries", "folder", "key", "load", "save"]

_SUFFIX = ".cubin"
_MAX_FILES = 400  # about 20 MB; a cubin is 20 to 60 KB
_DIGEST_BYTES = 32
_LENGTH_BYTES = 4  # of the header's length, little-endian
_FORMAT = 1

# Every module whose text shapes kernels, relative to this folder; those that don't exist are left out.
_SOURCES = ("ptx.py", "compile.py", "tiles.py", "epilogue.py", "kernels")

# The distributions whose versions shape machine code. A toolkit that isn't installed by pip has no version here.
_COMPILERS = ("numba", "numba-cuda", "llvmlite")
_BACK_ENDS = ("nvidia-nvvm", "nvidia-nvvm-cu12", "nvidia-nvjitlink", "nvidia-nvjitlink-cu12")


@dataclass(frozen=True, slots=True)
class Entry:
    """A compiled kernel and what a launch must know of it."""

    cubin: bytes
    name: str  # the entry point's
    metadata: dict[str, Any] = field(default_factory=dict)  # what JSON can hold


def folder() -> Path | None:
    """Return the folder of the cubins (it may not exist yet); ``None`` if caching is off."""
    base = cache_dir()
    return None if base is None else base / "cuda"


def entries() -> list[Path]:
    """Return the files of the cache, oldest first; empty if the folder can't be read."""
    return entries_in(folder(), _SUFFIX)


def clear() -> int:
    """Delete every entry; return how many there were."""
    found = entries()
    for path in found:
        path.unlink(missing_ok=True)
    return len(found)


@cache
def source_digest() -> str:
    """Return a hash of the text of every module that shapes kernels."""
    here = Path(__file__).parent
    digest = hashlib.sha256()
    for name in _SOURCES:
        path = here / name
        for file in sorted(path.glob("*.py")) if path.is_dir() else [path]:
            try:
                digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
            except OSError:  # there is no such module, or no source at hand: the version must do
                continue
    return digest.hexdigest()


@cache
def compiler_versions() -> str | None:
    """Return the versions of what compiles kernels; ``None`` if it isn't installed. Imports none of it."""
    from importlib.metadata import PackageNotFoundError, version

    found = []
    for name in (*_COMPILERS, *_BACK_ENDS):
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            if name in _COMPILERS:
                return None
    return ", ".join(found)


def key(parts: tuple[Any, ...]) -> str:
    """Return the name of a kernel in the cache.

    Args:
        parts: What tells the kernel from others, of values whose ``repr`` says it all: names, numbers, strings,
            tuples, frozen dataclasses of these. The compute capability must be among them.
    """
    return hashlib.sha256(repr((_FORMAT, __version__, source_digest(), parts)).encode()).hexdigest()[:40]


def _file_name(kernel_key: str, versions: str) -> str:
    return f"{kernel_key}-{hashlib.sha256(versions.encode()).hexdigest()[:8]}{_SUFFIX}"


def load(kernel_key: str) -> Entry | None:
    """Return the kernel of that key; ``None`` if there is no good file."""
    where = folder()
    if where is None:
        return None
    versions = compiler_versions()
    if versions is not None:
        return _read(where / _file_name(kernel_key, versions))
    for path in reversed(entries()):
        if path.name.startswith(f"{kernel_key}-") and (found := _read(path)) is not None:
            return found
    return None


def _read(path: Path) -> Entry | None:
    """Return what a file holds; ``None`` if it isn't what was written."""
    try:
        blob = path.read_bytes()
    except OSError:
        return None
    digest, payload = blob[:_DIGEST_BYTES], blob[_DIGEST_BYTES:]
    if hashlib.sha256(payload).digest() != digest:
        say(f"cache entry {path.name} is damaged; compiling the kernel again")
        return None
    try:
        start = _LENGTH_BYTES + int.from_bytes(payload[:_LENGTH_BYTES], "little")
        header = json.loads(payload[_LENGTH_BYTES:start])
        return Entry(payload[start:], str(header["name"]), dict(header["metadata"]))
    except (ValueError, KeyError, TypeError) as error:
        say(f"cache entry {path.name} can't be read ({error!r}); compiling the kernel again")
        return None


def save(kernel_key: str, entry: Entry) -> None:
    """Write a compiled kernel; failing to is no error."""
    where = folder()
    if where is None:
        return
    versions = compiler_versions() or "unknown"
    try:
        header = json.dumps({"name": entry.name, "metadata": entry.metadata, "compilers": versions}).encode()
        payload = len(header).to_bytes(_LENGTH_BYTES, "little") + header + entry.cubin
        for made in (where.parent, where):
            made.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = where / _file_name(kernel_key, versions)
        handle, temporary = tempfile.mkstemp(dir=where, prefix=path.stem, suffix=".tmp")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(hashlib.sha256(payload).digest() + payload)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
        for old in entries()[:-_MAX_FILES]:
            old.unlink(missing_ok=True)
    except (OSError, TypeError, ValueError) as error:
        say(f"can't write the cache folder {where}: {error}")
