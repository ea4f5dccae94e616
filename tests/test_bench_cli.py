"""``python -m blisgemm bench``: what it accepts, refuses, checks and writes; never how fast anything is.

Knows: the command and the values below it. Does not know: times.
"""

from __future__ import annotations

import csv
import itertools
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import REPOSITORY, run_python

pytest.importorskip("rich")

import blisgemm
from blisgemm.bench import environment, peak, tables
from blisgemm.bench.exact import WrongResultError, fill_exact, first_wrong_row, require_exact
from blisgemm.bench.measure import Spread, geometric_mean, interleave, ratios, spread
from blisgemm.bench.operands import MOST_SETS, allocate, one_set
from blisgemm.bench.peak import bare_fmas, repeat_fmas
from blisgemm.bench.peers import PEERS, AbsentError, UnsupportedError, load, numpy_matmul
from blisgemm.bench.results import BEST, OURS, Roof, Row, Run, summarize, write_json
from blisgemm.bench.saved import read_json
from blisgemm.bench.shapes import LAYOUTS, SETS, Case, parse_shapes
from blisgemm.cli import main
from blisgemm.parallel import ALONE

ALL_CASES = [case for cases in SETS.values() for case in cases()]


def bench(*words: str) -> int:
    """Run the command on a tiny product against NumPy, which is always there."""
    return main(["bench", "--shapes", "5x6x7", "--dtype", "f32", "--peers", "numpy", "--seconds", "0", *words])


def some_row(case: Case | None = None, dtype: str = "float32", threads: int = 1, numpys: float = 1.25) -> Row:
    """Return a row with made-up times."""
    case = case or Case("square", 8, 8, 8)
    ratio = Spread(numpys - 0.1, numpys, numpys + 0.1)
    seconds = {OURS: Spread(1e-6, 1e-6, 2e-6), "numpy": Spread(1e-6, numpys * 1e-6, 2e-6)}
    return Row(
        case=case, dtype=dtype, threads=threads, out="given", state="hot", rotated_bytes=0, clock="CPU time",
        path="direct", kernel="f32_4x16_avx2", flops=case.flops(dtype), rounds=5, seconds=seconds,
        peak_gflops=10.0 * threads, roof=None, ratios={"numpy": ratio, BEST: ratio}, best="numpy",
        skipped={"blis": "no batches"},
    )  # fmt: skip


# ---- shapes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SETS)
def test_labels_of_a_set_differ(name: str) -> None:
    labels = [case.label for case in SETS[name]()]
    assert len(set(labels)) == len(labels) > 5


def test_the_shapes_that_must_be_in_skinny_are() -> None:
    shapes = {(case.m, case.n, case.k) for case in SETS["skinny"]()}
    assert {(6, 2000, 2000), (2000, 2000, 4), (32, 4096, 1024), (3000, 64, 3000), (64, 64, 8192)} <= shapes


def test_literal_shapes_and_sets_mix_without_repeats() -> None:
    cases = parse_shapes("6x2000x30,matvec,7,7")
    assert (cases[0].m, cases[0].n, cases[0].k) == (6, 2000, 30)
    assert [case.label for case in cases if case.group == "shape"] == ["6x2000x30", "7"]
    assert len(cases) == 2 + len(list(SETS["matvec"]()))


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_operands_have_the_shape_whatever_the_layout(layout: str, dtype: str) -> None:
    x = one_set(Case("strides", 5, 7, 3, a=layout, b=layout, c=layout, batch=(2,)), dtype)
    assert x.a.shape == (2, 5, 3) and x.b.shape == (2, 3, 7) and x.c.shape == (2, 5, 7)
    if layout == "8KiB":
        assert x.a.strides[-2] == x.b.strides[-2] == x.c.strides[-2] == 8192


def test_cold_operands_take_more_than_the_caches_but_never_endless_sets() -> None:
    sets = allocate(Case("square", 64, 64, 64), "float32", 1 << 20)
    assert sum(x.a.nbytes + x.b.nbytes + x.c.nbytes for x in sets) >= 1 << 20
    assert len(allocate(Case("small", 2, 2, 2), "float32", 1 << 30)) == MOST_SETS


