"""The compiled entry points: from Python objects to the loops, in one call each.

Knows: what a compiled call takes and returns. Does not know: why a path was chosen (``plan``) or what
errors say (``operands``). Called by ``driver`` (general products) and ``api`` (the fast lane).

Arguments that are ndarrays come as bare object pointers (``ukernel.ndarray``): the caller has
checked them, or the entry checks them itself; what it declines takes the general way, which says what is
wrong.
"""

from numba import njit

from .loops import direct, direct_items, five_loops, share, stream, strips, sweep_rows
from .outcome import (
    A_ROWS,
    CONJ_BOTH,
    COPIED_ROWS,
    COPIED_SIZE,
    COPIED_WORK,
    CROWDED_BYTES,
    DECLINED,
    DONE,
    EXCHANGE,
    EXTENT_BITS,
    LANE_B_BYTES,
    LANE_BATCH,
    LANE_ROWS,
    PLAIN,
    SPARE_EXTENT,
    TURN_A,
    TURN_B,
    TURNED_BYTES,
    TURNED_ROWS,
    TURNED_STEPS,
    VECTORS,
)
from .team import alone, join, take_number
from .ukernel.bind import inlined
from .ukernel.ndarray import address, ndim_of, open_matrix, open_stack, permuted, plain_ndim, repeated

__all__ = [
    "fast_lane", "run_batch_copied", "run_batch_direct", "run_batch_half", "run_batch_packed", "run_columns",
    "run_copied", "run_direct", "run_half", "run_packed", "run_stream", "run_strips", "run_sweep", "stack_lane",
]  # fmt: skip


@inlined
def is_copied(work, m, k, n):
    """Whether a small B without unit column stride is copied; see ``ways``, which says the same."""
    return work <= COPIED_WORK and max(k, n) <= SPARE_EXTENT and (m >= COPIED_ROWS or k * n <= COPIED_SIZE)


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
def byte_range(x):
    """Return the first byte and the one past the last byte that x touches (x isn't empty)."""
    first = address(x)
    last = first + x.itemsize
    for axis in range(x.ndim):
        reach = (x.shape[axis] - 1) * x.strides[axis]
        if reach < 0:
            first += reach
        else:
            last += reach
    return first, last


@inlined
def overlap(x, y):
    """Whether the byte ranges of x and y meet; a cheap test that may say yes too often."""
    x0, x1 = byte_range(x)
    y0, y1 = byte_range(y)
    return x0 < y1 and y0 < x1


@inlined
def overlaps_itself(x):
    """Whether two elements of x may share bytes, or one is two (zero strides); says yes when in doubt."""
    reach = x.itemsize
    for axis in (0, 1) if abs(x.strides[0]) < abs(x.strides[1]) else (1, 0):
        if x.shape[axis] > 1:
            if abs(x.strides[axis]) < reach:
                return True
            reach += (x.shape[axis] - 1) * abs(x.strides[axis])
    return False


@inlined
def is_swapped(m, n, row_stride, column_stride, itemsize):
    """Whether C' = B' A' is computed; the same as ``ways.wants_swap``."""
    return m > 1 and (n == 1 or (row_stride == itemsize and column_stride != itemsize))


@inlined
def is_turned(rows, columns, k, left, few_near, few_far, l2_bytes):
    """Whether the other one of A B and B' A' is computed; the same as ``ways.wants_turn``. ``left``: the left one."""
    left_bytes = rows * k * left.itemsize
    return (
        columns >= 2
        and columns <= (few_far if left_bytes > l2_bytes else few_near)
        and left.strides[1] == left.itemsize
        and rows >= TURNED_ROWS
        and k >= TURNED_STEPS
        and left_bytes >= TURNED_BYTES
    )


