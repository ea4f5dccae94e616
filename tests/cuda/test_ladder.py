"""The GPU ladder on a GPU: every rung exact at sizes around its tiles, and its errors.

Knows: torch's arrays. Does not know: speed; bench/cuda_ladder.py has that. Skipped where no GPU can be used.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from blisgemm.cuda import driver
from blisgemm.cuda.ladder import RUNGS, Rung
from blisgemm.errors import BlisgemmTypeError, BlisgemmValueError

torch = pytest.importorskip("torch", reason="these tests hold their arrays in torch")
pytest.importorskip("numba_cuda", reason="the rungs are compiled by numba-cuda")
if not driver.is_available() or not torch.cuda.is_available():
    pytest.skip(f"no GPU: {driver.why_unavailable() or 'torch sees none'}", allow_module_level=True)

SIZES = (
    (1, 1, 1), (33, 33, 33), (127, 127, 127), (300, 77, 129), (1, 257, 5), (257, 1, 68), (2, 3, 1000),
    (128, 132, 64), (192, 256, 96), (132, 140, 36), (129, 129, 32), (64, 128, 31), (63, 124, 28),
)  # fmt: skip


def integers(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(sum(shape)).integers(-4, 5, shape).astype(np.float32)


def multiply(rung: Rung, a: Any, b: Any, offset: int = 256) -> np.ndarray[Any, Any]:
    """Return the rung's product, written into the middle of NaN; ``offset``: of its first element."""
    from blisgemm.cuda.ladder.run import run

    m, n = a.shape[0], b.shape[1]
    around = torch.full((m * n + 512,), float("nan"), dtype=torch.float32, device="cuda")
    c = around[offset : offset + m * n].view(m, n)
    run(rung, a, b, c)
    assert around[:offset].isnan().all() and around[offset + m * n :].isnan().all(), "memory beside C was written"
    return np.asarray(c.cpu().numpy())


@pytest.mark.parametrize("rung", RUNGS, ids=lambda rung: rung.name)
def test_a_rung_is_exact_at_sizes_around_its_tiles(rung: Rung) -> None:
    for m, n, k in SIZES:
        a, b = integers(m, k), integers(k, n)
        got = multiply(rung, torch.from_numpy(a).cuda(), torch.from_numpy(b).cuda())
        np.testing.assert_array_equal(got, a @ b, f"m, n, k = {m}, {n}, {k}")


@pytest.mark.parametrize("rung", RUNGS, ids=lambda rung: rung.name)
def test_a_rung_reads_and_writes_arrays_that_are_not_aligned_to_sixteen_bytes(rung: Rung) -> None:
    a, b = integers(132, 36), integers(36, 140)
    for which in range(3):
        held = []
        for x, offset in ((a, int(which == 0)), (b, int(which == 1))):
            flat = torch.full((x.size + 8,), float("nan"), dtype=torch.float32, device="cuda")
            view = flat[offset : offset + x.size].view(*x.shape)
            view.copy_(torch.from_numpy(x))
            held.append(view)
        np.testing.assert_array_equal(multiply(rung, *held, offset=257 if which == 2 else 256), a @ b)


@pytest.mark.parametrize("rung", RUNGS, ids=lambda rung: rung.name)
def test_a_rung_runs_without_memory_of_its_own(rung: Rung) -> None:
    from blisgemm.cuda.ladder.run import compiled, loaded

    kernel = loaded(rung, 0)
    assert kernel.local_bytes == 0
    assert kernel.registers == compiled(rung, driver.attributes(0)["capability"]).registers
    module = rung.module()
    assert kernel.static_shared_bytes + kernel.dynamic_shared_bytes == module.SHARED_BYTES
    assert kernel.blocks_per_multiprocessor(module.THREADS) >= 1


def test_what_the_ladder_does_not_take_is_refused_by_name() -> None:
    from blisgemm.cuda.ladder.run import run

    a, b, c = (torch.zeros(4, 4, device="cuda") for _ in range(3))
    with pytest.raises(BlisgemmTypeError, match="b: expected float32"):
        run("g2", a, b.double(), c)
    with pytest.raises(BlisgemmValueError, match="a: expected rows without gaps"):
        run("g2", torch.zeros(4, 8, device="cuda")[:, ::2], b, c)
    with pytest.raises(BlisgemmValueError, match="expected shapes m x k, k x n, m x n"):
        run("g2", a, b, torch.zeros(4, 5, device="cuda"))
    with pytest.raises(BlisgemmValueError, match="two extents"):
        run("g2", torch.zeros(4, 0, device="cuda"), torch.zeros(0, 4, device="cuda"), c)
    with pytest.raises(BlisgemmValueError, match="one GPU"):
        run("g2", np.zeros((4, 4), np.float32), b, c)
    with pytest.raises(KeyError, match="g0_naive"):
        run("g9", a, b, c)
