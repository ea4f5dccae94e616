"""Rung 7: tiles that are cut off at the edges, alpha and beta.

Question: real extents are no multiples of mr and nr; what do the borders cost that the microkernel leaves to rung 2?

Idea: no special case at all. Packing fills the last micro-panels up with zeros, the microkernel computes whole tiles
as ever, and stores only the m_cur x n_cur elements of C that exist. alpha and beta belong to the store, too: it is
c := alpha · sums + beta · c, where beta is 1 from the second kc block on, and beta = 0 doesn't read c, which may hold
NaN. The packers are the library's: they pad, and copy by vectors. (alpha = 0, where A and B must not be read, is the
library's plan's matter.)

Look at: n = 511 against 512 here and on rung 6. From here on the bits are those of ``blisgemm.gemm``, for all extents.

Elsewhere: LAFF's programs ask for multiples; ulmBLAS page 2 (a buffer for tiles at the edges; alpha and beta in the
micro-kernel).

Knows: all that ``loops.five_loops`` knows, but an A that is read as it lies. Does not know: threads. Called by
``ladder.run``.
"""

from ..pack import pack_a, pack_b
from ..plan import make_plan
from ..ukernel.bind import microkernel
from ..workspace import borrow, give_back
from .strided import any_strides

__all__ = ["multiply"]


@any_strides
def blocks(kernel, mc, nc, kc, alpha, a, b, beta, c, a_pack, b_pack):
    """Compute c := alpha · a · b + beta · c."""
    (m, n), k, mr, nr = c.shape, a.shape[1], kernel.mr, kernel.nr
    for ic in range(0, m, mc):
        mc_cur = min(mc, m - ic)
        for pc in range(0, k, kc):
            kc_cur, beta_pc = min(kc, k - pc), beta if pc == 0 else kernel.one
            pack_a(kernel, a[ic : ic + mc_cur, pc : pc + kc_cur], a_pack)
            for jc in range(0, n, nc):
                nc_cur = min(nc, n - jc)
                pack_b(kernel, b[pc : pc + kc_cur, jc : jc + nc_cur], b_pack)
                for ir in range(0, mc_cur, mr):
                    for jr in range(0, nc_cur, nr):
                        m_cur, n_cur = min(mr, mc_cur - ir), min(nr, nc_cur - jr)
                        x, y, tile = a_pack[ir // mr], b_pack[jr // nr], c[ic + ir :, jc + jr :]
                        microkernel(kernel, "packed", m_cur, n_cur, kc_cur, alpha, x, y, beta_pc, tile, 0)


def multiply(a, b, c, alpha=1.0, beta=0.0):
    """Compute c := alpha · a · b + beta · c; c is not read if beta is 0."""
    plan = make_plan(*c.shape, a.shape[1], c.dtype, path="packed", threads=1)
    kernel, size = plan.kernel, plan.blocking
    shapes = (size.mc // kernel.mr, size.kc * kernel.mr), (size.nc // kernel.nr, size.kc * kernel.nr)
    buffers = borrow((shapes, c.dtype))  # each begins on a page, as vectors ask for
    blocks(kernel, size.mc, size.nc, size.kc, float(alpha), a, b, float(beta), c, *buffers.arrays)
    give_back(buffers)
