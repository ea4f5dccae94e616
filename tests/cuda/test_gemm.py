"""Products on a GPU, exactly: small integers, so that every partial sum is exact and rounding hides nothing.

Run on a machine with one: ``python -m pytest tests/cuda``. Skipped, with the reason, elsewhere.
"""

from __future__ import annotations

import itertools
import threading
from typing import Any

import numpy as np
import pytest

from blisgemm import cuda
from blisgemm.cuda.api import DTYPES

torch = pytest.importorskip("torch", reason="these tests hold their arrays in torch")
if not cuda.is_available() or not torch.cuda.is_available():
    pytest.skip(f"no GPU: {cuda.why_unavailable() or 'torch sees none'}", allow_module_level=True)

TYPES = {name: getattr(torch, name) for name in DTYPES}
# around nothing, one, a thread tile, a warp tile, a block tile (64, 128) and a slab (8, 16, 32)
EXTENTS = (1, 2, 3, 7, 8, 9, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 200)
LAYOUTS = ("rows", "columns", "gaps", "rows off the vector")


def integers(*shape: int, dtype: str, seed: int = 0) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(seed)
    x = rng.integers(-4, 5, shape).astype(dtype)
    return x + 1j * rng.integers(-4, 5, shape).astype(x.real.dtype) if dtype.startswith("complex") else x


def placed(x: np.ndarray[Any, Any], layout: str) -> Any:
    """Return x in GPU memory, lying so; what lies between its elements is NaN."""
    rows, columns = x.shape[-2:]
    whole = torch.full((*x.shape[:-2], 2 * rows + 1, 3 * columns + 1), float("nan"), dtype=TYPES[x.dtype.name]).cuda()
    if layout == "rows":
        view = torch.empty(x.shape, dtype=whole.dtype, device="cuda")
    elif layout == "columns":
        view = torch.empty((*x.shape[:-2], columns, rows), dtype=whole.dtype, device="cuda").transpose(-1, -2)
    elif layout == "gaps":
        view = whole[..., 1 : 2 * rows : 2, 1 : 3 * columns : 3]
    else:
        view = whole[..., :rows, 1 : columns + 1]
    view.copy_(torch.from_numpy(x))
    return view


