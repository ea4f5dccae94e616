"""Matrices in files: NumPy's npy and npz, Matrix Market, and text, each read and written by its library.

Knows: which library serves which ending, and how a failure reads in one line. Does not know: what is
done with a matrix. Called by ``mul``.

npy files are memory-mapped in both directions, so that a matrix need not fit in memory twice. A result
is written beside its target and renamed at the end: a failure leaves no half file, and a
reader never sees one.
"""

from __future__ import annotations

import contextlib
import csv
import os
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from .console import CommandError

__all__ = ["ENDINGS", "MatrixFile", "open_result", "parse_name", "read_matrix"]

Array = np.ndarray[Any, Any]

_TEXT_ENDINGS = (".csv", ".tsv", ".txt", ".dat")
ENDINGS = {".npy": "npy", ".npz": "npz", ".mtx": "mtx"} | dict.fromkeys(_TEXT_ENDINGS, "text")
_DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t", "space": " ", r"\t": "\t"}
_OBJECTS = "expected numbers; got an array of Python objects, which are never loaded"
_SAMPLE_BYTES = 1 << 14  # enough lines for csv.Sniffer, which reads them all


@dataclass(frozen=True)
class MatrixFile:
    """A name on the command line: the path, its format, and the array inside an npz file."""

    role: str  # A, B, C or "-o": how errors name it
    path: Path
    format: str
    member: str | None = None

    def error(self, message: str) -> CommandError:
        """Return the error that names this file."""
        return CommandError(f"{self.role}: {self.path}: {message}")


def parse_name(role: str, text: str) -> MatrixFile:
    """Split ``FILE`` or ``FILE.npz:NAME``, and tell the format by the ending."""
    member = None
    stem, colon, name = text.rpartition(":")
    if colon and stem.lower().endswith(".npz"):
        text, member = stem, name
    path = Path(text)
    form = ENDINGS.get(path.suffix.lower())
    if form is None:
        came = repr(path.suffix) if path.suffix else "none"
        raise CommandError(f"{role}: {text}: expected one of the endings {', '.join(ENDINGS)}; got {came}")
    return MatrixFile(role, path, form, member)


# ---- reading ---------------------------------------------------------------------------------------


def read_matrix(file: MatrixFile, dtype: np.dtype[Any] | None, delimiter: str | None, skip: int) -> tuple[Array, str]:
    """Return the matrix in a file, and a note on what was done to it (or an empty string).

    Args:
        dtype: what text is read as (default float64); binary files keep their own type.
        delimiter: between the columns of text, as a character or a word of ``_DELIMITERS``; ``None`` guesses.
        skip: lines at the top of a text that hold no numbers.

    Raises:
        CommandError: there is no matrix of numbers in it; the message says what is.
    """
    note = ""
    try:
        if file.format == "npy":
            array = _read_npy(file)
        elif file.format == "npz":
            array = _read_npz(file)
        elif file.format == "mtx":
            array, note = _read_market(file)
        else:
            array, note = _read_text(file, dtype or np.dtype(np.float64), delimiter, skip)
    except OSError as error:
        raise file.error(_reason(error)) from None
    if array.dtype.kind not in "biufc":
        raise file.error(f"expected numbers; got dtype {array.dtype}")
    if array.ndim != 2:
        raise file.error(f"expected a matrix (2 dimensions); got shape {array.shape}")
    return array, note


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def _read_npy(file: MatrixFile) -> Array:
    try:
        with open(file.path, "rb"):  # numpy.load tells a missing file well enough, a folder not
            pass
        return np.load(file.path, mmap_mode="r", allow_pickle=False)
    except ValueError as error:
        if "Python objects" in str(error) or "bject array" in str(error):
            raise file.error(_OBJECTS) from None
        if os.path.getsize(file.path) == 0:
            raise file.error("expected an npy file; got an empty one") from None
        with contextlib.suppress(ValueError):  # an empty array can't be mapped
            return np.load(file.path, allow_pickle=False)
        came = "other bytes" if "pickle" in str(error) else _first_sentence(error)
        raise file.error(f"expected a whole npy file; got: {came}") from None
    except EOFError:
        raise file.error("expected an npy file; got an empty one") from None


