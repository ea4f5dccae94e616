"""One HTML file that plays the five loops of a product: it holds all that it shows, and loads nothing.

Knows: how the template, its style, its scripts and the model become one file. Does not know: what the model says
(``page_model``) or how it is drawn (``web``). Called by ``cli.page``, ``server`` and people.
"""

from __future__ import annotations

import html
import json
from importlib import resources
from typing import Any

from .page_model import PageModel, make_model

__all__ = ["page", "page_of"]

SCRIPTS = ("model.js", "draw.js", "player.js", "controls.js")  # one program, in this order


def page(m: int, n: int, k: int, **choices: Any) -> str:
    """Return the page of an m x k by k x n product.

    Args:
        m, n, k, choices: as ``page_model.make_model`` takes them.

    Raises:
        BlisgemmTypeError, BlisgemmValueError: an argument is not as it says.

    Example:
        >>> page(8, 8, 8).startswith("<!doctype html>")
        True
    """
    return page_of(make_model(m, n, k, **choices))


def page_of(model: PageModel, *, served: bool = False) -> str:
    """Return the page of a model; where it is ``served``, one that asks its server for settings."""
    problem = model.problem
    data = json.dumps(model.to_dict(served=served), separators=(",", ":"), ensure_ascii=False)
    parts = {
        "title": html.escape(f"{problem.m} × {problem.n} × {problem.k}: the five loops, step by step"),
        "connect": "'self'" if served else "'none'",
        "style": _text("page.css"),
        "model": data.replace("<", "\\u003c"),  # so that no text of it can end the script
        "script": "\n".join(_text(name) for name in SCRIPTS),
    }
    first, *rest = _text("page.html").split("{{")
    filled = [first]
    for piece in rest:
        name, _, text = piece.partition("}}")
        filled += [parts[name], text]
    return "".join(filled)


def _text(name: str) -> str:
    return (resources.files(__package__) / "web" / name).read_text(encoding="utf-8")