def expect(got: Any, want: np.ndarray[Any, Any], case: Any = "") -> None:
    got = got.cpu().numpy()
    assert got.shape == want.shape, case
    wrong = np.argwhere(got != want)
    assert len(wrong) == 0, (
        f"{case}: {len(wrong)} wrong, first {wrong[0]}: {got[tuple(wrong[0])]}, {want[tuple(wrong[0])]}"
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_extents_around_every_tile(dtype: str) -> None:
    rng = np.random.default_rng(1)
    shapes = [tuple(rng.choice(EXTENTS, 3)) for _ in range(60)]
    shapes += [
        (1, 1, 1),
        (1, 500, 3),
        (500, 1, 3),
        (3, 5, 5000),
        (3, 700, 900),
        (700, 3, 900),
        (16, 900, 700),
        (900, 16, 700),
        (1, 5003, 3001),
        (2, 4096, 2048),
        (4, 999, 8192),
        (5000, 1, 3000),
        (3001, 3, 777),
        (4096, 4, 2048),
        (256, 256, 2052),
        (130, 260, 1),
        (64, 128, 32),
        (64, 128, 128),
        (32, 64, 128),
        (256, 64, 256),
        (128, 256, 64),
    ]
    for m, n, k in shapes:
        a, b = integers(m, k, dtype=dtype), integers(k, n, dtype=dtype, seed=2)
        expect(cuda.gemm(placed(a, "rows"), placed(b, "rows")), a @ b, (m, n, k))


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_layout_of_every_operand(dtype: str) -> None:
    m, n, k = 67, 71, 45
    a, b, c = (integers(*s, dtype=dtype, seed=i) for i, s in enumerate(((m, k), (k, n), (m, n))))
    for of_a, of_b, of_c in itertools.product(LAYOUTS, repeat=3):
        out = placed(c, of_c)
        result = cuda.gemm(placed(a, of_a), placed(b, of_b), out, alpha=2, beta=3, out=out)
        assert result is out
        expect(out, 2 * (a @ b) + 3 * c, (of_a, of_b, of_c))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_few_rows_or_columns_of_every_layout(dtype: str) -> None:
    for m, n, k in ((1, 300, 500), (3, 257, 129), (300, 1, 500), (257, 4, 130), (1, 1, 3000), (2, 2, 4100)):
        a, b, c = (integers(*s, dtype=dtype, seed=i) for i, s in enumerate(((m, k), (k, n), (m, n))))
        for of_a, of_b, of_c in itertools.product(LAYOUTS, repeat=3):
            out = placed(c, of_c)
            cuda.gemm(placed(a, of_a), placed(b, of_b), out, alpha=2, beta=3, out=out)
            expect(out, 2 * (a @ b) + 3 * c, (m, n, k, of_a, of_b, of_c))
        x, y = np.stack([a, 2 * a, a]), np.stack([b, b, 3 * b])
        expect(cuda.gemm(placed(x, "rows"), placed(y, "gaps")), x @ y, (m, n, k, "batch"))


@pytest.mark.parametrize("dtype", DTYPES)
def test_transposed_and_conjugated(dtype: str) -> None:
    m, n, k = 70, 33, 66
    for trans_a, trans_b in itertools.product((False, "T", "C", "R"), repeat=2):
        a = integers(*((k, m) if trans_a in ("T", "C") else (m, k)), dtype=dtype)
        b = integers(*((n, k) if trans_b in ("T", "C") else (k, n)), dtype=dtype, seed=1)
        want = by_numpy(a, trans_a) @ by_numpy(b, trans_b)
        for order in ("rows", "columns"):
            out = placed(np.zeros((m, n), dtype), order)
            got = cuda.gemm(placed(a, "rows"), placed(b, "rows"), out=out, trans_a=trans_a, trans_b=trans_b)
            expect(got, want, (trans_a, trans_b, order))


def by_numpy(x: np.ndarray[Any, Any], trans: Any) -> np.ndarray[Any, Any]:
    x = x.T if trans in ("T", "C") else x
    return x.conj() if trans in ("C", "R") else x


@pytest.mark.parametrize("dtype", DTYPES)
def test_zero_rules(dtype: str) -> None:
    nan = torch.full((40, 40), float("nan"), dtype=TYPES[dtype], device="cuda")
    ones = torch.ones((40, 40), dtype=TYPES[dtype], device="cuda")
    expect(cuda.gemm(ones, ones, nan, beta=0), np.full((40, 40), 40, dtype))
    expect(cuda.gemm(ones, ones, out=nan.clone()), np.full((40, 40), 40, dtype))
    expect(cuda.gemm(nan, nan, ones, alpha=0, beta=2), np.full((40, 40), 2, dtype))
    expect(cuda.gemm(nan, nan, alpha=0), np.zeros((40, 40), dtype))
    expect(cuda.gemm(ones[:, :0], ones[:0]), np.zeros((40, 40), dtype))
    expect(cuda.gemm(ones[:, :0], ones[:0], ones, beta=5), np.full((40, 40), 5, dtype))
    assert cuda.gemm(ones[:0], ones).shape == (0, 40)
    spoiled = ones.clone()
    spoiled[3, 5] = float("inf")
    got = cuda.gemm(spoiled, torch.zeros_like(ones)).cpu().numpy()
    assert np.isnan(got[3]).all()
    assert (np.delete(got, 3, 0) == 0).all(), "a NaN of one row shows in no other"


@pytest.mark.parametrize("dtype", DTYPES)
def test_batches_broadcast(dtype: str) -> None:
    for batch_a, batch_b in (((3,), (3,)), ((3,), ()), ((), (3,)), ((2, 1), (1, 3)), ((5, 1, 2), (3, 1)), ((0,), (0,))):
        a, b = integers(*batch_a, 33, 20, dtype=dtype), integers(*batch_b, 20, 41, dtype=dtype, seed=1)
        want = a @ b
        expect(cuda.matmul(placed(a, "rows"), placed(b, "columns")), want, (batch_a, batch_b))
        c = integers(*want.shape, dtype=dtype, seed=2)
        out = placed(c, "gaps")
        expect(cuda.gemm(placed(a, "gaps"), placed(b, "rows"), out, beta=-1, out=out), want - c, (batch_a, batch_b))
    many = integers(70_000, 2, 3, dtype=dtype)
    other = many.swapaxes(1, 2).copy()
    expect(cuda.matmul(placed(many, "rows"), placed(other, "rows")), many @ other)  # more than a grid's third axis has


def test_vectors_as_matmul_has_them() -> None:
    a, x, y = integers(50, 30, dtype="float32"), integers(30, dtype="float32"), integers(50, dtype="float32")
    ta, tx, ty = (torch.from_numpy(v).cuda() for v in (a, x, y))
    expect(cuda.matmul(ta, tx), a @ x)
    expect(cuda.matmul(ty, ta), y @ a)
    assert float(cuda.matmul(tx, tx)) == x @ x
    out = torch.empty(50, device="cuda")
    assert cuda.matmul(ta, tx, out=out) is out
    expect(out, a @ x)


@pytest.mark.parametrize("dtype", DTYPES)
def test_divided_tiles_have_the_same_bits_in_every_run(dtype: str) -> None:
    torch.manual_seed(0)
    for m, n, k in ((70, 130, 20_000), (513, 515, 4099), (1000, 1000, 1000), (5, 3000, 3000)):
        a, b = (torch.randn(s, dtype=TYPES[dtype], device="cuda") for s in ((m, k), (k, n)))
        first = cuda.gemm(a, b)
        for _ in range(5):
            assert torch.equal(cuda.gemm(a, b), first), (m, n, k)
        exact = a.to(torch.complex128) @ b.to(torch.complex128)
        unit = 2.0**-24 if dtype in ("float32", "complex64") else 2.0**-53
        bound = (k + 2) * unit * (abs(a).double() @ abs(b).double()) * (4 if dtype.startswith("complex") else 1)
        assert (abs(first.to(torch.complex128) - exact) <= bound + 1e-300).all()
        a, b = integers(m, k, dtype=dtype), integers(k, n, dtype=dtype, seed=1)
        expect(cuda.gemm(placed(a, "rows"), placed(b, "rows")), a @ b, (m, n, k))


@pytest.mark.parametrize("dtype", DTYPES)
def test_parts_may_be_added_in_no_order(dtype: str) -> None:
    for m, n, k in ((70, 130, 5000), (513, 515, 4099), (5, 3000, 3000), (100, 100, 100)):
        a, b, c = integers(m, k, dtype=dtype), integers(k, n, dtype=dtype, seed=1), integers(m, n, dtype=dtype, seed=2)
        for order in ("rows", "columns"):
            out = placed(c, order)
            cuda.gemm(placed(a, "rows"), placed(b, "rows"), out, alpha=2, beta=3, out=out, reduction="atomic")
            expect(out, 2 * (a @ b) + 3 * c, (m, n, k, order))


def test_out_may_share_memory_with_operands() -> None:
    a = integers(64, 64, dtype="float32")
    x = torch.from_numpy(a).cuda()
    expect(cuda.gemm(x, x, out=x), a @ a)
    x = torch.from_numpy(a).cuda()
    expect(cuda.gemm(x, x.t(), x, beta=1, out=x), a @ a.T + a)


def test_inputs_never_change_and_errors_write_nothing() -> None:
    a, b = torch.ones(4, 5, device="cuda"), torch.ones(6, 7, device="cuda")
    out = torch.full((4, 7), 9.0, device="cuda")
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"a": a, "b": b, "out": out}, "b: expected 5 rows"),
        ({"a": a, "b": b[:5].double(), "out": out}, "b: expected float32"),
        ({"a": a, "b": b[:5], "out": out[:3]}, "out: expected shape"),
        ({"a": a, "b": b[:5], "out": out.int()}, "out: expected one of float32"),
        ({"a": a, "b": b[:5], "beta": 1, "out": out}, "c: expected an array"),
        ({"a": a, "b": b[:5], "alpha": 1j, "out": out}, "alpha: expected a real"),
        ({"a": a, "b": b[:5], "trans_a": "X", "out": out}, "trans_a: expected"),
        ({"a": a.int(), "b": b[:5], "out": out}, "a: expected float32"),
        ({"a": a, "b": b[:5].cpu().numpy(), "out": out}, "all in GPU memory"),
        ({"a": a, "b": b[:5], "out": out[:1].expand(4, 7)}, "out: expected an array that can be written"),
    ]
    for arguments, text in wrong:
        with pytest.raises((ValueError, TypeError), match=text):
            cuda.gemm(arguments.pop("a"), arguments.pop("b"), **arguments)
    assert (out == 9).all()
    assert (a == 1).all()


