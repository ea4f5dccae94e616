"""Calls that come again: what was checked and planned once, for operands that lie the same way.

Knows: what must be the same for a call to need no more than three addresses. Does not know: how a call is checked
(``calls``) or what it may be. Called by ``api``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from . import arrays, driver
from .calls import Call, view_of_result
from .run import Route, route_of, single
from .view import ITEM_BYTES, View

__all__ = ["Prepared", "prepared_calls"]

prepared_calls: dict[tuple[Any, ...], Prepared] = {}
_MOST_PREPARED = 4096


@dataclass(slots=True)
class Prepared:
    """A call without c that was made before: what its operands must be like, and the route that it took.

    reach: bytes before and behind an array's first element, of a, b and out.
    """

    route: Route
    kind: str
    device: int
    out_shape: tuple[int, ...]
    out_strides: tuple[int, ...]
    out_dtype: str
    alignment: tuple[int, int, int]
    reach: tuple[tuple[int, int], tuple[int, int], tuple[int, int]]

    @classmethod
    def keep(cls, call: Call, out: View | None, given: tuple[View, View], trans_a: Any, trans_b: Any) -> None:
        """Keep a call for the next one like it, if it is one of matrices and took one launch."""
        a, b = call.a, call.b
        plain = out is not None and len(call.shape) == 2 and not call.epilogue.steps and 0 not in call.shape
        if not plain or a.shape[1] == 0 or call.factors.alpha == 0 or call.factors.beta != 0 or out is None:
            return
        if type(trans_a) is not bool or type(trans_b) is not bool:
            return
        route = route_of(single(a), single(b), single(out), 1, a.dtype, out.dtype, call.factors, a.device)
        first, second = given
        key = (first.shape, first.strides, first.dtype, second.shape, second.strides, second.dtype, trans_a, trans_b)
        if len(prepared_calls) >= _MOST_PREPARED:
            prepared_calls.clear()
        reach = (reach_of(a), reach_of(b), reach_of(out))
        alignment = (a.pointer & 15, b.pointer & 15, out.pointer & 15)
        prepared_calls[key] = cls(route, a.kind, a.device, out.shape, out.strides, out.dtype, alignment, reach)

    def run(self, a: View, b: View, given: Any, alpha: Any, beta: Any, stream: int | None) -> Any:
        """Launch, if all is as it was, and return the result; else return ``None``, and nothing was done."""
        if (
            type(beta) not in (int, float)
            or beta != 0
            or type(alpha) not in (int, float)
            or not -1e38 < alpha < 1e38
            or alpha == 0
            or a.kind != self.kind
            or a.device != self.device
        ):
            return None
        if given is None:
            if stream is None:
                stream = arrays.current_stream(self.kind, self.device)
            given, out = arrays.new_like(a.kind, a.owner, self.out_shape, self.out_dtype, self.device, stream)
        else:
            out = view_of_result(given)
            given = given[0] if type(given) is tuple else given
        if not (
            out.shape == self.out_shape and out.strides == self.out_strides and out.dtype == self.out_dtype
            and b.kind == out.kind == self.kind and b.device == out.device == self.device
            and (a.pointer & 15, b.pointer & 15, out.pointer & 15) == self.alignment
            and not out.read_only
        ):  # fmt: skip
            return None
        if stream is None:
            stream = arrays.current_stream(self.kind, self.device)
        if not (a.stream in (None, stream) and b.stream in (None, stream) and out.stream in (None, stream)):
            return None
        low, high = out.pointer - self.reach[2][0], out.pointer + self.reach[2][1]
        for view, (before, behind) in ((a, self.reach[0]), (b, self.reach[1])):
            if view.pointer - before < high and low < view.pointer + behind:
                return None
        with driver.on_device(self.device):
            self.route.launch(a.pointer, b.pointer, out.pointer, alpha, 0, stream, ())
        return given


def reach_of(view: View) -> tuple[int, int]:
    """Return the bytes of an array before its first element, and from there to its end."""
    size = ITEM_BYTES[view.dtype]
    steps = [(extent - 1) * stride for extent, stride in zip(view.shape, view.strides, strict=True)]
    return -sum(s for s in steps if s < 0) * size, (sum(s for s in steps if s > 0) + 1) * size
