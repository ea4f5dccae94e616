"""What GPU products say of wrong arguments, and what tells one epilogue function from another; no GPU is needed."""

from __future__ import annotations

import types
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from blisgemm import cuda
from blisgemm.cuda.calls import number_of, stream_of
from blisgemm.cuda.epilogue import _digest, parse
from blisgemm.cuda.tiles import OF_THIS_PROCESS

A, B = np.ones((3, 4), np.float32), np.ones((4, 5), np.float32)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"a": A, "b": B[:3]}, "b: expected 4 rows, as a has columns"),
        ({"a": A, "b": B.astype(int)}, "b: expected float32"),
        ({"a": A, "b": B.astype("f8")}, "b: expected float32, as a has"),
        ({"a": A[0], "b": B}, "a: expected at least 2 dimensions"),
        ({"a": np.ma.array(A, mask=True), "b": B}, "a: expected an array without a mask"),
        ({"a": A, "b": B, "beta": 1}, "c: expected an array, since beta is not 0"),
        ({"a": A, "b": B, "c": "nonsense"}, "c: expected"),
        ({"a": A, "b": B, "beta": np.array([0, 0])}, "beta: expected a number"),
        ({"a": A, "b": B, "alpha": "2"}, "alpha: expected a number"),
        ({"a": A, "b": B, "alpha": 10**400}, "alpha: expected a number that fits"),
        ({"a": A, "b": B, "alpha": 1j}, "alpha: expected a real number"),
        ({"a": A, "b": B, "trans_a": 1}, "trans_a: expected False, True"),
        ({"a": A, "b": B, "reduction": np.array(["a"])}, "reduction: expected 'ordered'"),
        ({"a": A, "b": B, "out": [[0.0] * 5] * 3}, "out: expected an array; got list"),
        ({"a": A, "b": B, "out": np.ones((3, 4), np.float32)}, "out: expected shape"),
        ({"a": A, "b": B, "stream": 1}, "stream: expected None for NumPy arrays"),
        ({"a": A, "b": B, "epilogue": "relu"}, "epilogue: expected None for NumPy arrays"),
        ({"a": A, "b": B, "dtype": "int8"}, "dtype: expected one of"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises((ValueError, TypeError), match=text):
        cuda.gemm(arguments.pop("a"), arguments.pop("b"), **arguments)


def test_matmul_speaks_of_its_own_arguments() -> None:
    cases: list[tuple[Any, Any, str]] = [
        (A, A, "x2: expected 4 rows, as x1 has"),
        (A[0].astype(int), B, "x1: expected float32"),
        (3, B, "x1: expected an array"),
        (np.float32(1), B, "x1: expected at least 1 dimension"),
    ]
    for x1, x2, text in cases:
        with pytest.raises((ValueError, TypeError), match=text):
            cuda.matmul(x1, x2)
    for out in ([7.0] * 5, np.float64(7)):
        with pytest.raises((ValueError, TypeError), match="out: expected"):
            cuda.matmul(np.ones(0, np.float32), np.ones((0, 5), np.float32), out=out)


@pytest.mark.parametrize("stream", ["x", -5, 2**70, 1.5, True, object()])
def test_a_stream_is_a_handle(stream: Any) -> None:
    with pytest.raises(TypeError, match="stream: expected"):
        stream_of(stream, "torch")
    assert stream_of(7, "torch") == 7


def test_numbers_of_numpy_are_numbers() -> None:
    assert number_of("alpha", np.float32(2)) == 2
    steps = parse([("clamp", np.float32(0), np.int64(1)), ("scale", np.float64(2))], (3, 5), "float32")
    assert (steps.format, steps.values) == ("fff", (0.0, 1.0, 2.0))
    with pytest.raises(ValueError, match="expected a number that fits"):
        parse(("scale", 10**400), (3, 5), "float32")


@pytest.mark.parametrize("function", [lambda *q: q[0], lambda x, i: x, lambda x, i, j, *, k=1: x])
def test_functions_take_an_element_and_its_place(function: Any) -> None:
    with pytest.raises(ValueError, match=r"epilogue: expected a function of \(x, i, j\)"):
        parse(function, (3, 5), "float32")


SCALES = (2.0,)


def test_functions_are_told_apart_by_all_that_they_refer_to(monkeypatch: pytest.MonkeyPatch) -> None:
    def by_tuple(x: Any, i: Any, j: Any) -> Any:
        return x * SCALES[0]

    first = _digest(by_tuple)
    assert not first.endswith(OF_THIS_PROCESS)
    monkeypatch.setitem(globals(), "SCALES", (3.0,))
    assert _digest(by_tuple) != first
    module, held = types.ModuleType("settings"), [2.0]
    module.scale = 2.0  # type: ignore[attr-defined]

    def by_module(x: Any, i: Any, j: Any) -> Any:
        return x * module.scale

    def by_list(x: Any, i: Any, j: Any) -> Any:
        return x * held[0]

    assert _digest(by_module).endswith(OF_THIS_PROCESS), "what is read from a module can change"
    first = _digest(by_list)
    assert first.endswith(OF_THIS_PROCESS)
    held = [3.0]
    assert _digest(by_list) != first


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"m": 0}, "m: expected an integer from 1"),
        ({"m": 2**31}, "m: expected an integer from 1"),
        ({"m": True}, "m: expected an integer"),
        ({"m": np.array([3])}, "m: expected an integer"),
        ({"trans_a": "X"}, "trans_a: expected"),
        ({"trans_a": 2}, "trans_a: expected"),
        ({"device": None}, "device: expected a name"),
        ({"device": "h300"}, "device: expected one of"),
        ({"device": ["h200"]}, "device: expected a name"),
        ({"dtype": "int8"}, "dtype: expected one of"),
    ],
)
def test_plans_of_wrong_arguments_are_refused(arguments: dict[str, Any], text: str) -> None:
    told: dict[str, Any] = {"m": 5, "n": 6, "k": 7, **arguments}
    with pytest.raises((ValueError, TypeError), match=text):
        cuda.make_plan(told.pop("m"), told.pop("n"), told.pop("k"), **told)


def test_plans_read_what_gemm_reads() -> None:
    assert cuda.make_plan(100, 100, 100, trans_a="N") == cuda.make_plan(100, 100, 100)
    assert cuda.make_plan(100, 100, 100, trans_a="C") == cuda.make_plan(100, 100, 100, trans_a=True)
    assert cuda.make_plan(100, 100, 100, device="RTX 4090") == cuda.make_plan(100, 100, 100, device="rtx4090")
    for field, value in (("multiprocessors", 0), ("capability", "9.0"), ("capability", (3, 5))):
        with pytest.raises(ValueError, match=f"{field}: expected"):
            replace(cuda.KNOWN_DEVICES["h200"], **{field: value})


def test_a_few_deep_items_are_divided_like_one() -> None:
    one, two = (cuda.make_plan(64, 64, 100_000, batch=batch) for batch in (1, 2))
    assert one.spec.schedule == two.spec.schedule == "streamk"
    assert two.blocks * 2 <= one.blocks * 2
    assert two.parts_bytes == 2 * 2 * two.blocks * two.spec.sum_bytes
