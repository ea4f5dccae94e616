"""One rule for loops and a cache: what a loop nest fetches and sends back, operand by operand.

Knows: which loop turns over which operand, in lines. Does not know: any path's loops (``path_nests``), machines, sets
or ways (``cachesim`` counts those). Pure. Called by ``traffic``.

The rule, used from the innermost loop outwards:

    if all that one turn of a loop touches fits in the cache, what the next turn touches again is still there, and the
    whole loop fetches each line once; if not, every turn fetches anew what it needs.

A line of a result that is fetched is sent back later; one of a packed buffer once for every time that it was packed and
dropped. At first the cache is empty.

Source: Lam, Rothberg and Wolf, ASPLOS IV, 1991 (reuse in tiled loops, and why sets and ways spoil such predictions);
Goto and van de Geijn, TOMS 34(3), 2008, section 4 (which block stays where).
"""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Lines", "Loop", "Nest", "Place"]

Lines = dict[int, float]
Spans = dict[str, float]


@dataclass(frozen=True)
class Loop:
    """One loop.

    Attributes:
        over: ``i``, ``j`` or ``p``. step: elements in one turn.
        packs: (source, packed) operands of a copy that begins every turn.
        ends: operands that every turn touches once more when it ends.
    """

    over: str
    step: int
    packs: tuple[tuple[int, int], ...] = ()
    ends: tuple[int, ...] = ()


@dataclass(frozen=True)
class Place:
    """How an operand lies.

    Attributes:
        first, second: its two indices; elements along the second are neighbours.
        rows, columns: extents of a buffer that is used again from block to block, in whole micro-panels, and contiguous
            in the order of its use; 0 for a matrix, whose rows lie apart.
        pad_rows, pad_columns: a buffer's extents are multiples of these.
        wide: memory elements for each.
    """

    first: str
    second: str
    rows: int = 0
    columns: int = 0
    pad_rows: int = 1
    pad_columns: int = 1
    wide: int = 1


@dataclass(frozen=True)
class Nest:
    """Loops, outermost first, what their body touches, and how that lies.

    Attributes:
        body: operands that the innermost body touches. written: those of it that are dirty then.
        spans: extents by index. places: of every operand. per_line: elements in a line.
        packed_here: share of packing that this core does itself, by source and by packed operand; 1 if not said. Less
            than 1: others pack as well, and no line that one of them has written is in this core's cache.
    """

    loops: tuple[Loop, ...]
    body: tuple[int, ...]
    written: tuple[int, ...]
    spans: dict[str, int]
    places: dict[int, Place]
    per_line: float
    packed_here: dict[int, float] = field(default_factory=dict)

    def lines(self, operand: int, spans: Spans) -> float:
        """Return how many lines of an operand lie within spans of i, j and p."""
        place = self.places[operand]
        x, y = spans[place.first], spans[place.second]
        if place.rows:
            x, y = min(_padded(x, place.pad_rows), place.rows), min(_padded(y, place.pad_columns), place.columns)
            return x * y * place.wide / self.per_line
        if y >= self.spans[place.second]:
            return x * y / self.per_line
        begins_with_a_line = self.spans[place.second] % self.per_line == 0 and (
            y % self.per_line == 0 or self.per_line % y == 0
        )
        return x * (max(1.0, y / self.per_line) if begins_with_a_line else 1 + (y - 1) / self.per_line)

    def moved(self, capacity: int) -> tuple[Lines, Lines]:
        """Return lines fetched and lines sent back, for a cache of so many lines."""
        return self._moved(capacity, 0, dict(self.spans))

    def once(self) -> tuple[Lines, Lines]:
        """Return the same for a cache that holds everything."""
        return self.moved(1 << 62)

    def touched(self, depth: int) -> tuple[int, ...]:
        """Return the operands that the body of loop ``depth`` touches."""
        packed = [x for loop in self.loops[depth:] for pair in loop.packs for x in pair]
        ends = [x for loop in self.loops[depth:] for x in loop.ends]
        return tuple(dict.fromkeys([*self.body, *packed, *ends]))

    def _moved(self, capacity: int, depth: int, around: Spans) -> tuple[Lines, Lines]:
        if depth == len(self.loops):
            fetched = {x: self.lines(x, around) for x in self.body}
            return fetched, {x: fetched[x] for x in self.written}
        loop = self.loops[depth]
        inner = {**around, loop.over: min(loop.step, around[loop.over])}
        fetched, back = self._moved(capacity, depth + 1, inner)
        for source, packed in loop.packs:
            self._pack(capacity, depth, inner, (source, packed), fetched, back)
        for x in loop.ends:
            fetched[x] = back[x] = fetched.get(x, 0.0) + self.lines(x, inner)
        fits = sum(self.lines(x, inner) for x in self.touched(depth)) <= capacity
        buffers = [into for each in self.loops for _, into in each.packs]
        for lines in (fetched, back):
            for x in lines:
                reads = lines is fetched and x in buffers  # also what others have packed
                once = self.lines(x, around) * (1.0 if reads else self.packed_here.get(x, 1.0))
                lines[x] = once if fits else max(once, self._turns(x, loop, around, inner) * lines[x])
        return fetched, back

    def _turns(self, operand: int, loop: Loop, around: Spans, inner: Spans) -> float:
        """Return how often the loop meets the operand: a last turn that is cut short meets as much less of it."""
        whole, one = around[loop.over], inner[loop.over]
        if not one:
            return 0.0
        place = self.places[operand]
        if loop.over not in (place.first, place.second):
            return -(-whole // one)
        pad = place.pad_rows if loop.over == place.first else place.pad_columns
        return _padded(whole, pad) / _padded(one, pad)

    def _pack(
        self, capacity: int, depth: int, inner: Spans, pair: tuple[int, int], fetched: Lines, back: Lines
    ) -> None:
        """Count the copy that begins a turn of loop ``depth``."""
        source, packed = pair
        share = self.packed_here.get(packed, 1.0)
        block, copy = self.lines(source, inner), self.lines(packed, inner)
        still_there = copy if share == 1 and block + copy <= capacity else 0.0
        fetched[source] = fetched.get(source, 0.0) + share * block
        new = 0.0 if share == 1 and self._stays(capacity, depth, inner, pair) else share * copy
        fetched[packed] = new + max(0.0, fetched.get(packed, 0.0) - still_there)
        back[packed] = new

    def _stays(self, capacity: int, depth: int, spans: Spans, pair: tuple[int, int]) -> bool:
        """Whether a packed buffer is still there when the next block of its source is packed into it.

        It is if one turn of an inner loop that uses all of it fits together with that block.
        """
        source, packed = pair
        copy, block, inner = self.lines(packed, spans), self.lines(source, spans), spans
        for loop in self.loops[depth + 1 :]:
            inner = {**inner, loop.over: min(loop.step, inner[loop.over])}
            if self.lines(packed, inner) < copy:
                return False
            if block + sum(self.lines(x, inner) for x in self.body) <= capacity:
                return True
        return False


def _padded(extent: float, step: int) -> float:
    return -(-extent // step) * step
