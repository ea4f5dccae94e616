"""Plans: what they refuse, what they say, and that the call runs what they say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support import DTYPES

import blisgemm
import blisgemm.limits
from blisgemm.errors import BlisgemmTypeError, BlisgemmValueError
from blisgemm.lane_limits import fast_lane_terms
from blisgemm.machine import current
from blisgemm.machine.known import KNOWN
from blisgemm.plan import Plan, plan_for
from blisgemm.rules import CROWDED_BYTES
from blisgemm.ukernel import catalog
from blisgemm.ukernel.spec import SWEEP_STEPS
from blisgemm.ways import choose_kernel, direct_terms, few_of, turned_columns

PACKED = blisgemm.make_plan(70, 70, 70, path="packed", threads=1)


@pytest.mark.parametrize(
    "change",
    [
        {"ic_ways": 0},
        {"ic_ways": -3, "jr_ways": 0},
        {"jr_ways": -1},
        {"batch_ways": 0},
        {"ic_ways": 2, "batch_ways": 4},
        {"jr_ways": 2},
        {"access": "copied"},
        {"path": "zz"},
        {"blocking": replace(PACKED.blocking, mc=PACKED.kernel.mr + 1)},  # type: ignore[union-attr, type-var]
        {"blocking": replace(PACKED.blocking, kc=0)},  # type: ignore[type-var]
        {"blocking": replace(PACKED.blocking, mt=PACKED.kernel.mr - 1)},  # type: ignore[union-attr, type-var]
        {"blocking": replace(PACKED.blocking, nb=PACKED.kernel.nr + 1)},  # type: ignore[union-attr, type-var]
    ],
    ids=str,
)
def test_an_altered_plan_that_makes_no_sense_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(BlisgemmValueError, match=r"expected .*got"):
        replace(PACKED, **change)


@pytest.mark.parametrize(
    ("arguments", "keywords", "error", "words"),
    [
        ((True, 2, 2), {}, BlisgemmTypeError, "m: expected"),
        ((2, 2.0, 2), {}, BlisgemmTypeError, "n: expected"),
        ((2, 2, -1), {}, BlisgemmValueError, "k: expected"),
        ((2**70, 2, 2), {}, BlisgemmValueError, "m: expected"),
        ((2, 2, 2, "int32"), {"path": "direct"}, BlisgemmValueError, "path: expected None"),
        ((2, 2, 2, "int32"), {"kernel": "f32_6x16_avx2"}, BlisgemmValueError, "kernel: expected None"),
        ((2, 2, 2, "no such"), {}, BlisgemmTypeError, "dtype: expected"),
        ((2, 2, 2), {"path": "sideways"}, BlisgemmValueError, "path: expected"),
        ((2, 2, 2), {"blocking": (1, 2)}, BlisgemmTypeError, "blocking: expected"),
        ((300, 1, 600), {"path": "stream"}, BlisgemmValueError, "computed transposed"),
        ((300, 1, 600), {"path": "sweep"}, BlisgemmValueError, "computed transposed"),
    ],
)
def test_make_plan_names_the_argument(arguments: Any, keywords: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        blisgemm.make_plan(*arguments, **keywords)


def test_a_forced_blocking_takes_no_more_memory_than_the_problem() -> None:
    kernel = choose_kernel("float32", "packed")[0]
    huge = (kernel.mr * 10**9, kernel.nr * 10**9, 10**9)
    plan = blisgemm.make_plan(70, 70, 70, path="packed", blocking=huge, threads=1)
    assert plan.workspace_bytes < 1 << 20
    a = np.ones((70, 70), np.float32)
    assert (blisgemm.gemm(a, a, plan=plan) == 70).all()


def test_a_plan_for_a_machine_without_l3_speaks_of_memory() -> None:
    machine = KNOWN["apple-m1"]
    kernel = catalog.preferred("float32", machine.isa, "packed")
    from blisgemm.blocking import choose_blocking

    text = str(
        Plan(2000, 2000, 2000, "float32", "packed", kernel, choose_blocking(machine, kernel, 2000, 2000, 2000), machine)
    )
    assert "memory" in text
    assert "L4" not in text


@pytest.mark.parametrize("n", [1, 8, 40, int(fast_lane_terms("float32")[0] ** (1 / 3) + 1e-9)])
def test_a_product_of_the_fast_lane_is_planned_as_it_runs(n: int) -> None:
    plan = blisgemm.make_plan(n, n, n, threads=8)
    assert plan.path == "direct"
    assert plan.threads == 1
    assert plan.kernel == choose_kernel("float32", "direct")[0]


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_rows_of_b_that_crowd_l1_lower_the_limit_of_the_direct_path(dtype: str) -> None:
    alone, crowded, _ = direct_terms(dtype)
    if crowded == alone or (current().isa.name, dtype) in blisgemm.limits.NEAR:
        pytest.skip(f"{current().isa.name} has one limit for {dtype}, however B lies (limits.DIRECT_EDGES, NEAR)")
    n = round(alone ** (1 / 3))
    a = np.ones((n, n), dtype)
    wide = np.ones((n, CROWDED_BYTES // a.itemsize * 2), dtype)
    far, near = wide[:, :n], np.ascontiguousarray(wide[:, :n])
    assert "path      direct" in blisgemm.explain(a, near)
    text = blisgemm.explain(a, far)
    assert "path      packed" in text
    assert f"a multiple of {CROWDED_BYTES} bytes apart" in text
    assert (blisgemm.matmul(a, far) == n).all()  # the lane leaves it to the same plan
    assert (blisgemm.matmul(a, near) == n).all()


def test_a_few_rows_or_columns_are_not_packed() -> None:
    kernels = {role: choose_kernel("float32", role)[0] for role in ("direct", "row", "column")}
    row = blisgemm.make_plan(1, 3000, 3000)
    assert (row.path, row.kernel, row.step) == ("sweep", kernels["row"], SWEEP_STEPS)
    sweep_rows, _, far_rows, step = few_of(row.machine, "float32")
    if sweep_rows < kernels["direct"].mr <= far_rows:
        rows = blisgemm.make_plan(kernels["direct"].mr, 3000, 3000)
        assert (rows.path, rows.kernel, rows.step) == ("stream", kernels["direct"], step)
    column = blisgemm.make_plan(3000, 1, 3000)  # A by rows is B by columns
    assert (column.path, column.access, column.kernel) == ("direct", "columns", kernels["column"])
    columns = blisgemm.make_plan(3000, 4, 300)
    turned = turned_columns("float32")[1] >= 4
    assert (columns.path, columns.access, columns.swapped) == ("direct", "columns" if turned else "rows", turned)
    assert columns.kernel == kernels["column" if turned else "direct"]
    a, x = np.ones((3000, 700), np.float32), np.arange(700, dtype=np.float32)
    assert (blisgemm.matmul(a, x) == x.sum()).all()
    assert (blisgemm.matmul(x, a.T) == x.sum()).all()
    assert (blisgemm.matmul(np.asfortranarray(a), x) == x.sum()).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_small_c_is_not_packed_however_deep_the_product(dtype: str) -> None:
    isa = current().isa.name
    columns, elements = blisgemm.limits.AS_IT_LIES.get((isa, dtype), blisgemm.limits.AS_IT_LIES_ELSEWHERE)
    n = int(elements**0.5)  # m x n fills the limit on elements, a few rows more pass it
    m, deep = elements // n, 50_000
    plan = blisgemm.make_plan(m, n, deep, dtype, threads=1)
    near = blisgemm.limits.NEAR.get((isa, dtype))
    if near is not None:
        assert plan.path == "direct" and "uses it little" in str(plan)
        assert blisgemm.make_plan(near.edge, near.edge, deep, dtype, threads=1).path == "direct"
        assert blisgemm.make_plan(2 * near.edge, near.edge, deep, dtype, threads=1).path == "packed"
        return
    assert plan.path == "direct" and "packing them gains nothing" in str(plan)
    assert plan_for(m, n, deep, dtype, 1, "crowded").path != "direct"
    if n > columns:
        assert blisgemm.make_plan(m + 40, n, deep, dtype, threads=1).path == "packed"
    if columns:
        assert plan_for(300, columns, deep, dtype, 1, "rows").path == "direct"
        assert plan_for(300, columns, deep, dtype, 1, "crowded").path == "packed"


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_do_not_sweep_along_a_short_b(dtype: str) -> None:
    limit = blisgemm.limits.SHORT_ROW_BYTES.get(current().isa.name, blisgemm.limits.SHORT_ROW_BYTES_ELSEWHERE)
    n = limit // np.dtype(dtype).itemsize
    assert blisgemm.make_plan(1, n, 10**6, dtype, threads=1).path == "direct"
    assert blisgemm.make_plan(1, n + 1, 10**6, dtype, threads=1).path == "sweep"
    a, b = np.ones((2, 5000), dtype), np.ones((5000, n), dtype)
    assert (blisgemm.matmul(a, b) == 5000).all()


@pytest.mark.parametrize(
    ("a_order", "b_order", "shape", "told"),
    [
        ("C", "F", (8, 700, 700), ("direct", "by its columns")),
        ("C", "F", (600, 700, 700), ("packed", "have unit stride")),
        ("C", "C", (3000, 12, 700), ("direct", "along the rows of C")),
        ("C", "C", (900, 900, 40), ("packed", "to repay packing")),
        ("C", "C", (2, 1500, 900), ("sweep", "in steps of")),
        ("F", "C", (1500, 1, 1500), ("sweep", "computed as C'")),
    ],
)
def test_explain_tells_the_way_of_operands_as_they_lie(
    a_order: Any, b_order: Any, shape: tuple[int, int, int], told: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    m, n, k = shape
    monkeypatch.setattr(blisgemm.limits, "DIRECT_SHARE_OF_L2", {})  # as on a machine that no row speaks of
    plan_for.cache_clear()
    a, b = (np.ones(s, np.float32, order) for s, order in (((m, k), a_order), ((k, n), b_order)))
    text = blisgemm.explain(a, b, threads=1)
    plan_for.cache_clear()
    assert f"path      {told[0]}" in text
    assert told[1] in text


@pytest.mark.parametrize(
    ("path", "access", "lying"), [("sweep", "rows", "F"), ("stream", "rows", "F"), ("direct", "rows", "F"),
                                  ("direct", "columns", "C"), ("direct", "columns", "general")],
)  # fmt: skip
def test_a_plan_that_cannot_read_b_as_it_lies_is_refused_and_nothing_is_written(
    path: str, access: str, lying: Any
) -> None:
    plan = replace(blisgemm.make_plan(4, 40, 30, path=path, threads=1), access=access)
    a, b = np.ones((4, 30), np.float32), np.ones((30, 40), np.float32)
    b = np.ones((60, 80), np.float32)[::2, ::2] if lying == "general" else np.array(b, order=lying)
    out = np.full((4, 40), np.nan, np.float32)
    with pytest.raises(BlisgemmValueError, match=r"plan: expected .*unit stride"):
        blisgemm.gemm(a, b, out, beta=1, out=out, plan=plan)
    assert np.isnan(out).all()


@pytest.mark.parametrize("path", ["stream", "sweep"])
def test_a_plan_whose_sums_are_of_other_rows_is_refused(path: str) -> None:
    # C by columns is computed transposed: 300 rows, where the buffer of sums has 3
    m, n, k = 3, 300, 40
    plan = blisgemm.make_plan(m, n, k, path=path, threads=1)
    a, b = np.ones((m, k), np.float32, "F"), np.ones((k, n), np.float32)
    out = np.zeros((m, n), np.float32, "F")
    with pytest.raises(BlisgemmValueError, match=r"plan: expected one for C by columns; got one for C by rows"):
        blisgemm.gemm(a, b, out=out, plan=plan)
    assert (blisgemm.gemm(a, b, out=out, plan=replace(plan, swapped=True)) == k).all()


def test_a_plan_whose_copies_are_of_the_other_operand_is_refused() -> None:
    plan = plan_for(8, 60, 8, "float32", 1, "general")
    assert plan.access == "copied"
    a, b = np.ones((8, 8), np.float32), np.ones((8, 120), np.float32)[:, ::2]
    assert (blisgemm.gemm(a, b, plan=plan) == 8).all()
    with pytest.raises(
        BlisgemmValueError, match=r"plan: expected one for C by columns; got one for C by rows, whose c"
    ):
        blisgemm.gemm(a.T, b, out=np.zeros((8, 60), np.float32, "F"), plan=plan)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("m", "n"), [(96, 1500), (1500, 96)])
def test_a_plan_of_a_team_fits_any_c(dtype: str, m: int, n: int) -> None:
    """One step for C by rows may be many for C by columns, whose buffers must not be filled while they are read."""
    k = 200
    plan = replace(blisgemm.make_plan(m, n, k, dtype, path="packed", threads=2), half=False)
    assert plan.blocking is not None and plan.kernel is not None
    tight = replace(plan.blocking, nb=-(-n // plan.kernel.nr) * plan.kernel.nr)
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, shape).astype(dtype) for shape in ((m, k), (k, n)))
    want = a @ b
    for each in (plan, replace(plan, blocking=tight)):
        for c in (np.zeros((m, n), dtype), np.zeros((m, n), dtype, "F"), np.zeros((m, 2 * n), dtype)[:, ::2]):
            assert (blisgemm.gemm(a, b, out=c, plan=each) == want).all(), c.strides


@pytest.mark.parametrize("path", ["stream", "sweep"])
@pytest.mark.parametrize("change", [{"step": 0}, {"nc": 0}, {"nc": 3}, {"kc": 0}], ids=str)
def test_an_altered_plan_of_parts_that_makes_no_sense_is_refused(path: str, change: dict[str, int]) -> None:
    plan = blisgemm.make_plan(2, 100, 100, path=path, threads=1)
    changes = change if "step" in change else {"blocking": replace(plan.blocking, **change)}  # type: ignore[type-var]
    with pytest.raises(BlisgemmValueError, match=r"expected .*got"):
        replace(plan, **changes)


def test_explain_takes_every_keyword_of_gemm() -> None:
    a = np.ones((4, 4))
    text = blisgemm.explain(a, a, a, alpha=2, beta=1, trans_a=True, epilogue=None, threads=1, order="C")
    assert "path      direct" in text
    with pytest.raises(BlisgemmTypeError, match="epilog: expected"):
        blisgemm.explain(a, a, epilog=None)


def test_a_packed_plan_shows_the_answer_of_low_et_al_beside_its_own() -> None:
    assert "Low et al. (TOMS 43(2), 2016)" in str(blisgemm.make_plan(2000, 2000, 2000))


CHOICES = [
    # few columns: one vector, many rows; but for fewer rows than a direct tile has, little work, or where turning wins
    ("zen3", 1000, 8, 1000, "float32", "direct", "f32_12x8_avx2"),
    ("zen3", 6, 8, 2000, "float32", "direct", "f32_6x16_avx2"),
    ("zen3", 24, 8, 24, "float32", "direct", "f32_6x16_avx2"),
    ("zen3", 1000, 4, 1000, "float32", "direct", "f32_4x16_avx2"),
    ("zen3", 1000, 4, 1000, "float64", "direct", "f64_12x4_avx2"),
    # ... or where A's rows crowd one set of L1, of 8 ways (of 12 with AVX-512)
    ("zen3", 1000, 8, 1024, "float32", "direct", "f32_6x16_avx2"),
    ("zen3", 1000, 8, 512, "float32", "direct", "f32_12x8_avx2"),
    ("zen3", 1000, 4, 512, "float64", "direct", "f64_6x8_avx2"),
    ("skylake-x", 2000, 16, 2048, "float32", "direct", "f32_16x16_avx512"),
    # near blocks of B on AVX2: few rows, by the tile that pads them less; little work; few columns
    ("zen3", 8, 100, 1000, "float32", "direct", "f32_4x24_avx2"),
    ("zen3", 6, 100, 1000, "float32", "direct", "f32_6x16_avx2"),
    ("zen3", 16, 300, 300, "float64", "packed", "f64_4x12_avx2"),
    ("zen3", 16, 180, 180, "float64", "direct", "f64_4x12_avx2"),
    ("zen3", 120, 120, 120, "float32", "direct", "f32_6x16_avx2"),
    ("zen3", 128, 120, 120, "float32", "packed", "f32_4x24_avx2"),
    ("zen3", 96, 96, 96, "float64", "direct", "f64_6x8_avx2"),
    ("zen3", 100, 100, 100, "float64", "packed", "f64_4x12_avx2"),
    ("zen3", 2000, 32, 300, "float32", "direct", "f32_6x16_avx2"),
    ("zen3", 60, 1000, 20, "float32", "packed", "f32_6x16_avx2"),
    ("zen3", 20, 1000, 50, "float32", "direct", "f32_6x16_avx2"),
    # B passes by where rows would be padded and it exceeds L2, or crowds L1 and is large; never short rows
    ("zen3", 8, 1000, 120, "float32", "direct", "f32_4x24_avx2"),
    ("zen3", 8, 1000, 140, "float32", "sweep", "f32_2x32_avx2"),
    ("zen3", 6, 1000, 140, "float32", "direct", "f32_6x16_avx2"),
    ("zen3", 6, 1000, 500, "float32", "sweep", "f32_2x32_avx2"),
    ("zen3", 8, 1024, 33, "float32", "sweep", "f32_2x32_avx2"),
    ("zen3", 8, 1024, 31, "float32", "direct", "f32_6x16_avx2"),
    ("zen3", 8, 200, 5000, "float32", "direct", "f32_4x24_avx2"),
    ("skylake-x", 2000, 16, 2000, "float32", "direct", "f32_16x16_avx512"),
    ("skylake-x", 2000, 8, 2000, "float64", "direct", "f64_16x8_avx512"),
    ("skylake-x", 2000, 2, 2000, "float64", "direct", "f64_8x16_avx512"),
    # blocks of B that stay in L2 are packed for a large C only; the wide tile where they are deep and large
    ("skylake-x", 64, 64, 64, "float32", "direct", "f32_8x32_avx512"),
    ("skylake-x", 120, 120, 120, "float32", "direct", "f32_8x48_avx512"),
    ("skylake-x", 112, 112, 64, "float64", "direct", "f64_8x16_avx512"),
    ("skylake-x", 120, 120, 120, "float64", "direct", "f64_8x24_avx512"),
    ("skylake-x", 312, 312, 312, "float32", "direct", "f32_8x48_avx512"),
    ("skylake-x", 64, 256, 5000, "float32", "direct", "f32_8x48_avx512"),
    ("skylake-x", 340, 384, 312, "float32", "packed", "f32_8x48_avx512"),
    ("skylake-x", 400, 256, 340, "float32", "packed", "f32_8x32_avx512"),
    ("skylake-x", 30, 5000, 20, "float32", "direct", "f32_8x32_avx512"),
    ("skylake-x", 220, 220, 220, "float64", "direct", "f64_8x24_avx512"),
    ("skylake-x", 256, 256, 256, "float64", "packed", "f64_8x24_avx512"),
    ("skylake-x", 256, 256, 4, "float32", "packed", "f32_8x32_avx512"),
    ("skylake-x", 128, 128, 4, "float32", "direct", "f32_8x32_avx512"),
    ("skylake-x", 1000, 4, 1000, "float64", "direct", "f64_8x16_avx512"),
    ("skylake-x", 40_000, 4, 4, "float32", "direct", "f32_16x16_avx512"),
    ("skylake-x", 40_000, 16, 300, "float64", "direct", "f64_8x16_avx512"),
    ("skylake-x", 40_000, 17, 300, "float64", "packed", "f64_8x24_avx512"),
    # strips, unless a B of float64 is very large
    ("skylake-x", 64, 3000, 3000, "float32", "strips", "f32_8x48_avx512"),
    ("skylake-x", 64, 3000, 3000, "float64", "packed", "f64_8x24_avx512"),
    ("skylake-x", 64, 2000, 2000, "float64", "strips", "f64_8x24_avx512"),
]


@pytest.mark.parametrize(("machine", "m", "n", "k", "dtype", "path", "kernel"), CHOICES)
def test_the_way_of_a_product(machine: str, m: int, n: int, k: int, dtype: str, path: str, kernel: str) -> None:
    """What the limits were measured for, on the machines that they were measured for."""
    from blisgemm.teach.elsewhere import plan_on

    plan = plan_on(machine, m, n, k, dtype, threads=1)
    assert plan.kernel is not None and (plan.path, plan.kernel.name) == (path, kernel), plan.reasons


@pytest.mark.parametrize("streamed", [True, False])
def test_a_deep_gram_matrix_is_streamed_on_one_thread_where_it_pays(
    streamed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    isa = current().isa.name
    if isa not in ("avx2", "avx512"):
        pytest.skip(f"with {isa} a product of so many elements of C is packed: no limit of its own was measured")
    monkeypatch.setattr(blisgemm.limits, "STREAMED_GRAMS", (isa,) if streamed else ())
    plan_for.cache_clear()
    try:
        path = "stream" if streamed else "direct"
        assert plan_for(32, 32, 20_000, "float32", 1, "rows", a_rows=False).path == path
        assert plan_for(32, 32, 20_000, "float32", 1, "rows", a_rows=True).path == "direct"
        assert plan_for(32, 32, 20_000, "float32", 2, "rows", a_rows=False).path == "direct"  # C is shared by rows
    finally:
        plan_for.cache_clear()


@pytest.mark.parametrize(
    ("shape", "rows_first"), [((8, 100, 1000), False), ((16, 100, 200), False), ((100, 100, 100), True)], ids=str
)
def test_few_rows_go_down_the_columns_of_c_and_many_along_its_rows(
    shape: tuple[int, int, int], rows_first: bool
) -> None:
    from blisgemm.teach.elsewhere import plan_on

    plan = plan_on("zen3", *shape, threads=1)
    assert (plan.path, plan.rows_first) == ("direct", rows_first)


@pytest.mark.parametrize("access", ["copied", "columns", "general"])
@pytest.mark.parametrize("path", ["sweep", "stream", "strips"])
def test_where_b_passes_it_lies_by_rows(path: str, access: str) -> None:
    plan = blisgemm.make_plan(4, 480, 300, "float64", path=path, threads=1)
    with pytest.raises(BlisgemmValueError, match=rf"access: expected rows on the {path} path; got '{access}'"):
        replace(plan, access=access)


def test_a_plan_with_a_kernel_that_does_not_fit_is_refused() -> None:
    plan = blisgemm.make_plan(8, 8, 8, "float32", threads=1)
    a, behind = np.ones((8, 8), np.float32), np.zeros(200, np.float32)
    out = behind[:64].reshape(8, 8)
    others = [
        s for s in catalog.kernels("float32") if s.isa.name not in [isa.name for isa in blisgemm.machine.host_isas()]
    ]
    cases = [
        (replace(plan, kernel=choose_kernel("float64", "direct")[0]), "plan: expected a kernel for float32; got f64_"),
        (replace(plan, kernel=others[0]), "kernel: expected one that this machine can run"),
        (replace(plan, kernel=None), "plan: expected one with a kernel"),
        (replace(plan, blocking=None), "plan: expected one with a kernel"),
        (
            replace(plan, path="empty"),
            "plan: expected one with a kernel and blocks for this product; got the empty path",
        ),
        (replace(plan, path="scale"), "got the scale path"),
    ]
    for altered, words in cases:
        with pytest.raises(BlisgemmValueError, match=words):
            blisgemm.gemm(a, a, out=out, plan=altered)
    assert not behind.any()
