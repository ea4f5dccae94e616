"""The compiled lanes: check plain operands, do small products at once, and say by a key what larger ones are.

Knows: what is plain and what is small. Does not know: why a path was chosen (``plan``) or what errors say
(``operands``). Called by ``lane``, through ``compiled``.

Operands come as bare object pointers (``ukernel.ndarray``) that nobody has looked at. What a lane declines takes the
general way, which says what is wrong.
"""

from numba import njit

from . import rules
from .entry import copied_matrix, opened
from .links import call_direct
from .loops import direct, direct_items
from .outcome import (
    A_CROWDED,
    A_ROWS,
    CONJ_BOTH,
    DECLINED,
    DONE,
    EXCHANGE,
    EXTENT_BITS,
    FLAG_BITS,
    PLAIN,
    TURN_A,
    TURN_B,
    VECTORS,
)
from .rules import A_CROWDED_BYTES, COPIED_ROWS, CROWDED_BYTES, LANE_BATCH, LANE_ROWS
from .table import place
from .ukernel.bind import inlined
from .ukernel.ndarray import (
    address,
    open_integers,
    open_matrix,
    open_stack,
    permuted,
    plain_ndim,
    repeated,
)

__all__ = ["fast_lane", "stack_lane"]

row_of = inlined(place)
is_copied, is_narrow, is_near = inlined(rules.is_copied), inlined(rules.is_narrow), inlined(rules.is_near)
is_swapped, is_turned = inlined(rules.is_swapped), inlined(rules.is_turned)


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


@njit
def fast_lane(
    kernel, table_object, spare_object, a_object, b_object, out_object, ndarray_type, descr, op, alpha, beta,
):  # fmt: skip
    """Do ``out[:] = alpha * op(a) @ op(b) + beta * out`` if all three are plain and small; else say what they are.

    Args:
        table_object: an array as ``table`` lays it out. Its limits are kc_max, the largest k that is one kc block;
            work_limit, the largest m * n * k that is done here, and crowded_limit, the same where the rows of B crowd
            few sets of L1; few_shallow, few_deep, few_far, l2_bytes: see ``ways.turned_columns``; narrow_columns,
            narrow_crowded, narrow_terms: from where on a tile for few columns is faster than the one that is here
            (``ways.narrow_limits``). Larger products are done here if their key has a row: by the function that it
            names.
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
    table = open_integers(table_object)
    kc_max, work_limit, crowded_limit = table[0], table[1], table[2]
    few_shallow, few_deep, few_far, l2_bytes = table[3], table[4], table[5], table[6]
    narrow_columns, narrow_crowded, narrow_terms = table[7], table[8], table[9]
    terms = m * n * k
    longest = max(m, n, k)
    key = (((m << EXTENT_BITS) | n) << EXTENT_BITS) | k
    turns = op & (TURN_A | TURN_B)
    conj = op & CONJ_BOTH
    swapped = is_swapped(m, n, c.strides[0] == c.itemsize, c.strides[1] == c.itemsize)
    rows, columns, distance = (n, m, b.strides[0]) if swapped else (m, n, a.strides[1])
    left_bytes, unit = rows * k * c.itemsize, distance == c.itemsize
    if is_turned(rows, columns, k, left_bytes, unit, few_shallow, few_deep, few_far, l2_bytes):
        swapped = not swapped
    if swapped:
        a, b, c = b.T, a.T, c.T
        turns |= EXCHANGE
        conj = ((conj >> 1) | (conj << 1)) & CONJ_BOTH
    by_rows = b.strides[1] == b.itemsize or b.shape[1] == 1
    passes = a.shape[0] <= LANE_ROWS and not is_near(a.shape[0], k * b.shape[1] * kernel.itemsize)
    copied = not by_rows and is_copied(terms * kernel.chains, c.shape[0], k, b.shape[1])
    crowded = by_rows and k > 1 and b.strides[0] & (CROWDED_BYTES - 1) == 0
    limit = crowded_limit if crowded else work_limit
    a_crowded = a.strides[0] & (A_CROWDED_BYTES - 1) == 0
    narrow = by_rows and is_narrow(
        a.shape[0], b.shape[1], terms, kernel.mr, a_crowded, narrow_columns, narrow_crowded, narrow_terms
    )
    if (by_rows or copied) and terms <= limit and k <= kc_max and not (passes or narrow):
        if copied:
            b = copied_matrix(b, open_matrix(kernel, spare_object))
        direct(kernel, "rows", c.shape[1], kc_max, False, alpha, a, b, beta, c, conj)
        return DONE
    if longest >> EXTENT_BITS:
        return PLAIN
    by_columns = b.strides[0] == b.itemsize or k == 1
    access = 3 if crowded else 0 if by_rows else 1 if by_columns else 2
    a_rows = A_ROWS if a.strides[1] == a.itemsize or k == 1 else 0
    key = (key << FLAG_BITS) | (A_CROWDED if a_crowded else 0) | a_rows | turns | access
    row = row_of(key)
    if table[row] == key:
        call_direct(
            table[row + 1], kernel, table[row + 2], table[row + 3] != 0, alpha, a_object, b_object, beta, out_object,
            op | (turns & EXCHANGE),
        )  # fmt: skip
        return DONE
    return key


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
    if is_swapped(m, n, c.strides[1] == c.itemsize, c.strides[2] == c.itemsize):
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
        direct(kernel, "rows", n, kc_max, False, alpha, a[item], b_item, beta, c[item], conj)
    return DONE
