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
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

if __name__ == "__main__":  # as a script: the library lies above
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import blisgemm
from blisgemm.machine import host_isas
from blisgemm.ukernel import catalog
from blisgemm.ukernel.spec import KernelSpec

REPOSITORY = Path(__file__).resolve().parents[1]
DTYPES = ("float32", "float64", "complex64", "complex128")
TRANS: tuple[Any, ...] = (False, "T", "C", "R")
CANARY = 77  # a small integer that no test's data or product padding uses as "nothing"

# ---- kernels ------------------------------------------------------------------------------------


def kernels_here(dtype: str | None = None) -> list[KernelSpec]:
    """Return the rows of the catalog that this machine can run."""
    here = {isa.name for isa in host_isas()}
    return [spec for spec in catalog.kernels(dtype) if spec.isa.name in here]


def paths_of(spec: KernelSpec) -> tuple[str, ...]:
    """Return the paths that a kernel is tried on: both, but for kernels of a lesser vector set in no packed role.

    The packed loops take longest to compile, and the library runs such a kernel without packing only.
    """
    of_roles = {role: catalog.preferred(spec.acc_dtype, spec.isa, role) for role in catalog.ROLES}
    packs = spec == of_roles["packed"] or spec not in of_roles.values() or spec.isa == host_isas()[0]
    return ("direct", "packed") if packs else ("direct",)


def chosen_kernel(dtype: str) -> KernelSpec:
    """Return the kernel that a large product of ``dtype`` gets on this machine."""
    plan = blisgemm.make_plan(2000, 2000, 2000, dtype)
    assert plan.kernel is not None, str(plan)
    return plan.kernel


def kernel_paths() -> list[tuple[KernelSpec, str, int]]:
    """Return (kernel, path, threads): every kernel on its paths, the chosen ones on 2 and 4 threads too.

    The parallel loops are the same text for every kernel and take longest to compile.
    """
    found = []
    for dtype in DTYPES:
        chosen = {"packed": chosen_kernel(dtype), "direct": blisgemm.make_plan(150, 150, 150, dtype).kernel}
        for path in chosen:
            found += [(spec, path, 1) for spec in kernels_here(dtype) if path in paths_of(spec)]
            found += [(spec, path, threads) for spec in [chosen[path]] if spec for threads in (2, 4)]
    return found


def case_id(case: tuple[KernelSpec, str, int]) -> str:
    """Name a row of ``kernel_paths``, e.g. ``f32_6x16_avx2-packed-2``."""
    spec, path, threads = case
    return f"{spec.name}-{path}-{threads}"


def tiny_plan(spec: KernelSpec, path: str, threads: int, m: int, n: int, k: int) -> Any:
    """Return a plan whose blocks are two micro-tiles and three p, so that small products turn every loop.

    No small product is worth two threads, so their ways are put into the plan: 2 x 1 or 1 x 2, and 2 x 2.
    """
    blocking = (2 * spec.mr, 2 * spec.nr, 3)
    plan = blisgemm.make_plan(m, n, k, spec.acc_dtype, kernel=spec, blocking=blocking, path=path, threads=1)
    if threads > 1 and plan.path in ("direct", "packed"):
        ways = {2: (2, 1) if (m + n) % 2 else (1, 2), 4: (2, 2)}[threads]
        plan = replace(plan, ic_ways=ways[0], jr_ways=ways[1])
        assert plan.threads == threads
    return plan


# ---- data ---------------------------------------------------------------------------------------


def draw(rng: np.random.Generator, shape: Sequence[int], dtype: Any, largest: int = 4) -> np.ndarray:
    """Draw small integers of ``dtype``: every partial sum of a product is exact, in any order."""
    dtype = np.dtype(dtype)
    values = rng.integers(-largest, largest + 1, shape).astype(dtype)
    if dtype.kind == "c":
        values = (values + 1j * rng.integers(-largest, largest + 1, shape)).astype(dtype)
    return values


def draw_reals(rng: np.random.Generator, shape: Sequence[int], dtype: Any) -> np.ndarray:
    """Draw numbers of both signs over some 12 binary orders of magnitude, where rounding shows."""
    dtype = np.dtype(dtype)

    def one() -> np.ndarray:
        return rng.standard_normal(shape) * np.exp2(rng.integers(-6, 7, shape))

    values = one()
    return (values + 1j * one() if dtype.kind == "c" else values).astype(dtype)


