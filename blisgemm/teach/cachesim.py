"""A cache to watch: hits, misses and traffic of a product, level by level and operand by operand.

Knows: where operands lie in memory, and how counts are told. Does not know: what a product touches (``streams``,
``trace``) or how one access passes the levels (``lru``). Called by ``python -m blisgemm trace --cache``, the ladder and
whatever draws the loops.

What is simulated: one core; data only; set-associative caches with least-recently-used replacement, write-allocate and
write-back, neither inclusive nor exclusive (``lru`` says more); addresses as if they were physical; no prefetcher. A
shared cache is there for this core alone. Times are not simulated: a prefetched miss costs less than another, and both
are the same traffic.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import BlisgemmTypeError, BlisgemmValueError
from ..machine.facts import Cache, Machine
from ..parallel import check_threads
from .elsewhere import machine_named
from .machines import TEACHING_MACHINE
from .streams import OPERANDS, READ, UPDATE, C, Nests, loop_order_stream, sizes_of, trace_stream
from .trace import Trace

__all__ = [
    "OPERANDS", "TEACHING_MACHINE", "Counts", "Nests", "loop_order_stream", "simulate", "simulate_trace",
]  # fmt: skip

PAGE_BYTES = 4096  # operands begin on pages, as large arrays of NumPy nearly do and packed buffers do (``workspace``)

_APART = 1 << 40  # bytes between the beginnings of operands of no known size

Figures = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Counts:
    """What a stream of accesses did. Rows are levels, nearest first; columns are ``operands``.

    Attributes:
        levels: the caches. operands: their names. itemsize: bytes of an element.
        hits, misses: accesses of elements at L1; further out, of lines that nearer levels missed.
        written_back: dirty lines that left a level for the next, those of the end included.
        hits_after, misses_after, resident_after: (steps, levels, operands), the same counts and the lines that each
            operand has in each level, after every step of a trace; no rows unless they were asked for.
    """

    levels: tuple[Cache, ...]
    operands: tuple[str, ...]
    itemsize: int
    hits: Figures
    misses: Figures
    written_back: Figures
    hits_after: Figures = field(repr=False)
    misses_after: Figures = field(repr=False)
    resident_after: Figures = field(repr=False)

    @property
    def accesses(self) -> int:
        """Elements that were read or written."""
        return int(self.hits[0].sum() + self.misses[0].sum())

    @property
    def element_bytes(self) -> int:
        """Bytes between the registers and L1, element by element."""
        return self.accesses * self.itemsize

    @property
    def traffic_bytes(self) -> tuple[int, ...]:
        """Bytes between each level and the next one out, in both directions; the last are those of memory."""
        return tuple(int(x) for x in self.lines_moved.sum(axis=1) * self.levels[0].line_bytes)

    @property
    def lines_moved(self) -> Figures:
        """Lines between each level and the next, by operand."""
        moved: Figures = self.misses + self.written_back
        return moved

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain Python values; the counts after each step too where they were recorded."""
        told: dict[str, Any] = {
            "operands": list(self.operands),
            "itemsize": self.itemsize,
            "levels": [
                {
                    "level": x.level,
                    "size_bytes": x.size_bytes,
                    "ways": x.ways,
                    "line_bytes": x.line_bytes,
                    "sets": x.sets,
                }
                for x in self.levels
            ],
            "accesses": self.accesses,
            "element_bytes": self.element_bytes,
            "traffic_bytes": list(self.traffic_bytes),
        }
        for name in ("hits", "misses", "written_back", "hits_after", "misses_after", "resident_after"):
            told[name] = getattr(self, name).tolist()
        return told

    def __str__(self) -> str:
        """A line for each level."""
        lines = []
        for row, level in enumerate(self.levels):
            hits, misses = int(self.hits[row].sum()), int(self.misses[row].sum())
            by = ", ".join(
                f"{name} {x:,}" for name, x in zip(self.operands, self.misses[row].tolist(), strict=True) if x
            )
            share = misses / (hits + misses) if hits + misses else 0.0
            traffic = self.traffic_bytes[row]
            lines.append(
                f"L{level.level}: {hits:,} hits, {misses:,} misses ({share:.2%}: {by}), {traffic:,} bytes moved"
            )
        return "\n".join(lines)


