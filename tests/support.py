"""What the tests of products share: data, layouts, references, views, and how a failure is told.

Knows: how to lay a matrix out in memory in every awkward way, what a product must be, and where the
first wrong element sits in the five loops. Does not know: how the library computes anything;
every reference here is NumPy on integers, longdouble or Python fractions.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

if __name__ == "__main__":  # as a script: the library lies above
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import blisgemm
from blisgemm.machine import host_isas
from blisgemm.rules import is_swapped
from blisgemm.testing.cases import covering as covering  # as: for the tests that take these from here
from blisgemm.testing.layouts import INPUT_LAYOUTS as INPUT_LAYOUTS
from blisgemm.testing.layouts import OUTPUT_LAYOUTS as OUTPUT_LAYOUTS
from blisgemm.testing.layouts import lay_out as lay_out
from blisgemm.testing.layouts import surroundings as surroundings
from blisgemm.testing.reference import op as op
from blisgemm.testing.values import draw_reals as draw_reals
from blisgemm.ukernel import catalog
from blisgemm.ukernel.operand import steps_of_columns
from blisgemm.ukernel.spec import SWEEP_STEPS, KernelSpec

REPOSITORY = Path(__file__).resolve().parents[1]
DTYPES = ("float32", "float64", "complex64", "complex128")
TRANS: tuple[Any, ...] = (False, "T", "C", "R")

# ---- kernels ------------------------------------------------------------------------------------


def kernels_here(dtype: str | None = None) -> list[KernelSpec]:
    """Return the rows of the catalog that this machine can run."""
    here = {isa.name for isa in host_isas()}
    return [spec for spec in catalog.kernels(dtype) if spec.isa.name in here]


def kernels_tried(dtype: str) -> list[KernelSpec]:
    """Return the kernels of this machine that whole grids are run on: compiling them is most of a session's time.

    All of the best vector set; of each lesser one the direct and the packed kernel of half of the dtypes (emulated
    processors and forced sets try the others).
    """
    best, *lesser = host_isas()
    found = [spec for spec in kernels_here(dtype) if spec.isa == best]
    for place, isa in enumerate(lesser):
        if DTYPES.index(dtype) % 3 == place % 2:
            found += dict.fromkeys(catalog.preferred(dtype, isa, role) for role in ("direct", "packed"))
    return found


# What runs a product, as the tests tell them apart: "columns" is the direct path where B has unit row stride, "half"
# the packed one that reads A as it lies.
WAYS = ("direct", "columns", "sweep", "stream", "strips", "packed", "half")
PATHS_OF_WAYS = {"columns": "direct", "half": "packed"}
_ROLES = {"columns": "column", "sweep": "row", "stream": "direct", "strips": "packed", "half": "packed"}


def paths_of(spec: KernelSpec) -> tuple[str, ...]:
    """Return the ``WAYS`` that a kernel is tried on, so many as are worth their time to compile.

    Direct: every kernel. Packed: those that the library packs for (of a lesser vector set, for many rows only).
    The others: the kernel of that role, in the sets of ``isas_of_all_ways``.
    """
    of_roles = {role: catalog.preferred(spec.acc_dtype, spec.isa, role) for role in catalog.ROLES}
    packs = spec == of_roles["packed"] or spec not in of_roles.values()
    packs |= spec == of_roles["row"] and spec.isa == host_isas()[0]
    ways = {"direct": True, "packed": packs}
    everything = spec.isa.name in isas_of_all_ways(spec.acc_dtype)
    ways |= {way: everything and spec == of_roles[role] for way, role in _ROLES.items()}
    return tuple(way for way in WAYS if ways[way])


def isas_of_all_ways(dtype: str) -> tuple[str, ...]:
    """Return the vector sets that are tried on all ways: the best here, the next with fma, and one without it.

    That one for a real and a complex type only: it differs from the others in how a term is added.
    """
    fused = [isa.name for isa in host_isas() if isa.fma][:2]
    unfused = [isa.name for isa in host_isas() if not isa.fma and dtype in ("float32", "complex128")]
    return (*fused, *unfused)


def chosen_kernel(dtype: str) -> KernelSpec:
    """Return the kernel that a large product of ``dtype`` gets on this machine."""
    plan = blisgemm.make_plan(2000, 2000, 2000, dtype)
    assert plan.kernel is not None, str(plan)
    return plan.kernel


# Dtypes whose ways are tried on several threads: a real and a complex one, as all share their text. The sweep is for
# all: large products choose it.
_PARALLEL = {
    "columns": ("float32", "complex64"), "stream": ("float64", "complex64"), "sweep": DTYPES,
    "strips": ("float32", "complex128"),
    "half": ("float32", "complex128"),
}  # fmt: skip


def kernel_paths() -> list[tuple[KernelSpec, str, int]]:
    """Return (kernel, way, threads): every kernel on its ways, the chosen ones on several threads too.

    Several threads call the same kernels from a few entry points, so a few of them will do.
    """
    found = []
    for dtype in DTYPES:
        for way in WAYS:
            found += [(spec, way, 1) for spec in kernels_tried(dtype) if way in paths_of(spec)]
            if way == "packed":
                found += [(chosen_kernel(dtype), way, threads) for threads in (2, 4)]
            elif way == "direct":
                chosen = blisgemm.make_plan(150, 150, 150, dtype).kernel
                found += [(chosen, way, threads) for threads in (2, 4) if chosen]
            elif dtype in _PARALLEL[way]:
                found += [(catalog.preferred(dtype, host_isas()[0], _ROLES[way]), way, 3)]
    return found


def case_id(case: tuple[KernelSpec, str, int]) -> str:
    """Name a row of ``kernel_paths``, e.g. ``f32_6x16_avx2-packed-2``."""
    spec, way, threads = case
    return f"{spec.name}-{way}-{threads}"


def tiny_kc(spec: KernelSpec, way: str) -> int:
    """Return a kc that turns the loops inside the kernel too: each of its strides over p, and steps that are left."""
    return {
        "direct": 3,
        "columns": 2 * steps_of_columns(spec) + 1,  # parts that are transposed, then a step
        "sweep": SWEEP_STEPS + 3,  # as many rows of B as pass at once, then fewer
        "stream": 5,  # in parts of two
        "strips": 5,
        "packed": max(3, spec.unroll + 1),
        "half": max(3, spec.unroll + 1),
    }[way]


def lies_by(b: np.ndarray) -> str:
    """Return how a direct kernel reads ``b``: by ``rows`` or ``columns`` of unit stride."""
    return "rows" if b.strides[-1] == b.itemsize or b.shape[-1] == 1 else "columns"


def suited(way: str, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return op(a) and op(b) laid out for a way, whether C or C's transpose will be computed."""
    if way == "packed":
        return a, b
    if way == "half":
        return np.array(a, order="C"), np.asfortranarray(b)
    if way == "columns":
        return np.ascontiguousarray(a), np.asfortranarray(b)
    return np.asfortranarray(a), np.array(b, order="C")


