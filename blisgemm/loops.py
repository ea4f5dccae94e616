"""THE TEXTBOOK PAGE: the five loops around the microkernel.

Knows: the order of the loops and which cache each block lives in. Does not know: how large
blocks are (``blocking``), how panels are packed (``pack``), what a micro-tile does (``ukernel``), who
allocates (``workspace``) or how many threads there are (``parallel``). Called by ``entry``.

::

    ic   5th loop   rows of C and A in steps of mc       a panel of A (mc x kc), packed or as it lies    -> L3
    pc   4th loop     p in steps of kc
    jc   3rd loop       columns of C and B in steps of nc    pack a block of B (kc x nc)                 -> L2
    ir   2nd loop         rows of the panel in steps of mr      one micro-panel of A                     -> L1
    jr   1st loop           columns of the block in steps of nr    one micro-panel of B, one micro-tile of C
    p    microkernel          C[mr x nr] += A[mr x kc] * B[kc x nr]                                   -> registers

It is the order of Goto and of BLIS as they have it for matrices by columns, with A and B exchanged: vectors lie along
the rows of C here, so B is what vectors are loaded from. A block of it streams from L2 behind the fmas while the few
rows of A, of which single elements are broadcast, stay near. C is walked along its rows, as memory and its prefetchers
like it, and A need not be packed where its own rows are contiguous.

So it is on one thread (``five_loops``). Several (``five_loops_together``) share many blocks of B at once, nb columns,
beside the panel of A. What the 3rd loop does with them is divided into tiles, of a block of B and mt rows of the panel,
and each tile packs a share of what the next step reads; in each tile ir and jr go as above::

    ic, pc, jb   a step: rows, terms, nb columns     in order; threads wait for each other at its end
    it, jc         tiles of mt x nc of C               a thread takes the next one when it is free, and packs ahead

kc steps are taken in order by everyone, so neither the number of threads nor who takes which tile can change a bit. The
``py_func`` of either text runs as plain Python.

Source: Goto and van de Geijn, TOMS 34(3), 2008; Van Zee and van de Geijn, TOMS 41(3), 2015.
"""

from .pack import pack_a, pack_b
from .team import mark_done, take_number, wait_until_done
from .ukernel.bind import (
    inlined,
    microkernel,
    microkernel_items,
    microkernel_of,
    microkernel_part,
    microkernel_strip,
    sweep,
)

# Bytes of operands and results of a group of small products that are done together: a quarter of the smallest L1 here.
# Zen 3, 10^4 items, times the speed of 16 KiB with both asking ahead: 1.05 (f32, f64, n = 8 to 32, geometric mean;
# 2026-11-30).
ITEMS_BYTES = 8 * 1024

# Bytes of a batch from which on its items are asked for ahead, line by line. Zen 3 with 32 MiB of L3, shared: asking
# ahead made batches of 6 MB 14 % slower and those of 30 MB 1.2 to 2.1 times as fast; the limit between is our choice.
AHEAD_BYTES = 12 * 1024 * 1024
LINE_BYTES = 64

# Columns of B whose distance is a multiple of a large power of two share sets of L1, which has 64 sets of 64 bytes on
# nearly every processor. Where more than so many would share one, fewer are read side by side.
# Source: Zen 3 (8 ways), A x, GB/s, 2026-11-30: f32 1024 and 2048 square, 16 rows of A at once 15 and 13, 8 rows 23 and
# 17 to 21; 512 square (2 KiB apart, 8 to a set) 34 and 24.
SETS_BYTES, CROWD = 4096, 8

# Micro-panels in one piece of packing: four are read side by side (ukernel.packer).
PIECE = 4

__all__ = [
    "columns_at_once", "direct", "direct_items", "five_loops", "five_loops_together", "macrokernel", "share", "stream",
    "strips", "sweep_rows",
]  # fmt: skip


@inlined
def ceil_div(a, b):
    """Return the number of steps of b that cover a."""
    return (a + b - 1) // b


