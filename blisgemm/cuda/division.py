"""How a product that may exceed the card's memory is cut into steps.

Knows: tiles of C, blocks of k and groups of items that fit into a number of bytes, and the pieces that they travel in.
Does not know: arrays, CUDA, who copies or computes. Called by ``host``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ..errors import BlisgemmValueError

__all__ = ["PAD_BYTES", "Division", "Piece", "cuts", "divide", "pieces_of", "pitch_of", "tile_bytes"]

Piece = tuple[slice, slice, slice, int, int]

_STEP_BYTES = 16 << 20  # of a group of small items, all operands together
_LEAST_TILE, _MOST_TILE = 1024, 2048  # rows or columns of C in a step of a product that fits on the card
_NARROW_TILE = 512  # taken of one that doesn't
_GRANULE = 128  # rows: a multiple of the rows of a block's tile
PAD_BYTES = 16  # rows of this many vectors of 16 bytes or more begin on one


@dataclass(frozen=True)
class Division:
    """How products ``m x k`` times ``k x n`` are cut into steps.

    A step multiplies ``items`` products' tiles of rows x depth and depth x columns. Of A's, B's and C's tiles,
    ``*_slots`` are on the card at once; if ``b_slots`` is the number of B's tiles, each is copied there only once.

    Units: elements; ``*_bytes`` are bytes.
    """

    m: int
    n: int
    k: int
    item_bytes: int
    rows: int
    columns: int
    depth: int
    items: int
    a_slots: int
    b_slots: int
    c_slots: int
    shared_a: bool = False
    shared_b: bool = False

    @property
    def a_bytes(self) -> int:
        """Bytes of a tile of A, or of a group of them."""
        return tile_bytes(self.rows, self.depth, 1 if self.shared_a else self.items, self.item_bytes)

    @property
    def b_bytes(self) -> int:
        """Bytes of a tile of B, or of a group of them."""
        return tile_bytes(self.depth, self.columns, 1 if self.shared_b else self.items, self.item_bytes)

    @property
    def c_bytes(self) -> int:
        """Bytes of a tile of C, or of a group of them."""
        return tile_bytes(self.rows, self.columns, self.items, self.item_bytes)

    @property
    def device_bytes(self) -> int:
        """Bytes on the card, all slots together."""
        return self.a_slots * self.a_bytes + self.b_slots * self.b_bytes + self.c_slots * self.c_bytes

    def tiles(self) -> Iterator[tuple[slice, slice, slice]]:
        """Yield (rows, columns, depth) of each step of one product: blocks of k innermost, from the first to the last.

        Every other row panel runs backwards, so that B's last tiles serve twice.
        """
        across = cuts(self.n, self.columns)
        for number, rows in enumerate(cuts(self.m, self.rows)):
            for columns in across[:: -1 if number % 2 else 1]:
                for depth in cuts(self.k, self.depth):
                    yield rows, columns, depth


def divide(
    m: int, n: int, k: int, item_bytes: int, budget_bytes: int, batch: int = 1, shared_a: bool = False,
    shared_b: bool = False,
) -> Division:  # fmt: skip
    """Cut products into steps, of which what is on the card at once takes no more than a budget.

    What fits is cut without regard to the budget, so its bits don't depend on it. Tiles of C are large enough to fill a
    card and small enough to overlap copies; a product that is one tile goes with others of its batch. Otherwise, in
    this order: B stays on the card and A passes by; B passes by row panels of A as high as can be; k is cut as well.

    Args:
        m, n, k: at least 1.
        item_bytes: of an element.
        budget_bytes: of the card's memory.
        batch: how many such products there are.
        shared_a, shared_b: one A, one B for all of them.

    Raises:
        BlisgemmValueError: not even tiles of one element fit.
    """

    def cut(rows: int, columns: int, depth: int, items: int = 1, keep_b: bool = True) -> Division:
        down, across, deep = -(-m // rows), -(-n // columns), -(-k // depth)
        groups = min(2, batch)  # two or more, even if items is the whole batch: its dimensions may not be one
        of_a, of_b = down * deep * (1 if shared_a else groups), across * deep * (1 if shared_b else groups)
        b_slots = max(across * deep, min(2, of_b)) if keep_b else min(2, of_b)
        return Division(
            m, n, k, item_bytes, rows, columns, depth, items, min(2, of_a), b_slots, min(2, down * across * groups),
            shared_a, shared_b,
        )  # fmt: skip

    def fits(division: Division) -> bool:
        return division.device_bytes <= budget_bytes

    rows, columns = _preferred(m), _preferred(n)
    if batch > 1 and (rows, columns) == (m, n):
        one = cut(m, n, k)
        each = (0 if shared_a else one.a_bytes) + (0 if shared_b else one.b_bytes) + one.c_bytes
        most = max(1, min(batch, _STEP_BYTES // each))
        items = _most(lambda x: fits(cut(m, n, k, x)), most, 1)
        if items:
            return cut(m, n, k, items)
    if fits(cut(rows, columns, k)):
        return cut(rows, columns, k)
    rows = _most(lambda x: fits(cut(x, columns, k)), m, _GRANULE)
    if rows >= min(m, _NARROW_TILE):
        return cut(rows, columns, k)
    for columns in sorted({_preferred(n), min(n, _NARROW_TILE)}, reverse=True):
        rows = _most(lambda x, c=columns: fits(cut(x, c, k, keep_b=False)), m, _GRANULE)  # type: ignore[misc]
        if rows >= min(m, columns):
            return cut(rows, columns, k, keep_b=False)
    edge = _MOST_TILE
    while edge:
        rows, columns = min(m, edge), min(n, edge)
        depth = _most(lambda x, r=rows, c=columns: fits(cut(r, c, x, keep_b=False)), k, min(64, edge))  # type: ignore[misc]
        if depth >= min(k, edge):
            return cut(rows, columns, depth, keep_b=False)
        edge //= 2
    raise BlisgemmValueError(f"budget_bytes: expected room for tiles of one element; got {budget_bytes}")


def _preferred(extent: int) -> int:
    """Return the rows or columns of a step of a product that fits: two steps or more if the extent isn't small."""
    half = -(-extent // 2)
    return min(extent, _MOST_TILE, max(_LEAST_TILE, -(-half // _GRANULE) * _GRANULE))


def _most(fits: Callable[[int], bool], extent: int, granule: int) -> int:
    """Return the largest multiple of the granule, or the extent, that fits; 0 if none does."""
    if fits(extent):
        return extent
    low, high = 0, -(-extent // granule)  # low fits, high doesn't
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle * granule) else (low, middle)
    return low * granule


def cuts(extent: int, length: int) -> list[slice]:
    """Return an extent in parts of ``length``, the last one shorter."""
    return [slice(start, min(extent, start + length)) for start in range(0, extent, length)]


def pitch_of(extent: int, item_bytes: int) -> int:
    """Return from the start of a row to the next one's, in elements: short rows lie close together."""
    vector = max(1, PAD_BYTES // item_bytes)
    return extent if extent < 4 * vector else -(-extent // vector) * vector


def tile_bytes(rows: int, columns: int, items: int, item_bytes: int) -> int:
    """Return the bytes of a tile in whichever order takes more, a multiple of 16."""
    elements = max(rows * pitch_of(columns, item_bytes), columns * pitch_of(rows, item_bytes))
    return -(-items * elements * item_bytes // PAD_BYTES) * PAD_BYTES


def pieces_of(shape: tuple[int, int, int], pitch: int, most: int) -> Iterator[Piece]:
    """Yield what goes through one buffer at a time: (items, rows, columns, first element, elements).

    Args:
        shape: Of items x rows x columns, whose rows lie a pitch apart.
        most: Elements of a buffer.
    """
    items, rows, columns = shape
    whole = slice(0, columns)
    if rows * pitch <= most:
        for i in cuts(items, most // (rows * pitch)):
            yield i, slice(0, rows), whole, i.start * rows * pitch, (i.stop - i.start) * rows * pitch
        return
    for item in range(items):
        of_item = slice(item, item + 1)
        if pitch <= most:
            for r in cuts(rows, most // pitch):
                yield of_item, r, whole, (item * rows + r.start) * pitch, (r.stop - r.start) * pitch
            continue
        for row in range(rows):
            for c in cuts(columns, most):
                yield of_item, slice(row, row + 1), c, (item * rows + row) * pitch + c.start, c.stop - c.start
