"""What the compiled fast lane answers, as integers.

Knows: the three words. Does not know: Numba, which ``api`` must not import before the first product. Called by
``entry`` and ``api``.
"""

__all__ = ["DECLINED", "DONE", "PLAIN"]

DECLINED = 0  # something that the general way must look at; nothing was written
DONE = 1  # the product is in ``out``
PLAIN = 2  # checked: plain matrices that fit and don't overlap; nothing was written
