"""Rows as pictures: rates against n, ratios as a heat map, the surface over kc and nc, scaling over threads.

Knows: matplotlib. Does not know: how anything was measured. Called by ``cli.bench``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .blocks import Surface
from .results import BEST, OURS, Row
from .tables import NAMES

__all__ = ["draw_blocks", "draw_rows", "kind_of"]

# Colours that people with any colour vision tell apart. Source: Okabe & Ito, 2008.
_COLOURS = {
    OURS: "#D55E00", "numpy": "#0072B2", "mkl": "#009E73", "torch": "#CC79A7", "openblas": "#56B4E9",
    "blis": "#E69F00",
}  # fmt: skip
_MARKERS = {OURS: "o", "numpy": "s", "mkl": "^", "torch": "v", "openblas": "D", "blis": "P"}
_WIDEST = 1.5  # the colours of a ratio saturate at this and at its inverse, or further out if all are
_DPI = 150


def kind_of(group: str) -> str:
    """Return the kind of picture that suits a set of shapes."""
    return "rate" if group in ("square", "pow2") else "ratio"


def draw_rows(path: Path, rows: Sequence[Row], kind: str | None = None) -> list[Path]:
    """Draw the rows; one file per set of shapes, the set's name in the file's if there are several.

    Args:
        path: of the picture; its suffix says the format.
        rows: of one run.
        kind: ``rate``, ``ratio`` or ``threads``; by the set if None.

    Returns:
        The files.
    """
    groups = list(dict.fromkeys(row.case.group for row in rows))
    written = []
    for group in groups:
        members = [row for row in rows if row.case.group == group]
        target = path if len(groups) == 1 else path.with_name(f"{path.stem}-{group}{path.suffix}")
        draw = {"rate": _draw_rates, "ratio": _draw_ratios, "threads": _draw_threads}[kind or kind_of(group)]
        _save(draw(members), target)
        written.append(target)
    return written


def _figure(columns: int, rows: int, width: float, height: float) -> tuple[Any, Any]:
    """Return a figure and its axes as a 2-D array, without a display and without global state."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def _save(figure: Any, path: Path) -> None:
    figure.savefig(path, dpi=_DPI)


def _panels(rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    """Return the rows that were measured alike, with a title for each panel."""
    panels: dict[str, list[Row]] = {}
    for row in rows:
        title = f"{row.dtype}, {row.threads} thread{'s' * (row.threads > 1)}, {row.state}{_new(row)}"
        panels.setdefault(title, []).append(row)
    return list(panels.items())


def _new(row: Row) -> str:
    return ", new arrays" if row.out == "new" else ""


def _libraries(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row.seconds))


def _name(library: str) -> str:
    return NAMES.get(library, library)


def _size(row: Row) -> float:
    """Return n, or the side of the cube of as much work."""
    case = row.case
    return float(case.n) if case.m == case.n == case.k else (case.m * case.n * case.k) ** (1 / 3)


