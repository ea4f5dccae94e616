"""Tuned choices as values, and the document that holds them: what each may be, and for which machine it counts.

Knows: the fields of a tuning file and their limits. Does not know: where the file is (``file``), how a choice enters
a plan (``apply``), or how it was found (``tuner``). Pure. Called by those three and ``cli.tune``.

A document is what TOML gives::

    format = 2
    blisgemm = "0.1.0"
    [machine]                     # it counts where all of this is the same; cores are told, not compared,
    name = "zen3"                 # since affinity and cgroups change them from process to process
    l1 = [32768, 8, 1]            # bytes, ways, cores that share it
    ...
    [[choice]]
    what = "nc"                   # or mc, mt, direct_share, direct_terms; never kc
    dtype = "float32"
    threads = 2                   # what the product may use; another number is another row
    kernel = "f32_6x16_avx2"
    kc = 504                      # of the products that were timed
    value = 120
    model = 168                   # what the model said there
    on = "2026-11-30"
    gain = [1.05, 1.04, 1.06]     # the model's time by the tuned one's: median, quartiles
    at = ["1000x1000x1000"]       # m x n x k
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..blocking import KC_MAX, PANEL_BYTES_MAX
from ..errors import BlisgemmValueError
from ..machine.facts import Machine
from ..ukernel import catalog
from ..ukernel.spec import KernelSpec

__all__ = ["CHOICES", "NOTHING", "Choice", "Tuning", "Value", "as_document", "from_document", "machine_facts"]

CHOICES = ("mc", "nc", "mt", "direct_share", "direct_terms")
_FORMAT = 2
_IDLE = ("cores",)  # told, not compared

# What no measurement can mean. A block of B of four times L2 or a share of four is past anything the tuner tries;
# 512^3 terms on one thread with the GIL of the fast lane aside take 2 ms; more threads than any machine has.
_SHARE_MAX, _TERMS_MAX, _THREADS_MAX, _BLOCK_OF_L2 = 4.0, 512**3, 4096, 4
_TEXT_MAX, _ROWS_MAX = 80, 1000

Value = int | float


@dataclass(frozen=True)
class Choice:
    """One choice that was faster than the model's by more than the noise; fields as in the document."""

    what: str
    dtype: str
    threads: int
    kernel: str
    kc: int
    value: Value
    model: Value
    on: str
    gain: tuple[float, float, float]
    at: tuple[str, ...]

    @property
    def key(self) -> tuple[str, str, int]:
        """What there can be one of: the choice, its dtype, its number of threads."""
        return self.what, self.dtype, self.threads

    def evidence(self, source: str) -> str:
        """Say when it was measured, where that is written, and what it gained."""
        others = f" and {len(self.at) - 1} more shape{'s' * (len(self.at) > 2)}" if len(self.at) > 1 else ""
        faster = f"{100 * (self.gain[0] - 1):.0f} % faster at {self.at[0]}{others}"
        return f"tuned on {self.on} (file {source}): {faster}"


@dataclass(frozen=True)
class Tuning:
    """The choices that count, the file they come from as people read it, and what of it was ignored and why."""

    choices: tuple[Choice, ...] = ()
    source: str = ""
    ignored: str = ""

    def find(self, what: str, dtype: str, threads: int) -> Choice | None:
        """Return the choice for a dtype on exactly so many threads, or ``None``."""
        key = what, dtype, threads
        return next((choice for choice in self.choices if choice.key == key), None)


NOTHING = Tuning()


def machine_facts(machine: Machine) -> dict[str, Any]:
    """Return what a document says about the machine it is for."""
    caches = {f"l{c.level}": [c.size_bytes, c.ways, c.cores] for c in machine.caches}
    return {"name": machine.name, "arch": machine.arch, "isa": machine.isa.name, "cores": machine.cores, **caches}


def as_document(choices: Sequence[Choice], machine: Machine, version: str) -> dict[str, Any]:
    """Return the document that ``from_document`` reads back."""

    def plain(value: Any) -> Any:
        return list(value) if isinstance(value, tuple) else value

    rows = [{name: plain(getattr(choice, name)) for name in Choice.__dataclass_fields__} for choice in choices]
    return {"format": _FORMAT, "blisgemm": version, "machine": machine_facts(machine), "choice": rows}


def from_document(document: Any, machine: Machine, version: str) -> tuple[tuple[Choice, ...], list[str]]:
    """Return the choices of a document that count here, and why others, or all, do not."""
    if not isinstance(document, Mapping):
        return (), ["it is no table"]
    if type(document.get("format")) is not int or document["format"] != _FORMAT:
        return (), [f"its format is {_brief(document.get('format'))}, expected {_FORMAT}"]
    if document.get("blisgemm") != version:
        return (), [f"it was made by blisgemm {_brief(document.get('blisgemm'))}, this is {version}"]
    there, here = document.get("machine"), machine_facts(machine)
    if not isinstance(there, Mapping):
        return (), ["it names no machine"]
    for name in [name for name in (*here, *there) if name not in _IDLE]:
        if there.get(name) != here.get(name):
            return (), [f"it is for another machine: {name} {_brief(there.get(name))}, here {_brief(here.get(name))}"]
    rows = document.get("choice", [])
    if not isinstance(rows, list) or len(rows) > _ROWS_MAX:
        return (), [f"choice: expected a list of at most {_ROWS_MAX} tables"]
    good: dict[tuple[str, str, int], Choice] = {}
    problems = []
    for number, row in enumerate(rows, 1):
        try:
            choice = _choice(row, machine)
            if choice.key in good:
                raise BlisgemmValueError(f"{' '.join(map(str, choice.key))} is there twice")
            good[choice.key] = choice
        except BlisgemmValueError as error:
            problems.append(f"choice {number}: {error}")
    return tuple(good.values()), problems


