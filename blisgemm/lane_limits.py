"""How much the compiled lanes do at once, by dtype, on this machine and as it is tuned.

Knows: which limits a lane is given. Does not know: what a lane does with them (``checks``), or a plan. Called by
``lane`` and ``cli``.
"""

from __future__ import annotations

from . import limits
from .blocking import KC_MAX
from .machine import current
from .ways import direct_terms, direct_tile_terms

__all__ = ["fast_lane_kc", "fast_lane_terms", "stack_lane_terms"]


def fast_lane_kc(dtype: str) -> int:
    """Return the largest k that is one kc block."""
    return KC_MAX[dtype]


def fast_lane_terms(dtype: str) -> tuple[int, int]:
    """Return the largest m * n * k that the fast lane does at once: as a rule, and where B's rows crowd few sets of L1.

    A tuned limit may lower them, not raise them.
    """
    from .tuning import in_force, lane_terms

    alone, crowded, _ = direct_terms(dtype)
    most = min(lane_terms(in_force(current()), dtype, alone), direct_tile_terms(dtype))
    row = (current().isa.name, dtype)
    if row in limits.NEAR or row in limits.NEAR_TERMS:
        most = min(most, limits.NEAR_LANE_EDGE**3)
    return most, min(most, crowded)


def stack_lane_terms(dtype: str) -> int:
    """Return the largest m * n * k of an item of a batch that the lane of small batches does; tuning may lower it."""
    from .tuning import in_force, lane_terms

    alone, _, item = direct_terms(dtype)
    most = lane_terms(in_force(current()), dtype, alone)
    return item if most == alone else min(item, most)
