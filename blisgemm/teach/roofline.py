"""The roofline: how fast a product can be, given the bytes that it moves, and which limit rules.

Knows: min(peak, bandwidth x flops per byte) at every level of memory, and the chart as a value and as text. Does not
know: bytes (``traffic``), rates (``rates``; measured: ``bench.rates``), pictures (``roofplot``). Pure. Called by
``explain`` and ``python -m blisgemm roofline``.

The field's seed numbers, computed:

    >>> tile_intensity(128, 128, "float32")  # a block tile of 128 x 128 does 32 flops for each byte that it loads
    32.0
    >>> round(ridge(989e12, 3.35e12))  # H100: 989 TFLOP/s, 3.35 TB/s; below about 300 flops a byte memory rules
    295
    >>> waves(133, 132)  # one tile more than multiprocessors: the second wave has one tile
    2

Source: Williams, Waterman and Patterson, CACM 52(4), 2009; a roof for every level: Ilic, Pratas and Sousa, IEEE
Computer Architecture Letters 13(1), 2014.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import BlisgemmValueError
from ..parallel import check_threads
from .figures import rate_text, seconds_text, share_text, three, work_text
from .rates import Rates
from .traffic import Traffic

__all__ = [
    "Bound", "Point", "Roof", "Roofline", "bounds_of", "points_of", "ridge", "roofline_of", "ruling", "tile_intensity",
    "wave_share", "waves",
]  # fmt: skip

_SIZES = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8, "complex64": 8, "complex128": 16}


def tile_intensity(bm: int, bn: int, dtype: str = "float32") -> float:
    """Return the flops per loaded byte of a bm x bn tile of C: per p one column of A and one row of B are loaded.

    Example:
        >>> tile_intensity(1, 1, "float32"), tile_intensity(6, 16, "float32")
        (0.25, 2.1818181818181817)
    """
    check_threads(bm, "bm")
    check_threads(bn, "bn")
    if dtype not in _SIZES:
        raise BlisgemmValueError(f"dtype: expected one of {', '.join(_SIZES)}; got {dtype!r}")
    return bm * bn * (8 if dtype.startswith("complex") else 2) / ((bm + bn) * _SIZES[dtype])


def ridge(flops_per_second: float, bytes_per_second: float) -> float:
    """Return the intensity, in flops per byte, from which on the multiply-adds are the limit and not the memory."""
    for name, rate in (("flops_per_second", flops_per_second), ("bytes_per_second", bytes_per_second)):
        if isinstance(rate, bool) or not isinstance(rate, (int, float)) or not 0 < rate < math.inf:
            raise BlisgemmValueError(f"{name}: expected a rate above 0; got {rate!r}")
    return flops_per_second / bytes_per_second


def waves(tiles: int, multiprocessors: int) -> int:
    """Return how many times every multiprocessor takes a tile until all are done, the last time maybe not every one."""
    check_threads(tiles, "tiles")
    check_threads(multiprocessors, "multiprocessors")
    return -(-tiles // multiprocessors)


def wave_share(tiles: int, multiprocessors: int) -> float:
    """Return the share of the multiprocessors' time that is worked.

    Example:
        >>> round(wave_share(133, 132), 3), wave_share(264, 132)
        (0.504, 1.0)
    """
    return tiles / (waves(tiles, multiprocessors) * multiprocessors)


@dataclass(frozen=True)
class Bound:
    """One limit: what it would take if nothing else took time.

    Attributes:
        name: ``compute``, or the level that sends the bytes.
        amount: flops, or bytes. rate: of them per second. seconds: amount by rate.
    """

    name: str
    amount: int
    rate: float
    seconds: float

    def __str__(self) -> str:
        what = f"flops at {work_text(self.rate)}" if self.name == "compute" else f"bytes at {rate_text(self.rate)}"
        return f"{self.name}: {self.amount:,} {what} take {seconds_text(self.seconds)}"


def bounds_of(traffic: Traffic, rates: Rates, dtype: str, threads: int) -> tuple[Bound, ...]:
    """Return every limit whose rate is known: compute first, then the levels, nearest first."""
    peak = rates.peak(dtype, threads)
    bounds = [Bound("compute", traffic.flops, peak, traffic.flops / peak)]
    for level in traffic.levels:
        rate = rates.bandwidth(level.level, threads)
        if rate is not None:
            bounds.append(Bound(level.level, level.bytes, rate, level.bytes / rate))
    return tuple(bounds)


def ruling(bounds: Iterable[Bound]) -> Bound:
    """Return the limit that takes longest; among equals the first."""
    return max(bounds, key=lambda bound: bound.seconds)


@dataclass(frozen=True)
class Roof:
    """A level's slanted roof. Units: bytes per second."""

    level: str
    rate: float