def _choice(row: Any, machine: Machine) -> Choice:
    """Return a row as a Choice; BlisgemmValueError says what is wrong with it."""
    if not isinstance(row, Mapping):
        raise BlisgemmValueError("expected a table")
    what, dtype = _one_of(row, "what", CHOICES), _one_of(row, "dtype", tuple(KC_MAX))
    kernel = _kernel(row.get("kernel"), dtype, machine)
    fewest = 2 if what == "mt" else 1  # one thread has no tiles
    threads, kc = _integer(row, "threads", fewest, _THREADS_MAX), _integer(row, "kc", 1, KC_MAX[dtype])
    value, model = (_value(row, name, what, kernel, kc, machine) for name in ("value", "model"))
    return Choice(what, dtype, threads, kernel.name, kc, value, model, _date(row), _gain(row), _shapes(row))


def _value(row: Mapping[str, Any], name: str, what: str, kernel: KernelSpec, kc: int, machine: Machine) -> Value:
    if what == "direct_share":
        return _real(row.get(name), name, 0, _SHARE_MAX)
    if what == "direct_terms":
        return _integer(row, name, 0, _TERMS_MAX)
    column = kc * kernel.itemsize
    most = _BLOCK_OF_L2 * machine.l2.size_bytes if what == "nc" else PANEL_BYTES_MAX
    step = kernel.nr if what == "nc" else kernel.mr
    number = _integer(row, name, step, max(step, most // column))
    if number % step:
        word = "nr" if what == "nc" else "mr"
        raise BlisgemmValueError(f"{name}: expected a multiple of {word} = {step}; got {number}")
    return number


def _kernel(name: Any, dtype: str, machine: Machine) -> KernelSpec:
    # of any vector set of this architecture: BLISGEMM_KERNEL may name a lesser one
    known = {spec.name: spec for spec in catalog.kernels(dtype) if spec.isa.arch in (machine.arch, "any")}
    if not isinstance(name, str) or name not in known:
        raise BlisgemmValueError(f"kernel: expected one of {', '.join(known)}; got {_brief(name)}")
    return known[name]


def _one_of(row: Mapping[str, Any], name: str, known: Sequence[str]) -> str:
    value = row.get(name)
    if not isinstance(value, str) or value not in known:
        raise BlisgemmValueError(f"{name}: expected one of {', '.join(known)}; got {_brief(value)}")
    return value


def _integer(row: Mapping[str, Any], name: str, least: int, most: int) -> int:
    value = row.get(name)
    if type(value) is not int or not least <= value <= most:
        raise BlisgemmValueError(f"{name}: expected an integer from {least} to {most}; got {_brief(value)}")
    return value


def _real(value: Any, name: str, least: float, most: float) -> float:
    if type(value) not in (int, float) or not math.isfinite(value) or not least <= value <= most:
        raise BlisgemmValueError(f"{name}: expected a number from {least:g} to {most:g}; got {_brief(value)}")
    return float(value)


def _gain(row: Mapping[str, Any]) -> tuple[float, float, float]:
    gain = row.get("gain")
    if not isinstance(gain, list) or len(gain) != 3:
        raise BlisgemmValueError(f"gain: expected a median and two quartiles; got {_brief(gain)}")
    median, low, high = (_real(x, "gain", 0.01, 1000) for x in gain)
    return median, low, high


def _date(row: Mapping[str, Any]) -> str:
    text = row.get("on")
    parts = text.split("-") if isinstance(text, str) else []
    if [len(part) for part in parts] != [4, 2, 2] or not all(part.isascii() and part.isdigit() for part in parts):
        raise BlisgemmValueError(f"on: expected a date such as '2026-11-30'; got {_brief(text)}")
    return "-".join(parts)


def _shapes(row: Mapping[str, Any]) -> tuple[str, ...]:
    shapes = row.get("at")
    if not isinstance(shapes, list) or not 0 < len(shapes) <= _ROWS_MAX:
        raise BlisgemmValueError(f"at: expected a list of shapes; got {_brief(shapes)}")
    for shape in shapes:
        extents = shape.split("x") if isinstance(shape, str) and len(shape) <= _TEXT_MAX else []
        if len(extents) != 3 or not all(extent.isascii() and extent.isdigit() for extent in extents):
            raise BlisgemmValueError(f"at: expected shapes such as '1000x1000x1000'; got {_brief(shape)}")
    return tuple(shapes)


def _brief(value: Any) -> str:
    """Return a value for a one-line message, cut to what people read."""
    text = "none" if value is None else repr(value)
    return text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}…"