def tiny_plan(
    case: tuple[KernelSpec, str, int], a: np.ndarray, b: np.ndarray, out: np.ndarray | None = None, kc: int = 0
) -> Any:
    """Return a plan for op(a) times op(b) whose blocks are so small that a few dozen elements turn every loop.

    mc and nc are two micro-tiles, or five, of which four are packed side by side (the sweep's nc two or five
    vectors), kc is ``tiny_kc``; micro-tiles of the direct path go down the columns of C or along its rows. No small
    product is worth two threads, so they are put into the plan: ways 2 x 1 or 1 x 2, and 2 x 2, or tiles that each
    takes as it gets free.

    Args:
        a, b: op(a) and op(b) as they lie, ``suited``; out: where the result goes, C order if ``None``.
        kc: in place of ``tiny_kc``.
    """
    spec, way, threads = case
    (m, k), n = a.shape, b.shape[-1]
    strides = (0, spec.itemsize) if out is None or out.dtype != np.dtype(spec.acc_dtype) else out.strides
    swapped = is_swapped(m, n, strides[0] == spec.itemsize, strides[1] == spec.itemsize)
    rows, columns, read = (n, m, a.T) if swapped else (m, n, b)
    tiles = 5 if (m + n + k) % 2 else 2
    blocking = (tiles * spec.mr, tiles * spec.nr, kc or tiny_kc(spec, way))
    path = PATHS_OF_WAYS.get(way, way)
    plan = blisgemm.make_plan(rows, columns, k, spec.acc_dtype, kernel=spec, blocking=blocking, path=path, threads=1)
    plan = replace(plan, m=m, n=n, swapped=swapped)
    if plan.path != path:
        return plan  # nothing is read, or there is nothing to do
    if plan.path == "direct":
        plan = replace(plan, access=lies_by(read))
    if plan.path == "packed":
        blocks = plan.blocking
        if threads > 1:
            blocks = replace(blocks, mt=spec.mr, nb=2 * blocks.nc)
        plan = replace(plan, half=way == "half", ic_ways=threads, blocking=blocks)
    elif plan.path == "direct":
        ways = {1: (1, 1), 2: (2, 1) if (m + n) % 2 else (1, 2), 3: (1, 3), 4: (2, 2)}[threads]
        plan = replace(plan, rows_first=(m + k) % 2 == 0, ic_ways=ways[0], jr_ways=ways[1])
    else:
        nc = tiles * spec.lanes if way == "sweep" else 2 * spec.nr
        step = SWEEP_STEPS if way == "sweep" else 2
        plan = replace(plan, jr_ways=threads, step=step, blocking=replace(plan.blocking, nc=nc))
    assert plan.threads == threads
    return plan


