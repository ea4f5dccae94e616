"""The cache simulator against cases worked out by hand, against the simplest text, and against cachegrind.

Predictions of traffic are held against it where the textbook's rule is exact or nearly so.
"""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import trace_of_team

from blisgemm import BlisgemmTypeError, BlisgemmValueError, limits, loops
from blisgemm.ladder.accesses import accesses
from blisgemm.machine.facts import Cache
from blisgemm.teach.cachesim import TEACHING_MACHINE, Counts, Nests, loop_order_stream, simulate, simulate_trace
from blisgemm.teach.elsewhere import plan_on
from blisgemm.teach.streams import A_PACK, B_PACK, OPERANDS, READ, UPDATE, WRITE, A, B, C, sizes_of, trace_stream
from blisgemm.teach.trace import MICROKERNEL, trace, trace_plan
from blisgemm.teach.traffic import compare, loops_traffic, tile_reads, trace_traffic, traffic_of

LINE = 64
PER_LINE = LINE // 4  # elements of float32
trace_module = importlib.import_module("blisgemm.teach.trace")  # in the package the name is the function's


def cache(sets: int, ways: int, level: int = 1) -> Cache:
    return Cache(level, sets * ways * LINE, ways)


def lines(*numbers: int) -> np.ndarray:
    """Return the index of the first element of each line."""
    return np.array(numbers) * PER_LINE


# ---- by hand ---------------------------------------------------------------------------------------


def test_two_lines_of_one_set_push_each_other_out_unless_there_are_two_ways() -> None:
    turns = lines(*[0, 4] * 10)  # four sets: both lines belong in set 0
    assert simulate((A, turns), [cache(4, 1)]).misses.sum() == 20
    assert simulate((A, turns), [cache(4, 2)]).misses.sum() == 2
    assert simulate((A, lines(*[0, 5] * 10)), [cache(4, 1)]).misses.sum() == 2, "another set"


def test_the_least_recently_used_line_leaves() -> None:
    a, b, c = range(3)
    counts = simulate((A, lines(a, b, a, c, a, b)), [cache(1, 2)])  # miss, miss, hit, miss (b leaves), hit, miss
    assert (counts.hits[0, A], counts.misses[0, A]) == (2, 4)


def test_streaming_misses_once_a_line_at_every_level() -> None:
    counts = simulate((A, np.arange(1000 * PER_LINE)), "teaching")
    assert counts.misses[:, A].tolist() == [1000] * 3
    assert counts.hits[:, A].tolist() == [1000 * (PER_LINE - 1), 0, 0]
    assert counts.traffic_bytes == (1000 * LINE,) * 3


@pytest.mark.parametrize(("touched", "misses"), [(16, 16), (17, 17 * 10)])
def test_a_loop_that_just_fits_misses_once_and_one_that_just_does_not_always(touched: int, misses: int) -> None:
    again = np.tile(lines(*range(touched)), 10)
    assert simulate((A, again), [cache(1, 16)]).misses[0, A] == misses


def test_dirty_lines_are_written_back_once_and_clean_ones_never() -> None:
    level = [cache(1, 2)]
    assert simulate((A, lines(0, 1, 2, 3), WRITE), level).written_back[0, A] == 4, "two when dropped, two in the end"
    assert simulate((A, lines(0, 0, 0, 0), WRITE), level).written_back[0, A] == 1
    assert simulate((A, lines(0, 1, 2, 3)), level).written_back.sum() == 0
    assert simulate((C, lines(0, 1, 2, 3)), level).written_back[0, C] == 4, "C is written unless it is said otherwise"
    assert simulate((C, lines(0, 1, 2, 3), READ), level).written_back.sum() == 0
    both = simulate((A, lines(0, 1, 2, 0), np.array([WRITE, READ, READ, READ])), level)
    assert both.written_back[0, A] == 1, "the line comes back clean"


