"""The compiled entry points: from Python objects to the loops, in one call each.

Knows: what a compiled call takes and returns. Does not know: why a path was chosen (``plan``) or what
errors say (``operands``). Called by ``driver``, and by the compiled lanes (``checks``).

Arguments that are ndarrays come as bare object pointers (``ukernel.ndarray``); the caller has checked them.
"""

from numba import njit

from .loops import (
    columns_at_once,
    direct,
    direct_items,
    five_loops,
    five_loops_together,
    share,
    stream,
    strips,
    sweep_rows,
)
from .outcome import CONJ_BOTH, EXCHANGE, TURN_A, TURN_B
from .team import join, take_number
from .ukernel.bind import inlined
from .ukernel.ndarray import ndim_of, open_matrix, open_stack

__all__ = [
    "run_batch_copied", "run_batch_direct", "run_batch_half", "run_batch_packed", "run_columns",
    "run_copied", "run_direct", "run_half", "run_half_together", "run_packed", "run_packed_together", "run_stream",
    "run_strips", "run_sweep",
]  # fmt: skip


@inlined
def copied_matrix(x, spare):
    """Copy x into the corner of ``spare`` and return it there."""
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            spare[i, j] = x[i, j]
    return spare[: x.shape[0], : x.shape[1]]


@inlined
def opened(kernel, a_object, b_object, c_object, op):
    """Return A, B and C as matrices, after what the bits of ``op`` (see ``outcome``) say.

    A 1-d A is a row, a 1-d B a column, and C has no axis where one of them has none.
    """
    a, b, c = open_matrix(kernel, a_object), open_matrix(kernel, b_object), open_matrix(kernel, c_object)
    b_is_column = ndim_of(b_object) == 1
    if op & TURN_A:
        a = a.T
    if (op & TURN_B) or b_is_column:
        b = b.T
    if b_is_column and ndim_of(a_object) == 2:
        c = c.T
    return (b.T, a.T, c.T) if op & EXCHANGE else (a, b, c)


@inlined
def conjugated(op):
    """Return which of the opened operands are conjugated: bit 0 the first, bit 1 the second."""
    conj = op & CONJ_BOTH
    return ((conj >> 1) | (conj << 1)) & CONJ_BOTH if op & EXCHANGE else conj


