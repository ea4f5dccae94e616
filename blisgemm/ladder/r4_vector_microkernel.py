"""Rung 4: the tile of C as wide vectors: the microkernel of the library.

Question: rung 3 used a few narrow registers; what do all of them give, as wide as they are?

Idea: the tile is mr rows of whole vectors and fills the vector registers, 6 x 16 float32 with AVX2: 12 of 16. A step
of p loads the vectors of a row of B, broadcasts mr elements of A, and does 12 fused multiply-adds, which don't wait for
each other. Numba can't be told to do just that, so the library emits the vector code itself; this is where it is used.

Look at: ``python -m blisgemm asm f32_6x16_avx2 --access rows``: the loop over p, its fmas counted. And at the misses:
a tile reads mr rows of A and nr columns of B from end to end, and the next tile all of B's next columns.

Elsewhere: LAFF 2.4.2 (a micro-kernel with vector instructions); worklog kernel 6 (vectors, in the loads); ulmBLAS pages
3 to 12 (one micro-kernel, in ever better SSE).

Knows: tiles over whole matrices. Does not know: caches. Called by ``ladder.run``.
"""

import numpy as np

from ..plan import make_plan
from ..ukernel.bind import microkernel
from .r3_register_tile import borders
from .strided import any_strides

__all__ = ["multiply"]


@any_strides
def tiles(kernel, a, b, c):
    """Compute all whole micro-tiles of c := a · b; B has unit column stride."""
    k = a.shape[1]
    for ir in range(0, c.shape[0] - kernel.mr + 1, kernel.mr):
        for jr in range(0, c.shape[1] - kernel.nr + 1, kernel.nr):
            microkernel(
                kernel, "rows", kernel.mr, kernel.nr, k, kernel.one, a[ir:], b[:, jr:], kernel.zero, c[ir:, jr:], 0
            )


def multiply(a, b, c):
    """Compute c := a · b; a B whose rows aren't contiguous is copied first, for vectors lie along them."""
    kernel = make_plan(*c.shape, a.shape[1], c.dtype, path="packed", threads=1).kernel
    b = np.ascontiguousarray(b)
    tiles(kernel, a, b, c)
    borders(kernel.mr, kernel.nr, a, b, c)
