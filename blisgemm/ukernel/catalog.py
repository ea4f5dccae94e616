"""Every microkernel of the library: one row each, the preferred one of its kind first.

Knows: which tiles exist for which vector set, and why. Does not know: which set this host has.
Called by ``plan``, the CLI and the tests.

A row serves in one of six roles. ``packed`` kernels work on micro-panels and want many
accumulators per load. ``direct`` kernels work on the matrices as they lie; few rows and one or two
vectors wide, so that an 8 x 8 product doesn't pay for a 12 x 32 tile. ``wide`` ones do so for products that
are large, but whose B fits in L2. ``row`` ones serve a few rows (matrix times vector), where B passes by once:
long rows, on either path. ``column`` ones transpose B's columns on the way. ``narrow`` ones are one vector wide and
high, for few columns, where the rows of a direct tile are too few sums to keep two fmas a cycle going.
"""

from __future__ import annotations

from functools import cache

from ..errors import BlisgemmValueError
from ..machine.facts import Isa
from ..machine.isas import AVX2, AVX512, GENERIC, NEON, SSE2
from .spec import KernelSpec

__all__ = ["ROLES", "by_name", "candidates", "is_narrow", "kernels", "preferred"]

ROLES = ("packed", "direct", "wide", "row", "column", "narrow")

# (isa, dtype): packed tiles (mr, nr) | direct tile | wide tile | row tile | column tile | narrow tile.
# Sources: BLIS config/{skx,haswell,altra} for the shapes; this project's bench/kc.py and its small products (AMD
# Zen 4, 2026-11-29) for the order: 8x48 gave 103-107 GFLOP/s at n = 2000, 12x32 100-104, 14x32 less; c64 3x32 loads 10
# times per 24 fmas where 6x16 loads 14 times, and ran up to a quarter faster on Emerald Rapids; from
# n = 256 on 8x48 beat 8x16 on the direct path by 3 to 7 %. Since edges have variants of their own, 8x32 is the direct
# tile: n = 96 on Emerald Rapids, f32, 148 GFLOP/s and 74 with 8x16 (2026-11-30). AVX2, Zen 3, the same day, times
# NumPy's speed at n = 512, 1000, 2000: f64 4x12 1.04 0.99 0.98, 6x8 0.97 0.97 0.94; f32 4x24 1.02 1.02 0.96, 6x16
# 1.01 1.00 1.01.
_Tiles = tuple[tuple[int, int], ...]
_TILES: tuple[tuple[Isa, str, _Tiles, _Tiles, _Tiles, _Tiles, _Tiles, _Tiles], ...] = (
    (AVX512, "float32", ((8, 48), (8, 32), (12, 32)), ((8, 32),), ((8, 48),), ((2, 128),), ((8, 32),), ((16, 16),)),
    (AVX512, "float64", ((8, 24), (8, 16), (12, 16)), ((8, 16),), ((8, 24),), ((2, 64),), ((8, 16),), ((16, 8),)),
    (AVX512, "complex64", ((3, 32), (6, 16)), ((4, 16),), ((3, 32),), ((1, 64),), ((2, 32),), ((4, 16),)),
    (AVX512, "complex128", ((3, 16), (6, 8)), ((4, 8),), ((3, 16),), ((1, 32),), ((2, 16),), ((4, 8),)),
    (AVX2, "float32", ((6, 16), (4, 24)), ((6, 16),), ((4, 24),), ((2, 32),), ((4, 16),), ((12, 8),)),
    (AVX2, "float64", ((4, 12), (6, 8)), ((6, 8),), ((4, 12),), ((2, 16),), ((4, 8),), ((12, 4),)),
    (AVX2, "complex64", ((3, 8),), ((2, 8),), ((2, 8),), ((1, 16),), ((2, 8),), ((2, 8),)),
    (AVX2, "complex128", ((3, 4),), ((2, 4),), ((2, 4),), ((1, 8),), ((2, 4),), ((2, 4),)),
    (SSE2, "float32", ((4, 8),), ((4, 8),), ((4, 8),), ((2, 16),), ((4, 8),), ((4, 8),)),
    (SSE2, "float64", ((4, 4),), ((4, 4),), ((4, 4),), ((2, 8),), ((4, 4),), ((4, 4),)),
    (SSE2, "complex64", ((2, 4),), ((2, 4),), ((2, 4),), ((1, 8),), ((2, 4),), ((2, 4),)),
    (SSE2, "complex128", ((2, 2),), ((2, 2),), ((2, 2),), ((1, 4),), ((2, 2),), ((2, 2),)),
    (NEON, "float32", ((8, 12),), ((8, 8),), ((8, 8),), ((2, 32),), ((8, 8),), ((8, 8),)),
    (NEON, "float64", ((8, 6),), ((8, 4),), ((8, 4),), ((2, 16),), ((8, 4),), ((8, 4),)),
    (NEON, "complex64", ((4, 4),), ((4, 4),), ((4, 4),), ((1, 16),), ((4, 4),), ((4, 4),)),
    (NEON, "complex128", ((4, 2),), ((4, 2),), ((4, 2),), ((1, 8),), ((4, 2),), ((4, 2),)),
    (GENERIC, "float32", ((4, 8),), ((4, 8),), ((4, 8),), ((2, 16),), ((4, 8),), ((4, 8),)),
    (GENERIC, "float64", ((4, 4),), ((4, 4),), ((4, 4),), ((2, 8),), ((4, 4),), ((4, 4),)),
    (GENERIC, "complex64", ((2, 4),), ((2, 4),), ((2, 4),), ((1, 8),), ((2, 4),), ((2, 4),)),
    (GENERIC, "complex128", ((2, 2),), ((2, 2),), ((2, 2),), ((1, 4),), ((2, 2),), ((2, 2),)),
)

