"""The CUDA backend: matrix products on a GPU, tiled as on the CPU one level over, in kernels written in Python.

``gemm`` and ``matmul`` take arrays in GPU memory of any library, without copies, and NumPy arrays. ``make_plan`` and
``explain`` say what runs and why; the first needs no GPU. Importing this touches neither CUDA nor Numba: kernels are
compiled when a product first needs them, and kept in the cache folder.

Knows: the public names. Does not know: anything else. Called by users.
"""

from .api import explain, gemm, matmul
from .device import KNOWN_DEVICES, Device
from .driver import is_available, why_unavailable
from .plan import Plan, make_plan

__all__ = [
    "KNOWN_DEVICES",
    "Device",
    "Plan",
    "explain",
    "gemm",
    "is_available",
    "make_plan",
    "matmul",
    "why_unavailable",
]
