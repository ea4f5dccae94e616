"""Rung 1: the very same text, compiled.

Question: how much of rung 0's time was Python's, and how much the algorithm's?

Idea: Numba compiles the three loops of rung 0 for the dtype and the layout of the arrays at hand: no objects, no
questions. Not a letter of the text changes.

Look at: the inner loop as assembly, ``r1_jit.multiply.inspect_asm()`` after a call: it multiplies and adds single
elements (vmulss, vaddss), no vectors, since a sum in another order would have other bits. Each addition waits for the
one before; and B is read down a column, a cache line for each element.

Elsewhere: LAFF 1.1.1 (C is compiled anyway); worklog kernel 1; ulmBLAS page 1.

Knows: how to compile. Does not know: the loops, which are rung 0's. Called by ``ladder.run``.
"""

from numba import njit

from . import r0_triple_loop

__all__ = ["multiply"]

multiply = njit(nogil=True)(r0_triple_loop.multiply)
