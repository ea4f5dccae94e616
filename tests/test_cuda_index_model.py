"""Every index that the CUDA kernels compute, as a NumPy model against brute force: no GPU, and nothing is compiled.

Knows: what the words and formulas of ``blisgemm.cuda.kernels`` mean, element by element, and the 32 banks of shared
memory. Does not know: a device; tests/cuda has what needs one.

Where a formula is inside a kernel (the order of tiles, who does which slabs) it is written here once more. At the end
the kernels' own source runs, with a builder that computes at once what it is asked to emit, for all threads of a block.
"""

from __future__ import annotations

import itertools
import random
import re
import types
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from blisgemm.cuda.catalog import FEW_ROWS, tiles_for
from blisgemm.cuda.device import KNOWN_DEVICES, Device
from blisgemm.cuda.plan import Layout, Plan, plan_for
from blisgemm.cuda.tiles import KernelSpec, Operand, Tile
from blisgemm.errors import BlisgemmValueError

try:
    from blisgemm.cuda.kernels import finish, gemm, slabs, stage, threadtile, vector
    from blisgemm.cuda.kernels.stage import Copy, copy_of
    from blisgemm.cuda.kernels.threadtile import Fragments, fragments_of

    NO_KERNELS = ""
except Exception as error:
    NO_KERNELS = f"needs numba-cuda, in which the kernels are written: {error}"
needs_kernels = pytest.mark.skipif(bool(NO_KERNELS), reason=NO_KERNELS)

Ints = np.ndarray[Any, np.dtype[np.int64]]

DTYPES = ("float32", "float64", "complex64", "complex128")
BYTES = {"float32": 4, "float64": 8, "complex64": 8, "complex128": 16}
CARDS = ("t4", "a100", "h200")  # what tiles differ by: fmas; tensor cores of one shape; of the other
BANKS, BANK_BYTES = 32, 4


def tiles_of(dtype: str, *, streams: bool = False) -> list[Tile]:
    """Return all tiles of a dtype, for any card: those with slabs in shared memory, or those of a few rows."""
    capabilities = [KNOWN_DEVICES[name].capability for name in CARDS]
    found = dict.fromkeys(entry.tile for capability in capabilities for entry in tiles_for(dtype, capability))
    return [tile for tile in found if (tile.engine in ("rows", "dots")) == streams]


def operands_of(dtype: str, tile: Tile) -> list[Operand]:
    """Return every way that an operand may lie for a tile, as ``plan`` makes them."""
    vectors = [v for v in (1, 2, 4) if v * BYTES[dtype] <= 16]
    found = [Operand("r", vector) for vector in vectors]
    if dtype == "float32" and tile.engine == "simt":
        return [*found, Operand("k", 1, True), Operand("k", 4, True)]
    return found + [Operand("k", vector) for vector in vectors]


def specs_of(dtype: str, tile: Tile) -> Iterator[KernelSpec]:
    """Yield a kernel for every pair of layouts that a tile can have."""
    for a, b in itertools.product(operands_of(dtype, tile), repeat=2):
        try:
            yield KernelSpec(dtype, tile, a, b)
        except BlisgemmValueError:
            continue


TILES = [(dtype, tile) for dtype in DTYPES for tile in tiles_of(dtype)]
IDS = [f"{dtype}_{tile.name}" for dtype, tile in TILES]
each_tile = pytest.mark.parametrize(("dtype", "tile"), TILES, ids=IDS)


STREAMS = [(dtype, tile) for dtype in DTYPES for tile in tiles_of(dtype, streams=True)]
each_streaming_tile = pytest.mark.parametrize(
    ("dtype", "tile"), STREAMS, ids=[f"{d}_{tile.name}" for d, tile in STREAMS]
)


def streams_of(dtype: str, tile: Tile) -> list[KernelSpec]:
    """Return a kernel of a few rows for every way that its operands may lie."""
    vectors = [v for v in (1, 2, 4) if v * BYTES[dtype] <= 16]
    layout = "k" if tile.engine == "dots" else "r"
    return [KernelSpec(dtype, tile, Operand(a, 1), Operand(layout, v)) for a in "kr" for v in vectors]


def sides(spec: KernelSpec) -> tuple[tuple[str, Operand, int], tuple[str, Operand, int]]:
    return ("a", spec.a, spec.tile.bm), ("b", spec.b, spec.tile.bn)


def sided(specs: Iterator[KernelSpec]) -> list[tuple[KernelSpec, str, Operand, int]]:
    """Return each operand of each side once, with a kernel that has it."""
    found = {(side, x): (spec, side, x, rows) for spec in specs for side, x, rows in sides(spec)}
    return list(found.values())


# ---- copies into shared memory ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Chunks:
    """All chunks that a block copies of a slab; arrays of (threads that copy, places). Units: elements."""

    slow: Ints
    fast: Ints
    target: Ints  # where in shared memory, from the slab's start


def chunks_of(spec: KernelSpec, copy: Copy) -> Chunks:
    """Return what ``stage`` does, as ``gemm`` calls it: thread t begins at (t // across, t % across * vector)."""
    t = np.arange(spec.tile.threads)
    slow, fast = t // copy.across, t % copy.across * copy.vector
    if copy.slow_extent:
        slow, fast = slow[slow < copy.slow_extent], fast[slow < copy.slow_extent]
    places = np.array(copy.places)
    slow, fast = slow[:, None] + places[:, 0], fast[:, None] + places[:, 1]
    return Chunks(slow, fast, slow * copy.slow_unit + fast * copy.fast_unit)


