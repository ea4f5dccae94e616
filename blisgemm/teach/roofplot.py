"""A roofline as a picture: both axes logarithmic, every roof and every point labelled.

Knows: matplotlib. Does not know: where roofs and points come from (``roofline``). Called by ``python -m blisgemm
roofline --plot`` and notebooks.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from ..errors import BlisgemmValueError
from .figures import rate_text, three, work_text
from .roofline import Point, Roofline, span

__all__ = ["draw_roofline", "roofline_figure"]

# Colours that people with any colour vision tell apart, one a level. Source: Okabe & Ito, 2008.
_COLOURS = {"L1": "#0072B2", "L2": "#009E73", "L3": "#E69F00", "memory": "#D55E00"}
_OTHER, _INK = "#CC79A7", "#222222"
_FEW = 3  # so many names fit below their points with all their figures
_TOGETHER = 1.3  # points that are nearer to each other, times, share a label
_BEHIND = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.8}
_WIDTH, _HEIGHT, _DPI = 9.6, 5.4, 160  # inches and dots of a 16:9 slide


def roofline_figure(chart: Roofline) -> Any:
    """Return a matplotlib Figure.

    Raises:
        BlisgemmValueError: matplotlib is not installed; the message names the extra.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise BlisgemmValueError("plot: expected matplotlib to be installed: pip install 'blisgemm[plot]'") from None
    figure = Figure(figsize=(_WIDTH, _HEIGHT), layout="constrained")
    axes = figure.subplots()
    x0, x1, y0, y1 = span(chart)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlim(x0, x1)
    axes.set_ylim(y0 / 1e9, y1 / 1e9)
    for roof in chart.roofs:
        meets = chart.ridge(roof.level)
        axes.plot([x0, meets], [roof.rate * x0 / 1e9, chart.peak / 1e9], color=_colour(roof.level), linewidth=2.2)
    first = min((chart.ridge(roof.level) for roof in chart.roofs), default=x0)
    axes.plot([first, x1], [chart.peak / 1e9] * 2, color=_INK, linewidth=2.6)
    axes.text(
        x1 / 1.06, chart.peak / 1e9 * 1.06, f"peak, {chart.dtype}: {work_text(chart.peak)}", ha="right", va="bottom",
        fontsize=10, color=_INK, fontweight="bold",
    )  # fmt: skip
    _name_roofs(axes, chart, (x0, x1, y0, y1))
    figure.draw_without_rendering()  # settles where things are, which names depend on
    _draw_points(axes, chart)
    axes.set_xlabel("arithmetic intensity, FLOP per byte that the level sends")
    axes.set_title(chart.title, fontsize=13, loc="left", fontweight="bold")
    axes.text(1.0, 1.015, chart.source, transform=axes.transAxes, ha="right", fontsize=6.5, color="#666666")
    axes.xaxis.set_major_formatter(lambda value, _: three(value))
    axes.yaxis.set_major_formatter(lambda value, _: work_text(value * 1e9))
    axes.yaxis.set_minor_formatter(lambda *_: "")
    axes.grid(True, which="major", color="#e3e3e3", linewidth=0.7)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure


def draw_roofline(chart: Roofline, path: Path) -> None:
    """Write the picture; the suffix of the path says the format.

    Raises:
        BlisgemmValueError: matplotlib is not installed, or can't write such a file.
    """
    try:
        roofline_figure(chart).savefig(path, dpi=_DPI)
    except (OSError, ValueError) as error:
        if isinstance(error, BlisgemmValueError):
            raise
        raise BlisgemmValueError(f"plot: expected a file that can be written; got {path}: {error}") from None


def _colour(level: str) -> str:
    return _COLOURS.get(level, _OTHER)


