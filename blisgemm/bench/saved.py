"""Saved runs: what a file of ``bench --json`` may hold, checked field by field as it is read.

Knows: the fields and their limits. Does not know: how they were measured, which runs belong together (``merge``).
Called by ``cli.bench``.

What can be told from the rest (labels, rates, summaries) is not read. A message names the file, the field as
``rows[3].seconds.numpy.low``, what was expected and what came; what isn't there is "none", as null is.
"""

from __future__ import annotations

import datetime
import json
import re
import reprlib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from ..errors import BlisgemmValueError
from .measure import Spread
from .peers import PEERS
from .results import BEST, FORMAT, OURS, Roof, Row, Run
from .shapes import LAYOUTS, SETS, Case
from .tables import SHORT

__all__ = ["read_json"]

_FACTS = ("processor", "machine", "vectors", "caches", "cores", "python", "numpy", "numba")
_GROUPS = (*SETS, "shape")

# Far above what any run has, and small enough for every quotient of them to be a float.
_EXTENT_MAX, _FLOPS_MAX, _BYTES_MAX, _COUNT_MAX, _DIMENSIONS_MAX = 2**40, 10**30, 2**63, 10**6, 64
_LEAST, _MOST = 1e-12, 1e15  # of seconds, rates and ratios

_briefly = reprlib.Repr()
_briefly.maxstring = _briefly.maxother = 80


def read_json(path: Path) -> Run:
    """Return the run that ``results.write_json`` wrote.

    Raises:
        OSError: there is no such file.
        BlisgemmValueError: it holds something else.
    """
    try:
        whole = json.loads(path.read_text(encoding="utf-8"))
    except (RecursionError, ValueError) as error:
        raise BlisgemmValueError(
            f"{path}: expected a file that bench --json wrote; got {type(error).__name__}: {error}"
        ) from None
    try:
        return _run(whole)
    except BlisgemmValueError as error:
        raise BlisgemmValueError(f"{path}: {error}") from None


def _run(whole: Any) -> Run:
    if not isinstance(whole, dict) or type(whole.get("format")) is not int:
        raise _wrong("format", f"{FORMAT}, of a file that bench --json wrote", _get(whole, "format"))
    if whole["format"] != FORMAT:
        age = "an older format, whose peaks were others" if whole["format"] < FORMAT else "a newer format"
        raise BlisgemmValueError(f"format: expected {FORMAT}; got {_brief(whole['format'])}, {age}: measure again")
    machine = dict(_table(whole.get("machine"), "machine"))
    for name in dict.fromkeys((*_FACTS, "date", *machine)):
        _line(machine.get(_line(name, "machine")), f"machine.{name}")
    if not re.fullmatch("[1-9][0-9]{0,5}", machine["cores"]):
        raise _wrong("machine.cores", "an integer of at least 1, as text", machine["cores"])
    date = machine.pop("date")
    if "dates" in whole:
        dates = [_date(day, f"dates[{at}]") for at, day in enumerate(_list(whole["dates"], "dates"))]
    else:  # merged files had a range in place of a list
        dates = [_date(day, "machine.date") for day in date.split(" to ")]
    command = _text(whole.get("command"), "command")
    if "commands" in whole:
        commands = [_text(one, f"commands[{at}]") for at, one in enumerate(_list(whole["commands"], "commands"))]
    else:
        commands = _apart(command)
    peers = {name: _line(value, f"peers.{name}") for name, value in _libraries(whole, "peers").items()}
    absent = {name: _text(value, f"absent.{name}") for name, value in _libraries(whole, "absent").items()}
    rows = [_row(row, f"rows[{at}]", peers) for at, row in enumerate(_list(whole.get("rows"), "rows"))]
    return Run(commands, sorted(set(dates)), machine, peers, absent, rows)


def _apart(command: str) -> list[str]:
    """Return the commands that merged files once had in one line, as ``Run.command`` shows them."""
    begin, several, rest = command.partition("` with `")
    return [f"{begin} {each}".rstrip() for each in rest.split("`, `")] if several else [command]


def _row(row: Any, at: str, peers: Collection[str]) -> Row:
    flat = _table(row, at)
    dtype = _one_of(flat, "dtype", SHORT, at)
    case = _case(flat, at)
    flops = _integer(flat.get("flops"), f"{at}.flops", 1, _FLOPS_MAX)
    if flops != case.flops(dtype):
        raise _wrong(f"{at}.flops", f"{case.flops(dtype)}, as {case.label} in {dtype} has", flops)
    seconds, ratios = (
        {name: _spread(value, f"{at}.{field}.{name}") for name, value in _libraries(flat, field, at).items()}
        for field in ("seconds", "ratios")
    )
    others = [name for name in seconds if name != OURS]
    if OURS not in seconds or not set(others) <= set(peers):
        raise _wrong(f"{at}.seconds", f"{OURS} and peers of the run ({', '.join(peers)})", [*seconds])
    if set(ratios) != {*others, *[BEST] * bool(others)}:
        raise _wrong(f"{at}.ratios", f"those of {', '.join([*others, BEST])}" if others else "none", [*ratios])
    best = flat.get("best")
    if best not in (others or [""]):
        raise _wrong(f"{at}.best", f"one of {', '.join(others)}" if others else "no name", best)
    skipped = {name: _text(value, f"{at}.skipped.{name}") for name, value in _libraries(flat, "skipped", at).items()}
    return Row(
        case=case, dtype=dtype, threads=_integer(flat.get("threads"), f"{at}.threads", 1, _COUNT_MAX),
        out=_one_of(flat, "out", ("given", "new"), at), state=_one_of(flat, "state", ("hot", "cold"), at),
        rotated_bytes=_integer(flat.get("rotated_bytes"), f"{at}.rotated_bytes", 0, _BYTES_MAX),
        clock=_one_of(flat, "clock", ("CPU time", "wall time"), at), path=_line(flat.get("path"), f"{at}.path"),
        kernel=_line(flat.get("kernel"), f"{at}.kernel"), flops=flops,
        rounds=_integer(flat.get("rounds"), f"{at}.rounds", 1, _COUNT_MAX), seconds=seconds,
        peak_gflops=_real(flat.get("peak_gflops"), f"{at}.peak_gflops"), roof=_roof(flat.get("roof"), f"{at}.roof"),
        ratios=ratios, best=best, skipped=skipped,
    )  # fmt: skip


