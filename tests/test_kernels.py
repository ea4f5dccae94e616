"""Every row of the catalog that runs here: exact with identities, and its words mean what reference.py says.

The words are what the compiled loops call: pack a micro-panel (of mr and of nr), and the microkernel in each
of its accesses (packed panels, rows and columns of the matrices themselves, in parts), and the sweep.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numba import njit, types
from numba.np import numpy_support
from support import (
    DTYPES,
    case_id,
    draw,
    exact_gemm,
    expect_equal,
    kernel_paths,
    kernels_here,
    lay_out,
    paths_of,
    suited,
    surroundings,
    tiny_plan,
)

import blisgemm
from blisgemm.errors import BlisgemmValueError
from blisgemm.machine import ISAS, KNOWN, host_isas, isas_of
from blisgemm.ukernel import catalog, reference
from blisgemm.ukernel.bind import KernelType, microkernel, microkernel_part, microkernel_strip, pack_micro_panels, sweep
from blisgemm.ukernel.spec import SWEEP_STEPS, KernelSpec, vectors_of_sweep


@pytest.mark.parametrize("case", [case for case in kernel_paths() if case[2] == 1], ids=case_id)
def test_a_times_identity_and_identity_times_b_are_exact(case: tuple[KernelSpec, str, int]) -> None:
    rng = np.random.default_rng(17)
    spec, way, _ = case
    scalar = np.dtype(spec.acc_dtype).type
    for m, k in ((max(spec.mr, 2), spec.nr), (2 * spec.mr + 1, spec.nr + 1), (3, 2 * spec.nr - 1)):
        values = rng.standard_normal((m, k))
        if spec.complex:
            values = values + 1j * rng.standard_normal((m, k))
        x = values.astype(spec.acc_dtype)
        xt = np.ascontiguousarray(x.T)
        for a, b, name in ((x, np.eye(k, dtype=x.dtype), "A I"), (np.eye(k, dtype=x.dtype), xt, "I B")):
            a, b = suited(way, a, b)
            plan = tiny_plan(case, a, b)
            assert plan.kernel == spec
            want = x if name == "A I" else xt
            expect_equal(blisgemm.gemm(a, b, plan=plan), want, plan, name)
            expect_equal(blisgemm.gemm(a, b, alpha=scalar(-2), plan=plan), -2 * want, plan, f"-2 {name}")


WORDS = (
    "microkernel, packed",
    "microkernel, rows",
    "microkernel, columns",
    "microkernel_part",
    "microkernel, half",
    "microkernel_strip",
)
PACKED, ROWS, COLUMNS, PARTS, HALF, STRIP = range(6)


@njit
def packed_word(kernel, word, m, n, k, alpha, a, b, a_pack, b_pack, beta, c, conj, sums):  # type: ignore[no-untyped-def]
    microkernel(kernel, "packed", m, n, k, alpha, a_pack, b_pack, beta, c, conj)


@njit
def half_word(kernel, word, m, n, k, alpha, a, b, a_pack, b_pack, beta, c, conj, sums):  # type: ignore[no-untyped-def]
    microkernel(kernel, "half", m, n, k, alpha, a, b_pack, beta, c, conj)


@njit
def rows_word(kernel, word, m, n, k, alpha, a, b, a_pack, b_pack, beta, c, conj, sums):  # type: ignore[no-untyped-def]
    microkernel(kernel, "rows", m, n, k, alpha, a, b, beta, c, conj)


@njit
def columns_word(kernel, word, m, n, k, alpha, a, b, a_pack, b_pack, beta, c, conj, sums):  # type: ignore[no-untyped-def]
    microkernel(kernel, "columns", m, n, k, alpha, a, b, beta, c, conj)


@njit
def parts_word(kernel, word, m, n, k, alpha, a, b, a_pack, b_pack, beta, c, conj, sums):  # type: ignore[no-untyped-def]
    for p in range(0, k, 5):
        p_cur = min(5, k - p)
        microkernel_part(kernel, m, n, p_cur, alpha, a[:, p:], b[p:], beta, c, conj, sums, p + 5 >= k)


@njit
def strip_word(kernel, word, m, n, k, alpha, a, b, a_pack, b_pack, beta, c, conj, sums):  # type: ignore[no-untyped-def]
    for p in range(0, k, 5):
        p_cur = min(5, k - p)
        microkernel_strip(
            kernel, m, n, p_cur, alpha, a_pack[p * kernel.mr * kernel.planes :],
            b_pack[p * kernel.nr * kernel.planes :], beta, c, conj, sums, p + 5 >= k, b, min(p_cur, m),
        )  # fmt: skip


# The words of each way; a kernel is tried with the words of its own ways only, since each takes a second to compile.
WORDS_OF = {
    "packed": (packed_word, PACKED), "direct": (rows_word, ROWS), "columns": (columns_word, COLUMNS),
    "stream": (parts_word, PARTS), "half": (half_word, HALF), "strips": (strip_word, STRIP),
}  # fmt: skip


def compile_word(words: Any, spec: KernelSpec) -> Any:
    """Return one of these for that kernel as a machine-code function that takes arrays of any strides."""
    scalar = numpy_support.from_dtype(np.dtype(spec.acc_dtype))
    matrix = types.Array(scalar, 2, "A")
    panel = types.Array(numpy_support.from_dtype(np.dtype(f"float{spec.real_bits}")), 1, "C")
    i = types.intp
    return words.compile(
        (
            KernelType(spec),
            i,
            i,
            i,
            i,
            scalar,
            matrix,
            matrix,
            panel,
            panel,
            scalar,
            matrix,
            i,
            panel,
        )
    )


def aligned(count: int, dtype: Any) -> np.ndarray:
    """Reals at a 64-byte boundary, as packed panels are, with canaries behind: [0:count] is the panel."""
    raw = np.full(count * 8 + 256, 0xAB, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + (count + 8) * np.dtype(dtype).itemsize].view(dtype)


def kernels_with_words() -> list[KernelSpec]:
    """Return the kernels of the best set here, and of another one for each dtype: the others' words run in products."""
    best, *others = host_isas()
    lesser = {dtype: others[i % len(others)] for i, dtype in enumerate(DTYPES) if others}
    return [spec for spec in kernels_here() if spec.isa in (best, lesser.get(spec.acc_dtype))]