# Accesses one by one: (operand, element index), or (operand, element index, what), each an array or, but for the index,
# one value for all; or an array of such rows. Without ``what`` accesses to C read and write, others read.
Chunk = tuple[Any, ...] | npt.NDArray[Any]


def simulate(
    stream: Nests | Chunk | Iterable[Nests | Chunk], machine: Machine | str | Sequence[Cache] | None = None, *,
    itemsize: int = 4, sizes: Mapping[int, int] | None = None,
) -> Counts:  # fmt: skip
    """Run accesses through the caches of a machine, empty at first; in the end dirty lines are stored.

    Args:
        stream: ``Nests``, or chunks of accesses (operand, element index) or (operand, element index, what), or arrays
            of such rows, as ``ladder.accesses`` makes: operand one of 0 to 5, as ``OPERANDS`` lists them; what
            ``READ``, ``WRITE`` or ``UPDATE``, by default ``UPDATE`` for C and ``READ`` for the others. Or an iterable
            of such.
        machine: whose caches; a Machine, a name, caches themselves (nearest first), or ``None`` for this one.
        itemsize: bytes of an element, at least 1.
        sizes: elements of each operand, where known: then they lie one behind the other, each on its own pages, and no
            index may pass them.

    Raises:
        BlisgemmTypeError, BlisgemmValueError: an argument is not as above.

    Example:
        >>> counts = simulate((0, np.arange(1024)), "teaching")
        >>> counts.misses[:, 0].tolist(), int(counts.hits[0, 0])
        ([64, 64, 64], 960)
    """
    return _run(stream, levels_of(machine), itemsize, sizes, 0)


def simulate_trace(
    steps: Trace, machine: Machine | str | Sequence[Cache] | None = None, *, record: bool = False
) -> Counts:
    """Run what the steps of a trace touch through the caches of a machine.

    Args:
        steps: of any machine: blocks of one may meet the caches of another.
        machine: as ``simulate`` takes it.
        record: whether to keep the counts after every step too.

    Example:
        >>> from blisgemm.teach.trace import trace
        >>> steps = trace(8, 8, 8, mr=4, nr=4, blocking=(8, 8, 8), half=False)
        >>> simulate_trace(steps, "teaching").traffic_bytes[-1] // 256  # A, B come; C, packed A, packed B come and go
        8
    """
    if not isinstance(steps, Trace):
        raise BlisgemmTypeError(f"steps: expected a Trace; got {steps!r}")
    itemsize = int(np.dtype(steps.dtype).itemsize)
    return _run(trace_stream(steps), levels_of(machine), itemsize, sizes_of(steps), len(steps) if record else 0)


def levels_of(machine: Machine | str | Sequence[Cache] | None) -> tuple[Cache, ...]:
    """Return the caches, nearest first, checked.

    Raises:
        BlisgemmTypeError, BlisgemmValueError: not caches, none, or of more than one line size.
    """
    if machine is None or isinstance(machine, (Machine, str)):
        return machine_named(machine).caches
    levels = tuple(machine) if isinstance(machine, Iterable) else ()
    if not levels or not all(isinstance(x, Cache) for x in levels):
        raise BlisgemmTypeError(f"machine: expected a Machine, a name or caches; got {machine!r}")
    line = levels[0].line_bytes
    for x in levels:
        if x.line_bytes != line or line & (line - 1) or x.sets < 1:
            raise BlisgemmValueError(f"machine: expected caches of one line size, a power of two, and sets; got {x}")
    return levels


def _run(stream: Any, levels: tuple[Cache, ...], itemsize: int, sizes: Mapping[int, int] | None, steps: int) -> Counts:
    from . import lru

    itemsize = check_threads(itemsize, "itemsize")
    if levels[0].line_bytes % itemsize:
        raise BlisgemmValueError(f"itemsize: expected a divisor of the line's {levels[0].line_bytes}; got {itemsize}")
    most = _elements(sizes, itemsize)
    state = lru.new_state(levels, len(OPERANDS))
    bases, shift = _bases(sizes, itemsize), levels[0].line_bytes.bit_length() - 1
    history = np.zeros((steps, 4, len(levels), len(OPERANDS)), np.int64)
    for chunk in _chunks(stream):
        if isinstance(chunk, Nests):
            lru.run_nests(state, bases, itemsize, shift, chunk.nests, chunk.refs, history)
        else:
            lru.run_accesses(state, bases, itemsize, shift, *_accesses(chunk, most))
    lru.flush(state)
    hits, misses, back, _ = state[2]
    after = (history[:, x] for x in (lru.HITS, lru.MISSES, lru.RESIDENT))
    return Counts(levels, OPERANDS, itemsize, hits, misses, back, *after)