@njit
def fast_lane(
    kernel, kc_max, work_limit, crowded_limit, few_near, few_far, l2_bytes, spare_object, a_object, b_object,
    out_object, ndarray_type, descr, op, alpha, beta,
):  # fmt: skip
    """Do ``out[:] = alpha * op(a) @ op(b) + beta * out`` if all three are plain and small; else say what they are.

    Args:
        kc_max: the largest k that is one kc block; larger is not done here.
        work_limit: the largest m * n * k that is done here.
        crowded_limit: the same where the rows of B crowd few sets of L1.
        few_near, few_far, l2_bytes: see ``ways.turned_columns``.
        spare_object: a matrix of the dtype, SPARE_EXTENT in each direction, for a copy of B; no call returns the
            GIL while it is in use.
        ndarray_type, descr: numpy.ndarray and the dtype object that all three must have.
        op: bits of ``outcome``, without EXCHANGE, which is decided here.
        alpha: not zero.

    Returns:
        DONE; a key, or PLAIN: not done, but checked: operands that fit, no overlap; or DECLINED. Unless DONE nothing
        was written.
    """
    a_ndim = plain_ndim(a_object, ndarray_type, descr, False)
    b_ndim = plain_ndim(b_object, ndarray_type, descr, False)
    least = 1 if op & VECTORS else 2
    if min(a_ndim, b_ndim) < least or max(a_ndim, b_ndim) > 2:
        return DECLINED
    if plain_ndim(out_object, ndarray_type, descr, True) != a_ndim + b_ndim - 2:
        return DECLINED
    a, b, c = opened(kernel, a_object, b_object, out_object, op & ~EXCHANGE)
    (m, k), n = a.shape, b.shape[1]
    if b.shape[0] != k or c.shape[0] != m or c.shape[1] != n or m * n * k == 0:
        return DECLINED
    if overlaps_itself(c) or overlap(a, c) or overlap(b, c):
        return DECLINED
    terms = m * n * k
    longest = max(m, n, k)
    key = (((m << EXTENT_BITS) | n) << EXTENT_BITS) | k
    turns = op & (TURN_A | TURN_B)
    conj = op & CONJ_BOTH
    swapped = is_swapped(m, n, c.strides[0], c.strides[1], c.itemsize)
    if swapped:
        turned = is_turned(n, m, k, b.T, few_near, few_far, l2_bytes)
    else:
        turned = is_turned(m, n, k, a, few_near, few_far, l2_bytes)
    if turned:
        swapped = not swapped
    if swapped:
        a, b, c = b.T, a.T, c.T
        turns |= EXCHANGE
        conj = ((conj >> 1) | (conj << 1)) & CONJ_BOTH
    by_rows = b.strides[1] == b.itemsize or b.shape[1] == 1
    passes = a.shape[0] <= LANE_ROWS and k * b.shape[1] * kernel.itemsize > LANE_B_BYTES * a.shape[0]
    copied = not by_rows and is_copied(terms * kernel.chains, c.shape[0], k, b.shape[1])
    crowded = by_rows and k > 1 and b.strides[0] & (CROWDED_BYTES - 1) == 0
    limit = crowded_limit if crowded else work_limit
    if (by_rows or copied) and terms <= limit and k <= kc_max and not passes:
        if copied:
            b = copied_matrix(b, open_matrix(kernel, spare_object))
        direct(kernel, "rows", kc_max, False, alpha, a, b, beta, c, conj)
        return DONE
    if longest >> EXTENT_BITS:
        return PLAIN
    by_columns = b.strides[0] == b.itemsize or k == 1
    access = 3 if crowded else 0 if by_rows else 1 if by_columns else 2
    a_rows = A_ROWS if a.strides[1] == a.itemsize or k == 1 else 0
    return (key << 6) | a_rows | turns | access


@njit
def stack_lane(
    kernel, kc_max, work_limit, item_limit, spare_object, a_object, b_object, out_object, ndarray_type, descr, op,
    alpha, beta,
):  # fmt: skip
    """Do the same for a small batch: 3-D arrays, of which A or B may be one matrix or vector for all items.

    Args:
        work_limit: the largest m * n * k of all items that is done here.
        item_limit: the largest of one item, if that of all is LANE_BATCH or more: fewer aren't worth a plan.
        Others: as ``fast_lane``.

    Returns:
        DONE or DECLINED, and then nothing was written.
    """
    a_ndim = plain_ndim(a_object, ndarray_type, descr, False)
    b_ndim = plain_ndim(b_object, ndarray_type, descr, False)
    least = min(a_ndim, b_ndim)
    if least < (1 if op & VECTORS else 2) or max(a_ndim, b_ndim) != 3:
        return DECLINED
    if plain_ndim(out_object, ndarray_type, descr, True) != (2 if least == 1 else 3):
        return DECLINED
    a, b, c = open_stack(kernel, a_object), open_stack(kernel, b_object), open_stack(kernel, out_object)
    if a_ndim == 1:  # a row; C, opened as one item, is a row of each
        c = permuted(c, 1, 0, 2)
    if b_ndim == 1:
        b, c = permuted(b, 0, 2, 1), permuted(c, 1, 2, 0)
    items = c.shape[0]
    if a.size == 0 or b.size == 0 or c.size == 0 or max(a.shape[0], b.shape[0]) != items:
        return DECLINED
    if min(a.shape[0], b.shape[0]) not in (1, items):
        return DECLINED
    if op & TURN_A:
        a = permuted(a, 0, 2, 1)
    if op & TURN_B:
        b = permuted(b, 0, 2, 1)
    m, n, k = c.shape[1], c.shape[2], a.shape[2]
    if a.shape[1] != m or b.shape[1] != k or b.shape[2] != n:
        return DECLINED
    terms = items * m * n * k
    if terms > work_limit or k > kc_max or (terms >= LANE_BATCH and m * n * k > item_limit):
        return DECLINED
    first, last = byte_range(c[0])
    if overlaps_itself(c[0]) or (items > 1 and abs(c.strides[0]) < last - first) or overlap(a, c) or overlap(b, c):
        return DECLINED
    conj = op & CONJ_BOTH
    if is_swapped(m, n, c.strides[1], c.strides[2], c.itemsize):
        a, b, c = permuted(b, 0, 2, 1), permuted(a, 0, 2, 1), permuted(c, 0, 2, 1)
        conj = ((conj >> 1) | (conj << 1)) & CONJ_BOTH
    copied = b.strides[2] != b.itemsize and b.shape[2] > 1
    if copied and not is_copied(m * n * k * kernel.chains, COPIED_ROWS, k, b.shape[2]):
        return DECLINED
    a, b = repeated(a, items), repeated(b, items)
    if beta == 0 and not copied and c.strides[2] == c.itemsize:
        direct_items(kernel, alpha, a, b, c, conj)
        return DONE
    spare = open_matrix(kernel, spare_object)
    for item in range(items):
        b_item = b[item]
        if copied:
            b_item = copied_matrix(b_item, spare) if item == 0 or b.strides[0] != 0 else spare[:k, : b.shape[2]]
        direct(kernel, "rows", kc_max, False, alpha, a[item], b_item, beta, c[item], conj)
    return DONE


