"""What a peer is: a name, a version, a number of threads, and calls that compute a product.

Knows: the interface. Does not know: any library. Called by the other modules of ``peers``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

__all__ = ["AbsentError", "Peer", "UnsupportedError"]


class AbsentError(Exception):
    """The library isn't here; the message says what is missing."""


class UnsupportedError(Exception):
    """The library cannot do this product; the message says why."""


class Peer(Protocol):
    """A library that multiplies."""

    name: str
    version: str

    def set_threads(self, threads: int) -> None:
        """Use so many threads from now on.

        Raises:
            UnsupportedError: it cannot.
        """

    def fresh(self, a: Any, b: Any) -> Callable[[], Any]:
        """Return a call that returns ``a @ b`` in memory that it takes each time.

        Raises:
            UnsupportedError: the library only writes where it is told to, or as for ``product``.
        """

    def product(self, a: Any, b: Any, c: Any) -> Callable[[], object]:
        """Return a call that does ``c[...] = a @ b`` for arrays of one dtype; what can be prepared, is.

        Raises:
            UnsupportedError: not with these shapes, strides or this dtype.
        """