def _chunks(stream: Any) -> Iterator[Any]:
    if isinstance(stream, (Nests, tuple, np.ndarray)):
        yield stream
    elif isinstance(stream, Iterable):
        yield from stream
    else:
        raise BlisgemmTypeError(f"stream: expected Nests, accesses or an iterable of such; got {stream!r}")


def _elements(sizes: Any, itemsize: int) -> Figures:
    """Return how many elements each operand may have."""
    if sizes is None:
        return np.full(len(OPERANDS), _APART // itemsize)
    if not isinstance(sizes, Mapping):
        raise BlisgemmTypeError(f"sizes: expected a mapping of operands to elements; got {sizes!r}")
    for operand, size in sizes.items():
        if operand not in range(len(OPERANDS)) or not hasattr(size, "__index__") or size < 0:
            last = len(OPERANDS) - 1
            raise BlisgemmValueError(f"sizes: expected operands 0 to {last} and elements; got {operand!r}: {size!r}")
    return np.array([sizes.get(x, 0) for x in range(len(OPERANDS))], np.int64)


def _integers(values: Any, what: str) -> Any:
    """Return an array of integers; none that has fractions, or doesn't fit 64 bits."""
    try:
        found = np.asarray(values)
        whole = found.astype(np.int64)
        right = found.dtype.kind in "biuf" and bool((whole == found).all())
    except (TypeError, ValueError, OverflowError):
        right = False
    if not right:
        raise BlisgemmTypeError(f"stream: expected {what} as integers; got {values!r}")
    return whole


def _accesses(chunk: Any, most: Figures) -> tuple[Any, Any, Any]:
    """Return (operands, indices, what) of one length; ``most``: elements of each operand."""
    parts = chunk
    if isinstance(chunk, np.ndarray):
        parts = tuple(chunk.T) if chunk.ndim == 2 else ()
    if not isinstance(parts, tuple) or len(parts) not in (2, 3):
        raise BlisgemmTypeError(
            f"stream: expected Nests, (operand, index), (operand, index, what) or an array of such rows; got {chunk!r}"
        )
    indices = np.ascontiguousarray(_integers(parts[1], "indices")).reshape(-1)
    operands = _integers(parts[0], "operands")
    if operands.size and not 0 <= operands.min() <= operands.max() < len(OPERANDS):
        raise BlisgemmValueError(f"stream: expected operands 0 to {len(OPERANDS) - 1}; got {operands.max()}")
    what = _integers(parts[2], "what") if len(parts) == 3 else np.where(operands == C, UPDATE, READ)
    if what.size and not READ <= what.min() <= what.max() <= UPDATE:
        raise BlisgemmValueError(f"stream: expected READ, WRITE or UPDATE, {READ} to {UPDATE}; got {what.max()}")
    if not {operands.shape, what.shape} <= {(), (1,), indices.shape}:
        lengths = f"{operands.size}, {indices.size} and {what.size}"
        raise BlisgemmValueError(f"stream: expected operands, indices and what of one length; got {lengths}")
    operands, what = (np.ascontiguousarray(np.broadcast_to(x, indices.shape), np.uint8) for x in (operands, what))
    beyond = (indices < 0) | (indices >= most[operands])
    if beyond.any():
        at = int(beyond.argmax())
        into = f"{OPERANDS[operands[at]]} of {most[operands[at]]:,} elements"
        raise BlisgemmValueError(f"stream: expected indices into {into}; got {indices[at]}")
    return operands, indices, what


def _bases(sizes: Mapping[int, int] | None, itemsize: int) -> Figures:
    """Return the address of each operand's first element: pages of their own, a free one between."""
    if sizes is None:
        # The odd pages keep their beginnings out of the same sets of L2 and L3.
        return np.array([x * (_APART + 5 * PAGE_BYTES) for x in range(len(OPERANDS))], np.int64)
    bases, end = [], PAGE_BYTES
    for operand in range(len(OPERANDS)):
        bases.append(end)
        end += (-(-sizes.get(operand, 0) * itemsize // PAGE_BYTES) + 1) * PAGE_BYTES
    return np.array(bases, np.int64)
