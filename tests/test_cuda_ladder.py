"""The GPU ladder as far as it can be tried without a GPU: in the simulator, as index arithmetic, compiled, as text.

Knows: the shape of a rung's module, and what its words mean. Does not know: a device; tests/cuda has what needs one.

Rungs g0 to g4 run in Numba's CUDA simulator. It can't run intrinsics, so that g5 and g6 run as plain Python, thread
by thread, with words of this file's in place of theirs: that tries the addresses they compute, not the words' own code.
"""

from __future__ import annotations

import ast
import threading
import types
from typing import Any

import numpy as np
import pytest
from support import REPOSITORY, run_python

from blisgemm.cuda.ladder import ADDRESSES, ARRAYS, RUNGS, Rung, rung_of

LINES = 105  # of a rung's file, at most
SOURCE = "https://siboehm.com/articles/22/CUDA-MMM"


def missing_compiler() -> str:
    """Return why nothing can be compiled for a GPU here, or nothing."""
    try:
        import cuda.core  # noqa: F401
        import numba.cuda.extending  # noqa: F401
        from cuda.pathfinder import load_nvidia_dynamic_lib

        for library in ("nvvm", "nvJitLink"):
            load_nvidia_dynamic_lib(library)
    except Exception as error:  # a library that isn't found has its own exception
        return f"needs numba-cuda, NVVM and nvJitLink: {error}"
    return ""


NO_COMPILER = missing_compiler()
needs_compiler = pytest.mark.skipif(bool(NO_COMPILER), reason=NO_COMPILER)
of_arrays = [rung for rung in RUNGS if rung.arguments == ARRAYS]
of_addresses = [rung for rung in RUNGS if rung.arguments == ADDRESSES]


def name_of(rung: Rung) -> str:
    return rung.name


def integers(rng: np.random.Generator, *shape: int) -> np.ndarray[Any, Any]:
    return rng.integers(-4, 5, shape).astype(np.float32)


# ---- the table --------------------------------------------------------------------------------------------------


def test_importing_the_table_loads_no_compiler() -> None:
    done = run_python(
        """
        import sys, blisgemm.cuda.ladder
        heavy = {"numba", "numba_cuda", "llvmlite", "cuda", "torch"}
        print(sorted({name.split(".")[0] for name in sys.modules} & heavy))
        """
    )
    assert done.stdout.strip() == "[]"


def test_every_file_of_a_rung_is_in_the_table_and_in_order() -> None:
    files = sorted(path.stem for path in (REPOSITORY / "blisgemm/cuda/ladder").glob("g[0-9]_*.py"))
    assert files == [rung.name for rung in RUNGS]
    assert rung_of("g3") is RUNGS[3] and rung_of("g3_column") is RUNGS[3]
    with pytest.raises(KeyError, match="g6_warp_tile"):
        rung_of("g9")


@pytest.mark.parametrize("rung", RUNGS, ids=name_of)
def test_a_rung_is_short_and_says_what_it_teaches(rung: Rung) -> None:
    source = (REPOSITORY / f"blisgemm/cuda/ladder/{rung.name}.py").read_text()
    assert len(source.splitlines()) <= LINES
    text = " ".join((ast.get_docstring(ast.parse(source)) or "").split())
    missing = [part for part in ("Question:", "Idea:", "Look at:", "On the CPU:", "Expect:") if part not in text]
    assert not missing
    assert f"Counterpart: kernel {rung.counterpart} of {SOURCE}" in text
    if rung.share is None:
        assert "no experiment was made" in text
    else:
        assert f"{rung.share} % of cuBLAS at 4096, measured on one H200 in experiments before this library" in text


# ---- compiled ---------------------------------------------------------------------------------------------------


@needs_compiler
@pytest.mark.parametrize("capability", [(8, 0), (9, 0)], ids=str)
@pytest.mark.parametrize("rung", RUNGS, ids=name_of)
def test_a_rung_compiles_and_keeps_its_sums_in_registers(rung: Rung, capability: tuple[int, int]) -> None:
    from blisgemm.cuda.ladder.run import compiled

    code = compiled(rung, capability)
    assert code.cubin[:4] == b"\x7fELF"
    assert (code.spill_bytes, code.local_bytes) == (0, 0)
    assert ".local" not in code.ptx
    parameters = code.ptx.split(".entry")[1].split(")")[0].count(".param .u64")
    assert parameters == (27 if rung.arguments == ARRAYS else 3), "the layout of arguments isn't the one that run packs"
    assert f".maxntid {rung.module().THREADS}" in code.ptx


