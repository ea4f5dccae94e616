"""The public tools for testing products: each bug is caught by its very rule, and right functions pass.

Knows: ``blisgemm.testing``. Its own references are NumPy on integers and fractions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import find, given, settings
from hypothesis import strategies as st
from support import run_python
from threadpoolctl import threadpool_limits

import blisgemm
from blisgemm.errors import BlisgemmTypeError, BlisgemmValueError
from blisgemm.testing import (
    INPUT_LAYOUTS,
    OUTPUT_LAYOUTS,
    GemmCase,
    assert_exact,
    assert_within_bound,
    check_gemm,
    check_matmul,
    draw_integers,
    exact_limit,
    exact_product,
    extents_around,
    largest_exact,
    lay_out,
    surroundings,
)
from blisgemm.testing.__main__ import main
from blisgemm.testing.cases import covering
from blisgemm.testing.examples import BUGGY, right
from blisgemm.testing.hints import pattern
from blisgemm.testing.reference import bounds, exact_dots, op
from blisgemm.testing.strategies import (
    KINDS,
    exact_integers,
    gemm_cases,
    layouts,
    matmul_operands,
    matmul_shapes,
    matrices,
    scalars,
    shapes,
    special_values,
    strided,
)


@pytest.fixture(autouse=True)
def one_thread_of_blas() -> Iterator[None]:
    """Products of a few dozen elements, on a machine where others work too."""
    with threadpool_limits(1):
        yield


COMPLEX = ("complex64", "complex128")
FLOATS = ("float32", "float64")

# ---- the battery ---------------------------------------------------------------------------------


def test_this_librarys_gemm_keeps_every_rule() -> None:
    report = check_gemm(blisgemm.gemm, dtypes=["float64"], tiles=(6, 16), count=60).require()
    assert [rule.name for rule in report.rules if rule.skipped] == []
    assert all(rule.calls > 0 for rule in report.rules)


def test_this_librarys_matmul_keeps_every_rule() -> None:
    report = check_matmul(blisgemm.matmul, dtypes=["float64"], tiles=(6, 16), count=60).require()
    assert [rule.name for rule in report.rules if rule.skipped] == []


def test_numpy_keeps_every_rule() -> None:
    assert check_gemm(right, dtypes=(*FLOATS, *COMPLEX), count=60).broken == ()
    assert check_matmul(np.matmul, accepts=["out"], dtypes=(*FLOATS, "int64", "complex64"), count=60).broken == ()


@pytest.mark.parametrize("name", BUGGY)
def test_each_bug_is_caught_by_its_very_rule(name: str) -> None:
    function, rule, words = BUGGY[name]
    report = check_gemm(function, dtypes=["float32"])
    assert rule in report.broken, str(report)
    assert words in " ".join(str(report[rule].failures[0]).split()), str(report)
    # float16 also overflows and rounds; no other example breaks a second rule
    assert report.broken == ((rule,) if name != "half_sums" else ("every-bit", "bound", "extremes"))


def test_a_report_reads_as_what_is_wrong() -> None:
    report = check_gemm(BUGGY["short_k"][0], dtypes=["float64"])
    text = str(report)
    assert text.startswith("short_k: 1 of ")
    assert "fails exactly where k is no multiple of 4" in text
    assert "not asked  beta-zero    it takes no c, beta" in text
    with pytest.raises(AssertionError, match="short_k: 1 of"):
        report.require()


def test_the_battery_is_the_same_for_the_same_seed() -> None:
    function = BUGGY["missing_edge"][0]
    assert check_gemm(function, seed=3) == check_gemm(function, seed=3)
    assert check_gemm(function, seed=3) != check_gemm(function, seed=4)


def test_exceptions_are_findings() -> None:
    def no_vectors(a: Any, b: Any) -> Any:
        if a.shape[0] == 1:
            raise IndexError("tile")
        return right(a, b)

    report = check_gemm(no_vectors, dtypes=["float64"], rules=["exact"])
    assert report.broken == ("exact",)
    assert "fails exactly where m < 2: raised IndexError: tile" in str(report)


def _gemm(break_: str) -> Any:
    """A gemm of all arguments with one of several bugs."""

    def gemm(a: Any, b: Any, c: Any = None, *, alpha: Any = 1, beta: Any = 0, trans_a: Any = False,
             trans_b: Any = False, out: Any = None) -> Any:  # fmt: skip
        if out is not None and break_ == "zeroes out first":
            out[...] = 0
        if break_ == "no conjugate":
            trans_a = {"C": "T", "R": False}.get(trans_a, trans_a)
        if break_ == "alpha twice" and c is not None:
            beta = alpha * beta
        op_a, op_b = op(a, trans_a), op(b, trans_b)
        if break_ == "repeats" and op_a.shape[1] == 1:
            op_a = np.repeat(op_a, op_b.shape[0], axis=1)
        got = right(op_a, op_b, c, alpha=alpha, beta=beta)
        if break_ == "flushes":
            got = np.where(abs(got) < np.finfo(got.dtype).tiny, 0, got).astype(got.dtype)
        if break_ == "changes a" and a.flags.writeable:
            a[...] = 0
        if break_ == "wide":
            got = got.astype(np.result_type(got, np.float64))
        if out is None:
            return got
        if out.shape != got.shape:
            raise ValueError("out")
        out[...] = got
        return out

    return gemm


@pytest.mark.parametrize(
    ("break_", "broken", "words"),
    [
        ("", (), ""),
        ("zeroes out first", ("overlap",), "out begins a row after A"),
        ("no conjugate", ("transposes",), "A is not conjugated"),
        ("alpha twice", ("factors", "alpha-zero"), "C was multiplied by alpha too"),
        ("flushes", ("extremes",), "expected 1.4"),
        ("changes a", ("inputs",), "changed: A"),
        ("repeats", ("refuses",), "1 is not repeated"),
        ("wide", ("exact",), "expected dtype complex64, got complex128"),
    ],
)
def test_rules_of_whole_gemms(break_: str, broken: tuple[str, ...], words: str) -> None:
    report = check_gemm(_gemm(break_), dtypes=["complex64"] if break_ != "flushes" else ["float32"], count=40)
    assert report.broken == broken or break_ == "wide", str(report)
    assert words in str(report)


def test_a_gemm_that_writes_c_in_place_and_needs_it_is_judged_as_such() -> None:
    def blas(a: Any, b: Any, c: Any, alpha: Any, beta: Any) -> None:
        c[...] = right(a, b, np.array(c), alpha=alpha, beta=beta)

    report = check_gemm(blas, dtypes=["float64"], layouts=OUTPUT_LAYOUTS)
    assert report.broken == (), str(report)
    assert report["factors"].calls > 0


def test_matmul_rules_catch_what_numpy_dot_and_a_narrow_product_do() -> None:
    assert check_matmul(np.dot, accepts=[], count=20).broken == ("stacks", "refused")
    report = check_matmul(lambda a, b: (a @ b).astype(a.dtype), dtypes=FLOATS, count=20)
    assert report.broken == ("promotion",)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"accepts": ["gamma"]}, "accepts: expected some of c, alpha"),
        ({"rules": ["all"]}, "rules: expected some of exact"),
        ({"layouts": ["Z"]}, "layouts: expected some of C, F"),
        ({"dtypes": []}, "dtypes: expected at least one"),
        ({"tiles": [0]}, "tiles: expected an integer >= 1; got 0"),
        ({"tiles": []}, "tiles: expected at least one size"),
        ({"tiles": [2.5]}, "tiles: expected an integer >= 1; got 2.5"),
        ({"tiles": 8}, "tiles: expected a sequence of integers; got 8"),
        ({"blocks": "64"}, "blocks: expected a sequence of integers; got '64'"),
        ({"count": 0}, "count: expected an integer >= 1; got 0"),
        ({"count": 1.5}, "count: expected an integer >= 1; got 1.5"),
        ({"seed": -1}, "seed: expected an integer of at least 0; got -1"),
        ({"dtypes": "float32"}, "dtypes: expected a sequence of names; got 'float32'"),
        ({"dtypes": ["f99"]}, "dtypes: expected floats, complex numbers or integers; got 'f99'"),
        ({"dtypes": [None]}, "dtypes: expected floats, complex numbers or integers; got None"),
        ({"dtypes": ["int8"]}, "dtypes: expected some that hold sums of 513 terms exactly; got int8"),
        ({"layouts": "C"}, "layouts: expected a sequence of names; got 'C'"),
        ({"accepts": "out"}, "accepts: expected a sequence of arguments' names; got 'out'"),
        ({"rules": "exact"}, "rules: expected a sequence of names; got 'exact'"),
        ({"rules": []}, "rules: expected at least one, or None for all"),
        ({"rules": ["out"]}, "rules: expected one that right can be asked; out needs out"),
    ],
)
def test_wrong_settings_are_named(words: dict[str, Any], message: str) -> None:
    with pytest.raises((BlisgemmValueError, BlisgemmTypeError), match=message):
        check_gemm(right, **words)
    with pytest.raises(BlisgemmTypeError, match="function: expected a function; got int"):
        check_gemm(3)  # type: ignore[arg-type]


@pytest.mark.skipif(np.finfo(np.longdouble).nmant == np.finfo(float).nmant, reason="no dtype is wider than float64")
def test_a_dtype_that_no_wider_one_can_judge_is_refused() -> None:
    with pytest.raises(BlisgemmTypeError, match="dtypes: expected numbers that a wider dtype can judge"):
        check_gemm(right, dtypes=["longdouble"])
    with pytest.raises(
        BlisgemmTypeError, match="dtype: expected floats or complex numbers, which round, up to 64 bits"
    ):
        assert_within_bound(np.ones((1, 1), np.longdouble), np.ones((1, 1)), np.ones((1, 1)))


def test_the_command_line_judges_a_function_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["numpy:matmul", "--matmul", "--accepts", "out", "--dtypes", "float64"]) == 0
    assert capsys.readouterr().out.startswith("numpy:matmul: all ")
    assert main(["blisgemm.testing.examples:missing_edge", "--rules", "exact"]) == 1
    assert "no multiple of 8" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["no_such_module:f"], "No module named"),
        ([""], "function: expected module:function"),
        ([":f"], "function: expected module:function"),
        (["..x:f"], "function: expected module:function"),
        (["numpy"], "function: expected module:function"),
        (["numpy:no_such"], "function: numpy:no_such can't be had: AttributeError"),
        (["numpy:pi"], "function: expected a function; got float"),
        (["breaks_at_import:f"], "function: breaks_at_import:f can't be had: ZeroDivisionError: division by zero"),
        (["ends_at_import:f"], "function: ends_at_import:f can't be had: SystemExit: 3"),
        (["numpy:matmul", "--rules", ","], "rules: expected at least one"),
        (
            ["numpy:matmul", "--dtypes", "float32, f99"],
            "dtypes: expected floats, complex numbers or integers; got 'f99'",
        ),
    ],
)
def test_the_command_line_says_in_one_line_what_is_wrong(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "breaks_at_import.py").write_text("1 / 0")
    (tmp_path / "ends_at_import.py").write_text("raise SystemExit(3)")
    monkeypatch.syspath_prepend(tmp_path)
    assert main(words) == 2
    found = capsys.readouterr().err
    assert found.startswith(f"blisgemm.testing: error: {message}") and found.count("\n") == 1


def test_a_function_that_ends_the_process_is_a_finding() -> None:
    def leaves(a: Any, b: Any) -> None:
        raise SystemExit("bye")

    report = check_gemm(leaves, dtypes=["float64"], count=3)
    assert report.broken == ("exact", "empty")
    assert report["exact"].failures[0].message.endswith("it ended the process: SystemExit('bye')")
    with pytest.raises(BlisgemmValueError, match=r"name: expected one of exact, .*; got 'no'"):
        report["no"]


@pytest.mark.parametrize("count", [1, 5, 22, 30, 44])
def test_covering_takes_every_value_equally_often_but_for_one(count: int) -> None:
    values = range(22)
    for seed in range(20):
        found = [case["m"] for case in covering(np.random.default_rng(seed), count, m=values)]
        assert len(found) == count
        assert {found.count(x) for x in values} <= {count // 22, -(-count // 22)}


# ---- assertions ----------------------------------------------------------------------------------


def case_of(m: int, n: int, k: int, **words: Any) -> GemmCase:
    rng = np.random.default_rng(0)
    a, b, c = (rng.integers(1, 9, shape).astype(float) for shape in ((m, k), (k, n), (m, n)))
    return GemmCase(a, b, c, **words)


@pytest.mark.parametrize(
    ("got", "words"),
    [
        (lambda x: x.expected[:, :-1], r"expected shape \(5, 7\), got \(5, 6\)"),
        (lambda x: x.expected.astype("f4"), "expected dtype float64, got float32"),
        (lambda x: x.expected + np.eye(5, 7), r"5 of 35 elements wrong, the first at \(0, 0\)"),
        (lambda x: np.where(np.arange(7) < 4, x.expected, 0), "only the last 3 columns of 7.*was not computed"),
        (lambda x: np.where(np.arange(7) < 6, x.expected, 1), "only the last column of 7.*is wrong"),
        (lambda x: np.where(np.arange(5)[:, None] < 4, x.expected, 0), "only the last row of 5"),
        (lambda x: np.where(np.arange(5)[:, None] + np.zeros(7) < 4, x.expected, np.nan), "NaN there"),
        (lambda x: np.full((5, 7), np.nan), "NaN everywhere"),
        (lambda x: x.expected * (np.arange(7) % 3 != 1), "zeros where a product is due"),
        (lambda x: x.expected + (np.arange(7) % 3 == 1), "one column in 3, from column 1 on"),
        (lambda x: x.op_a[:, :-2] @ x.op_b[:-2], "the last 2 terms of k are missing"),
        (lambda x: x.op_a @ x.op_b + x.op_a[:, -1:] @ x.op_b[-1:], "the last term of k is counted twice"),
        (lambda x: x.op_a @ x.op_b + x.c, "C was added although beta = 0"),
    ],
)
def test_messages_tell_what_a_wrong_product_looks_like(got: Any, words: str) -> None:
    case = case_of(5, 7, 9)
    with pytest.raises(AssertionError, match=f"(?s){words}"):
        assert_exact(got(case), case.expected, case)


@pytest.mark.parametrize(
    ("got", "words"),
    [
        (lambda x: 2 * (x.op_a @ x.op_b), "beta \\* C is missing"),
        (lambda x: 2 * (x.op_a @ x.op_b) + x.c, "C was added without beta"),
        (lambda x: x.op_a @ x.op_b + 3 * x.c, "alpha is missing"),
        (lambda x: 2 * (x.op_a @ x.op_b) + 9 * x.c, "beta was applied twice"),
        (lambda x: 2 * (x.op_a @ x.op_b + 3 * x.c), "C was multiplied by alpha too"),
        (lambda x: x.expected.T, "C came out transposed"),
        (lambda x: 2 * (x.a @ x.op_b) + 3 * x.c, r"op\(A\) is ignored"),
    ],
)
def test_messages_name_the_wrong_factor(got: Any, words: str) -> None:
    case = case_of(6, 6, 6, alpha=2, beta=3, trans_a="T")
    with pytest.raises(AssertionError, match=words):
        assert_exact(got(case), case.expected, case)


def test_exact_takes_nan_for_nan_and_any_byte_order() -> None:
    x = np.array([[np.nan, -0.0, np.inf]])
    assert_exact(x.astype(">f8"), np.array([[np.nan, 0.0, np.inf]]))
    with pytest.raises(AssertionError, match=r"1 of 3 .* \(0, 1\): expected nan, got -0.0"):
        assert_exact(x, np.array([[np.nan, np.nan, np.inf]]))


@pytest.mark.parametrize("dtype", [*FLOATS, *COMPLEX])
def test_the_bound_holds_for_numpy_and_not_without_a_term(dtype: str) -> None:
    rng = np.random.default_rng(1)
    a, b, c = (rng.standard_normal((2, *shape)) for shape in ((9, 64), (64, 11), (9, 11)))
    a, b, c = ((x[0] + 1j * x[1] if dtype in COMPLEX else x[0]).astype(dtype) for x in (a, b, c))
    two, three = np.dtype(dtype).type(0.7), np.dtype(dtype).type(-1.3)
    worst = assert_within_bound(two * (a @ b) + three * c, a, b, c, 0.7, -1.3)
    assert 0 < worst.share < 0.2 and worst.roundoffs == pytest.approx(worst.share * worst.roundings)
    assert worst.roundings == (131 if dtype in COMPLEX else 66)
    for got in (a[:, :-1] @ b[:-1], np.full((9, 11), np.nan, dtype)):
        with pytest.raises(AssertionError, match="beyond the bound, the first at"):
            assert_within_bound(got, a, b)
    with pytest.raises(AssertionError, match="expected shape"):
        assert_within_bound(a, a, b)
    assert_within_bound(a.T.conj() @ b[:9], a, b[:9], trans_a="C")


def test_the_bound_is_highams() -> None:
    (part,) = bounds(np.array([[1.0, -2.0]]), np.array([[3.0], [4.0]]), np.array([[10.0]]), 2, -1, "float64")
    u = 2.0**-53
    assert part.product == 2 * (3 - 8) - 10 and part.bracket == 2 * (3 + 8) + 10
    assert part.allowed[0, 0] == pytest.approx(4 * u / (1 - 4 * u) * 32, rel=1e-15)


def test_the_bound_takes_what_is_not_finite_where_it_is_due() -> None:
    a, b, inf, nan = np.ones((2, 1)), np.ones((1, 2)), np.inf, np.nan
    assert_within_bound(np.full((2, 2), inf), a * inf, b)
    assert_within_bound(np.full((2, 2), nan), a * nan, b)
    assert_within_bound(np.zeros((2, 2)), a * nan, b, alpha=0)
    for got, factor in ((-inf, inf), (1.0, inf), (nan, 1.0), (1.0, nan)):
        with pytest.raises(AssertionError, match="4 of 4 elements beyond"):
            assert_within_bound(np.full((2, 2), got), a * factor, b)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"factor": math.nan}, "factor: expected a finite number of at least 0; got nan"),
        ({"factor": -1}, "factor: expected a finite number of at least 0; got -1"),
        ({"factor": "2"}, "factor: expected a number; got '2'"),
        ({"roundings": -5}, "roundings: expected a finite number of at least 0; got -5"),
        ({"trans_a": "Q"}, "trans_a: expected False, True, 'N', 'T', 'C' or 'R'; got 'Q'"),
        ({"b": np.ones((3, 2))}, r"a, b: expected m x k and k x n; got \[2, 1\] and \[3, 2\]"),
        ({"beta": 2}, "c: expected an array, as beta = 2; got None"),
        ({"beta": 2, "c": np.ones((3, 3))}, r"c: expected 2 x 2; got \[3, 3\]"),
        ({"dtype": "f99"}, "dtype: expected floats, complex numbers or integers; got 'f99'"),
        ({"dtype": "int8"}, "dtype: expected floats or complex numbers"),
        ({"got": [[1], [2, 3]]}, "got: expected an array; got list"),
    ],
)
def test_what_the_bound_cannot_take_is_named(words: dict[str, Any], message: str) -> None:
    call: dict[str, Any] = {"got": np.full((2, 2), 9.0), "a": np.ones((2, 1)), "b": np.ones((1, 2)), **words}
    with pytest.raises((BlisgemmValueError, BlisgemmTypeError), match=message):
        assert_within_bound(**call)


def test_exact_dots_are_rounded_once() -> None:
    rng = np.random.default_rng(2)
    a = rng.standard_normal((4, 30)) * np.exp2(rng.integers(-60, 60, (4, 30)))
    b = rng.standard_normal((30, 3)) * np.exp2(rng.integers(-60, 60, (30, 3)))
    for (i, j), value in np.ndenumerate(exact_dots(a, b)):
        exact = sum(Fraction(float(x)) * Fraction(float(y)) for x, y in zip(a[i], b[:, j], strict=True))
        assert value == float(exact)


# ---- values --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", *FLOATS, *COMPLEX, "int16"])
@pytest.mark.parametrize("k", [1, 7, 100, 2000])
@pytest.mark.parametrize(("alpha", "beta"), [(1, 0), (-3, 2), (0.5, -1.5)])
def test_largest_exact_is_the_largest(dtype: str, k: int, alpha: float, beta: float) -> None:
    terms, parts = (4, 2) if dtype in COMPLEX else (1, 1)
    unit = 2 if alpha == 0.5 else 1

    def most(size: int) -> float:
        return unit * (max(1, abs(alpha)) * k * terms * size**2 + abs(beta) * parts * size)

    limit = exact_limit(dtype)
    if most(1) > limit:
        with pytest.raises(BlisgemmValueError, match="k: expected few enough terms"):
            largest_exact(dtype, k, alpha, beta)
        return
    found = largest_exact(dtype, k, alpha, beta)
    assert most(found) <= limit < most(found + 1)
    values = draw_integers(np.random.default_rng(0), (50, 50), dtype, k=k, alpha=alpha, beta=beta)
    assert max(np.abs(values.real).max(), np.abs(values.imag).max()) <= found


def test_exact_product_is_that_of_fractions_and_refuses_what_is_not_exact() -> None:
    case = case_of(3, 4, 5, alpha=0.5, beta=-1.5)
    for i, j in np.ndindex(3, 4):
        total = sum(Fraction(x) * Fraction(y) for x, y in zip(case.a[i].tolist(), case.b[:, j].tolist(), strict=True))
        assert case.expected[i, j] == total / 2 - Fraction(3, 2) * Fraction(case.c[i, j])
    with pytest.raises(BlisgemmValueError, match="a: expected integer values"):
        exact_product(case.a + 0.5, case.b)
    with pytest.raises(BlisgemmValueError, match="fits 62 bits"):
        exact_product(case.a * 2**30, case.b * 2**30)
    with pytest.raises(BlisgemmValueError, match="finite factors"):
        exact_product(case.a, case.b, alpha=math.nan)
    with pytest.raises(BlisgemmValueError, match=r"a, b: expected m x k and k x n; got \[3, 5\] and \[3, 5\]"):
        exact_product(case.a, case.a)
    with pytest.raises(BlisgemmValueError, match="c: expected an array, as beta = 2"):
        GemmCase(case.a, case.b, beta=2).expected  # noqa: B018
    with pytest.raises(BlisgemmTypeError, match="b: expected an ndarray; got int"):
        GemmCase(case.a, 3)  # type: ignore[arg-type]
    with pytest.raises(BlisgemmTypeError, match="case: expected a GemmCase or None; got 3"):
        assert_exact(case.a, case.a + 1, 3)  # type: ignore[arg-type]
    assert (exact_product(case.a * math.nan, case.b, case.c, 0, 2) == 2 * case.c).all()


def test_extents_lie_around_tiles() -> None:
    assert {7, 8, 9, 15, 17, 1, 2, 3, 13} <= set(extents_around([8]))
    assert 0 in extents_around([8], zero=True) and 0 not in extents_around([1])


def test_a_pattern_is_told_only_if_it_tells_all() -> None:
    found = [((m, n, 4), m % 6 != 0) for m in range(1, 40) for n in (3, 5)]
    assert pattern(found) == "fails exactly where m is no multiple of 6: "
    assert pattern([*found, ((6, 3, 4), True)]) == ""
    assert pattern([(shape, True) for shape, _ in found]) == pattern([]) == ""


# ---- layouts -------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", INPUT_LAYOUTS)
@pytest.mark.parametrize("shape", [(3, 5), (1, 1), (0, 4), (4, 0)])
def test_layouts_keep_values(layout: str, shape: tuple[int, int]) -> None:
    values = np.arange(float(np.prod(shape))).reshape(shape)
    view = lay_out(values, layout)
    assert view.shape == shape
    if layout in OUTPUT_LAYOUTS:
        assert np.array_equal(view, values) and not np.shares_memory(view, values)
        before = surroundings(view)
        view[...] = 5
        assert surroundings(view) == before and (view == 5).all()
    elif values.size > 1:
        assert 0 in view.strides
    with pytest.raises(BlisgemmValueError, match="layout: expected one of C, F"):
        lay_out(values, "Z")


# ---- strategies ----------------------------------------------------------------------------------


@given(gemm_cases(["float64"]))
def test_drawn_cases_are_exact_with_this_librarys_gemm(case: GemmCase) -> None:
    assert_exact(blisgemm.gemm(case.a, case.b, case.c, **case.factors), case.expected, case)


@given(gemm_cases(["float64"], tiles=[8], factors=False, trans=[False], layouts=["C"], zero=False))
def test_a_drawn_case_is_what_was_asked_for(case: GemmCase) -> None:
    assert case.c is None and case.dtype == np.float64 and min(case.shape) > 0
    assert case.a.flags.c_contiguous and not case.trans_a
    assert_exact(case.a @ case.b, case.expected, case)  # BLAS sums in any order
    assert "float64" in repr(case) and "array(" in repr(case)


@given(matmul_operands(["float64"]))
def test_drawn_operands_suit_matmul(pair: tuple[np.ndarray, np.ndarray]) -> None:
    assert_exact(blisgemm.matmul(*pair), np.matmul(*pair))


@given(st.data())
def test_strategies_draw_what_they_say(data: st.DataObject) -> None:
    m, n, k = data.draw(shapes([8], [32], largest=20, zero=False))
    assert min(m, n, k) >= 1 and max(m, n) <= 20 and k <= 65
    dtype = data.draw(st.sampled_from((*FLOATS, *COMPLEX)))
    x = data.draw(exact_integers(dtype, (m, k), most=3))
    assert x.dtype == dtype and x.shape == (m, k) and np.abs(x.real).max() <= 3 and (x.real == np.rint(x.real)).all()
    view = data.draw(strided(x))
    assert np.array_equal(view, x)
    assert lay_out(x, data.draw(layouts(output=True))).flags.writeable
    kind = data.draw(st.sampled_from(KINDS))
    y = data.draw(matrices(dtype, (m, n), kind, k=k))
    assert y.shape == (m, n) and (kind == "special" or np.isfinite(y).all())
    factor = data.draw(scalars(dtype))
    assert (2 * factor) == complex(np.rint(2 * complex(factor).real), np.rint(2 * complex(factor).imag))
    assert dtype in COMPLEX or complex(factor).imag == 0
    value = data.draw(special_values(dtype))
    assert not math.isfinite(value) or value == 0 or abs(value) < 1e-30 or abs(value) > 1e30
    of_a, of_b = data.draw(matmul_shapes(max_side=4))
    assert np.matmul(np.zeros(of_a), np.zeros(of_b)).ndim <= 4


def test_hypothesis_finds_and_shrinks_a_forgotten_edge() -> None:
    @settings(database=None, derandomize=True, max_examples=200)
    @given(gemm_cases(["float64"], tiles=[8], factors=False, trans=[False]))
    def property_(case: GemmCase) -> None:
        assert_exact(BUGGY["missing_columns"][0](case.a, case.b), case.expected, case)

    with pytest.raises(AssertionError, match="m n k = 1 1 1"):
        property_()


def test_wrong_choices_are_named() -> None:
    with pytest.raises(BlisgemmValueError, match="kind: expected one of integers"):
        find(matrices("float32", (2, 2), "odd"), lambda x: True)
    with pytest.raises(BlisgemmValueError, match="array: expected a matrix; got 1"):
        strided(np.ones(3))


def test_without_hypothesis_the_battery_works_and_the_strategies_say_what_is_missing() -> None:
    done = run_python(
        """
        import sys
        sys.modules["hypothesis"] = None
        import numpy as np
        from blisgemm.testing import check_gemm
        print(check_gemm(lambda a, b: a @ b, rules=["exact"]).ok, "numba" in sys.modules)
        try:
            import blisgemm.testing.strategies
        except ImportError as error:
            print(error)
        """
    )
    assert done.stdout.splitlines() == [
        "True False",
        "blisgemm.testing.strategies needs the package hypothesis: pip install 'blisgemm[testing]'",
    ]
