"""blisgemm: the matrix multiply that you can read, extend in Python and trust to the last bit.

Public names only; the compiled parts are loaded by the first product.
"""

from importlib import import_module
from typing import Any

from ._version import __version__
from .api import explain, gemm, matmul
from .errors import (
    BlisgemmError,
    BlisgemmTypeError,
    BlisgemmValueError,
    BlisgemmWarning,
    CudaError,
    CudaUnavailableError,
    OverrideError,
)
from .parallel import get_num_threads, num_threads, set_num_threads
from .plan import Plan, make_plan
from .workspace import free_workspace, workspace_bytes

__all__ = [
    "BlisgemmError",
    "BlisgemmTypeError",
    "BlisgemmValueError",
    "BlisgemmWarning",
    "CudaError",
    "CudaUnavailableError",
    "OverrideError",
    "Plan",
    "__version__",
    "explain",
    "free_workspace",
    "gemm",
    "get_num_threads",
    "make_plan",
    "matmul",
    "num_threads",
    "set_num_threads",
    "workspace_bytes",
]


def __getattr__(name: str) -> Any:
    """Return ``blisgemm.cuda``, the GPU backend, which is imported only if it is asked for."""
    if name == "cuda":
        return import_module(f"{__name__}.cuda")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
