"""Packing: a panel of A and a block of B become micro-panels, in the order the microkernel reads them.

Knows: how a block splits into micro-panels. Does not know: where blocks come from (``loops``) or how
one micro-panel is written (``ukernel.packer``). Called by ``loops``.

One packer serves both: B's block is A's panel with rows and columns exchanged. What
does not fill a micro-panel is padded with zeros, whose sums never reach C. Packed buffers are
2-D, one row per micro-panel (a shorter last kc block uses the front of each row)::

    panel of A (mc x kc)  ->  a_pack[mc/mr]  of  kc * mr  elements    kept in L3
    block of B (kc x nc)  ->  b_pack[nc/nr]  of  kc * nr  elements    kept in L2
"""

from .ukernel.bind import inlined, pack_micro_panels

__all__ = ["pack_a", "pack_b"]


@inlined
def pack_a(kernel, a_panel, a_pack):
    """Pack mc_cur x kc_cur of A into micro-panels of mr rows."""
    pack_micro_panels(kernel, "mr", a_panel, a_pack)


@inlined
def pack_b(kernel, b_block, b_pack):
    """Pack kc_cur x nc_cur of B into micro-panels of nr columns."""
    pack_micro_panels(kernel, "nr", b_block.T, b_pack)