def trace_of_team(
    m: int, n: int, k: int, mr: int, nr: int, blocking: tuple[int, int, int], half: bool, threads: int, mt: int, nb: int
) -> Any:
    """Return the trace of a product on a team, however small: no plan would put it on several threads."""
    from blisgemm.teach.trace import _any_tile, trace_plan

    plan = blisgemm.make_plan(m, n, k, "float32", path="packed", threads=1)
    blocks = replace(plan.blocking, mc=blocking[0], nc=blocking[1], kc=blocking[2], mt=mt, nb=nb)
    kernel = _any_tile("float32", mr, nr)
    return trace_plan(replace(plan, kernel=kernel, half=half, ic_ways=threads, swapped=False, blocking=blocks))


# ---- data ---------------------------------------------------------------------------------------


def draw(rng: np.random.Generator, shape: Sequence[int], dtype: Any, largest: int = 4) -> np.ndarray:
    """Draw small integers of ``dtype``: every partial sum of a product is exact, in any order."""
    dtype = np.dtype(dtype)
    values = rng.integers(-largest, largest + 1, shape).astype(dtype)
    if dtype.kind == "c":
        values = (values + 1j * rng.integers(-largest, largest + 1, shape)).astype(dtype)
    return values


# ---- layouts ------------------------------------------------------------------------------------


# Rows of unit stride, as the direct path wants B (if C has them too), and columns of unit stride.
ROW_LAYOUTS = ("C", "columns", "reversed_rows", "unaligned", "swapped", "zero_rows")
COLUMN_LAYOUTS = ("F", "columns_F", "zero_columns")


# ---- references ---------------------------------------------------------------------------------


def exact_gemm(a: np.ndarray, b: np.ndarray, c: np.ndarray | None, alpha: complex, beta: complex) -> np.ndarray:
    """Return ``alpha * a @ b + beta * c`` of integer data, by 64-bit integers: no BLAS, no rounding."""

    def parts(x: Any) -> tuple[np.ndarray, np.ndarray]:
        x = np.asarray(x)
        return x.real.astype(np.int64), x.imag.astype(np.int64)

    (ar, ai), (br, bi) = parts(a), parts(b)
    re, im = ar @ br - ai @ bi, ar @ bi + ai @ br
    (fr, fi) = parts(alpha)
    re, im = fr * re - fi * im, fr * im + fi * re
    if c is not None and beta != 0:
        (cr, ci), (gr, gi) = parts(c), parts(beta)
        re, im = re + gr * cr - gi * ci, im + gr * ci + gi * cr
    dtype = np.result_type(a, b).newbyteorder("=")
    if dtype.kind != "c":
        assert not im.any()
        return re.astype(dtype)
    out = np.empty(re.shape, dtype)
    out.real, out.imag = re, im
    return out


