"""One product with its exact result, as a value, and the extents at which blocked loops go wrong.

Knows: which sizes meet every edge of a tile, and how a case is told. Does not know: who multiplies. Called by the
rules, the strategies, and whoever keeps a case.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ..errors import BlisgemmValueError
from .reference import exact_product, op

__all__ = ["TILES", "GemmCase", "covering", "extents_around"]

Array = np.ndarray[Any, Any]

# Vector lengths and micro-tiles of float32 and float64 on SSE2, NEON, AVX2 and AVX-512: 4, 6, 8, 12, 16
# (BLIS config/{haswell,skx,altra}). Whoever knows theirs passes it.
TILES = (4, 6, 8, 12, 16)
_PRIMES = (2, 3, 5, 7, 13)


def extents_around(tiles: Sequence[int], *, zero: bool = False) -> tuple[int, ...]:
    """Return the extents around tiles, and small primes: t - 1, t, t + 1, 2 t - 1, 2 t + 1 for each t.

    Args:
        tiles: sizes of tiles or blocks.
        zero: with 0 too.

    Example:
        >>> extents_around((8,))
        (1, 2, 3, 5, 7, 8, 9, 13, 15, 17)
    """
    if not tiles or min(tiles) < 1:
        raise BlisgemmValueError(f"tiles: expected sizes of at least 1; got {tuple(tiles)}")
    around = {x for t in tiles for x in (t - 1, t, t + 1, 2 * t - 1, 2 * t + 1)}
    return tuple(sorted(({0} if zero else set()) | {1, *_PRIMES} | (around - {0})))


def covering(rng: np.random.Generator, count: int, **axes: Sequence[Any]) -> Iterator[dict[str, Any]]:
    """Yield ``count`` cases of the product of ``axes``: random, every value of an axis equally often.

    Example:
        >>> cases = list(covering(np.random.default_rng(0), 6, m=(1, 2, 3), trans=(False, True)))
        >>> sorted(case["m"] for case in cases)
        [1, 1, 2, 2, 3, 3]
    """
    columns = {}
    for name, values in axes.items():
        times = -(-count // len(values))
        order = rng.permutation(times * len(values))[:count] % len(values)
        missing = set(range(len(values))) - set(order.tolist())
        order[: len(missing)] = list(missing)
        columns[name] = [values[i] for i in order]
    for i in range(count):
        yield {name: column[i] for name, column in columns.items()}


@dataclass(frozen=True, eq=False)
class GemmCase:
    """``alpha * op(a) op(b) + beta * c`` of integers, and what it is exactly.

    Args:
        a, b, c: the operands as they lie; ``c is None``: there is none.
        alpha, beta: factors: multiples of a small power of two.
        trans_a, trans_b: False, 'T', 'C' or 'R'.
        note: what else there is to tell, such as the layouts.

    Example:
        >>> case = GemmCase(np.ones((2, 3)), np.ones((3, 2)), np.ones((2, 2)), alpha=2, beta=-1)
        >>> print(case)
        float64, m n k = 2 2 3, alpha = 2, beta = -1
        >>> case.expected
        array([[5., 5.], [5., 5.]])
    """

    a: Array
    b: Array
    c: Array | None = None
    alpha: complex = 1
    beta: complex = 0
    trans_a: Any = False
    trans_b: Any = False
    note: str = field(default="", compare=False)

    @property
    def op_a(self) -> Array:
        """A as it is multiplied, m x k."""
        return op(self.a, self.trans_a)

    @property
    def op_b(self) -> Array:
        """B as it is multiplied, k x n."""
        return op(self.b, self.trans_b)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(m, n, k)."""
        return self.op_a.shape[-2], self.op_b.shape[-1], self.op_a.shape[-1]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type of the result."""
        return self.expected.dtype

    @cached_property
    def expected(self) -> Array:
        """The exact result."""
        return exact_product(self.op_a, self.op_b, self.c, self.alpha, self.beta)

    @property
    def factors(self) -> dict[str, Any]:
        """The keywords of ``gemm``: alpha, beta, trans_a, trans_b."""
        return {"alpha": self.alpha, "beta": self.beta, "trans_a": self.trans_a, "trans_b": self.trans_b}

    def __str__(self) -> str:
        m, n, k = self.shape
        text = f"{np.result_type(self.a, self.b)}, m n k = {m} {n} {k}, alpha = {self.alpha}, beta = {self.beta}"
        for name in "ab":
            trans = getattr(self, f"trans_{name}")
            text += f", trans_{name} = {trans!r}" if trans else ""
        return f"{text}{', ' * bool(self.note)}{self.note}"

    def __repr__(self) -> str:
        """Tell the case with its numbers, so that a failing one can be pasted."""
        c = "" if self.c is None else f"\n  c = {np.array(self.c)!r}"
        return f"<GemmCase {self}\n  a = {np.array(self.a)!r}\n  b = {np.array(self.b)!r}{c}>"
