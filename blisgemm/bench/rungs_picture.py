"""The ladder as a picture: a bar for each rung on a logarithmic scale, and the six orders of the loops beside it.

Knows: matplotlib. Does not know: how anything was measured. Called by ``cli.ladder``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .rungs import Climb, Timed

__all__ = ["draw_climb"]

# Colours that people with any colour vision tell apart. Source: Okabe & Ito, 2008.
_BAR, _LAST, _PEAK, _GREY = "#0072B2", "#D55E00", "#009E73", "#666666"
_DPI = 200


def draw_climb(path: Path, climb: Climb, machine: str) -> None:
    """Draw one file; its suffix says the format.

    Args:
        climb: what was measured.
        machine: the processor, for the foot.
    """
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "ladder", "font.size": 11}):
        figure = Figure(figsize=(12.8, 5.6), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=(1.9, 1))
        _draw_rungs(left, climb)
        _draw_orders(right, climb)
        figure.supxlabel(
            f"{climb.dtype}, n = {climb.n}, one thread unless said otherwise, {machine}", fontsize=9, color=_GREY
        )
        metadata = {"Date": None} if path.suffix == ".svg" else None
        figure.savefig(path, dpi=_DPI, metadata=metadata)


def _draw_rungs(ax: Any, climb: Climb) -> None:
    colours = [_LAST if timed.threads > 1 else _BAR for timed in climb.rungs]
    texts = [
        _rate(timed) + (f", {timed.of_peak:.0%} of peak" if timed.of_peak > 0.005 else "") for timed in climb.rungs
    ]
    ax.set_xscale("log")
    ax.set_xlim(min(timed.gflops for timed in climb.rungs) / 3, climb.peak_gflops * climb.rungs[-1].threads * 1.6)
    _bars(ax, climb.rungs, [_label(timed, climb) for timed in climb.rungs], texts, colours)
    threads = list(dict.fromkeys(timed.threads for timed in climb.rungs))
    for count in threads:
        ax.axvline(climb.peak_gflops * count, color=_PEAK, linewidth=2, linestyle="-" if count == 1 else ":", zorder=1)
    more = "".join(f", dots: × {count}" for count in threads if count > 1)
    peak = f"green: measured fma peak of a core, {climb.peak_gflops:.0f} GFLOP/s{more}"
    ax.set_title(f"The ladder: one idea a rung\n{peak}", fontsize=12, loc="left")
    ax.set_xlabel("GFLOP/s, each grey line ten times the one before")


def _draw_orders(ax: Any, climb: Climb) -> None:
    orders = sorted(climb.orders, key=lambda timed: -timed.gflops)
    labels = [f"{timed.name}, inside: {timed.name[-1]}" for timed in orders]
    ax.set_xlim(0, max(timed.gflops for timed in orders) * 1.02)
    _bars(ax, orders, labels, [_rate(timed) for timed in orders], [_BAR] * len(orders))
    ax.set_title("Rung 2: three loops in six orders\ni: rows of C, j: its columns, p: sums", fontsize=12, loc="left")
    ax.set_xlabel("GFLOP/s")


def _bars(ax: Any, rows: Sequence[Timed], labels: Sequence[str], texts: Sequence[str], colours: Sequence[str]) -> None:
    """Draw horizontal bars from the top down; what there is to say of one stands in it if it is long, else behind."""
    places = range(len(rows))
    ax.barh(places, [timed.gflops for timed in rows], color=colours, height=0.7, zorder=2)
    ax.set_yticks(places, labels)
    ax.invert_yaxis()
    ax.tick_params(axis="y", length=0)
    for place, timed, text in zip(places, rows, texts, strict=True):
        x, _ = ax.transAxes.inverted().transform(ax.transData.transform((timed.gflops, place)))
        inside = x > 0.45
        ax.annotate(
            text, (timed.gflops, place), xytext=(-6 if inside else 6, 0), textcoords="offset points", va="center",
            ha="right" if inside else "left", color="white" if inside else "black", fontsize=11, zorder=3,
        )  # fmt: skip
    ax.grid(axis="x", alpha=0.4)
    for side in ("top", "right", "left"):
        ax.spines[side].set_visible(False)


def _rate(timed: Timed) -> str:
    return f"{timed.gflops:.3g}"


def _label(timed: Timed, climb: Climb) -> str:
    return f"{timed.name}: {timed.title}{timed.beside(climb.n)}"
