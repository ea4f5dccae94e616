"""A part of a matrix without the matrix: where it begins and ends.

Knows: how a view's extents follow from slices. Does not know: elements, or what a part is used for. Called by
``trace``, whose loops slice it as they slice an array.
"""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["Region"]


class Region(NamedTuple):
    """Rows ``row`` to ``row_end`` and columns ``column`` to ``column_end`` of some matrix.

    Example:
        >>> Region.whole(10, 8)[2:, 4:6]
        Region(row=2, row_end=10, column=4, column_end=6)
    """

    row: int
    row_end: int
    column: int
    column_end: int

    @classmethod
    def whole(cls, rows: int, columns: int) -> Region:
        """Return all of a matrix of that shape."""
        return cls(0, rows, 0, columns)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.row_end - self.row, self.column_end - self.column

    def __getitem__(self, key: Any) -> Any:
        """Return the part that slices of step 1, or a row's number, cut out."""
        rows, columns = key if isinstance(key, tuple) else (key, slice(None))
        row, row_end = _cut(self.row, self.row_end, rows)
        return Region(row, row_end, *_cut(self.column, self.column_end, columns))


def _cut(start: int, end: int, part: Any) -> tuple[int, int]:
    """Return where a part of start to end begins and ends."""
    if isinstance(part, slice):
        first, last, _ = part.indices(end - start)
        return start + first, start + max(first, last)
    return start + part, start + part + 1