@pytest.mark.parametrize("spec", kernels_with_words(), ids=lambda spec: spec.name)
def test_compiled_words_equal_their_numpy_meaning(spec: KernelSpec) -> None:
    rng = np.random.default_rng(18)
    run = {WORDS_OF[way][1]: compile_word(WORDS_OF[way][0], spec) for way in paths_of(spec) if way in WORDS_OF}
    real = np.dtype(f"float{spec.real_bits}")
    scalar = np.dtype(spec.acc_dtype).type
    layouts = ("C", "F", "sliced", "columns", "columns_F", "reversed")
    for turn in range(36):
        whole = turn % 3 == 0
        m = spec.mr if whole else int(rng.integers(1, spec.mr + 1))
        n = spec.nr if whole else int(rng.integers(1, spec.nr + 1))
        k = int(rng.choice((1, 2, 3, 4, 5, 7, 8, 9, 16, 33)))
        told = f"{spec.name}, turn {turn}: {m}x{n}x{k}"
        a = lay_out(draw(rng, (m, k), spec.acc_dtype), layouts[turn % 6])
        b = lay_out(
            draw(rng, (k, n), spec.acc_dtype),
            ("C", "columns")[turn % 2] if turn % 4 < 2 else layouts[turn // 2 % 6],
        )
        panels = []
        for width, x in (("mr", a), ("nr", b.T)):
            panels.append(aligned(k * getattr(spec, width) * spec.planes, real))
            reference.pack_micro_panels(spec, width, x, panels[-1][None])

        for word in sorted(run):
            if word in (ROWS, PARTS) and b.strides[1] != b.itemsize:
                continue  # rows of B are read as they lie, and need unit column stride
            if word == COLUMNS and b.strides[0] != b.itemsize:
                continue
            if word == HALF and a.strides[1] != a.itemsize:
                continue
            alpha, beta = scalar((1, 2, -1)[turn % 3]), scalar((0, 1, 3)[turn // 3 % 3])
            conj = int(rng.integers(0, 4)) if spec.complex else 0
            if spec.complex and turn % 5 == 0:
                alpha, beta = scalar(1 - 2j), scalar(2j) if beta else beta
            old = draw(rng, (m, n), spec.acc_dtype)
            c, want = (lay_out(old, ("C", "F", "sliced", "columns")[turn % 4]) for _ in range(2))
            around = surroundings(c)
            sums = aligned(spec.sums, real)
            sums[:] = 0
            run[word](spec, word, m, n, k, alpha, a, b, *panels, beta, c, conj, sums)
            source_a = panels[0] if word in (PACKED, STRIP) else a
            source_b = panels[1] if word in (PACKED, STRIP, HALF) else b
            reference.microkernel(spec, m, n, k, alpha, source_a, source_b, beta, want, conj)
            expect_equal(c, want, case=f"{told} {WORDS[word]}: alpha {alpha} beta {beta} conj {conj}")
            assert surroundings(c) == around, f"{told} {WORDS[word]}: a gap of c was written"


@njit
def sweep_word(kernel, m, n, k, step, alpha, a, b, beta, c, conj, sums):  # type: ignore[no-untyped-def]
    for p in range(0, k, step):
        sweep(kernel, m, n, min(step, k - p), alpha, a[:, p:], b[p:], beta, c, conj, sums, p + step >= k)


@pytest.mark.parametrize(
    "spec", [spec for spec in kernels_with_words() if "sweep" in paths_of(spec)], ids=lambda spec: spec.name
)
def test_sweep_of_any_number_of_rows_equals_its_numpy_meaning(spec: KernelSpec) -> None:
    rng = np.random.default_rng(21)
    real = np.dtype(f"float{spec.real_bits}")
    scalar, i = numpy_support.from_dtype(np.dtype(spec.acc_dtype)), types.intp
    matrix, reals = types.Array(scalar, 2, "A"), types.Array(numpy_support.from_dtype(real), 2, "C")
    run = sweep_word.compile((KernelType(spec), i, i, i, i, scalar, matrix, matrix, scalar, matrix, i, reals))
    factor = np.dtype(spec.acc_dtype).type
    for turn, m in enumerate(list(range(1, spec.sweep_rows + 1)) * 12):
        width = vectors_of_sweep(spec, m) * spec.lanes  # of a tile
        n = int(rng.choice((1, spec.lanes, width, 2 * width, 2 * width + spec.lanes, rng.integers(1, 3 * width))))
        k, step = int(rng.integers(1, 20)), int(rng.choice((SWEEP_STEPS, 1, 5)))
        a = lay_out(draw(rng, (m, k), spec.acc_dtype), ("C", "F", "sliced", "columns_F", "reversed")[turn % 5])
        b = lay_out(draw(rng, (k, n), spec.acc_dtype), ("C", "columns", "reversed_rows")[turn % 3])
        alpha, beta = factor((1, 2, -1)[turn % 3]), factor((0, 1, 3)[turn // 3 % 3])
        conj = int(rng.integers(0, 4)) if spec.complex else 0
        if spec.complex and turn % 5 == 0:
            alpha, beta = factor(1 - 2j), factor(2j) if beta else beta
        old = draw(rng, (m, n), spec.acc_dtype)
        c, want = (lay_out(old, ("C", "F", "sliced", "columns")[turn % 4]) for _ in range(2))
        around = surroundings(c)
        length = -(-n // spec.lanes) * spec.lanes * spec.chains
        sums = aligned(m * length, real)
        sums[: m * length] = 0
        rows, behind = sums[: m * length].reshape(m, length), sums[m * length :].tobytes()
        told = f"{spec.name} {m}x{n}x{k} in steps of {step}: alpha {alpha} beta {beta} conj {conj}"
        run(spec, m, n, k, step, alpha, a, b, beta, c, conj, rows)
        reference.microkernel(replace(spec, mr=m, nr=spec.lanes), m, n, k, alpha, a, b, beta, want, conj)
        expect_equal(c, want, case=told)
        assert surroundings(c) == around, f"{told}: a gap of c was written"
        assert sums[m * length :].tobytes() == behind, f"{told}: something was written behind the sums"
    again = np.zeros_like(want)
    sweep(spec, m, n, k, factor(1), a, b, factor(0), again, 0, np.zeros((m, n * spec.planes), real), True)
    expect_equal(again, exact_gemm(a, b, None, 1, 0), case=f"{spec.name}: the word as plain Python")


@njit
def pack_words(kernel, of_a, x, out):  # type: ignore[no-untyped-def]
    if of_a:
        pack_micro_panels(kernel, "mr", x, out)
    else:
        pack_micro_panels(kernel, "nr", x, out)


@pytest.mark.parametrize(
    "spec", [spec for spec in kernels_with_words() if "packed" in paths_of(spec)], ids=lambda spec: spec.name
)
def test_packed_micro_panels_equal_their_numpy_meaning(spec: KernelSpec) -> None:
    rng = np.random.default_rng(20)
    real = np.dtype(f"float{spec.real_bits}")
    scalar, reals = (numpy_support.from_dtype(np.dtype(dtype)) for dtype in (spec.acc_dtype, real))
    run = pack_words.compile((KernelType(spec), types.boolean, types.Array(scalar, 2, "A"), types.Array(reals, 2, "C")))
    for of_a, width in ((True, spec.mr), (False, spec.nr)):
        for rows in (1, width - 1, width, width + 1, 4 * width - 1, 4 * width, 4 * width + 1, 9 * width + 1):
            for layout in ("C", "F", "sliced", "columns", "columns_F", "reversed", "unaligned"):
                k = int(rng.choice((1, 2, 3, 4, 5, 7, 8, 9, 16, 33)))
                x = lay_out(draw(rng, (max(rows, 1), k), spec.acc_dtype), layout)
                panels, length = -(-x.shape[0] // width), (k + 1) * width * spec.planes  # a step of canaries behind
                length += -length % (64 // real.itemsize)
                got, want = (aligned(panels * length, real)[: panels * length].reshape(panels, length) for _ in "ab")
                got[:], want[:] = 77, 77
                run(spec, of_a, x, got)
                reference.pack_micro_panels(spec, "mr" if of_a else "nr", x, want)
                expect_equal(got, want, case=f"{spec.name} {width} rows {rows} k {k} {layout}", same_bits=True)


# ---- the catalog --------------------------------------------------------------------------------


def test_every_vector_set_has_a_kernel_of_every_dtype_for_both_roles() -> None:
    for isa in ISAS.values():
        for dtype in DTYPES:
            for role in catalog.ROLES:
                spec = catalog.preferred(dtype, isa, role)
                assert (spec.isa, spec.acc_dtype) == (isa, dtype)
                assert catalog.by_name(spec.name) == spec


def test_names_are_unique_and_say_dtype_tile_and_vector_set() -> None:
    rows = catalog.kernels()
    assert len({spec.name for spec in rows}) == len(rows)
    short = {"float32": "f32", "float64": "f64", "complex64": "c64", "complex128": "c128"}
    for spec in rows:
        assert spec.name == f"{short[spec.acc_dtype]}_{spec.mr}x{spec.nr}_{spec.isa.name}"
    assert {spec for dtype in DTYPES for spec in catalog.kernels(dtype)} == set(rows)
    assert {spec for isa in ISAS for spec in catalog.kernels(isa=isa)} == set(rows)


def test_an_unknown_name_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(BlisgemmValueError, match=r"f32_6x16_avx2.*got 'f32_7x7_avx2'"):
        catalog.by_name("f32_7x7_avx2")


def test_the_kernels_of_this_machine_are_those_of_its_vector_sets() -> None:
    names = {spec.isa.name for spec in kernels_here()}
    assert names == {isa.name for isa in host_isas()}
    assert names <= {isa.name for isa in isas_of(next(iter(KNOWN.values())).arch)} | set(ISAS)


@pytest.mark.parametrize(
    ("mr", "nr", "words"),
    [(0, 16, "mr=0"), (6, 0, "nr=0"), (6, 12, "multiple of 8"), (8, 16, "needs"), (-1, 8, "mr=-1")],
)
def test_a_tile_that_cannot_exist_is_refused_with_its_account(mr: int, nr: int, words: str) -> None:
    with pytest.raises(BlisgemmValueError, match=rf"mr, nr: expected .*{words}"):
        KernelSpec("float32", "float32", "float32", mr, nr, ISAS["avx2"])
    with pytest.raises(BlisgemmValueError, match="a_dtype: expected"):
        KernelSpec("int7", "float32", "float32", 6, 16, ISAS["avx2"])


def test_the_unroll_of_a_kernel_changes_no_bit() -> None:
    rng = np.random.default_rng(19)
    spec = kernels_here("float64")[-1]  # the generic one, quick to compile
    assert spec.unroll > 1
    a, b = rng.standard_normal((30, 41)), rng.standard_normal((41, 33))
    got = []
    for unroll in (1, spec.unroll):
        kernel = replace(spec, unroll=unroll)
        plan = blisgemm.make_plan(30, 33, 41, "float64", kernel=kernel, path="packed", threads=1)
        got.append(blisgemm.gemm(a, b, plan=plan))
    expect_equal(got[1], got[0], plan, same_bits=True)