def test_a_dirty_line_is_stored_in_the_next_level_that_has_it() -> None:
    counts = simulate((A, lines(0, 1, 0, 1), WRITE), [cache(1, 1), cache(1, 4, 2)])
    assert counts.misses[:, A].tolist() == [4, 2] and counts.hits[:, A].tolist() == [0, 2]
    assert counts.written_back[:, A].tolist() == [4, 2], "four times from L1 to L2, in the end two to memory"
    gone = simulate((A, lines(0, 1, 2), WRITE), [cache(1, 2), cache(1, 1, 2)])  # L2 has dropped line 0 when L1 does
    assert gone.written_back[:, A].tolist() == [3, 3]


def test_an_update_is_two_accesses_of_which_the_second_hits() -> None:
    counts = simulate((A, lines(0, 1), UPDATE), [cache(1, 2)])
    assert (counts.hits[0, A], counts.misses[0, A], counts.accesses) == (2, 2, 4)


def test_operands_do_not_share_lines_and_are_counted_apart() -> None:
    every = np.arange(len(OPERANDS))
    counts = simulate((every, np.zeros(len(every), int)), [cache(64, 8)])
    assert counts.misses[0].tolist() == [1] * len(OPERANDS)
    packed = simulate((every, np.zeros(len(every), int)), [cache(64, 8)], sizes=dict.fromkeys(range(6), 1))
    assert packed.misses[0].tolist() == [1] * len(OPERANDS)


# ---- against the simplest text ---------------------------------------------------------------------


def plain(levels: list[Cache], operands: Any, indices: Any, what: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return (hits, misses) by dictionaries: each set keeps its lines in the order of use."""
    sets = [[OrderedDict() for _ in range(level.sets)] for level in levels]
    hits, misses = np.zeros((2, len(levels), len(OPERANDS)), int)
    for operand, index, kind in zip(operands, indices, what, strict=True):
        line = (operand * ((1 << 40) + 5 * 4096) + index * 4) // LINE
        for row, level in enumerate(levels):
            here: OrderedDict[int, None] = sets[row][line % level.sets]
            if line in here:
                here.move_to_end(line)
                hits[row, operand] += 1
                break
            misses[row, operand] += 1
            here[line] = None
            if len(here) > level.ways:
                here.popitem(last=False)
        hits[0, operand] += kind == UPDATE
    return hits, misses


LEVELS = st.sampled_from(
    [[cache(1, 1)], [cache(4, 2)], [cache(3, 4), cache(6, 4, 2)], [cache(2, 1), cache(2, 4, 2), cache(5, 7, 3)]]
)


@settings(max_examples=60, deadline=None)
@given(LEVELS, st.lists(st.tuples(st.integers(0, 5), st.integers(0, 600), st.integers(0, 2)), max_size=200))
def test_any_accesses_hit_and_miss_as_by_dictionaries(levels: list[Cache], touched: list[tuple[int, int, int]]) -> None:
    operands, indices, what = (np.array([x[axis] for x in touched], int) for axis in range(3))
    counts = simulate((operands, indices, what), levels)
    hits, misses = plain(levels, operands, indices, what)
    assert (counts.hits == hits).all() and (counts.misses == misses).all()


def expanded(nests: Nests) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the accesses of loop nests one by one."""
    rows = []
    for e0, e1, e2, first, end, _ in nests.nests.tolist():
        for i0, i1, i2 in np.ndindex(e0, e1, e2):
            for operand, base, s0, s1, s2, count, step, what in nests.refs[first:end].tolist():
                start = base + i0 * s0 + i1 * s1 + i2 * s2
                rows += [(operand, start + x * step, what) for x in range(count)]
    table = np.array(rows, int).reshape(-1, 3)
    return table[:, 0], table[:, 1], table[:, 2]


def same(one: Counts, other: Counts) -> bool:
    return all((getattr(one, x) == getattr(other, x)).all() for x in ("hits", "misses", "written_back"))


REFS = st.tuples(
    st.integers(0, 5), st.integers(1124, 1154), *[st.integers(-20, 20)] * 3, st.sampled_from((0, 1, 1, 1, 5)),
    st.integers(-2, 2), st.integers(0, 2),
)  # fmt: skip


@settings(max_examples=50, deadline=None)
@given(LEVELS, st.tuples(*[st.integers(0, 4)] * 2, st.integers(0, 30)), st.lists(REFS, min_size=1, max_size=4))
def test_what_is_counted_without_being_looked_up_is_what_a_look_would_say(
    levels: list[Cache], extents: tuple[int, int, int], refs: list[tuple[int, ...]]
) -> None:
    nests = Nests.one(extents, *refs)
    assert same(simulate(nests, levels), simulate(expanded(nests), levels))


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 5), st.lists(st.integers(0, 60), max_size=300), st.integers(1, 7))
def test_more_ways_never_miss_more_and_the_next_level_changes_nothing(sets: int, touched: list[int], ways: int) -> None:
    stream = (C, lines(*touched))
    misses = [simulate(stream, [cache(sets, w)]).misses[0, C] for w in (ways, ways + 1, ways + 5)]
    assert misses == sorted(misses, reverse=True)
    first, second = (
        simulate(stream, [cache(sets, ways), cache(2 * sets, w, 2)]).misses[:, C] for w in (ways, ways + 1)
    )
    assert first[0] == second[0] == misses[0] and first[1] >= second[1]