@dataclass(frozen=True)
class Point:
    """Where a product, or one level's view of it, lies. Units: flops per byte, flops per second.

    ``measured``: whether the height was timed, in place of following from the roofs.
    """

    name: str
    level: str
    intensity: float
    flops_per_second: float
    measured: bool = False


@dataclass(frozen=True)
class Roofline:
    """One machine's roofs and the points under them.

    Attributes:
        title: machine and threads. source: of the figures.
        peak: flops per second of the flat roof, for the dtype. roofs: nearest level first.
    """

    title: str
    source: str
    dtype: str
    peak: float
    roofs: tuple[Roof, ...]
    points: tuple[Point, ...] = ()

    def attainable(self, intensity: float, level: str) -> float:
        """Return flops per second under the roof of a level at an intensity.

        Raises:
            BlisgemmValueError: the level has no roof, or the intensity is below 0 or not a number.
        """
        if not intensity >= 0:
            raise BlisgemmValueError(f"intensity: expected at least 0 flops per byte; got {intensity!r}")
        return min(self.peak, self._roof(level).rate * intensity)

    def ridge(self, level: str) -> float:
        """Return the flops per byte where a level's roof meets the peak."""
        return ridge(self.peak, self._roof(level).rate)

    def _roof(self, level: str) -> Roof:
        for roof in self.roofs:
            if roof.level == level:
                return roof
        raise BlisgemmValueError(f"level: expected one of {', '.join(r.level for r in self.roofs)}; got {level!r}")

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values for JSON; each point says what its roof allows."""
        return {
            "title": self.title, "source": self.source, "dtype": self.dtype, "peak_flops_per_second": self.peak,
            "roofs": [
                {"level": r.level, "bytes_per_second": r.rate, "ridge_flops_per_byte": self.ridge(r.level)}
                for r in self.roofs
            ],
            "points": [
                {
                    "name": p.name, "level": p.level, "flops_per_byte": p.intensity,
                    "flops_per_second": p.flops_per_second, "measured": p.measured,
                    "attainable_flops_per_second": self.attainable(p.intensity, p.level),
                }
                for p in self.points
            ],
        }  # fmt: skip

    def __str__(self) -> str:
        """The chart and its numbers as text."""
        lines = [f"{self.title}, {self.dtype}", self.source, "", *draw(self), ""]
        lines.append(f"{'peak':<8} {work_text(self.peak):>14}")
        for roof in self.roofs:
            meets = f"reaches the peak at {three(self.ridge(roof.level))} FLOP/byte"
            lines.append(f"{roof.level:<8} {rate_text(roof.rate):>14}   {meets}")
        for number, point in enumerate(self.points):
            allowed = self.attainable(point.intensity, point.level)
            share = (
                f", {share_text(point.flops_per_second / allowed)} of what its roof allows" if point.measured else ""
            )
            lines.append(
                f"{_MARKS[number % len(_MARKS)]} {point.name} ({point.level}): {three(point.intensity)} FLOP/byte, "
                f"{work_text(point.flops_per_second)}{share}"
            )
        return "\n".join(lines)


_MARKS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def roofline_of(rates: Rates, dtype: str, threads: int = 1, points: Sequence[Point] = ()) -> Roofline:
    """Return the roofs of a machine and those of the points whose level has one."""
    check_threads(threads)
    roofs = tuple(Roof(level.name, level.rate(threads)) for level in rates.levels)
    here = {roof.level for roof in roofs}
    count = f", {threads} thread{'s' * (threads > 1)}" if rates.cores > 1 or threads > 1 else ""
    drawn = tuple(point for point in points if point.level in here and math.isfinite(point.intensity))
    return Roofline(f"{rates.name}{count}", rates.source, dtype, rates.peak(dtype, threads), roofs, drawn)


def points_of(
    name: str, traffic: Traffic, rates: Rates, dtype: str, threads: int, measured: float | None = None
) -> tuple[Point, ...]:
    """Return a product's points, one for each level with a roof: all at one height, what the product does.

    Args:
        measured: flops per second as timed; else the height is what the limit that rules allows.
    """
    bounds = bounds_of(traffic, rates, dtype, threads)
    worst = ruling(bounds)
    height = measured if measured is not None else (traffic.flops / worst.seconds if worst.seconds else 0.0)
    return tuple(
        Point(name, bound.name, traffic.intensity(bound.name), height, measured is not None)
        for bound in bounds
        if bound.name != "compute" and bound.amount and height
    )


def span(chart: Roofline) -> tuple[float, float, float, float]:
    """Return the least and largest intensity and height that a chart of both logarithmic axes should show."""
    xs = [chart.ridge(roof.level) for roof in chart.roofs] + [point.intensity for point in chart.points]
    least, most = min(xs, default=1.0) / 4, max(xs, default=1.0) * 4
    slowest = min((roof.rate for roof in chart.roofs), default=chart.peak)
    heights = [chart.peak, slowest * max(least, min(xs, default=1.0) / 4), *(p.flops_per_second for p in chart.points)]
    top = max(heights) * 2
    return least, most, min(min(heights) / 1.5, top / 60), top


def draw(chart: Roofline, width: int = 72, height: int = 18) -> list[str]:
    """Draw the chart with characters: both axes are logarithmic."""
    x0, x1, y0, y1 = span(chart)

    def column(x: float) -> int:
        return round(math.log(x / x0) / math.log(x1 / x0) * (width - 1))

    def line(y: float) -> int:
        return height - 1 - round(math.log(y / y0) / math.log(y1 / y0) * (height - 1))

    grid = [[" "] * width for _ in range(height)]
    for roof in reversed(chart.roofs):
        for at in range(width):
            x = x0 * (x1 / x0) ** (at / (width - 1))
            y = min(chart.peak, roof.rate * x)
            if y >= y0:
                grid[line(y)][at] = "─" if y == chart.peak else "╱"
    for roof in chart.roofs:  # names beside the roofs, where there is room
        y = y0 * (y1 / y0) ** 0.5
        at = column(min(max(y / roof.rate, x0), x1)) + 1
        row = line(min(chart.peak, roof.rate * x0 * (x1 / x0) ** (at / (width - 1)))) + 1
        label = roof.level
        if row < height and at + len(label) < width:
            grid[row][at : at + len(label)] = label
    for number, point in enumerate(chart.points):
        row, at = line(point.flops_per_second), column(point.intensity)
        if 0 <= row < height and 0 <= at < width:
            grid[row][at] = _MARKS[number % len(_MARKS)]
    rows = [f"{'':>14} │{''.join(cells).rstrip()}" for cells in grid]
    top = line(chart.peak)
    rows[top] = f"{work_text(chart.peak):>14} │{''.join(grid[top]).rstrip()}"
    left, right = f"{three(x0)}", f"{three(x1)} FLOP/byte"
    rows.append(f"{'':>14} └{'─' * width}")
    rows.append(f"{'':>15} {left}{right:>{width - len(left)}}")
    return rows
