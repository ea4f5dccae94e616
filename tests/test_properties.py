"""Properties, on whatever Hypothesis draws: the manners of numpy.matmul, and relations between products.

Values are small integers (exact in every dtype, and wrapping alike), so a product is compared with ``==``.
The relations compare bits of products of ordinary numbers.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import event, example, given
from hypothesis import strategies as st
from support import (
    DTYPES,
    TRANS,
    bits,
    case_id,
    draw,
    draw_reals,
    expect_equal,
    kernel_paths,
    lay_out,
    op,
    suited,
    tiny_plan,
)

import blisgemm
from blisgemm.blocking import kc_for

KINDS = (
    "?",
    "i1",
    "u1",
    "i2",
    "u2",
    "i4",
    "u4",
    "i8",
    "u8",
    "f2",
    "f4",
    "f8",
    "g",
    "c8",
    "c16",
    "G",
    "O",
    ">f4",
    ">f8",
    ">c8",
    ">i4",
)
seeds = st.integers(0, 2**32 - 1)


# ---- views --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Look:
    """How one axis lies in memory: which place among the axes, how far apart and which way."""

    place: int
    step: int


@st.composite
def views(draw_: Any, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Small integers of that shape: any axis order, steps of 1 to 3 either way, repeated, maybe unaligned."""
    dtype = np.dtype(dtype)
    order = draw_(st.permutations(range(len(shape))))
    steps = [draw_(st.sampled_from((1, 1, 1, -1, 2, -2, 3))) for _ in shape]
    repeated = [draw_(st.integers(0, 7)) == 0 for _ in shape]
    extents = [1 if again else extent for extent, again in zip(shape, repeated, strict=True)]
    reach = [max(1, extent) * abs(step) for extent, step in zip(extents, steps, strict=True)]
    stored = [reach[axis] for axis in order]
    rng = np.random.default_rng(draw_(seeds))
    values = draw(rng, stored, np.complex128 if dtype.kind == "c" else np.int64, 3)
    if dtype.kind == "u":
        values = np.abs(values)  # 2**32 - 1 is no small integer, and no float32
    if dtype.hasobject:
        base = np.array([int(x) for x in values.reshape(-1)], object).reshape(stored)
    elif draw_(st.integers(0, 5)) == 0:
        base = np.empty(values.size * dtype.itemsize + 1, np.uint8)[1:].view(dtype).reshape(stored)
        base[...] = values
    else:
        base = values.astype(dtype)
    base = base.transpose(np.argsort(order))
    if not shape:
        return base
    index = tuple(slice(None, extent * abs(step), abs(step)) for extent, step in zip(extents, steps, strict=True))
    view = base[index]
    view = view[tuple(slice(None, None, -1 if step < 0 else 1) for step in steps)]
    if any(repeated):
        view = np.broadcast_to(view, shape)
    assert view.shape == tuple(shape)
    return view


@st.composite
def operand_pairs(draw_: Any) -> tuple[np.ndarray, np.ndarray]:
    """Two operands that matmul may take, or (one time in six) shapes that it must refuse."""
    if draw_(st.integers(0, 5)):
        shapes = draw_(
            hnp.mutually_broadcastable_shapes(
                signature="(n?,k),(k,m?)->(n?,m?)",
                max_dims=2,
                min_side=0,
                max_side=draw_(st.sampled_from((3, 6, 20))),
            )
        ).input_shapes
    else:
        shapes = draw_(st.tuples(*[hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)] * 2))
    kinds = draw_(st.tuples(*[st.sampled_from(KINDS)] * 2))
    if draw_(st.booleans()):
        kinds = (kinds[0], kinds[0])
    return tuple(draw_(views(shape, kind)) for shape, kind in zip(shapes, kinds, strict=True))


