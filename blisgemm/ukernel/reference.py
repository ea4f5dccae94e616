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

__all__ = ["microkernel", "microkernel_part", "pack_micro_panels", "unpack_micro_panel"]

Array = npt.NDArray[Any]


def pack_micro_panels(kernel: KernelSpec, width: str, x: Array, out: Array) -> None:
    """Write the rows of x to ``out`` as micro-panels; see ``bind.pack_micro_panels``."""
    w = kernel.mr if width == "mr" else kernel.nr
    kc_cur = x.shape[1]
    for first in range(0, x.shape[0], w):
        block = x[first : first + w].T
        panel = out[first // w][: kc_cur * w * kernel.planes].reshape(kc_cur, kernel.planes, w)
        panel[:] = 0
        if kernel.complex:
            panel[:, 0, : block.shape[1]] = block.real
            panel[:, 1, : block.shape[1]] = block.imag
        else:
            panel[:, 0, : block.shape[1]] = block


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
    a_rows, b_rows = _parts(kernel, m_cur, n_cur, kc_cur, a, b, conj)
    _update(c[:m_cur, :n_cur], alpha, _product(kernel, a_rows, b_rows), beta)


def microkernel_part(
    kernel: KernelSpec, m_cur: int, n_cur: int, p_cur: int, alpha: complex, a: Array, b: Array, beta: complex,
    c: Array, conj: int, sums: Array, last: bool,
) -> None:  # fmt: skip
    """Add p_cur steps to the sums, and update c[:m_cur, :n_cur] with the last; see ``bind.microkernel_part``."""
    a_rows, b_rows = _parts(kernel, m_cur, n_cur, p_cur, a, b, conj)
    s = sums[: m_cur * n_cur * kernel.planes].view(kernel.acc_dtype).reshape(m_cur, n_cur)
    s += _product(kernel, a_rows, b_rows)
    if last:
        _update(c[:m_cur, :n_cur], alpha, s, beta)


def _parts(
    kernel: KernelSpec, m_cur: int, n_cur: int, p_cur: int, a: Array, b: Array, conj: int
) -> tuple[Array, Array]:
    """Return the rows of A and of B that meet: of micro-panels (1-D) or of the matrices (2-D), conjugated if asked."""
    a_rows = unpack_micro_panel(kernel, kernel.mr, p_cur, a) if a.ndim == 1 else a
    b_rows = unpack_micro_panel(kernel, kernel.nr, p_cur, b).T if b.ndim == 1 else b
    a_rows, b_rows = a_rows[:m_cur, :p_cur], b_rows[:p_cur, :n_cur]
    return a_rows.conj() if conj & 1 else a_rows, b_rows.conj() if conj & 2 else b_rows


def _product(kernel: KernelSpec, a_rows: Array, b_rows: Array) -> Array:
    s = np.zeros((a_rows.shape[0], b_rows.shape[1]), kernel.acc_dtype)
    for p in range(a_rows.shape[1]):
        s += np.multiply.outer(a_rows[:, p], b_rows[p])
    return s


def _update(tile: Array, alpha: complex, s: Array, beta: complex) -> None:
    tile[:] = alpha * s if beta == 0 else alpha * s + beta * tile
