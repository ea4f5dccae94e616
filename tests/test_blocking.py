"""What the blocking model promises: blocks that cover, fit and balance, and one kc for all machines.

Pure: every machine of ``KNOWN`` is tested on every host.
"""

from __future__ import annotations

import dataclasses
import itertools
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blisgemm.blocking import (
    KC_MAX,
    KC_STEP,
    MC_MIN,
    MC_NO_L3,
    PANEL_BYTES_MAX,
    TILE_LEAST,
    TILES_PER_THREAD,
    Footprint,
    choose_blocking,
    footprints,
    kc_for,
    low_et_al,
    pack_together,
    tiles_for,
)
from blisgemm.errors import BlisgemmValueError
from blisgemm.machine import ISAS, KNOWN, Cache, Machine
from blisgemm.ukernel.spec import KernelSpec

HUGE = 2**31 - 1  # a prime


def spec(dtype: str, mr: int, nr: int, isa: str) -> KernelSpec:
    return KernelSpec(dtype, dtype, dtype, mr, nr, ISAS[isa])


KERNELS = (
    spec("float32", 12, 32, "avx512"),
    spec("float32", 8, 48, "avx512"),
    spec("float64", 8, 24, "avx512"),
    spec("complex64", 6, 16, "avx512"),
    spec("complex128", 6, 8, "avx512"),
    spec("float32", 6, 16, "avx2"),
    spec("float64", 6, 8, "avx2"),
    spec("complex64", 3, 8, "avx2"),
    spec("float32", 4, 8, "sse2"),
    spec("float32", 8, 12, "neon"),
    spec("float64", 8, 6, "neon"),
    spec("complex128", 2, 2, "generic"),
    spec("float32", 1, 16, "avx512"),
)
EXTENTS = (1, 2, 7, 97, 384, 1009, 4093, 100_003, HUGE)

machines = st.sampled_from(tuple(KNOWN.values()))
kernels = st.sampled_from(KERNELS)
extents = st.one_of(st.integers(0, 50), st.integers(0, 10_000), st.integers(0, HUGE))
ways = st.integers(1, 12)
dtypes = st.sampled_from(tuple(KC_MAX))

thorough = settings(max_examples=400, deadline=None)

every_machine = pytest.mark.parametrize("machine", KNOWN.values(), ids=KNOWN)
every_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=[kernel.name for kernel in KERNELS])