def _draw_rates(rows: Sequence[Row]) -> Any:
    """Draw GFLOP/s against n; the measured peak is the top of the axis."""
    panels = _panels(rows)
    columns = min(2, len(panels))
    figure, axes = _figure(columns, -(-len(panels) // columns), 6.4 * columns, 4.2 * -(-len(panels) // columns))
    for ax, (title, members) in zip(axes.flat, panels, strict=False):
        members = sorted(members, key=_size)
        sizes = [_size(row) for row in members]
        peak = max(row.peak_gflops for row in members)
        for name in reversed(_libraries(members)):
            line = [(x, row) for x, row in zip(sizes, members, strict=True) if name in row.seconds]
            xs = [x for x, _ in line]
            ours = name == OURS
            ax.fill_between(
                xs, [row.flops / row.seconds[name].high / 1e9 for _, row in line],
                [row.flops / row.seconds[name].low / 1e9 for _, row in line],
                color=_COLOURS.get(name), alpha=0.18, linewidth=0,
            )  # fmt: skip
            ax.plot(
                xs, [row.gflops(name) for _, row in line], label=_name(name), color=_COLOURS.get(name),
                marker=_MARKERS.get(name, "o"), markersize=4.5, linewidth=2.2 if ours else 1.3, zorder=3 if ours else 2,
            )  # fmt: skip
        ax.set_ylim(0, peak)
        ax.set_xlim(0, max(sizes) * 1.03)
        all_square = all(row.case.m == row.case.n == row.case.k for row in members)
        ax.set_xlabel("n (m = n = k)" if all_square else "cube root of m·n·k")
        ax.set_ylabel("GFLOP/s")
        ax.set_title(f"{title}\ntop: measured fma peak, {peak:.0f} GFLOP/s", fontsize=10)
        ax.grid(alpha=0.25)
        handles, labels = ax.get_legend_handles_labels()
        ax.legend(handles[::-1], labels[::-1], loc="lower right", fontsize=8, ncols=2)
    _hide_rest(axes, len(panels))
    return figure


def _draw_ratios(rows: Sequence[Row]) -> Any:
    """Draw the ratios as a heat map: (m, n) for each k where that fills a grid, else shapes against peers."""
    panels = _panels(rows)
    return _ratio_grids(panels) if _fills_a_grid(rows) else _ratio_list(panels)


def _fills_a_grid(rows: Sequence[Row]) -> bool:
    cases = {row.case for row in rows}
    plain = all(not case.batch and not case.vector and case.a == case.b == case.c == "C" for case in cases)
    ms, ns, ks = ({getattr(case, name) for case in cases} for name in "mnk")
    return plain and len(ms) > 1 and len(ns) > 1 and 2 * len(cases) >= len(ms) * len(ns) * len(ks)


def _ratio_grids(panels: list[tuple[str, list[Row]]]) -> Any:
    """One row of panels per title of ``_panels``, one column per k: their time / ours for the best peer."""
    ks = sorted({row.case.k for _, members in panels for row in members})
    ms = sorted({row.case.m for _, members in panels for row in members})
    ns = sorted({row.case.n for _, members in panels for row in members})
    norm = _norm([row.ratios[BEST].median for _, members in panels for row in members if BEST in row.ratios])
    width, height = 1.6 + 0.75 * len(ns), 1.3 + 0.42 * len(ms)
    figure, axes = _figure(len(ks), len(panels), max(3.4, width) * len(ks) + 0.9, max(2.2, height) * len(panels) + 0.4)
    image = None
    for line, (title, members) in zip(axes, panels, strict=True):
        for ax, k in zip(line, ks, strict=True):
            cells = [[math.nan] * len(ns) for _ in ms]
            for row in members:
                if row.case.k == k and BEST in row.ratios:
                    cells[ms.index(row.case.m)][ns.index(row.case.n)] = row.ratios[BEST].median
            image = _heat(ax, cells, norm)
            ax.set_xticks(range(len(ns)), [str(n) for n in ns], fontsize=8)
            ax.set_yticks(range(len(ms)), [str(m) for m in ms], fontsize=8)
            ax.set_xlabel("n")
            ax.set_ylabel("m")
            ax.set_title(f"k = {k}\n{title}", fontsize=9)
    _bar(figure, image, axes, "time of the best peer / ours")
    return figure


def _ratio_list(panels: list[tuple[str, list[Row]]]) -> Any:
    """One panel per title of ``_panels``: a line per shape, a column per peer."""
    peers = list(dict.fromkeys(peer for _, members in panels for row in members for peer in row.ratios if peer != BEST))
    peers += [BEST]
    norm = _norm([spread.median for _, members in panels for row in members for spread in row.ratios.values()])
    labels = [row.case.label for row in panels[0][1]]
    width = 0.085 * max(map(len, labels)) + 0.78 * len(peers) + 0.3
    columns = min(2, len(panels))
    lines = -(-len(panels) // columns)
    figure, axes = _figure(columns, lines, width * columns + 1.0, (0.27 * len(labels) + 1.0) * lines)
    image = None
    for ax, (title, members) in zip(axes.flat, panels, strict=False):
        cells = [[row.ratios[peer].median if peer in row.ratios else math.nan for peer in peers] for row in members]
        image = _heat(ax, cells, norm)
        ax.set_xticks(range(len(peers)), [_name(peer) for peer in peers], fontsize=8)
        ax.xaxis.tick_top()
        ax.set_yticks(range(len(members)), [row.case.label for row in members], fontsize=8)
        ax.axvline(len(peers) - 1.5, color="white", linewidth=3)
        ax.set_title(title, fontsize=10)
    _hide_rest(axes, len(panels))
    _bar(figure, image, axes, "their time / ours: above 1 blisgemm is faster")
    return figure


def _norm(ratios: Sequence[float]) -> Any:
    """Return the scale of colours: logarithmic, 1 in the middle, alike on both sides."""
    from matplotlib.colors import Normalize

    furthest = max((abs(math.log2(ratio)) for ratio in ratios), default=0.0)
    end = min(max(furthest, math.log2(_WIDEST)), 1.0)
    return Normalize(-end, end)


def _heat(ax: Any, cells: list[list[float]], norm: Any) -> Any:
    """Draw cells of ratios with their numbers; what is missing stays grey."""
    import matplotlib

    colours = matplotlib.colormaps["RdBu"].with_extremes(bad="#dddddd")
    image = ax.imshow([[math.log2(x) for x in line] for line in cells], cmap=colours, norm=norm, aspect="auto")
    for i, line in enumerate(cells):
        for j, ratio in enumerate(line):
            if not math.isnan(ratio):
                dark = abs(norm(math.log2(ratio)) - 0.5) > 0.32
                text = f"{ratio:.2f}" if ratio < 9.995 else f"{ratio:.0f}"
                ax.text(j, i, text, ha="center", va="center", fontsize=8, color="white" if dark else "black")
    ax.tick_params(length=0)
    for spine in ax.spines.values():
        spine.set_visible(False)
    return image


def _bar(figure: Any, image: Any, axes: Any, label: str) -> None:
    """Draw the scale, its ticks as ratios and not as their logarithms."""
    bar = figure.colorbar(image, ax=list(axes.flat), extend="both", shrink=0.9, aspect=30, pad=0.02)
    end = image.norm.vmax
    ticks = [x for x in (0.5, 0.67, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 2) if abs(math.log2(x)) <= end * 1.001]
    bar.set_ticks([math.log2(x) for x in ticks], labels=[f"{x:g}" for x in ticks])
    bar.set_label(label)


def _hide_rest(axes: Any, used: int) -> None:
    for ax in list(axes.flat)[used:]:
        ax.set_visible(False)


def _draw_threads(rows: Sequence[Row]) -> Any:
    """Draw GFLOP/s against the number of threads, a panel per shape measured alike; dashes: perfect scaling."""
    panels: dict[str, list[Row]] = {}
    for row in rows:
        cold = ", cold" if row.state == "cold" else ""
        panels.setdefault(f"{row.case.label}, {row.dtype}{cold}{_new(row)}", []).append(row)
    columns = min(2 if len(panels) in (2, 4) else 3, len(panels))
    lines = -(-len(panels) // columns)
    figure, axes = _figure(columns, lines, 4.2 * columns + 0.6, 3.5 * lines + 0.6)
    for ax, (title, members) in zip(axes.flat, panels.items(), strict=False):
        members = sorted(members, key=lambda row: row.threads)
        counts = [row.threads for row in members]
        first = members[0]
        ax.plot(
            counts, [first.gflops() * t / counts[0] for t in counts], linestyle="--", color="#888888", linewidth=1,
            label=f"blisgemm on {counts[0]}, × threads",
        )  # fmt: skip
        for name in reversed(_libraries(members)):
            line = [row for row in members if name in row.seconds]
            ours = name == OURS
            ax.plot(
                [row.threads for row in line], [row.gflops(name) for row in line], label=_name(name),
                color=_COLOURS.get(name), marker=_MARKERS.get(name, "o"), markersize=5,
                linewidth=2.2 if ours else 1.3, zorder=3 if ours else 2,
            )  # fmt: skip
        ax.set_xticks(counts)
        ax.set_ylim(0, max(row.peak_gflops for row in members))
        ax.set_xlabel("threads")
        ax.set_ylabel("GFLOP/s")
        ax.set_title(f"{title}\ntop: fma peak of so many threads together", fontsize=10)
        ax.grid(alpha=0.25)
    handles, labels = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles[::-1], labels[::-1], fontsize=9, loc="outside lower center", ncols=min(4, len(labels)))
    _hide_rest(axes, len(panels))
    return figure


def draw_blocks(path: Path, surfaces: Sequence[Surface]) -> list[Path]:
    """Draw GFLOP/s over kc and nc, the model's choice in a frame, each number in its cell."""
    cells_wide = max(len(surface.kcs) for surface in surfaces)
    cells_high = max(len(surface.ncs) for surface in surfaces)
    figure, axes = _figure(len(surfaces), 1, (1.9 + 0.62 * cells_wide) * len(surfaces), 1.6 + 0.42 * cells_high)
    from matplotlib.patches import Rectangle

    for ax, surface in zip(axes.flat, surfaces, strict=True):
        flat = [rate for line in surface.gflops for rate in line]
        image = ax.imshow(surface.gflops, cmap="viridis", origin="lower", aspect="auto", vmin=min(flat), vmax=max(flat))
        middle = (min(flat) + max(flat)) / 2
        for i, line in enumerate(surface.gflops):
            for j, rate in enumerate(line):
                colour = "black" if rate > middle else "white"
                ax.text(j, i, f"{rate:.1f}", ha="center", va="center", fontsize=8, color=colour)
        i, j = surface.ncs.index(surface.model_nc), surface.kcs.index(surface.model_kc)
        ax.add_patch(Rectangle((j - 0.5, i - 0.5), 1, 1, fill=False, edgecolor="#D55E00", linewidth=2.5))
        ax.set_xticks(range(len(surface.kcs)), [str(kc) for kc in surface.kcs], fontsize=8)
        ax.set_yticks(range(len(surface.ncs)), [str(nc) for nc in surface.ncs], fontsize=8)
        ax.set_xlabel("kc")
        ax.set_ylabel("nc")
        share = surface.gflops[i][j] / max(flat)
        ax.set_title(
            f"{surface.case.label}, {surface.kernel}\nframe: the model's kc {surface.model_kc}, nc {surface.model_nc}, "
            f"{share:.1%} of the best", fontsize=10,
        )  # fmt: skip
        figure.colorbar(image, ax=ax, label="GFLOP/s")
    _save(figure, path)
    return [path]
