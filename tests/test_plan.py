"""Plans: what they refuse, what they say, and that the call runs what they say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import blisgemm
from blisgemm.errors import BlisgemmTypeError, BlisgemmValueError
from blisgemm.machine.known import KNOWN
from blisgemm.plan import DIRECT_TERMS, Plan, choose_kernel
from blisgemm.ukernel import catalog

PACKED = blisgemm.make_plan(70, 70, 70, path="packed", threads=1)


@pytest.mark.parametrize(
    "change",
    [
        {"ic_ways": 0},
        {"ic_ways": -3, "jr_ways": 0},
        {"jr_ways": -1},
        {"batch_ways": 0},
        {"path": "zz"},
        {"blocking": replace(PACKED.blocking, mc=PACKED.kernel.mr + 1)},  # type: ignore[union-attr, type-var]
        {"blocking": replace(PACKED.blocking, kc=0)},  # type: ignore[type-var]
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
        ((300, 1, 600), {"path": "direct"}, BlisgemmValueError, "computed transposed"),
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


@pytest.mark.parametrize("n", [1, 8, 100, round(DIRECT_TERMS ** (1 / 3))])
def test_a_product_of_the_fast_lane_is_planned_as_it_runs(n: int) -> None:
    plan = blisgemm.make_plan(n, n, n, threads=8)
    assert plan.path == "direct"
    assert plan.threads == 1
    assert plan.kernel == choose_kernel("float32", "direct")[0]


def test_one_or_two_rows_use_the_row_kernel_on_either_path() -> None:
    row = choose_kernel("float32", "row")[0]
    assert blisgemm.make_plan(1, 3000, 3000).kernel == row
    assert blisgemm.make_plan(3000, 1, 3000).kernel == row
    a, x = np.ones((3000, 700), np.float32), np.arange(700, dtype=np.float32)
    assert (blisgemm.matmul(a, x) == x.sum()).all()
    assert (blisgemm.matmul(x, a.T) == x.sum()).all()


def test_explain_takes_every_keyword_of_gemm() -> None:
    a = np.ones((4, 4))
    text = blisgemm.explain(a, a, a, alpha=2, beta=1, trans_a=True, epilogue=None, threads=1, order="C")
    assert "path      direct" in text
    with pytest.raises(BlisgemmTypeError, match="epilog: expected"):
        blisgemm.explain(a, a, epilog=None)


def test_a_packed_plan_shows_the_answer_of_low_et_al_beside_its_own() -> None:
    assert "Low et al. (TOMS 43(2), 2016)" in str(blisgemm.make_plan(2000, 2000, 2000))