def test_out_of_memory_leaves_the_context_alive() -> None:
    a = torch.ones(1, 1, device="cuda").expand(1 << 20, 1 << 20)
    with pytest.raises(Exception, match=r"(?i)memory"):
        cuda.gemm(a, a)
    expect(cuda.gemm(a[:3, :4], a[:4, :5]), np.full((3, 5), 4, "float32"))


def test_streams_and_threads_at_once() -> None:
    a, b = integers(300, 2000, dtype="float32"), integers(2000, 200, dtype="float32", seed=1)
    want, failures = a @ b, []

    def work() -> None:
        try:
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                x, y = torch.from_numpy(a).cuda(), torch.from_numpy(b).cuda()
                for _ in range(20):
                    got = cuda.gemm(x, y)
                stream.synchronize()
                expect(got, want)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]


def test_a_graph_captures_products() -> None:
    a, b = torch.randn(500, 700, device="cuda"), torch.randn(700, 600, device="cuda")
    out = torch.zeros(500, 600, device="cuda")
    want = cuda.gemm(a, b)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        cuda.gemm(a, b, out=out)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        cuda.gemm(a, b, out=out)
    out.zero_()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(out, want)


def test_indices_past_31_bits() -> None:
    if torch.cuda.mem_get_info()[0] < 30 << 30:
        pytest.skip("needs 30 GiB of free memory")
    rows = (1 << 31) // 1000 + 77
    a = torch.zeros(rows, 1000, device="cuda")
    a[-1] = 2
    got = cuda.gemm(a, torch.ones(1000, 3, device="cuda"))
    assert (got[-1] == 2000).all()
    assert (got[:-1] == 0).all()
    del a, got
    b = torch.ones(3, rows, device="cuda")
    got = cuda.gemm(torch.ones(1000, 3, device="cuda"), b)
    assert got.numel() > 1 << 31
    assert (got[-1] == 3).all()
    assert (got[:, -1] == 3).all()


def test_factors_beyond_the_type_are_infinite() -> None:
    a = torch.ones(3, 3, device="cuda")
    for _ in range(2):
        assert torch.isinf(cuda.gemm(a, a, alpha=1e300)).all()
        assert torch.isinf(cuda.gemm(a, a, out=torch.empty_like(a), alpha=-1e300)).all()