def rounded_gemm(
    a: np.ndarray, b: np.ndarray, c: np.ndarray | None, alpha: complex, beta: complex, kc: int, *, fused: bool = True
) -> np.ndarray:
    """Return ``alpha * a @ b + beta * c`` of small integers, bit for bit, where alpha and beta may round.

    The sums are exact; each kc block is then scaled with the rounding that ``microtile`` pins, here in integers: as
    multiples of the last bit of alpha and beta, rounded by their conversion to the dtype.
    """
    dtype = np.result_type(a, b).newbyteorder("=")
    real = np.dtype(dtype.type(0).real.dtype)
    unit = {4: 24, 8: 53}[real.itemsize] if any(x != round(x) for f in (alpha, beta) for x in planes_of(f)) else 0

    def rounded(x: np.ndarray) -> np.ndarray:
        assert np.abs(x).max(initial=0) < 2**62, "too large to be told in 64 bits"
        return x.astype(real).astype(np.int64)

    def times(factor: float, x: np.ndarray, plus: np.ndarray | None) -> np.ndarray:
        scaled = int(float(real.type(factor)) * 2**unit) * x
        if plus is None:
            return rounded(scaled)
        return rounded(scaled + plus) if fused else rounded(rounded(scaled) + plus)

    def scale(factor: complex, x: list[np.ndarray], plus: list[np.ndarray] | None) -> list[np.ndarray]:
        re, im = planes_of(factor)
        inner = plus or [None, None]  # type: ignore[list-item]
        if im:
            inner = [times(f, x[other], inner[i]) for i, (f, other) in enumerate(((-im, 1), (im, 0)))]
        return [times(re, plane, inner[i]) for i, plane in enumerate(x)]

    def integers(x: np.ndarray) -> list[np.ndarray]:
        return [np.asarray(plane).astype(np.int64) for plane in (x.real, x.imag)[: 1 + (dtype.kind == "c")]]

    old = scale(beta, integers(c), None) if c is not None and beta != 0 else None
    if alpha != 0:
        for pc in range(0, a.shape[1], kc):
            of_a, of_b = a[:, pc : pc + kc], b[pc : pc + kc]
            old = scale(alpha, integers(exact_gemm(of_a, of_b, None, 1, 0)), old)
    shape = (a.shape[0], b.shape[1])
    values = [plane.astype(real) / real.type(2**unit) for plane in old or [np.zeros(shape, np.int64)] * 2]
    out = np.empty(shape, dtype)
    if dtype.kind != "c":
        return np.asarray(values[0], dtype).reshape(shape)
    out.real, out.imag = values
    return out


def planes_of(x: complex) -> tuple[float, float]:
    """Return (re, im)."""
    return complex(x).real, complex(x).imag


def round_to(x: Fraction, dtype: np.dtype) -> Any:
    """Round an exact number once, to nearest even, to float32 or float64 (no subnormal results)."""
    d = float(x)  # Python divides integers with one correct rounding
    if dtype == np.float64:
        return np.float64(d)
    # Round to odd at 53 bits, then to 24: the two roundings together are one.
    exact = Fraction(d)
    if exact != x:
        bits = int(np.float64(d).view(np.int64))
        if bits % 2 == 0:
            toward_larger = (x > exact) == (d > 0)
            d = float(np.int64(bits + (1 if toward_larger else -1)).view(np.float64))
    return np.float32(d)


def fma(x: Any, y: Any, z: Any) -> Any:
    """Return ``x * y + z`` of one real dtype, rounded once."""
    dtype = np.asarray(x).dtype
    exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
    return round_to(exact, dtype) if exact else dtype.type(0)