# Copies of the k step: one on AVX-512, where a step is already 24 fmas and longer loops ran 10 to
# 20 % slower (12x32: 102.6 at one, 83.8 at four, Zen 4); one on SSE2, where c64_2x4 spilled at two and four; four on
# the others.
_UNROLL = {"avx512": 1, "sse2": 1}


def _row(dtype: str, tile: tuple[int, int], isa: Isa) -> KernelSpec:
    return KernelSpec(dtype, dtype, dtype, tile[0], tile[1], isa, unroll=_UNROLL.get(isa.name, 4))


@cache
def _rows() -> dict[tuple[str, str, str], tuple[KernelSpec, ...]]:
    """Return the specs by (isa, dtype, role), made when first asked for: checking them all takes 10 ms."""
    return {
        (isa.name, dtype, role): tuple(_row(dtype, tile, isa) for tile in tiles)
        for isa, dtype, *by_role in _TILES
        for role, tiles in zip(ROLES, by_role, strict=True)
    }


@cache
def _by_name() -> dict[str, KernelSpec]:
    return {spec.name: spec for rows in _rows().values() for spec in rows}


def kernels(dtype: str | None = None, isa: str | None = None) -> tuple[KernelSpec, ...]:
    """Return the rows of the catalog, all or those of a dtype or a vector set."""
    return tuple(
        spec
        for spec in _by_name().values()
        if (dtype is None or spec.acc_dtype == dtype) and (isa is None or spec.isa.name == isa)
    )


def by_name(name: str) -> KernelSpec:
    """Return the row of that name.

    Raises:
        BlisgemmValueError: there is none; the message lists those of the same dtype.
    """
    try:
        return _by_name()[name]
    except KeyError:
        alike = [n for n in _by_name() if n.split("_")[0] == str(name).split("_")[0]] or list(_by_name())
        raise BlisgemmValueError(f"kernel: expected one of {', '.join(alike)}; got {name!r}") from None


def candidates(dtype: str, isa: Isa, role: str) -> tuple[KernelSpec, ...]:
    """Return the kernels for a dtype on a vector set, in a role of ``ROLES``, that of first choice first."""
    return _rows()[isa.name, dtype, role]


def is_narrow(spec: KernelSpec) -> bool:
    """Whether a kernel of the catalog serves as a narrow one only."""
    key = (spec.isa.name, spec.acc_dtype)
    return not any(spec in _rows()[(*key, role)] for role in ROLES if role != "narrow")


def preferred(dtype: str, isa: Isa, role: str) -> KernelSpec:
    """Return the kernel of first choice for a dtype on a vector set, in a role of ``ROLES``."""
    return _rows()[isa.name, dtype, role][0]