def _name_roofs(axes: Any, chart: Roofline, box: tuple[float, float, float, float]) -> None:
    """Write each roof's name along it, where no nearer roof runs through the words."""
    x0, x1, y0, y1 = box
    width, height = _WIDTH * 0.9, _HEIGHT * 0.85  # about what the axes take of the figure
    slope = math.degrees(math.atan2(height / math.log(y1 / y0), width / math.log(x1 / x0)))
    for number, roof in enumerate(chart.roofs):
        low, high = max(x0, y0 / roof.rate), chart.ridge(roof.level)
        at = low * (high / low) ** (0.36 if number % 2 == 0 else 0.16)
        axes.annotate(
            f"{roof.level}: {rate_text(roof.rate)}", (at, roof.rate * at / 1e9), xytext=(-3, 4),
            textcoords="offset points", rotation=slope, rotation_mode="anchor", fontsize=9, color=_colour(roof.level),
            ha="left", va="bottom", fontweight="bold",
        )  # fmt: skip


def _draw_points(axes: Any, chart: Roofline) -> None:
    """Draw the points; a product's points of several levels are joined, since they are one product."""
    names = list(dict.fromkeys(point.name for point in chart.points))
    for name in names:
        members = _members(chart, name)
        height = members[0].flops_per_second / 1e9
        axes.plot([p.intensity for p in members], [height] * len(members), color=_INK, linewidth=0.8, alpha=0.6)
        for member in members:
            axes.plot(
                member.intensity, height, marker="o", markersize=8, color=_colour(member.level),
                markeredgecolor="white", markeredgewidth=0.8, linestyle="none", zorder=5,
            )  # fmt: skip
    if len(names) > _FEW:
        _name_many(axes, [_members(chart, name)[-1] for name in names])
        return
    for number, name in enumerate(names):
        _name_one(axes, _members(chart, name), number)


def _members(chart: Roofline, name: str) -> list[Point]:
    return sorted((point for point in chart.points if point.name == name), key=lambda point: point.intensity)


def _name_one(axes: Any, members: list[Point], number: int) -> None:
    """Write what the points are and, right below, which level's: once for those that lie together."""
    last, height = members[-1], members[-1].flops_per_second / 1e9
    text = f"{last.name}: {'' if last.measured else 'at most '}{work_text(last.flops_per_second)}"
    middle = math.sqrt(members[0].intensity * last.intensity)
    at = axes.transAxes.inverted().transform(axes.transData.transform((middle, height)))[0]
    below = -(32 if len(members) > 1 else 20) - 15 * number
    align = "left" if at < 0.3 else "right" if at > 0.7 else "center"
    axes.annotate(
        text, (middle, height), xytext=(0, below), textcoords="offset points", fontsize=9.5, color=_INK,
        ha=align, zorder=6, bbox=_BEHIND,
    )  # fmt: skip
    groups: list[list[Point]] = []
    for member in members if len(members) > 1 else ():
        if groups and member.intensity < _TOGETHER * groups[-1][-1].intensity:
            groups[-1].append(member)
        else:
            groups.append([member])
    for group in groups:
        axes.annotate(
            ", ".join(sorted(member.level for member in group)), (group[0].intensity, height), xytext=(0, -15),
            textcoords="offset points", fontsize=8.5, color=_colour(group[-1].level), ha="center", zorder=6,
            bbox=_BEHIND,
        )  # fmt: skip


def _name_many(axes: Any, points: list[Point]) -> None:
    """Write the names to the right of the points, from the top down, moved down where they would touch."""
    inches = axes.figure.dpi_scale_trans.inverted()
    floor: dict[int, float] = {}
    for point in sorted(points, key=lambda point: -point.flops_per_second):
        place = (point.intensity, point.flops_per_second / 1e9)
        x, y = inches.transform(axes.transData.transform(place)) * 72  # points of type
        column = round(x / 40)
        wanted = min(y - 3, min(floor.get(column + d, math.inf) for d in (-1, 0, 1)) - 11)
        floor[column] = wanted
        far = y - 3 - wanted > 2
        axes.annotate(
            f"{point.name}: {work_text(point.flops_per_second)}", place, xytext=(22 if far else 9, wanted - y),
            textcoords="offset points", fontsize=9, color=_INK, ha="left", zorder=6, bbox=_BEHIND,
            arrowprops={"arrowstyle": "-", "color": "#999999", "linewidth": 0.6} if far else None,
        )  # fmt: skip
