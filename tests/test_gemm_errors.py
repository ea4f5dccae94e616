"""Every bad argument of gemm and make_plan: the right class, a message that names it, and nothing written."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support import DTYPES, run_python

import blisgemm
from blisgemm.errors import BlisgemmError, BlisgemmTypeError, BlisgemmValueError

A, B, C = np.ones((3, 4)), np.ones((4, 5)), np.ones((3, 5))


def frozen(x: np.ndarray) -> np.ndarray:
    x = x.copy()
    x.flags.writeable = False
    return x


def square_plan(**keywords: Any) -> Any:
    return blisgemm.make_plan(4, 4, 4, "float64", **keywords)


# name: (arguments, keywords, class, words of the message: the argument first, then what came)
CASES: dict[str, tuple[tuple[Any, ...], dict[str, Any], Any, tuple[str, ...]]] = {
    "inner extents differ": ((A, np.ones((6, 5))), {}, ValueError, ("b", "4", "6")),
    "inner extents differ, transposed": ((A, B), {"trans_a": True}, ValueError, ("b", "3", "4")),
    "a is a vector": ((np.ones(4), B), {}, ValueError, ("a", "(4,)")),
    "b is a vector": ((A, np.ones(4)), {}, ValueError, ("b", "(4,)")),
    "a is a scalar": ((2.0, B), {}, ValueError, ("a", "()")),
    "batches do not broadcast": (
        (np.ones((2, 3, 4)), np.ones((3, 4, 5))),
        {},
        ValueError,
        ("b", "(2,)", "(3,)"),
    ),
    "a holds strings": ((np.array([["x"]]), B), {}, TypeError, ("a", "U1")),
    "b holds dates": ((A, np.zeros((4, 5), "M8[D]")), {}, TypeError, ("b", "datetime64")),
    "c has another shape": ((A, B, np.ones((5, 3))), {"beta": 1}, ValueError, ("c", "(3, 5)", "(5, 3)")),
    "c has another shape, beta 0": ((A, B, np.ones((5, 3))), {}, ValueError, ("c", "(3, 5)", "(5, 3)")),
    "c is complex, the product real": ((A, B, C * 1j), {"beta": 1}, TypeError, ("c", "complex128")),
    "c holds strings": ((A, B, np.full((3, 5), "x")), {"beta": 1}, TypeError, ("c", "U1")),
    "c missing with beta": ((A, B), {"beta": 1}, ValueError, ("c", "None")),
    "c missing with beta nan": ((A, B), {"beta": np.nan}, ValueError, ("c", "None")),
    "c missing, out given, beta": ((A, B), {"beta": 0.5, "out": C.copy()}, ValueError, ("c", "None")),
    "alpha is a string": ((A, B), {"alpha": "1"}, TypeError, ("alpha", "'1'")),
    "alpha is None": ((A, B), {"alpha": None}, TypeError, ("alpha", "None")),
    "alpha is an array": ((A, B), {"alpha": np.ones(3)}, TypeError, ("alpha",)),
    "alpha is complex, the product real": ((A, B), {"alpha": 1j}, TypeError, ("alpha", "1j")),
    "beta is complex, the product real": ((A, B, C), {"beta": 1 + 0j}, TypeError, ("beta", "(1+0j)")),
    "beta is a list": ((A, B, C), {"beta": [1]}, TypeError, ("beta", "[1]")),
    "beta is None": ((A, B, C), {"beta": None}, TypeError, ("beta", "None")),
    "alpha no integer, the product of integers": (
        (A.astype(int), B.astype(int)),
        {"alpha": 0.5},
        TypeError,
        ("alpha", "0.5"),
    ),
    "alpha beyond the integers of the product": (
        (A.astype("i4"), B.astype("i4")),
        {"alpha": 2**40},
        (TypeError, ValueError),
        ("alpha", str(2**40)),
    ),
    "alpha not in the range of the sums of bytes": (
        (A.astype("i1"), B.astype("i1")),
        {"alpha": np.int64(2**40)},
        (TypeError, ValueError),
        ("alpha", str(2**40)),
    ),
    "trans_a unknown": ((A, B), {"trans_a": "H"}, ValueError, ("trans_a", "'H'")),
    "trans_b unknown": ((A, B), {"trans_b": 2}, ValueError, ("trans_b", "2")),
    "trans_b None": ((A, B), {"trans_b": None}, ValueError, ("trans_b", "None")),
    "trans_a unhashable": ((A, B), {"trans_a": ["T"]}, ValueError, ("trans_a",)),
    "trans_a in lower case": ((A, B), {"trans_a": "t"}, ValueError, ("trans_a", "'t'")),
    "out read-only": ((A, B), {"out": frozen(C)}, ValueError, ("out", "output array is read-only")),
    "out of another shape": ((A, B), {"out": np.ones((5, 3))}, ValueError, ("out", "(3, 5)", "(5, 3)")),
    "out larger": ((A, B), {"out": np.ones((2, 3, 5))}, ValueError, ("out", "(3, 5)", "(2, 3, 5)")),
    "out of integers": ((A, B), {"out": np.ones((3, 5), int)}, TypeError, ("out", "int64")),
    "out real, product complex": ((A * 1j, B), {"out": C.copy()}, TypeError, ("out", "float64")),
    "out narrower, casting safe": (
        (A, B),
        {"out": np.ones((3, 5), "f4"), "casting": "safe"},
        TypeError,
        ("out", "float32"),
    ),
    "out is a list": ((A, B), {"out": [[0.0] * 5] * 3}, TypeError, ("out", "list")),
    "out repeats one row": (
        (A, B),
        {"out": np.lib.stride_tricks.as_strided(C, strides=(0, 8))},
        ValueError,
        ("out",),
    ),
    "dtype unknown": ((A, B), {"dtype": "quarter"}, TypeError, ("dtype", "quarter")),
    "dtype narrower by safe casting": (
        (A, B),
        {"dtype": "float32", "casting": "safe"},
        TypeError,
        ("dtype", "float64", "float32"),
    ),
    "dtype real for complex": (
        (A * 1j, B),
        {"dtype": "float64"},
        TypeError,
        ("dtype", "complex128", "float64"),
    ),
    "acc_dtype unknown": ((A, B), {"acc_dtype": "quarter"}, TypeError, ("acc_dtype", "quarter")),
    "acc_dtype of integers for floats": ((A, B), {"acc_dtype": "int32"}, TypeError, ("acc_dtype", "int32")),
    "casting unknown": ((A, B), {"casting": "loose"}, ValueError, ("casting", "loose")),
    "order unknown": ((A, B), {"order": "Z"}, ValueError, ("order", "Z")),
    "order None": ((A, B), {"order": 3}, ValueError, ("order", "3")),
    "epilogue given": ((A, B), {"epilogue": "relu"}, TypeError, ("epilogue", "relu")),
    "threads zero": ((A, B), {"threads": 0}, ValueError, ("threads", "0")),
    "threads negative": ((A, B), {"threads": -2}, ValueError, ("threads", "-2")),
    "threads no integer": ((A, B), {"threads": 1.5}, TypeError, ("threads", "1.5")),
    "threads a string": ((A, B), {"threads": "2"}, TypeError, ("threads", "'2'")),
    "plan is no plan": ((A, B), {"plan": "packed"}, TypeError, ("plan", "str")),
    "plan for another m": (
        (A, B),
        {"plan": blisgemm.make_plan(4, 5, 4, "float64")},
        ValueError,
        ("plan", "3, 5, 4", "4, 5, 4"),
    ),
    "plan for another k": (
        (A, B),
        {"plan": blisgemm.make_plan(3, 5, 5, "float64")},
        ValueError,
        ("plan", "3, 5, 4", "3, 5, 5"),
    ),
    "plan for another dtype": (
        (A, B),
        {"plan": blisgemm.make_plan(3, 5, 4, "float32")},
        ValueError,
        ("plan", "float64", "float32"),
    ),
    "plan for a real product": (
        (A * 1j, B),
        {"plan": blisgemm.make_plan(3, 5, 4, "float64")},
        ValueError,
        ("plan", "complex128", "float64"),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_bad_argument_is_named_with_what_was_expected_and_what_came(name: str) -> None:
    args, keywords, cls, words = CASES[name]
    with pytest.raises(cls) as caught:
        blisgemm.gemm(*args, **keywords)
    message = str(caught.value)
    assert isinstance(caught.value, BlisgemmError), f"expected one of blisgemm's own exceptions, got {caught.type}"
    assert message.startswith(f"{words[0]}: "), (
        f"expected a message that starts with the argument {words[0]!r}: {message}"
    )
    missing = [word for word in (*words, "expected", "got") if word not in message]
    assert not missing, f"missing {missing} in: {message}"


@pytest.mark.parametrize("name", CASES)
def test_nothing_is_written_before_an_error(name: str) -> None:
    args, keywords, cls, _ = CASES[name]
    if "out" not in keywords:
        product = np.broadcast_shapes(args[0].shape[:-2], ()) if np.ndim(args[0]) > 2 else ()
        keywords = {
            **keywords,
            "out": np.full((*product, 3, 5), 7.0, "c16" if np.iscomplexobj(args[0]) else "f8"),
        }
    out = keywords["out"]
    before = np.array(out, copy=True)
    with pytest.raises(cls):
        blisgemm.gemm(*args, **keywords)
    assert np.array_equal(out, before), "out was written before the error"
    assert (A == 1).all() and (B == 1).all() and (C == 1).all(), "an input was written"


def test_unknown_and_positional_keywords_are_refused() -> None:
    with pytest.raises(TypeError, match="transpose_a"):
        blisgemm.gemm(A, B, transpose_a=True)
    with pytest.raises(TypeError):
        blisgemm.gemm(A, B, C, 2.0)
    with pytest.raises(TypeError):
        blisgemm.gemm(A)


@pytest.mark.parametrize("dtype", DTYPES)
def test_without_out_c_is_untouched_and_with_out_c_it_is_updated_in_place(dtype: str) -> None:
    for n in (5, 150):
        a, b = np.eye(n, dtype=dtype), np.full((n, n), 2, dtype)
        c = np.full((n, n), 3, dtype)
        got = blisgemm.gemm(a, b, c, beta=1)
        assert got is not c
        assert (c == 3).all()
        assert (got == 5).all()
        assert blisgemm.gemm(a, b, c, beta=1, out=c) is c
        assert (c == 5).all()


def test_beta_is_never_one_unless_given() -> None:
    assert (blisgemm.gemm(A, B, np.full((3, 5), 100.0)) == 4).all()


def test_a_plan_for_the_wrong_path_of_these_operands_is_refused_and_nothing_written() -> None:
    plan = blisgemm.make_plan(4, 4, 4, "float64", path="direct")
    b = np.arange(16.0).reshape(4, 4).T  # its rows have no unit stride, which the direct path needs
    out, c = np.full((4, 4), 7.0), np.full((4, 4), 2.0)
    with pytest.raises(ValueError, match=r"plan: expected .* got the direct path"):
        blisgemm.gemm(np.eye(4), b, c, beta=1, out=out, plan=plan)
    assert (out == 7).all(), "out was written before the error"


def test_a_plan_that_names_more_than_it_may_is_harmless() -> None:
    # ways beyond the micro-panels there are: threads without work
    plan = replace(square_plan(path="packed", threads=1), ic_ways=4)
    assert (blisgemm.gemm(np.eye(4), np.full((4, 4), 3.0), plan=plan) == 3).all()


PLANS: dict[str, tuple[tuple[Any, ...], dict[str, Any], Any, tuple[str, ...]]] = {
    "m negative": ((-1, 2, 3), {}, ValueError, ("m", "-1")),
    "n no integer": ((1, 2.5, 3), {}, TypeError, ("n", "2.5")),
    "k a string": ((1, 2, "3"), {}, TypeError, ("k", "'3'")),
    "dtype unknown": ((1, 2, 3, "quarter"), {}, TypeError, ("dtype", "quarter")),
    "kernel unknown": ((9, 9, 9), {"kernel": "f32_99x99_avx2"}, ValueError, ("kernel", "f32_99x99_avx2")),
    "kernel of another dtype": (
        (9, 9, 9, "float64"),
        {"kernel": "f32_4x8_generic"},
        ValueError,
        ("kernel", "float64", "f32_4x8_generic"),
    ),
    "kernel no kernel": ((9, 9, 9), {"kernel": 7}, TypeError, ("kernel", "7")),
    "path unknown": ((9, 9, 9), {"path": "fastest"}, ValueError, ("path", "fastest")),
    "blocking of two": ((9, 9, 9), {"blocking": (4, 8)}, TypeError, ("blocking", "(4, 8)")),
    "blocking no integers": ((9, 9, 9), {"blocking": (4.5, 8, 3)}, TypeError, ("blocking", "4.5")),
    "blocking not whole tiles": (
        (9, 9, 9),
        {"kernel": "f32_4x8_generic", "blocking": (5, 8, 3)},
        ValueError,
        ("blocking", "(5, 8, 3)"),
    ),
    "blocking of zero": (
        (9, 9, 9),
        {"kernel": "f32_4x8_generic", "blocking": (4, 8, 0)},
        ValueError,
        ("blocking", "(4, 8, 0)"),
    ),
    "threads zero": ((9, 9, 9), {"threads": 0}, ValueError, ("threads", "0")),
}


@pytest.mark.parametrize("name", PLANS)
def test_make_plan_names_a_bad_argument(name: str) -> None:
    args, keywords, cls, words = PLANS[name]
    with pytest.raises(cls) as caught:
        blisgemm.make_plan(*args, **keywords)
    message = str(caught.value)
    assert isinstance(caught.value, BlisgemmError)
    assert message.startswith(f"{words[0]}: "), message
    missing = [word for word in (*words, "expected", "got") if word not in message]
    assert not missing, f"missing {missing} in: {message}"


def test_a_kernel_of_a_foreign_machine_is_refused() -> None:
    from blisgemm.machine import host_isas
    from blisgemm.ukernel import catalog

    here = {isa.name for isa in host_isas()}
    foreign = next(spec for spec in catalog.kernels("float32") if spec.isa.name not in here)
    with pytest.raises(ValueError, match=foreign.name):
        blisgemm.make_plan(9, 9, 9, "float32", kernel=foreign.name)


def test_the_exceptions_are_the_builtin_ones_too() -> None:
    assert issubclass(BlisgemmValueError, ValueError)
    assert issubclass(BlisgemmTypeError, TypeError)


def test_a_result_larger_than_memory_addresses_is_refused_without_a_crash() -> None:
    # m * n elements overflow 64 bits of bytes; the operands themselves are a few bytes
    huge = np.lib.stride_tricks.as_strided(np.ones((1, 1)), (2**40, 1), (0, 8))
    for call in (blisgemm.gemm, blisgemm.matmul):
        with pytest.raises((ValueError, MemoryError)):
            call(huge, huge.T)


def test_extents_near_the_largest_integer_are_planned_or_refused_but_never_wrong() -> None:
    largest = 2**62
    for shape in ((largest, 0, 0), (0, largest, 5), (0, 0, largest)):
        assert blisgemm.make_plan(*shape).path in ("empty", "scale")
    with pytest.raises((ValueError, OverflowError)):
        blisgemm.make_plan(2**70, -1, 2)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("BLISGEMM_KERNEL", "f32_99x99_avx2", ("BLISGEMM_KERNEL", "f32_99x99_avx2")),
        ("BLISGEMM_KERNEL", "nonsense", ("BLISGEMM_KERNEL", "nonsense")),
        ("BLISGEMM_ARCH", "pentium", ("BLISGEMM_ARCH", "pentium")),
        ("BLISGEMM_NUM_THREADS", "many", ("BLISGEMM_NUM_THREADS", "many")),
        ("BLISGEMM_NUM_THREADS", "0", ("BLISGEMM_NUM_THREADS", "0")),
        ("BLISGEMM_NUM_THREADS", "-3", ("BLISGEMM_NUM_THREADS", "-3")),
    ],
)
def test_a_bad_environment_variable_is_named_at_the_first_product_not_at_import(
    name: str, value: str, words: tuple[str, ...]
) -> None:
    done = run_python(
        """
        import numpy as np, blisgemm
        print("imported")
        try:
            blisgemm.gemm(np.ones((300, 300), np.float32), np.ones((300, 300), np.float32))
        except blisgemm.OverrideError as error:
            print(error)
        """,
        **{name: value},
    )
    assert done.stdout.startswith("imported")
    for word in (*words, "expected", "got"):
        assert word in done.stdout


def test_blisgemm_kernel_forces_that_kernel_and_leaves_other_dtypes_theirs() -> None:
    done = run_python(
        """
        import numpy as np, blisgemm
        for path in ("direct", "packed"):
            print(blisgemm.make_plan(50, 60, 70, "float32", path=path).kernel.name)
        print(blisgemm.make_plan(50, 60, 70, "float64").kernel.acc_dtype)
        a = np.arange(12, dtype=np.float32).reshape(3, 4)
        print((blisgemm.gemm(a, a.T) == a @ a.T).all())
        """,
        BLISGEMM_KERNEL="f32_4x8_generic",
    )
    assert done.stdout.split() == ["f32_4x8_generic", "f32_4x8_generic", "float64", "True"]


def test_blisgemm_num_threads_limits_the_plan() -> None:
    code = "import blisgemm; print(blisgemm.get_num_threads(), blisgemm.make_plan(900, 900, 900).threads)"
    assert run_python(code, BLISGEMM_NUM_THREADS="3").stdout.split() == ["3", "3"]
    assert run_python(code, BLISGEMM_NUM_THREADS="1").stdout.split() == ["1", "1"]


def test_blisgemm_verbose_tells_on_standard_error_what_is_compiled_or_loaded() -> None:
    code = "import numpy as np, blisgemm; blisgemm.gemm(np.ones((2, 2)), np.ones((2, 2)))"
    assert "blisgemm" in run_python(code, BLISGEMM_VERBOSE="1").stderr
    assert run_python(code).stderr == ""


@pytest.mark.parametrize("value", [0, -1, 1.5, "2", True])
def test_a_bad_number_of_threads_is_refused_and_changes_nothing(value: Any) -> None:
    before = blisgemm.get_num_threads()
    cls = ValueError if type(value) is int else TypeError
    with pytest.raises(cls, match=r"n: expected .* got"):
        blisgemm.set_num_threads(value)
    with pytest.raises(cls, match=r"n: expected .* got"), blisgemm.num_threads(value):
        pass
    assert blisgemm.get_num_threads() == before
