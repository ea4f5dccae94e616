"""The tiles that there are, and how fast each is where it fills the card.

Knows: measured tiles. Does not know: products. Called by ``plan``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .tiles import Tile

__all__ = ["FEW_ROWS", "Entry", "tiles_for"]


@dataclass(frozen=True)
class Entry:
    """A tile and its speed, as a share of the card's fmas when every multiprocessor has its blocks.

    Args:
        speed: with operands by rows, as they are multiplied. registers: a thread's, about (the compiler decides), to
        tell how many blocks fit.
        turned: the share of its speed that is left where A, where B and where both are turned on their way into shared
        memory. held: whether they are turned through registers, 16 bytes at once, where that can be.
        narrow: the share that is left where elements are copied one by one for other reasons.
        divided: the share that is left to blocks that go on from tile to tile (``streamk``); divided_blocks: how many
        of these shall fit on a multiprocessor (0: as many as otherwise).
    """

    tile: Tile
    speed: float
    registers: int
    turned: tuple[float, float, float] = (1.0, 1.0, 1.0)
    held: bool = False
    narrow: float = 0.85
    divided: float = 0.87
    divided_blocks: int = 0


# Source: one H200, 2026-11-30, TFLOP/s at n = 4096 (a speed of 1 stands for 62), cuBLAS in the same run 49 to 51 in
# float32. Operands by rows (TN), A turned (NN), B turned (TT), both (NT):
#   64x128x16, held   53.6 50.6    - 37.0        128x128x8, held          52.5 46.6 47.8 47.1
#   64x128x32         51.8 49.2    - 43          128x128x16 by elements   51.0 43.9 45.2 40.1
#   128x64x16, held      - 43.6 50.9 37.5        128x64x32                   - 45   49.9   -
# NN at n = 4095, where rows begin anywhere: 128x128x16 45.8, 128x128x8 44.5, 64x128x16 41.7, 64x128x32 39.2; NT 42.6,
# 39.3. Divided, n = 1024, 1280, 2304: 64x128x32 36.7 40.6 45.5, held 64x128x16 in three blocks 37.8 44.1 46.5, in four
# 36.5 39.4 43.7; n = 4097 128x128x16 39.0, 64x128x16 in three 41.4.
# 128x128x16 by 16x8 elements a thread, 256x128x8 and 256x128x16: 38 to 44 (NN). 16 x 8192 x 8192: 16x128x32 24,
# 16x256x32 23.
_F32 = (
    Entry(
        Tile(64, 128, 16, 32, 64, 8, 8, 3, 4),
        0.86,
        128,
        (0.94, 0.72, 0.69),
        held=True,
        narrow=0.80,
        divided=0.92,
        divided_blocks=3,
    ),
    Entry(
        Tile(128, 64, 16, 64, 32, 8, 8, 3, 4),
        0.86,
        128,
        (0.81, 0.95, 0.70),
        held=True,
        narrow=0.74,
        divided=0.92,
        divided_blocks=3,
    ),
    Entry(Tile(64, 128, 32, 32, 64, 8, 8, 2, 4), 0.835, 128, (0.95, 0.87, 0.83), narrow=0.80),
    Entry(Tile(128, 64, 32, 64, 32, 8, 8, 2, 4), 0.835, 128, (0.87, 0.96, 0.83), narrow=0.80),
    Entry(Tile(128, 128, 8, 64, 64, 8, 16, 3, 2), 0.845, 213, (0.89, 0.91, 0.90), held=True, narrow=0.83, divided=0.76),
    Entry(Tile(128, 128, 16, 64, 64, 8, 16, 2, 2), 0.82, 240, (0.86, 0.89, 0.79), narrow=0.90, divided=0.82),
    Entry(Tile(64, 64, 32, 32, 32, 8, 4, 2, 4), 0.62, 84, (0.95, 0.95, 0.90)),
    Entry(Tile(16, 128, 32, 16, 32, 4, 4, 4, 4), 0.40, 96, (0.98, 0.90, 0.88)),
    Entry(Tile(128, 16, 32, 32, 16, 4, 4, 4, 4), 0.40, 96, (0.90, 0.98, 0.88)),
)
# Source: the same, float64, NN at n = 2048, 4096, 8192, then NT and TN at 4096 (cuBLAS 52 49 48 49 48): 64x64x16 in
# three stages 50.5 51.7 49.1 52.8 51.5, in four 50.8 49.4 45.0 48.5 49.2; 128x64x16 by warps of 64x32 48.6 48.9 54.6
# 51.8 47.4; 64x128x16 by 32x64 48.7 49.4 48.4 52.3 49.0; 64x128x8 46.4 46.4 48.9 34.8 45.6, by warps of 32x64 49.3 51.2
# 50.1 41.9 50.3; 64x64x8 in five 48.9 50.3 43.9 52.7 52.1. Divided, n = 1024: 64x128x8 32, 128x64x16 31, 64x64x16 29.
_F64 = (
    Entry(Tile(64, 64, 16, 32, 32, 8, 4, 3, 3), 0.83, 162, divided=0.75),
    Entry(Tile(64, 128, 8, 64, 32, 8, 8, 4, 2), 0.75, 230),
    Entry(Tile(16, 128, 16, 16, 32, 4, 4, 4, 3), 0.40, 128),
    Entry(Tile(128, 16, 16, 32, 16, 4, 4, 4, 3), 0.40, 128),
)
# Source: the same, n = 2048, complex64 (cuBLAS 52.0): 64x64x8 in three stages 49.6, 64x64x16 in two 48.9, 128x64x8
# 48.6, 64x128x8 48.3; complex128 (cuBLAS 54.4): 64x32x8 52.6, 64x64x8 51.8, 64x32x16 48.5.
_C64 = (
    Entry(Tile(64, 64, 8, 32, 32, 8, 4, 3, 3), 0.76, 160),
    Entry(Tile(16, 64, 16, 16, 16, 4, 2, 4, 4), 0.40, 80),
    Entry(Tile(64, 16, 16, 16, 16, 4, 2, 4, 4), 0.40, 80),
)
_C128 = (
    Entry(Tile(64, 32, 8, 32, 16, 4, 4, 4, 3), 0.80, 160),
    Entry(Tile(16, 32, 8, 16, 8, 2, 2, 4, 3), 0.40, 136),
    Entry(Tile(32, 16, 8, 16, 8, 2, 2, 4, 3), 0.40, 136),
)
# Up to so many rows of C go straight from memory (``kernels.vector``), and as many columns as rows of C'.
FEW_ROWS = 4


def _streaming(dtype: str) -> tuple[Entry, ...]:
    """Return the tiles of 1, 2 and 4 rows. Their speed tells only how to divide them: memory is the bound."""
    warps, size = (16, 4) if dtype == "float32" else (8, 16 if dtype == "complex128" else 8)
    tn = 2 if dtype == "complex128" else 4
    found = []
    for tm in (1, 2, 4):
        steps = 16 if tm == 1 and size == 4 else 8  # of a warp: 16 read 2 % faster than 8 (1 x 8192 x 8192)
        rows = Tile(warps * tm, 32 * tn, warps * steps, tm, 32 * tn, tm, tn, 2, 1, "rows")
        dots = Tile(32 * tm, warps * 4, 1024 // size, 32 * tm, 4, tm, 4, 2, 1, "dots")
        found += [Entry(tile, 0.03 * tm, 65536 // (32 * warps) - 1) for tile in (rows, dots)]
    return tuple(found)


_TILES = {"float32": _F32, "float64": _F64, "complex64": _C64, "complex128": _C128}


def tiles_for(dtype: str, capability: tuple[int, int]) -> tuple[Entry, ...]:
    """Return the tiles of a dtype for a card, by tensor cores where it has some of float64."""
    return _tiles_of_many_rows(dtype, capability) + _streaming(dtype)


def _tiles_of_many_rows(dtype: str, capability: tuple[int, int]) -> tuple[Entry, ...]:
    entries = _TILES[dtype]
    if dtype not in ("float64", "complex128"):
        return entries
    if capability >= (8, 0):
        engine = "dmma8" if capability >= (9, 0) else "dmma4"
        # m8n8k4 takes more registers: tiles that have few left would spill
        fit = [entry for entry in entries if engine == "dmma8" or entry.registers < 200]
        return tuple(replace(entry, tile=replace(entry.tile, engine=engine)) for entry in fit)
    # by fmas a thread holds half as many sums, and cards without these tensor cores have little shared memory too
    return tuple(
        replace(entry, tile=replace(entry.tile, stages=2)) for entry in entries if entry.tile.tm * entry.tile.tn <= 32
    )