def _read_npz(file: MatrixFile) -> Array:
    try:
        archive = np.load(file.path, allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise file.error("expected an npz file; got a single array: call it .npy")
        with archive:
            names = archive.files
            name = file.member if file.member is not None or len(names) != 1 else names[0]
            if name not in names:
                came = f"no array {name!r}" if name is not None else f"{len(names)} arrays"
                wanted = ", ".join(names) or "(none)"
                raise file.error(f"expected FILE.npz:NAME with one of {wanted}; got {came}")
            array: Array = archive[name]
            return array
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        if "bject array" in str(error):
            raise file.error(_OBJECTS) from None
        came = "other bytes" if "pickle" in str(error) else _first_sentence(error)
        raise file.error(f"expected an npz file; got: {came}") from None


def _read_market(file: MatrixFile) -> tuple[Array, str]:
    io = _scipy_io(file)
    with open(file.path, "rb"):  # its own message for a missing file names no file
        pass
    try:
        matrix = io.mmread(file.path)
    except ValueError as error:
        raise file.error(f"expected a Matrix Market file; got: {_first_sentence(error)}") from None
    if isinstance(matrix, np.ndarray):
        return matrix, ""
    return matrix.toarray(), f"sparse, {matrix.nnz:,} entries: made dense"


def _scipy_io(file: MatrixFile) -> Any:
    try:
        import scipy.io
    except ImportError:
        raise file.error("Matrix Market files need scipy: pip install 'blisgemm[io]'") from None
    return scipy.io


def _read_text(file: MatrixFile, dtype: np.dtype[Any], delimiter: str | None, skip: int) -> tuple[Array, str]:
    try:
        with open(file.path, encoding="utf-8-sig", newline="") as text:
            for _ in range(skip):
                text.readline()
            sample = text.read(_SAMPLE_BYTES)
        separator = _DELIMITERS.get(delimiter, delimiter) if delimiter else _sniff(sample)
        first = next((line.strip() for line in sample.splitlines() if line.strip() and line[0] != "#"), None)
        if first is None:
            raise file.error("expected rows of numbers; got an empty file")
        try:
            np.loadtxt([first], delimiter=separator if separator != " " else None, dtype=dtype)
        except ValueError:
            words = f"line {skip + 1} is {first[:40]!r}{'...' * (len(first) > 40)}"
            raise file.error(
                f"expected {dtype} numbers with a decimal point; {words} "
                "(a header: --skip-rows 1; another separator: --delimiter)"
            ) from None
        array = np.loadtxt(
            file.path, dtype, delimiter=separator if separator != " " else None, skiprows=skip, ndmin=2,
            encoding="utf-8-sig",
        )  # fmt: skip
    except UnicodeDecodeError:
        raise file.error("expected text; got bytes that are not UTF-8") from None
    except (ValueError, TypeError) as error:
        raise file.error(f"expected rows of numbers; got: {_first_sentence(error)}") from None
    names = {character: name for name, character in reversed(_DELIMITERS.items())}
    return array, f"separated by {names.get(separator, repr(separator))}, read as {dtype}" if array.shape[1] > 1 else ""


def _sniff(sample: str) -> str:
    """Guess the separator of whole lines; a space where a line holds one number."""
    lines = sample.splitlines()
    whole = "\n".join(lines[:-1] if len(sample) >= _SAMPLE_BYTES and len(lines) > 1 else lines)
    try:
        return csv.Sniffer().sniff(whole, delimiters=",;\t ").delimiter
    except csv.Error:
        return next((mark for mark in (";", "\t", ",") if mark in whole), " ")


def _first_sentence(error: Exception) -> str:
    return str(error).strip().splitlines()[0].rstrip(".") if str(error).strip() else type(error).__name__


# ---- writing ---------------------------------------------------------------------------------------


@contextlib.contextmanager
def open_result(
    file: MatrixFile, shape: tuple[int, int], dtype: np.dtype[Any], delimiter: str | None
) -> Iterator[Array]:
    """Lend an array to fill, and make it the file's contents if nothing goes wrong.

    The array of an npy file is the file itself, memory-mapped. Everything that can be known to fail is
    tried before the array is lent.
    """
    target = Path(os.path.realpath(file.path))  # a link keeps pointing to its file
    if target.is_dir():
        raise file.error("is a folder")
    if file.format == "mtx":
        _scipy_io(file)
    try:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp")
    except OSError as error:
        raise file.error(f"cannot write in {target.parent}: {_reason(error)}") from None
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w+b") as stream:
            if file.format == "npy" and shape[0] * shape[1]:
                array: Array = np.lib.format.open_memmap(temporary, "w+", dtype, shape)
                _reserve(stream, os.path.getsize(temporary))
                yield array
                array.flush()  # type: ignore[attr-defined]
            else:
                array = np.empty(shape, dtype)
                yield array
                _write(file, stream, array, delimiter)
        temporary.chmod(_mode_of(target))
        os.replace(temporary, target)
    except BrokenPipeError:  # of standard output, not of this file
        raise
    except OSError as error:
        raise file.error(f"cannot write: {_reason(error)}") from None
    finally:
        temporary.unlink(missing_ok=True)


def _reserve(stream: BinaryIO, size: int) -> None:
    """Take the disk space now: a full disk under a memory map would kill the process later."""
    if hasattr(os, "posix_fallocate") and size:
        os.posix_fallocate(stream.fileno(), 0, size)


def _mode_of(target: Path) -> int:
    """Return the permissions of the file that is replaced, or those that a new file gets."""
    with contextlib.suppress(OSError):
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def _write(file: MatrixFile, stream: BinaryIO, array: Array, delimiter: str | None) -> None:
    if file.format == "npy":
        np.save(stream, array)
    elif file.format == "npz":
        np.savez(stream, **{file.member or "c": array})  # type: ignore[arg-type]
    elif file.format == "mtx":
        _scipy_io(file).mmwrite(stream, array, precision=_digits(array.dtype))
    else:
        separator = _DELIMITERS.get(delimiter, delimiter) if delimiter else "\t" if file.path.suffix == ".tsv" else ","
        np.savetxt(stream, array, delimiter=separator, fmt=[_number_format(array.dtype)] * array.shape[1])


def _digits(dtype: np.dtype[Any]) -> int:
    """Return the significant digits from which every value of the type comes back unchanged."""
    return {2: 5, 4: 9, 8: 17}.get(np.finfo(dtype).bits // 8, 21) if dtype.kind in "fc" else 17


def _number_format(dtype: np.dtype[Any]) -> str:
    if dtype.kind not in "fc":
        return "%d"
    real = f"%.{_digits(dtype)}g"
    return f"{real}%+.{_digits(dtype)}gj" if dtype.kind == "c" else real
