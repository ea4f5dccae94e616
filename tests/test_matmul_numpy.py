"""matmul, point by point as NumPy 2 does it: shapes, out, casts, types, axes, overrides, odd memory."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import DTYPES, draw, expect_equal, lay_out

import blisgemm

matmul = blisgemm.matmul


def numbers(*shape: int, dtype: Any = "float64", seed: int = 0) -> np.ndarray:
    return draw(np.random.default_rng(seed), shape, dtype)


def expect_as_numpy(a: Any, b: Any, **keywords: Any) -> None:
    want, got = np.matmul(a, b, **keywords), matmul(a, b, **keywords)
    assert type(got) is type(want), f"expected a {type(want)}, got a {type(got)}"
    expect_equal(got, want)


# ---- shapes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "operands",
    [
        (2.0, np.ones((2, 2))),
        (np.ones((2, 2)), 2.0),
        (np.array(3.0), np.array(4.0)),
        (np.ones(2), np.float32(1)),
    ],
)
def test_a_scalar_operand_is_refused(operands: tuple[Any, Any]) -> None:
    with pytest.raises(ValueError, match="dimension"):
        np.matmul(*operands)
    with pytest.raises(ValueError, match="dimension"):
        matmul(*operands)


@pytest.mark.parametrize("dtype", DTYPES)
def test_vector_times_vector_is_a_scalar(dtype: str) -> None:
    a, b = numbers(5, dtype=dtype), numbers(5, dtype=dtype, seed=1)
    got = matmul(a, b)
    assert type(got) is np.dtype(dtype).type
    assert got == sum(x * y for x, y in zip(a, b, strict=True)), "a is not conjugated"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((4,), (4, 3)),
        ((3, 4), (4,)),
        ((4,), (2, 4, 3)),
        ((2, 3, 4), (4,)),
        ((2, 1, 3, 4), (5, 4, 2)),
        ((0,), (0,)),
        ((0,), (0, 3)),
        ((3, 0), (0, 2)),
    ],
)
def test_vectors_and_batches_give_numpys_shape_and_value(
    dtype: str, left: tuple[int, ...], right: tuple[int, ...]
) -> None:
    expect_as_numpy(numbers(*left, dtype=dtype), numbers(*right, dtype=dtype, seed=1))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((3, 4), (5, 3)),
        ((4,), (5,)),
        ((3, 4), (3,)),
        ((2, 3, 4), (3, 4, 5)),
        ((3, 4), (2, 5, 4)),
        ((0, 4), (5, 0)),
    ],
)
def test_shapes_that_do_not_fit_are_refused_with_both_sizes(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"mismatch|broadcast"):
        np.matmul(np.ones(left), np.ones(right))
    with pytest.raises(ValueError, match=r"\d.*\d"):
        matmul(np.ones(left), np.ones(right))


# ---- out ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3, 4, 5), (150, 160, 90)])
@pytest.mark.parametrize(
    "layout",
    [
        "C",
        "F",
        "sliced",
        "columns",
        "columns_F",
        "reversed",
        "reversed_rows",
        "unaligned",
        "swapped",
        "field",
    ],
)
def test_out_of_any_order_and_strides_is_written_and_returned(
    dtype: str, shape: tuple[int, int, int], layout: str
) -> None:
    m, n, k = shape
    a, b = numbers(m, k, dtype=dtype), numbers(k, n, dtype=dtype, seed=1)
    out = lay_out(np.full((m, n), 99, dtype), layout)
    assert matmul(a, b, out=out) is out
    expect_equal(out, np.matmul(a, b))
    out[...] = 99
    assert matmul(a, b, out) is out, "out is the third positional argument too"
    assert matmul(a, b, out=(out,)) is out, "a tuple of one is the array"
    expect_equal(out, np.matmul(a, b))


def test_out_may_be_larger_by_broadcasting() -> None:
    for left, right, shape in (
        ((3, 4), (4, 2), (5, 3, 2)),
        ((1, 3, 4), (4, 2), (6, 3, 2)),
        ((4,), (4,), (3,)),
        ((4,), (4, 2), (3, 2)),
    ):
        a, b = numbers(*left), numbers(*right, seed=1)
        out = np.full(shape, np.nan)
        assert matmul(a, b, out=out) is out
        expect_equal(out, np.matmul(a, b, out=np.empty(shape)))


@pytest.mark.parametrize("shape", [(3, 3), (4, 2), (2, 3), (3,), (1, 3, 3), ()])
def test_out_of_another_shape_is_refused_unwritten(shape: tuple[int, ...]) -> None:
    a, b, out = numbers(3, 4), numbers(4, 2), np.full(shape, 7.0)
    with pytest.raises(ValueError):  # noqa: PT011  NumPy's own wording differs by case
        np.matmul(a, b, out=out)
    with pytest.raises(ValueError, match="out"):
        matmul(a, b, out=out)
    assert (out == 7).all()


def test_a_read_only_out_is_refused_in_numpys_words() -> None:
    a, b, out = numbers(3, 4), numbers(4, 2), np.full((3, 2), 7.0)
    out.flags.writeable = False
    with pytest.raises(ValueError, match="output array is read-only"):
        matmul(a, b, out=out)
    assert (out == 7).all()


@pytest.mark.parametrize("bad", [[[0.0]], "x", (np.empty((3, 2)), np.empty((3, 2))), 3])
def test_an_out_that_is_no_array_is_refused(bad: Any) -> None:
    with pytest.raises((TypeError, ValueError)) as numpys:
        np.matmul(numbers(3, 4), numbers(4, 2), out=bad)
    with pytest.raises(TypeError if isinstance(numpys.value, TypeError) else ValueError, match="out"):
        matmul(numbers(3, 4), numbers(4, 2), out=bad)


@pytest.mark.parametrize("dtype", ["int64", "float32", "complex128", "float16", "longdouble", "object", "bool", ">f8"])
def test_out_of_another_dtype_is_cast_or_refused_as_numpy_does(dtype: str) -> None:
    a, b = numbers(3, 4), numbers(4, 2, seed=1)
    out, numpys = np.zeros((3, 2), dtype), np.zeros((3, 2), dtype)
    try:
        np.matmul(a, b, out=numpys)
    except TypeError:
        with pytest.raises(TypeError, match="out"):
            matmul(a, b, out=out)
        assert not out.any()
    else:
        assert matmul(a, b, out=out) is out
        expect_equal(out, numpys)


def test_out_does_not_choose_the_dtype_of_the_sums() -> None:
    a = np.full((1, 2), 2.0**24, np.float32)
    b = np.array([[1], [2.0**-24]], np.float32)
    out = np.empty((1, 1))
    matmul(a, b, out=out)  # 2**24 + 1 rounds in float32
    assert out[0, 0] == 2.0**24


@pytest.mark.parametrize("core", [False, True])
def test_a_broadcast_out_is_refused_unwritten(core: bool) -> None:
    # NumPy writes the same memory several times over here
    base = np.full((3, 2) if not core else (1, 2), 7.0)
    out = np.lib.stride_tricks.as_strided(base, (5, 3, 2) if not core else (3, 2), (0, 16, 8) if not core else (0, 8))
    with pytest.raises(ValueError, match="out"):
        matmul(numbers(3, 4), numbers(4, 2), out=out)
    assert (base == 7).all()


def test_empty_out_is_accepted_in_any_order() -> None:
    for order in ("C", "F"):
        for m, n in ((0, 3), (3, 0), (0, 0)):
            out = np.empty((m, n), order=order)
            assert matmul(np.ones((m, 4)), np.ones((4, n)), out=out) is out


@pytest.mark.parametrize("size", [4, 150])
@pytest.mark.parametrize("dtype", DTYPES)
def test_out_may_overlap_the_inputs_in_every_way(size: int, dtype: str) -> None:
    base = numbers(2 * size + 1, size, dtype=dtype)
    square = numbers(size, size, dtype=dtype, seed=1)

    def whole(x: np.ndarray) -> np.ndarray:
        return x[:size]

    cases = {
        "out is a": lambda x: (whole(x), square, whole(x)),
        "out is b": lambda x: (square, whole(x), whole(x)),
        "out is both": lambda x: (whole(x), whole(x), whole(x)),
        "out is a transposed": lambda x: (whole(x).T, square, whole(x)),
        "out is b transposed": lambda x: (square, whole(x).T, whole(x)),
        "out starts a row later": lambda x: (whole(x), square, x[1 : size + 1]),
        "out starts a row earlier": lambda x: (x[1 : size + 1], square, whole(x)),
        "out is a backwards": lambda x: (whole(x), square, whole(x)[::-1]),
        "out is every second row": lambda x: (whole(x), square, x[: 2 * size : 2]),
    }
    for name, build in cases.items():
        a, b, out = build(base.copy())
        want = np.matmul(a.copy(), b.copy())
        matmul(a, b, out=out)
        expect_equal(out, want, case=name)


# ---- dtypes -------------------------------------------------------------------------------------


def test_int8_wraps_in_its_own_width() -> None:
    a, b = np.full((2, 3), 100, np.int8), np.full((3, 2), 100, np.int8)
    got = matmul(a, b)
    assert got.dtype == np.int8
    assert (got == np.int8((30000 + 128) % 256 - 128)).all()


@pytest.mark.parametrize(
    ("left", "right", "result"),
    [
        ("uint8", "int8", "int16"),
        ("int32", "float32", "float64"),
        ("int16", "float32", "float32"),
        ("bool", "bool", "bool"),
        ("bool", "int8", "int8"),
        ("float32", "float64", "float64"),
        ("float32", "complex64", "complex64"),
        ("float64", "complex64", "complex128"),
        ("float16", "float16", "float16"),
        ("float16", "float32", "float32"),
        ("int64", "uint64", "float64"),
        ("longdouble", "float32", "longdouble"),
        ("clongdouble", "float64", "clongdouble"),
        ("object", "float64", "object"),
        ("uint64", "uint64", "uint64"),
        (">f4", "<f4", "float32"),
        (">f8", ">f8", "float64"),
    ],
)
def test_promotion_is_numpys(left: str, right: str, result: str) -> None:
    a = np.abs(numbers(3, 4).astype(np.int8)).astype(left)
    b = np.abs(numbers(4, 2, seed=1).astype(np.int8)).astype(right)
    got = matmul(a, b)
    assert got.dtype == np.dtype(result)
    expect_equal(got, np.matmul(a, b))


def test_bool_is_or_of_ands() -> None:
    a, b = np.array([[True, True], [False, False], [True, False]]), np.array([[True, False], [True, False]])
    expect_equal(matmul(a, b), np.array([[True, False], [False, False], [True, False]]))


def test_objects_are_multiplied_by_their_own_methods() -> None:
    from fractions import Fraction

    a = np.array([[Fraction(1, 3), Fraction(1, 2)]])
    got = matmul(a, a.T)
    assert got.dtype == object
    assert got[0, 0] == Fraction(13, 36)


def test_longdouble_keeps_its_precision() -> None:
    eps = np.finfo(np.longdouble).eps
    got = matmul(np.array([[1, eps]], np.longdouble), np.ones((2, 1), np.longdouble))
    assert got.dtype == np.longdouble
    assert got[0, 0] == 1 + eps


@pytest.mark.parametrize(
    "bad",
    [
        np.array([["a", "b"]]),
        np.array([[b"a"]]),
        np.array([["2020-01-01"]], "M8[D]"),
        np.zeros((1, 1), [("x", "f8")]),
    ],
)
def test_strings_dates_and_records_are_refused(bad: np.ndarray) -> None:
    with pytest.raises(TypeError):
        np.matmul(bad, np.ones((bad.shape[1], 1)))
    with pytest.raises(TypeError, match="dtype"):
        matmul(bad, np.ones((bad.shape[1], 1)))
    with pytest.raises(TypeError, match="dtype"):
        matmul(np.ones((1, bad.shape[0])), bad)


def test_lists_and_tuples_are_arrays_and_keep_numpys_promotion() -> None:
    expect_as_numpy([[1, 2], [3, 4]], [[1.5], [2.5]])
    expect_as_numpy(((1, 2),), np.ones((2, 1), np.float32))  # a list of ints is int64: float64 comes
    expect_as_numpy([1, 2], [3, 4])
    expect_as_numpy([1.0, 2.0], np.ones((2, 2), np.float32))
    expect_as_numpy([[True]], [[3]])
    expect_as_numpy([np.float32(2)], [np.float32(3)])


def test_dtype_chooses_the_sums_and_casting_limits_it() -> None:
    a, b = numbers(3, 4, dtype="int32"), numbers(4, 2, dtype="int32", seed=1)
    expect_as_numpy(a, b, dtype=np.float64)
    expect_as_numpy(a, b, dtype="complex64", casting="unsafe")
    expect_as_numpy(numbers(3, 4), numbers(4, 2), dtype=np.float32)
    for keywords in ({"dtype": np.float32, "casting": "safe"}, {"dtype": np.int8, "casting": "no"}):
        with pytest.raises(TypeError):
            np.matmul(numbers(3, 4), numbers(4, 2), **keywords)
        with pytest.raises(TypeError, match=r"float64|dtype"):
            matmul(numbers(3, 4), numbers(4, 2), **keywords)


def test_a_casting_or_an_order_that_does_not_exist_is_refused() -> None:
    a = numbers(2, 2)
    for keywords in ({"casting": "loose"}, {"order": "Z"}):
        with pytest.raises((ValueError, TypeError)) as numpys:
            np.matmul(a, a, **keywords)
        with pytest.raises(
            TypeError if isinstance(numpys.value, TypeError) else ValueError, match=next(iter(keywords))
        ):
            matmul(a, a, **keywords)


@pytest.mark.parametrize("order", ["C", "F", "A", "K"])
@pytest.mark.parametrize("layout", ["C", "F"])
def test_order_gives_numpys_memory_order(order: str, layout: str) -> None:
    a, b = lay_out(numbers(3, 4), layout), lay_out(numbers(4, 5), layout)
    want, got = np.matmul(a, b, order=order), matmul(a, b, order=order)
    expect_equal(got, want)
    assert got.strides == want.strides


def test_subnormal_numbers_stay() -> None:
    for dtype in (np.float32, np.float64):
        tiny = np.finfo(dtype).smallest_subnormal
        a = np.diag(np.full(200, tiny)).astype(dtype)
        b = np.ones((200, 200), dtype)
        for left, right in ((a[:5, :5], b[:5, :5]), (a, b)):
            got = matmul(left, right)
            assert (got == tiny).all(), "subnormal operands or results were flushed to zero"
        half = np.full((1, 1), np.finfo(dtype).tiny)
        assert matmul(half.astype(dtype), np.full((1, 1), 0.5, dtype))[0, 0] > 0


def test_floating_point_flags_and_warnings_are_not_raised_for_nan() -> None:
    a = np.full((3, 3), np.nan)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isnan(matmul(a, a)).all()


# ---- odd memory ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "layout", ["swapped", "unaligned", "zero_rows", "zero_columns", "reversed", "field", "sliced", "F"]
)
@pytest.mark.parametrize("shape", [(5, 6, 7), (140, 150, 130)])
def test_odd_inputs_give_the_right_product_and_stay_unchanged(
    dtype: str, layout: str, shape: tuple[int, int, int]
) -> None:
    m, n, k = shape
    a, b = lay_out(numbers(m, k, dtype=dtype), layout), lay_out(numbers(k, n, dtype=dtype, seed=1), layout)
    copies = np.array(a), np.array(b)
    want = np.matmul(copies[0].astype(dtype), copies[1].astype(dtype))
    expect_equal(matmul(a, b), want)
    assert matmul(a, b).dtype.isnative
    expect_equal(a, copies[0])
    expect_equal(b, copies[1])


@pytest.mark.parametrize("dtype", DTYPES)
def test_strides_of_axes_of_length_one_mean_nothing(dtype: str) -> None:
    # NumPy may leave anything there; also a vector's
    for stride in (0, -1, 3, 10**9):
        a = np.lib.stride_tricks.as_strided(numbers(1, 5, dtype=dtype), (1, 5), (stride, np.dtype(dtype).itemsize))
        b = np.lib.stride_tricks.as_strided(
            numbers(5, 1, dtype=dtype, seed=1), (5, 1), (np.dtype(dtype).itemsize, stride)
        )
        out = np.lib.stride_tricks.as_strided(np.empty((1, 1), dtype), (1, 1), (stride, -stride))
        want = np.matmul(np.array(a), np.array(b))
        expect_equal(matmul(a, b), want)
        expect_equal(matmul(a, b, out=out), want)
        expect_equal(matmul(b, a), np.matmul(np.array(b), np.array(a)))


def test_read_only_inputs_are_read() -> None:
    a, b = numbers(3, 4), numbers(4, 2)
    a.flags.writeable = b.flags.writeable = False
    expect_as_numpy(a, b)
    expect_as_numpy(np.frombuffer(a.tobytes()).reshape(3, 4), b)


# ---- axes and other keywords --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("left", "right", "axes"),
    [
        ((4, 3), (4, 5), [(1, 0), (0, 1), (0, 1)]),
        ((3, 4), (4, 5), [(0, 1), (0, 1), (1, 0)]),
        ((4, 3, 2), (4, 2, 5), [(1, 0), (0, 2), (1, 2)]),
        ((3, 2, 4), (4, 2, 5), [(0, 2), (0, 2), (0, 2)]),
        ((3, 4), (4, 5), [(-2, -1), (-2, -1), (-1, -2)]),
        ((4,), (4, 5), [0, (0, 1), 0]),
        ((4,), (4,), [(0,), (0,), ()]),
        ((4,), (4,), [0, 0, ()]),
        ((3, 4), (4,), [(0, 1), (0,), (0,)]),
    ],
)
def test_axes_name_the_matrix_axes_of_inputs_and_output(
    left: tuple[int, ...], right: tuple[int, ...], axes: list[Any]
) -> None:
    a, b = numbers(*left), numbers(*right, seed=1)
    expect_as_numpy(a, b, axes=axes)
    want = np.matmul(a, b, axes=axes)
    if np.ndim(want):
        out = np.zeros_like(want)
        assert matmul(a, b, out=out, axes=axes) is out
        expect_equal(out, want)


@pytest.mark.parametrize(
    "axes",
    [
        None,
        3,
        [(0, 1)],
        [(0, 1), (0, 1)],
        [(0, 0), (0, 1), (0, 1)],
        [(0, 5), (0, 1), (0, 1)],
        [(0,), (0, 1), (0, 1)],
        [(0, 1), (0, 1), "ab"],
        "abc",
    ],
)
def test_axes_that_make_no_sense_are_refused_as_numpy_refuses_them(axes: Any) -> None:
    a, b = numbers(3, 3), numbers(3, 3)
    with pytest.raises((TypeError, ValueError)) as numpys:
        np.matmul(a, b, axes=axes)
    builtin = next(cls for cls in (TypeError, ValueError) if isinstance(numpys.value, cls))
    with pytest.raises(builtin, match=r"ax[ie]s"):
        matmul(a, b, axes=axes)


@pytest.mark.parametrize("keyword", ["where", "axis", "keepdims", "alpha", "threads", "initial"])
def test_keywords_that_numpys_matmul_lacks_are_refused(keyword: str) -> None:
    a = numbers(2, 2)
    with pytest.raises(TypeError):
        np.matmul(a, a, **{keyword: 0})
    with pytest.raises(TypeError, match=keyword):
        matmul(a, a, **{keyword: 0})


def test_operands_are_positional() -> None:
    with pytest.raises(TypeError):
        matmul(x1=numbers(2, 2), x2=numbers(2, 2))
    with pytest.raises(TypeError):
        matmul(numbers(2, 2))


# ---- other types --------------------------------------------------------------------------------


class Tagged(np.ndarray):
    """A subclass with state, as libraries write them."""

    tag: Any = None

    def __array_finalize__(self, obj: Any) -> None:
        self.tag = getattr(obj, "tag", None)


def test_subclasses_survive() -> None:
    a, b = numbers(3, 4), numbers(4, 2)
    for left, right in ((a.view(Tagged), b), (a, b.view(Tagged))):
        expect_as_numpy(left, right)
        assert type(matmul(left, right)) is Tagged
        assert type(matmul(left, right, subok=False)) is np.ndarray
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PendingDeprecationWarning)
        m = np.matrix(a)
        expect_as_numpy(m, np.matrix(b))
        assert type(matmul(m, b)) is np.matrix
        out = np.empty((3, 2)).view(Tagged)
        assert matmul(a, b, out=out) is out


def test_memmaps_are_read_and_written(tmp_path: Path) -> None:
    a = np.memmap(tmp_path / "a", np.float32, "w+", shape=(150, 160))
    b = np.memmap(tmp_path / "b", np.float32, "w+", shape=(160, 140))
    out = np.memmap(tmp_path / "out", np.float32, "w+", shape=(150, 140))
    a[...], b[...] = numbers(150, 160, dtype="f4"), numbers(160, 140, dtype="f4", seed=1)
    want = np.matmul(np.asarray(a), np.asarray(b))
    got = matmul(a, b)
    assert type(got) is type(np.matmul(a, b))
    expect_equal(got, want)
    assert matmul(a, b, out=out) is out
    out.flush()
    expect_equal(np.fromfile(tmp_path / "out", np.float32).reshape(150, 140), want)


class Overriding:
    """Stands for Dask, CuPy, pint, sparse: its own way with ufuncs."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **keywords: Any) -> str:
        self.calls.append((ufunc, method, inputs, keywords))
        return "theirs"

    def __array__(self, *args: Any, **keywords: Any) -> np.ndarray:
        raise AssertionError("a silent asarray of an operand that overrides matmul")


