"""The compiled entry points: from Python objects to the loops, in one call each.

Knows: what a compiled call takes and returns. Does not know: why a path was chosen (``plan``) or what
errors say (``operands``). Called by ``driver`` (general products) and ``api`` (the fast lane).

Arguments that are ndarrays come as bare object pointers (``ukernel.ndarray``): the caller has
checked them, or the entry checks them itself; what it declines takes the general way, which says what is
wrong.
"""

from numba import njit, prange

from .loops import direct, five_loops, share, stream, sweep_rows
from .outcome import DECLINED, DONE, PLAIN
from .ukernel.bind import inlined
from .ukernel.ndarray import address, is_matrix, open_matrix, open_stack

__all__ = [
    "fast_lane", "run_batch_direct", "run_batch_direct_parallel", "run_batch_packed", "run_batch_packed_parallel",
    "run_columns", "run_columns_parallel", "run_direct", "run_direct_parallel", "run_packed", "run_packed_parallel",
    "run_stream", "run_stream_parallel", "run_sweep", "run_sweep_parallel",
]  # fmt: skip

# Only what the text marks with prange runs in parallel; Numba invents nothing.
PARALLEL = {
    "prange": True, "comprehension": False, "numpy": False, "fusion": False,
    "reduction": False, "inplace_binop": False, "setitem": False, "stencil": False,
}  # fmt: skip


@inlined
def byte_range(x):
    """Return the first byte and the one past the last byte that x touches (x isn't empty)."""
    first = address(x)
    last = first + x.itemsize
    for axis in range(2):
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


@njit
def fast_lane(kernel, kc_max, work_limit, a_object, b_object, out_object, ndarray_type, descr):
    """Do ``out[:] = a @ b`` if all three are plain matrices of one dtype and small; else say what they are.

    Args:
        kc_max: the largest k that is one kc block; larger is not done here.
        work_limit: the largest m * n * k that the direct path is meant for.
        ndarray_type, descr: numpy.ndarray and the dtype object that all three must have.

    Returns:
        DONE; PLAIN: not done, but checked: plain matrices that fit, no overlap, rows of out with unit column
        stride; or DECLINED. Unless DONE nothing was written.
    """
    if not (
        is_matrix(a_object, ndarray_type, descr, 2, False)
        and is_matrix(b_object, ndarray_type, descr, 2, False)
        and is_matrix(out_object, ndarray_type, descr, 2, True)
    ):
        return DECLINED
    a, b, out = open_matrix(kernel, a_object), open_matrix(kernel, b_object), open_matrix(kernel, out_object)
    (m, k), n = a.shape, b.shape[1]
    if b.shape[0] != k or out.shape[0] != m or out.shape[1] != n or m * n * k == 0:
        return DECLINED
    if out.strides[1] != out.itemsize or (m > 1 and abs(out.strides[0]) < n * out.itemsize):
        return DECLINED  # columns, or rows that overlap each other
    if overlap(a, out) or overlap(b, out):
        return DECLINED
    if m * n * k > work_limit or k > kc_max or b.strides[1] != b.itemsize:
        return PLAIN
    direct(kernel, "rows", kc_max, False, kernel.one, a, b, kernel.zero, out, 0)
    return DONE