def covering(rng: np.random.Generator, count: int, **axes: Sequence[Any]) -> Iterator[dict[str, Any]]:
    """Yield ``count`` cases of the product of ``axes``: random, every value of an axis equally often."""
    columns = {}
    for name, values in axes.items():
        times = -(-count // len(values))
        order = rng.permutation(times * len(values))[:count] % len(values)
        missing = set(range(len(values))) - set(order.tolist())
        order[: len(missing)] = list(missing)
        columns[name] = [values[i] for i in order]
    for i in range(count):
        yield {name: column[i] for name, column in columns.items()}


# ---- layouts ------------------------------------------------------------------------------------


def _c(values: np.ndarray) -> np.ndarray:
    return np.array(values, order="C")


def _f(values: np.ndarray) -> np.ndarray:
    return np.array(values, order="F")


def _sliced(values: np.ndarray) -> np.ndarray:
    m, n = values.shape
    view = np.full((2 * m + 1, 3 * n + 2), CANARY, values.dtype)[1 : 2 * m : 2, 1 : 3 * n : 3]
    view[...] = values
    return view


def _columns(values: np.ndarray) -> np.ndarray:
    """Unit column stride with a leading dimension larger than n: the usual sub-matrix."""
    m, n = values.shape
    view = np.full((m + 2, n + 3), CANARY, values.dtype)[1 : m + 1, 1 : n + 1]
    view[...] = values
    return view


def _columns_f(values: np.ndarray) -> np.ndarray:
    return _columns(values.T).T


def _reversed(values: np.ndarray) -> np.ndarray:
    view = np.empty(values.shape, values.dtype)[::-1, ::-1]
    view[...] = values
    return view


def _reversed_rows(values: np.ndarray) -> np.ndarray:
    view = np.empty(values.shape, values.dtype)[::-1]
    view[...] = values
    return view


def _unaligned(values: np.ndarray) -> np.ndarray:
    view = np.empty(values.nbytes + 1, np.uint8)[1:].view(values.dtype).reshape(values.shape)
    view[...] = values
    return view


def _swapped(values: np.ndarray) -> np.ndarray:
    return values.astype(values.dtype.newbyteorder())


def _field(values: np.ndarray) -> np.ndarray:
    """A field of a packed record: strides that are no multiple of the itemsize."""
    record = np.dtype([("before", "S3"), ("x", values.dtype), ("after", "S2")])
    view = np.empty(values.shape, record)["x"]
    view[...] = values
    return view


def _zero_rows(values: np.ndarray) -> np.ndarray:
    return np.broadcast_to(values[:1].copy(), values.shape) if values.shape[0] else _c(values)


def _zero_columns(values: np.ndarray) -> np.ndarray:
    return np.broadcast_to(values[:, :1].copy(), values.shape) if values.shape[1] else _c(values)


_LAYOUTS = {
    "C": _c, "F": _f, "sliced": _sliced, "columns": _columns, "columns_F": _columns_f, "reversed": _reversed,
    "reversed_rows": _reversed_rows, "unaligned": _unaligned, "swapped": _swapped, "field": _field,
    "zero_rows": _zero_rows, "zero_columns": _zero_columns,
}  # fmt: skip
INPUT_LAYOUTS = tuple(_LAYOUTS)
OUTPUT_LAYOUTS = tuple(name for name in _LAYOUTS if not name.startswith("zero"))

# Rows of unit stride, as the direct path wants B (if C has them too), and columns of unit stride.
ROW_LAYOUTS = ("C", "columns", "reversed_rows", "unaligned", "swapped", "zero_rows")
COLUMN_LAYOUTS = ("F", "columns_F", "zero_columns")


def lay_out(values: np.ndarray, layout: str) -> np.ndarray:
    """Return ``values`` (2-D) in the named layout; the zero-stride ones repeat the first row or column."""
    return _LAYOUTS[layout](values)


def surroundings(view: np.ndarray) -> bytes:
    """Return every byte of the buffer behind ``view`` that doesn't belong to ``view``."""
    root = view
    while isinstance(root.base, np.ndarray):
        root = root.base
    if root.size == 0 or view.size == 0:
        return b""
    buffer = (root if root.flags.c_contiguous else root.T).reshape(-1).view(np.uint8)
    start = view.__array_interface__["data"][0] - root.__array_interface__["data"][0]
    offsets = np.array([start])
    for extent, stride in zip(view.shape, view.strides, strict=True):
        offsets = (offsets[:, None] + np.arange(extent) * stride).reshape(-1)
    outside = np.ones(buffer.size, bool)
    for byte in range(view.itemsize):
        outside[offsets + byte] = False
    return buffer[outside].tobytes()


# ---- references ---------------------------------------------------------------------------------


def op(x: np.ndarray, trans: Any) -> np.ndarray:
    """Return ``op(x)`` of gemm."""
    if trans in ("C", "R"):
        x = x.conj()
    return x.T if trans in (True, "T", "C") else x


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
        text += f", in (jc, ic, jr, ir) = ({jc}, {ic}, {jr}, {ir})"
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
    for spec, path, threads in reversed(kernel_paths()):
        a, b = np.ones((4, 4), spec.acc_dtype), np.ones((4, 4), spec.acc_dtype)
        blisgemm.gemm(a, b, plan=tiny_plan(spec, path, threads, 4, 4, 4))


if __name__ == "__main__":
    compile_ahead()
