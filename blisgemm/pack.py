"""Packing: a block of A and a panel of B become micro-panels, in the order the microkernel reads them.

Knows: how a block splits into micro-panels. Does not know: where blocks come from (``loops``) or how
one micro-panel is written (``ukernel.packer``). Called by ``loops``.

One packer serves both: B's panel is A's block with rows and columns exchanged. What
does not fill a micro-panel is padded with zeros, whose sums never reach C. Packed buffers are
2-D, one row per micro-panel::

    block of A (mc x kc)  ->  a_pack[ceil(mc/mr)]  of  kc * mr  elements    kept in L2
    panel of B (kc x nc)  ->  b_pack[ceil(nc/nr)]  of  kc * nr  elements    kept in L3
"""

from numba import njit

from .ukernel.bind import pack_micro_panel

__all__ = ["micro_panels", "pack_a", "pack_b"]


@njit(nogil=True)
def micro_panels(buffer, count, length):
    """View the start of a flat buffer as ``count`` micro-panels of ``length`` reals each."""
    return buffer[: count * length].reshape(count, length)


@njit(nogil=True)
def pack_a(kernel, a_block, a_pack):
    """Pack mc_cur x kc_cur of A into micro-panels of mr rows."""
    mc_cur, kc_cur = a_block.shape
    for panel in range(a_pack.shape[0]):
        ir = panel * kernel.mr
        pack_micro_panel(kernel, "mr", min(kernel.mr, mc_cur - ir), kc_cur, a_block[ir:], a_pack[panel])


@njit(nogil=True)
def pack_b(kernel, b_block, b_pack):
    """Pack kc_cur x nc_cur of B into micro-panels of nr columns."""
    kc_cur, nc_cur = b_block.shape
    for panel in range(b_pack.shape[0]):
        jr = panel * kernel.nr
        pack_micro_panel(kernel, "nr", min(kernel.nr, nc_cur - jr), kc_cur, b_block.T[jr:], b_pack[panel])