def blocks(extent: int, step: int) -> int:
    return -(-extent // step)


def last(extent: int, step: int) -> int:
    """Return the extent of the last block."""
    return extent - (blocks(extent, step) - 1) * step


def footprint(
    machine: Machine, kernel: KernelSpec, what: str, k: int = HUGE, n: int = HUGE, threads: int = 1
) -> Footprint:
    chosen = choose_blocking(machine, kernel, HUGE, n, k, threads)
    return next(each for each in chosen.footprints if each.what == what)


# ---- kc ------------------------------------------------------------------------------------------


@thorough
@given(dtypes, st.integers(1, HUGE))
def test_kc_covers_k_in_the_fewest_blocks(dtype: str, k: int) -> None:
    kc = kc_for(dtype, k)
    assert 1 <= kc <= KC_MAX[dtype]
    assert blocks(k, kc) == blocks(k, KC_MAX[dtype])
    assert kc == k if k <= KC_MAX[dtype] else kc % KC_STEP == 0


@given(dtypes, st.integers(1, 20_000))
def test_no_kc_block_of_few_is_thin(dtype: str, k: int) -> None:
    kc = kc_for(dtype, k)
    count = blocks(k, kc)
    # Rounding up takes less than KC_STEP elements per block away from the last one.
    assert last(k, kc) > kc - count * KC_STEP


def test_kc_at_the_edges() -> None:
    for dtype, kc_max in KC_MAX.items():
        assert kc_max % KC_STEP == 0
        assert [kc_for(dtype, k) for k in (0, 1, kc_max - 1, kc_max)] == [1, 1, kc_max - 1, kc_max]
        assert kc_for(dtype, 2 * kc_max) == kc_max
        half = -(-(kc_max + 1) // 2)
        assert half <= kc_for(dtype, kc_max + 1) < half + KC_STEP


@every_kernel
@pytest.mark.parametrize("k", EXTENTS)
def test_kc_is_the_same_on_every_machine_for_every_shape_and_all_threads(kernel: KernelSpec, k: int) -> None:
    grid = itertools.product(KNOWN.values(), ((1, 1), (5000, 3), (1, HUGE)), (1, 8))
    found = {choose_blocking(machine, kernel, m, n, k, threads).kc for machine, (m, n), threads in grid}
    assert found == {kc_for(kernel.acc_dtype, k)}


def test_kc_does_not_depend_on_the_kernel() -> None:
    for dtype in KC_MAX:
        for k in EXTENTS:
            mine = [kernel for kernel in KERNELS if kernel.acc_dtype == dtype]
            assert len({choose_blocking(KNOWN["zen4"], kernel, 99, 99, k).kc for kernel in mine}) == 1


# ---- mc and nc -----------------------------------------------------------------------------------


@every_machine
@every_kernel
def test_blocks_are_multiples_and_cover_no_more_than_needed(machine: Machine, kernel: KernelSpec) -> None:
    for m, n, k in itertools.product(EXTENTS, EXTENTS, (1, 7, 384, 100_003)):
        chosen = choose_blocking(machine, kernel, m, n, k)
        assert chosen.mc % kernel.mr == 0 and kernel.mr <= chosen.mc < m + kernel.mr
        assert chosen.nc % kernel.nr == 0 and kernel.nr <= chosen.nc < n + kernel.nr


@thorough
@given(machines, kernels, extents, extents, extents, ways)
def test_blocks_fit_their_caches(machine: Machine, kernel: KernelSpec, m: int, n: int, k: int, threads: int) -> None:
    chosen = choose_blocking(machine, kernel, m, n, k, threads)
    l2, kc, size = machine.l2, chosen.kc, kernel.itemsize
    block, a_micro, c_rows = (
        chosen.nc * kc * size, kc * kernel.mr * size, chosen.nc * kernel.mr * size,
    )  # fmt: skip
    # Everything that passes between two uses of a line of B fits a core's part of L2.
    if chosen.nc > kernel.nr:
        assert 2 * block * l2.cores <= l2.size_bytes
        assert (block + a_micro + c_rows) * l2.cores <= l2.size_bytes
    panel = kc * chosen.mc * size
    assert panel <= PANEL_BYTES_MAX
    if machine.l3 and chosen.mc > max(MC_MIN, kernel.mr):
        users = min(threads, machine.l3.cores)
        assert 2 * panel * machine.l3.cores <= machine.l3.size_bytes * users


@every_machine
@every_kernel
def test_the_block_of_b_takes_a_third_to_half_of_l2(machine: Machine, kernel: KernelSpec) -> None:
    block = footprint(machine, kernel, "block of B")
    one = footprint(machine, kernel, "micro-panel of B").bytes / block.cache_bytes
    assert block.share <= max(1 / 2, one)
    # less than one more micro-panel of B would fit
    assert block.share + one > 1 / 3


@thorough
@given(machines, kernels, st.integers(1, HUGE), st.integers(1, HUGE), extents, ways)
def test_blocks_are_as_equal_as_whole_micro_panels_allow(
    machine: Machine, kernel: KernelSpec, m: int, n: int, k: int, threads: int
) -> None:
    chosen = choose_blocking(machine, kernel, m, n, k, threads)
    for extent, step, width in ((m, chosen.mc, kernel.mr), (n, chosen.nc, kernel.nr)):
        panels, step = blocks(extent, width), step // width
        count = blocks(panels, step)
        assert step - last(panels, step) < count  # less than one micro-panel short per block
        if count <= step // 2:
            assert 2 * last(panels, step) >= step


@every_machine
def test_a_matrix_just_over_one_block_splits_in_halves(machine: Machine) -> None:
    kernel = KERNELS[9]
    full = choose_blocking(machine, kernel, HUGE, HUGE, 384)
    widths = range(1, 2 * full.nc + 99, kernel.nr)
    limit = max(choose_blocking(machine, kernel, 1, n, 384).nc for n in widths)
    chosen = choose_blocking(machine, kernel, 1, limit + 1, 384)
    assert limit // 2 <= chosen.nc <= limit // 2 + kernel.nr
    assert 2 * last(limit + 1, chosen.nc) >= chosen.nc - 2 * kernel.nr


@every_machine
@every_kernel
def test_an_a_that_is_not_packed_is_one_panel(machine: Machine, kernel: KernelSpec) -> None:
    packed, half = (choose_blocking(machine, kernel, 10**6, 5000, 5000, half=half) for half in (False, True))
    assert half.mc == blocks(10**6, kernel.mr) * kernel.mr > packed.mc
    assert (half.nc, half.kc) == (packed.nc, packed.kc)
    assert half.reasons[1] == f"mc = {half.mc}: A is read as it lies, so all its rows are one panel"


# ---- threads and shared caches -------------------------------------------------------------------


@thorough
@given(machines, kernels, st.integers(1, HUGE), st.integers(1, HUGE), st.integers(1, 2000), st.integers(2, 64))
def test_tiles_for_threads_are_whole_micro_panels_within_the_blocks(
    machine: Machine, kernel: KernelSpec, m: int, n: int, k: int, threads: int
) -> None:
    whole = choose_blocking(machine, kernel, m, n, k, threads)
    cut = tiles_for(kernel, whole, m, n, threads)
    assert (cut.mc, cut.kc) == (whole.mc, whole.kc)
    assert kernel.nr <= cut.nc <= whole.nc
    assert kernel.mr <= cut.mt <= cut.mc
    assert cut.nc % kernel.nr == cut.mt % kernel.mr == cut.nb % cut.nc == 0
    assert cut.nb <= blocks(n, cut.nc) * cut.nc
    assert cut.nb == cut.nc or cut.nb * cut.kc * kernel.itemsize <= PANEL_BYTES_MAX
    assert cut.nb >= n or (cut.nb + cut.nc) * cut.kc * kernel.itemsize > PANEL_BYTES_MAX
    # covered by the fewest tiles of that size, made even
    for extent, step in ((n, cut.nc), (min(m, cut.mc), cut.mt)):
        assert 0 < last(extent, step) <= step


@thorough
@given(machines, kernels, st.integers(1, 40_000), st.integers(1, 40_000), st.integers(1, 2000), st.integers(2, 64))
def test_tiles_are_many_for_each_thread_but_none_is_small(
    machine: Machine, kernel: KernelSpec, m: int, n: int, k: int, threads: int
) -> None:
    whole = choose_blocking(machine, kernel, m, n, k, threads)
    cut = tiles_for(kernel, whole, m, n, threads)
    mc_cur = min(m, cut.mc)
    rows, columns = TILE_LEAST[0] * kernel.mr, TILE_LEAST[1] * kernel.nr
    # made even, a step is more than half of its limit: of the least, of what there is, of what L2 holds
    assert 2 * cut.nc >= min(columns, n, whole.nc)
    assert 2 * cut.mt >= min(rows, mc_cur)
    tiles = blocks(n, cut.nc) * blocks(mc_cur, cut.mt)
    if cut.mt > rows and cut.nc > columns:
        assert tiles > 0.9 * threads * TILES_PER_THREAD
    if blocks(n, columns) * blocks(mc_cur, rows) >= 2 * threads:
        assert tiles >= 2 * threads
    if cut.nc < whole.nc and cut.mt < mc_cur:  # neither L2 nor the panel is the limit, so the number of tiles is
        assert tiles < 4 * threads * TILES_PER_THREAD


@thorough
@given(machines, kernels, st.integers(1, 40_000), st.integers(1, 40_000), st.integers(1, 2000), st.integers(2, 64))
def test_tiles_are_told_as_they_are(machine: Machine, kernel: KernelSpec, m: int, n: int, k: int, threads: int) -> None:
    cut = tiles_for(kernel, choose_blocking(machine, kernel, m, n, k, threads), m, n, threads)
    assert cut.footprints == footprints(machine, kernel, cut.mc, cut.nc, cut.kc, threads)
    assert [reason.split(":")[0] for reason in cut.reasons] == [
        f"kc = {cut.kc}", f"mc = {cut.mc}", f"nc = {cut.nc}", "L1", f"mt = {cut.mt}",
    ]  # fmt: skip
    tiles = blocks(n, cut.nc) * blocks(min(m, cut.mc), cut.mt)
    assert f"{tiles} tiles of {cut.mt} x {cut.nc} for {threads} threads" in cut.reasons[-1]


@every_kernel
def test_as_many_whole_blocks_are_packed_together_as_the_bound_holds(kernel: KernelSpec) -> None:
    chosen = choose_blocking(KNOWN["zen4"], kernel, HUGE, HUGE, HUGE, 16)
    assert chosen.nb == chosen.nc and chosen.mt == chosen.mc, "one thread packs a block and takes the panel"
    together = pack_together(kernel, chosen, HUGE)
    block_bytes = chosen.nc * chosen.kc * kernel.itemsize
    assert together.nb == PANEL_BYTES_MAX // block_bytes * chosen.nc
    assert pack_together(kernel, chosen, 1).nb == chosen.nc
    huge = dataclasses.replace(chosen, nc=kernel.nr * 10**7)
    assert pack_together(kernel, huge, HUGE).nb == huge.nc, "one block at least"


@every_machine
@every_kernel
def test_more_threads_use_more_of_l3(machine: Machine, kernel: KernelSpec) -> None:
    panels = [choose_blocking(machine, kernel, HUGE, HUGE, 384, threads).mc for threads in (1, 2, 4, 8, 64)]
    assert panels == sorted(panels)
    assert machine.l3 or len(set(panels)) == 1


def test_m1_divides_its_l2_among_four_cores() -> None:
    m1, kernel = KNOWN["apple-m1"], KERNELS[9]
    alone = dataclasses.replace(m1, l2=dataclasses.replace(m1.l2, cores=1))
    shared, private = footprint(m1, kernel, "block of B"), footprint(alone, kernel, "block of B")
    assert shared.cache_bytes == m1.l2.size_bytes // 4 and private.cache_bytes == m1.l2.size_bytes
    assert 3.8 * shared.bytes < private.bytes < 4.2 * shared.bytes
    chosen = choose_blocking(m1, kernel, 10_000, 10_000, 10_000)
    assert "for each of 4 cores" in chosen.reasons[2] and "no L3" in chosen.reasons[1]
    assert chosen.footprints[4].level == 4 and chosen.footprints[4].share == 0.0


def test_without_l3_the_panel_has_the_stated_height() -> None:
    kernel = KERNELS[9]
    assert choose_blocking(KNOWN["apple-m1"], kernel, HUGE, 9, 384).mc in (4080, 4072)
    assert MC_NO_L3 // kernel.mr * kernel.mr == 4080


def test_a_small_l2_holds_the_block_of_b_beside_a_and_c() -> None:
    kernel, l2 = spec("float32", 28, 4, "neon"), Cache(2, 64 * 1024, 8)
    chosen = choose_blocking(dataclasses.replace(KNOWN["haswell"], l2=l2), kernel, 999, HUGE, 384)
    assert "beside a micro-panel of A and its part of C, L2 holds" in chosen.reasons[2]
    for columns, fit in ((chosen.nc, True), (chosen.nc + kernel.nr, False)):
        assert (4 * (384 * (columns + 28) + 28 * columns) <= l2.size_bytes) == fit
    assert 4 * 384 * (chosen.nc + kernel.nr) <= l2.size_bytes // 2, "half alone would hold one more"


@pytest.mark.parametrize("l2_ways", [1, 2, 3])
def test_a_cache_of_few_ways_still_yields_blocks(l2_ways: int) -> None:
    tiny = dataclasses.replace(
        KNOWN["generic"], l1=Cache(1, 4096, 1), l2=Cache(2, 8192 * l2_ways, l2_ways), l3=Cache(3, 16384, 1)
    )
    for kernel in KERNELS:
        chosen = choose_blocking(tiny, kernel, HUGE, HUGE, HUGE)
        assert chosen.mc >= kernel.mr and chosen.nc >= kernel.nr
        answer = low_et_al(tiny, kernel)
        assert answer.kc >= 1 and answer.nc >= kernel.nr and answer.mc is not None and answer.mc >= kernel.mr


# ---- the numbers of other libraries ---------------------------------------------------------------


def test_all_of_haswells_l3_holds_blis_panel() -> None:
    kernel = KERNELS[5]
    assert max(choose_blocking(KNOWN["haswell"], kernel, m, 9, 256, 4).mc for m in (4080, 4092, 4096)) == 4092


# ---- words -----------------------------------------------------------------------------------------


@thorough
@given(machines, kernels, extents, extents, extents, ways)
def test_every_decision_comes_with_a_reason_that_names_it(
    machine: Machine, kernel: KernelSpec, m: int, n: int, k: int, threads: int
) -> None:
    chosen = choose_blocking(machine, kernel, m, n, k, threads)
    assert [reason.split(":")[0] for reason in chosen.reasons] == [
        f"kc = {chosen.kc}", f"mc = {chosen.mc}", f"nc = {chosen.nc}", "L1",
    ]  # fmt: skip


@every_machine
@every_kernel
def test_footprints_are_those_of_the_packed_buffers(machine: Machine, kernel: KernelSpec) -> None:
    chosen = choose_blocking(machine, kernel, 3000, 3000, 3000)
    found = {each.what: each for each in chosen.footprints}
    size, kc = kernel.itemsize, chosen.kc
    assert {what: each.bytes for what, each in found.items()} == {
        "micro-tile of C": kernel.accumulators * kernel.isa.vector_bytes,
        "micro-panel of A": kc * kernel.mr * size,
        "micro-panel of B": kc * kernel.nr * size,
        "block of B": chosen.nc * kc * size,
        "panel of A": kc * chosen.mc * size,
    }
    assert [each.level for each in chosen.footprints] == [0, 1, 1, 2, 3 if machine.l3 else 4]
    for each in chosen.footprints:
        assert each.share == (each.bytes / each.cache_bytes if each.cache_bytes else 0.0)
        assert each.what in str(each)
    assert found["micro-tile of C"].share <= 1
    assert chosen.footprints == footprints(machine, kernel, chosen.mc, chosen.nc, chosen.kc)


def test_micro_panels_that_outgrow_l1_are_said_to_stream_from_l2() -> None:
    big = choose_blocking(KNOWN["skylake-x"], KERNELS[0], 2000, 2000, 384)
    assert "both stream from L2" in big.reasons[3] and "more than all" in big.reasons[3]
    small = choose_blocking(KNOWN["neoverse-n1"], KERNELS[9], 2000, 2000, 384)
    assert "A's stays there" in small.reasons[3]


# ---- Low et al. ------------------------------------------------------------------------------------


def test_low_et_al_answers_what_blis_chose_by_hand() -> None:
    """Sandy Bridge (L1 32K/8, L2 256K/8 as Haswell's; f64, 8 x 4): kc and mc of BLIS config/sandybridge, exchanged."""
    answer = low_et_al(KNOWN["haswell"], spec("float64", 4, 8, "avx2"))
    assert (answer.kc, answer.nc) == (256, 96)


@every_machine
@every_kernel
def test_low_et_al_is_the_formula_of_design_section_6(machine: Machine, kernel: KernelSpec) -> None:
    l1, l2, l3, size = machine.l1, machine.l2, machine.l3, kernel.itemsize
    ways_b = max(1, (l1.ways - 1) * kernel.nr // (kernel.mr + kernel.nr))
    answer = low_et_al(machine, kernel)
    assert answer.kc == ways_b * l1.size_bytes // (l1.ways * kernel.nr * size)
    assert answer.nc == max(kernel.nr, max(1, l2.ways - 2) * l2.size_bytes // (l2.ways * answer.kc * size))
    assert (answer.mc is None) == (l3 is None)
    if l3:
        assert answer.mc == max(kernel.mr, (l3.ways - 2) * l3.size_bytes // (l3.ways * answer.kc * size))
    assert f"kc = {answer.kc}" in answer.text and f"nc = {answer.nc}" in answer.text
    assert ("stream from L2" in answer.text) == (answer.kc < KC_MAX[kernel.acc_dtype])


# ---- errors and cost -------------------------------------------------------------------------------


def test_errors_name_the_argument_what_was_expected_and_what_came() -> None:
    with pytest.raises(BlisgemmValueError, match=r"dtype: expected one of float32, .*; got 'int8'"):
        kc_for("int8", 4)
    with pytest.raises(BlisgemmValueError, match=r"k: expected k >= 0; got -1"):
        kc_for("float32", -1)
    machine, kernel = KNOWN["zen4"], KERNELS[0]
    with pytest.raises(BlisgemmValueError, match=r"m: expected m >= 0; got -2"):
        choose_blocking(machine, kernel, -2, 1, 1)
    with pytest.raises(BlisgemmValueError, match=r"threads: expected threads >= 1; got 0"):
        choose_blocking(machine, kernel, 1, 1, 1, 0)


def test_empty_extents_give_one_micro_panel() -> None:
    chosen = choose_blocking(KNOWN["zen4"], KERNELS[0], 0, 0, 0)
    assert (chosen.mc, chosen.nc, chosen.kc) == (KERNELS[0].mr, KERNELS[0].nr, 1)


def test_a_choice_is_made_within_a_millisecond() -> None:
    """About 30 microseconds; the limit leaves room for a busy machine."""
    best = float("inf")
    for _ in range(50):
        start = time.perf_counter()
        choose_blocking(KNOWN["zen4"], KERNELS[0], 1009, 4093, 100_003, 8)
        best = min(best, time.perf_counter() - start)
    assert best < 1e-3
