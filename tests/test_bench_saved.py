"""``bench --from``: saved runs are checked as they are read and put together where they belong; no option is ignored.

Knows: the files that ``bench --json`` writes. Does not know: how anything is measured.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rich")

from blisgemm.bench.measure import Spread
from blisgemm.bench.merge import merged
from blisgemm.bench.results import BEST, OURS, Roof, Row, Run, summarize, write_json
from blisgemm.bench.saved import read_json
from blisgemm.bench.shapes import Case
from blisgemm.cli import main
from blisgemm.errors import BlisgemmValueError

FACTS = {
    "processor": "Some EPYC", "machine": "zen3", "vectors": "avx2", "caches": "L1 32 KiB", "cores": "2",
    "python": "3.11.7", "numpy": "2.4.6", "numba": "0.68.1",
}  # fmt: skip


def row(n: int = 8, ratio: float = 1.25, **facts: Any) -> Row:
    """Return a row with made-up times."""
    case, spread = Case("shape", n, n, n), Spread(ratio, ratio, ratio)
    made = Row(
        case=case, dtype="float32", threads=1, out="given", state="hot", rotated_bytes=0, clock="CPU time",
        path="direct", kernel="f32_4x16_avx2", flops=case.flops("float32"), rounds=5,
        seconds={OURS: Spread(1e-6, 1e-6, 2e-6), "numpy": Spread(ratio * 1e-6, ratio * 1e-6, ratio * 2e-6)},
        peak_gflops=10.0, roof=Roof("L2", 1e9, 2.0, 0.4), ratios={"numpy": spread, BEST: spread}, best="numpy",
    )  # fmt: skip
    return replace(made, **facts)


def run_of(*rows: Row, command: str = "bench --shapes 8", date: str = "2026-11-30", **facts: Any) -> Run:
    return replace(Run([command], [date], dict(FACTS), {"numpy": "2.4.6"}, {"mkl": "not installed"}, [*rows]), **facts)


def saved(path: Path, run: Run) -> str:
    write_json(path, run)
    return str(path)


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Return the one line that the command is refused with."""
    assert main(["bench", *words]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.startswith("blisgemm bench: error: ") and captured.err.count("\n") == 1
    return captured.err


# ---- what a file may hold ------------------------------------------------------------------------


def put(*path: Any) -> Callable[[Any], None]:
    """Return what sets a place of the document: names and numbers down to it, and the value last."""

    def change(whole: Any) -> None:
        *names, last, value = path
        for name in names:
            whole = whole[name]
        whole[last] = value

    return change


def leave_out(*path: Any) -> Callable[[Any], None]:
    def change(whole: Any) -> None:
        for name in path[:-1]:
            whole = whole[name]
        del whole[path[-1]]

    return change


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (leave_out("format"), "format: expected 2, of a file that bench --json wrote; got none"),
        (put("format", True), "format: expected 2, of a file that bench --json wrote; got True"),
        (put("format", 1), "format: expected 2; got 1, an older format, whose peaks were others: measure again"),
        (put("format", 3), "format: expected 2; got 3, a newer format"),
        (put("absent", []), "absent: expected an object; got []"),
        (put("absent", "mkl", 3), "absent.mkl: expected text; got 3"),
        (put("absent", "mkl", "\ud800"), "absent.mkl: expected text; got"),
        (put("peers", None), "peers: expected an object; got none"),
        (put("peers", "atlas", "1"), "peers: expected names of numpy, torch, mkl, openblas, blis; got 'atlas'"),
        (put("machine", []), "machine: expected an object; got []"),
        (put("machine", None), "machine: expected an object; got none"),
        (leave_out("machine", "date"), "machine.date: expected a line of text; got none"),
        (put("machine", "date", 20261130), "machine.date: expected a line of text; got 20261130"),
        (put("machine", "processor", "two\nlines"), "machine.processor: expected a line of text; got 'two\\nlines'"),
        (leave_out("machine", "numba"), "machine.numba: expected a line of text; got none"),
        (put("machine", "cores", "two"), "machine.cores: expected an integer of at least 1, as text; got 'two'"),
        (put("machine", "cores", "9" * 5000), "machine.cores: expected an integer of at least 1, as text; got '999"),
        (put("dates", ["yesterday"]), "dates[0]: expected a date such as '2026-11-30'; got 'yesterday'"),
        (put("dates", []), "dates: expected a list of at least one; got []"),
        (put("command", None), "command: expected text; got none"),
        (put("commands", [3]), "commands[0]: expected text; got 3"),
        (put("rows", {}), "rows: expected a list of at least one; got {}"),
        (put("rows", []), "rows: expected a list of at least one; got []"),
        (put("rows", [4]), "rows[0]: expected an object; got 4"),
        (put("rows", 0, "group", None), "rows[0].group: expected one of 'square', "),
        (put("rows", 0, "group", "../../evil"), "'shape'; got '../../evil'"),
        (put("rows", 0, "m", "8"), "rows[0].m: expected an integer from 1 to 1099511627776; got '8'"),
        (put("rows", 0, "k", 0), "rows[0].k: expected an integer from 1 to 1099511627776; got 0"),
        (put("rows", 0, "batch", 3), "rows[0].batch: expected a list of at most 64 extents; got 3"),
        (put("rows", 0, "b_batched", 1), "rows[0].b_batched: expected true or false; got 1"),
        (put("rows", 0, "a", "D"), "rows[0].a: expected one of 'C', 'T'"),
        (put("rows", 0, "dtype", "float8"), "rows[0].dtype: expected one of 'float32', 'float64'"),
        (put("rows", 0, "dtype", ["float32"]), "rows[0].dtype: expected one of 'float32', 'float64'"),
        (put("rows", 0, "threads", "1"), "rows[0].threads: expected an integer from 1 to 1000000; got '1'"),
        (put("rows", 0, "threads", True), "rows[0].threads: expected an integer from 1 to 1000000; got True"),
        (put("rows", 0, "out", "old"), "rows[0].out: expected one of 'given', 'new'; got 'old'"),
        (put("rows", 0, "state", "warm"), "rows[0].state: expected one of 'hot', 'cold'; got 'warm'"),
        (put("rows", 0, "clock", "sundial"), "rows[0].clock: expected one of 'CPU time', 'wall time'; got 'sundial'"),
        (put("rows", 0, "path", 1), "rows[0].path: expected a line of text; got 1"),
        (put("rows", 0, "flops", 1023), "rows[0].flops: expected 1024, as 8 in float32 has; got 1023"),
        (put("rows", 0, "flops", 10**400), "rows[0].flops: expected an integer from 1 to"),
        (put("rows", 0, "rounds", 0), "rows[0].rounds: expected an integer from 1 to 1000000; got 0"),
        (put("rows", 0, "peak_gflops", 0), "rows[0].peak_gflops: expected a number from 1e-12 to 1e+15; got 0"),
        (
            put("rows", 0, "peak_gflops", "fast"),
            "rows[0].peak_gflops: expected a number from 1e-12 to 1e+15; got 'f",
        ),
        (
            put("rows", 0, "peak_gflops", 10**400),
            "rows[0].peak_gflops: expected a number from 1e-12 to 1e+15; got 10",
        ),
        (put("rows", 0, "seconds", []), "rows[0].seconds: expected an object; got []"),
        (put("rows", 0, "seconds", OURS, 0), "rows[0].seconds.blisgemm: expected an object; got 0"),
        (put("rows", 0, "seconds", OURS, "median", 0), "rows[0].seconds.blisgemm.median: expected a number from 1e-12"),
        (put("rows", 0, "seconds", OURS, "median", "1"), "rows[0].seconds.blisgemm.median: expected a number from"),
        (put("rows", 0, "seconds", OURS, "high", 1e-7), "rows[0].seconds.blisgemm: expected low <= median <= high"),
        (leave_out("rows", 0, "seconds", OURS), "rows[0].seconds: expected blisgemm and peers of the run (numpy); got"),
        (put("peers", {}), "rows[0].seconds: expected blisgemm and peers of the run (); got ['blisgemm', 'numpy']"),
        (put("rows", 0, "ratios", {}), "rows[0].ratios: expected those of numpy, best; got []"),
        (leave_out("rows", 0, "ratios", BEST), "rows[0].ratios: expected those of numpy, best; got ['numpy']"),
        (put("rows", 0, "ratios", BEST, "low", 0), "rows[0].ratios.best.low: expected a number from 1e-12"),
        (put("rows", 0, "ratios", BEST, "low", -2.0), "rows[0].ratios.best.low: expected a number from 1e-12"),
        (put("rows", 0, "ratios", BEST, "low", float("nan")), "rows[0].ratios.best.low: expected a number from 1e-12"),
        (put("rows", 0, "best", ["numpy"]), "rows[0].best: expected one of numpy; got ['numpy']"),
        (put("rows", 0, "skipped", []), "rows[0].skipped: expected an object; got []"),
        (put("rows", 0, "roof", 3), "rows[0].roof: expected an object; got 3"),
        (put("rows", 0, "roof", "share", None), "rows[0].roof.share: expected a number from 1e-12"),
    ],
)
def test_damage_is_told_by_file_and_field(
    damage: Callable[[Any], None], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(saved(tmp_path / "r.json", run_of(row())))
    whole = json.loads(path.read_text())
    damage(whole)
    path.write_text(json.dumps(whole))
    line = refused(capsys, "--from", str(path), "--json", str(tmp_path / "again.json"))
    assert f"--from: {path}: " in line and told in line
    assert not (tmp_path / "again.json").exists()


@pytest.mark.parametrize("text", ["", "[", "[1]", "null", "3", "[" * 100_000, '{"a":' * 100_000, "9" * 5000, "\xff"])
def test_other_files_are_told_from_benchs(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "r.json"
    path.write_text(text, encoding="latin-1")
    line = refused(capsys, "--from", str(path))
    assert f"--from: {path}: " in line and "a file that bench --json wrote; got" in line


def test_no_nesting_is_too_deep_to_be_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "r.json"
    for depth in range(880, 1000, 7):  # near where Python's own limit is
        path.write_text(f'{{"format": {"[" * depth}{"]" * depth}}}')
        assert "a file that bench --json wrote" in refused(capsys, "--from", str(path))


def test_a_missing_file_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert str(tmp_path / "no.json") in refused(capsys, "--from", str(tmp_path / "no.json"))


# ---- which runs belong together ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (run_of(row(9), machine={**FACTS, "processor": "B"}), "machine.processor: expected 'Some EPYC', as in"),
        (run_of(row(9), peers={"numpy": "9.9"}), "peers.numpy: expected '2.4.6', as in"),
        (run_of(row(9), row(8)), "rows: expected every product once; got 8 of shape in float32, threads 1, hot"),
    ],
)
def test_runs_that_do_not_belong_together_are_refused(
    other: Run, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = saved(tmp_path / "1.json", run_of(row(8)))
    second = saved(tmp_path / "2.json", other)
    line = refused(capsys, "--from", first, second)
    assert f"--from: {second}: {told}" in line and first in line.partition(told)[2]


def test_a_version_of_a_peer_is_compared_with_whichever_run_has_it() -> None:
    runs = [run_of(row(n), peers=peers) for n, peers in enumerate([{}, {"mkl": "1"}, {"mkl": "2"}], 8)]
    with pytest.raises(BlisgemmValueError, match=r"run 3: peers.mkl: expected '1', as in run 2; got '2'"):
        merged(runs)
    assert merged(runs[:2]).peers == {"mkl": "1"}


def test_the_same_file_twice_does_not_count_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(tmp_path / "1.json", run_of(row()))
    assert "rows: expected every product once" in refused(capsys, "--from", path, path)


def test_merged_files_merge_as_their_parts_do(tmp_path: Path) -> None:
    runs = [
        run_of(row(8), command="bench --shapes 8", date="2026-12-01"),
        run_of(row(9), command="bench --shapes 9", date="2026-11-30"),
        run_of(row(10), command="bench --shapes 10 --cold", date="2026-12-02", machine={**FACTS, "cores": "16"}),
    ]
    parts = [saved(tmp_path / f"{at}.json", run) for at, run in enumerate(runs)]
    whole, some, again = (tmp_path / name for name in ("whole.json", "some.json", "again.json"))
    assert main(["bench", "--from", *parts, "--json", str(whole)]) == 0
    assert main(["bench", "--from", *parts[:2], "--json", str(some)]) == 0
    assert main(["bench", "--from", str(some), parts[2], "--json", str(again)]) == 0
    assert whole.read_text() == again.read_text()
    run = read_json(whole)
    assert run.date == "2026-11-30 to 2026-12-02" and run.machine["cores"] == "16"
    assert run.command == "bench --shapes` with `8`, `9`, `10 --cold"


def test_merged_files_without_lists_are_taken_apart(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    run = run_of(row(), commands=["bench --cold", "bench --shapes 9 --cold"], dates=["2026-11-30", "2026-12-01"])
    write_json(path, run)
    whole = json.loads(path.read_text())
    assert whole["machine"]["date"] == "2026-11-30 to 2026-12-01"
    del whole["commands"], whole["dates"]
    path.write_text(json.dumps(whole))
    assert read_json(path) == run


def test_a_command_that_begins_another_still_shows_a_word() -> None:
    assert run_of(commands=["bench x", "bench x --cold"]).command == "bench` with `x`, `x --cold"


def test_hot_and_cold_given_and_new_are_never_in_one_mean(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kinds = [("hot", "given", 2.0), ("cold", "given", 1.0), ("hot", "new", 4.0)]
    rows = [row(n, ratio, state=state, out=out) for state, out, ratio in kinds for n in (8, 9)]
    found = {(x.state, x.out): x.geometric_mean for x in summarize(rows) if x.peer == BEST}
    assert found == {(state, out): pytest.approx(ratio) for state, out, ratio in kinds}
    path, readme = saved(tmp_path / "r.json", run_of(*rows)), tmp_path / "README.md"
    readme.write_text("<!-- bench:begin -->\n<!-- bench:end -->\n")
    assert main(["bench", "--from", path, "--table", "sets", "--write-readme", str(readme)]) == 0
    out = capsys.readouterr().out
    assert "1 thread  cold × best" in out and "1 thread  hot, new arrays × best" in out
    text = readme.read_text()
    assert "| shapes | threads | dtype | caches | out | × NumPy |" in text
    assert "| 8, 9 | 1 | float32 | cold | given | 1.00 |" in text and "| float32 | hot | new | 4.00 |" in text
    assert "cold and hot caches, CPU time, `out=` given and results in new arrays." in text
    assert main(["bench", "--from", path, "--write-readme", str(readme)]) == 0
    assert "| float32 | 8 | cold | given |" in readme.read_text()


def test_pictures_keep_hot_and_cold_apart() -> None:
    pytest.importorskip("matplotlib")
    from blisgemm.bench.plots import _draw_threads, _panels

    rows = [row(), row(state="cold"), row(out="new"), row(threads=2)]
    titles = ["float32, 1 thread, hot", "float32, 1 thread, cold", "float32, 1 thread, hot, new arrays"]
    assert [title for title, _ in _panels(rows)] == [*titles, "float32, 2 threads, hot"]
    drawn = [ax.get_title().partition("\n")[0] for ax in _draw_threads(rows).axes]
    assert drawn == ["8, float32", "8, float32, cold", "8, float32, new arrays"]


def test_a_line_of_a_set_names_its_own_shapes(tmp_path: Path) -> None:
    path, readme = saved(tmp_path / "r.json", run_of(row(8), row(9, threads=2))), tmp_path / "README.md"
    readme.write_text("<!-- bench:begin -->\n<!-- bench:end -->\n")
    assert main(["bench", "--from", path, "--table", "sets", "--write-readme", str(readme)]) == 0
    assert "| 8 | 1 | float32 |" in readme.read_text() and "| 9 | 2 | float32 |" in readme.read_text()


# ---- what would do nothing -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ["--shapes", "square"], ["--dtype", "f32,f64"], ["--threads", "1"], ["--peers", "numpy"], ["--seconds", "2"],
        ["--arch", "haswell"], ["--cold"], ["--new"],
    ],
)  # fmt: skip
def test_what_only_measuring_uses_is_refused_beside_from(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = saved(tmp_path / "r.json", run_of(row()))
    line = refused(capsys, "--from", path, *words)
    assert f"error: {words[0]}: expected none of these beside --from" in line


@pytest.mark.parametrize("words", [["--table", "rows"], ["--table", "sets"], ["--marker", "bench"]])
@pytest.mark.parametrize("from_file", [True, False])
def test_table_and_marker_are_refused_without_a_place(
    words: list[str], from_file: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = saved(tmp_path / "r.json", run_of(row()))
    line = refused(capsys, *(["--from", path] if from_file else ["--shapes", "5"]), *words)
    assert f"error: {words[0]}: expected --write-readme beside it" in line


def test_scaling_needs_a_product_on_several_numbers_of_threads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    first, second = (saved(tmp_path / f"{n}.json", run_of(row(8, threads=n))) for n in (1, 2))
    third = saved(tmp_path / "3.json", run_of(row(9, threads=3)))
    words = ["--plot", str(tmp_path / "x.png"), "--plot-kind", "threads"]
    assert "on at least two numbers of threads" in refused(capsys, "--from", first, *words)
    assert "got threads 1, 3" in refused(capsys, "--from", first, third, *words)
    assert not (tmp_path / "x.png").exists()
    assert main(["bench", "--from", first, second, *words]) == 0


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("none\n", "expected one <!-- bench:begin --> and one <!-- bench:end -->; got 0 and 0"),
        ("<!-- bench:begin -->\n<!-- bench:end -->\n" * 2, "got 2 and 2"),
        ("<!-- bench:end -->\n<!-- bench:begin -->\n", "the other way round"),
        ("\xff<!-- bench:begin -->\n<!-- bench:end -->\n", "expected text in UTF-8"),
    ],
)
@pytest.mark.parametrize("from_file", [True, False])
def test_markers_are_counted_before_anything_is_done(
    text: str, told: str, from_file: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    measured: list[Any] = []
    monkeypatch.setattr("blisgemm.bench.trial.Trial.measure", lambda *args: measured.append(args))
    monkeypatch.setattr("blisgemm.bench.trial.load_peers", lambda *args: measured.append(args))
    readme, out = tmp_path / "README.md", tmp_path / "r.csv"
    readme.write_text(text, encoding="latin-1")
    path = saved(tmp_path / "r.json", run_of(row()))
    words = ["--from", path] if from_file else ["--shapes", "5", "--seconds", "0"]
    line = refused(capsys, *words, "--csv", str(out), "--write-readme", str(readme))
    assert f"--write-readme: {readme}: " in line and told in line
    assert measured == [] and not out.exists() and readme.read_text(encoding="latin-1") == text


def test_blocks_need_a_plain_product_before_anything_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setattr("blisgemm.bench.trial.load_peers", None)
    words = ["--shapes", "matvec", "--plot", str(tmp_path / "x.png"), "--plot-kind", "blocking"]
    assert "expected a product of two plain matrices in --shapes" in refused(capsys, *words)


def test_a_good_file_is_written_again_as_csv(tmp_path: Path) -> None:
    path = saved(tmp_path / "r.json", run_of(row(8), row(9, state="cold")))
    assert main(["bench", "--from", path, "--csv", str(tmp_path / "r.csv")]) == 0
    lines = list(csv.DictReader((tmp_path / "r.csv").open()))
    assert [(line["shape"], line["state"], line["library"]) for line in lines] == [
        (shape, state, library) for shape, state in (("8", "hot"), ("9", "cold")) for library in (OURS, "numpy")
    ]