class OverridingSubclass(np.ndarray):
    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **keywords: Any) -> Any:
        return "theirs"


def test_an_operand_with_its_own_array_ufunc_gets_it_called() -> None:
    a = numbers(2, 2)
    for place in (0, 1):
        other = Overriding()
        operands = (other, a) if place == 0 else (a, other)
        assert matmul(*operands) == "theirs"
        ((ufunc, method, inputs, keywords),) = other.calls
        assert ufunc is np.matmul
        assert method == "__call__"
        assert all(x is y for x, y in zip(inputs, operands, strict=True))
        assert not keywords
    other = Overriding()
    assert matmul(a, other, dtype=np.float32, casting="unsafe") == "theirs"
    assert other.calls[0][3] == {"dtype": np.float32, "casting": "unsafe"}


def test_an_out_with_its_own_array_ufunc_gets_it_called() -> None:
    out = Overriding()
    assert matmul(numbers(2, 2), numbers(2, 2), out=out) == "theirs"
    assert out.calls[0][3]["out"] == (out,), "NumPy hands out over as a tuple"


def test_a_subclass_with_its_own_array_ufunc_gets_it_called() -> None:
    a = numbers(2, 2)
    assert matmul(a, a.view(OverridingSubclass)) == "theirs"
    assert matmul(a.view(OverridingSubclass), a.view(OverridingSubclass)) == "theirs"


