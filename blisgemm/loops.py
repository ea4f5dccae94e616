"""THE TEXTBOOK PAGE: the five loops around the microkernel.

Knows: the order of the loops and which cache each block lives in. Does not know: how large
blocks are (``blocking``), how panels are packed (``pack``), what a micro-tile does (``ukernel``), who
allocates (``workspace``) or how many threads there are (``parallel``). Called by ``entry``.

::

    jc   5th loop   columns of C and B in steps of nc
    pc   4th loop     p in steps of kc              pack a panel of B (kc x nc)    -> L3
    ic   3rd loop       rows of C and A in steps of mc   pack a block of A (mc x kc)  -> L2
    jr   2nd loop         columns of the panel in steps of nr   one micro-panel of B  -> L1
    ir   1st loop           rows of the block in steps of mr      one micro-tile of C -> registers
    p    microkernel          C[mr x nr] += A[mr x kc] * B[kc x nr]

The levels are those of a tile that is narrow enough: with AVX-512 a micro-panel of B is larger than L1 and streams
from L2, as the plan of a product says. The same text is compiled with ``prange`` as a plain range for one thread and
as parallel ranges (``entry``), and its ``py_func`` runs as plain Python. kc steps are taken in order by everyone,
so the number of threads can't change a bit.

Source: Goto and van de Geijn, TOMS 34(3), 2008; Van Zee and van de Geijn, TOMS 41(3), 2015.
"""

from numba import prange

from .pack import pack_a, pack_b
from .ukernel.bind import inlined, microkernel

__all__ = ["direct", "five_loops", "macrokernel", "share"]


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
def macrokernel(kernel, alpha, a_pack, b_pack, beta, c, kc_cur, conj):
    """Multiply a packed block of A by (a part of) a packed panel of B into C."""
    mc_cur, nc_cur = c.shape
    for jr in range(0, nc_cur, kernel.nr):  # 2nd loop: a micro-panel of B stays in L1 ...
        for ir in range(0, mc_cur, kernel.mr):  # 1st loop: ... while A's micro-panels stream from L2
            microkernel(
                kernel, min(kernel.mr, mc_cur - ir), min(kernel.nr, nc_cur - jr), kc_cur,
                alpha, a_pack[ir // kernel.mr], b_pack[jr // kernel.nr], beta, c[ir:, jr:], conj,
            )  # fmt: skip


@inlined
def five_loops(kernel, blocking, ways, alpha, a, b, beta, c, conj, a_pack, b_pack):
    """Compute ``c := alpha * op(a) * op(b) + beta * c`` by packed blocks; op is conjugation or nothing.

    Args:
        kernel: the KernelSpec.
        blocking: (mc, nc, kc), multiples of mr, of nr, and any.
        ways: (ic_ways, jr_ways): threads over rows and over columns of each panel.
        alpha, beta, conj: as ``microkernel`` takes them.
        a, b, c: m x k, k x n, m x n, any strides.
        a_pack: (threads, mc / mr, kc * mr * planes) reals, a block of A per thread.
        b_pack: (nc / nr, kc * nr * planes) reals, the panel of B that all share.
    """
    (m, k), n = a.shape, b.shape[1]
    mc, nc, kc = blocking
    ic_ways, jr_ways = ways
    threads = ic_ways * jr_ways
    for jc in range(0, n, nc):  # 5th loop: columns of C and B
        nc_cur = min(nc, n - jc)
        for pc in range(0, k, kc):  # 4th loop: the summed dimension, in order
            kc_cur = min(kc, k - pc)
            beta_pc = beta if pc == 0 else kernel.one  # later blocks add to what the first left
            for t in prange(threads):  # the panel of B is packed by all, into L3
                j0, j1 = share(nc_cur, kernel.nr, t, threads)
                pack_b(kernel, b[pc : pc + kc_cur, jc + j0 : jc + j1], b_pack[j0 // kernel.nr :])
            for t in prange(threads):
                i0, i1 = share(m, kernel.mr, t // jr_ways, ic_ways)
                j0, j1 = share(nc_cur, kernel.nr, t % jr_ways, jr_ways)
                for ic in range(i0, i1, mc):  # 3rd loop: rows of C and A
                    mc_cur = min(mc, i1 - ic)
                    pack_a(kernel, a[ic : ic + mc_cur, pc : pc + kc_cur], a_pack[t])  # the block of A, into L2
                    c_block = c[ic : ic + mc_cur, jc + j0 : jc + j1]
                    macrokernel(kernel, alpha, a_pack[t], b_pack[j0 // kernel.nr :], beta_pc, c_block, kc_cur, conj)


@inlined
def direct(kernel, kc, alpha, a, b, beta, c, conj):
    """Compute the same product, with the same bits, on the matrices as they lie, without packing.

    For small and skinny problems, and while B stays in L2. B needs unit column stride. The kc blocks of one micro-tile
    follow each other while the tile is in L1.
    """
    (m, k), n = a.shape, b.shape[1]
    for jr in range(0, n, kernel.nr):
        for ir in range(0, m, kernel.mr):
            for pc in range(0, k, kc):
                beta_pc = beta if pc == 0 else kernel.one
                microkernel(
                    kernel, min(kernel.mr, m - ir), min(kernel.nr, n - jr), min(kc, k - pc),
                    alpha, a[ir:, pc:], b[pc:, jr:], beta_pc, c[ir:, jr:], conj,
                )  # fmt: skip
