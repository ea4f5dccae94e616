"""The same bits everywhere: against pinned digests, and against the definition in exact arithmetic.

Machines without fma give other bits and say so in the plan; these tests skip there.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import golden
import numpy as np
import pytest
from support import (
    DTYPES,
    WAYS,
    case_id,
    chain,
    chosen_kernel,
    draw_reals,
    expect_equal,
    fma,
    kernel_paths,
    kernels_here,
    lay_out,
    op,
    run_python,
    suited,
    tiny_plan,
)

import blisgemm
from blisgemm.blocking import KC_MAX, kc_for
from blisgemm.machine import ISAS, current, host_isas

needs_fma = pytest.mark.skipif(
    not current().isa.fma, reason=f"{current().isa.name} has no fma: its sums round twice per term"
)


def wrong_digests(got: dict[str, str]) -> str:
    want = golden.load()
    wrong = sorted(name for name in want.keys() | got.keys() if want.get(name) != got.get(name))
    return "\n".join(f"{name}: expected {want.get(name)}, got {got.get(name)}" for name in wrong)


def test_golden_cases_reach_past_two_kc_blocks_and_cover_every_dtype_and_trans() -> None:
    assert 2 * max(KC_MAX.values()) < golden.LONG, "KC_MAX grew: lengthen golden.LONG"
    seen = list(golden.cases())
    assert {a.dtype.name for _, a, *_ in seen} == set(DTYPES)
    assert {keywords["trans_a"] for *_, keywords in seen} | {keywords["trans_b"] for *_, keywords in seen} == {
        False,
        "T",
        "C",
        "R",
    }
    assert len({name for name, *_ in seen}) == len(seen) == len(golden.load())


@needs_fma
def test_golden_digests_hold_in_this_process() -> None:
    assert not wrong_digests(golden.digests())


@needs_fma
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_golden_digests_hold_on_any_number_of_threads(threads: int) -> None:
    got = {
        name: golden.digest(blisgemm.gemm(a, b, c, threads=threads, **keywords))
        for name, a, b, c, keywords in golden.cases()
    }
    assert not wrong_digests(got)


@needs_fma
@pytest.mark.parametrize("layout", ["F", "sliced", "columns", "reversed", "unaligned", "swapped", "field"])
def test_golden_digests_hold_in_any_layout(layout: str) -> None:
    got = {}
    for name, a, b, c, keywords in golden.cases():
        shape = (op(a, keywords["trans_a"]).shape[0], op(b, keywords["trans_b"]).shape[1])
        out = lay_out(np.zeros(shape, a.dtype), layout)
        c = None if c is None else lay_out(c, layout)
        blisgemm.gemm(lay_out(a, layout), lay_out(b, layout), c, out=out, **keywords)
        got[name] = golden.digest(out)
    assert not wrong_digests(got)


@needs_fma
@pytest.mark.parametrize("way", WAYS)
def test_golden_digests_hold_for_every_kernel_with_fma(way: str) -> None:
    got: dict[str, str] = {}
    for name, a, b, c, keywords in golden.cases():
        a, b = suited(way, op(a, keywords["trans_a"]), op(b, keywords["trans_b"]))
        factors = {"alpha": keywords["alpha"], "beta": keywords["beta"]}
        for case in kernel_paths():
            if case[0].acc_dtype == a.dtype.name and case[0].isa.fma and case[1] == way:
                plan = tiny_plan(case, a, b, kc=kc_for(a.dtype.name, a.shape[1]))
                digest = golden.digest(blisgemm.gemm(a, b, c, plan=plan, **factors))
                assert digest == golden.load()[name], f"{name} on {case_id(case)}\n{plan}"
                got[name] = digest
    assert got.keys() == golden.load().keys()


@needs_fma
@pytest.mark.parametrize(("arch", "threads"), [("haswell", "1"), ("haswell", "2"), ("avx512", "1")])
def test_golden_digests_hold_in_a_process_made_to_use_another_vector_set(arch: str, threads: str) -> None:
    wanted = {"haswell": "avx2"}.get(arch, arch)
    if wanted not in [isa.name for isa in host_isas()]:
        pytest.skip(f"{wanted} doesn't run on this machine")
    done = run_python(
        """
        import json, golden
        from blisgemm.machine import current
        print(json.dumps([current().isa.name, golden.digests()]))
        """,
        BLISGEMM_ARCH=arch, BLISGEMM_NUM_THREADS=threads,
    )  # fmt: skip
    import json

    isa, got = json.loads(done.stdout.splitlines()[-1])
    assert isa == wanted
    assert not wrong_digests(got)


@pytest.mark.parametrize("dtype", DTYPES)
def test_whoever_takes_which_tile_the_bits_are_those_of_one_thread(dtype: str) -> None:
    rng = np.random.default_rng(16)
    spec = chosen_kernel(dtype)
    for m, n, k in ((23 * spec.mr + 1, 13 * spec.nr + 1, 40), (3 * spec.mr, 9 * spec.nr, 23), (5, 7, 11)):
        a, b, c = (draw_reals(rng, shape, dtype) for shape in ((m, k), (k, n), (m, n)))
        want = None
        for threads in (1, 2, 3, 5, 16):
            plan = tiny_plan((spec, "packed", threads), a, b, c)
            for _ in range(5 if threads > 1 else 1):  # each time others take them
                got = blisgemm.gemm(a, b, c, alpha=0.7, beta=1.3, plan=plan)
                want = got if want is None else want
                expect_equal(got, want, plan, (dtype, m, n, k, threads), same_bits=True)


# ---- the definition -----------------------------------------------------------------------------


def defined(a: np.ndarray, b: np.ndarray, c: np.ndarray, alpha: Any, beta: Any, kc: int) -> np.ndarray:
    """Compute alpha a b + beta c as property 2 defines it: exact rationals, one rounding per fma."""
    m, n = c.shape
    out = np.empty_like(c)
    for i, j in product(range(m), range(n)):
        value = None
        for pc in range(0, a.shape[1], kc):
            row, column = a[i, pc : pc + kc], b[pc : pc + kc, j]
            if a.dtype.kind != "c":
                s = chain(row, column)
                if value is None:
                    value = alpha * s if beta == 0 else fma(alpha, s, beta * c[i, j])
                else:
                    value = fma(alpha, s, value)
                continue
            rr, ii = chain(row.real, column.real), chain(row.imag, column.imag)
            ri, ir = chain(row.real, column.imag), chain(row.imag, column.real)
            s_re, s_im = rr - ii, ri + ir
            if value is None:
                if beta == 0:
                    value = (alpha.real * s_re, alpha.real * s_im)
                else:
                    value = (
                        fma(alpha.real, s_re, beta.real * c[i, j].real),
                        fma(alpha.real, s_im, beta.real * c[i, j].imag),
                    )
            else:
                value = (fma(alpha.real, s_re, value[0]), fma(alpha.real, s_im, value[1]))
        out[i, j] = value if a.dtype.kind != "c" else complex(*value)
    return out


@needs_fma
@pytest.mark.parametrize("dtype", DTYPES)
def test_an_element_is_one_chain_of_fmas_per_kc_block_scaled_as_documented(dtype: str) -> None:
    rng = np.random.default_rng(13)
    scalar = np.dtype(dtype).type
    k = 2 * KC_MAX[dtype] + 37
    kc = kc_for(dtype, k)
    assert kc < k
    for (m, n), (alpha, beta) in product(((1, 1), (2, 3)), ((1, 0), (0.7, 0), (0.7, 1.3), (-0.3, 1))):
        a, b, c = (draw_reals(rng, shape, dtype) for shape in ((m, k), (k, n), (m, n)))
        got = blisgemm.gemm(a, b, c, alpha=alpha, beta=beta)
        want = defined(a, b, c, scalar(alpha), scalar(beta), kc)
        expect_equal(got, want, blisgemm.explain(a, b), (dtype, m, n, k, alpha, beta), same_bits=True)


@needs_fma
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_definition_is_sensitive_to_the_order_and_to_the_fusing(dtype: str) -> None:
    # the check itself: another order of p, or a product that rounds, gives other bits
    rng = np.random.default_rng(14)
    a, b, c = (draw_reals(rng, shape, dtype) for shape in ((4, 40), (40, 4), (4, 4)))
    one, zero = a.dtype.type(1), a.dtype.type(0)
    want = defined(a, b, c, one, zero, 40)
    assert (defined(a[:, ::-1], b[::-1], c, one, zero, 40) != want).any()
    assert (defined(a, b, c, one, zero, 7) != want).any()
    rounded_twice = np.zeros_like(c)
    for p in range(40):
        rounded_twice += np.multiply.outer(a[:, p], b[p])
    assert (rounded_twice != want).any()


@needs_fma
def test_kc_depends_on_dtype_and_k_alone() -> None:
    from blisgemm.machine import KNOWN

    for dtype in DTYPES:
        assert {
            blisgemm.make_plan(m, n, 5000, dtype, threads=t).blocking.kc
            for m, n, t in product((2, 300), (3, 400), (1, 2))
        } == {kc_for(dtype, 5000)}
    assert KNOWN, "the known machines are what blocking is tested on elsewhere"


def test_a_kernel_without_fma_says_that_its_bits_are_its_own() -> None:
    if "sse2" not in [isa.name for isa in host_isas()]:
        pytest.skip("no kernel without fma runs on this machine")
    assert not ISAS["sse2"].fma
    spec = next(spec for spec in kernels_here("float32") if not spec.isa.fma)
    assert "fused multiply-add" in str(blisgemm.make_plan(50, 50, 50, "float32", kernel=spec))
    assert "fused multiply-add" not in str(blisgemm.make_plan(50, 50, 50, "float32", kernel=kernels_here("float32")[0]))
