"""The CUDA kernels that plans choose, compiled for every generation of cards without a GPU.

Knows: what good machine code of a kernel looks like: all sums in registers, as many multiplications as the tiles say,
copies that go on by themselves where the card has them. Does not know: a device; tests/cuda has what needs one.

A kernel takes 1 to 2 s to compile, so that roles are spread over the generations: each has the large float32 and
float64 products, and some of the others.
"""

from __future__ import annotations

import functools
import re
import types
from dataclasses import replace
from typing import Any

import pytest

from blisgemm.cuda.device import KNOWN_DEVICES, Device
from blisgemm.cuda.plan import Layout, Plan, make_plan, plan_for
from blisgemm.cuda.tiles import KernelSpec, Step


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
pytestmark = pytest.mark.skipif(bool(NO_COMPILER), reason=NO_COMPILER)

DEVICES = {
    (7, 5): "t4", (8, 0): "a100", (8, 6): "rtx3090", (8, 9): "rtx4090", (9, 0): "h200", (10, 0): "b200",
    (12, 0): "rtx5090",
}  # fmt: skip
YOUNG = ((10, 0), (12, 0))  # toolkits before 12.8 don't know them
ROUND, ODD = 4096, 4095  # extents that fill whole tiles; that allow no copy of more than an element


def _layouts(vector: int) -> tuple[Layout, Layout]:
    return Layout("k", vector), Layout("r", vector)


def _odd_of(dtype: str, device: Device, *, n: int = ODD, **more: Any) -> Plan:
    return plan_for(device, ODD, n, ODD, dtype, *_layouts(1), 1, **more)


def _streamk_of(dtype: str, device: Device) -> Plan:
    """Return a plan with divided tiles: few of them, and many slabs."""
    return make_plan(512, 512, 16384, dtype, device=device)


ROLES: dict[str, Any] = {
    "f32": lambda d: make_plan(ROUND, ROUND, ROUND, "float32", device=d),
    "f32_nt": lambda d: make_plan(ROUND, ROUND, ROUND, "float32", device=d, trans_b=True),
    "f32_tn": lambda d: make_plan(ROUND, ROUND, ROUND, "float32", device=d, trans_a=True),
    "f32_tt": lambda d: make_plan(ROUND, ROUND, ROUND, "float32", device=d, trans_a=True, trans_b=True),
    "f32_odd": lambda d: _odd_of("float32", d, reads_c=True),
    "f32_streamk": lambda d: _streamk_of("float32", d),
    "f32_low": lambda d: make_plan(16, 8192, 8192, "float32", device=d),
    "f32_slim": lambda d: make_plan(100_000, 16, 64, "float32", device=d),
    "f32_row": lambda d: make_plan(1, ROUND, ROUND, "float32", device=d),
    "f32_column": lambda d: make_plan(ROUND, 1, ROUND, "float32", device=d),
    "f64_rows": lambda d: make_plan(4, ROUND, ROUND, "float64", device=d),
    "c128_rows": lambda d: make_plan(3, ROUND, ROUND, "complex128", device=d),
    "c64_columns": lambda d: make_plan(ROUND, 2, ROUND, "complex64", device=d),
    "f64": lambda d: make_plan(ROUND, ROUND, ROUND, "float64", device=d),
    "f64_odd": lambda d: _odd_of("float64", d, reads_c=True),
    "f64_streamk": lambda d: _streamk_of("float64", d),
    "f64_low": lambda d: make_plan(16, 8192, 8192, "float64", device=d),
    "c64": lambda d: make_plan(ROUND, ROUND, ROUND, "complex64", device=d),
    "c64_conj": lambda d: _odd_of("complex64", d, reads_c=True, conj_a=True),
    "c128": lambda d: make_plan(ROUND, ROUND, ROUND, "complex128", device=d),
    "c128_low": lambda d: make_plan(16, 8192, 8192, "complex128", device=d),
    "c128_conj": lambda d: _odd_of("complex128", d, reads_c=True, conj_b=True),
}
PLACES = {
    "f32": (*DEVICES,),
    "f64": (*DEVICES,),
    "f32_nt": ((7, 5), (8, 0), (9, 0)),
    "f32_tn": ((9, 0),),
    "f32_tt": ((8, 9),),
    "f32_odd": ((7, 5), (8, 6), (9, 0)),
    "f32_streamk": ((8, 0), (9, 0), (10, 0), (12, 0)),
    "f32_low": ((8, 9), (9, 0)),
    "f32_slim": ((8, 6),),
    "f32_row": ((7, 5), (9, 0), (12, 0)),
    "f32_column": ((8, 0), (9, 0)),
    "f64_rows": ((9, 0),),
    "c128_rows": ((8, 0),),
    "c64_columns": ((9, 0),),
    "f64_odd": ((7, 5), (8, 0), (9, 0)),
    "f64_streamk": ((8, 0), (10, 0)),
    "f64_low": ((9, 0),),
    "c64": ((7, 5), (9, 0)),
    "c64_conj": ((8, 0),),
    "c128": ((7, 5), (8, 0), (9, 0)),
    "c128_low": ((9, 0),),
    "c128_conj": ((8, 6),),
}
CASES = [(role, capability) for role, capabilities in PLACES.items() for capability in capabilities]