@needs_compiler
def test_the_last_rungs_read_and_copy_sixteen_bytes_at_once() -> None:
    from blisgemm.cuda.ladder.run import compiled

    g5, g6 = (compiled(rung, (8, 0)).ptx for rung in of_addresses)
    assert "ld.global.v4" in g5 and "ld.shared.v4" in g5 and "st.global.v4" in g5
    assert "cp.async.cg.shared.global" in g6 and "ld.shared.v4" in g6 and "st.global.v4" in g6


# ---- in the simulator -------------------------------------------------------------------------------------------

SIMULATED = """
    import sys
    import numpy as np
    from numba import cuda
    from blisgemm.cuda.ladder import rung_of

    module = rung_of(sys.argv[1]).module()
    rows, columns = module.BLOCK
    rng = np.random.default_rng(0)
    for m, n, k in ((1, 1, 1), (rows + 1, 3, 9), (5, columns + 1, 33)):
        a = rng.integers(-4, 5, (m, k)).astype(np.float32)
        b = rng.integers(-4, 5, (k, n)).astype(np.float32)
        c = np.full((m, n), np.nan, np.float32)
        cuda.jit(module.kernel())[module.grid(m, n), module.THREADS](a, b, c)
        np.testing.assert_array_equal(c, a @ b, f"m, n, k = {m}, {n}, {k}")
    print("exact")
"""


@needs_compiler
@pytest.mark.parametrize("rung", of_arrays, ids=name_of)
def test_a_rung_of_arrays_is_exact_in_the_simulator(rung: Rung) -> None:
    assert run_python(SIMULATED, rung.name, NUMBA_ENABLE_CUDASIM="1").stdout.strip() == "exact"


# ---- index arithmetic -------------------------------------------------------------------------------------------


