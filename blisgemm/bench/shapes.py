"""Which products are measured: sets of shapes by name, or single ones as MxNxK.

Knows: extents, batches and strides by name. Does not know: arrays, libraries, time. Called by ``trial`` and
``cli.bench``.

square   384 to 3000: multiples of every tile (384, 1536), 1000 and 3000 (of none), and powers of two, up to
         operands that no cache holds. The range of the plots in Goto & van de Geijn (TOMS 34(3), 2008) and Van
         Zee & van de Geijn (TOMS 41(3), 2015).
pow2     512 to 4096 beside neighbours 8 away, and matrices whose rows lie 8 KiB apart: addresses that share
         their low bits fall into the same few sets of a cache (Lam, Rothberg & Wolf, ASPLOS 1991).
skinny   one extent small: m or n of 1 to 8, k of 1 to 16 (rank updates), panels of 32 and 64 as the blocked
         LAPACK factorisations make them (block size nb = 32 to 64).
small    squares and odd shapes of 2 to 128, where the call itself costs as much as the product; the range of
         LIBXSMM (Heinecke et al., SC 2016).
batched  10**4 matrices of 2x2 to 32x32, one operand broadcast, and batches with gaps.
ml       dense layers (batch rows x layer width, 768 and 3072 of BERT-base, 4096 of LLaMA-7B), attention heads
         of ViT (197 tokens, 64 wide), nearest neighbours (scikit-learn's 1797 digits of 64 pixels), a Gram
         matrix of 10**6 samples of 32 features.
matvec   A x and x A, in L2, in L3 and in memory.
strides  transposition by flag and by view, slices, reversed and general strides, n = 512 and 1000.
map      every m, n and k of 4 to 1024 by steps of four: with --plot, a heat map of ratios.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product

__all__ = ["LAYOUTS", "SETS", "Case", "parse_shapes"]

# How an operand lies in memory. "T": C order, and gemm's trans flag; "F": the same bytes as a transposed view.
LAYOUTS = ("C", "T", "F", "rows[::2]", "cols[::2]", "reversed", "gaps", "8KiB")


@dataclass(frozen=True)
class Case:
    """One product, C = A B with an m x k A and a k x n B.

    Attributes:
        group: name of the set; ``shape`` for one given as MxNxK.
        batch: leading extents of C.
        a_batched, b_batched: whether A, B have them too; otherwise they are broadcast.
        a, b, c: layouts, of ``LAYOUTS``.
        vector: ``Ax`` or ``xA`` if the operands with one column or row are 1-d.
    """

    group: str
    m: int
    n: int
    k: int
    batch: tuple[int, ...] = ()
    a_batched: bool = True
    b_batched: bool = True
    a: str = "C"
    b: str = "C"
    c: str = "C"
    vector: str = ""

    @property
    def items(self) -> int:
        """How many products it is."""
        return math.prod(self.batch)

    @property
    def label(self) -> str:
        """The case in a few characters, the same nowhere else in its set."""
        text = f"{self.m}x{self.n}x{self.k}"
        if self.vector:
            text = f"{self.vector} {self.m if self.vector == 'Ax' else self.k}x{self.k if self.m > 1 else self.n}"
        elif self.m == self.n == self.k and not self.batch:
            text = str(self.n)
        if self.batch:
            text = f"{'x'.join(map(str, self.batch))} of {text}"
            if not (self.a_batched and self.b_batched):
                text += f", one {'A' if not self.a_batched else 'B'}"
        marks = [f"{name} {layout}" for name, layout in (("A", self.a), ("B", self.b), ("C", self.c)) if layout != "C"]
        return f"{text} {', '.join(marks)}" if marks else text

    def flops(self, dtype: str) -> int:
        """Return its floating-point operations; a complex term counts 8."""
        return self.items * self.m * self.n * self.k * (8 if dtype.startswith("complex") else 2)

    def elements(self) -> int:
        """Return how many elements A, B and C have: each is read or written at least once."""
        a, b, c = self.m * self.k, self.k * self.n, self.m * self.n
        return a * (self.items if self.a_batched else 1) + b * (self.items if self.b_batched else 1) + c * self.items


def _square() -> Iterator[Case]:
    for n in (384, 512, 1000, 1024, 1536, 2000, 2048, 3000):  # 4096, a minute in float64, is in pow2
        yield Case("square", n, n, n)


def _pow2() -> Iterator[Case]:
    for power in (512, 1024, 2048, 4096):
        for n in (power - 8, power, power + 8) if power < 4096 else (power - 8, power):
            yield Case("pow2", n, n, n)
    for n in (500, 1000):
        yield Case("pow2", n, n, n, a="8KiB", b="8KiB", c="8KiB")


def _skinny() -> Iterator[Case]:
    for shape in (
        (1, 2000, 2000), (2, 2000, 2000), (4, 2000, 2000), (6, 2000, 2000), (8, 2000, 2000), (8, 4000, 500),
        (2000, 1, 2000), (2000, 2, 2000), (2000, 4, 2000), (2000, 6, 2000), (2000, 8, 2000), (4000, 8, 500),
        (2000, 2000, 1), (2000, 2000, 2), (2000, 2000, 4), (2000, 2000, 8), (2000, 2000, 16),
        (32, 4096, 1024), (4096, 32, 1024), (3000, 64, 3000), (64, 3000, 3000), (3000, 3000, 64),
        (32, 32, 4000), (64, 64, 8192),
    ):  # fmt: skip
        yield Case("skinny", *shape)


def _small() -> Iterator[Case]:
    for n in (2, 3, 4, 6, 8, 12, 16, 24, 31, 32, 48, 64, 96, 100, 128):
        yield Case("small", n, n, n)
    for shape in ((3, 5, 7), (7, 3, 17), (1, 64, 64), (64, 1, 64), (13, 29, 31), (100, 10, 10), (10, 100, 33)):
        yield Case("small", *shape)


def _batched() -> Iterator[Case]:
    items = 10_000
    for n in (2, 3, 4, 8, 16, 32):
        yield Case("batched", n, n, n, batch=(items,))
    for n in (4, 16):
        yield Case("batched", n, n, n, batch=(items,), a_batched=False)
        yield Case("batched", n, n, n, batch=(items,), b_batched=False)
        yield Case("batched", n, n, n, batch=(items,), a="gaps", b="gaps")
        yield Case("batched", n, n, n, batch=(items,), a="T")


def _ml() -> Iterator[Case]:
    for rows in (1, 8, 32, 128, 512):
        for width, inputs in ((768, 768), (3072, 768), (4096, 4096)):
            yield Case("ml", rows, width, inputs)
    yield Case("ml", 197, 197, 64, batch=(64,), b="T")
    yield Case("ml", 197, 64, 197, batch=(64,))
    yield Case("ml", 1797, 1797, 64, b="T")
    yield Case("ml", 32, 32, 1_000_000, a="T")


def _matvec() -> Iterator[Case]:
    for n in (128, 512, 1000, 2000, 6000):
        yield Case("matvec", n, 1, n, vector="Ax")
        yield Case("matvec", 1, n, n, vector="xA")
    yield Case("matvec", 20000, 1, 200, vector="Ax")
    yield Case("matvec", 1, 200, 20000, vector="xA")


def _strides() -> Iterator[Case]:
    for n in (512, 1000):
        yield Case("strides", n, n, n)
        for layout in LAYOUTS[1:-1]:
            yield Case("strides", n, n, n, a=layout)
            yield Case("strides", n, n, n, b=layout)
        for layout in LAYOUTS[1:-1]:
            yield Case("strides", n, n, n, a=layout, b=layout)
        for layout in ("F", "cols[::2]", "gaps"):
            yield Case("strides", n, n, n, c=layout)


def _map() -> Iterator[Case]:
    extents = (4, 16, 64, 256, 1024)
    for m, n, k in product(extents, extents, extents):
        yield Case("map", m, n, k)


SETS: dict[str, Callable[[], Iterator[Case]]] = {
    "square": _square, "pow2": _pow2, "skinny": _skinny, "small": _small, "batched": _batched, "ml": _ml,
    "matvec": _matvec, "strides": _strides, "map": _map,
}  # fmt: skip


def parse_shapes(text: str) -> list[Case]:
    """Return the cases that ``text`` names: sets and shapes MxNxK by commas, N for a square.

    Raises:
        ValueError: a word is neither; the message names it.

    Example:
        >>> [case.label for case in parse_shapes("6x2000x2000,64")]
        ['6x2000x2000', '64']
    """
    cases: list[Case] = []
    for word in text.split(","):
        word = word.strip()
        if word in SETS:
            cases += SETS[word]()
        elif found := re.fullmatch(r"(\d+)[x×](\d+)[x×](\d+)", word):
            m, n, k = map(int, found.groups())
            cases.append(Case("shape", m, n, k))
        elif word.isdecimal():
            cases.append(Case("shape", int(word), int(word), int(word)))
        else:
            raise ValueError(f"expected any of {', '.join(SETS)}, a shape MxNxK or a number; got {word!r}")
        if min(cases[-1].m, cases[-1].n, cases[-1].k) < 1:
            raise ValueError(f"expected extents of at least 1; got {word!r}")
    return list(dict.fromkeys(cases))