@needs_kernels
@each_tile
def test_every_element_of_a_slab_is_copied_once_to_its_place(dtype: str, tile: Tile) -> None:
    for spec, _, operand, rows in sided(specs_of(dtype, tile)):
        copy = copy_of(spec, operand, rows)
        chunks = chunks_of(spec, copy)
        fast, slow = (tile.bk, rows) if operand.layout == "k" else (rows, tile.bk)
        copied, leading = np.zeros((slow, fast), int), spec.leading(operand, rows)
        written = np.zeros(spec.slab_bytes(operand, rows) // spec.itemsize, int)
        for q in range(copy.vector):
            np.add.at(copied, (chunks.slow, chunks.fast + q), 1)
            target = chunks.target + q * copy.fast_unit
            np.add.at(written, target, 1)
            row, step = (chunks.slow, chunks.fast + q)[:: 1 if operand.layout == "k" else -1]
            expected = row * leading + step if operand.shared == "k" else step * leading + row
            np.testing.assert_array_equal(target, expected, f"{spec.name}: {operand.name}")
        assert (copied == 1).all() and written.max() == 1 and written.sum() == slow * fast, f"{spec.name}: {operand}"
        if copy.vector > 1 and not copy.held:
            assert copy.fast_unit == 1
        assert (chunks.target * spec.itemsize % ((1 if copy.held else copy.vector) * spec.itemsize) == 0).all()
        assert spec.slab_bytes(operand, rows) % 16 == 0  # what comes after it in shared memory is aligned too


@needs_kernels
@each_tile
def test_at_an_edge_exactly_the_elements_that_exist_are_read(dtype: str, tile: Tile) -> None:
    for spec, _, operand, rows in sided(specs_of(dtype, tile)):
        copy = copy_of(spec, operand, rows)
        chunks = chunks_of(spec, copy)
        fast, slow = (tile.bk, rows) if operand.layout == "k" else (rows, tile.bk)
        # every place where the operand may end, along both axes; -3: it ended in a slab before
        slow_left, fast_left = (np.array([-3, *range(end + 1), end + 5]) for end in (slow, fast))
        # as in ``stage``: so many elements of a chunk exist, and the others become zeros
        exists = chunks.slow.ravel() < slow_left[:, None]
        valid = np.clip(fast_left[:, None] - chunks.fast.ravel(), 0, copy.vector)
        if copy.held:  # k is a multiple of a chunk, which exists as a whole or not at all
            whole = fast_left % copy.vector == 0
            fast_left, valid = fast_left[whole], valid[whole]
        assert ((valid == 0) | (chunks.fast.ravel() + valid <= fast_left[:, None])).all()
        read = exists.astype(float) @ valid.T.astype(float)
        expected = np.outer(np.clip(slow_left, 0, slow), np.clip(fast_left, 0, fast))
        np.testing.assert_array_equal(read, expected, f"{spec.name}: {operand.name}")


# ---- banks ------------------------------------------------------------------------------------------------------


def degree(addresses: Ints, size: int) -> int:
    """Return how often a bank is asked for different words when the lanes at ``addresses`` are served together.

    Lanes of the warp that read or write 4 bytes are served all at once, 8 bytes by halves, 16 bytes by quarters.
    """
    worst = 1
    together = 32 * 4 // max(4, size)
    for first in range(0, len(addresses), together):
        words = {
            int(address) // BANK_BYTES + w
            for address in addresses[first : first + together]
            for w in range(max(1, size // BANK_BYTES))
        }
        banks = np.bincount([word % BANKS for word in words], minlength=BANKS)
        worst = max(worst, int(banks.max()))
    return worst


def reads_of(spec: KernelSpec, side: str, operand: Operand, rows: int, warp_at: int) -> tuple[Ints, int]:
    """Return where each lane's first load of an operand's slab begins, in bytes, and the bytes of a load.

    All others of a lane are the same number of bytes further, for every lane.
    """
    tile, lane = spec.tile, np.arange(32)
    leading = spec.leading(operand, rows)
    if spec.dmma:
        row, step, size = warp_at + lane // 4, lane % 4, spec.itemsize
    else:
        lanes_n = tile.wn // tile.tn
        along = lane // lanes_n if side == "a" else lane % lanes_n
        unit = 1 if operand.shared == "k" else spec.group_elements
        row, step, size = warp_at + along * unit, 0 * lane, 16
    at = row * leading + step if operand.shared == "k" else step * leading + row
    return at * spec.itemsize, size


@needs_kernels
@each_tile
def test_lanes_read_shared_memory_without_bank_conflicts(dtype: str, tile: Tile) -> None:
    for spec, side, operand, rows in sided(specs_of(dtype, tile)):
        across = tile.wm if side == "a" else tile.wn
        for warp_at in range(0, rows, across):
            addresses, size = reads_of(spec, side, operand, rows, warp_at)
            assert (addresses % size == 0).all(), f"{spec.name}: {operand.name}"
            assert degree(addresses, size) == 1, f"{spec.name}: {side}, {operand.name}"


@needs_kernels
@each_tile
def test_turned_copies_write_shared_memory_without_bank_conflicts(dtype: str, tile: Tile) -> None:
    for spec, _, operand, rows in sided(specs_of(dtype, tile)):
        if not operand.turned:
            continue
        copy = copy_of(spec, operand, rows)
        targets = chunks_of(spec, copy).target * spec.itemsize
        for place, q in itertools.product(range(targets.shape[1]), range(copy.vector)):
            for warp in range(0, len(targets), 32):
                at = targets[warp : warp + 32, place] + q * copy.fast_unit * spec.itemsize
                assert degree(at, spec.itemsize) == 1, f"{spec.name}: {operand.name}"


# ---- sums -------------------------------------------------------------------------------------------------------


def places_of(spec: KernelSpec, fragments: Fragments) -> tuple[Ints, Ints]:
    """Return the row and column in the block tile of each sum: arrays of (threads, sums)."""
    tile, t = spec.tile, np.arange(spec.tile.threads)
    warp, lane = t // 32, t % 32
    warps_n = tile.bn // tile.wn
    row = warp // warps_n * tile.wm + lane // fragments.n_lanes * fragments.m_unit
    column = warp % warps_n * tile.wn + lane % fragments.n_lanes * fragments.n_unit
    places = np.array(fragments.places)
    return row[:, None] + places[:, 0], column[:, None] + places[:, 1]


@needs_kernels
@each_tile
def test_the_sums_of_all_threads_are_the_tile(dtype: str, tile: Tile) -> None:
    for spec in specs_of(dtype, tile):
        fragments = fragments_of(spec)
        assert len(fragments.places) * spec.planes == spec.sums
        row, column = places_of(spec, fragments)
        covered = np.zeros((tile.bm, tile.bn), int)
        np.add.at(covered, (row, column), 1)
        assert (covered == 1).all(), spec.name


@needs_kernels
@each_streaming_tile
def test_the_rows_that_exist_are_stored_once_by_the_threads_that_have_them(dtype: str, tile: Tile) -> None:
    for spec in streams_of(dtype, tile):
        fragments = fragments_of(spec)
        assert len(fragments.places) * spec.planes == spec.sums
        row, column = places_of(spec, fragments)
        for m in range(1, tile.tm + 1):
            exists = row < m
            covered = np.zeros((m, tile.bn), int)
            np.add.at(covered, (row[exists], column[exists]), 1)
            assert (covered == 1).all(), spec.name


@needs_kernels
@each_streaming_tile
def test_the_kernel_of_a_few_rows_is_exact(dtype: str, tile: Tile, monkeypatch: pytest.MonkeyPatch) -> None:
    for q, spec in enumerate(streams_of(dtype, tile)):
        spec = spec.with_(reads_c=bool(q % 2), conj_a=spec.complex and not q % 2, conj_b=spec.complex)
        if tile.engine == "rows":
            spec = spec.with_(c_vector=spec.b.vector if q % 3 else 1)
        vector = spec.b.vector
        n, k = (tile.bn + 5, 2 * tile.bk + 3 * vector) if tile.engine == "dots" else (tile.bn + 3 * vector, tile.bk + 9)
        if q % 2:
            spec = spec.with_(schedule="streamk")
            run_kernel(spec, tile.tm, n, k, monkeypatch, blocks=3)
        else:
            run_kernel(spec, tile.tm // 2 + 1, n, k, monkeypatch, batch=2)


@needs_kernels
@each_tile
def test_what_is_stored_at_once_is_adjacent_and_aligned(dtype: str, tile: Tile) -> None:
    for spec in specs_of(dtype, tile):
        fragments = fragments_of(spec)
        row, column = places_of(spec, fragments)
        order = sorted(range(len(fragments.places)), key=fragments.places.__getitem__)
        most = spec.group_elements if not spec.dmma else 2  # as ``plan`` sets it
        if not spec.dmma and spec.b.shared != "r":
            most = 1
        for vector in (v for v in (1, 2, 4) if v <= most):
            for first in range(0, len(order), vector):
                group = order[first : first + vector]
                assert (row[:, group] == row[:, group[:1]]).all()
                assert (column[:, group] == column[:, group[:1]] + np.arange(vector)).all()
                assert (column[:, group[0]] % vector == 0).all()


@needs_kernels
@each_tile
def test_parts_of_tiles_fill_their_room_and_no_more(dtype: str, tile: Tile) -> None:
    spec = next(specs_of(dtype, tile))
    real = 4 if spec.reals == "float32" else 8
    per, step = 16 // real, 16 * tile.threads  # as in ``finish``: chunks of 16 bytes beside those of other threads
    assert spec.sums % per == 0
    starts = np.arange(tile.threads)[:, None] * 16 + np.arange(spec.sums // per) * step
    assert np.array_equal(np.sort(starts.ravel()), np.arange(0, spec.sum_bytes, 16))


# ---- the order of tiles -----------------------------------------------------------------------------------------


def origin(index: int, tiles_m: int, tiles_n: int, group: int) -> tuple[int, int]:
    """Return a tile's place among tiles, as ``origin`` in ``gemm``."""
    band = index // (group * tiles_n)
    inside = index - band * group * tiles_n
    high = min(group, tiles_m - band * group)
    return band * group + inside % high, inside // high


@pytest.mark.parametrize("group", [1, 2, 3, 8])
def test_tiles_go_down_bands_of_rows_and_each_comes_once(group: int) -> None:
    extents = (1, 2, 3, 7, 8, 9, 15, 16, 17, 31)
    for tiles_m, tiles_n in itertools.product(extents, extents):
        found = [origin(index, tiles_m, tiles_n, group) for index in range(tiles_m * tiles_n)]
        assert sorted(found) == [*itertools.product(range(tiles_m), range(tiles_n))]
        bands = [row // group for row, _ in found]
        assert bands == sorted(bands)  # a band is done before the next begins
        for (row, column), (next_row, next_column) in itertools.pairwise(found):
            if row // group == next_row // group:
                assert (next_row, next_column) == (row + 1, column) or next_column == column + 1


# ---- shares of slabs --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """What a block does of a tile: slabs from ``first`` on. slot: where it leaves its sums, or None if it has all."""

    tile: int
    first: int
    count: int
    slot: int | None


def parts_of(me: int, blocks: int, tiles: int, slabs: int, whole: int) -> Iterator[Part]:
    """Yield what a block does, as ``streamk`` in ``gemm``."""
    share, more = divmod((tiles - whole) * slabs, blocks)
    at = me * share + min(me, more)
    end = at + share + (me < more)
    mine = me
    while mine < whole or at < end:
        if mine < whole:
            index, first, count = mine, 0, slabs
            mine += blocks
        else:
            index, first = whole + at // slabs, at % slabs
            count = min(slabs - first, end - at)
            at += count
        yield Part(index, first, count, None if count == slabs else 2 * me + (0 if first > 0 else 1))


def contributors_of(tile: int, blocks: int, tiles: int, slabs: int, whole: int) -> tuple[int, int]:
    """Return the first and the last block that do a part of a tile, as ``opener`` and ``closer`` in ``gemm``."""
    share, more = divmod((tiles - whole) * slabs, blocks)
    full = more * (share + 1)

    def who(slab: int) -> int:
        return slab // (share + 1) if slab < full else more + (slab - full) // share

    begin = (tile - whole) * slabs
    return who(begin), who(begin + slabs - 1)


def divisions() -> Iterator[tuple[int, int, int, int]]:
    """Yield (tiles, slabs, blocks, whole) with at least a slab for each block."""
    for tiles, slabs, blocks in itertools.product((1, 2, 3, 5, 12, 13), (1, 2, 3, 7, 16), (1, 2, 3, 4, 7, 10, 13)):
        for whole in {0, tiles // 2 // blocks * blocks, max(0, tiles // blocks - 1) * blocks}:
            if (tiles - whole) * slabs >= blocks:
                yield tiles, slabs, blocks, whole
    rng = random.Random(0)
    for _ in range(200):
        blocks, slabs = rng.randint(1, 60), rng.randint(1, 90)
        tiles = rng.randint(-(-blocks // slabs), 3 * blocks + 1)
        whole = max(0, tiles // blocks - 1) * blocks
        yield tiles, slabs, blocks, whole


def test_every_slab_of_every_tile_is_done_once() -> None:
    for tiles, slabs, blocks, whole in divisions():
        done = np.zeros((tiles, slabs), int)
        counts = []
        for me in range(blocks):
            mine = list(parts_of(me, blocks, tiles, slabs, whole))
            assert mine and all(part.count > 0 for part in mine)
            counts.append(sum(part.count for part in mine if part.tile >= whole))
            for part in mine:
                done[part.tile, part.first : part.first + part.count] += 1
        assert (done == 1).all()
        assert max(counts) - min(counts) <= 1


def test_opener_and_closer_are_the_blocks_that_share_a_tile() -> None:
    for tiles, slabs, blocks, whole in divisions():
        who: dict[int, list[tuple[int, Part]]] = {}
        for me in range(blocks):
            for part in parts_of(me, blocks, tiles, slabs, whole):
                if part.tile >= whole:
                    who.setdefault(part.tile, []).append((me, part))
        for tile, parts in who.items():
            opener, closer = contributors_of(tile, blocks, tiles, slabs, whole)
            assert [me for me, _ in parts] == [*range(opener, closer + 1)]
            if len(parts) == 1:
                assert parts[0][1].slot is None
                continue
            # added up as the last one reads them: the opener's second slot, then the first slot of each other
            assert [part.slot for _, part in parts] == [2 * opener + 1, *(2 * i for i in range(opener + 1, closer + 1))]
            firsts = [part.first for _, part in parts]
            assert firsts[0] == 0 and firsts == sorted(firsts)


@pytest.mark.parametrize("seed", range(3))
def test_parts_meet_whatever_the_order_of_the_blocks(seed: int) -> None:
    # each block goes on by one part at a time, in any order; a slot must be written when it is read, and written once
    rng = random.Random(seed)
    for tiles, slabs, blocks, whole in divisions():
        work = {me: parts_of(me, blocks, tiles, slabs, whole) for me in range(blocks)}
        counters, slots, stored = [0] * tiles, {}, {}
        while work:
            me = rng.choice([*work])
            part = next(work[me], None)
            if part is None:
                del work[me]
                continue
            mine = [*range(part.first, part.first + part.count)]
            if part.slot is None:
                assert part.tile not in stored
                stored[part.tile] = mine
                continue
            assert part.slot not in slots and part.slot < 2 * blocks  # room for two parts of each block
            slots[part.slot] = (part.tile, mine)
            opener, closer = contributors_of(part.tile, blocks, tiles, slabs, whole)
            before, counters[part.tile] = counters[part.tile], counters[part.tile] + 1
            if before != closer - opener:
                continue
            parts = [slots[2 * opener + 1], *(slots[2 * other] for other in range(opener + 1, closer + 1))]
            assert {tile for tile, _ in parts} == {part.tile} and part.tile not in stored
            stored[part.tile] = [slab for _, list_ in parts for slab in list_]
            counters[part.tile] = 0
        assert counters == [0] * tiles  # ready for the next launch
        assert stored == {tile: [*range(slabs)] for tile in range(tiles)}  # all of each tile, in the order of k


# ---- plans ------------------------------------------------------------------------------------------------------

SHAPES = [
    (1, 1, 1), (1, 1, 100_000), (1, 5000, 3000), (5000, 1, 3000), (3, 5, 7), (16, 8192, 8192), (8192, 16, 8192),
    (64, 128, 32), (65, 129, 33), (127, 63, 31), (128, 128, 1_000_000), (640, 480, 17), (1000, 1000, 1000),
    (1024, 1024, 1024), (2049, 2047, 2048), (4096, 4096, 4096), (4095, 4097, 4099), (100_000, 64, 64),
    (64, 100_000, 8), (8192, 8192, 4), (20_000, 20_000, 20_000), (2, 3, 2_000_000), (513, 511, 200_001),
]  # fmt: skip


def layouts(dtype: str) -> Iterator[tuple[Layout, Layout]]:
    most = 16 // BYTES[dtype]
    for a, b in itertools.product("kr", "kr"):
        yield Layout(a, most), Layout(b, most)
        yield Layout(a, 1), Layout(b, most)
    yield Layout("k", 1, packed=True), Layout("r", most)


def plans(device: Device, dtype: str) -> Iterator[Plan]:
    for (m, n, k), (a, b), batch in itertools.product(SHAPES, layouts(dtype), (1, 3)):
        vector = next(v for v in (4, 2, 1) if v * BYTES[dtype] <= 16 and n % v == 0)
        yield plan_for(device, m, n, k, dtype, a, b, vector, batch=batch)


@pytest.mark.parametrize("name", KNOWN_DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_plan_covers_its_product_and_fits_its_card(dtype: str, name: str) -> None:
    device = KNOWN_DEVICES[name]
    for plan in plans(device, dtype):
        spec, tile = plan.spec, plan.spec.tile
        m, n, k = plan.m, plan.n, plan.k
        assert 0 <= plan.tiles_m * tile.bm - m < tile.bm and 0 <= plan.tiles_n * tile.bn - n < tile.bn
        assert spec.edges == (spec.streams or bool(m % tile.bm or n % tile.bn or k % tile.bk))
        assert spec.streams == (m <= FEW_ROWS)
        # dynamic, and what streamk declares: whether a block is the last of its tile
        assert spec.shared_bytes + 16 * (spec.schedule == "streamk") <= device.shared_bytes_per_block, str(plan)
        assert 32 <= tile.threads <= 1024 and tile.threads <= device.threads_per_multiprocessor
        assert spec.copies == ("async" if device.asynchronous else "plain")
        tiles, slabs = plan.tiles_m * plan.tiles_n, -(-k // tile.bk)
        assert tiles < 2**31
        if spec.schedule == "tiles":
            assert (plan.blocks, plan.whole, plan.parts_bytes) == (tiles, 0, 0)
        else:
            assert 0 <= plan.whole < tiles and plan.whole % plan.blocks == 0
            assert (tiles - plan.whole) * slabs >= plan.blocks >= 1, f"a block without a slab: {plan}"
            assert (tiles - plan.whole) * slabs + plan.blocks < 2**31  # counted in int32
            assert plan.parts_bytes == 2 * plan.blocks * plan.batch * spec.sum_bytes
        assert n % spec.c_vector == 0
        text = str(plan)
        assert spec.name in text and f"{m} x {k}" in text and device.name in text


@pytest.mark.parametrize("name", CARDS)
def test_both_schedules_are_planned(name: str) -> None:
    # what the test above says of streamk would be said of nothing
    found = {(plan.spec.schedule, plan.whole > 0) for plan in plans(KNOWN_DEVICES[name], "float32")}
    assert {schedule for schedule, _ in found} == {"tiles", "streamk"}


def test_a_plan_never_divides_fewer_slabs_than_blocks() -> None:
    rng = random.Random(0)
    small = replace(KNOWN_DEVICES["h200"], name="small", multiprocessors=3)
    divided = 0
    for _ in range(4000):
        device = rng.choice([*KNOWN_DEVICES.values(), small])
        m, n, k = (int(2 ** rng.uniform(0, most)) for most in (14, 14, 18))
        dtype = rng.choice(DTYPES)
        plan = plan_for(device, m, n, k, dtype, *rng.choice([*layouts(dtype)]), 1)
        if plan.spec.schedule == "streamk":
            divided += 1
            slabs = -(-k // plan.spec.tile.bk)
            assert (plan.tiles_m * plan.tiles_n - plan.whole) * slabs >= plan.blocks, str(plan)
    assert divided > 100


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_batch_of_as_many_items_as_blocks_fit_is_planned(dtype: str) -> None:
    # divided tiles let fewer blocks fit than whole ones: from so many items on none is left for each
    most = 16 // BYTES[dtype]
    for device in KNOWN_DEVICES.values():
        around = {device.multiprocessors * fits + more for fits in range(1, 9) for more in (-1, 0, 1)}
        for batch, m in itertools.product(sorted(around), (2, 128)):
            plan = plan_for(device, m, 128, 512, dtype, Layout("k", most), Layout("r", most), 1, batch=batch)
            assert plan.batch == batch and plan.blocks >= 1


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_swapped_plan_says_so(dtype: str) -> None:
    a, b = Layout("k", 1), Layout("r", 1)
    plan = plan_for(KNOWN_DEVICES["h200"], 300, 200, 100, dtype, a, b, 1, swapped=True, reads_c=True)
    assert "C' = B' * A'" in str(plan) and plan.swapped and plan.spec.reads_c
    assert not plan.spec.swapped  # only an epilogue's indices know of it


# ---- the kernels themselves -------------------------------------------------------------------------------------


class Lanes(np.ndarray[Any, Any]):
    """A value of each thread of a block, with the type that LLVM would give it."""

    @property
    def type(self) -> Any:
        return {"f4": threadtile.F32, "f8": threadtile.F64}[self.dtype.str[1:]]

    def __eq__(self, other: object) -> Any:
        return True  # ``if t == 0``: what one thread does for all is done once


def value(x: Any) -> Any:
    """Return what an operand of the builder is: its lanes, or a constant's number."""
    x = getattr(x, "constant", x)
    return np.asarray(x) if isinstance(x, Lanes) else x


class Machine:
    """A card that runs blocks of threads one after the other, and the LLVM builder of their emitters.

    Memory is bytes; only those of operands may be touched. Asynchronous copies arrive when they are waited for.
    """

    def __init__(self, spec: KernelSpec, memory_bytes: int) -> None:
        self.spec, self.threads = spec, spec.tile.threads
        self.memory, self.exists = np.full(memory_bytes, 0xFF, np.uint8), np.zeros(memory_bytes, bool)
        self.used, self.mask = 256, np.ones(self.threads, bool)
        self.begin()

    def begin(self) -> None:
        """Begin a block of threads: shared memory is full of NaN."""
        self.shared = np.full(self.spec.shared_bytes, 0xFF, np.uint8)
        self.groups: list[list[Any]] = [[]]

    def room(self, size: int) -> int:
        at, self.used = self.used, self.used + -(-size // 256) * 256 + 256
        return at

    def matrices(self, x: np.ndarray[Any, Any], order: str, vector: int) -> tuple[int, int, int]:
        """Put a stack of matrices into memory by rows (k) or columns (r); return address, distance of rows, of items.

        Rows begin at multiples of ``vector`` elements, with a gap after each.
        """
        x = x if order == "k" else x.swapaxes(1, 2)
        items, rows, columns = x.shape
        leading = (columns // vector + 1) * vector
        padded, there = np.full((items, rows, leading), np.nan, x.dtype), np.zeros((items, rows, leading), bool)
        padded[..., :columns], there[..., :columns] = x, True
        at = self.room(padded.nbytes)
        self.memory[at : at + padded.nbytes] = padded.view(np.uint8).ravel()
        self.exists[at : at + padded.nbytes] = np.repeat(there.ravel(), x.itemsize)
        return at, leading * x.itemsize, rows * leading * x.itemsize

    def _where(self, address: Any, size: int, space: int) -> tuple[np.ndarray[Any, Any], Ints]:
        """Return memory, and the place of each byte for the threads that run."""
        at = np.broadcast_to(value(address), self.threads)[self.mask]
        assert (at % size == 0).all(), f"an access of {size} bytes across its alignment"
        places = at[:, None] + np.arange(size)
        if space == 3:
            assert places.size == 0 or (places.min() >= 0 and places.max() < len(self.shared)), "outside shared memory"
            return self.shared, places
        assert self.exists[places].all(), "outside the operands"
        return self.memory, places

    # what takes the place of ``ptx``

    def load(self, _: Any, address: Any, type_: Any, count: int, space: int) -> list[Any]:
        kind = {"float": "f4", "double": "f8", "i32": "u4", "i64": "u8"}[str(type_)]
        size = int(kind[1]) * count
        memory, places = self._where(address, size, space)
        found = np.zeros((self.threads, count), kind)
        found[self.mask] = memory[places].view(kind)
        return [found[:, q].copy().view(Lanes) for q in range(count)]

    def store(self, _: Any, values: list[Any], address: Any, space: int) -> None:
        found = np.stack([np.broadcast_to(value(v), self.threads) for v in values], 1)[self.mask]
        memory, places = self._where(address, found.itemsize * len(values), space)
        assert len(np.unique(places)) == places.size, "two threads write to one place"
        memory[places] = np.ascontiguousarray(found).view(np.uint8)

    def copy_async(self, _: Any, shared: Any, source: Any, size: int, valid: Any) -> None:
        _, places = self._where(shared, size, 3)
        source = np.broadcast_to(value(source), self.threads)[self.mask]
        valid = np.broadcast_to(size if valid is None else value(valid), self.threads)[self.mask]
        assert (source % size == 0).all()
        there = np.arange(size) < valid[:, None]
        places_from = np.where(there, source[:, None] + np.arange(size), 0)
        assert self.exists[places_from[there]].all(), "a copy of what doesn't exist"
        self.shared[places] = 0xFF  # until it is waited for
        self.groups[-1].append((places, np.where(there, self.memory[places_from], 0)))

    def commit(self) -> None:
        self.groups.append([])

    def wait(self, most: int) -> None:
        while len(self.groups) - 1 > most:
            for places, values in self.groups.pop(0):
                self.shared[places] = values

    def asm(self, _: Any, text: str, inputs: list[Any], outputs: Any = None, **options: Any) -> Any:
        if text.startswith("red"):
            size = inputs[1].itemsize
            memory, places = self._where(inputs[0], size, 1)
            memory[places] = (memory[places].view(inputs[1].dtype) + value(inputs[1])[self.mask, None]).view(np.uint8)
            return None
        if text.startswith("xor.b64"):
            assert text == "xor.b64 $0, $1, 0x8000000000000000;"
            return (-value(inputs[0])).view(Lanes)
        if "shfl.sync.bfly" in text:
            distance = int(re.findall(r"bfly\.b32 \S+, \S+ (\d+), 31, -1;", text)[0])
            assert text.count("shfl") == text.count(f" {distance}, 31, -1") == inputs[0].itemsize // 4
            return value(inputs[0])[np.arange(self.threads) ^ distance].view(Lanes)
        shape = re.match(r"mma\.sync\.aligned\.m(\d+)n8k(\d+)\.row\.col\.f64\.f64\.f64\.f64 ", text)
        assert shape is not None, text
        assert text.endswith(self._mma_operands(int(shape[1]), int(shape[2])))
        return self._mma(int(shape[1]) // 8, int(shape[2]) // 4, [value(x) for x in inputs])

    @staticmethod
    def _mma_operands(height: int, depth: int) -> str:
        c, a, b = height // 4, height * depth // 32, depth // 4
        names = [f"${i}" for i in range(2 * c + a + b)]
        d, c_in, rest = names[:c], names[c : 2 * c], names[2 * c :]
        return ", ".join("{" + ", ".join(part) + "}" for part in (d, rest[:a], rest[a:], c_in)) + ";"

    def _mma(self, halves: int, quarters: int, inputs: list[Any]) -> list[Any]:
        """Return what tensor cores leave, by the fragments of PTX ISA 8.8, m8n8k4 and m16n8k8 of .f64."""
        warps = self.threads // 32
        fragments = [x.reshape(warps, 8, 4) for x in inputs]  # lane 4 x + y
        c, a, b = fragments[: 2 * halves], fragments[2 * halves : -quarters], fragments[-quarters:]
        rows = [np.concatenate([a[q * halves + h] for q in range(quarters)], 2) for h in range(halves)]
        columns = np.concatenate(b, 2).swapaxes(1, 2)
        product = np.concatenate(rows, 1) @ columns
        return [
            (c[2 * h + q] + product[:, 8 * h : 8 * h + 8, q::2]).ravel().view(Lanes)
            for h in range(halves)
            for q in (0, 1)
        ]

    def count_arrival(self, address: int) -> int:
        assert self.exists[address]
        counter = self.memory[address : address + 4].view(np.int32)
        counter += 1
        return int(counter[0]) - 1

    def reset(self, address: int) -> None:
        self.memory[address : address + 4] = 0

    # the builder

    @property
    def block(self) -> Any:
        """What runs here, as ``phi`` is told."""
        return self.mask

    def __getattr__(self, name: str) -> Any:
        binary = {
            "add": np.add, "sub": np.subtract, "mul": np.multiply, "and_": np.logical_and, "fadd": np.add,
            "fsub": np.subtract, "fmul": np.multiply,
        }  # fmt: skip
        if name not in binary:
            raise AttributeError(name)
        return lambda x, y: np.asarray(binary[name](value(x), value(y))).view(Lanes)

    def icmp_signed(self, word: str, x: Any, y: Any) -> Any:
        return np.asarray({"<": np.less, ">": np.greater}[word](value(x), value(y))).view(Lanes)

    def select(self, which: Any, x: Any, y: Any) -> Any:
        return np.where(value(which), value(x), value(y)).view(Lanes)

    @contextmanager
    def if_then(self, condition: Any) -> Iterator[None]:
        before, self.mask = self.mask, self.mask & value(condition)
        yield
        self.mask = before

    def phi(self, type_: Any) -> Any:
        chosen = np.zeros(self.threads, {"float": "f4", "double": "f8"}[str(type_)]).view(Lanes)
        chosen.__dict__["add_incoming"] = lambda x, mask: np.copyto(np.asarray(chosen), value(x), where=mask)
        return chosen


def kernel_on(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the kernel's own Python function, which runs a block of threads of a machine."""

    def word_of(name: str, arguments: Any, emit: Any, returns: Any = None, **options: Any) -> Any:
        return lambda *args: emit(machine, list(args), *[None] * bool(options))

    def unpack(b: Any, sums: list[Any], count: int) -> list[Any]:
        assert len(sums) == count
        return [*sums]

    def pack(b: Any, values: list[Any]) -> list[Any]:
        real = np.float32 if machine.spec.reals == "float32" else np.float64
        return [x if isinstance(x, Lanes) else np.full(machine.threads, value(x), real).view(Lanes) for x in values]

    def nothing(*_: Any) -> None:
        return None

    emitted = {
        "intrinsic_of": word_of, "address_of": lambda b, base, offset: base + offset, "copy_async": machine.copy_async,
        "load": machine.load, "load_once": lambda b, address, type_, count: machine.load(b, address, type_, count, 1),
        "store": machine.store, "asm": machine.asm, "pack": pack, "unpack": unpack,
        "fma": lambda b, x, y, z: b.fadd(b.fmul(x, y), z),
    }  # fmt: skip
    for module in (stage, threadtile, finish, vector):
        for name in emitted.keys() & vars(module).keys():
            monkeypatch.setattr(module, name, emitted[name])
    t = np.arange(machine.threads).view(Lanes)
    seen = types.SimpleNamespace(
        jit=lambda **options: lambda function: function, threadIdx=types.SimpleNamespace(x=t), syncthreads=nothing,
        blockIdx=types.SimpleNamespace(x=0, z=0), gridDim=types.SimpleNamespace(x=1),
        shared=types.SimpleNamespace(array=lambda count, type_: [0] * count),
    )  # fmt: skip
    words = {
        "cuda": seen, "i32": lambda x: x, "i64": lambda x: x, "commit_copies": machine.commit, "fence": nothing,
        "nothing": nothing, "wait_for_copies": lambda most: lambda: machine.wait(most), "shared_base": lambda: 0,
        "udiv": lambda x, y: x // y, "urem": lambda x, y: x % y, "count_arrival": machine.count_arrival,
        "reset": machine.reset,
    }  # fmt: skip
    for module in (gemm, slabs, vector):
        for name in words.keys() & vars(module).keys():
            monkeypatch.setattr(module, name, words[name])
    return gemm.kernel_of(machine.spec), seen


def run_kernel(
    spec: KernelSpec, m: int, n: int, k: int, monkeypatch: pytest.MonkeyPatch, *, batch: int = 1, blocks: int = 0,
    whole: int = 0, seed: int = 0,
) -> None:  # fmt: skip
    """Run a kernel's source on integers, its blocks in any order, and assert that the product is exact."""
    rng = np.random.default_rng(seed)

    def integers(*shape: int) -> np.ndarray[Any, Any]:
        x = rng.integers(-3, 4, shape)
        return (x + 1j * rng.integers(-3, 4, shape) if spec.complex else x).astype(spec.dtype)

    a, b, c = integers(batch, m, k), integers(batch, k, n), integers(batch, m, n)
    tile = spec.tile
    tiles_m, tiles_n = -(-m // tile.bm), -(-n // tile.bn)
    blocks = blocks or tiles_m * tiles_n
    parts_bytes, counters_bytes = 2 * blocks * batch * spec.sum_bytes, 4 * tiles_m * tiles_n * batch
    machine = Machine(spec, 2 * (a.nbytes + b.nbytes + c.nbytes) + parts_bytes + (1 << 16))
    at_a, lda, next_a = machine.matrices(a, spec.a.layout, spec.a.vector)
    at_b, ldb, next_b = machine.matrices(b.swapaxes(1, 2), spec.b.layout, spec.b.vector)
    at_c, rs_c, next_c = machine.matrices(c, "k", spec.c_vector)
    parts, counters = machine.room(parts_bytes), machine.room(counters_bytes)
    if spec.schedule == "streamk":
        machine.exists[parts : parts + parts_bytes] = True
        machine.exists[counters : counters + counters_bytes] = True
        machine.memory[counters : counters + counters_bytes] = 0
    alpha, beta = (2.0, -1.0 if spec.complex else 0.0), (3.0, 1.0 if spec.complex else 0.0)
    factors = [(np.float32 if spec.reals == "float32" else np.float64)(x) for x in (*alpha, *beta)]
    kernel, seen = kernel_on(machine, monkeypatch)
    before = machine.memory.copy()
    seen.gridDim.x = blocks
    order = [(x, z) for x in range(blocks) for z in range(batch)]
    rng.shuffle(order)
    for x, z in order:
        machine.begin()
        seen.blockIdx.x, seen.blockIdx.z = int(x), int(z)
        kernel(at_a, at_b, at_c, lda, ldb, rs_c, spec.out_itemsize, next_a, next_b, next_c, m, n, k, tiles_m, tiles_n,
               whole, *factors, parts, counters, ())  # fmt: skip
    x, y = a.conj() if spec.conj_a else a, b.conj() if spec.conj_b else b
    scales = [complex(*f) if spec.complex else f[0] for f in (alpha, beta)]
    expected = scales[0] * (x @ y) + (scales[1] * c if spec.reads_c else 0 * c)
    if spec.reduction == "atomic":
        expected = scales[0] * (x @ y) + c
    found = machine.memory[at_c : at_c + batch * next_c].view(spec.dtype).reshape(batch, m, -1)[..., :n]
    np.testing.assert_array_equal(found, expected, spec.name)
    assert not machine.memory[counters : counters + counters_bytes].any() or spec.schedule == "tiles"
    changed = machine.memory != before
    changed[at_c : at_c + batch * next_c] = changed[parts : parts + parts_bytes] = False
    assert not changed.any()


def some_specs(dtype: str, tile: Tile, count: int) -> list[KernelSpec]:
    """Return so many kernels of a tile, at random but always the same."""
    found = [*specs_of(dtype, tile)]
    return random.Random(tile.name).sample(found, min(count, len(found)))


def stored(spec: KernelSpec, vector: int) -> KernelSpec:
    """Return a kernel that stores ``vector`` elements at once if it can."""
    most = 2 if spec.dmma else spec.group_elements if spec.b.shared == "r" else 1
    return spec.with_(c_vector=min(vector, most))


@needs_kernels
@each_tile
def test_the_kernel_itself_is_exact_at_edges(dtype: str, tile: Tile, monkeypatch: pytest.MonkeyPatch) -> None:
    for q, spec in enumerate(some_specs(dtype, tile, 2)):
        spec = stored(spec, 1 + q).with_(
            reads_c=bool(q), copies="plain" if q else "async", conj_a=spec.complex and not q, conj_b=spec.complex
        )
        held = any(x.turned and x.vector > 1 for x in (spec.a, spec.b))  # then k is a multiple of 4
        if q:
            run_kernel(spec, tile.bm + 1, 2 * spec.c_vector, tile.bk + (4 if held else 3), monkeypatch)
        else:
            run_kernel(spec, tile.bm - 1, tile.bn + 2, 4 if held else 5, monkeypatch)


@needs_kernels
@each_tile
def test_the_kernel_itself_is_exact_without_edges(dtype: str, tile: Tile, monkeypatch: pytest.MonkeyPatch) -> None:
    for spec in some_specs(dtype, tile, 1):
        spec = stored(spec, 4).with_(edges=False)
        run_kernel(spec, tile.bm, tile.bn, (tile.stages + 1) * tile.bk, monkeypatch)


@needs_kernels
@pytest.mark.parametrize("atomic", [False, True], ids=["ordered", "atomic"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_kernel_itself_divides_tiles_exactly(dtype: str, atomic: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    tile = min(tiles_of(dtype), key=lambda tile: tile.bm * tile.bn * tile.bk)
    spec = KernelSpec(dtype, tile, Operand("r", 1), Operand("r", 1), schedule="streamk", reads_c=not atomic)
    spec = spec.with_(reduction="atomic" if atomic else "ordered")
    m, n, k = 2 * tile.bm - 1, 2 * tile.bn - 1, 4 * tile.bk - 1  # 4 tiles of 4 slabs
    for seed, (blocks, whole) in enumerate(((7, 0), (2, 2), (3, 3), (16, 0))[: 2 if atomic else 4]):
        run_kernel(spec, m, n, k, monkeypatch, blocks=blocks, whole=whole, seed=seed)


@needs_kernels
def test_the_kernel_itself_does_the_items_of_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    tile = min(tiles_of("float32"), key=lambda tile: tile.bm * tile.bn)
    spec = KernelSpec("float32", tile, Operand("k", 1, True), Operand("r", 4), reads_c=True)
    run_kernel(spec, tile.bm + 2, tile.bn + 3, tile.bk + 1, monkeypatch, batch=3)


@needs_kernels
@pytest.mark.parametrize("atomic", [False, True], ids=["ordered", "atomic"])
def test_the_kernel_itself_divides_the_items_of_a_batch(atomic: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    tile = min(tiles_of("float32"), key=lambda tile: tile.bm * tile.bn)
    spec = KernelSpec("float32", tile, Operand("k", 1, True), Operand("r", 1), schedule="streamk", reads_c=not atomic)
    spec = spec.with_(reduction="atomic" if atomic else "ordered")
    run_kernel(spec, tile.bm + 2, tile.bn - 1, 4 * tile.bk - 1, monkeypatch, batch=3, blocks=5)
