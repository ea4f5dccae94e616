"""Arguments at the edge of what NumPy takes: each gives NumPy's answer or an error that names it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support import run_python

from blisgemm import gemm, matmul
from blisgemm.errors import BlisgemmTypeError, BlisgemmValueError

F4, F8 = np.ones((3, 3), np.float32), np.ones((3, 3))


@pytest.mark.parametrize("casting", ["no", "equiv"])
@pytest.mark.parametrize("multiply", [gemm, matmul, np.matmul])
def test_casting_no_and_equiv_refuse_inputs_that_need_a_cast(multiply: Any, casting: str) -> None:
    with pytest.raises(TypeError):
        multiply(F4, F8, casting=casting)
    assert (multiply(F8, F8, casting=casting) == 3).all()


@pytest.mark.parametrize("multiply", [gemm, matmul, np.matmul])
def test_byte_order_counts_as_a_cast_for_no_but_not_for_equiv(multiply: Any) -> None:
    swapped = F8.astype(F8.dtype.newbyteorder())
    with pytest.raises(TypeError):
        multiply(swapped, F8, casting="no")
    assert (multiply(swapped, F8, casting="equiv") == 3).all()


@pytest.mark.parametrize(
    ("keywords", "error", "words"),
    [
        ({"alpha": 10**400}, BlisgemmValueError, "alpha: expected"),
        ({"beta": 10**400, "c": F8}, BlisgemmValueError, "beta: expected"),
        ({"dtype": "U3"}, BlisgemmTypeError, "dtype: expected"),
        ({"dtype": "V8"}, BlisgemmTypeError, "dtype: expected"),
        ({"dtype": "m8[s]", "casting": "unsafe"}, BlisgemmTypeError, "dtype: expected"),
        ({"acc_dtype": "U2"}, BlisgemmTypeError, "acc_dtype: expected"),
        ({"acc_dtype": "complex64"}, BlisgemmTypeError, "acc_dtype: expected"),
    ],
)
def test_gemm_names_the_argument_that_is_wrong(keywords: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        gemm(F8, F8, **keywords)


@pytest.mark.parametrize("alpha", [2**40, np.int64(2**40), -(2**40)])
def test_a_factor_that_the_integers_cannot_hold_is_refused(alpha: Any) -> None:
    ones = np.ones((2, 2), np.int8)
    with pytest.raises((TypeError, ValueError), match="alpha: expected"):
        gemm(ones, ones, alpha=alpha)


@pytest.mark.parametrize("multiply", [gemm, matmul])
def test_a_dtype_class_stands_for_its_dtype(multiply: Any) -> None:
    assert multiply(F4, F4, dtype=np.dtypes.Float64DType).dtype == np.float64


@pytest.mark.parametrize("multiply", [gemm, matmul, np.matmul])
def test_forty_batch_dimensions_broadcast(multiply: Any) -> None:
    got = multiply(np.ones((1,) * 38 + (2, 3)), np.ones((3, 2)))
    assert got.shape == (1,) * 38 + (2, 2)
    assert (got == 3).all()


@pytest.mark.parametrize("order", [None, "c", "f", "k", "a"])
def test_order_may_be_none_or_lower_case_as_in_numpy(order: Any) -> None:
    want = np.matmul(F8, F8, order=order)
    got = matmul(F8, F8, order=order)
    np.testing.assert_array_equal(got, want)
    assert got.flags.f_contiguous == want.flags.f_contiguous


def test_out_ellipsis_gives_an_array_also_of_no_dimensions() -> None:
    got = matmul(F8[0], F8[0], out=...)
    assert isinstance(got, np.ndarray)
    assert got.shape == ()
    assert got == 3


@pytest.mark.parametrize("multiply", [gemm, matmul])
def test_what_is_no_array_is_named(multiply: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"^(a|x1): expected"):
        multiply([[1], [2, 3]], F8)


def test_without_a_compiler_the_error_says_so() -> None:
    code = """
        import numpy as np, blisgemm
        try:
            blisgemm.matmul(np.ones((2, 2)), np.ones((2, 2)))
        except blisgemm.BlisgemmError as error:
            assert "NUMBA_DISABLE_JIT" in str(error), error
        else:
            raise AssertionError("no error")
    """
    import textwrap

    run_python(textwrap.dedent(code), NUMBA_DISABLE_JIT="1")


def test_numbas_own_limit_is_the_default_number_of_threads() -> None:
    run_python("import blisgemm; assert blisgemm.get_num_threads() == 1", NUMBA_NUM_THREADS="1")
