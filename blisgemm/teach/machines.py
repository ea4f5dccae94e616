"""Machines to learn on: so small that a product of 32 x 32 shows what takes 2000 x 2000 elsewhere.

Knows: their caches. Does not know: what is done with them. Called by ``trace``, ``cachesim`` and people.
"""

from __future__ import annotations

from ..machine.facts import Cache, Machine
from ..machine.isas import GENERIC

__all__ = ["TEACHING_MACHINE"]

# Source: our choice. Each level is 8 times the one before, as on many machines; one matrix of 32 x 32 float32 (4 KiB)
# exceeds L1 and fits in L2, three of them exceed L2 and fit in L3. 16 lines of L1 hold one column of 16 rows, not two.
TEACHING_MACHINE = Machine(
    "teaching", "any", GENERIC, Cache(1, 1024, 4), Cache(2, 8 * 1024, 8), Cache(3, 64 * 1024, 16), 1,
    source="no processor: our choice, small enough for 32 x 32",
)  # fmt: skip
