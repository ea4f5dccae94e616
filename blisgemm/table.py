"""What the compiled lane reads from memory: its limits, and the products that it may call by address.

Knows: where each number lies in one array of int64. Does not know: how limits are chosen (``ways``), what a key means
(``outcome``), what runs (``driver``). Called by ``lane`` and ``driver``; ``checks`` compiles ``place``.

::

    kc_max, work_limit, crowded_limit, few_shallow, few_deep, few_far, l2_bytes,
    narrow_columns, narrow_crowded, narrow_terms | row | ... ROWS rows

A row is (key, address of the compiled function, kc, rows_first). A key has one row, which the last that came has; a
product whose row another has taken goes by way of Python, as one that has none does. One pointer to it all takes the
place of six integers among the lane's arguments: 86 of 217 ns that the call of an empty function took with them (Zen 3,
2026-11-30).
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["FIRST", "ROWS", "WIDTH", "Table", "enter", "new_table", "place"]

Table = np.ndarray[Any, np.dtype[np.int64]]

FIRST, ROWS, WIDTH = 10, 256, 4  # where the rows begin, how many there are, integers in each


def new_table(*limits: int) -> Table:
    """Return a table with these limits, in the order above, and no rows."""
    table = np.zeros(FIRST + ROWS * WIDTH, np.int64)
    table[: len(limits)] = limits
    return table


def place(key):  # type: ignore[no-untyped-def]
    """Return where the row of a key begins: its extents and flags, mixed; ``checks`` compiles the same text."""
    return FIRST + WIDTH * (((key >> 7) + 7 * (key >> 25) + 31 * (key >> 43) + 5 * (key & 127)) & (ROWS - 1))


def enter(table: Table, key: int, address: int, kc: int, rows_first: bool) -> None:
    """Let the lane call ``run_direct`` or ``run_columns`` at ``address`` for products of this key."""
    row = place(key)
    table[row : row + WIDTH] = key, address, kc, rows_first
