"""One product with its exact result, as a value, and the extents at which blocked loops go wrong.

Knows: which sizes meet every edge of a tile, and how a case is told. Does not know: who multiplies. Called by the
rules, the strategies, and whoever keeps a case.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ..errors import BlisgemmTypeError, BlisgemmValueError
from ..parallel import check_threads
from .reference import exact_product, op

__all__ = ["TILES", "GemmCase", "check_sequence", "covering", "extents_around"]

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
    for size in check_sequence(tiles, "tiles", "integers"):
        check_threads(size, "tiles")
    if not tiles:
        raise BlisgemmValueError("tiles: expected at least one size; got none")
    around = {x for t in tiles for x in (t - 1, t, t + 1, 2 * t - 1, 2 * t + 1)}
    return tuple(sorted(({0} if zero else set()) | {1, *_PRIMES} | (around - {0})))


def check_sequence(values: Any, name: str, what: str) -> Any:
    """Return ``values`` if it is a collection other than a string.

    Raises:
        BlisgemmTypeError: it is none.
    """
    if isinstance(values, (str, bytes)) or not isinstance(values, (Collection, np.ndarray)):
        raise BlisgemmTypeError(f"{name}: expected a sequence of {what}; got {values!r}")
    return values


def covering(rng: np.random.Generator, count: int, **axes: Sequence[Any]) -> Iterator[dict[str, Any]]:
    """Yield ``count`` cases of the product of ``axes``: random, every value of an axis equally often, but for one.

    Example:
        >>> cases = list(covering(np.random.default_rng(0), 6, m=(1, 2, 3), trans=(False, True)))
        >>> sorted(case["m"] for case in cases)
        [1, 1, 2, 2, 3, 3]
    """
    columns = {}
    for name, values in axes.items():
        rounds = [rng.permutation(len(values)) for _ in range(-(-count // len(values)))]
        columns[name] = [values[i] for i in rng.permutation(np.concatenate(rounds)[:count])]
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

    def __post_init__(self) -> None:
        for name, x in (("a", self.a), ("b", self.b), ("c", self.c)):
            if not isinstance(x, np.ndarray) and (name != "c" or x is not None):
                raise BlisgemmTypeError(f"{name}: expected an ndarray; got {type(x).__name__}")

    @property
    def op_a(self) -> Array:
        """A as it is multiplied, m x k."""
        return op(self.a, self.trans_a, "trans_a")

    @property
    def op_b(self) -> Array:
        """B as it is multiplied, k x n."""
        return op(self.b, self.trans_b, "trans_b")

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
