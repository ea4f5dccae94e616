"""The parts of a packed product as calls of their own: multiply-adds, micro-panels, updates of C, packing.

Knows: how a plan's blocks can be run with something left out. Does not know: clocks or tables. Called by
``bench/anatomy.py``, which says what each part is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit

from ..pack import pack_a, pack_b
from ..ukernel.bind import microkernel
from .peak import aligned, repeat_fmas

if TYPE_CHECKING:
    from ..plan import Plan

__all__ = ["of_product", "terms"]

_PANELS_STAY, _C_STAYS = 1, 2


@njit(nogil=True)
def _panels(kernel, times, kc, a_panel, b_panel, c):
    """Do one micro-tile again and again, with one pair of micro-panels."""
    for _ in range(times):
        microkernel(kernel, "packed", kernel.mr, kernel.nr, kc, kernel.one, a_panel, b_panel, kernel.one, c, 0)


@njit(nogil=True)
def _blocks(kernel, stay, mc, nc, kc, k, a_pack, b_pack, c):
    """Do all micro-tiles of a product in the order of the loops; every block is the same packed one."""
    m, n = c.shape
    for ic in range(0, m, mc):
        for pc in range(0, k, kc):
            for jc in range(0, n, nc):
                for ir in range(ic, min(m, ic + mc), kernel.mr):
                    for jr in range(jc, min(n, jc + nc), kernel.nr):
                        i, j = (0, 0) if stay & 1 else ((ir - ic) // kernel.mr, (jr - jc) // kernel.nr)
                        rows, columns = min(kernel.mr, m - ir), min(kernel.nr, n - jr)
                        i0, j0 = (0, 0) if stay & 2 else (ir, jr)
                        microkernel(
                            kernel, "packed", rows, columns, min(kc, k - pc), kernel.one, a_pack[i], b_pack[j],
                            kernel.one, c[i0:, j0:], 0,
                        )  # fmt: skip


@njit(nogil=True)
def _pack_a(kernel, mc, kc, a, a_pack):
    """Pack every panel of A."""
    m, k = a.shape
    for ic in range(0, m, mc):
        for pc in range(0, k, kc):
            pack_a(kernel, a[ic : ic + mc, pc : pc + kc], a_pack)


@njit(nogil=True)
def _pack_b(kernel, times, nc, kc, b, b_pack):
    """Pack every block of B, for each of ``times`` panels of A."""
    k, n = b.shape
    for _ in range(times):
        for pc in range(0, k, kc):
            for jc in range(0, n, nc):
                pack_b(kernel, b[pc : pc + kc, jc : jc + nc], b_pack)


def terms(plan: Plan) -> int:
    """Return how many terms a packed plan computes, with the padding of its micro-tiles."""
    kernel, blocking = plan.kernel, plan.blocking
    assert kernel is not None and blocking is not None
    tiles = sum(
        -(-min(blocking.mc, plan.m - ic) // kernel.mr) * -(-min(blocking.nc, plan.n - jc) // kernel.nr)
        for ic in range(0, plan.m, blocking.mc)
        for jc in range(0, plan.n, blocking.nc)
    )
    return tiles * kernel.mr * kernel.nr * plan.k


def of_product(plan: Plan, a: Any, b: Any, c: Any) -> dict[str, Callable[[], Any]]:
    """Return calls that do parts of a packed plan on one thread; c is written.

    Args:
        plan: of path ``packed``, not ``half``.
        a, b, c: C-contiguous matrices of the plan's extents and dtype.
    """
    kernel, blocking = plan.kernel, plan.blocking
    assert kernel is not None and blocking is not None
    real = np.dtype(kernel.acc_dtype).type(0).real.dtype
    a_pack, b_pack = (aligned(math.prod(shape), real).reshape(shape)[0] for shape in plan.packed_shapes)
    mc, nc, kc, k = blocking.mc, blocking.nc, min(blocking.kc, plan.k), plan.k
    steps = terms(plan) // (kernel.mr * kernel.nr)
    tile = np.zeros((kernel.mr, kernel.nr), kernel.acc_dtype)
    short = min(kc, 128)  # micro-panels that stay in L1, read again and again

    def resident() -> None:
        _panels(kernel, steps // short, short, a_pack[0], b_pack[0], tile)

    return {
        "fma": partial(repeat_fmas, kernel, steps),
        "resident": resident,
        "kc": partial(_blocks, kernel, _PANELS_STAY | _C_STAYS, mc, nc, kc, k, a_pack, b_pack, c),
        "stream": partial(_blocks, kernel, _C_STAYS, mc, nc, kc, k, a_pack, b_pack, c),
        "update": partial(_blocks, kernel, 0, mc, nc, kc, k, a_pack, b_pack, c),
        "of A": partial(_pack_a, kernel, mc, kc, a, a_pack),
        "of B": partial(_pack_b, kernel, -(-plan.m // mc), nc, kc, b, b_pack),
    }
