"""From a kernel as a value to machine code: Numba CUDA writes PTX, nvJitLink makes a cubin.

Knows: how the compilers are called, and what a compiled kernel takes of the card. Does not know: where cubins are kept
(``cubins``), how kernels run (``driver``). Called by ``code``, on a cache miss only: it imports Numba.

No GPU and no driver are needed, so that any machine can check kernels for any card.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from .tiles import KernelSpec

__all__ = ["Compiled", "compile_copy", "compile_kernel", "compile_python", "compile_scale", "require"]


@dataclass(frozen=True)
class Compiled:
    """A cubin. registers: per thread; spill_bytes, local_bytes: what the compiler put into memory instead of them."""

    cubin: bytes
    name: str
    registers: int
    spill_bytes: int
    local_bytes: int
    ptx: str


def compile_kernel(spec: KernelSpec, architecture: tuple[int, int]) -> Compiled:
    """Compile a kernel for a compute capability, such as (9, 0)."""
    from .kernels.gemm import kernel_of, signature_of

    bounds = (spec.tile.threads, spec.tile.blocks)
    return compile_python(kernel_of(spec), signature_of(spec), architecture, bounds)


def compile_copy(item_bytes: int, architecture: tuple[int, int]) -> Compiled:
    """Compile the copy between any strides."""
    from .kernels.copy import copy_of_items

    return compile_python(*copy_of_items(item_bytes), architecture, 256)


def compile_scale(dtype: str, architecture: tuple[int, int]) -> Compiled:
    """Compile ``c := beta * c``."""
    from .kernels.copy import scale_of

    return compile_python(*scale_of(dtype), architecture, 256)


def require() -> None:
    """Import what compiling needs.

    Raises:
        ImportError: some of it is missing.
    """
    import numba.cuda  # noqa: F401

    import_module("cuda.core")


def compile_python(function: Any, signature: Any, architecture: tuple[int, int], bounds: Any = None) -> Compiled:
    """Compile a Python function as a kernel. bounds: threads of a block, and how many blocks shall fit at once."""
    import numpy as np

    if not hasattr(np, "row_stack"):  # numba-cuda 0.30 looks for it, NumPy 2.5 no longer has it
        np.row_stack = np.vstack  # type: ignore[attr-defined]  # noqa: NPY201
    from numba import cuda

    core = import_module("cuda.core")

    ptx, _ = cuda.compile(
        function, signature, device=False, cc=architecture, output="ptx", abi="numba", launch_bounds=bounds
    )
    options = core.LinkerOptions(arch=f"sm_{architecture[0]}{architecture[1]}", verbose=True, ptxas_options=["-v"])
    linker = core.Linker(core.ObjectCode.from_ptx(ptx.encode()), options=options)
    cubin = linker.link("cubin").code
    log = linker.get_info_log()
    name = re.search(r"\.entry\s+([\w$]+)", ptx)
    if name is None:
        raise AssertionError("the compiler wrote no kernel")

    def number(pattern: str) -> int:
        found = re.search(pattern, log)
        return int(found[1]) if found else 0

    return Compiled(
        bytes(cubin), name[1], number(r"[Uu]sed (\d+) registers"), number(r"(\d+) bytes spill stores"),
        number(r"(\d+) bytes lmem") or number(r"(\d+) bytes stack frame"), ptx,
    )  # fmt: skip