def outcome(function: Any, *args: Any, **keywords: Any) -> Any:
    """Return what a call gives: its result, or the exception."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return function(*args, **keywords)
        except Exception as error:
            return error


def expect_same_outcome(got: Any, want: Any, case: Any) -> None:
    if isinstance(want, Exception):
        assert isinstance(got, Exception), f"NumPy refuses this with {want!r}; here came {got!r}\n{case}"
        builtin = next(cls for cls in (TypeError, ValueError) if isinstance(want, cls))
        assert isinstance(got, builtin), f"NumPy raises a {builtin.__name__}, {want!r}; here came {got!r}\n{case}"
        return
    if isinstance(got, Exception):
        raise AssertionError(f"NumPy accepts this; here came {got!r}\n{case}") from got
    assert type(got) is type(want), f"expected a {type(want)}, got a {type(got)}\n{case}"
    expect_equal(got, want, case=case)


def describe(*arrays: Any) -> str:
    return "; ".join(f"{x.dtype.str}{x.shape} strides {x.strides}" for x in arrays)


# ---- against NumPy ------------------------------------------------------------------------------


@given(operand_pairs())
def test_matmul_gives_numpys_value_dtype_shape_or_exception(pair: tuple[np.ndarray, np.ndarray]) -> None:
    a, b = pair
    copies = [x.copy() for x in pair]
    want = outcome(np.matmul, a, b)
    event("refused" if isinstance(want, Exception) else "accepted")
    expect_same_outcome(outcome(blisgemm.matmul, a, b), want, describe(a, b))
    for x, copy in zip(pair, copies, strict=True):
        expect_equal(x, copy, case="an input changed")


OUTS = ("right", "larger", "tuple", "other dtype", "wrong shape", "read-only", "views")


@given(operand_pairs(), st.sampled_from(OUTS), st.data())
def test_matmul_treats_out_as_numpy_does(pair: tuple[np.ndarray, np.ndarray], kind: str, data: st.DataObject) -> None:
    a, b = pair
    plain = outcome(np.matmul, a, b)
    if isinstance(plain, Exception) or np.ndim(plain) == 0:
        return
    shape, dtype = plain.shape, plain.dtype
    if kind == "larger":
        shape = (2, *shape) if len(shape) > 1 else shape
    elif kind == "wrong shape":
        shape = (*shape[:-1], shape[-1] + 1)
    elif kind == "other dtype":
        dtype = np.dtype(data.draw(st.sampled_from(KINDS)))
    outs = []
    if kind == "views":
        seed = data.draw(seeds)
        template = data.draw(views(shape, dtype))
        if any(s == 0 for s in template.strides):
            return  # refused here, see the tests of matmul
        for _ in range(2):
            rng = np.random.default_rng(seed)
            base = np.zeros(tuple(3 * e for e in shape), dtype)
            out = (
                base[tuple(slice(None, 3 * e, 3) for e in shape)]
                if rng.integers(2)
                else np.zeros(shape, dtype, order="F")
            )
            outs.append(out[..., ::-1] if rng.integers(2) else out)
    else:
        for _ in range(2):
            out = np.zeros(shape, dtype)
            out.flags.writeable = kind != "read-only"
            outs.append(out)
    passed = [(out,) if kind == "tuple" else out for out in outs]
    want = outcome(np.matmul, a, b, out=passed[0])
    got = outcome(blisgemm.matmul, a, b, out=passed[1])
    expect_same_outcome(got, want, f"{describe(a, b)}; out {kind}: {describe(outs[0])}")
    if not isinstance(want, Exception):
        assert got is outs[1], "expected out itself back"
    expect_equal(outs[1], outs[0], case=f"out afterwards, {kind}, {describe(a, b)}")


@given(
    operand_pairs(),
    st.sampled_from(("f4", "f8", "c8", "i4", "i8", "?")),
    st.sampled_from(("no", "equiv", "safe", "same_kind", "unsafe")),
)
def test_matmul_treats_dtype_and_casting_as_numpy_does(
    pair: tuple[np.ndarray, np.ndarray], dtype: str, casting: str
) -> None:
    a, b = pair
    if any(x.dtype.kind == "c" for x in pair) and np.dtype(dtype).kind != "c" and casting == "unsafe":
        return  # NumPy discards imaginary parts with a warning that depends on its version
    if isinstance(outcome(np.matmul, a, b), Exception):
        return  # two things would be wrong at once, and either may be told
    want = outcome(np.matmul, a, b, dtype=dtype, casting=casting)
    got = outcome(blisgemm.matmul, a, b, dtype=dtype, casting=casting)
    expect_same_outcome(got, want, f"{describe(a, b)}; dtype={dtype}, casting={casting}")


# ---- relations ----------------------------------------------------------------------------------

extents = st.one_of(st.integers(1, 9), st.integers(1, 70))
shapes = st.tuples(extents, extents, st.one_of(st.integers(0, 9), st.integers(1, 70), st.just(700)))
dtypes = st.sampled_from(DTYPES)


def pair_of(seed: int, dtype: str, shape: tuple[int, int, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    m, n, k = shape
    rng = np.random.default_rng(seed)
    return tuple(draw_reals(rng, s, dtype) for s in ((m, k), (k, n), (m, n)))


def expect_same_bits(got: Any, want: Any, case: Any) -> None:
    expect_equal(got, want, case=case, same_bits=True)


@given(seeds, dtypes, shapes, st.sampled_from(TRANS), st.sampled_from(TRANS))
def test_the_transposed_product_of_transposes_has_the_same_bits(
    seed: int, dtype: str, shape: Any, trans_a: Any, trans_b: Any
) -> None:
    a, b, c = pair_of(seed, dtype, shape)
    a, b = (np.ascontiguousarray(x.T) if t in ("T", "C") else x for x, t in ((a, trans_a), (b, trans_b)))
    want = blisgemm.gemm(a, b, c, alpha=0.7, beta=-1.3, trans_a=trans_a, trans_b=trans_b)
    turned = {False: "T", "T": False, "C": "R", "R": "C"}
    got = blisgemm.gemm(b, a, c.T, alpha=0.7, beta=-1.3, trans_a=turned[trans_b], trans_b=turned[trans_a])
    expect_same_bits(got.T, want, (dtype, shape, trans_a, trans_b))


@given(seeds, dtypes, shapes, st.sampled_from(TRANS), st.sampled_from(TRANS))
def test_op_given_by_trans_has_the_bits_of_op_done_before(
    seed: int, dtype: str, shape: Any, trans_a: Any, trans_b: Any
) -> None:
    a, b, c = pair_of(seed, dtype, shape)
    a, b = (np.ascontiguousarray(x.T) if t in ("T", "C") else x for x, t in ((a, trans_a), (b, trans_b)))
    got = blisgemm.gemm(a, b, c, beta=0.9, trans_a=trans_a, trans_b=trans_b)
    expect_same_bits(got, blisgemm.gemm(op(a, trans_a), op(b, trans_b), c, beta=0.9), (dtype, shape, trans_a, trans_b))


@given(seeds, dtypes, shapes, st.data())
def test_rows_and_columns_alone_have_the_bits_of_the_whole(
    seed: int, dtype: str, shape: Any, data: st.DataObject
) -> None:
    a, b, c = pair_of(seed, dtype, shape)
    whole = blisgemm.gemm(a, b, c, alpha=1.7, beta=0.3)
    rows = data.draw(st.slices(shape[0]))
    columns = data.draw(st.slices(shape[1]))
    got = blisgemm.gemm(a[rows], b[:, columns], c[rows, columns], alpha=1.7, beta=0.3)
    expect_same_bits(got, whole[rows, columns], (dtype, shape, rows, columns))


@given(
    seeds,
    dtypes,
    shapes,
    st.sampled_from(("C", "F", "sliced", "columns", "reversed", "unaligned", "swapped", "field")),
    st.sampled_from(("C", "F", "sliced", "columns", "reversed", "unaligned", "swapped", "field")),
    st.sampled_from(("C", "F", "sliced", "columns_F", "reversed", "unaligned", "swapped", "field")),
)
def test_no_layout_changes_a_bit(
    seed: int, dtype: str, shape: Any, a_layout: str, b_layout: str, out_layout: str
) -> None:
    a, b, c = pair_of(seed, dtype, shape)
    want = blisgemm.gemm(a, b, c, alpha=0.7, beta=1.3)
    out = lay_out(np.zeros_like(c), out_layout)
    blisgemm.gemm(lay_out(a, a_layout), lay_out(b, b_layout), c, alpha=0.7, beta=1.3, out=out)
    expect_same_bits(out, want, (dtype, shape, a_layout, b_layout, out_layout))


@given(seeds, dtypes, shapes, st.integers(-20, 20), st.integers(-20, 20), st.integers(-20, 20))
def test_scaling_by_powers_of_two_is_exact(seed: int, dtype: str, shape: Any, s: int, t: int, r: int) -> None:
    a, b, c = pair_of(seed, dtype, shape)
    real = np.dtype(dtype).type
    two_s, two_t, two_r = (real(2.0**e) for e in (s, t, r))
    want = blisgemm.gemm(a, b, c, alpha=0.7, beta=1.3) * (two_s * two_t * two_r)
    got = blisgemm.gemm(a * two_s, b * two_t, c * (two_s * two_t * two_r), alpha=real(0.7) * two_r, beta=1.3)
    expect_same_bits(got, want, (dtype, shape, s, t, r))


@given(seeds, dtypes, st.tuples(extents, extents), st.integers(1, 300))
@example(1, "float32", (5, 3), 1)
def test_two_products_over_parts_of_p_that_end_at_a_kc_block_add_up_to_the_whole(
    seed: int, dtype: str, mn: Any, rest: int
) -> None:
    from blisgemm.blocking import kc_for

    k = 1000 + rest
    kc = kc_for(dtype, k)
    a, b, _ = pair_of(seed, dtype, (*mn, k))
    part = blisgemm.gemm(a[:, :kc], b[:kc])
    for pc in range(kc, k, kc):
        part = blisgemm.gemm(a[:, pc : pc + kc], b[pc : pc + kc], part, beta=1)
    expect_same_bits(part, blisgemm.gemm(a, b), (dtype, mn, k, kc))


@given(seeds, dtypes, shapes)
def test_matmul_has_the_bits_of_gemm(seed: int, dtype: str, shape: Any) -> None:
    a, b, _ = pair_of(seed, dtype, shape)
    expect_same_bits(blisgemm.matmul(a, b), blisgemm.gemm(a, b), (dtype, shape))
    expect_same_bits(blisgemm.matmul(a[None], b), blisgemm.gemm(a, b)[None], (dtype, shape, "as a batch"))


@given(seeds, dtypes, shapes)
def test_negating_an_operand_negates_the_product(seed: int, dtype: str, shape: Any) -> None:
    a, b, _ = pair_of(seed, dtype, shape)
    want = -blisgemm.gemm(a, b) + 0  # + 0: a sum that is zero is +0 on both sides
    expect_same_bits(blisgemm.gemm(-a, b) + 0, want, (dtype, shape))
    expect_same_bits(blisgemm.gemm(a, b, alpha=-1) + 0, want, (dtype, shape, "alpha=-1"))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(130, 140, 150), (257, 65, 700), (64, 300, 300), (40, 31, 2000), (1, 4000, 900)])
def test_the_number_of_threads_does_not_change_a_bit(dtype: str, shape: tuple[int, int, int]) -> None:
    a, b, c = pair_of(3, dtype, shape)
    want = blisgemm.gemm(a, b, c, alpha=0.7, beta=1.3, threads=1)
    plans = {blisgemm.make_plan(*shape, dtype, threads=t).threads for t in (1, 2, 3, 4)}
    assert len(plans) > 1, "these shapes were to be worth more than one thread"
    for threads in (2, 3, 4):
        got = blisgemm.gemm(a, b, c, alpha=0.7, beta=1.3, threads=threads)
        expect_equal(got, want, blisgemm.make_plan(*shape, dtype, threads=threads), threads, same_bits=True)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_kernel_with_fma_on_every_way_and_number_of_threads_gives_the_same_bits(dtype: str) -> None:
    fused = [case for case in kernel_paths() if case[0].isa.fma and case[0].acc_dtype == dtype]
    if not fused:
        pytest.skip("no kernel with fma runs on this machine")
    for shape, kc in (((37, 53, 29), 29), ((5, 50, 900), kc_for(dtype, 900)), ((1, 131, 70), 33), ((67, 1, 70), 33)):
        a, b, c = pair_of(4, dtype, shape)
        for alpha, beta in ((0.7, 1.3), (0.7, 0)):  # without beta a direct kernel stores by itself
            want = None
            for case in fused:
                left, right = suited(case[1], a, b)
                plan = tiny_plan(case, left, right, kc=kc)
                got = blisgemm.gemm(left, right, c, alpha=alpha, beta=beta, plan=plan)
                want = got if want is None else want
                expect_equal(got, want, plan, f"{case_id(case)} against {case_id(fused[0])}", same_bits=True)
            if kc == kc_for(dtype, shape[2]):
                got = blisgemm.gemm(a, b, c, alpha=alpha, beta=beta)
                expect_equal(got, want, blisgemm.explain(a, b), "chosen", same_bits=True)


def test_bits_tells_minus_zero_from_plus_zero() -> None:
    assert bits(np.array([0.0])) != bits(np.array([-0.0]))  # what the tests above rely on
