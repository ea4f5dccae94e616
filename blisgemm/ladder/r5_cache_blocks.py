"""Rung 5: five loops, so that what is used again is still in a cache.

Question: rung 4 reads all of B once for each mr rows of A; from where does it come?

Idea: work on blocks. A kc x nc block of B fits into half of L2 and meets all rows of an mc x kc panel of A, in L3,
before the next one; a micro-panel of A, mr x kc, stays in L1 the while. The microkernel and its two loops stay as they
are, three loops come around them. C is updated once for each kc block: added to from the second on.

Look at: misses of L2 against rung 4's, once B is larger than L2. A block of B lies in rows n elements apart, though:
each begins in another page where n is large, and all crowd the same sets of the cache where n is a power of two.

Elsewhere: LAFF 3.2.5 (blocking for L1, L2 and L3); worklog kernels 3 and 10 (block and warp tiles); ulmBLAS page 2.

Knows: the five loops. Does not know: packing. Called by ``ladder.run``.
"""

import numpy as np

from ..plan import make_plan
from ..ukernel.bind import microkernel
from .r3_register_tile import borders
from .strided import any_strides

__all__ = ["multiply"]


@any_strides
def blocks(kernel, mc, nc, kc, a, b, c):
    """Compute all whole micro-tiles of c := a · b; mc and nc are multiples of mr and nr."""
    (m, n), k = c.shape, a.shape[1]
    m, n = m // kernel.mr * kernel.mr, n // kernel.nr * kernel.nr
    for ic in range(0, m, mc):  # 5th loop: a panel of A -> L3
        for pc in range(0, k, kc):  # 4th loop
            kc_cur, beta = min(kc, k - pc), kernel.zero if pc == 0 else kernel.one
            for jc in range(0, n, nc):  # 3rd loop: a block of B -> L2
                for ir in range(ic, min(m, ic + mc), kernel.mr):  # 2nd loop: a micro-panel of A -> L1
                    for jr in range(jc, min(n, jc + nc), kernel.nr):  # 1st loop: a micro-tile of C -> registers
                        microkernel(
                            kernel, "rows", kernel.mr, kernel.nr, kc_cur, kernel.one, a[ir:, pc:], b[pc:, jr:], beta,
                            c[ir:, jr:], 0,
                        )  # fmt: skip


def multiply(a, b, c):
    """Compute c := a · b; a B whose rows aren't contiguous is copied first."""
    plan = make_plan(*c.shape, a.shape[1], c.dtype, path="packed", threads=1)
    kernel, size, b = plan.kernel, plan.blocking, np.ascontiguousarray(b)
    blocks(kernel, size.mc, size.nc, size.kc, a, b, c)
    borders(kernel.mr, kernel.nr, a, b, c)
