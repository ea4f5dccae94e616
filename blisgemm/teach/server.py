"""The page over HTTP, for this computer alone: the page itself, and the settings that its sliders ask for.

Knows: addresses and queries. Does not know: what a setting is (``page_model``) or how a page is made (``page``). Called
by ``cli.serve``.

It listens on 127.0.0.1, answers GET and HEAD, keeps nothing and writes nothing. A request under another host name is
refused, so that no page of a stranger can be made to stand for this one.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from ..errors import BlisgemmError, BlisgemmValueError
from .page import page_of
from .page_model import PageModel

__all__ = ["answer", "make_server"]

HOST = "127.0.0.1"
_NAMES = {HOST, "localhost"}

_DIGITS = 10  # of a number in a query, so that it is small whatever is asked

Answer = tuple[int, str, bytes]  # status, kind of content, content


def make_server(model: PageModel, port: int) -> ThreadingHTTPServer:
    """Return a server for a model, bound to 127.0.0.1 but not running.

    Args:
        port: 0 to 65535; 0 is any that is free.

    Raises:
        BlisgemmValueError: no such port. OSError: it is taken.
    """
    if not 0 <= port <= 65535:
        raise BlisgemmValueError(f"port: expected 0 to 65535; got {port}")
    turn = threading.Lock()  # a setting takes a while: one at a time

    @lru_cache(maxsize=256)
    def cached(path: str) -> Answer:
        return answer(model, path)

    class Handler(BaseHTTPRequestHandler):
        server_version = "blisgemm"
        sys_version = ""

        def do_GET(self) -> None:
            try:
                host = urlsplit(f"//{self.headers.get('Host', '')}").hostname
            except ValueError:  # such as a bracket without its other
                host = None
            if host in _NAMES:
                with turn:
                    status, kind, content = cached(self.path)
            else:
                status, kind, content = _error(403, f"host: expected {HOST} or localhost; got {host!r}")
            with suppress(ConnectionError):  # whoever asked has left
                self._send(status, kind, content)

        def _send(self, status: int, kind: str, content: bytes) -> None:
            self.send_response(status)
            for name, value in (
                ("Content-Type", kind),
                ("Content-Length", str(len(content))),
                ("Cache-Control", "no-store"),
                ("X-Content-Type-Options", "nosniff"),
                ("Cross-Origin-Resource-Policy", "same-origin"),
            ):
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        do_HEAD = do_GET

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing of requests."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

    return Server((HOST, port), Handler)


def answer(model: PageModel, path: str) -> Answer:
    """Return what a path is answered with.

    Example:
        >>> from .page_model import make_model
        >>> status, _, content = answer(make_model(8, 8, 8), "/setting?rung=r9")
        >>> status, content.decode()
        (400, '{"error": "rung: expected one of r0, r2, jpi, r3, r4, r5, r6, half, r8; got \\'r9\\'"}')
    """
    try:
        parts = urlsplit(path)
    except ValueError as error:
        return _error(400, f"path: expected / or /setting; got {path!r}: {error}")
    try:
        if parts.path in ("/", "/index.html"):
            _only(parts.query, ())
            return 200, "text/html; charset=utf-8", page_of(model, served=True).encode()
        if parts.path == "/setting":
            return 200, "application/json", json.dumps(_setting(model, parts.query)).encode()
    except BlisgemmError as error:
        return _error(400, str(error))
    return _error(404, f"path: expected / or /setting; got {parts.path!r}")


def _error(status: int, message: str) -> Answer:
    return status, "application/json", json.dumps({"error": message}).encode()


def _only(query: str, names: tuple[str, ...]) -> Mapping[str, str]:
    """Return a query's values, each given once and none unknown."""
    values = parse_qs(query, keep_blank_values=True)
    for name, given in values.items():
        if name not in names:
            raise BlisgemmValueError(f"query: expected {', '.join(names) or 'none'}; got {name!r}")
        if len(given) > 1:
            raise BlisgemmValueError(f"{name}: expected one value; got {len(given)}")
    return {name: given[0] for name, given in values.items()}


def _setting(model: PageModel, query: str) -> dict[str, Any]:
    """Return the setting that a query asks for; blocks that it doesn't name are those to start with."""
    values = _only(query, ("rung", *model.start))
    if "rung" not in values:
        raise BlisgemmValueError("rung: expected a value; got none")
    order = model.order(values["rung"])
    blocks = dict(model.start)
    for axis in model.axes:
        if axis.name not in values:
            continue
        text = values[axis.name]
        if axis.name not in order.axes:
            raise BlisgemmValueError(f"{axis.name}: expected none, as {order.key} has no such block; got {text!r}")
        digits = text.isascii() and text.isdigit() and len(text) <= _DIGITS
        if not digits or not 1 <= int(text) <= model.largest(axis.name):
            raise BlisgemmValueError(f"{axis.name}: expected 1 to {model.largest(axis.name)}; got {text!r}")
        blocks[axis.name] = int(text)
    return model.setting(order, blocks)
