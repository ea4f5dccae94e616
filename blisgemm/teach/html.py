"""An explanation as HTML: one element for a notebook, or one page; nothing is fetched, no script.

Knows: markup, colours in light and dark. Does not know: what an explanation says (``explain``). Called by
``explain.Explanation._repr_html_`` and ``python -m blisgemm explain --html``.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING

from .figures import bytes_text, rate_text, seconds_text, share_text, three, work_text

if TYPE_CHECKING:
    from ..blocking import Footprint
    from .explain import Explanation
    from .roofline import Bound

__all__ = ["fragment", "page"]

# Colours that people with any colour vision tell apart. Source: Okabe & Ito, 2008.
_COLOURS = {
    "A": "#0072B2", "packed A": "#56B4E9", "B": "#D55E00", "packed B": "#E69F00", "copy of B": "#E69F00",
    "C": "#009E73", "sums": "#CC79A7",
}  # fmt: skip
_PLACES = ("registers", "L1", "L2", "L3", "memory")

_DARK = "--ink:#e8e6e1;--soft:#a9a69f;--line:#3d3c39;--paper:#1d1c1a;--trough:#33322f;--fill:#6db3e8;--hot:#f08a4b"
_STYLE = """
.blisgemm-explain{--ink:#22211f;--soft:#64615b;--line:#dddad3;--paper:#fffefb;--trough:#eceae4;--fill:#2f7fb8;
--hot:#c4500f;color:var(--ink);background:var(--paper);border:1px solid var(--line);border-radius:10px;
padding:1.1em 1.3em;max-width:62em;font:14px/1.45 system-ui,sans-serif;box-sizing:border-box}
.blisgemm-explain *{box-sizing:border-box}
.blisgemm-explain h2{font-size:1.25em;margin:0 0 .2em;font-weight:650}
.blisgemm-explain h3{font-size:1em;margin:1.4em 0 .5em;font-weight:650}
.blisgemm-explain p{margin:.25em 0}
.blisgemm-explain .soft{color:var(--soft)}
.blisgemm-explain .wide{overflow-x:auto}
TWICE table{border-collapse:collapse;margin:0;width:100%;font-size:13px;background:none;color:inherit;
table-layout:auto}
TWICE tr{background:none!important}
TWICE th,TWICE td{padding:.32em .7em .32em 0;text-align:left;vertical-align:top;
border:0;border-bottom:1px solid var(--line)}
TWICE th{font-weight:600;color:var(--soft);white-space:nowrap}
TWICE .n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
TWICE .one{white-space:nowrap}
TWICE code{font:12.5px ui-monospace,monospace;background:none;color:inherit;padding:0}
.blisgemm-explain .bar{display:flex;height:.85em;min-width:7em;border-radius:3px;background:var(--trough);
overflow:hidden;margin-top:.28em}
.blisgemm-explain .bar i{display:block;height:100%;background:var(--fill)}
.blisgemm-explain .bar i.hot{background:var(--hot)}
.blisgemm-explain .key{display:inline-block;width:.7em;height:.7em;border-radius:2px;margin-right:.35em}
.blisgemm-explain ul{margin:.2em 0;padding-left:1.2em}
.blisgemm-explain summary{cursor:pointer;font-weight:600;margin-top:1.2em}
@media (prefers-color-scheme:dark){.blisgemm-explain{DARK}}
[data-jp-theme-light="false"] .blisgemm-explain,.vscode-dark .blisgemm-explain{DARK}
[data-jp-theme-light="true"] .blisgemm-explain,.vscode-light .blisgemm-explain{--ink:#22211f;--soft:#64615b;
--line:#dddad3;--paper:#fffefb;--trough:#eceae4;--fill:#2f7fb8;--hot:#c4500f}
"""
# A class named twice outweighs what notebooks say about tables: cells at the right, columns of one width.
_STYLE = _STYLE.replace("TWICE", ".blisgemm-explain.blisgemm-explain").replace("DARK", _DARK).strip()


def page(it: Explanation) -> str:
    """Return a whole page with the explanation in it."""
    title = escape(_title(it))
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{title}</title><style>:root{{color-scheme:light dark}}"
        "body{margin:0;padding:1.2em;display:flex;justify-content:center}"
        ".blisgemm-explain{width:100%}@media (max-width:40em){body{padding:.4em}}</style></head>"
        f"<body>{fragment(it)}</body></html>\n"
    )


def fragment(it: Explanation) -> str:
    """Return one element with its own styles."""
    parts = [f"<h2>{escape(_title(it))}</h2>", *_verdict(it), _places(it), _traffic(it), _bounds(it), _others(it)]
    parts += [_list("Why", _reasons(it), opened=False), _list("The model", _model(it), opened=False)]
    return f'<div class="blisgemm-explain"><style>{_STYLE}</style>{"".join(parts)}</div>'


def _title(it: Explanation) -> str:
    plan = it.plan
    times = f"{plan.batch} times " if plan.batch != 1 else ""
    return f"{times}({plan.m} × {plan.k}) · ({plan.k} × {plan.n}), {plan.dtype}, on {plan.machine.name}"


def _verdict(it: Explanation) -> Iterable[str]:
    plan, worst = it.plan, it.ruling
    kernel = f", kernel <code>{escape(plan.kernel.name)}</code>" if plan.kernel else ""
    turned = ", computed as C′ = B′ · A′" if plan.swapped else ""
    lying = " (A as it lies)" if plan.half else ""
    threads = f"{plan.threads} thread{'s' * (plan.threads > 1)}"
    yield f"<p>Path <b>{escape(plan.path)}</b>{lying}{turned}{kernel}, {threads}.</p>"
    if worst is not None and it.attainable and it.serial and it.traffic:
        serial = work_text(it.traffic.flops / it.serial)
        yield (
            f"<p>Limit: <b>{escape(worst.name)}</b>. At most <b>{work_text(it.attainable)}</b>; "
            f"{serial} if nothing overlapped.</p>"
        )
    yield f'<p class="soft">Bits: {escape(plan.bits)}.</p>'


def _table(heads: Iterable[tuple[str, bool]], rows: Iterable[str]) -> str:
    head = "".join(f'<th scope="col"{_right(right)}>{text}</th>' for text, right in heads)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'


def _right(right: bool) -> str:
    return ' class="n"' if right else ""


def _row(*cells: tuple[str, bool]) -> str:
    return f"<tr>{''.join(f'<td{_right(right)}>{text}</td>' for text, right in cells)}</tr>"


def _bar(parts: Iterable[tuple[float, str]], label: str) -> str:
    """Return a bar of (share, colour or ``hot`` or nothing) with a label for readers that don't see it."""
    cells = ""
    for share, colour in parts:
        paint = ' class="hot"' if colour == "hot" else ""
        fill = f";background:{colour}" if colour.startswith("#") else ""
        cells += f'<i{paint} style="width:{min(1.0, share) * 100:.2f}%{fill}"></i>'
    return f'<span class="bar" role="img" aria-label="{escape(label)}">{cells}</span>'


def _places(it: Explanation) -> str:
    if not it.places:
        return ""
    heads = (("block", False), ("lies in", False), ("takes", True), ("of", True), ("full", True), ("", False))
    return "<h3>Where the blocks lie</h3>" + _table(heads, (_place(place) for place in it.places))


def _place(place: Footprint) -> str:
    of = bytes_text(place.cache_bytes) if place.cache_bytes else ""
    full = share_text(place.share) if place.cache_bytes else ""
    drawn = _bar([(place.share, "hot" if place.share > 1 else "")], f"{place.what}: {full}") if full else ""
    return _row(
        (escape(place.what), False), (_PLACES[place.level], False), (bytes_text(place.bytes), True), (of, True),
        (full, True), (drawn, False),
    )  # fmt: skip


def _traffic(it: Explanation) -> str:
    if it.traffic is None:
        return ""
    names = [name for name, _ in it.traffic.levels[0].operands]
    heads = [("level", False)]
    for name in names:
        key = f'<span class="key" style="background:{_COLOURS.get(name, "#888888")}"></span>'
        heads.append((f"{key}{escape(name)}", True))
    heads += [("in all", True), ("FLOP/byte", True), ("of which", False)]
    rows = []
    for each in it.traffic.levels:
        whole = max(1, each.bytes)
        drawn = _bar(
            [(count / whole, _COLOURS.get(name, "#888888")) for name, count in each.operands if count],
            ", ".join(f"{name} {share_text(count / whole)}" for name, count in each.operands),
        )
        intensity = three(it.traffic.intensity(each.level)) if each.bytes else "–"
        cells = [(bytes_text(count) if count else "0", True) for _, count in each.operands]
        rows.append(
            _row((each.level, False), *cells, (bytes_text(each.bytes), True), (intensity, True), (drawn, False))
        )
    note = '<p class="soft">Bytes that each level exchanges with what is nearer to the multiply-adds.</p>'
    return f"<h3>Expected traffic</h3>{note}{_table(heads, rows)}"


def _bounds(it: Explanation) -> str:
    worst = it.ruling
    if worst is None:
        return ""
    heads = (("limit", False), ("amount", True), ("at", True), ("takes", True), ("", False))
    return "<h3>Expected time at each limit</h3>" + _table(heads, (_bound(bound, worst) for bound in it.bounds))


def _bound(bound: Bound, worst: Bound) -> str:
    compute, rules = bound.name == "compute", bound is worst
    amount = f"{three(bound.amount / 1e9)} GFLOP" if compute else bytes_text(bound.amount)
    rate = work_text(bound.rate) if compute else rate_text(bound.rate)
    share = bound.seconds / worst.seconds if worst.seconds else 0.0
    name = f"<b>{escape(bound.name)}</b>, rules" if rules else escape(bound.name)
    drawn = _bar([(share, "hot" if rules else "")], f"{bound.name}: {share_text(share)} of the longest")
    return _row((name, False), (amount, True), (rate, True), (seconds_text(bound.seconds), True), (drawn, False))


def _others(it: Explanation) -> str:
    from .explain import cost_of

    if not it.alternatives:
        return ""
    rows = []
    if it.ruling and it.serial:
        times = f"{seconds_text(it.ruling.seconds)} to {seconds_text(it.serial)}"
        rows.append(_row(("what runs", False), (_whole(times), False), ("", False), ("", False)))
    for other in it.alternatives:
        name = other.name if other.name.startswith(other.kind) else f"{other.kind}: {other.name}"
        times, more = cost_of(other, it) if other.levels else ("not possible", "")
        why = other.why.removeprefix("not possible: ")
        cells = (
            f"<code>{escape(name)}</code>",
            _whole(times),
            ", ".join(_whole(x) for x in more.split(", ")),
            escape(why),
        )
        rows.append(_row(*((cell, False) for cell in cells)))
    heads = (("instead", False), ("takes", False), ("bytes", False), ("but", False))
    note = '<p class="soft">Times if everything overlapped, and if nothing did; bytes against those of what runs.</p>'
    return f"<h3>Not chosen</h3>{note}{_table(heads, rows)}"


def _whole(text: str) -> str:
    """Return escaped text that stays on one line."""
    return f'<span class="one">{escape(text)}</span>'


def _reasons(it: Explanation) -> list[str]:
    blocking = it.plan.blocking
    return [*it.plan.reasons, *(blocking.reasons if blocking and it.plan.path == "packed" else ())]


def _model(it: Explanation) -> list[str]:
    from .explain import MODEL

    return [*MODEL, *it.notes]


def _list(title: str, lines: Iterable[str], opened: bool) -> str:
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"<details{' open' * opened}><summary>{title}</summary><ul>{items}</ul></details>" if items else ""