def test_an_operand_that_opts_out_of_ufuncs_is_refused() -> None:
    class OptedOut:
        __array_ufunc__ = None

    for operands in ((numbers(2, 2), OptedOut()), (OptedOut(), numbers(2, 2))):
        with pytest.raises(TypeError, match="OptedOut"):
            np.matmul(*operands)
        with pytest.raises(TypeError, match="OptedOut"):
            matmul(*operands)


def test_an_object_with_array_is_converted() -> None:
    class Convertible:
        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
            return numbers(2, 2)

    expect_equal(matmul(Convertible(), numbers(2, 2)), numbers(2, 2) @ numbers(2, 2))


def test_a_masked_array_is_refused_and_numpy_ma_dot_is_named() -> None:
    a = numbers(2, 2)
    masked = np.ma.masked_array(a, a > 0)
    for operands in ((masked, a), (a, masked), (masked, masked)):
        with pytest.raises(TypeError, match=r"numpy\.ma\.dot"):
            matmul(*operands)
        with pytest.raises(TypeError, match=r"numpy\.ma\.dot"):
            blisgemm.gemm(*operands)
    with pytest.raises(TypeError, match="MaskedArray"):
        matmul(a, a, out=masked)


def test_gemm_refuses_operands_that_override_numpy_instead_of_stripping_them() -> None:
    with pytest.raises(TypeError, match="Overriding"):
        blisgemm.gemm(Overriding(), numbers(2, 2))