def _case(row: Mapping[str, Any], at: str) -> Case:
    m, n, k = (_integer(row.get(name), f"{at}.{name}", 1, _EXTENT_MAX) for name in "mnk")
    batch = row.get("batch")
    if not isinstance(batch, list) or len(batch) > _DIMENSIONS_MAX:
        raise _wrong(f"{at}.batch", f"a list of at most {_DIMENSIONS_MAX} extents", batch)
    extents = tuple(_integer(extent, f"{at}.batch", 1, _EXTENT_MAX) for extent in batch)
    a, b, c = (_one_of(row, name, LAYOUTS, at) for name in "abc")
    return Case(
        group=_one_of(row, "group", _GROUPS, at), m=m, n=n, k=k, batch=extents,
        a_batched=_flag(row, "a_batched", at), b_batched=_flag(row, "b_batched", at),
        a=a, b=b, c=c, vector=_one_of(row, "vector", ("", "Ax", "xA"), at),
    )  # fmt: skip


def _roof(value: Any, at: str) -> Roof | None:
    if value is None:
        return None
    roof = _table(value, at)
    numbers = [_real(roof.get(name), f"{at}.{name}") for name in ("bytes_per_second", "gflops", "share")]
    return Roof(_line(roof.get("level"), f"{at}.level"), *numbers)


def _spread(value: Any, at: str) -> Spread:
    table = _table(value, at)
    low, median, high = (_real(table.get(name), f"{at}.{name}") for name in ("low", "median", "high"))
    if not low <= median <= high:
        raise _wrong(at, "low <= median <= high", [low, median, high])
    return Spread(low, median, high)


def _libraries(table: Mapping[str, Any], name: str, at: str = "") -> Mapping[str, Any]:
    """Return a table whose names are those of libraries."""
    place = f"{at}.{name}" if at else name
    found = _table(table.get(name), place)
    known = [*PEERS, *{"seconds": [OURS], "ratios": [BEST]}.get(name, [])]
    for library in found:
        if library not in known:
            raise _wrong(place, f"names of {', '.join(known)}", library)
    return found


def _table(value: Any, at: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise _wrong(at, "an object", value)
    return value


def _list(value: Any, at: str) -> list[Any]:
    if not isinstance(value, list) or not value:
        raise _wrong(at, "a list of at least one", value)
    return value


def _one_of(table: Mapping[str, Any], name: str, known: Collection[str], at: str) -> str:
    value = table.get(name)
    if not isinstance(value, str) or value not in known:
        raise _wrong(f"{at}.{name}", f"one of {', '.join(map(repr, known))}", value)
    return value


def _flag(table: Mapping[str, Any], name: str, at: str) -> bool:
    value = table.get(name)
    if not isinstance(value, bool):
        raise _wrong(f"{at}.{name}", "true or false", value)
    return value


def _integer(value: Any, at: str, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise _wrong(at, f"an integer from {least} to {most}", value)
    return value


def _real(value: Any, at: str) -> float:
    if type(value) not in (int, float) or not _LEAST <= value <= _MOST:  # not a number is not between them
        raise _wrong(at, f"a number from {_LEAST:g} to {_MOST:g}", value)
    return float(value)


def _line(value: Any, at: str) -> str:
    if not isinstance(value, str) or not value.isprintable():
        raise _wrong(at, "a line of text", value)
    return value


def _text(value: Any, at: str) -> str:
    """Return text, of several lines perhaps; halves of a surrogate pair can't be written again."""
    if not isinstance(value, str) or any("\ud800" <= letter <= "\udfff" for letter in value):
        raise _wrong(at, "text", value)
    return value


def _date(value: Any, at: str) -> str:
    try:
        day = datetime.date.fromisoformat(value).isoformat()
    except (TypeError, ValueError):
        day = ""
    if day != value:  # later Pythons read other spellings
        raise _wrong(at, "a date such as '2026-11-30'", value)
    return day


def _get(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else value


def _wrong(at: str, expected: str, got: Any) -> BlisgemmValueError:
    return BlisgemmValueError(f"{at}: expected {expected}; got {_brief(got)}")


def _brief(value: Any) -> str:
    """Return a value for a one-line message, cut to what people read."""
    return "none" if value is None else _briefly.repr(value)