# ---- of a product ----------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["ijk", "ikj", "jki"])
def test_loop_orders_touch_four_elements_a_term(order: str) -> None:
    m, n, k = 5, 6, 7
    stream = loop_order_stream(order, m, n, k)
    operands, indices, what = expanded(stream)
    assert stream.accesses == 4 * m * n * k == len(indices) + (what == UPDATE).sum()
    assert set(indices[operands == A]) == set(range(m * k)) and set(indices[operands == C]) == set(range(m * n))
    expect = [(p * n + j) for i, j, p in sorted(np.ndindex(m, n, k), key=lambda x: [x["ijk".index(y)] for y in order])]
    assert indices[operands == B].tolist() == expect


@pytest.mark.parametrize(
    ("shape", "choices"),
    [
        ((9, 11, 13), {"mr": 2, "nr": 3, "blocking": (4, 6, 5)}),
        ((9, 11, 13), {"mr": 2, "nr": 3, "blocking": (4, 6, 5), "half": True}),
        ((9, 11, 13), {"mr": 2, "nr": 3, "blocking": (4, 3, 5), "threads": 2}),
        ((20, 21, 9), {"machine": "haswell", "path": "direct"}),
        ((20, 1, 9), {"machine": "haswell", "path": "direct"}),
        ((6, 40, 30), {"machine": "haswell", "path": "stream"}),
        ((16, 40, 70), {"machine": "haswell", "path": "strips"}),
        ((2, 300, 40), {"machine": "haswell", "path": "sweep", "dtype": "complex128"}),
    ],
)
def test_a_trace_touches_what_its_operands_have_and_reads_packed_what_was_packed(
    shape: tuple[int, int, int], choices: dict[str, Any]
) -> None:
    steps = trace(*shape, **choices)
    sizes = sizes_of(steps)
    operands, indices, what = expanded(trace_stream(steps))
    for operand in np.unique(operands):
        assert indices[operands == operand].min() >= 0
        assert indices[operands == operand].max() < sizes[int(operand)], OPERANDS[operand]
    if not steps.half or steps.path != "packed":
        assert set(indices[operands == A]) == set(range(sizes[A]))
    assert set(indices[operands == B]) == set(range(sizes[B]))
    assert set(indices[(operands == C) & (what != READ)]) == set(range(sizes[C]))
    written: set[tuple[int, int]] = set()
    for operand, index, kind in zip(operands.tolist(), indices.tolist(), what.tolist(), strict=True):
        if operand in (A_PACK, B_PACK) and kind == WRITE:
            written.add((operand, index))
        elif operand in (A_PACK, B_PACK):
            assert (operand, index) in written