@functools.cache
def compiled(spec: KernelSpec, capability: tuple[int, int]) -> Any:
    from blisgemm.cuda.compile import compile_kernel

    try:
        return compile_kernel(spec, capability)
    except Exception as error:
        if capability in YOUNG and re.search(r"arch|comput|not.*support|sm_1", str(error)):
            pytest.skip(f"this toolkit doesn't compile for {capability}: {error}")
        raise


def check_registers(code: Any, spec: KernelSpec, device: Device) -> None:
    """Assert that nothing went to memory instead of registers, and that the blocks meant to fit do."""
    assert code.cubin[:4] == b"\x7fELF"
    assert (code.spill_bytes, code.local_bytes) == (0, 0), f"{spec.name}: {code.registers} registers, and spills"
    assert not re.search(r"\b(ld|st)\.local", code.ptx)
    per_block = -(-code.registers * 32 // 256) * 256 * (spec.tile.threads // 32)
    assert per_block * spec.tile.blocks <= device.registers_per_multiprocessor, f"{spec.name}: {code.registers}"
    assert device.blocks(spec.tile.threads, code.registers, spec.shared_bytes) >= 1


def body_of(code: Any) -> str:
    return str(code.ptx.split(".entry")[1])


def check_multiplications(code: Any, spec: KernelSpec) -> None:
    """Assert that a k slab takes the real multiplications that the tiles say; NVVM may unroll the loop over slabs."""
    tile, terms = spec.tile, 4 if spec.complex else 1
    ptx = body_of(code)
    if not spec.dmma:
        count = len(re.findall(r"\bfma\.rn(?:\.ftz)?\.f(?:32|64)\b", ptx))
        steps = tile.bk // {"rows": tile.threads // 32, "dots": 32}.get(tile.engine, 1)  # of a thread
        slab, of_result = tile.tm * tile.tn * steps * terms, 2 * tile.tm * tile.tn * terms  # of alpha and beta
        assert count >= slab and count % slab <= of_result, f"{spec.name}: {count} fmas, {slab} in a slab"
        assert "mma.sync" not in ptx
        return
    height, depth = (16, 8) if tile.engine == "dmma8" else (8, 4)
    slab = tile.wm // height * (tile.wn // 8) * (tile.bk // depth) * terms
    count = ptx.count(f"mma.sync.aligned.m{height}n8k{depth}.row.col.f64")
    assert count == ptx.count("mma.sync")
    assert count >= slab and count % slab == 0, f"{spec.name}: {count} products, {slab} in a slab"
    if spec.complex:  # see threadtile: a ``neg`` before such a product was compiled wrongly
        loop = ptx[ptx.index("mma.sync") : ptx.rindex("mma.sync")]
        assert "neg.f64" not in loop and "xor.b64" in loop


@pytest.mark.parametrize(("role", "capability"), CASES, ids=lambda x: x if isinstance(x, str) else f"sm_{x[0]}{x[1]}")
def test_a_kernel_that_plans_choose_keeps_its_sums_in_registers(role: str, capability: tuple[int, int]) -> None:
    device = KNOWN_DEVICES[DEVICES[capability]]
    assert device.capability == capability
    plan = ROLES[role](device)
    spec = plan.spec
    code = compiled(spec, capability)
    print(plan, f"\n{code.registers} registers")
    check_registers(code, spec, device)
    check_multiplications(code, spec)
    assert (spec.copies == "async") == (capability >= (8, 0))
    assert ("cp.async" in code.ptx) == (spec.copies == "async" and not spec.streams)
    assert f".maxntid {spec.tile.threads}" in code.ptx
    assert f".target sm_{capability[0]}{capability[1]}" in code.ptx


# blocks beyond those that fit begin when the others have ended, and a divided product takes twice as long
@pytest.mark.parametrize(
    ("role", "capability"),
    [
        (role, capability)
        for role in ("f32_streamk", "f64_streamk", "f32_low", "f64_low", "c128_low")
        for capability in PLACES[role]
    ],
    ids=lambda x: x if isinstance(x, str) else f"sm_{x[0]}{x[1]}",
)
def test_the_blocks_that_share_slabs_are_on_the_card_at_once(role: str, capability: tuple[int, int]) -> None:
    device = KNOWN_DEVICES[DEVICES[capability]]
    plan = ROLES[role](device)
    assert plan.spec.schedule == "streamk"
    code = compiled(plan.spec, capability)
    fits = device.blocks(plan.spec.tile.threads, code.registers, plan.spec.shared_bytes)
    assert plan.blocks <= fits * device.multiprocessors, f"{code.registers} registers, {fits} blocks fit\n{plan}"


def test_the_roles_are_what_they_are_called() -> None:
    h200 = KNOWN_DEVICES["h200"]
    specs = {role: make(h200).spec for role, make in ROLES.items()}
    assert {role for role, spec in specs.items() if spec.schedule == "streamk"} >= {"f32_streamk", "f64_streamk"}
    for role, spec in specs.items():
        assert spec.edges or "odd" not in role
        assert spec.c_vector == 1 or "odd" not in role
    assert specs["f32"].a.turned and not specs["f32"].b.turned
    assert specs["f32_nt"].a.turned and specs["f32_nt"].b.turned
    assert not specs["f32_tn"].a.turned and not specs["f32_tn"].b.turned
    assert specs["f64"].dmma and specs["c128"].dmma
    assert specs["f32_low"].tile.bm == 16 and specs["f64_low"].tile.bm == 16
    assert specs["f32_slim"].tile.bn <= 16
    engines = [specs[role].tile.engine for role in ("f32_row", "f32_column", "f64_rows", "c128_rows", "c64_columns")]
    assert engines == ["rows", "dots", "rows", "rows", "dots"]
    assert (specs["f32_odd"].a.vector, specs["f32_odd"].b.vector, specs["f32_odd"].reads_c) == (1, 1, True)
    assert specs["c64_conj"].conj_a and specs["c128_conj"].conj_b


def test_as_many_copies_as_a_slab_has_chunks() -> None:
    spec = ROLES["f32"](KNOWN_DEVICES["h200"]).spec
    assert spec.a.turned and spec.a.vector == 4  # A goes through registers, B is copied
    ptx = body_of(compiled(spec, (9, 0)))
    tile = spec.tile
    of_a, of_b = (rows * tile.bk // x.vector // tile.threads for rows, x in ((tile.bm, spec.a), (tile.bn, spec.b)))
    sites = tile.stages  # one for each stage that is filled ahead, and the loop's
    assert of_b <= len(re.findall(r"cp\.async\.cg\.shared", ptx)) <= sites * of_b
    assert "cp.async.ca" not in ptx
    assert of_a <= len(re.findall(r"ld\.global\.nc\.L1::no_allocate\.v4\.f32", ptx)) <= sites * of_a


def test_as_many_copies_of_elements_as_a_slab_has_where_rows_begin_anywhere() -> None:
    spec = ROLES["f32_odd"](KNOWN_DEVICES["h200"]).spec
    assert (spec.a.vector, spec.b.vector) == (1, 1)
    ptx = body_of(compiled(spec, (9, 0)))
    tile = spec.tile
    slab = (tile.bm + tile.bn) * tile.bk // tile.threads
    single = len(re.findall(r"cp\.async\.ca\.shared\.global \[[^\]]*\], \[[^\]]*\], 4", ptx))
    assert slab <= single <= tile.stages * slab
    assert "cp.async.cg" not in ptx and "ld.global.nc" not in ptx


# ---- epilogues --------------------------------------------------------------------------------------------------


def python_function() -> types.FunctionType:
    factor = 0.5
    return lambda x, i, j, rows, matrix, shift: max(x * rows[i], matrix[i, j] - shift) * factor


def epilogues(reals: str) -> dict[str, tuple[Step, ...]]:
    words = (
        Step("bias_columns", (f"{reals}[1]",)), Step("scale_rows", (f"{reals}[1]",)), Step("add", (f"{reals}[2]",)),
        Step("clamp", (reals, reals)), Step("gelu_tanh"),
    )  # fmt: skip
    function = Step("function_of_the_test", (f"{reals}[1]", f"{reals}[2]", reals), python_function())
    return {"words": words, "function": (function, Step("relu"))}


@pytest.mark.parametrize("capability", [(8, 0), (9, 0)], ids=lambda x: f"sm_{x[0]}{x[1]}")
@pytest.mark.parametrize(
    ("dtype", "which"), [("float32", "words"), ("float32", "function"), ("float64", "function")], ids=str
)
def test_an_epilogue_takes_no_memory_of_its_own(dtype: str, which: str, capability: tuple[int, int]) -> None:
    device = KNOWN_DEVICES[DEVICES[capability]]
    steps = epilogues(dtype)[which]
    plan = plan_for(device, ROUND, ROUND, ROUND, dtype, *_layouts(16 // (4 if dtype == "float32" else 8)), 1,
                    epilogue=steps, swapped=which == "function")  # fmt: skip
    assert plan.spec.epilogue == steps and plan.spec.swapped == (which == "function")
    code = compiled(plan.spec, capability)
    check_registers(code, plan.spec, device)
    # the arguments: 22 numbers, then 5 + 2 * axes words for each array
    arrays = [name for step in steps for name in step.arguments if "[" in name]
    extra = sum(5 + 2 * int(name[-2]) for name in arrays) + sum(
        "[" not in name for step in steps for name in step.arguments
    )
    assert code.ptx.split(".entry")[1].split(")")[0].count(".param") == 22 + extra


# ---- the two small kernels --------------------------------------------------------------------------------------


@pytest.mark.parametrize("item_bytes", [2, 4, 8, 16])
def test_the_copy_is_one_load_and_one_store_of_an_item(item_bytes: int) -> None:
    from blisgemm.cuda.compile import compile_copy

    code = compile_copy(item_bytes, (8, 0))
    assert (code.spill_bytes, code.local_bytes) == (0, 0)
    assert (
        len(re.findall(r"\bld\.global", code.ptx)) == len(re.findall(r"\bst\.global", code.ptx)) == -(-item_bytes // 8)
    )


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_the_scaling_has_a_way_that_does_not_read(dtype: str) -> None:
    from blisgemm.cuda.compile import compile_scale

    code = compile_scale(dtype, (7, 5))
    planes = 2 if dtype.startswith("complex") else 1
    assert (code.spill_bytes, code.local_bytes) == (0, 0)
    assert len(re.findall(r"\bld\.global", code.ptx)) == planes
    assert len(re.findall(r"\bst\.global", code.ptx)) in (planes, 2 * planes)


def test_atomic_parts_are_added_without_an_answer() -> None:
    device = KNOWN_DEVICES["a100"]
    plan = plan_for(device, 512, 512, 16384, "float32", *_layouts(4), 4, atomic=True)
    if plan.spec.schedule != "streamk":
        pytest.skip(f"the plan doesn't divide tiles: {plan}")
    code = compiled(plan.spec, (8, 0))
    check_registers(code, plan.spec, device)
    tile = plan.spec.tile
    assert code.ptx.count("red.global.add.f32") == tile.tm * tile.tn
    assert plan.parts_bytes == 0


def test_fewer_registers_make_the_compiler_say_that_it_spills() -> None:
    # what the tests above rely on: spills are seen where there are some
    spec = ROLES["f32"](KNOWN_DEVICES["h200"]).spec
    code = compiled(replace(spec, tile=replace(spec.tile, blocks=8)), (9, 0))
    assert code.spill_bytes > 0
