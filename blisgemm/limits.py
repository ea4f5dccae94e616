"""From where on each way of a product pays: the limits between them, as measured.

Knows: numbers, by vector set, machine and dtype, and what each was taken from. Does not know: how they decide
(``ways``). Called by ``ways``, and by ``teach`` for what it tells.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = [
    "AS_IT_LIES",
    "AS_IT_LIES_ELSEWHERE",
    "COLUMN_ROWS",
    "COLUMN_ROWS_ELSEWHERE",
    "CROWDED_STEPS",
    "DIRECT_EDGES",
    "DIRECT_EDGES_ELSEWHERE",
    "DIRECT_SHARE_OF_L2",
    "DIRECT_TILE_EDGES",
    "FEW",
    "FEW_ELSEWHERE",
    "NARROW_CROWDED",
    "NARROW_TERMS",
    "NEAR",
    "NEAR_COLUMNS",
    "NEAR_FEW_ROWS",
    "NEAR_LANE_EDGE",
    "NEAR_LONG_BYTES",
    "NEAR_LONG_EDGE",
    "NEAR_LONG_ROWS",
    "NEAR_ROWS",
    "NEAR_SHARE",
    "NEAR_SHORT_BYTES",
    "NEAR_SOME_ROWS",
    "NEAR_TERMS",
    "NEAR_WIDE_GAIN",
    "PASSING_BYTES",
    "SHALLOW_STEPS",
    "SHORT_ROW_BYTES",
    "SHORT_ROW_BYTES_ELSEWHERE",
    "STREAMED_GRAMS",
    "STRIP_BYTES",
    "STRIP_ROWS",
    "STRIP_STEPS",
    "SWEPT_CROWDED_SHARE",
    "SWEPT_NEAR_ROWS",
    "SWEPT_PADDING",
    "SWEPT_ROW_BYTES",
    "TILE_GAIN",
    "TURNED_COLUMNS",
    "UNPACKED_A_COLUMNS",
    "WIDE_BYTES",
    "WIDE_PADDING",
    "WIDE_STEPS",
    "Near",
]

# Largest n for which n x n x n goes direct, by vector set and dtype: alone; alone where the rows of B crowd few sets
# of L1 (``rules.CROWDED_BYTES``); as an item of a batch, which pays nothing for a call. What the first two allow the
# fast lane does at once, on the calling thread and holding the GIL: up to 350 us.
# Source, AVX2, Zen 3 VM, one thread, 2026-11-30: direct's time by packed's, with the 1 to 3 us that a plan takes.
#   alone, A as it lies where packed: n = 96 104 112 120 128 136 144 160, f32 - 0.84 0.95 0.96 1.12 0.92 1.02 1.01, f64
#     0.95 0.93 0.99 0.97 1.11 1.00 1.02 1.04; n = 24 28 32 36 40 48, c64 0.85 - 1.07 1.13 1.18 1.34, c128 1.00 1.04
#     1.17 1.27 1.17 1.37, where calls of 5 to 10 us pay for a plan.
#   B's rows 2 KiB apart, likewise: n = 48 64 80 96 112, f32 0.79 0.89 0.99 1.16 1.45, f64 1.03 1.15 1.32 1.32 1.38; n =
#     24 32 40, A packed, c64 0.75 0.96 1.1, c128 0.96 1.1 1.2.
#   batches: n = 14 20 40 48 64 96, f32 0.74 and less up to 40, then 0.85 0.88 1.01, f64 0.93 and less up to 40, then
#     0.93 1.07 1.19, c64 0.62 1.02 1.26 1.4 1.5 1.5, c128 0.99 1.17 1.3 1.4 1.7 1.8.
# AVX-512, Zen 4: direct won up to 128 (python -m blisgemm bench --shapes small), also with rows 2 KiB apart (n = 512,
# see below); batches were not measured. Nor were other sets, but for SSE2 on Zen 3: at 128 direct loses 0 to 13 %, and
# 20 to 30 % where rows crowd. OpenBLAS's small-matrix kernels go to 100
# (kernel/x86_64/sgemm_small_kernel_permit_skylakex.c).
# Emerald Rapids, AVX-512, 2026-11-30, likewise; batches as alone, not measured.
#   alone: n = 96 112 128 144 192, f32 0.87 0.82 1.02 1.15 1.39, f64 0.85 0.81 0.98 1.05 1.22; n = 48 56 64 72 80 96,
#     c64 0.81 0.93 0.94 1.05 0.98 1.09, c128 1.03 0.93 1.11 1.05 1.06 1.29.
#   B's rows 2 and 4 KiB apart: n = 64 80 96 112 128, f32 0.69 0.95 1.13 1.02 0.89 and 0.62 1.02 1.17 0.90 1.08, f64
#     0.68 0.91 0.86 1.06 1.09 and 0.83 0.95 0.95 1.10 1.15; n = 32 48 64 80, c64 0.66 0.89 0.96 1.11 and 0.69 0.97
#     1.07 1.19, c128 0.77 0.95 1.12 1.20 and 0.92 1.31 1.34 1.28.
DIRECT_EDGES = {
    ("avx512", "float32"): (128, 88, 128),
    ("avx512", "float64"): (128, 104, 128),
    ("avx512", "complex64"): (60, 52, 60),
    ("avx512", "complex128"): (48, 40, 48),
    ("avx2", "float32"): (120, 80, 96),
    ("avx2", "float64"): (96, 56, 56),
    ("avx2", "complex64"): (36, 28, 18),
    ("avx2", "complex128"): (28, 20, 14),
}
DIRECT_EDGES_ELSEWHERE = (128, 128, 128)

# Terms from which on products of few columns and more rows than a direct tile's take a narrow tile; smaller ones are
# done by the lane, with the tile that it has.
# Source, Zen 3 VM, AVX2, 2026-11-30, speed of narrow by direct's: f32 12x8 by 6x16, 24x8x24 1.03, 48x8x48 1.07, 64x8x64
# 1.10, 200x8x200 1.20, 1000x8x1000 1.16, 64x8x4000 1.19, 8x8x8000 1.6; f64 12x4 by 6x8, 24x4x24 1.06, 48x4x48 1.12,
# 300x4x300 1.13, 1000x4x1000 1.15, 8x4x8000 1.5 (10 rows: level with 12). Turned (``TURNED_COLUMNS``) with 2, 3 and 4
# columns by narrow, A of 300 and 1000 square: f32 1.54 0.99 1.00, 1.41 1.09 1.09; f64 2 columns 1.09 0.95. Emerald
# Rapids, AVX-512, the same day, narrow of 12, 14, 16 rows by direct (8x32, 8x16): f32 16x16x8000 1.30 1.13 1.52,
# 64x16x4000 1.29 1.24 1.37, 300x16x300 1.11 1.07 1.09, 1000x16x1000 1.31 1.29 1.31; f64 16x8x8000 1.12 1.06 1.19,
# 64x8x4000 1.06 1.05 1.04, 1000x8x1000 1.28 1.26 1.27.
NARROW_TERMS = 32**3

# Vector sets whose narrow tiles bear rows of A that lie a multiple of ``rules.A_CROWDED_BYTES`` apart, so that all of
# a tile's rows share one set of L1.
# Source, 2026-11-30 and 2026-12-01, time of the direct tile by the narrow one's, geometric means over products of 12 to
# 1024 rows and up to one vector of columns, such rows and others: Zen 3 VM, AVX2 (8 ways, tiles of 12 rows), f32 0.55
# and 1.16 to 1.37, f64 0.59 and 1.14 to 1.25; Emerald Rapids, AVX-512 (12 ways, 16 rows), f32 1.11 to 1.14 and 1.05 to
# 1.22, f64 0.98 to 1.13 and 1.01 to 1.30.
NARROW_CROWDED = ("avx512",)

# Largest n for which n x n x n goes direct by the direct tile, where from there to ``DIRECT_EDGES`` the wide one is
# better.
# Source, Emerald Rapids, AVX-512, 2026-11-30, GFLOP/s of the direct and of the wide tile, MKL's: n = 64 80 96 100 112
# 128, f32 8x32 138 136 150 80 97 92, 8x48 127 140 149 80 101 101, MKL 113 130 143 74 93 99; f64 8x16 73 75 78 74 81 68,
# 8x24 72 72 79 73 80 72, MKL 68 70 76 71 78 75 (12x32, 12x16: between).
DIRECT_TILE_EDGES = {("avx512", "float32"): 96, ("avx512", "float64"): 112}


class Near(NamedTuple):
    """Up to which C, edge x edge, blocks of B that stay in L2 are read as they lie; the same for a shallow product."""

    edge: int
    shallow_edge: int


# Products of which a kc block of B, all its columns, takes up to NEAR_SHARE of L2, where A's rows are contiguous, are
# packed only for more than NEAR_ROWS rows and NEAR_COLUMNS columns and a C of more than edge x edge elements, or
# shallow_edge squared if it has up to SHALLOW_STEPS values of p (then it is all about updates of C, which packed
# kernels ask for ahead). As they lie they go along the rows of C, by the wide tile where the block has more than
# WIDE_BYTES and WIDE_STEPS rows, and wide tiles pad the columns to at most WIDE_PADDING times as many. By vector set
# and dtype.
# Source: Emerald Rapids, AVX-512, 2026-11-30, one thread: 2,633 products of 2 to 1024 rows, 2 to 3072 columns and
# depths of 4 to 4096, each in every way that there is. Of the 1,634 with more than 64^3 terms, geometric means of the
# time of the better of NumPy and MKL by the way's: chosen as before (direct up to 128^3 terms, a few rows streamed or
# in strips wherever B was larger than 96 KiB) f32 0.90, f64 0.90; by this rule 1.015, 0.99; by the fastest way of each
# 1.04, 1.02. Other values: NEAR_SHARE 1/2 or 1: 0.3 to 0.5 % less; edges of 220 to 400 (f32), 160 to 320 (f64): the
# same within 0.4 %; the same limit for shallow ones: 0.2 % less; WIDE_STEPS 0 or 128: 0.1 to 0.5 % less; WIDE_BYTES
# 24 to 64 KiB: the same within 0.2 %, 128 KiB: 0.1 to 1.4 % less; down the columns of C: 0.1 and 0.9 % less. Complex
# was not measured so.
NEAR = {("avx512", "float32"): Near(312, 160), ("avx512", "float64"): Near(220, 160)}
NEAR_SHARE, NEAR_ROWS, NEAR_COLUMNS, SHALLOW_STEPS = 3 / 4, 32, 16, 4
WIDE_BYTES, WIDE_STEPS, WIDE_PADDING = 48 * 1024, 64, 1.15

# The same for AVX2, where it is the terms that decide: products of up to edge^3 terms read a near block of B as it
# lies, or up to NEAR_LONG_EDGE^3 where its rows have more than NEAR_LONG_BYTES and either crowd L1 or meet more than
# NEAR_LONG_ROWS of A. They go along the rows of C. So do few rows, down its columns: up to NEAR_FEW_ROWS whatever B is
# like, and up to NEAR_SOME_ROWS where B's have up to NEAR_SHORT_BYTES; by the wide tile where the direct one would pad
# C to NEAR_WIDE_GAIN times as many elements, unless B's rows crowd L1 and more than CROWDED_STEPS of them are met.
# B passes by in whole rows of at least SWEPT_ROW_BYTES where it takes more than L2, or SWEPT_CROWDED_SHARE of it if its
# rows crowd L1, and meets up to SWEPT_NEAR_ROWS rows of A, which direct tiles would pad to SWEPT_PADDING times as many;
# or up to ``FEW`` rows where it takes more than ``rules.LANE_B_BYTES`` for each.
# Source: Zen 3 VM (512 KiB of L2), AVX2, 2026-12-01, one thread, the same 2,633 products, each in every way. Of the
# 2,121 with more than 40^3 terms, geometric means of the time of the best of NumPy and MKL by the way's, and the share
# of products below 0.9: chosen as before (direct up to 120^3 terms, down the columns of C, by the direct tile) f32
# 1.252 and 2.6 %, f64 1.333 and 1.7 %; by this rule 1.299 and 0.4 %, 1.382 and 0.9 %; by the fastest way of each 1.321
# and 1.405. Other values: edges of 100 to 130 (f32), 72 to 130 (f64), NEAR_LONG_EDGE 48 to 72, NEAR_SOME_ROWS 12 to 32,
# NEAR_LONG_BYTES 2 and 4 KiB, SWEPT_ROW_BYTES 768 and 1536, NEAR_WIDE_GAIN 1.0 and 1.2: 0.1 to 0.6 % less or the same;
# NEAR_FEW_ROWS 8 or 16: 0.1 to 0.4 % less; wide tiles where rows crowd: 0.2 and 0.4 % less.
# Long rows that crowd nothing were measured apart, 110 products, packed's time by direct's: 13 to 24 rows f32 1.00 to
# 1.16, f64 1.14 to 0.93, falling from 2^17 to 2^20 terms; 25 to 60 rows 1.0 and 0.94 to 1.05; more 0.96 and 0.93.
NEAR_TERMS = {("avx2", "float32"): 120, ("avx2", "float64"): 96}
NEAR_FEW_ROWS, NEAR_SOME_ROWS, NEAR_SHORT_BYTES = 12, 16, 1536
NEAR_LONG_BYTES, NEAR_LONG_ROWS, NEAR_LONG_EDGE = 3072, 24, 64
NEAR_WIDE_GAIN, CROWDED_STEPS = 1.1, 4
SWEPT_ROW_BYTES, SWEPT_NEAR_ROWS, SWEPT_PADDING, SWEPT_CROWDED_SHARE = 1024, 8, 1.5, 1 / 4

# Largest n for which the lane multiplies n x n x n itself where ``NEAR`` or ``NEAR_TERMS`` says which tile is best: it
# has one tile, the direct one, down the columns of C. Larger products it calls by address. Source: our choice; the
# look-up takes 50 ns.
NEAR_LANE_EDGE = 40

# Share of L2 that B may take on the direct path, by machine and vector set; a machine without a row packs. Zen 4 with
# AVX-512 (8 rows at once, 48 or 24 columns): direct was 3 to 15 % faster than packed while B fit (f32 n <= 512, f64 n
# <= 360); AVX2 (4 rows: B is read twice as often, and wider tiles run out of address registers): only up to n = 160
# (2026-11-30). Emerald Rapids has no row: direct lost up to half there (f64, n = 512: 0.51 times NumPy, packed 0.9).
DIRECT_SHARE_OF_L2 = {("zen4", "avx512"): 1.0, ("zen4", "avx2"): 1 / 8}

# How much fuller another tile must be: the first one is a few per cent faster where both are full (catalog).
TILE_GAIN = 1.05

# How a few rows meet B, by vector set and dtype: (rows up to which they sweep along it, up to six together; rows up to
# which micro-tiles stream along B while it fits in half of L2, and beyond; steps of p in one pass of the stream path).
# Sources, 2026-11-30. Zen 3 VM, AVX2, busy, speed of stream and of packed by that of sweep, B of 1000 and 2000 square:
# f32 2 rows 0.62 0.64 and 0.44 0.43, 6 rows 0.95 0.84 and 0.82 0.67, 12 rows 1.00 0.86 and 1.03 0.87, 16 rows 0.96 0.78
# and 1.06 0.92, 24 rows 0.99 0.76 and 1.17 1.03; f64 0.61 0.51 and 0.42 0.41, 0.89 0.77 and 0.77 0.58, 0.93 0.83 and
# 0.92 0.81, 0.87 0.76 and 0.99 0.87, 0.83 0.82 and 1.08 1.01. Of packed for complex, 700, 1000, 1400 square: 4, 5, 6, 8
# rows c64 0.81 0.72 0.66, 0.94 0.80 0.69, 1.10 0.89 0.79, 1.08 0.92 0.87; c128 0.76 0.64 0.55, 0.92 0.75 0.61, 1.08
# 0.90 0.77, 1.02 0.88 0.84; stream is slower than sweep with any number of rows. GFLOP/s of f32, 2000 square: stream in
# steps of 8, 16, 32 with 6 rows 23 30 24; 32 columns direct 52, packed 53.
# Emerald Rapids, AVX-512, since stream asks for strips ahead (``ukernel.operand.STRIPS_AHEAD``), geometric means over B
# of 500 x 4000 to 3000 square in two hours, speed of sweep by stream's, 1 to 8 rows: f32 1.2 1.1 1.1 1.1 1.06 0.96 0.89
# 0.74, f64 1.3 1.3 1.3 1.2 1.2 1.1 0.94 0.81, c64 1.3 1.02 1.08 0.82 1.13 1.06 0.97 0.93. GFLOP/s of f32, 2000 square,
# stream in steps of 16 and 32: 16 rows 79 86.
FEW = {
    ("avx512", "float32"): (5, 5, 5, 32),
    ("avx512", "float64"): (6, 6, 6, 32),
    ("avx512", "complex64"): (3, 4, 4, 32),
    ("avx512", "complex128"): (3, 4, 4, 32),
    ("avx2", "float32"): (12, 12, 12, 16),
    ("avx2", "float64"): (12, 12, 12, 16),
    ("avx2", "complex64"): (5, 5, 5, 16),
    ("avx2", "complex128"): (5, 5, 5, 16),
}
FEW_ELSEWHERE = (4, 12, 12, 16)

# Rows of A up to which strips of B, packed one by one, meet all of them; and values of p in a strip: (rows up to which
# fewer, fewer, more).
# Source, Emerald Rapids, 2026-11-30, geometric means of times the better of NumPy and MKL.
#   strips of 32 and of 64 values of p, packed; five B of 768 x 768 to 2000 x 2000: 12 rows f32 1.06 1.02 0.63, f64 1.14
#     1.15 0.78, c64 1.23 1.25 0.93, c128 1.20 1.12 0.83; 16 rows 0.95 0.94 0.61, 1.10 1.12 0.81, 1.07 1.13 0.91, 1.03
#     1.02 0.84; 32 rows 0.93 0.93 0.72, 1.00 1.01 0.83, 1.01 1.05 0.98, 0.97 0.98 0.90; 48 rows 0.86 0.90 0.77, 0.92
#     1.00 0.85, 0.99 1.03 1.00, 0.92 0.96 0.94; 64 rows 0.83 0.89 0.78, 0.95 1.02 0.95, 0.95 1.00 0.99, 0.88 0.91 0.94;
#     96 rows 0.92 0.99 0.94, 0.94 0.94 0.95, 0.91 0.96 1.02, 0.84 0.89 0.97; 128 rows f32 - 0.85 0.84, f64 - 0.84 0.93.
#   stream and strips: f32 8, 9, 12 rows 0.87 0.88, 0.86 0.93, 0.83 0.96, f64 0.95 1.04, 0.89 1.11, 0.90 1.21; c64 4, 5,
#     6 rows 1.50 1.35, 1.12 1.48, 1.14 1.53, c128 1.32 1.28, 1.05 1.51, 0.99 1.47.
#   stream, strips, packed with B in L2, 300 x 300 to 600 x 600: f32 9, 16, 24, 32, 64 rows 1.00 0.73 0.52, 0.87 0.76
#     0.57, 0.89 0.85 0.67, 0.87 0.85 0.73, 0.82 0.84 0.79, f64 1.05 0.89 0.61, 0.91 0.88 0.61, 0.87 0.87 0.67, 0.84
#     0.85 0.70, 0.79 0.86 0.82; c64 9, 24, 64 rows 1.22 1.31 0.92, 0.95 1.08 0.95, 0.83 0.94 0.98.
# On Zen 3 (AVX2) packed is faster from 12 rows on; elsewhere it was not measured.
STRIP_ROWS = {
    ("avx512", "float32"): 96,
    ("avx512", "float64"): 64,
    ("avx512", "complex64"): 48,
    ("avx512", "complex128"): 40,
}
STRIP_STEPS = (12, 32, 64)

# Bytes of B up to which strips are made, where there is such a limit. Source: Emerald Rapids, 2026-11-30, GFLOP/s of
# strips of 32 and 64 values, of packed, MKL's: f64 B of 72 MB (3000 square), 32, 48, 64 rows 35 40 43 44, 46 42 49 51,
# 50 41 52 52; of 32 MB (2000 square), 64 rows 54 57 57 61; f32 of 36 MB (3000 square), 64, 96 rows 127 133 119 128, 127
# 133 129 129, of 64 MB (4096 square), 32 rows 1.6 and 2.0 times the speed of NumPy and MKL.
STRIP_BYTES = {("avx512", "float64"): 48 * 1024 * 1024}

# Bytes of a row of B up to which a few rows of A neither sweep nor stream along it, by vector set: what a pass begins
# and ends with outweighs so few vectors, and B lies as in one stream anyway.
# Source, 2026-11-30, the script that bench/ways.py was made from (--rows 1,2,3 --depths 8000), speed of sweep by
# direct's.
#   Zen 3 VM, AVX2, f32 24 32 48 64 columns: 0.56 0.63 0.93 0.96 (1 row), 0.35 0.86 0.87 1.0 (2); f64 12 16 24: 0.69
#     0.70 1.0, 0.35 0.74 0.90; c64 8 16 32: 0.39 0.71 1.0, - 0.71 0.78; c128 8 16: 0.77 1.0, 0.73 0.98.
#   Emerald Rapids, AVX-512, f32 32 48 64 96: 0.55 0.54 0.71 1.0, 0.32 0.43 1.0 1.0; f64 24 32 48: 0.74 0.82 1.0, 0.46
#     0.54 0.99; c64 24 32 48: 0.87 1.0 1.0, 0.66 0.95 1.0; c128 8 16 24: 0.45 0.86 1.0, 0.56 1.0 1.0.
SHORT_ROW_BYTES = {"avx512": 256}
SHORT_ROW_BYTES_ELSEWHERE = 160

# How small C is where A and B are read as they lie, however deep the product: (columns of C; elements of C), by vector
# set and dtype. One block of p after the other, so much of both stays near. Where B's rows crowd L1, half of both.
# Source, 2026-11-30, the script that bench/ways.py was made from, speed of packed by direct's at k = 4000 (complex
# 2000).
#   Zen 3 VM, AVX2, 16, 24, 32 columns: f32 64 rows - 1.02 0.72, 300 rows - 0.90 0.82, 1000 rows - 0.79 0.79; f64 16
#     rows 0.57 0.98 0.90, 64 rows 0.76 1.04 1.03, 1000 rows - 0.95 1.0. 8, 12, 16 columns: c64 8 rows 0.63 0.81 0.76,
#     16 rows 0.73 0.89 0.88, 64 rows - 1.25 1.22; c128 8 rows 0.77 1.0 1.0, 16 rows 0.89 1.0 1.0, 64 rows 1.07 1.5
#     1.5.
#   B's rows 4 KiB apart, 8, 16, 32, 64 columns: f32 16 rows 0.69 0.49 0.56 0.94, 300 rows 0.82 0.98 1.33 1.49; f64 16
#     rows 0.57 0.73 0.98 1.0, 300 rows 0.88 1.01 1.35 1.72.
#   Emerald Rapids, AVX-512, 16, 32, 64 columns: f32 64 rows - 0.94 0.96, 128 rows - 1.03 1.08, 300 rows - 1.10 -; f64
#     64 rows 0.91 0.91 0.99, 128 rows 1.03 1.06 -. 8, 16, 32 columns: c64 16 rows - 0.93 -, 32 rows 1.04 1.0 1.08, 64
#     rows 1.19 1.10 -; c128 16 rows - 0.87 1.18, 64 rows 1.10 1.43 -.
AS_IT_LIES = {
    ("avx512", "float32"): (16, 4096),
    ("avx512", "float64"): (8, 1024),
    ("avx512", "complex64"): (0, 256),
    ("avx512", "complex128"): (0, 256),
    ("avx2", "float32"): (32, 1024),
    ("avx2", "float64"): (16, 1024),
    ("avx2", "complex64"): (8, 256),
    ("avx2", "complex128"): (4, 128),
}
AS_IT_LIES_ELSEWHERE = (16, 256)

# Vector sets with which deep products of few elements of C, whose A has no contiguous rows (a Gram matrix A' A), are
# streamed on one thread: a few values of p at a time meet all of C, so that lines of A, which hold a part of a column,
# are used whole.
# Source: Emerald Rapids, 2026-11-30, GFLOP/s direct, streamed in steps of 32, MKL's, A by columns: f32 32x32x2000 136
# 139 143, 32x32x20000 93 101 91, 32x32x300000 54 59 62; f64 61 70 53, 39 44 43, 24 27 29. On Zen 3 the two were level.
STREAMED_GRAMS = ("avx512",)

# Rows up to which B's columns are transposed on the way to the fmas, once per micro-panel of A, by vector set.
# Source: Zen 3 VM, AVX2, busy, 2026-11-30, packed's time by this one's, B of 300, 1000 and 3000 square: f32 4 rows 1.36
# 1.24 1.92, 6 rows 0.98 0.86 1.25, 8 rows 0.98 0.90 1.34, 12 rows 0.80 0.77 1.00, 16 rows 0.75 0.76 0.95; f64 1.22 1.40
# 1.46, 0.86 0.93 1.10, 0.74 0.89 1.02, 0.65 0.79 1.01, 0.61 0.72 0.88; c64, c128 (300, 1000) 4 rows 1.4 to 1.6, 8 rows
# 0.91 to 1.12. Elsewhere it was not measured: our choice.
COLUMN_ROWS = {"avx2": 8}
COLUMN_ROWS_ELSEWHERE = 16

# Columns of B up to which C' = B' A' is computed where A's rows are contiguous: for an A of fewer than
# ``rules.TURNED_DEEP`` columns, a deeper one that fits in L2, and one that doesn't. Vectors then lie along the rows of
# A, transposed in registers, and are full. (Where C is by columns it is the rows of A, and B by columns.)
# Source: the products of ``NEAR`` and ``NEAR_TERMS`` with 16 to 1024 rows, time of the fastest of direct and narrow
# tiles by turned's, geometric means of those with 64, 128, 256, 512, 1024, 4096 columns of an A of 16 KiB to L2:
# Emerald Rapids f32 4 columns 1.23 1.41 1.50 1.61 1.80 1.82, 8 0.81 0.95 1.03 1.11 1.21 1.17, 16 0.4 to 0.6; f64 2
# columns 1.20 1.30 1.40 1.44 1.47 1.68, 4 0.89 0.97 1.01 1.15 1.15 1.21, 8 0.6 to 0.7; Zen 3 f32 4 0.96 1.06 1.10 1.11
# 1.25 1.34, 8 0.5 to 0.6, f64 2 0.92 0.98 1.01 1.14 1.18 1.31, 4 0.7 to 0.8. In the mean of 279 and 287 products of 2,
# 4 and 8 columns of 8 KiB and more, what this rule chooses takes 0.2 % (f32) and 0.1 % (f64; Zen 3 0.3, 0.2) longer
# than the faster of the two; the one before, by A's bytes, from 16 KiB and 64 columns on, 2.1 and 2.0 % (0.8, 0.4).
# Complex, Zen 3, 2026-12-01, A of 32 x 64 to 300 x 300: c64 2 columns 1.6 to 3.1, 3 1.3 to 1.9, 4 1.24 to 1.8, 6 1.0 to
# 1.2; c128 2 1.2 to 1.7, 3 0.9 to 1.1, 4 0.86 to 0.94, 6 1.03 to 1.3; Emerald Rapids c64 2.1 to 3.9, 1.5 to 2.3, 1.3 to
# 2.0, 0.93 to 1.33, c128 1.6 to 2.6, 1.1 to 1.4, 1.0 to 1.26, 0.7 to 0.86; there, 2026-11-30, 300, 1000, 3000 square,
# 2, 4, 6, 8 columns: c64 3.9 2.1 1.4 1.06, 3.1 1.8 1.4 1.03, 2.3 1.5 1.08 0.96; c128 2.6 1.24 0.91 0.65, 2.0 1.2 0.84
# 0.67, 1.2 0.87 0.70 0.57.
TURNED_COLUMNS = {
    ("avx512", "float32"): (4, 8, 8),
    ("avx512", "float64"): (2, 4, 4),
    ("avx512", "complex64"): (6, 6, 6),
    ("avx512", "complex128"): (4, 4, 3),
    ("avx2", "float32"): (2, 4, 4),
    ("avx2", "float64"): (0, 2, 2),
    ("avx2", "complex64"): (4, 6, 6),
    ("avx2", "complex128"): (2, 6, 6),
}

# Columns of C up to which the packed path reads an A of contiguous rows as it lies, by vector set and dtype.
# Source, 2026-11-30. Emerald Rapids, AVX-512, GFLOP/s packed and as it lies: f32 n = 512, 1000, 2000 145 155 153 and
# 149 161 156, f64 68 76 76 and 72 79 80, c64 n = 500 151 and 159, f32 3000 x 64 x 3000 96 and 159, 64 x 64 x 8192 82
# and 103. Zen 3 VM, AVX2, quiet, speed as it lies by packed: squares of 64 to 240 1.05 to 1.14; n = 256 400 512 640 700
# 768 1024 f32 1.04 1.02 1.03 1.04 1.02 1.02 0.99, f64 1.03 1.02 1.04 1.01 1.00 1.01 0.98, c64 1.03 1.03 1.00 0.98 0.98
# 0.98 0.98, c128 1.03 1.02 0.99 1.01 1.00 0.99 0.98; 1000 x 64 x 2048 f32 1.15, f64 1.10, c64 1.10, c128 1.06; 64 x 64
# x 8192 f32 1.21; 2000 x 400 x 1000 with A's rows 16 KiB apart 1.00 0.97 0.97 1.00. Elsewhere it was not measured.
UNPACKED_A_COLUMNS = {
    **{("avx512", dtype): 2**63 - 1 for dtype in ("float32", "float64", "complex64", "complex128")},
    ("avx2", "float32"): 768,
    ("avx2", "float64"): 640,
    ("avx2", "complex64"): 400,
    ("avx2", "complex128"): 400,
}

# Bytes of B from which on it passes by more rows than the fast lane takes (``LANE_ROWS``), where it was not measured:
# what fits near L1 is read as well strip by strip. Source: our choice. On AVX2 it is LANE_B_BYTES a row for them too:
# direct's time by sweep's on Zen 3, 2026-11-30, B of 512 KiB, 1, 2 and 3 MiB: 6 rows f32 0.87 1.06 1.01 1.17, f64 0.96
# 1.00 1.08 1.19; 8 rows 1.02 1.27 1.25 1.31, 1.25 1.18 1.22 1.31; 12 rows 0.80 0.91 0.94 1.00, 0.88 0.89 0.97 1.07.
PASSING_BYTES = 96 * 1024
