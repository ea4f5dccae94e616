"""Races between sets of plans: interleaved rounds, ratios taken within a round, and what counts as a win.

Knows: rounds, medians and quartiles. Does not know: what the plans are of, or which values are tried (``search``).
Called by ``search``. The clock is a ``Stopwatch``, ``cli.products`` or a test's own.

Contestants run in turn within a round, from another one first every time, so that what else the machine does hits all
of them.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from ..plan import Plan

__all__ = ["MEDIAN", "Ratio", "Stopwatch", "race", "screen"]

Name = TypeVar("Name", bound=Hashable)

# A win: faster by more than a hundredth in the median, in three rounds of four, and on no shape slower by more.
MEDIAN, _LOW, _WORST = 1.01, 1.0, 0.99
_FEWEST_ROUNDS, _MOST_ROUNDS = 9, 31  # of a race that decides: 9 make a quartile mean something
_SCREEN_ROUNDS = (3, 9)


class Stopwatch(Protocol):
    """What runs and times plans; the tests give one without a machine."""

    def now(self) -> float:
        """Return seconds."""

    def check(self, plan: Plan) -> None:
        """Raise unless the plan computes exact products rightly, and the same bits as the model's plan."""

    def sample(self, plan: Plan) -> float:
        """Return the seconds of one product by this plan."""

    def renew(self) -> None:
        """Take other operands, elsewhere in memory."""


@dataclass(frozen=True)
class Ratio:
    """The model's time by the candidate's: median and quartiles over the rounds, all shapes together.

    ``worst``: the least of the shapes' own medians.
    """

    median: float
    low: float
    high: float
    worst: float
    rounds: int

    @property
    def wins(self) -> bool:
        """Whether this is more than noise."""
        return self.median > MEDIAN and self.low > _LOW and self.worst > _WORST

    @property
    def verdict(self) -> str:
        """What to say of one that does not win."""
        return "slower" if self.high < 1 else "noise"


def race(watch: Stopwatch, base: Sequence[Plan], other: Sequence[Plan], seconds: float) -> Ratio:
    """Return how many times as fast the second set of plans is, in interleaved rounds for about so long."""
    return _rounds(watch, base, {0: other}, seconds, _FEWEST_ROUNDS, _MOST_ROUNDS)[0]


def screen(
    watch: Stopwatch, base: Sequence[Plan], contestants: Mapping[Name, Sequence[Plan]], seconds: float
) -> dict[Name, Ratio]:
    """Return the ratio of every contestant to the base, from a few rounds in which each runs once."""
    return _rounds(watch, base, contestants, seconds, *_SCREEN_ROUNDS)


def _rounds(
    watch: Stopwatch, base: Sequence[Plan], contestants: Mapping[Name, Sequence[Plan]], seconds: float,
    fewest: int, most: int,
) -> dict[Name, Ratio]:  # fmt: skip
    """Run rounds; within one, each shape in turn: base and contestants, from another one first every time."""
    begin = watch.now()
    logs: dict[Name, list[list[float]]] = {name: [[] for _ in base] for name in contestants}
    for number in range(most):
        if number >= fewest and watch.now() - begin > seconds:
            break
        for shape in range(len(base)):
            field: list[tuple[Name | None, Plan]] = [(None, base[shape])]
            field += [(name, plans[shape]) for name, plans in contestants.items()]
            turn = number % len(field)
            times = {name: watch.sample(plan) for name, plan in (*field[turn:], *field[:turn])}
            for name in contestants:
                logs[name][shape].append(math.log(times[None] / times[name]))
    return {name: _ratio(shapes) for name, shapes in logs.items()}


def _ratio(logs: Sequence[Sequence[float]]) -> Ratio:
    """Return the ratio from logarithms by shape and round: within a round, the geometric mean over the shapes."""
    rounds = [sum(row) / len(row) for row in zip(*logs, strict=True)]
    worst = min(_quantile(shape, 0.5) for shape in logs)
    low, median, high = (math.exp(_quantile(rounds, q)) for q in (0.25, 0.5, 0.75))
    return Ratio(median, low, high, math.exp(worst), len(rounds))


def _quantile(values: Sequence[float], q: float) -> float:
    """Return a quantile, linear between the two values around it."""
    ordered = sorted(values)
    at = q * (len(ordered) - 1)
    below = ordered[math.floor(at)]
    return below + (at - math.floor(at)) * (ordered[math.ceil(at)] - below)