def test_a_sparse_matrix_is_never_wrapped_as_an_object() -> None:
    sparse = pytest.importorskip("scipy.sparse")
    a, b = sparse.csr_array(np.eye(3)), numbers(3, 3)
    with pytest.raises((TypeError, ValueError)) as numpys:
        np.matmul(a, b)
    with pytest.raises(TypeError if isinstance(numpys.value, TypeError) else ValueError):
        matmul(a, b)
    with pytest.raises((TypeError, ValueError)):
        blisgemm.gemm(a, b)


def test_out_as_a_tuple_is_understood_where_the_lanes_decline() -> None:
    for shapes in (((2, 3, 4), (4,)), ((2, 2, 3, 4), (4, 5)), ((2, 3, 4), (2, 4, 5)), ((0, 0, 0), (0,))):
        a, b = (np.ones(shape, np.float32) for shape in shapes)
        for other in (b, b.astype(bool)):
            want = np.matmul(a, other)
            out = np.empty_like(want)
            assert blisgemm.matmul(a, other, out=(out,)) is out
            assert (out == want).all()


class OldWrapper:
    """An operand whose ``__array_wrap__`` is of the form before NumPy 2, as torch's is."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.ones((3, 4), np.float32)

    def __array_wrap__(self, array: np.ndarray) -> tuple[str, np.ndarray]:
        return "wrapped", array


def test_an_array_wrap_of_the_old_form_is_called() -> None:
    word, result = blisgemm.matmul(OldWrapper(), np.ones((4, 2), np.float32))
    assert word == "wrapped"
    assert (result == 4).all()
