"""Epilogues on a GPU: words and Python functions, against NumPy in float64."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from blisgemm import cuda

torch = pytest.importorskip("torch", reason="these tests hold their arrays in torch")
if not cuda.is_available() or not torch.cuda.is_available():
    pytest.skip(f"no GPU: {cuda.why_unavailable() or 'torch sees none'}", allow_module_level=True)


def operands(m: int, n: int, k: int, dtype: Any = torch.float32, batch: tuple[int, ...] = ()) -> tuple[Any, Any, Any]:
    torch.manual_seed(0)
    a, b = (torch.randint(-3, 4, (*batch, *s), device="cuda").to(dtype) for s in ((m, k), (k, n)))
    return a, b, (a.to(torch.float64) @ b.to(torch.float64)).cpu().numpy()


def close(got: Any, want: np.ndarray[Any, Any], unit: float = 2e-6) -> None:
    got = got.double().cpu().numpy()
    assert got.shape == want.shape
    assert (abs(got - want) <= unit * np.maximum(1, abs(want))).all(), abs(got - want).max()


@pytest.mark.parametrize(("m", "n", "k"), [(128, 256, 64), (67, 71, 45), (1, 300, 20), (300, 1, 20), (65, 129, 9000)])
@pytest.mark.parametrize("transposed", [False, True])
def test_each_word(m: int, n: int, k: int, transposed: bool) -> None:
    a, b, s = operands(m, n, k)
    a, b = a / 4, b / 4
    s = s / 16
    rows, columns, whole = (torch.randn(shape, device="cuda") for shape in ((m,), (n,), (m, n)))
    r, c, w = (x.double().cpu().numpy() for x in (rows, columns, whole))
    erf = np.vectorize(math.erf)
    cases: list[tuple[Any, np.ndarray[Any, Any]]] = [
        ("relu", np.maximum(s, 0)),
        ("gelu", 0.5 * s * (1 + erf(s / math.sqrt(2)))),
        ("gelu_tanh", 0.5 * s * (1 + np.tanh(math.sqrt(2 / math.pi) * (s + 0.044715 * s**3)))),
        ("silu", s / (1 + np.exp(-np.clip(s, -80, 80)))),
        (("clamp", -1, 2.5), np.clip(s, -1, 2.5)),
        (("scale", 3), 3 * s),
        (("scale_rows", rows), s * r[:, None]),
        (("scale_columns", columns), s * c),
        (("bias", columns), s + c),
        (("bias_rows", rows), s + r[:, None]),
        (("residual", whole), s + w),
        ([("bias", columns), "relu", ("residual", whole)], np.maximum(s + c, 0) + w),
    ]
    for step, want in cases:
        out = torch.empty((n, m), device="cuda").t() if transposed else torch.empty((m, n), device="cuda")
        close(cuda.gemm(a, b, epilogue=step, out=out), want)
    close(cuda.gemm(a, b, whole, alpha=2, beta=3, epilogue=("bias", columns)), 2 * s + 3 * w + c)


def test_a_python_function_with_places_and_arguments() -> None:
    a, b, s = operands(70, 90, 40)
    table = torch.randint(0, 9, (70, 90), device="cuda")
    i, j = np.mgrid[:70, :90]
    close(cuda.gemm(a, b, epilogue=lambda x, i, j: x if i >= j else 0.0), np.where(i >= j, s, 0))
    half = 0.5

    def weighted(x: Any, i: Any, j: Any, t: Any, factor: Any) -> Any:
        return x * half + t[i, j] * factor

    close(cuda.gemm(a, b, epilogue=(weighted, table, 2.0)), s / 2 + 2 * table.cpu().numpy())
    half = 3.0  # another function of the same text
    close(cuda.gemm(a, b, epilogue=(weighted, table, 2.0)), s * 3 + 2 * table.cpu().numpy())
    out = torch.empty((90, 70), device="cuda").t()
    close(cuda.gemm(a, b, epilogue=lambda x, i, j: x + i * 100 - j, out=out), s + i * 100 - j)


def test_complex_numbers() -> None:
    a, b, s = operands(33, 34, 35)
    got = cuda.gemm(a.to(torch.complex64), b.to(torch.complex64), epilogue=lambda x, i, j: x * 2j + 1)
    assert (got.cpu().numpy() == (s * 2j + 1).astype(np.complex64)).all()
    with pytest.raises(TypeError, match="relu needs real"):
        cuda.gemm(a.to(torch.complex64), b.to(torch.complex64), epilogue="relu")


@pytest.mark.parametrize("batch", [(5,), (2, 3)])
def test_batches(batch: tuple[int, ...]) -> None:
    a, b, s = operands(20, 30, 40, batch=batch)
    bias, other = torch.randn(30, device="cuda"), torch.randn((20, 30), device="cuda")
    close(cuda.gemm(a, b, epilogue=[("bias", bias), ("residual", other)]), s + (bias + other).double().cpu().numpy())
    if len(batch) == 1:
        items = torch.randn((*batch, 20, 30), device="cuda")
        close(cuda.gemm(a, b, epilogue=("residual", items)), s + items.double().cpu().numpy())


@pytest.mark.parametrize(
    ("dtype", "out"),
    [
        ("float32", "float16"),
        ("float32", "bfloat16"),
        ("float32", "float64"),
        ("float64", "float32"),
        ("float64", "float16"),
    ],
)
def test_results_of_another_type_are_rounded_once(dtype: str, out: str) -> None:
    a, b, s = operands(65, 70, 33, getattr(torch, dtype))
    got = cuda.gemm(a / 7, b, dtype=out)
    want = cuda.gemm(a / 7, b).to(getattr(torch, out))
    assert got.dtype == want.dtype
    assert torch.equal(got, want)
    into = torch.ones((65, 70), dtype=getattr(torch, out), device="cuda")
    close(cuda.gemm(a, b, into, beta=2, out=into), np.asarray((torch.tensor(s) + 2).to(getattr(torch, out)).double()))


def test_nothing_to_multiply_goes_through_the_epilogue_too() -> None:
    a = torch.full((40, 0), float("nan"), device="cuda")
    close(cuda.gemm(a, a.t(), epilogue=lambda x, i, j: x + i), np.mgrid[:40, :40][0].astype(float))
    nan = torch.full((40, 40), float("nan"), device="cuda")
    close(cuda.gemm(nan, nan, alpha=0, epilogue=("bias", torch.ones(40, device="cuda"))),
          np.ones((40, 40)))  # fmt: skip


def test_wrong_steps_are_named() -> None:
    a, b, _ = operands(8, 9, 10)
    v = torch.ones(8, device="cuda")
    for step, text in (
        ("softmax", "epilogue: expected one of"),
        ([("bias", v)], r"epilogue\[0\]: bias takes a vector of 9"),
        (("bias",), "takes 1 arguments"),
        (("residual", v), "takes an array of the result"),
        (("bias", v.double()), "expected float32"),
        (("bias", np.ones(9, "f4")), "expected an array in GPU memory"),
        (("scale", v), "takes a number"),
        (3, "expected a word"),
        ((lambda x, i, j: x, v), "a function of"),
    ):
        with pytest.raises((ValueError, TypeError), match=text):
            cuda.gemm(a, b, epilogue=step)


WARM = """
import sys, time
import torch
torch.zeros(1, device="cuda")
start = time.perf_counter()
from blisgemm import cuda
a = torch.ones(200, 300, device="cuda")
c = cuda.gemm(a, a.t(), epilogue="relu")
torch.cuda.synchronize()
print(time.perf_counter() - start, "numba" in sys.modules, "llvmlite" in sys.modules, float(c[3, 5]))
"""


def test_a_warm_process_does_not_import_numba(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BLISGEMM_CACHE_DIR", str(tmp_path))
    first, second = (
        subprocess.run(
            [sys.executable, "-c", WARM], capture_output=True, text=True, check=True, timeout=120
        ).stdout.split()
        for _ in range(2)
    )
    print(f"first product: cold {float(first[0]):.2f} s, warm {float(second[0]):.2f} s")
    assert first[1:] == ["True", "True", "300.0"]
    assert second[1:] == ["False", "False", "300.0"]
