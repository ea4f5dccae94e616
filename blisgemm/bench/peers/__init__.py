"""The libraries to compare with: one file each, found by name, absent ones with the reason.

Knows: their names and the order in which they must be loaded. Does not know: how any of them is called.
Called by ``trial``.
"""

from __future__ import annotations

import importlib

from .peer import AbsentError, Peer, UnsupportedError

__all__ = ["PEERS", "AbsentError", "Peer", "UnsupportedError", "load"]

# In this order: torch has MKL inside and exports its names, and MKL proper is loaded for all to see. Loaded
# after MKL, torch would call parts of that MKL; loaded before, Python has bound its names (RTLD_NOW).
PEERS = {
    "numpy": ".numpy_matmul",
    "torch": ".torch_mm",
    "mkl": ".mkl_cblas",
    "openblas": ".openblas_cblas",
    "blis": ".cython_blis",
}


def load(name: str, most_threads: int) -> Peer:
    """Return the peer of that name, able to use ``most_threads`` threads.

    Raises:
        AbsentError: it isn't installed or cannot be used; the message says why.
    """
    return importlib.import_module(PEERS[name], __name__).load(most_threads)
