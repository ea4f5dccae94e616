"""Rung 2: the three loops in another order.

Question: the loops may stand in six orders, all of which are right; are they equally fast?

Idea: let the inner loop run along j. Then B and C are read along their rows, element after element as memory lies,
and neighbours of C are sums that don't wait for each other: the compiler makes vectors of them.

Three texts make six orders, as C' = B' A' exchanges i and j: ``jip`` is ``ijp`` on the transposes.

Look at: the figure of all six (``python -m blisgemm ladder --plot ladder.png``): what counts is the inner loop. Along
j all steps are one element wide; along p B jumps by a row; along i both A and C do. ``ipj`` is the best of them by
rows, ``jpi`` by columns. Each multiply-add still loads an element of B and of C, and stores one.

Elsewhere: LAFF 1.2.4 (its matrices lie by columns: JPI wins there); worklog kernel 2 (threads of a warp along a row).

Knows: orders. Does not know: caches. Called by ``ladder.run`` and rungs 3 to 6, which leave it what no tile fills.
"""

from numba import njit

from .r0_triple_loop import multiply as ijp

__all__ = ["ORDERS", "in_order", "multiply"]

ORDERS = ("ijp", "ipj", "pij", "jip", "jpi", "pji")


def ipj(a, b, c):
    """Compute c := a · b: a row of C is a sum of rows of B."""
    for i in range(c.shape[0]):
        c[i, :] = 0
        for p in range(a.shape[1]):
            a_ip = a[i, p]
            for j in range(c.shape[1]):
                c[i, j] += a_ip * b[p, j]


def pij(a, b, c):
    """Compute c := a · b: C is a sum of k columns of A, each times a row of B."""
    c[:, :] = 0
    for p in range(a.shape[1]):
        for i in range(c.shape[0]):
            a_ip = a[i, p]
            for j in range(c.shape[1]):
                c[i, j] += a_ip * b[p, j]


_TEXTS = {"ijp": njit(nogil=True)(ijp), "ipj": njit(nogil=True)(ipj), "pij": njit(nogil=True)(pij)}
multiply = _TEXTS["ipj"]


def in_order(order, a, b, c):
    """Compute c := a · b with the loops in one of ``ORDERS``, outermost first."""
    if order in _TEXTS:
        _TEXTS[order](a, b, c)
    else:
        _TEXTS[order.translate(str.maketrans("ij", "ji"))](b.T, a.T, c.T)