@pytest.mark.parametrize("threads", [1, 3])
def test_packed_places_are_those_that_the_loops_go_to(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    places: list[tuple[int, ...]] = []

    class Noting(trace_module._Recorder):
        def pack_a(self, kernel: Any, panel: Any, out: Any) -> None:
            super().pack_a(kernel, panel, out)
            places.extend((A_PACK, out.row + x) for x in range(-(-panel.shape[0] // kernel.mr)))

        def pack_b(self, kernel: Any, block: Any, out: Any) -> None:
            super().pack_b(kernel, block, out)
            places.extend((B_PACK, out.row + x) for x in range(-(-block.shape[1] // kernel.nr)))

        def microkernel_of(self, kernel: Any, *arguments: Any) -> None:
            super().microkernel_of(kernel, *arguments)
            _, _, _, _, _, _, a_pack, ir, b, *_ = arguments
            places.extend([(A_PACK, a_pack.row + ir // kernel.mr), (B_PACK, b.row)])

    monkeypatch.setattr(trace_module, "_Recorder", Noting)
    steps = trace(37, 41, 23, mr=2, nr=3, blocking=(12, 6, 10), half=False, threads=threads)
    stream = trace_stream(steps)
    widths = {A_PACK: steps.mr * steps.kc, B_PACK: steps.nr * steps.kc}
    refs = [ref for nest in stream.nests for ref in stream.refs[nest[3] : nest[4]].tolist() if ref[0] in widths]
    assert [(ref[0], ref[1] // widths[ref[0]]) for ref in refs] == places
    assert len(places) > 1000 and all(ref[1] % widths[ref[0]] == 0 for ref in refs)


def test_the_counts_after_each_step_end_with_the_whole_and_never_fall() -> None:
    steps = trace(32, 32, 32, machine="teaching", mr=4, nr=4, blocking=(16, 16, 16))
    counts = simulate_trace(steps, "teaching", record=True)
    assert same(counts, simulate_trace(steps, "teaching"))
    assert (counts.hits_after[-1] == counts.hits).all() and (counts.misses_after[-1] == counts.misses).all()
    assert len(counts.misses_after) == len(steps) and (np.diff(counts.misses_after, axis=0) >= 0).all()
    room = [level.sets * level.ways for level in TEACHING_MACHINE.caches]
    assert (counts.resident_after.sum(axis=2) <= room).all()
    assert counts.resident_after[-1, 0].sum() == room[0]
    assert simulate_trace(steps, "teaching").misses_after.shape[0] == 0


def test_with_room_for_all_each_line_comes_and_goes_once() -> None:
    steps = trace(32, 48, 64, mr=4, nr=16, blocking=(32, 48, 64))
    counts = simulate_trace(steps, [cache(1024, 16)])
    sizes = sizes_of(steps)
    assert counts.misses[0].tolist() == [sizes.get(x, 0) // PER_LINE for x in range(len(OPERANDS))]
    assert counts.written_back[0].tolist() == [
        sizes.get(x, 0) // PER_LINE if x in (C, A_PACK, B_PACK) else 0 for x in range(len(OPERANDS))
    ]


def test_what_cannot_be_simulated_is_said() -> None:
    with pytest.raises(BlisgemmValueError, match="machine: expected one of"):
        simulate((A, lines(0)), "hal")
    with pytest.raises(BlisgemmValueError, match="line size"):
        simulate((A, lines(0)), [cache(1, 1), Cache(2, 4096, 4, 128)])
    with pytest.raises(BlisgemmTypeError, match="machine: expected a Machine"):
        simulate((A, lines(0)), [])
    with pytest.raises(BlisgemmValueError, match="operands 0 to 5; got 6"):
        simulate((6, lines(0)), "teaching")
    for stream in ([lines(0)], [(A,)], "AB"):
        with pytest.raises(BlisgemmTypeError, match="stream: expected"):
            simulate(stream, "teaching")
    with pytest.raises(BlisgemmValueError, match="order: expected"):
        loop_order_stream("iij", 2, 2, 2)
    with pytest.raises(BlisgemmValueError, match="order: expected"):
        loop_order_stream(3, 2, 2, 2)  # type: ignore[arg-type]
    with pytest.raises(BlisgemmValueError, match="m: expected an integer of 0 to"):
        loop_order_stream("ijp", -2, 2, 2)
    with pytest.raises(BlisgemmTypeError, match="n: expected an integer >= 0; got 'a'"):
        loop_order_stream("ijp", 2, "a", 2)  # type: ignore[arg-type]
    with pytest.raises(BlisgemmTypeError, match="steps: expected a Trace; got 3"):
        simulate_trace(3, "teaching")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("stream", "words", "error", "message"),
    [
        ((A, ["a"]), {}, BlisgemmTypeError, "stream: expected indices as integers; got"),
        ((A, [1.5]), {}, BlisgemmTypeError, "stream: expected indices as integers; got"),
        ((A, [2**64]), {}, BlisgemmTypeError, "stream: expected indices as integers; got"),
        ((A, [-1]), {}, BlisgemmValueError, "stream: expected indices into A of 274,877,906,944 elements; got -1"),
        ((A, [2**60]), {}, BlisgemmValueError, "stream: expected indices into A of"),
        ((0.5, [0]), {}, BlisgemmTypeError, "stream: expected operands as integers; got 0.5"),
        (("A", [0]), {}, BlisgemmTypeError, "stream: expected operands as integers; got 'A'"),
        ((A, [0], 7), {}, BlisgemmValueError, "stream: expected READ, WRITE or UPDATE, 0 to 2; got 7"),
        ((A, [0], "w"), {}, BlisgemmTypeError, "stream: expected what as integers; got 'w'"),
        (([A, A], [0, 1, 2]), {}, BlisgemmValueError, "stream: expected operands, indices and what of one length"),
        (3, {}, BlisgemmTypeError, "stream: expected Nests, accesses or an iterable"),
        (None, {}, BlisgemmTypeError, "stream: expected Nests, accesses or an iterable"),
        ((A, [0]), {"machine": 3}, BlisgemmTypeError, "machine: expected a Machine, a name or caches; got 3"),
        ((A, [0]), {"itemsize": 0}, BlisgemmValueError, "itemsize: expected an integer >= 1; got 0"),
        ((A, [0]), {"itemsize": 4.5}, BlisgemmTypeError, "itemsize: expected an integer >= 1; got 4.5"),
        ((A, [0]), {"itemsize": 3}, BlisgemmValueError, "itemsize: expected a divisor of the line's 64; got 3"),
        ((A, [0]), {"sizes": 3}, BlisgemmTypeError, "sizes: expected a mapping"),
        ((A, [0]), {"sizes": {A: -5}}, BlisgemmValueError, "sizes: expected operands 0 to 5 and elements; got 0: -5"),
        ((A, [0]), {"sizes": {77: 5}}, BlisgemmValueError, "sizes: expected operands 0 to 5 and elements; got 77: 5"),
        ((A, [5]), {"sizes": {A: 5}}, BlisgemmValueError, "stream: expected indices into A of 5 elements; got 5"),
    ],
)
def test_what_is_no_access_is_named(stream: Any, words: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        simulate(stream, **{"machine": "teaching", **words})


@pytest.mark.parametrize("rung", ["r2", "r6", "r7"])
def test_the_ladders_accesses_miss_as_the_loops_own_steps_do(rung: str) -> None:
    m, n, k = 36, 40, 24
    if rung == "r2":
        rows = accesses(rung, m, n, k, order="ipj")
        ours = simulate(loop_order_stream("ikj", m, n, k), "teaching", sizes=(sizes := {A: m * k, B: k * n, C: m * n}))
    else:
        rows = accesses(rung, m, n, k, mr=4, nr=8, mc=12, nc=16, kc=10)
        steps = trace(m, n, k, mr=4, nr=8, blocking=(12, 16, 10), half=False)
        ours, sizes = simulate_trace(steps, "teaching"), sizes_of(steps)
    theirs = simulate(rows, "teaching", sizes=sizes)
    assert (theirs.misses[2] == ours.misses[2]).all(), "from memory comes what there is"
    same_operands = slice(A, C) if rung == "r2" else slice(None)  # rung 2 loads its element of A once for a row
    # the library packs micro-panels side by side, the rungs one after the other
    close = abs(theirs.misses - ours.misses)[:, same_operands] <= 0.12 * ours.misses[:, same_operands] + 8
    assert close.all(), (theirs.misses, ours.misses)


# ---- predictions -----------------------------------------------------------------------------------


def test_the_textbook_counts_elements_as_the_loops_do() -> None:
    m, n, k = 24, 48, 32
    assert tile_reads(m, n, k) == 2 * m * n * k
    steps = trace(m, n, k, mr=4, nr=8, blocking=(12, 16, 16), half=False)
    counts, expected = simulate_trace(steps, "teaching"), trace_traffic(steps, "teaching")
    assert counts.element_bytes == expected.bytes_of("L1")
    reads = counts.hits[0, [A_PACK, B_PACK]].sum() + counts.misses[0, [A_PACK, B_PACK]].sum()
    packed = m * k + n * k * 2  # written once for each panel of A
    assert reads - packed == tile_reads(m, n, k, 4, 8)


@pytest.mark.parametrize("order", ["ijk", "ikj", "jki", "jik", "kij", "kji"])
def test_loop_orders_move_what_the_rule_says_in_a_cache_of_one_set(order: str) -> None:
    levels = [cache(1, 40), cache(1, 300, 2)]
    counts = simulate(loop_order_stream(order, 48, 48, 48), levels)
    rows = compare(loops_traffic(order, 48, 48, 48, levels), counts)
    assert all(0.9 < row.ratio < 1.1 for row in rows), rows


@pytest.mark.parametrize(
    ("shape", "machine", "path", "along"),
    [((300, 31, 1100), "haswell", "direct", "ir"), ((4000, 16, 90), "generic-sse2", None, "jr")],
)
def test_the_direct_path_moves_what_the_rule_says(
    shape: tuple[int, int, int], machine: str, path: str | None, along: str
) -> None:
    steps = trace(*shape, machine=machine, path=path)
    moves = steps.events[np.flatnonzero((steps.events["ir"] > 0) | (steps.events["jr"] > 0))[0]]
    assert steps.path == "direct" and moves[along] > 0
    levels = [cache(1, 160), cache(1, 900, 2)]
    rows = compare(trace_traffic(steps, levels), simulate_trace(steps, levels))
    assert all(0.85 < row.ratio < 1.15 for row in rows), rows


def test_five_loops_move_what_the_rule_says() -> None:
    steps = trace(500, 500, 500, machine="haswell", path="packed", half=False)
    rows = compare(trace_traffic(steps, "haswell"), simulate_trace(steps, "haswell"))
    assert [row.between for row in rows] == ["registers and L1", "L1 and L2", "L2 and L3", "L3 and memory"]
    assert all(0.85 < row.ratio < 1.15 for row in rows), rows
    plain = simulate(loop_order_stream("ikj", 500, 500, 500), "haswell").traffic_bytes
    assert plain[0] > 3 * rows[1].counted and plain[1] > 30 * rows[2].counted, "that is what blocks are for"


# How far a prediction may be from the count: between registers and L1, L1 and L2, L2 and L3, L3 and memory.
CLOSE = {
    "packed": (0, 0.05, 0.22, 0.02),  # the panel of A has just been packed, and some of it is still in L2
    "half": (0, 0.05, 0.35, 0.02),  # A as it lies; a block of B nearly fits beside its copy on Haswell: all or nothing
    "direct": (0, 0.3, 0.1, 0.01),
    "sweep": (0, 0.1, 0.05, 0.01),
    "stream": (0, 0.5, 0.2, 0.01),
    "strips": (0, 0.5, 0.2, 0.01),
}
SHAPES = {"sweep": [(1, 1000, 900), (2, 1000, 900), (7, 1000, 900)], "stream": [(8, 1000, 900), (20, 1000, 900)]}
SHAPES["strips"] = [(20, 1000, 900), (50, 400, 700)]
BLOCKS = [(96, 96, 96), (300, 310, 290), (100, 500, 200), (500, 100, 300)]


@pytest.mark.parametrize("machine", ["haswell", "zen3", "skylake-x"])
@pytest.mark.parametrize(("path", "dtype"), [*((path, "float32") for path in CLOSE), ("packed", "complex64")])
def test_every_path_moves_what_the_rule_says(
    machine: str, path: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan and its trace predict the same; elements are exact, edges and padding too; lines nearly so."""
    limit = 2**63 - 1 if path == "half" else 0
    monkeypatch.setattr(limits, "UNPACKED_A_COLUMNS", {(isa, dtype): limit for isa in ("avx2", "avx512")})
    for m, n, k in SHAPES.get(path, BLOCKS):
        plan = plan_on(machine, m, n, k, dtype, path="packed" if path == "half" else path, threads=1)
        assert plan.half == (path == "half")
        steps = trace_plan(plan)
        rows = compare(trace_traffic(steps, machine), simulate_trace(steps, machine))
        assert [row.predicted for row in rows] == [each.bytes for each in traffic_of(plan).levels]
        for row, close in zip(rows, CLOSE[path], strict=True):
            assert abs(row.predicted - row.counted) <= close * row.counted, (m, n, k, row)


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("threads", [1, 3])
def test_what_a_microkernel_reads_is_what_was_packed_there(threads: int, half: bool) -> None:
    """The stream's copies are done with numbers that name the elements; a team packs ahead into another buffer."""
    m, n, k, mr, nr = 23, 32, 11, 2, 3
    steps = trace(m, n, k, mr=mr, nr=nr, blocking=(8, 6, 4), half=half)
    if threads > 1:
        steps = trace_of_team(m, n, k, mr, nr, (8, 6, 4), half, threads, 4, 12)
    assert steps.buffers == ((2, 2) if threads > 1 else (1, 1))
    nests, sizes = trace_stream(steps), sizes_of(steps)
    memory = {x: np.arange(sizes[x]) if x in (A, B) else np.full(sizes[x], -1) for x in (A, B, A_PACK, B_PACK)}
    seen = 0
    for _, _, extent, start, end, number in nests.nests:
        event, refs = steps.events[number], nests.refs[start:end]
        runs = [(ref[0], ref[1] + p * ref[4] + np.arange(ref[5]) * ref[6]) for p in range(extent) for ref in refs]
        if event["kind"] != MICROKERNEL:
            for p in range(extent):
                (source, at), *into = runs[p * len(refs) : (p + 1) * len(refs)]
                values = memory[source][at]
                for target, to in into:
                    part, values = values[: len(to)], values[len(to) :]
                    memory[target][to] = -1
                    memory[target][to[: len(part)]] = part
        elif extent and refs[0][0] != C:
            seen += 1
            for p in range(extent):
                (of_a, a_at), (of_b, b_at) = runs[2 * p : 2 * p + 2]
                rows, columns = range(event["i0"], event["i1"]), range(event["j0"], event["j1"])
                got_a, got_b = memory[of_a][a_at][: len(rows)], memory[of_b][b_at][: len(columns)]
                assert got_a.tolist() == [i * k + event["p0"] + p for i in rows]
                assert got_b.tolist() == [(event["p0"] + p) * n + j for j in columns]
    assert seen == steps.count(MICROKERNEL)


@pytest.mark.parametrize("half", [False, True])
def test_a_team_moves_the_elements_that_the_rule_says(half: bool) -> None:
    steps = trace_of_team(150, 130, 90, 6, 16, (60, 32, 40), half, 3, 12, 64)
    assert steps.buffers == (2, 2)
    counts = simulate_trace(steps, "haswell")
    seen = counts.hits[0] + counts.misses[0]
    for name, count in trace_traffic(steps, "haswell").levels[0].operands:
        assert count == 4 * seen[OPERANDS.index(name)], name


def test_the_stream_packs_as_many_panels_at_once_as_the_packer() -> None:
    from blisgemm.teach.streams import SIDE_BY_SIDE
    from blisgemm.ukernel import packer

    assert SIDE_BY_SIDE == packer.SIDE_BY_SIDE == loops.PIECE


@pytest.mark.parametrize("path", CLOSE)
def test_each_operand_is_predicted_for_itself(path: str) -> None:
    m = {"sweep": 7, "stream": 13, "strips": 21}.get(path, 70)
    steps = trace_plan(plan_on("haswell", m, 150, 90, path="packed" if path == "half" else path, threads=1))
    counts = simulate_trace(steps, "haswell")
    seen = counts.hits[0] + counts.misses[0]
    for name, count in trace_traffic(steps, "haswell").levels[0].operands:
        assert count == 4 * seen[OPERANDS.index(name)], name


# ---- against another simulator ---------------------------------------------------------------------

N, PAD = 64, 1024  # elements; a free page between the operands, as ``cachesim`` lays them out

SOURCE = f"""
#include <stdlib.h>
static struct {{
    volatile float a[{N}*{N}], x[{PAD}], b[{N}*{N}], y[{PAD}], c[{N}*{N}];
}} s __attribute__((aligned(4096)));
int main(int argc, char **argv) {{
    int n = {N}, turns = atoi(argv[1]), order = atoi(argv[2]);
    for (int u = 0; u < turns; u++) for (int v = 0; v < n; v++) for (int w = 0; w < n; w++) {{
        int i = order == 0 ? u : order == 1 ? u : w, j = order == 0 ? v : order == 1 ? w : u, p = order == 0 ? w : v;
        s.c[i*n + j] += s.a[i*n + p] * s.b[p*n + j];
    }}
    return 0;
}}
"""


def cachegrind(program: Path, turns: int, order: int, levels: list[Cache]) -> tuple[int, int]:
    """Return (D1, LL) misses of data."""
    d1, last = (f"{x.size_bytes},{x.ways},{x.line_bytes}" for x in levels)
    command = ["valgrind", "--tool=cachegrind", "--cache-sim=yes", f"--D1={d1}", f"--LL={last}"]
    command += [f"--cachegrind-out-file={program.parent / 'out'}", str(program), str(turns), str(order)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    found = [re.search(rf"{name}\s+misses:\s+([\d,]+)", done.stderr) for name in ("D1", "LLd")]
    if done.returncode or not all(found):
        pytest.skip(f"cachegrind does not run here: {done.stderr[-300:]}")
    d1_misses, last_misses = (int(x.group(1).replace(",", "")) for x in found if x)
    return d1_misses, last_misses


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a small C program of three loops, compiled."""
    compiler = next((x for x in ("cc", "gcc", "clang") if shutil.which(x)), None)
    if compiler is None or shutil.which("valgrind") is None:
        pytest.skip("needs valgrind and a C compiler")
    folder = tmp_path_factory.mktemp("cachegrind")
    (folder / "loops.c").write_text(SOURCE)
    done = subprocess.run([compiler, "-O1", "loops.c", "-o", "loops"], cwd=folder, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"the C compiler does not work here: {done.stderr[-300:]}")
    return folder / "loops"


@pytest.mark.parametrize(("number", "order"), [(0, "ijk"), (1, "ikj"), (2, "jki")])
def test_cachegrind_counts_the_same_misses(program: Path, number: int, order: str) -> None:
    levels = [Cache(1, 4096, 4), Cache(2, 32768, 8)]
    nothing, all_turns = (np.array(cachegrind(program, turns, number, levels)) for turns in (0, N))
    sizes = {A: N * N, B: N * N, C: N * N}
    counts = simulate(loop_order_stream(order.replace("k", "p"), N, N, N), levels, sizes=sizes)
    theirs, ours = all_turns - nothing, counts.misses.sum(axis=1)
    assert (abs(ours - theirs) <= 0.02 * theirs + 64).all(), (ours, theirs)