def _direct(kernel, kc, rows_first, ways, alpha, a_object, b_object, beta, c_object, conj):
    """Run ``loops.direct`` on three checked 2-D arrays, on ``ways[0] * ways[1]`` threads; B has unit column stride."""
    a, b, c = open_matrix(kernel, a_object), open_matrix(kernel, b_object), open_matrix(kernel, c_object)
    m, n = c.shape
    ic_ways, jr_ways = ways
    for t in prange(ic_ways * jr_ways):
        i0, i1 = share(m, kernel.mr, t // jr_ways, ic_ways)
        j0, j1 = share(n, kernel.nr, t % jr_ways, jr_ways)
        direct(kernel, "rows", kc, rows_first, alpha, a[i0:i1], b[:, j0:j1], beta, c[i0:i1, j0:j1], conj)


def _columns(kernel, kc, rows_first, ways, alpha, a_object, b_object, beta, c_object, conj):
    """Run ``loops.direct`` likewise where B has unit row stride."""
    a, b, c = open_matrix(kernel, a_object), open_matrix(kernel, b_object), open_matrix(kernel, c_object)
    m, n = c.shape
    ic_ways, jr_ways = ways
    for t in prange(ic_ways * jr_ways):
        i0, i1 = share(m, kernel.mr, t // jr_ways, ic_ways)
        j0, j1 = share(n, kernel.nr, t % jr_ways, jr_ways)
        direct(kernel, "columns", kc, rows_first, alpha, a[i0:i1], b[:, j0:j1], beta, c[i0:i1, j0:j1], conj)


def _stream(kernel, kc, step, threads, alpha, a_object, b_object, beta, c_object, conj, sums):
    """Run ``loops.stream`` on three checked 2-D arrays, each of ``threads`` on its own columns and its own sums."""
    a, b, c = open_matrix(kernel, a_object), open_matrix(kernel, b_object), open_matrix(kernel, c_object)
    for t in prange(threads):
        j0, j1 = share(c.shape[1], kernel.nr, t, threads)
        stream(kernel, kc, step, alpha, a, b[:, j0:j1], beta, c[:, j0:j1], conj, sums[t])


def _sweep(kernel, kc, step, threads, alpha, a_object, b_object, beta, c_object, conj, sums):
    """Run ``loops.sweep_rows`` likewise."""
    a, b, c = open_matrix(kernel, a_object), open_matrix(kernel, b_object), open_matrix(kernel, c_object)
    for t in prange(threads):
        j0, j1 = share(c.shape[1], kernel.lanes, t, threads)
        sweep_rows(kernel, kc, step, alpha, a, b[:, j0:j1], beta, c[:, j0:j1], conj, sums[t])


def _packed(kernel, blocking, rows_first, ways, alpha, a_object, b_object, beta, c_object, conj, a_pack, b_pack):
    """Run ``loops.five_loops`` on three checked 2-D arrays, on ``ways[0] * ways[1]`` threads."""
    five_loops(
        kernel, blocking, rows_first, ways, alpha, open_matrix(kernel, a_object), open_matrix(kernel, b_object),
        beta, open_matrix(kernel, c_object), conj, a_pack, b_pack,
    )  # fmt: skip


def _batch_direct(kernel, kc, parts, alpha, a_object, b_object, beta, c_object, conj):
    """Run ``loops.direct`` on every item of three checked 3-D arrays, in ``parts`` ranges of items."""
    a, b, c = open_stack(kernel, a_object), open_stack(kernel, b_object), open_stack(kernel, c_object)
    items = c.shape[0]
    for t in prange(parts):
        for item in range(items * t // parts, items * (t + 1) // parts):
            direct(kernel, "rows", kc, False, alpha, a[item], b[item], beta, c[item], conj)


def _batch_packed(kernel, blocking, rows_first, parts, alpha, a_object, b_object, beta, c_object, conj, a_pack, b_pack):
    """Run ``loops.five_loops`` on every item, one thread an item; ``a_pack``, ``b_pack`` have a row per part."""
    a, b, c = open_stack(kernel, a_object), open_stack(kernel, b_object), open_stack(kernel, c_object)
    items = c.shape[0]
    for t in prange(parts):
        for item in range(items * t // parts, items * (t + 1) // parts):
            five_loops(
                kernel, blocking, rows_first, (1, 1), alpha, a[item], b[item], beta, c[item], conj,
                a_pack[t : t + 1], b_pack[t],
            )  # fmt: skip


run_columns = njit(nogil=True)(_columns)
run_columns_parallel = njit(nogil=True, parallel=PARALLEL)(_columns)
run_stream = njit(nogil=True)(_stream)
run_stream_parallel = njit(nogil=True, parallel=PARALLEL)(_stream)
run_sweep = njit(nogil=True)(_sweep)
run_sweep_parallel = njit(nogil=True, parallel=PARALLEL)(_sweep)
run_direct = njit(nogil=True)(_direct)
run_direct_parallel = njit(nogil=True, parallel=PARALLEL)(_direct)
run_packed = njit(nogil=True)(_packed)
run_packed_parallel = njit(nogil=True, parallel=PARALLEL)(_packed)
run_batch_direct = njit(nogil=True)(_batch_direct)
run_batch_direct_parallel = njit(nogil=True, parallel=PARALLEL)(_batch_direct)
run_batch_packed = njit(nogil=True)(_batch_packed)
run_batch_packed_parallel = njit(nogil=True, parallel=PARALLEL)(_batch_packed)