# ---- verification --------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
@pytest.mark.parametrize("where", [(0, 0), (4, 6), (2, 3)])
def test_one_wrong_element_is_found(dtype: str, where: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    a, b = np.empty((5, 9), dtype), np.empty((9, 7), dtype)
    fill_exact(rng, a, b, k=9)
    c = a @ b
    assert first_wrong_row(a, b, c) is None
    for wrong in (c[where] + 1, np.nan):
        bad = c.copy()
        bad[where] = wrong
        assert first_wrong_row(a, b, bad) == where[:1]
        with pytest.raises(WrongResultError, match="somebody"):
            require_exact(a, b, bad, "somebody")


def test_long_sums_of_the_integers_stay_exact_in_float32() -> None:
    a = np.empty((2, 100_000), np.float32)
    fill_exact(np.random.default_rng(0), a, k=1_000_000)
    assert 2 * np.abs(a).max() ** 2 * 1_000_000 <= 1 << 24


def test_a_wrong_blisgemm_ends_with_status_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def wrong(a: Any, b: Any, out: Any) -> Any:
        np.matmul(a, b, out=out)
        out[1, 2] += 1
        return out

    monkeypatch.setattr(blisgemm, "matmul", wrong)
    assert bench() == 1
    out = capsys.readouterr().out
    assert "WRONG blisgemm, 5x6x7 in float32" in out and "row (1,)" in out


def test_a_wrong_peer_is_reported_dropped_and_the_run_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def product(self: Any, a: Any, b: Any, c: Any) -> Callable[[], object]:
        return lambda: c.fill(7)

    monkeypatch.setattr(numpy_matmul.NumpyMatmul, "product", product)
    assert bench("--json", str(tmp_path / "r.json")) == 0
    assert "numpy: skipped: wrong result, so it is dropped" in capsys.readouterr().err
    [row] = json.loads((tmp_path / "r.json").read_text())["rows"]
    assert list(row["seconds"]) == [OURS] and "numpy" in row["skipped"] and row["ratios"] == {}


# ---- peers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PEERS)
def test_a_peer_is_right_or_says_what_it_cannot_do(name: str) -> None:
    if name in ("torch", "mkl"):
        pytest.skip("they want a process of their own; see below")
    try:
        peer = load(name, 1)
        peer.set_threads(1)
    except AbsentError as error:
        pytest.skip(str(error))
    rng = np.random.default_rng(0)
    done = 0
    cases = [Case("x", 5, 7, 3, a=a, b=b, c=c) for a, b, c in itertools.product(LAYOUTS, LAYOUTS, ("C", "F", "gaps"))]
    cases += [Case("x", 5, 1, 3, vector="Ax"), Case("x", 1, 7, 3, vector="xA"), Case("x", 1, 1, 1)]
    cases += [Case("x", 5, 7, 3, batch=(4,), a_batched=y, b_batched=z) for y, z in ((1, 1), (0, 1), (1, 0))]
    for case, dtype in itertools.product(cases, ("float32", "float64", "complex64", "complex128")):
        x = one_set(case, dtype)
        fill_exact(rng, x.a, x.b, k=case.k)
        x.c[...] = np.nan
        try:
            call = peer.product(x.a, x.b, x.c)
        except UnsupportedError:
            continue
        call()
        require_exact(x.a, x.b, x.c, f"{name}, {case.label}, {dtype}")
        done += 1
    assert done > 5


def test_torch_and_mkl_in_one_process_are_right() -> None:
    run_python(
        """
        import numpy as np
        from blisgemm.bench.trial import load_peers
        peers, absent = load_peers(["mkl", "torch"], 1)
        a, b = np.arange(12, dtype="f").reshape(3, 4), np.arange(20, dtype="f").reshape(4, 5)
        for name, peer in peers.items():
            peer.set_threads(1)
            for x, y in ((a, b), (a[:, ::-1].copy(), b), (a, b[:, 0].copy()), (np.array([a, a]), np.array([b, b]))):
                c = np.full(np.matmul(x, y).shape, np.nan, "f")
                peer.product(x, y, c)()
                assert (c == x @ y).all(), (name, x.shape, y.shape)
        assert all(reason.startswith("not installed") for reason in absent.values()), absent
        """
    )


def test_absent_peers_are_skipped_by_name(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "blis", None)
    assert bench("--peers", "numpy,blis") == 0
    assert "blis: absent: not installed: pip install blis" in capsys.readouterr().err


def test_a_peer_that_cannot_do_a_dtype_is_skipped_by_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def product(self: Any, a: Any, b: Any, c: Any) -> Callable[[], object]:
        raise UnsupportedError("no float32 on Mondays")

    monkeypatch.setattr(numpy_matmul.NumpyMatmul, "product", product)
    assert bench("--csv", str(tmp_path / "r.csv")) == 0
    assert capsys.readouterr().err.count("numpy: skipped: no float32 on Mondays") == 1
    lines = list(csv.DictReader((tmp_path / "r.csv").open()))
    assert [line["skipped"] for line in lines] == ["", "no float32 on Mondays"]


# ---- the command's words -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--shapes", "round"], "--shapes"),
        (["--shapes", "0x2x2"], "--shapes"),
        (["--dtype", "f16"], "--dtype"),
        (["--threads", "0"], "--threads"),
        (["--threads", "two"], "--threads"),
        (["--threads", "100000"], "--threads"),
        (["--peers", "atlas"], "--peers"),
        (["--seconds", "-1"], "--seconds"),
        (["--seconds", "nan"], "--seconds"),
        (["--plot-kind", "pie"], "--plot-kind"),
        (["--plot-kind", "rate"], "--plot"),
        (["--json", "/no/such/folder/x.json"], "--json"),
        (["--csv", "/no/such/folder/x.csv"], "--csv"),
        (["--write-readme", "/no/such/file"], "--write-readme"),
        (["--table", "sets"], "--table"),
        (["--marker", "x"], "--marker"),
        (["--arch", "skx"], "--arch"),
    ],
)
def test_errors_name_the_argument(words: list[str], named: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench(*words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert named in captured.err.splitlines()[-1]


def test_plot_without_matplotlib_says_the_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert bench("--plot", "x.png") == 2
    assert "pip install 'blisgemm[plot]'" in capsys.readouterr().err


def test_arch_starts_the_process_again_with_the_variables_of_every_library() -> None:
    wanted = environment.variables(1, "haswell")
    assert wanted["BLISGEMM_ARCH"] == "haswell" and wanted["OPENBLAS_CORETYPE"] == "Haswell"
    assert wanted["MKL_ENABLE_INSTRUCTIONS"] == "AVX2" and wanted["MKL_THREADING_LAYER"] == "SEQUENTIAL"
    done = run_python(
        """
        import os, sys
        from blisgemm.bench import environment
        environment.restart_with({"BLISGEMM_ARCH": "sse2"})
        print(os.environ["BLISGEMM_ARCH"], sys.argv[1:])
        """,
        "a", "b c", BLISGEMM_ARCH=None,
    )  # fmt: skip
    assert done.stdout == "sse2 ['a', 'b c']\n"


def test_the_shown_command_leaves_out_where_results_go(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["x/blisgemm/__main__.py", "bench", "--json", "a b", "--shapes", "8", "--plot=z", "--cold"]
    monkeypatch.setattr(sys, "argv", words)
    assert environment.command_line(("--json", "--plot")) == "python -m blisgemm bench --shapes 8 --cold"


# ---- what is written -----------------------------------------------------------------------------


def test_json_and_csv_are_complete(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--shapes", "5x6x7,9", "--dtype", "f32,c128"]
    assert bench(*words, "--json", str(tmp_path / "r.json"), "--csv", str(tmp_path / "r.csv")) == 0
    out = capsys.readouterr().out
    assert "hot" in out and "geometric mean" in out
    whole = json.loads((tmp_path / "r.json").read_text())
    assert whole["format"] == 2 and whole["machine"]["date"] and "numpy" in whole["peers"]
    assert [(row["label"], row["dtype"]) for row in whole["rows"]] == [
        (label, dtype) for dtype in ("float32", "complex128") for label in ("5x6x7", "9")
    ]
    for row in whole["rows"]:
        assert set(row["seconds"]) == {OURS, "numpy"} == set(row["gflops"])
        assert set(row["ratios"]) == {"numpy", BEST} and row["best"] == "numpy"
        for numbers in (*row["seconds"].values(), *row["ratios"].values()):
            assert 0 < numbers["low"] <= numbers["median"] <= numbers["high"]
        assert row["flops"] == row["m"] * row["n"] * row["k"] * (8 if row["dtype"] == "complex128" else 2)
        assert row["state"] == "hot" and row["path"] == "direct" and row["peak_gflops"] > 0
    assert {(s["dtype"], s["peer"]) for s in whole["summaries"]} == {
        (dtype, peer) for dtype in ("float32", "complex128") for peer in ("numpy", BEST)
    }
    lines = list(csv.DictReader((tmp_path / "r.csv").open()))
    assert [line["library"] for line in lines] == [OURS, "numpy"] * 4
    assert all(None not in line and None not in line.values() for line in lines)


def test_a_saved_run_is_read_again_as_it_was(tmp_path: Path) -> None:
    roof = Roof("L2", 1e9, 2.0, 0.4)
    rows = [some_row(Case("batched", 2, 3, 4, batch=(7, 2), a="T")), replace(some_row(threads=2), roof=roof)]
    facts = environment.machine_facts()
    run = Run(["python -m blisgemm bench"], [facts.pop("date")], facts, {"numpy": "2"}, {"mkl": "no"}, rows)
    write_json(tmp_path / "r.json", run)
    assert read_json(tmp_path / "r.json") == run


def test_tables_of_saved_runs_need_no_measuring(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second, readme = (tmp_path / name for name in ("1.json", "2.json", "README.md"))
    assert bench("--json", str(first)) == 0
    assert bench("--shapes", "7", "--threads", "1,2", "--json", str(second)) == 0
    monkeypatch.setattr("blisgemm.bench.trial.Trial.measure", None)
    readme.write_text("<!-- sets:begin -->\n<!-- sets:end -->\n")
    words = ["--from", str(first), str(second), "--csv", str(tmp_path / "r.csv")]
    assert main(["bench", *words, "--table", "sets", "--marker", "sets", "--write-readme", str(readme)]) == 0
    lines = readme.read_text().splitlines()
    assert lines[1].startswith("| shapes | threads | dtype | × NumPy | × best | least × best |")
    assert [line.split(" | ")[:2] for line in lines[3:6]] == [["| 5x6x7", "1"], ["| 7", "1"], ["| 7", "2"]]
    assert lines[7].startswith("1 and 2 threads") and lines[7].endswith("`.")
    assert len(list(csv.DictReader((tmp_path / "r.csv").open()))) == 6
    other = json.loads(second.read_text())
    other["machine"]["processor"] = "another"
    second.write_text(json.dumps(other))
    assert main(["bench", "--from", str(first), str(second)]) == 2
    assert f"--from: {second}: machine.processor: expected" in capsys.readouterr().err


def test_the_least_share_of_a_roof_is_of_products_that_take_their_time() -> None:
    rows = [replace(some_row(), roof=Roof("L1", 1e9, 2.0, 0.1))]  # 1 us: the call's, not the roof's
    long = {name: Spread(1e-3, 1e-3, 1e-3) for name in (OURS, "numpy")}
    rows += [replace(some_row(), roof=Roof("L3", 1e9, 2.0, share), seconds=long) for share in (0.9, 0.8)]
    assert {summary.least_roof for summary in summarize(rows)} == {0.8}


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
def test_the_peak_is_of_all_the_fmas_that_were_asked_for(dtype: str) -> None:
    kernel = blisgemm.make_plan(500, 500, 500, dtype, path="packed").kernel
    assert kernel is not None
    chains = kernel.accumulators
    once = sum(range(chains)) + chains * 160 * 0.25**2  # of lane 0 of each: where it began, and 160 fmas of 1/4 by 1/4
    assert repeat_fmas(kernel, 160) == once
    begun = sum(number * chains for number in range(5))  # every piece begins at its number
    assert peak._fmas_of_team(kernel, 160, 5, ALONE) == 5 * once + begun
    for threads in (1, 2):
        call, flops = bare_fmas(kernel, threads)(2e7)
        call()
        assert flops == pytest.approx(2e7, rel=0.01)


def test_cold_and_new_are_said(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert bench("--cold", "--new", "--json", str(tmp_path / "r.json")) == 0
    assert "1 thread, cold, new arrays" in capsys.readouterr().out
    [row] = json.loads((tmp_path / "r.json").read_text())["rows"]
    assert (row["state"], row["out"]) == ("cold", "new") and row["rotated_bytes"] > 0


def test_an_interrupted_run_writes_what_it_has(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from blisgemm.bench.trial import Trial

    measure, count = Trial.measure, itertools.count()

    def twice(*args: Any) -> Row:
        if next(count) == 2:
            raise KeyboardInterrupt
        return measure(*args)

    monkeypatch.setattr(Trial, "measure", twice)
    assert bench("--shapes", "3,4,5", "--json", str(tmp_path / "r.json")) == 130
    assert "interrupted after 2 rows" in capsys.readouterr().err
    assert len(json.loads((tmp_path / "r.json").read_text())["rows"]) == 2


def test_readme_markers_are_filled_and_the_rest_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    readme = tmp_path / "README.md"
    readme.write_text("before\n<!-- bench:begin -->\nold\n<!-- bench:end -->\nafter\n")
    assert bench("--write-readme", str(readme)) == 0
    lines = readme.read_text().splitlines()
    assert lines[:2] == ["before", "<!-- bench:begin -->"] and lines[-2:] == ["<!-- bench:end -->", "after"]
    assert "old" not in lines
    assert lines[2].startswith("| dtype | m×n×k | GFLOP/s | of peak |") and "| float32 | 5x6x7 |" in readme.read_text()
    readme.write_text("no markers\n")
    assert bench("--write-readme", str(readme)) == 2
    assert "bench:begin" in capsys.readouterr().err
    assert readme.read_text() == "no markers\n"


def test_summaries_are_geometric_means_and_minima_by_set_dtype_and_threads() -> None:
    rows = [some_row(Case("square", n, n, n), numpys=ratio) for n, ratio in ((8, 2.0), (9, 0.5), (10, 1.0))]
    rows += [some_row(threads=2, numpys=3.0)]
    found = {(s.threads, s.peer): s for s in summarize(rows)}
    assert set(found) == {(1, "numpy"), (1, BEST), (2, "numpy"), (2, BEST)}
    assert found[1, BEST].geometric_mean == pytest.approx(1)
    assert (found[1, BEST].minimum, found[1, BEST].minimum_at, found[1, BEST].rows) == (0.5, "9", 3)


def test_a_line_of_a_row_says_missing_peers_by_a_dash() -> None:
    line = tables.row_line(some_row(), ["numpy", "blis"], 4)
    assert "1.25" in line and " - " in line


def test_a_peer_beyond_the_peak_does_not_heed_arch() -> None:
    row = some_row(numpys=0.1)
    assert row.beyond_peak() == []
    fast = replace(row, peak_gflops=row.gflops("numpy") / 2)
    assert fast.beyond_peak() == ["numpy"]


# ---- measuring -----------------------------------------------------------------------------------


def test_rounds_take_every_call_in_turn_and_begin_with_another_each_time() -> None:
    order: list[str] = []
    ticks = itertools.count()

    def call(name: str) -> Callable[[], None]:
        return lambda: order.append(name)

    def clock() -> float:
        order.append("|")
        return float(next(ticks))

    times = interleave({"x": call("x"), "y": call("y")}, seconds=0, rounds=(4, 4), clock=clock)
    firsts = [part for part in "".join(order).split("|") if part]
    assert [len(t) for t in times.values()] == [4, 4]
    assert [part[0] for part in firsts[1:]] == list("xyyxxyyx")


def test_ratios_are_taken_round_by_round() -> None:
    times = {OURS: [1.0, 10.0, 1.0], "numpy": [2.0, 20.0, 2.0]}
    assert ratios(times, "numpy") == Spread(2.0, 2.0, 2.0)
    assert spread([1, 2, 3, 4, 5]) == Spread(2.0, 3.0, 4.0)
    assert geometric_mean([0.5, 2.0]) == pytest.approx(1)


# ---- pictures ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["rate", "ratio", "threads", None])
def test_pictures_are_drawn_one_per_set(kind: str | None, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from blisgemm.bench.plots import draw_rows

    grid = [Case("shape", m, n, 4) for m in (1, 2) for n in (3, 5)]
    rows = [
        some_row(case, threads=threads, numpys=ratio)
        for case, ratio in zip([*grid, Case("square", 8, 8, 8)], (0.1, 0.8, 1.0, 3.0, 20.0), strict=True)
        for threads in (1, 2)
    ]
    written = draw_rows(tmp_path / "p.png", rows, kind)
    assert [path.name for path in written] == ["p-shape.png", "p-square.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in written)


def test_the_surface_over_blocks_marks_the_models_choice(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from blisgemm.bench.blocks import measure_surface
    from blisgemm.bench.plots import draw_blocks

    surface = measure_surface(Case("shape", 40, 40, 40), "float32", 0.0)
    assert surface.model_kc in surface.kcs and surface.model_nc in surface.ncs
    assert len(surface.gflops) == len(surface.ncs) and len(surface.gflops[0]) == len(surface.kcs)
    [path] = draw_blocks(tmp_path / "b.png", [surface])
    assert path.read_bytes().startswith(b"\x89PNG")


def test_the_library_does_not_load_the_harness() -> None:
    done = run_python("import sys, blisgemm; print([m for m in sys.modules if m.startswith('blisgemm.bench')])")
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--rows", "0"), "--rows: expected integers >= 1 by commas; got '0'"),
        (("--columns", "1,,2"), "--columns: expected integers >= 1 by commas; got '1,,2'"),
        (("--dtype", "foo"), "--dtype: expected f32, f64, c64, c128 by commas; got 'foo'"),
        (("--seconds", "nan"), "--seconds: expected seconds above 0; got 'nan'"),
        (("--arch", "foo"), "--arch: BLISGEMM_ARCH: expected"),
        (("--row-bytes", "31"), "--row-bytes: expected a multiple of 4, at least 32; got 31"),
    ],
)
def test_a_script_of_bench_says_what_an_argument_should_be(words: tuple[str, str], told: str) -> None:
    command = [sys.executable, str(REPOSITORY / "bench" / "ways.py"), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode != 0 and "Traceback" not in done.stderr, done.stderr
    assert told in done.stderr


@pytest.mark.parametrize(
    ("script", "words", "told"),
    [
        ("anatomy.py", ["--shapes", "8y48"], "--shapes: expected mr x nr by commas, e.g. 12x32,8x48; got '8y48'"),
        ("anatomy.py", ["--shapes", "8x3"], "--shapes: mr, nr: expected mr >= 1 and nr a positive multiple of"),
        ("anatomy.py", ["--seconds", "-1"], "--seconds: expected seconds above 0; got '-1'"),
        ("kc.py", ["--shapes", "8x"], "--shapes: expected mr x nr by commas, e.g. 12x32,8x48; got '8x'"),
        ("kc.py", ["--shapes", "900x48"], "--shapes: mr, nr: expected at most"),
        ("kc.py", ["--seconds", "-1"], "--seconds: expected seconds above 0; got '-1'"),
        ("kc.py", ["--nc", "1"], "--nc: expected at least"),
        ("kc.py", ["--mc", "0"], "--mc: expected an integer >= 1; got '0'"),
        (
            "threads.py",
            ["--threads", "200", "--sizes", "640,64"],
            "--sizes: expected n of at least 200, a row for each",
        ),
        ("threads.py", ["--threads", "1"], "--threads: expected at least 2; got 1"),
        ("threads.py", ["--threads", "two"], "--threads: expected an integer >= 1; got 'two'"),
        ("threads.py", ["--seconds", "-1"], "--seconds: expected seconds above 0; got '-1'"),
        ("overhead.py", ["--seconds", "-1"], "--seconds: expected seconds above 0; got '-1'"),
        ("overhead.py", ["--items", "0"], "--items: expected an integer >= 1; got '0'"),
        ("memory.py", ["--size", "0"], "--size: expected an integer >= 1; got '0'"),
        ("startup.py", ["--repeat", "0"], "--repeat: expected an integer >= 1; got '0'"),
    ],
)
def test_every_script_of_bench_refuses_what_it_cannot_measure(script: str, words: list[str], told: str) -> None:
    command = [sys.executable, str(REPOSITORY / "bench" / script), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode != 0 and "Traceback" not in done.stderr, done.stderr
    assert told in done.stderr


@pytest.mark.parametrize(
    ("script", "words", "told"),
    [
        (
            "kc.py",
            ["--shapes", "4x16", "--sizes", "70", "--kcs", "64", "--nc", "40", "--seconds", "0.01"],
            "kc 40 nc 32",
        ),
        ("anatomy.py", ["--shapes", "4x16", "--sizes", "70", "--dtype", "f32", "--seconds", "0.01"], "of B"),
        ("overhead.py", ["--seconds", "0.001", "--items", "10"], "plain route: lookup"),
        ("threads.py", ["--sizes", "64", "--dtype", "f32", "--seconds", "0.01"], "waiting"),
    ],
)
def test_scripts_that_speak_to_the_inside_of_the_library_still_do(script: str, words: list[str], told: str) -> None:
    command = [sys.executable, str(REPOSITORY / "bench" / script), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0 and told in done.stdout, done.stdout + done.stderr


def test_ways_measures_every_path_of_a_product() -> None:
    command = [
        sys.executable,
        str(REPOSITORY / "bench" / "ways.py"),
        "--dtype",
        "c64",
        "--rows",
        "9",
        "--columns",
        "40",
    ]
    command += ["--depths", "30", "--seconds", "0.01"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert "9 rows" in done.stdout and "x peer" in done.stdout


@pytest.mark.parametrize("row_bytes", ["0", "4096"])
def test_ways_measures_turned_products_and_single_columns(row_bytes: str) -> None:
    command = [sys.executable, str(REPOSITORY / "bench" / "ways.py"), "--dtype", "f32,f64", "--rows", "300"]
    command += ["--columns", "2,1,8", "--depths", "300", "--seconds", "0.01", "--row-bytes", row_bytes]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line for line in done.stdout.splitlines() if "rows" in line]
    assert len(lines) == 2 and all(line.count("x peer") == 3 for line in lines)
    for line, dtype in zip(lines, ("float32", "float64"), strict=True):
        if blisgemm.make_plan(300, 2, 300, dtype, threads=1).swapped:
            assert line.split()[2] == "turned"


def test_a_call_that_compiles_at_first_is_repeated_as_often_as_a_quick_one() -> None:
    calls = []

    def call() -> None:
        if not calls:
            time.sleep(0.02)
        calls.append(1)

    interleave({"x": call}, seconds=0, rounds=(1, 1))
    assert len(calls) > 100  # of about 200 µs