@inlined
def direct_shares(kernel, access, kc, rows_first, ways, alpha, a, b, beta, c, conj, work):
    """Run ``loops.direct`` on ``ways[0] * ways[1]`` shares of C, each by the thread of a team that takes it."""
    m, n = c.shape
    ic_ways, jr_ways = ways
    t = take_number(work)
    while t < ic_ways * jr_ways:
        i0, i1 = share(m, kernel.mr, t // jr_ways, ic_ways)
        j0, j1 = share(n, kernel.nr, t % jr_ways, jr_ways)
        nc = columns_at_once(kernel, b.strides[1]) if access == "columns" else c.shape[1]
        direct(kernel, access, nc, kc, rows_first, alpha, a[i0:i1], b[:, j0:j1], beta, c[i0:i1, j0:j1], conj)
        t = take_number(work)


@njit(nogil=True)
def run_direct(kernel, kc, rows_first, ways, alpha, a_object, b_object, beta, c_object, op, team):
    """Run ``direct_shares`` on three checked arrays; B has unit column stride."""
    work = join(team)
    a, b, c = opened(kernel, a_object, b_object, c_object, op)
    direct_shares(kernel, "rows", kc, rows_first, ways, alpha, a, b, beta, c, conjugated(op), work)


@njit(nogil=True)
def run_columns(kernel, kc, rows_first, ways, alpha, a_object, b_object, beta, c_object, op, team):
    """Run ``direct_shares`` likewise where B has unit row stride."""
    work = join(team)
    a, b, c = opened(kernel, a_object, b_object, c_object, op)
    direct_shares(kernel, "columns", kc, rows_first, ways, alpha, a, b, beta, c, conjugated(op), work)


@njit(nogil=True)
def run_stream(kernel, kc, step, parts, alpha, a_object, b_object, beta, c_object, op, sums, team):
    """Run ``loops.stream`` on three checked 2-D arrays, in ``parts`` of columns with sums of their own."""
    work = join(team)
    a, b, c = opened(kernel, a_object, b_object, c_object, op)
    conj = conjugated(op)
    t = take_number(work)
    while t < parts:
        j0, j1 = share(c.shape[1], kernel.nr, t, parts)
        stream(kernel, kc, step, alpha, a, b[:, j0:j1], beta, c[:, j0:j1], conj, sums[t])
        t = take_number(work)


@njit(nogil=True)
def run_strips(
    kernel, kc, step, parts, alpha, a_object, b_object, beta, c_object, op, sums, a_packs, packed_strips, team
):  # fmt: skip
    """Run ``loops.strips`` likewise."""
    work = join(team)
    a, b, c = opened(kernel, a_object, b_object, c_object, op)
    conj = conjugated(op)
    t = take_number(work)
    while t < parts:
        j0, j1 = share(c.shape[1], kernel.nr, t, parts)
        strips(
            kernel, kc, step, alpha, a, b[:, j0:j1], beta, c[:, j0:j1], conj, sums[t], a_packs[t],
            packed_strips[t : t + 1],
        )  # fmt: skip
        t = take_number(work)


@njit(nogil=True)
def run_sweep(kernel, kc, step, parts, alpha, a_object, b_object, beta, c_object, op, sums, team):
    """Run ``loops.sweep_rows`` likewise."""
    work = join(team)
    a, b, c = opened(kernel, a_object, b_object, c_object, op)
    conj = conjugated(op)
    t = take_number(work)
    while t < parts:
        j0, j1 = share(c.shape[1], kernel.lanes, t, parts)
        sweep_rows(kernel, kc, step, alpha, a, b[:, j0:j1], beta, c[:, j0:j1], conj, sums[t])
        t = take_number(work)


@njit(nogil=True)
def run_packed(kernel, blocking, alpha, a_object, b_object, beta, c_object, op, a_packs, b_packs, team):
    """Run ``loops.five_loops`` on three checked arrays, on one thread: ``team`` is it alone."""
    a, b, c = opened(kernel, a_object, b_object, c_object, op)
    five_loops(kernel, "packed", blocking, alpha, a, b, beta, c, conjugated(op), a_packs[0], b_packs[0])


@njit(nogil=True)
def run_half(kernel, blocking, alpha, a_object, b_object, beta, c_object, op, a_packs, b_packs, team):
    """Run them likewise where A has unit column stride and is read as it lies; ``a_packs`` have no rows."""
    a, b, c = opened(kernel, a_object, b_object, c_object, op)
    five_loops(kernel, "half", blocking, alpha, a, b, beta, c, conjugated(op), a_packs[0], b_packs[0])


@njit(nogil=True)
def run_packed_together(kernel, blocking, alpha, a_object, b_object, beta, c_object, op, a_packs, b_packs, team):
    """Run ``loops.five_loops_together`` on three checked arrays. (One entry with both texts took a second longer.)"""
    work = join(team)
    a, b, c = opened(kernel, a_object, b_object, c_object, op)
    five_loops_together(kernel, "packed", blocking, alpha, a, b, beta, c, conjugated(op), a_packs, b_packs, work)


@njit(nogil=True)
def run_half_together(kernel, blocking, alpha, a_object, b_object, beta, c_object, op, a_packs, b_packs, team):
    """Run them likewise where A is read as it lies."""
    work = join(team)
    a, b, c = opened(kernel, a_object, b_object, c_object, op)
    five_loops_together(kernel, "half", blocking, alpha, a, b, beta, c, conjugated(op), a_packs, b_packs, work)


@njit(nogil=True)
def run_copied(kernel, kc, alpha, a_object, b_object, beta, c_object, op, copies, team):
    """Run ``loops.direct`` on three checked arrays, on a copy of B that has unit column stride; for a team of one."""
    a, b, c = opened(kernel, a_object, b_object, c_object, op)
    copied_matrix(b, copies[0])
    direct(kernel, "rows", c.shape[1], kc, False, alpha, a, copies[0], beta, c, conjugated(op))


@njit(nogil=True)
def run_batch_direct(kernel, kc, parts, alpha, a_object, b_object, beta, c_object, conj, team):
    """Run every item of three checked 3-D arrays without packing, in ``parts`` ranges of items."""
    work = join(team)
    a, b, c = open_stack(kernel, a_object), open_stack(kernel, b_object), open_stack(kernel, c_object)
    items = c.shape[0]
    plain = beta == 0 and alpha.imag == 0 and a.shape[2] <= kc and c.strides[2] == c.itemsize
    t = take_number(work)
    while t < parts:
        first, end = items * t // parts, items * (t + 1) // parts
        if plain:
            direct_items(kernel, alpha, a[first:end], b[first:end], c[first:end], conj)
        else:
            for item in range(first, end):
                direct(kernel, "rows", c.shape[2], kc, False, alpha, a[item], b[item], beta, c[item], conj)
        t = take_number(work)


@njit(nogil=True)
def run_batch_copied(kernel, kc, parts, alpha, a_object, b_object, beta, c_object, conj, copies, team):
    """Run ``loops.direct`` likewise where B's items lack unit column stride: on a copy of each that has it.

    ``copies``: (parts, k, n), C-contiguous; an item that follows itself (zero stride) is copied once.
    """
    work = join(team)
    a, b, c = open_stack(kernel, a_object), open_stack(kernel, b_object), open_stack(kernel, c_object)
    items = c.shape[0]
    t = take_number(work)
    while t < parts:
        first = items * t // parts
        for item in range(first, items * (t + 1) // parts):
            if item == first or b.strides[0] != 0:
                copied_matrix(b[item], copies[t])
            direct(kernel, "rows", c.shape[2], kc, False, alpha, a[item], copies[t], beta, c[item], conj)
        t = take_number(work)


@inlined
def five_loops_of_items(
    kernel, access, blocking, parts, alpha, a_object, b_object, beta, c_object, conj, a_packs, b_packs, work
):  # fmt: skip
    """Run ``loops.five_loops`` on every item, in ``parts`` ranges, each by the thread of a team that takes it."""
    a, b, c = open_stack(kernel, a_object), open_stack(kernel, b_object), open_stack(kernel, c_object)
    items = c.shape[0]
    t = take_number(work)
    while t < parts:
        for item in range(items * t // parts, items * (t + 1) // parts):
            five_loops(
                kernel, access, blocking, alpha, a[item], b[item], beta, c[item], conj, a_packs[t], b_packs[t],
            )  # fmt: skip
        t = take_number(work)


@njit(nogil=True)
def run_batch_packed(
    kernel, blocking, parts, alpha, a_object, b_object, beta, c_object, conj, a_packs, b_packs, team
):  # fmt: skip
    """Run ``loops.five_loops`` on every item, one thread an item; ``a_packs``, ``b_packs`` have a row per part."""
    five_loops_of_items(
        kernel, "packed", blocking, parts, alpha, a_object, b_object, beta, c_object, conj, a_packs, b_packs, join(team)
    )


@njit(nogil=True)
def run_batch_half(
    kernel, blocking, parts, alpha, a_object, b_object, beta, c_object, conj, a_packs, b_packs, team
):  # fmt: skip
    """Run them likewise where A's items have unit column stride and are read as they lie; ``a_packs`` has no rows."""
    five_loops_of_items(
        kernel, "half", blocking, parts, alpha, a_object, b_object, beta, c_object, conj, a_packs, b_packs, join(team)
    )
