"""Rung 0: the definition, in plain Python.

Question: what is a matrix product, and what does it cost if one simply says it?

Idea: none yet. C[i, j] is the sum over p of A[i, p] · B[p, j]: three loops, m · n · k multiply-adds.

Look at: the time of one multiply-add, seconds / n³. The processor could do thousands meanwhile; it finds out what
``a``, ``b`` and ``*`` are, and makes objects of the results, each time anew. So it is timed at a small n.

Elsewhere: LAFF 1.1.1 (Gemm_IJP); worklog kernel 1, of which each thread does what is inside the first two loops here;
ulmBLAS page 1, its reference implementation.

Knows: the definition. Does not know: any machine. Called by ``ladder.run`` and, as text, by rung 1.
"""

__all__ = ["multiply"]


def multiply(a, b, c):
    """Compute c := a · b."""
    (m, k), n = a.shape, b.shape[1]
    for i in range(m):
        for j in range(n):
            total = c.dtype.type(0)
            for p in range(k):
                total += a[i, p] * b[p, j]
            c[i, j] = total
