"""What a trace says is what the loops do: everything is covered once, in order, and nothing of them is changed."""

from __future__ import annotations

import importlib
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import trace_of_team

from blisgemm import BlisgemmTypeError, BlisgemmValueError, loops, make_plan
from blisgemm.cli import main
from blisgemm.machine import KNOWN
from blisgemm.teach.cachesim import simulate_trace
from blisgemm.teach.elsewhere import plan_on
from blisgemm.teach.trace import EVENT, MICROKERNEL, PACK_A, PACK_B, Trace, least_events, trace, trace_plan


def covered(steps: Trace, kind: int, axes: str) -> np.ndarray:
    """Return how often the steps of a kind touch each place of the given axes."""
    extents = {"i": steps.m, "j": steps.n, "p": steps.k}
    times = np.zeros([extents[axis] for axis in axes], int)
    for event in steps.events[steps.events["kind"] == kind]:
        times[tuple(slice(event[f"{axis}0"], event[f"{axis}1"]) for axis in axes)] += 1
    return times


def hold_what_loops_promise(steps: Trace) -> None:
    assert (covered(steps, MICROKERNEL, "ijp") == 1).all(), "each term of each element once"
    after = np.zeros((steps.m, steps.n), int)
    for event in steps.events[steps.events["kind"] == MICROKERNEL]:
        tile = after[event["i0"] : event["i1"], event["j0"] : event["j1"]]
        assert (tile == event["p0"]).all(), "terms of an element come in order"
        tile[...] = event["p1"]
        assert event["i1"] - event["i0"] <= steps.mr
        assert event["j1"] - event["j0"] <= (steps.nc if steps.path == "sweep" else steps.nr)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_five_loops_of_any_blocking_cover_all_once_in_order_and_pack_as_often_as_they_say(data: st.DataObject) -> None:
    pick: Any = lambda most, name: data.draw(st.integers(1, most), name)  # noqa: E731
    m, n, k, mr, nr = pick(20, "m"), pick(20, "n"), pick(12, "k"), pick(5, "mr"), pick(5, "nr")
    blocking = (pick(4, "mc") * mr, pick(4, "nc") * nr, pick(12, "kc"))
    half, threads = data.draw(st.booleans(), "half"), pick(3, "threads")
    if threads == 1:
        steps = trace(m, n, k, mr=mr, nr=nr, blocking=blocking, half=half)
    else:
        mt, nb = pick(blocking[0] // mr, "mt") * mr, pick(3, "nb") * blocking[1]
        steps = trace_of_team(m, n, k, mr, nr, blocking, half, threads, mt, nb)
    hold_what_loops_promise(steps)
    assert (covered(steps, PACK_A, "ip") == (0 if half else 1)).all()
    assert (covered(steps, PACK_B, "pj") == -(-steps.m // steps.mc)).all(), "B once for each panel of A"
    packed: set[tuple[int, ...]] = set()
    for event in steps.events:  # nothing is read before it is packed, and then from where the loops are
        ic, pc = int(event["ic"]), int(event["pc"])
        assert pc == event["p0"]
        if event["kind"] == PACK_A:
            packed |= {(0, ic, pc, i) for i in range(event["i0"], event["i1"])}
        elif event["kind"] == PACK_B:
            packed |= {(1, ic, pc, j) for j in range(event["j0"], event["j1"])}
        else:
            assert half or all((0, ic, pc, i) in packed for i in range(event["i0"], event["i1"]))
            assert all((1, ic, pc, j) in packed for j in range(event["j0"], event["j1"]))
            assert event["j0"] == event["jc"] + event["jr"]
            if threads == 1:
                assert event["i0"] == event["ic"] + event["ir"]


@pytest.mark.parametrize(
    ("shape", "path", "machine"),
    [
        ((5, 5, 5), "direct", "haswell"),
        ((37, 29, 700), "direct", "skylake-x"),
        ((200, 4, 100), "direct", "haswell"),
        ((300, 1, 30), "direct", "zen4"),
        ((8, 300, 600), "stream", "haswell"),
        ((2, 500, 520), "sweep", "skylake-x"),
        ((70, 65, 530), "packed", "apple-m1"),
        ((70, 65, 530), "packed", "skylake-x"),
    ],
)
def test_the_other_paths_cover_all_once_in_order(shape: tuple[int, int, int], path: str, machine: str) -> None:
    steps = trace(*shape, machine=machine, path=path)
    assert steps.path == path
    hold_what_loops_promise(steps)


def test_nothing_to_do_is_no_steps() -> None:
    assert len(trace(0, 3, 3)) == len(trace(3, 3, 0)) == 0
    assert str(trace(0, 3, 3)).endswith("no steps")


def test_a_trace_leaves_the_loops_as_they_are() -> None:
    before = dict(vars(loops))
    trace(20, 20, 20, mr=2, nr=3)
    assert dict(vars(loops)) == before
    assert "range" not in vars(loops)


@pytest.mark.parametrize("shape", [(5, 5, 5), (3, 700, 700), (200, 3, 200), (1, 90, 90), (90, 1, 90), (300, 300, 300)])
def test_the_plan_of_a_machine_with_our_facts_is_our_plan(shape: tuple[int, int, int]) -> None:
    own = make_plan(*shape, threads=1)
    there = plan_on(own.machine, *shape, threads=1)
    assert str(there) == str(own) and there == own


def test_the_plan_of_another_machine_is_by_its_own_vectors_and_caches() -> None:
    for name in ("haswell", "skylake-x", "apple-m1"):
        plan = plan_on(name, 1000, 1000, 1000, threads=1)
        assert plan.machine == KNOWN[name] and plan.kernel is not None and plan.kernel.isa == KNOWN[name].isa
        assert plan.half == (name == "skylake-x")
    assert make_plan(1000, 1000, 1000, threads=1).machine.name == plan_on(None, 9, 9, 9).machine.name


def test_json_tells_all() -> None:
    steps = trace(9, 8, 7, mr=2, nr=3, blocking=(4, 6, 5))
    told = json.loads(steps.to_json())
    assert tuple(told["fields"]) == EVENT.names and told["mr"] == 2 and told["kc"] == 5
    assert [tuple(row) for row in told["events"]] == [tuple(event) for event in steps.events.tolist()]


def test_what_cannot_be_traced_is_said() -> None:
    with pytest.raises(BlisgemmValueError, match=r"machine: expected one of .*haswell.*teaching.*got 'hal'"):
        trace(2, 2, 2, machine="hal")
    with pytest.raises(BlisgemmValueError, match="mr, nr: expected both or neither"):
        trace(2, 2, 2, mr=2)
    with pytest.raises(BlisgemmValueError, match=r"blocking: expected .*mr = 2"):
        trace(2, 2, 2, mr=2, nr=2, blocking=(3, 4, 4))
    with pytest.raises(BlisgemmTypeError, match=r"dtype: expected one that has kernels; got int64"):
        trace(2, 2, 2, dtype="int64")
    with pytest.raises(BlisgemmValueError, match=r"dtype: expected one of .* beside mr and nr; got int64"):
        trace(2, 2, 2, dtype="int64", mr=2, nr=2)
    with pytest.raises(BlisgemmTypeError, match=r"half: expected True, False or None; got 'no'"):
        trace(2, 2, 2, half="no")  # type: ignore[arg-type]
    with pytest.raises(BlisgemmValueError, match=r"half: expected None beside any path but packed; got True and 'di"):
        trace(2, 2, 2, half=True, path="direct")
    with pytest.raises(BlisgemmTypeError, match=r"plan: expected a Plan; got 3"):
        trace_plan(3)  # type: ignore[arg-type]
    with pytest.raises(BlisgemmValueError, match=r"first: expected at least 0; got -1"):
        next(trace(2, 2, 2).lines(-1))


@pytest.mark.parametrize(
    ("shape", "words", "message"),
    [
        ((10**5, 10**5, 10**5), {}, "m, n, k: expected a product of at most 4,194,304 steps; got "),
        ((10**9, 1, 10**9), {"path": "direct"}, "m, n, k: expected a product of at most"),
        ((2**31, 1, 1), {"mr": 2**20, "nr": 1}, "m: expected less than 2"),
        ((1, 1, 10**12), {}, "k: expected less than 2"),
        ((500, 500, 500), {"mr": 1, "nr": 1, "blocking": (1, 1, 1)}, "got 125,000,000 or more; larger blocks"),
    ],
)
def test_a_product_of_too_many_steps_is_refused_at_once(
    shape: tuple[int, int, int], words: dict[str, Any], message: str
) -> None:
    with pytest.raises(BlisgemmValueError, match=message):
        trace(*shape, **words)


@pytest.mark.parametrize("path", ["packed", "direct", "stream", "sweep"])
def test_no_path_records_more_steps_than_a_trace_may_have(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    trace_module = importlib.import_module("blisgemm.teach.trace")
    count = len(trace(40, 40, 40, path=path))
    monkeypatch.setattr(trace_module, "MOST_EVENTS", count)
    assert len(trace(40, 40, 40, path=path)) == count
    monkeypatch.setattr(trace_module, "MOST_EVENTS", count - 1)
    with pytest.raises(BlisgemmValueError, match=f"at most {count - 1:,} steps"):
        trace(40, 40, 40, path=path)


def test_no_trace_has_fewer_steps_than_were_counted_beforehand() -> None:
    for m, n, k, mr, nr, kc in ((9, 8, 7, 2, 3, 5), (1, 1, 1, 4, 4, 4), (16, 16, 16, 4, 4, 8), (5, 9, 0, 2, 3, 4)):
        steps = trace(m, n, k, mr=mr, nr=nr, blocking=(2 * mr, 2 * nr, kc))
        assert steps.count(MICROKERNEL) == least_events(m, n, k, mr, nr, kc)


# ---- the command -----------------------------------------------------------------------------------

SMALL = ["trace", "32", "32", "32", "--machine", "teaching", "--mr", "4", "--nr", "4", "--blocking", "16,16,16"]


def test_the_command_shows_the_steps_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--from", "2", "--steps", "3"]) == 0
    out = capsys.readouterr().out
    steps = trace(32, 32, 32, machine="teaching", mr=4, nr=4, blocking=(16, 16, 16))
    assert [line for line in out.splitlines() if line.startswith("       ")] == list(steps.lines(2, 3))
    assert "mc 16  nc 16  kc 16" in out and f"{len(steps) - 5:,} more" in out
    assert f"{steps.count(PACK_A):,} pack_a, {steps.count(PACK_B):,} pack_b, {steps.count(MICROKERNEL):,}" in out


def test_the_command_sets_counts_beside_predictions(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--cache", "--steps", "0"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    counts = simulate_trace(trace(32, 32, 32, machine="teaching", mr=4, nr=4, blocking=(16, 16, 16)), "teaching")
    assert "bytes between predicted counted ratio loops ijk, counted" in out and "Where they differ" in out
    for level, misses, moved in zip(counts.levels, counts.misses, counts.traffic_bytes, strict=True):
        assert f"{level.sets} x {level.ways}" in out and f"{misses.sum():,}" in out and f"{moved:,}" in out
    assert "2 m n k = 65,536" in out and "= 16,384, 4.0 times fewer" in out


@pytest.mark.parametrize("columns", ["1", "40", "80", "200"])
def test_no_terminal_is_too_narrow_for_a_figure(
    columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert main([*SMALL, "--cache"]) == 0
    out = capsys.readouterr().out
    counts = simulate_trace(trace(32, 32, 32, machine="teaching", mr=4, nr=4, blocking=(16, 16, 16)), "teaching")
    assert "…" not in out
    for figure in (*counts.hits.sum(axis=1), *counts.misses.sum(axis=1), *counts.traffic_bytes):
        assert f"{figure:,}" in out


def test_the_command_tells_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--json", "--cache"]) == 0
    told = json.loads(capsys.readouterr().out)
    steps = trace(32, 32, 32, machine="teaching", mr=4, nr=4, blocking=(16, 16, 16))
    assert len(told["events"]) == len(steps)
    assert told["cache"]["misses"] == simulate_trace(steps, "teaching").misses.tolist()


@pytest.mark.parametrize("wrong", [["--blocking", "²,2,2"], ["--mr", "2"], ["--machine", "hal"], ["--steps", "-1"]])
def test_the_command_says_what_it_cannot_do(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "8", "8", "8", *wrong]) == 2
    assert "expected" in capsys.readouterr().err


@pytest.mark.parametrize("extents", [["0", "4", "4"], ["2", "90", "90"], ["90", "1", "90"], ["5", "5", "0"]])
def test_the_command_takes_any_extents(extents: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", *extents, "--cache"]) == 0
    assert "product" in capsys.readouterr().out


def test_columns_that_share_sets_of_l1_are_followed_one_vector_at_a_time() -> None:
    """A x with rows of 4 KiB: the trace goes through the columns of A' as the product does."""
    for k, step in ((1024, 8), (1000, 16)):
        plan = plan_on("zen3", 64, 1, k, "float32", threads=1)
        assert (plan.path, plan.access, plan.swapped) == ("direct", "columns", True)
        events = trace_plan(plan).events
        columns = events["j1"] - events["j0"]
        assert set(columns.tolist()) == {step}


@pytest.mark.parametrize("half", [True, False])
def test_a_trace_of_the_other_half_is_cut_for_as_many_threads(half: bool) -> None:
    plan = plan_on("haswell", 1000, 1000, 500, threads=4)
    traced = trace(1000, 1000, 500, machine="haswell", threads=4, half=half)
    assert traced.half == half
    assert traced.mt < traced.mc and traced.nb > traced.nc
    if half == plan.half and plan.blocking is not None:
        assert (traced.mt, traced.nc, traced.nb) == (plan.blocking.mt, plan.blocking.nc, plan.blocking.nb)


def test_a_plan_of_a_team_altered_to_one_thread_is_traced_as_one_thread_runs_it() -> None:
    plan = plan_on("haswell", 400, 400, 300, path="packed", threads=4)
    alone = trace_plan(replace(plan, ic_ways=1))
    assert plan.blocking is not None and plan.blocking.nb > plan.blocking.nc
    assert (alone.mt, alone.nb) == (alone.mc, alone.nc)