@inlined
def direct_shares(kernel, access, kc, rows_first, ways, alpha, a, b, beta, c, conj, work):
    """Run ``loops.direct`` on ``ways[0] * ways[1]`` shares of C, each by the thread of a team that takes it."""
    m, n = c.shape
    ic_ways, jr_ways = ways
    t = take_number(work)
    while t < ic_ways * jr_ways:
        i0, i1 = share(m, kernel.mr, t // jr_ways, ic_ways)
        j0, j1 = share(n, kernel.nr, t % jr_ways, jr_ways)
        direct(kernel, access, kc, rows_first, alpha, a[i0:i1], b[:, j0:j1], beta, c[i0:i1, j0:j1], conj)
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
def run_packed(kernel, blocking, alpha, a_object, b_object, beta, c_object, op, a_pack, b_pack, team):
    """Run ``loops.five_loops`` on three checked arrays."""
    work = join(team)
    a, b, c = opened(kernel, a_object, b_object, c_object, op)
    five_loops(kernel, "packed", blocking, alpha, a, b, beta, c, conjugated(op), a_pack, b_pack, work)


@njit(nogil=True)
def run_half(kernel, blocking, alpha, a_object, b_object, beta, c_object, op, a_pack, b_pack, team):
    """Run them likewise where A has unit column stride and is read as it lies; ``a_pack`` has no rows."""
    work = join(team)
    a, b, c = opened(kernel, a_object, b_object, c_object, op)
    five_loops(kernel, "half", blocking, alpha, a, b, beta, c, conjugated(op), a_pack, b_pack, work)


@njit(nogil=True)
def run_copied(kernel, kc, alpha, a_object, b_object, beta, c_object, op, copies, team):
    """Run ``loops.direct`` on three checked arrays, on a copy of B that has unit column stride; for a team of one."""
    a, b, c = opened(kernel, a_object, b_object, c_object, op)
    copied_matrix(b, copies[0])
    direct(kernel, "rows", kc, False, alpha, a, copies[0], beta, c, conjugated(op))


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
                direct(kernel, "rows", kc, False, alpha, a[item], b[item], beta, c[item], conj)
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
            direct(kernel, "rows", kc, False, alpha, a[item], copies[t], beta, c[item], conj)
        t = take_number(work)


@inlined
def five_loops_of_items(
    kernel, access, blocking, parts, alpha, a_object, b_object, beta, c_object, conj, a_pack, b_pack, work
):  # fmt: skip
    """Run ``loops.five_loops`` on every item, in ``parts`` ranges, each by the thread of a team that takes it."""
    a, b, c = open_stack(kernel, a_object), open_stack(kernel, b_object), open_stack(kernel, c_object)
    items = c.shape[0]
    t = take_number(work)
    while t < parts:
        for item in range(items * t // parts, items * (t + 1) // parts):
            five_loops(
                kernel, access, blocking, alpha, a[item], b[item], beta, c[item], conj, a_pack[t], b_pack[t], alone(),
            )  # fmt: skip
        t = take_number(work)


@njit(nogil=True)
def run_batch_packed(
    kernel, blocking, parts, alpha, a_object, b_object, beta, c_object, conj, a_pack, b_pack, team
):  # fmt: skip
    """Run ``loops.five_loops`` on every item, one thread an item; ``a_pack``, ``b_pack`` have a row per part."""
    five_loops_of_items(
        kernel, "packed", blocking, parts, alpha, a_object, b_object, beta, c_object, conj, a_pack, b_pack, join(team)
    )


@njit(nogil=True)
def run_batch_half(
    kernel, blocking, parts, alpha, a_object, b_object, beta, c_object, conj, a_pack, b_pack, team
):  # fmt: skip
    """Run them likewise where A's items have unit column stride and are read as they lie; ``a_pack`` has no rows."""
    five_loops_of_items(
        kernel, "half", blocking, parts, alpha, a_object, b_object, beta, c_object, conj, a_pack, b_pack, join(team)
    )
