"""Rung 6: blocks are copied into the order in which the microkernel reads them.

Question: a block of B fits into L2, but lies in kc rows far apart; is that near?

Idea: pack. Each block is copied once, micro-panel by micro-panel, so that the microkernel reads both operands from end
to end: no jumps, few pages, no crowded sets. kc · nc elements of B are copied for mc rows, mc · kc of A for n columns.
Any strides of A and B end here, too.

Look at: misses of the TLB and of L1 against rung 5's, above all where n is a power of two. What packing costs grows as
n², what it saves as n³: small products are faster without, which is why the library has a *direct* path.

Elsewhere: LAFF 3.3.5 (five loops with packing); worklog kernel 3 (copies to shared memory); ulmBLAS page 2 (packing).

Knows: micro-panels. Does not know: edges. Called by ``ladder.run``.
"""

from ..plan import make_plan
from ..ukernel.bind import inlined, microkernel
from ..workspace import borrow, give_back
from .r3_register_tile import borders
from .strided import any_strides

__all__ = ["multiply"]


@inlined
def pack(width, x, packed):
    """Copy the rows of x, by p, into micro-panels of ``width`` rows: packed[panel, p * width + row]."""
    for row in range(0, x.shape[0], width):
        for p in range(x.shape[1]):
            for r in range(width):
                packed[row // width, p * width + r] = x[row + r, p]


@any_strides
def blocks(kernel, mc, nc, kc, a, b, c, a_pack, b_pack):
    """Compute all whole micro-tiles of c := a · b."""
    (m, n), k, mr, nr = c.shape, a.shape[1], kernel.mr, kernel.nr
    m, n = m // mr * mr, n // nr * nr
    for ic in range(0, m, mc):
        for pc in range(0, k, kc):
            kc_cur, beta = min(kc, k - pc), kernel.zero if pc == 0 else kernel.one
            pack(mr, a[ic : min(m, ic + mc), pc : pc + kc_cur], a_pack)
            for jc in range(0, n, nc):
                pack(nr, b[pc : pc + kc_cur, jc : min(n, jc + nc)].T, b_pack)
                for ir in range(ic, min(m, ic + mc), mr):
                    for jr in range(jc, min(n, jc + nc), nr):
                        x, y = a_pack[(ir - ic) // mr], b_pack[(jr - jc) // nr]
                        microkernel(kernel, "packed", mr, nr, kc_cur, kernel.one, x, y, beta, c[ir:, jr:], 0)


def multiply(a, b, c):
    """Compute c := a · b."""
    plan = make_plan(*c.shape, a.shape[1], c.dtype, path="packed", threads=1)
    kernel, size = plan.kernel, plan.blocking
    shapes = (size.mc // kernel.mr, size.kc * kernel.mr), (size.nc // kernel.nr, size.kc * kernel.nr)
    buffers = borrow((shapes, c.dtype))  # each begins on a page, as vectors ask for
    blocks(kernel, size.mc, size.nc, size.kc, a, b, c, *buffers.arrays)
    give_back(buffers)
    borders(kernel.mr, kernel.nr, a, b, c)