@inlined
def share(extent, step, part, parts):
    """Return where part ``part`` of ``parts`` of ``extent`` starts and ends, in whole steps."""
    steps = ceil_div(extent, step)
    return min(extent, steps * part // parts * step), min(extent, steps * (part + 1) // parts * step)


@inlined
def macrokernel(kernel, access, alpha, a, a_pack, b_pack, beta, c, kc_cur, conj):
    """Multiply (a part of) a panel of A by a packed block of B into C.

    Args:
        access: the literal ``"packed"`` (the panel's micro-panels are read) or ``"half"`` (the panel as it lies).
        a, a_pack: the panel of A as it lies, and its micro-panels.
        b_pack: the block of B.
        Others: as ``microkernel`` takes them.
    """
    mc_cur, nc_cur = c.shape
    for ir in range(0, mc_cur, kernel.mr):  # 2nd loop: a micro-panel of A stays near L1 ...
        for jr in range(0, nc_cur, kernel.nr):  # 1st loop: ... while B's stream from L2
            microkernel_of(
                kernel, access, min(kernel.mr, mc_cur - ir), min(kernel.nr, nc_cur - jr), kc_cur, alpha,
                a, a_pack, ir, b_pack[jr // kernel.nr], beta, c[ir:, jr:], conj,
            )  # fmt: skip


@inlined
def five_loops(kernel, access, blocking, alpha, a, b, beta, c, conj, a_pack, b_pack):
    """Compute ``c := alpha * op(a) * op(b) + beta * c`` by packed blocks; op is conjugation or nothing.

    Args:
        kernel: the KernelSpec.
        access: the literal ``"packed"`` or, for an A of unit column stride, ``"half"``, which does not pack it.
        blocking: (mc, nc, kc, ...), multiples of mr, of nr, and any.
        alpha, beta, conj: as ``microkernel`` takes them.
        a, b, c: m x k, k x n, m x n, any strides.
        a_pack: (mc / mr, kc * mr * planes) reals, the panel of A; no rows for ``half``.
        b_pack: (nc / nr, kc * nr * planes) reals, the block of B; both start on a page (``workspace``).
    """
    (m, k), n = a.shape, b.shape[1]
    mc, nc, kc, _ = blocking
    for ic in range(0, m, mc):  # 5th loop: rows of C and A
        mc_cur = min(mc, m - ic)
        for pc in range(0, k, kc):  # 4th loop: the summed dimension, in order
            kc_cur = min(kc, k - pc)
            beta_pc = beta if pc == 0 else kernel.one  # later blocks add to what the first left
            a_panel = a[ic : ic + mc_cur, pc : pc + kc_cur]
            if a_pack.shape[0] > 0:
                pack_a(kernel, a_panel, a_pack)
            for jc in range(0, n, nc):  # 3rd loop: columns of C and B
                nc_cur = min(nc, n - jc)
                pack_b(kernel, b[pc : pc + kc_cur, jc : jc + nc_cur], b_pack)
                tile = c[ic : ic + mc_cur, jc : jc + nc_cur]
                macrokernel(kernel, access, alpha, a_panel, a_pack, b_pack, beta_pc, tile, kc_cur, conj)


@inlined
def step_at(step, m, n, k, mc, nb, kc):
    """Return where a step of the loops ic, pc, jb begins and ends: in rows, in terms, in columns.

    The step after the last one is empty: it ends where it begins, or before. What is said of step -1 means nothing.
    """
    j_steps, p_steps = ceil_div(n, nb), ceil_div(k, kc)
    ic, pc, jb = step // (j_steps * p_steps) * mc, step // j_steps % p_steps * kc, step % j_steps * nb
    return ic, min(m, ic + mc), pc, min(k, pc + kc), jb, min(n, jb + nb) if ic < m else jb


@inlined
def pack_share(kernel, part, parts, a_panel, b_panel, a_pack, b_pack):
    """Pack a part, of so many, of some columns of B and of a panel of A: whole pieces of PIECE micro-panels."""
    j0, j1 = share(b_panel.shape[1], PIECE * kernel.nr, part, parts)
    i0, i1 = share(a_panel.shape[0], PIECE * kernel.mr, part, parts)
    pack_b(kernel, b_panel[:, j0:j1], b_pack[j0 // kernel.nr :])
    pack_a(kernel, a_panel[i0:i1], a_pack[i0 // kernel.mr :])


@inlined
def five_loops_together(kernel, access, blocking, alpha, a, b, beta, c, conj, a_packs, b_packs, work):
    """Compute the same product, with the same bits, on every thread of a team: each of them runs this text.

    What the loops ic, pc and jb go through are numbered steps here. A step's work is cut into tiles of mt x nc of C,
    each of which the thread does that takes its number: cores are never equally fast, and with a fixed share each the
    slowest would set the pace. Every tile also packs its share of what the next step reads, into the buffer that the
    step before has left. So threads wait for each other once a step; and of 16 that read and write memory, a few pack
    at a time, while the others multiply.

    Step s reads buffer s mod 2 and fills the other one. Step -1 stands before the first: it only packs. Numbers of
    tiles run on from step to step, so a thread may hold one of the next step while it waits for the end of this one.

    Args:
        blocking: (mc, nc, kc, mt), multiples of mr, of nr, any, and of mr.
        a_packs, b_packs: of each two buffers that steps take in turn, or one where nothing is packed a second time:
            (buffers, mc / mr, kc * mr * planes) reals for panels of A, with no rows for ``half``, and (buffers, nb /
            nr, kc * nr * planes) for nb columns of B, a multiple of nc or all.
        work: of the team (``team``), nothing of it taken yet.
        Others: as ``five_loops``.
    """
    (m, k), n = a.shape, b.shape[1]
    mc, nc, kc, mt = blocking
    nb = b_packs.shape[1] * kernel.nr
    j_steps = ceil_div(n, nb)  # with one panel of A
    steps = ceil_div(m, mc) * ceil_div(k, kc) * j_steps
    first, number = 0, take_number(work)  # of a step's first tile; of the one that this thread does next
    for step in range(-1, steps):  # before the first: nothing to multiply yet, and all of its packing to do
        ic, i_end, pc, p_end, jb, j_end = step_at(step, m, n, k, mc, nb, kc)
        beta_pc = beta if pc == 0 else kernel.one
        a_pack, b_pack = a_packs[step // j_steps % a_packs.shape[0]], b_packs[step % b_packs.shape[0]]

        ic_next, i_next, pc_next, p_next, jb_next, j_next = step_at(step + 1, m, n, k, mc, nb, kc)
        if jb_next > 0 or a_packs.shape[1] == 0:  # the panel of A is there already, or read as it lies
            i_next = ic_next
        a_next, b_next = a[ic_next:i_next, pc_next:p_next], b[pc_next:p_next, jb_next:j_next]
        a_room = a_packs[(step + 1) // j_steps % a_packs.shape[0]]
        b_room = b_packs[(step + 1) % b_packs.shape[0]]

        tile_rows = ceil_div(i_end - ic, mt)
        tiles = tile_rows * ceil_div(j_end - jb, nc)
        if step < 0:
            tiles = ceil_div(i_next - ic_next, PIECE * kernel.mr) + ceil_div(j_next - jb_next, PIECE * kernel.nr)
        while number < first + tiles:
            tile = number - first
            pack_share(kernel, tile, tiles, a_next, b_next, a_room, b_room)
            if step >= 0:
                i0, j0 = ic + tile % tile_rows * mt, jb + tile // tile_rows * nc
                i1, j1 = min(i_end, i0 + mt), min(j_end, j0 + nc)
                macrokernel(
                    kernel, access, alpha, a[i0:i1, pc:p_end], a_pack[(i0 - ic) // kernel.mr :],
                    b_pack[(j0 - jb) // kernel.nr :], beta_pc, c[i0:i1, j0:j1], p_end - pc, conj,
                )  # fmt: skip
            mark_done(work)
            number = take_number(work)
        first += tiles
        wait_until_done(work, first)  # all is packed for the next step, and nobody reads what that one writes over


@inlined
def columns_at_once(kernel, distance):
    """Return how many columns of B, so many bytes apart, pass together through all of p: nr, or one vector."""
    spread = min(distance & -distance, SETS_BYTES)  # the largest power of two that divides their distance
    return kernel.lanes if kernel.nr * spread > CROWD * SETS_BYTES else kernel.nr


@inlined
def direct(kernel, access, nc, kc, rows_first, alpha, a, b, beta, c, conj):
    """Compute the same product, with the same bits, on the matrices as they lie, without packing.

    For small and skinny problems, and while B stays in L2. One block of p after the other: of a deep product all of A
    and B that a block needs stays near, and C, small then, is added to once a block. A few rows read each column of a B
    by columns once, so there a few of these go through all of p before the next, from end to end.

    Args:
        access: the literal ``"rows"`` (B has unit column stride) or ``"columns"`` (unit row stride).
        nc: columns that go through all of p before the next: all, or ``columns_at_once``.
        rows_first: whether to go along the rows of C, a micro-panel of A staying near while all of B passes, in
            place of down its columns, where a micro-panel of B stays.
        Others: as ``five_loops``.
    """
    (m, k), n = a.shape, b.shape[1]
    for jc in range(0, n, nc):
        nc_cur = min(nc, n - jc)
        outer_end, outer_step = (m, kernel.mr) if rows_first else (nc_cur, kernel.nr)
        inner_end, inner_step = (nc_cur, kernel.nr) if rows_first else (m, kernel.mr)
        for pc in range(0, k, kc):  # block after block of p: of a deep product, one of A and one of B stay near
            kc_cur = min(kc, k - pc)
            beta_pc = beta if pc == 0 else kernel.one
            for outer in range(0, outer_end, outer_step):
                for inner in range(0, inner_end, inner_step):
                    ir, jr = (outer, jc + inner) if rows_first else (inner, jc + outer)
                    microkernel(
                        kernel, access, min(kernel.mr, m - ir), min(kernel.nr, jc + nc_cur - jr), kc_cur,
                        alpha, a[ir:, pc:], b[pc:, jr:], beta_pc, c[ir:, jr:], conj,
                    )  # fmt: skip


@inlined
def bytes_a_step(x, steps):
    """Return how far apart ``steps`` places lie that cover an item of x, or 0 where they would cover more gaps."""
    _, rows, columns = x.shape
    span = (rows - 1) * x.strides[1] + (columns - 1) * x.strides[2] + x.itemsize
    content = rows * columns * x.itemsize
    return ceil_div(span, steps) if content <= span <= 2 * content else 0


@inlined
def direct_items(kernel, alpha, a, b, c, conj):
    """Compute ``c := alpha * op(a) * op(b)`` for many small products of one shape, micro-tile by micro-tile.

    A few items stay near while their micro-tiles pass, along the rows of C. Where the batch comes from memory, each of
    them asks for its part of the items that follow: tiles touch lines in an order that no prefetcher sees through.

    Args:
        a, b, c: items x m x k, items x k x n, items x m x n; k is one kc block, b and c have unit column stride.
        alpha: real. conj: as ``five_loops``.
    """
    (items, m, k), n = a.shape, b.shape[2]
    item_bytes = kernel.itemsize * (m * k + k * n + m * n)
    group = max(1, ITEMS_BYTES // item_bytes)
    row_tiles, column_tiles = ceil_div(m, kernel.mr), ceil_div(n, kernel.nr)
    rows, taller = m // row_tiles, m % row_tiles  # micro-tiles as even as can be, rather than mr rows and a rest
    turns, steps = 0, (0, 0, 0)
    if items * item_bytes > AHEAD_BYTES:
        tiles = row_tiles * column_tiles
        turns = ceil_div(ceil_div(kernel.itemsize * max(m * k, k * n, m * n), LINE_BYTES), tiles)
        steps = (bytes_a_step(a, turns * tiles), bytes_a_step(b, turns * tiles), bytes_a_step(c, turns * tiles))
    for first in range(0, items, group):
        count, tile, ir = min(group, items - first), 0, 0
        turns_cur = turns if first + group < items else 0
        for i_tile in range(row_tiles):
            m_cur = rows + (1 if i_tile < taller else 0)
            for jr in range(0, n, kernel.nr):
                microkernel_items(
                    kernel, m_cur, min(kernel.nr, n - jr), k, alpha, a, b, c, conj,
                    first, count, ir, jr, group, turns_cur, tile * turns, steps,
                )  # fmt: skip
                tile += 1
            ir += m_cur


@inlined
def stream(kernel, kc, step, alpha, a, b, beta, c, conj, sums):
    """Compute the same product, with the same bits, for a few rows: B passes once, along its own rows.

    A micro-tile's sums wait in ``sums`` while its neighbours do the same ``step`` values of p, so that memory is read
    in ``step`` long streams.

    Args:
        step: values of p in one pass over the columns.
        sums: (columns of micro-tiles at once, rows of them, reals of one) buffer.
        Others: as ``five_loops``; B has unit column stride.
    """
    (m, k), n = a.shape, b.shape[1]
    nc = sums.shape[0] * kernel.nr
    for jc in range(0, n, nc):
        j1 = min(n, jc + nc)
        for pc in range(0, k, kc):
            p1 = min(k, pc + kc)
            beta_pc = beta if pc == 0 else kernel.one
            sums[:, :, :] = 0
            for p in range(pc, p1, step):
                for jr in range(jc, j1, kernel.nr):
                    for ir in range(0, m, kernel.mr):
                        microkernel_part(
                            kernel, min(kernel.mr, m - ir), min(kernel.nr, j1 - jr), min(step, p1 - p),
                            alpha, a[ir:, p:], b[p:, jr:], beta_pc, c[ir:, jr:], conj,
                            sums[(jr - jc) // kernel.nr, ir // kernel.mr], p + step >= p1,
                        )  # fmt: skip


@inlined
def strips(kernel, kc, step, alpha, a, b, beta, c, conj, sums, a_pack, strip):
    """Compute the same product, with the same bits, for more rows, yet not so many that packing all of B first pays.

    B passes once, along its own rows, ``step`` of them at a time. Of these one strip of nr columns after the other is
    packed, from lines that the micro-tiles of the strip before have asked for, and meets all rows of A while it is in
    L1. The sums of a micro-tile wait in ``sums`` until the next ``step`` values of p.

    Args:
        sums: as ``stream``.
        a_pack: (rows of micro-tiles, kc * mr * planes) reals, a kc block of A. strip: (1, step * nr * planes) reals.
        Others: as ``stream``.
    """
    (m, k), n = a.shape, b.shape[1]
    nc = sums.shape[0] * kernel.nr
    tiles = ceil_div(m, kernel.mr)
    for jc in range(0, n, nc):
        j1 = min(n, jc + nc)
        for pc in range(0, k, kc):
            p1 = min(k, pc + kc)
            beta_pc = beta if pc == 0 else kernel.one
            sums[:, :, :] = 0
            pack_a(kernel, a[:, pc:p1], a_pack)
            for p in range(pc, p1, step):
                p_cur = min(step, p1 - p)
                part = (p - pc) * kernel.mr * kernel.planes  # where these values of p begin in a micro-panel of A
                asked = ceil_div(p_cur, tiles)  # rows that each micro-tile asks for, of the strip to come
                for jr in range(jc, j1, kernel.nr):
                    pack_b(kernel, b[p : p + p_cur, jr : min(j1, jr + kernel.nr)], strip)
                    ahead = b[p:, jr + kernel.nr :] if jr + kernel.nr < j1 else b[min(p + p_cur, k - 1) :, jc:]
                    for ir in range(0, m, kernel.mr):
                        t = ir // kernel.mr
                        first = min(t * asked, p_cur)
                        microkernel_strip(
                            kernel, min(kernel.mr, m - ir), min(kernel.nr, j1 - jr), p_cur, alpha, a_pack[t, part:],
                            strip[0], beta_pc, c[ir:, jr:], conj, sums[(jr - jc) // kernel.nr, t], p + step >= p1,
                            ahead[first:], min(asked, p_cur - first),
                        )  # fmt: skip


@inlined
def sweep_rows(kernel, kc, step, alpha, a, b, beta, c, conj, sums):
    """Compute the same product, with the same bits, for a few rows: B passes once, ``step`` whole rows at a time.

    Args:
        sums: (rows, reals) buffer; its columns, a whole number of vectors, are how many of C's pass at once.
        Others: as ``stream``.
    """
    (m, k), n = a.shape, b.shape[1]
    nc = sums.shape[1] // kernel.chains
    rows = ceil_div(m, ceil_div(m, kernel.sweep_rows))  # that meet B together: as even as can be
    for jc in range(0, n, nc):
        nc_cur = min(nc, n - jc)
        for pc in range(0, k, kc):
            p1 = min(k, pc + kc)
            beta_pc = beta if pc == 0 else kernel.one
            sums[:, :] = 0
            for p in range(pc, p1, step):
                for i in range(0, m, rows):
                    sweep(
                        kernel, min(rows, m - i), nc_cur, min(step, p1 - p), alpha, a[i:, p:], b[p:, jc:], beta_pc,
                        c[i:, jc:], conj, sums[i:], p + step >= p1,
                    )  # fmt: skip