def chain(row: np.ndarray, column: np.ndarray) -> Any:
    """Return the sum over p ascending of row[p] * column[p]: one fma per term, from +0."""
    total = row.dtype.type(0)
    for x, y in zip(row, column, strict=True):
        total = fma(x, y, total)
    return total


# ---- failures -----------------------------------------------------------------------------------


def first_wrong(got: np.ndarray, want: np.ndarray, equal: np.ndarray, plan: Any) -> str:
    """Describe the first wrong element, and the loops it belongs to when the plan says where they start."""
    at = tuple(int(x) for x in np.argwhere(~equal)[0])
    text = f"{np.count_nonzero(~equal)} of {want.size} elements wrong, the first at {at}: "
    text += f"expected {want[at]}, got {got[at]}"
    kernel, blocking = getattr(plan, "kernel", None), getattr(plan, "blocking", None)
    if kernel is not None and blocking is not None and len(at) >= 2:
        i, j = at[-2:]
        if plan.swapped:
            i, j = j, i
        jc, ic = j // blocking.nc * blocking.nc, i // blocking.mc * blocking.mc
        jr, ir = (j - jc) // kernel.nr * kernel.nr, (i - ic) // kernel.mr * kernel.mr
        text += f", in (ic, jc, ir, jr) = ({ic}, {jc}, {ir}, {jr})"
    return text


def expect_equal(got: Any, want: Any, plan: Any = None, case: Any = "", *, same_bits: bool = False) -> None:
    """Fail unless shape, dtype and elements agree (NaN equals NaN); tell plan and first wrong element."""
    got, want = np.asarray(got), np.asarray(want)
    where = f"\ncase: {case}\nplan: {plan}"
    assert got.shape == want.shape, f"expected shape {want.shape}, got {got.shape}{where}"
    native = got.dtype.newbyteorder("=")
    assert native == want.dtype.newbyteorder("="), f"expected dtype {want.dtype}, got {got.dtype}{where}"
    if same_bits:
        word = np.dtype(f"V{want.itemsize}")
        x, y = (np.ascontiguousarray(z, native) for z in (got, want))
        equal = (x.reshape(-1).view(word) == y.reshape(-1).view(word)).reshape(want.shape) if want.size else x == y
    else:
        equal = (got == want) | ((got != got) & (want != want))
    if not np.all(equal):
        raise AssertionError(first_wrong(got, want, np.asarray(equal), plan) + where)


def bits(x: Any) -> bytes:
    """Return the bytes of ``x`` in C order, native byte order."""
    x = np.asarray(x)
    return np.ascontiguousarray(x, x.dtype.newbyteorder("=")).tobytes()


# ---- other processes ----------------------------------------------------------------------------


def run_python(code: str, *args: str, timeout: float = 120, check: bool = True, popen: Any = None,
               **environment: str | None) -> subprocess.CompletedProcess[str]:  # fmt: skip
    """Run ``code`` in a fresh Python with this checkout on its path; fail with its output if it fails.

    ``environment`` is added to this process's (``None`` removes a name); ``popen`` goes to subprocess.
    """
    env = dict(os.environ)
    env["PYTHONPATH"] = os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "tests"), env.get("PYTHONPATH", "")])
    for name, value in environment.items():
        if value is None:
            env.pop(name, None)
        else:
            env[name] = value
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(code), *args],
        env=env, capture_output=True, text=True, timeout=timeout, **(popen or {}),
    )  # fmt: skip
    if check:
        assert done.returncode == 0, (
            f"the process ended with status {done.returncode}\n"
            f"--- stdout\n{done.stdout[-4000:]}\n--- stderr\n{done.stderr[-6000:]}"
        )
    return done


def compile_ahead() -> None:
    """Run every kernel and path once, the last ones first: what is compiled stays in the cache folder."""
    for case in reversed(kernel_paths()):
        a, b = suited(case[1], *(np.ones((4, 4), case[0].acc_dtype) for _ in range(2)))
        blisgemm.gemm(a, b, plan=tiny_plan(case, a, b))


if __name__ == "__main__":
    compile_ahead()
