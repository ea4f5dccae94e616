"""PyTorch on the CPU (MKL or oneDNN inside): ``torch.mm``, ``mv``, ``bmm``, ``matmul`` on the same memory.

Knows: how arrays become tensors without a copy. Does not know: what is measured. Called by ``peers``.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .peer import AbsentError, UnsupportedError

__all__ = ["TorchMm", "load"]


class TorchMm:
    """The peer."""

    name = "torch"

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        inside = re.search(r"Math Kernel Library Version ([\d.]+)", torch.__config__.show())
        self.version = torch.__version__ + (f" with MKL {inside[1]}" if inside else "")

    def set_threads(self, threads: int) -> None:
        """Set the threads inside an operation."""
        self._torch.set_num_threads(threads)

    def fresh(self, a: Any, b: Any) -> Callable[[], Any]:
        """Return the call without ``out=``; it returns a tensor."""
        function, x, y = self._function(a, b)
        return lambda: function(x, y)

    def product(self, a: Any, b: Any, c: Any) -> Callable[[], object]:
        """Return the call, on tensors over the arrays' memory; no gradients are recorded for them."""
        function, x, y = self._function(a, b)
        out = self._tensor(c)
        return lambda: function(x, y, out=out)

    def _tensor(self, array: Any) -> Any:
        try:
            return self._torch.from_numpy(array)
        except ValueError:
            raise UnsupportedError("tensors have no negative strides") from None

    def _function(self, a: Any, b: Any) -> tuple[Callable[..., Any], Any, Any]:
        """Return the narrowest function for these operands, and what to give it."""
        torch, x, y = self._torch, self._tensor(a), self._tensor(b)
        if x.ndim == y.ndim == 2:
            return torch.mm, x, y
        if x.ndim == 2 and y.ndim == 1:
            return torch.mv, x, y
        if x.ndim == 1 and y.ndim == 2:
            return torch.mv, y.t(), x
        return (torch.bmm if x.ndim == y.ndim == 3 else torch.matmul), x, y


def load(most_threads: int) -> TorchMm:
    """Return the peer.

    Raises:
        AbsentError: torch isn't installed, or it would mix with an MKL that is loaded already.
    """
    try:
        loaded = "libmkl_rt" in Path("/proc/self/maps").read_text()
    except OSError:
        loaded = False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            import sys

            if loaded and "torch" not in sys.modules:
                raise AbsentError("MKL was loaded before it, and torch would call parts of that")
            import torch
        except ImportError:
            raise AbsentError("not installed: pip install torch") from None
    return TorchMm(torch)
