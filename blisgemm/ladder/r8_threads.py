"""Rung 8: several threads, and with them the library itself.

Question: what may two cores do at the same time without waiting for each other, and without changing a bit?

Idea: threads take tiles of C, mt x nc, each the next one when it is free, and pack with each a share of what the next
step reads. No two tiles share an element of C, and kc blocks stay in order, so it doesn't matter who takes which. This
is ``loops.five_loops_together``, as ``blisgemm.gemm`` runs it: the top of the ladder is the library. It has besides:
A that is read as it lies where that pays, buffers that are kept, other paths for small and for skinny products.

Look at: ``python -m blisgemm explain 1000 1000 1000`` and blisgemm/loops.py, beside rung 7. And at the clock rate:
cores that all run at once often run slower than one, and they share L3 and memory.

Elsewhere: LAFF week 4 (OpenMP, which loop to make parallel); worklog kernel 1 (its grid of blocks, from the start);
ulmBLAS on these pages has one thread.

Knows: how to call the library. Does not know: how it divides the work (``blocking.tiles_for``, ``team``). Called by
``ladder.run``.
"""

from ..api import gemm

__all__ = ["multiply"]


def multiply(a, b, c, alpha=1.0, beta=0.0):
    """Compute c := alpha · a · b + beta · c, on ``blisgemm.get_num_threads()`` threads at most."""
    gemm(a, b, c if beta else None, alpha=alpha, beta=beta, out=c)
