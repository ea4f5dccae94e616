"""The tiles that there are, and how fast each is where it fills the card.

Knows: measured tiles. Does not know: products. Called by ``plan``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .tiles import Tile

__all__ = ["Entry", "tiles_for"]


@dataclass(frozen=True)
class Entry:
    """A tile and its speed, as a share of the card's fmas when every multiprocessor has its blocks.

    registers: a thread's, about (the compiler decides), to tell how many blocks fit.
    """

    tile: Tile
    speed: float
    registers: int


# Source: one H200, 2026-11-30, TFLOP/s (cuBLAS in the same run: float32 50, float64 55 to 57 and at 8192 49 to 55,
# complex128 56 to 58). float32, n = 4096 and 8192: 64x128x32 49 and 51, 128x64x32 45 and 47 where A is turned, 52 where
# B is, 64x64x32 40, 128x128x16 44 (transposed B 45, 64x128x32 43); three stages 47 and 49. float64, n = 2048, 4096,
# 8192: 64x128x8 by warps of 64x32 in four stages 48.6 49.5 51.2, in slabs of 16 47.5 48.1 46.2; 64x64x16 in three
# stages 49.1 50.4 47.6, in two 47 49 44, in four 49 49 45; 128x64x16 by warps of 32x64 46.4 46.0 52.7; 128x128x16 43 40
# 41; slabs of 32 45 and 44; elements read in pairs 36 to 47. complex128, n = 2048: 64x32x8 50, 64x64x8 49. float32 16 x
# 8192 x 8192: 16x128x32 24, 16x256x32 23.
_F32 = (
    Entry(Tile(64, 128, 32, 32, 64, 8, 8, 2, 4), 0.79, 128),
    Entry(Tile(128, 64, 32, 64, 32, 8, 8, 2, 4), 0.79, 128),
    Entry(Tile(128, 128, 16, 64, 32, 8, 8, 3, 1), 0.765, 128),
    Entry(Tile(64, 64, 32, 32, 32, 8, 4, 2, 4), 0.62, 84),
    Entry(Tile(16, 128, 32, 16, 32, 4, 4, 4, 4), 0.40, 96),
    Entry(Tile(128, 16, 32, 32, 16, 4, 4, 4, 4), 0.40, 96),
    Entry(Tile(4, 512, 16, 4, 128, 4, 4, 3, 2), 0.35, 80),
    Entry(Tile(512, 4, 16, 128, 4, 4, 4, 3, 2), 0.35, 80),
)
_F64 = (
    Entry(Tile(64, 128, 8, 64, 32, 8, 8, 4, 2), 0.80, 230),
    Entry(Tile(64, 64, 16, 32, 32, 8, 4, 3, 3), 0.785, 128),
    Entry(Tile(4, 256, 16, 4, 64, 4, 2, 3, 2), 0.15, 80),
    Entry(Tile(256, 4, 16, 64, 4, 2, 4, 3, 2), 0.15, 80),
    Entry(Tile(16, 64, 16, 16, 16, 4, 2, 4, 5), 0.40, 96),
    Entry(Tile(64, 16, 16, 16, 16, 4, 2, 4, 5), 0.40, 96),
)
_C64 = (
    Entry(Tile(64, 64, 16, 32, 32, 8, 4, 2, 3), 0.75, 138),
    Entry(Tile(16, 64, 16, 16, 16, 4, 2, 4, 4), 0.40, 80),
    Entry(Tile(64, 16, 16, 16, 16, 4, 2, 4, 4), 0.40, 80),
)
_C128 = (
    Entry(Tile(64, 32, 8, 32, 16, 4, 4, 4, 3), 0.75, 160),
    Entry(Tile(16, 32, 8, 16, 8, 2, 2, 4, 4), 0.40, 112),
    Entry(Tile(32, 16, 8, 16, 8, 2, 2, 4, 4), 0.40, 112),
)
_TILES = {"float32": _F32, "float64": _F64, "complex64": _C64, "complex128": _C128}


def tiles_for(dtype: str, capability: tuple[int, int]) -> tuple[Entry, ...]:
    """Return the tiles of a dtype for a card, by tensor cores where it has some of float64."""
    entries = _TILES[dtype]
    if dtype not in ("float64", "complex128"):
        return entries
    if capability >= (8, 0):
        engine = "dmma8" if capability >= (9, 0) else "dmma4"
        return tuple(
            entry if min(entry.tile.bm, entry.tile.bn) < 8 else replace(entry, tile=replace(entry.tile, engine=engine))
            for entry in entries
        )
    # by fmas a thread holds half as many sums, and cards without these tensor cores have little shared memory too
    return tuple(
        replace(entry, tile=replace(entry.tile, stages=2)) for entry in entries if entry.tile.tm * entry.tile.tn <= 32
    )
