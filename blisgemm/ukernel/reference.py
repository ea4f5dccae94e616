"""What the kernel words mean, in NumPy: the text to check any emitted code against.

Knows: the meaning. Does not know: vectors, registers. Called by ``bind``'s words when they run as
plain Python (a trace, a test), never on the hot path. Rounding may differ from the emitted
code (NumPy has no fused multiply-add); on exact data they agree bit for bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .spec import KernelSpec

__all__ = ["microkernel", "pack_micro_panel", "unpack_micro_panel"]

Array = npt.NDArray[Any]


def pack_micro_panel(kernel: KernelSpec, width: str, rows: int, kc_cur: int, x: Array, out: Array) -> None:
    """Write x[:rows, :kc_cur] to ``out`` as a micro-panel; see ``bind.pack_micro_panel``."""
    w = kernel.mr if width == "mr" else kernel.nr
    panel = out[: kc_cur * w * kernel.planes].reshape(kc_cur, kernel.planes, w)
    panel[:] = 0
    block = x[:rows, :kc_cur].T
    if kernel.complex:
        panel[:, 0, :rows] = block.real
        panel[:, 1, :rows] = block.imag
    else:
        panel[:, 0, :rows] = block


def unpack_micro_panel(kernel: KernelSpec, width: int, kc_cur: int, panel: Array) -> Array:
    """Return the (width, kc_cur) matrix that a micro-panel holds."""
    planes = panel[: kc_cur * width * kernel.planes].reshape(kc_cur, kernel.planes, width)
    matrix = planes[:, 0].astype(kernel.acc_dtype)
    if kernel.complex:
        matrix += 1j * planes[:, 1]
    return matrix.T


def microkernel(
    kernel: KernelSpec, m_cur: int, n_cur: int, kc_cur: int, alpha: complex, a: Array, b: Array, beta: complex,
    c: Array, conj: int,
) -> None:  # fmt: skip
    """Update c[:m_cur, :n_cur]; see ``bind.microkernel``."""
    a_rows = unpack_micro_panel(kernel, kernel.mr, kc_cur, a) if a.ndim == 1 else a
    b_rows = unpack_micro_panel(kernel, kernel.nr, kc_cur, b).T if b.ndim == 1 else b
    a_rows, b_rows = a_rows[:m_cur, :kc_cur], b_rows[:kc_cur, :n_cur]
    if conj & 1:
        a_rows = a_rows.conj()
    if conj & 2:
        b_rows = b_rows.conj()
    s = np.zeros((m_cur, n_cur), kernel.acc_dtype)
    for p in range(kc_cur):
        s += np.multiply.outer(a_rows[:, p], b_rows[p])
    tile = c[:m_cur, :n_cur]
    tile[:] = alpha * s if beta == 0 else alpha * s + beta * tile