class Card:
    """Memory of a card that runs one block of threads at a time, and the words by which the upper rungs use it.

    Global memory is one array of floats: A, B and C, with NaN between them that nothing may read or write.
    """

    words = (
        "read4", "shared4", "store_shared4", "store_column", "add_products", "copy_a", "copy_b", "multiply_slab",
        "write_tile",
    )  # fmt: skip

    def __init__(self, module: Any, a: np.ndarray[Any, Any], b: np.ndarray[Any, Any], c_shape: tuple[int, int]) -> None:
        self.module, self.c_shape = module, c_shape
        gap, sizes = 16, (a.size, b.size, c_shape[0] * c_shape[1])
        starts = [gap]
        for size in sizes:
            starts.append((starts[-1] + size + gap) // 4 * 4 + 4)  # each at a multiple of 16 bytes
        self.floats = np.full(starts[-1], np.nan, np.float32)
        self.exists = np.zeros(starts[-1], bool)
        self.starts = starts[:3]
        for start, size, values in zip(starts, sizes, (a.ravel(), b.ravel(), np.nan), strict=False):
            self.floats[start : start + size] = values
            self.exists[start : start + size] = True
        self.thread = threading.local()
        self.barrier = threading.Barrier(module.THREADS)

    def result(self) -> np.ndarray[Any, Any]:
        c = self.floats[self.starts[2] :][: self.c_shape[0] * self.c_shape[1]].reshape(self.c_shape)
        assert np.isnan(self.floats[~self.exists]).all(), "something was written outside C"
        return c

    def launch(self, m: int, n: int, k: int) -> None:
        kernel = self.module.kernel()
        words = {"i32": int, "i64": int, "cuda": self, "shared_base": lambda: 0, "zeros": lambda: np.zeros(64, "f4")}
        words |= {name: getattr(self, name) for name in self.words} | {
            "commit_copies": lambda: None,
            "wait": lambda: None,
        }
        function = types.FunctionType(kernel.__code__, {**kernel.__globals__, **words})
        x, y, _ = self.module.grid(m, n)
        for block in [(i, j) for i in range(y) for j in range(x)]:
            self.shared = np.full(self.module.SHARED_BYTES // 4, np.nan, np.float32)
            failures: list[BaseException] = []

            def work(t: int, block: tuple[int, int] = block, failures: list[BaseException] = failures) -> None:
                self.thread.place = (t, *block)
                try:
                    function(*(4 * start for start in self.starts), m, n, k)
                except BaseException as error:
                    failures.append(error)
                    self.barrier.abort()

            threads = [threading.Thread(target=work, args=(t,)) for t in range(self.module.THREADS)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            if failures:
                raise failures[0]

    # what kernels see of ``numba.cuda``

    @property
    def threadIdx(self) -> Any:
        return types.SimpleNamespace(x=self.thread.place[0])

    @property
    def blockIdx(self) -> Any:
        return types.SimpleNamespace(y=self.thread.place[1], x=self.thread.place[2])

    def syncthreads(self) -> None:
        self.barrier.wait(timeout=60)

    # the words

    def _global(self, address: int, count: int) -> slice:
        assert address % 4 == 0 and self.exists[address // 4 : address // 4 + count].all(), "outside the matrices"
        return slice(address // 4, address // 4 + count)

    def read4(self, address: int, left: int, aligned: bool, readable: int) -> tuple[float, ...]:
        count = max(0, min(left, 4))
        assert not (aligned and count == 4 and address % 16), "a load across its alignment"
        found = [*self.floats[self._global(address, count)]] if count else []
        return (*found, *(np.float32(0),) * (4 - count))

    def shared4(self, address: int) -> tuple[float, ...]:
        assert address % 16 == 0
        return tuple(self.shared[address // 4 : address // 4 + 4])

    def store_shared4(self, address: int, four: tuple[float, ...]) -> None:
        assert address % 16 == 0
        self.shared[address // 4 : address // 4 + 4] = four

    def store_column(self, address: int, four: tuple[float, ...]) -> None:
        self.shared[address // 4 + np.arange(4) * self.module.PITCH] = four

    def add_products(self, sums: Any, x: tuple[float, ...], y: tuple[float, ...]) -> Any:
        return sums + np.outer(x, y).ravel()

    def write_tile(
        self, sums: Any, address: int, row_bytes: int, rows_left: int, columns_left: int, aligned: bool
    ) -> None:
        rows, columns = list(self.module.ROWS), self.module.COLUMNS
        for e, value in enumerate(sums):
            row, group, q = rows[e // 8], columns[e % 8 // 4], e % 4
            at = address + row * row_bytes + 4 * group
            assert not (aligned and at % 16), "a store across its alignment"
            if row < rows_left and group + q < columns_left:
                self.floats[self._global(at + 4 * q, 1)] = value

    def copy_a(self, *args: Any) -> None:
        self._copy(self.module.ROWS_A, self.module.PITCH, *args)

    def copy_b(self, *args: Any) -> None:
        self._copy(self.module.ROWS_B, self.module.BN, *args)

    def _copy(
        self, rows: Any, pitch: int, to: int, source: int, row_bytes: int, rows_left: int, left: int, aligned: bool
    ) -> None:
        for row in rows:
            four = self.read4(source + row * row_bytes, left if row < rows_left else 0, aligned, 0)
            self.store_shared4(to + row * pitch * 4, four)

    def multiply_slab(self, sums: Any, at_a: int, at_b: int) -> Any:
        steps = np.arange(self.module.BK)
        rows, columns = np.array(self.module.ROWS), (np.array(self.module.COLUMNS)[:, None] + np.arange(4)).ravel()
        x = self.shared[at_a // 4 + rows[:, None] * self.module.PITCH + steps]
        y = self.shared[at_b // 4 + steps[:, None] * self.module.BN + columns]
        return sums + (x @ y).ravel()


@needs_compiler
@pytest.mark.parametrize("extra", [(1, 1, 1), (4, 4, 4), (3, 2, 4)], ids=str)
@pytest.mark.parametrize("rung", of_addresses, ids=name_of)
def test_a_rung_of_addresses_reads_and_writes_the_right_places(rung: Rung, extra: tuple[int, int, int]) -> None:
    module = rung.module()
    rng = np.random.default_rng(0)
    (rows, columns), steps = module.BLOCK, module.BK
    for m, n, k in ((rows + extra[0], columns + extra[1], 2 * steps + extra[2]), extra, (5, columns, steps)):
        a, b = integers(rng, m, k), integers(rng, k, n)
        card = Card(module, a, b, (m, n))
        card.launch(m, n, k)
        np.testing.assert_array_equal(card.result(), a @ b, f"m, n, k = {m}, {n}, {k}")
