"""Tuning: a file that counts, files that don't, what a plan makes of it, and a search by a clock that we own.

Knows: how to write any tuning file, and machines on which a chosen value is the fastest. Does not know: how fast
anything is here; nothing in this file depends on real time.
"""

from __future__ import annotations

import itertools
import os
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import golden
import numpy as np
import pytest
from support import DTYPES, draw_reals, expect_equal, kernels_here, run_python

import blisgemm
from blisgemm import lane, limits, tuner
from blisgemm._version import __version__
from blisgemm.cli import main
from blisgemm.driver import plan_operands
from blisgemm.lane_limits import fast_lane_terms
from blisgemm.machine import current
from blisgemm.operands import prepare
from blisgemm.plan import Plan, plan_for
from blisgemm.tuner import Ratio, find_choices
from blisgemm.tuning import NOTHING, Choice, Tuning, as_document, default_file, file, file_in_use, read, shown
from blisgemm.ways import choose_kernel, direct_terms, model_limits

tomli_w = pytest.importorskip("tomli_w")

KERNEL = {dtype: choose_kernel(dtype, "packed")[0] for dtype in DTYPES}
GAIN, DAY = (1.04, 1.03, 1.05), "2026-11-30"


def choice(what: str, value: Any, dtype: str = "float32", threads: int = 1, **fields: Any) -> Choice:
    """Return a choice that counts here, as if it had been measured with kc = 256."""
    role = {"direct_share": "wide", "direct_terms": "direct"}.get(what, "packed")
    kernel = choose_kernel(dtype, role)[0]
    model = {"mc": kernel.mr, "nc": kernel.nr, "mt": kernel.mr, "direct_terms": direct_terms(dtype)[0]}.get(what, 0.0)
    made = Choice(what, dtype, threads, kernel.name, 256, value, model, DAY, GAIN, ("1000x1000x1000", "1800x500x1000"))
    return replace(made, **fields)


def document(*choices: Choice) -> dict[str, Any]:
    return as_document(choices, current(), __version__)


def written(path: Path, *choices: Choice, **changes: Any) -> Path:
    path.write_text(tomli_w.dumps(document(*choices) | changes))
    return path


def planned(*choices: Choice, m: int = 1000, n: int = 1000, k: int = 1000, dtype: str = "float32",
            threads: int = 1, a_rows: bool = False, **keywords: Any) -> Plan:  # fmt: skip
    """Return the plan for an A that every machine packs, so that all choices count, or one of contiguous rows."""
    tuning = Tuning(choices, "~/t.toml") if choices else NOTHING
    return plan_for(m, n, k, dtype, threads, "rows", tuning=tuning, a_rows=a_rows, **keywords)


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Put choices in force in this process, as if they had been read."""

    def put(*choices: Choice) -> None:
        file._in_force = Tuning(choices, "~/t.toml")
        plan_for.cache_clear()
        lane.forget_lanes()

    yield put
    file.read_again()
    plan_for.cache_clear()
    lane.forget_lanes()


@pytest.fixture
def lying(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the packed path read an A of contiguous rows as it lies, whatever the machine."""
    monkeypatch.setattr(limits, "UNPACKED_A_COLUMNS", {(current().isa.name, dtype): 2**63 - 1 for dtype in DTYPES})
    plan_for.cache_clear()
    yield
    plan_for.cache_clear()


# ---- the file ------------------------------------------------------------------------------------


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    mr, nr = KERNEL["float64"].mr, KERNEL["float64"].nr
    choices = (
        choice("nc", 4 * nr, "float64"), choice("mc", 64 * mr, "float64"), choice("direct_terms", 96**3),
        choice("mt", 2 * KERNEL["float32"].mr, threads=2), choice("direct_share", 0.25),
    )  # fmt: skip
    found = read(written(tmp_path / "t.toml", *choices), current())
    assert found == Tuning(choices, str(tmp_path / "t.toml"))


BAD_TOP = {
    "format": [1, 3, 0, True, "2", 2.0, None],
    "blisgemm": ["0.0.1", 3, None],
    "machine": ["zen3", 5, {}, {"name": "abacus"}, None],
    "choice": [5, "mc", {"what": "mc"}],
}


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, values in BAD_TOP.items() for v in values], ids=str)
def test_a_file_made_for_something_else_is_ignored(name: str, value: Any, tmp_path: Path) -> None:
    content = document(choice("mc", KERNEL["float32"].mr)) | {name: value}
    if value is None:
        del content[name]
    (tmp_path / "t.toml").write_text(tomli_w.dumps(content))
    found = read(tmp_path / "t.toml", current())
    assert found.choices == ()
    assert found.ignored.startswith("ignored: ")


def test_a_kernel_of_a_lesser_vector_set_may_be_tuned_one_of_another_processor_not(tmp_path: Path) -> None:
    here = {spec.name: spec for spec in kernels_here("float32")}
    foreign = {"x86_64": "f32_8x12_neon", "aarch64": "f32_6x16_avx2"}.get(current().arch, "f32_6x16_avx2")
    for name in (*here, foreign):
        row = choice("direct_terms", 1000, kernel=name)
        assert bool(read(written(tmp_path / "t.toml", row), current()).choices) == (name in here), name


@pytest.mark.parametrize("name", ["name", "arch", "isa", "l1", "l2"])
def test_a_file_for_another_machine_is_ignored_and_says_what_differs(name: str, tmp_path: Path) -> None:
    other = document()["machine"] | {name: [1024, 1, 1] if name.startswith("l") else "other"}
    found = read(written(tmp_path / "t.toml", choice("mc", KERNEL["float32"].mr), machine=other), current())
    assert found.choices == ()
    assert f"for another machine: {name} " in found.ignored


def test_fewer_cores_left_by_affinity_are_no_other_machine(tmp_path: Path) -> None:
    other = document()["machine"] | {"cores": 999}
    found = read(written(tmp_path / "t.toml", choice("mc", KERNEL["float32"].mr), machine=other), current())
    assert len(found.choices) == 1
    assert not found.ignored


MR, NR = KERNEL["float32"].mr, KERNEL["float32"].nr
MT: dict[str, Any] = {"what": "mt", "threads": 2, "value": MR, "model": MR}
BAD_ROWS: list[dict[str, Any]] = [
    {"what": "kc"}, {"what": ["mc"]}, {"what": 1}, {"dtype": "int32"}, {"dtype": "f32"}, {"threads": 0},
    {"threads": True}, {"threads": 10**9}, {"threads": "2"}, {"kernel": "f32_1x1_none"}, {"kernel": 7},
    {"kernel": "f64_8x6_neon"}, {"kernel": KERNEL["float64"].name}, {"kc": 0}, {"kc": 10**6}, {"kc": 2.0},
    {"value": NR + 1}, {"value": 0}, {"value": -NR}, {"value": NR * 10**9}, {"value": float(NR)}, {"value": str(NR)},
    {"value": True}, {"value": [NR]}, {"model": 0}, {"on": "yesterday"}, {"on": "2026-1-1"}, {"on": 2026},
    {"gain": 1.1}, {"gain": [1.1, 1.0]}, {"gain": [float("nan"), 1.0, 1.0]}, {"gain": [1.1, True, 1.1]},
    {"gain": [1.1, -1.0, float("inf")]}, {"at": []}, {"at": "x"}, {"at": ["1000x1000"]}, {"at": ["axbxc"]},
    {"at": ["\x1b[2J"]}, {"what": "ways", "threads": 2, "value": [1, 2], "model": [2, 1]}, {"what": "nt", "threads": 2},
    MT | {"threads": 1}, MT | {"value": MR + 1}, MT | {"value": 0}, MT | {"value": -MR}, MT | {"value": float(MR)},
    MT | {"value": [MR]}, MT | {"value": MR * 10**9}, MT | {"model": MR - 1},
    {"what": "direct_share", "value": float("nan"), "model": 0}, {"what": "direct_share", "value": 100, "model": 0},
    {"what": "direct_share", "value": -0.1, "model": 0}, {"what": "direct_terms", "value": 2**62, "model": 8},
    {"what": "direct_terms", "value": -1, "model": 8}, {"what": "mc", "value": MR * 10**9, "model": MR},
]  # fmt: skip


@pytest.mark.parametrize("change", BAD_ROWS, ids=str)
def test_a_row_that_makes_no_sense_is_left_out_and_the_others_count(change: dict[str, Any], tmp_path: Path) -> None:
    content = document(choice("nc", NR), choice("nc", KERNEL["float64"].nr, "float64"))
    content["choice"][0].update(change)
    (tmp_path / "t.toml").write_text(tomli_w.dumps(content))
    found = read(tmp_path / "t.toml", current())
    assert [c.dtype for c in found.choices] == ["float64"]
    assert found.ignored.startswith("partly ignored: choice 1: ")
    assert "expected" in found.ignored


def test_the_second_of_two_rows_for_one_thing_is_left_out(tmp_path: Path) -> None:
    found = read(written(tmp_path / "t.toml", choice("mc", MR), choice("mc", 2 * MR)), current())
    assert [c.value for c in found.choices] == [MR]
    assert "twice" in found.ignored


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff\xfe\x00", b"= =", b"[" * 100_000, b"a = 1\n" * 200_000, b"x = " + b"[" * 5000 + b"]" * 5000],
    ids=["empty", "bytes", "no toml", "brackets", "too large", "nested"],
)
def test_a_damaged_file_is_ignored(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "t.toml").write_bytes(content)
    found = read(tmp_path / "t.toml", current())
    assert found.choices == ()
    assert found.ignored


def test_what_is_no_file_is_ignored_and_never_waited_for(tmp_path: Path) -> None:
    assert "not a regular file" in read(tmp_path, current()).ignored
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "fifo")
        assert "not a regular file" in read(tmp_path / "fifo", current()).ignored


def test_a_missing_file_matters_only_if_it_was_named(tmp_path: Path) -> None:
    for path in (tmp_path / "none.toml", tmp_path / "none" / "none.toml"):
        assert read(path, current()) == NOTHING
        assert "no such file" in read(path, current(), named=True).ignored


def test_the_users_folder_or_blisgemm_tuning_says_where(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    machine = current()
    for off in ("off", "OFF", "", " "):
        monkeypatch.setenv("BLISGEMM_TUNING", off)
        assert file_in_use(machine) is None
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("BLISGEMM_TUNING", "~/mine.toml")
    if os.name == "posix":
        assert file_in_use(machine) == tmp_path / "mine.toml"
    monkeypatch.delenv("BLISGEMM_TUNING")
    name = f"tuning-{machine.name}-{machine.isa.name}.toml"
    for platform, variable, folder in (
        ("linux", "XDG_CONFIG_HOME", tmp_path / "config"), ("win32", "APPDATA", tmp_path / "roaming"),
    ):  # fmt: skip
        monkeypatch.setattr("sys.platform", platform)
        monkeypatch.setenv(variable, str(folder))
        assert file_in_use(machine) == default_file(machine) == folder / "blisgemm" / name
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")  # to be ignored, says the XDG specification
    assert default_file(machine) == tmp_path / ".config" / "blisgemm" / name
    assert shown(default_file(machine)) == os.path.join("~", ".config", "blisgemm", name)
    monkeypatch.setattr("sys.platform", "darwin")
    assert default_file(machine).parent == tmp_path / "Library/Application Support" / "blisgemm"


# ---- in a process --------------------------------------------------------------------------------

_PRODUCTS = """
    import sys, warnings, numpy as np, blisgemm
    assert "tomllib" not in sys.modules and "tomli" not in sys.modules
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for n in (40, 41):
            a = np.ones((n, n))
            assert (blisgemm.matmul(a, a) == n).all() and (blisgemm.gemm(a, a, alpha=2) == 2 * n).all()
            print(blisgemm.explain(a, a))
    print("tomllib" in sys.modules or "tomli" in sys.modules)
    for one in caught:
        print("WARNING", one.category.__name__, one.message)
"""


def test_a_good_file_is_used_without_a_word(tmp_path: Path) -> None:
    path = written(tmp_path / "t.toml", choice("mc", MR))
    done = run_python(_PRODUCTS, BLISGEMM_TUNING=str(path))
    assert "WARNING" not in done.stdout
    assert done.stderr == ""


def test_without_a_file_no_parser_is_loaded(tmp_path: Path) -> None:
    done = run_python(_PRODUCTS, BLISGEMM_TUNING=None, HOME=str(tmp_path), XDG_CONFIG_HOME=None, APPDATA=str(tmp_path))
    assert done.stdout.splitlines()[-1] == "False"


@pytest.mark.parametrize("content", ["= =", "format = 1"])
def test_a_bad_file_is_one_warning_and_the_products_are_right(content: str, tmp_path: Path) -> None:
    path = tmp_path / "t.toml"
    path.write_text(content)
    done = run_python(_PRODUCTS, BLISGEMM_TUNING=str(path))
    assert done.stdout.count("WARNING BlisgemmWarning") == 1
    assert f"tuning file {path}: ignored: " in done.stdout.splitlines()[-1]


def test_a_bad_file_is_no_error_even_where_warnings_are_and_the_plan_tells(tmp_path: Path) -> None:
    path = tmp_path / "t.toml"
    path.write_text("= =")
    code = """
        import warnings, numpy as np, blisgemm
        warnings.simplefilter("error")
        a = np.ones((40, 40))
        assert (blisgemm.gemm(a, a, alpha=2) == 80).all()
        print(blisgemm.make_plan(300, 300, 300))
    """
    done = run_python(code, BLISGEMM_TUNING=str(path))
    assert f"tuning file {path}: ignored: it is damaged" in done.stdout


def test_the_file_is_read_once_however_many_threads_begin(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BLISGEMM_TUNING", str(tmp_path / "none.toml"))
    count = itertools.count()
    real = file.read
    monkeypatch.setattr(file, "read", lambda *a, **k: (next(count), real(*a, **k))[1])
    file.read_again()
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            threads = [threading.Thread(target=file.in_force, args=(current(),)) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    finally:
        file.read_again()
    assert next(count) == 1
    assert len(caught) == 1


# ---- in a plan -----------------------------------------------------------------------------------


def small_block(dtype: str, threads: int = 1) -> tuple[Choice, ...]:
    """Return choices that no model would make: tiny blocks, everything packed."""
    kernel = KERNEL[dtype]
    tiles = {"nc": 2 * kernel.nr, "mt": 2 * kernel.mr} if threads > 1 else {"nc": 2 * kernel.nr}
    return (
        *(choice(what, value, dtype, threads, at=("150x150x150",)) for what, value in tiles.items()),
        choice("mc", 3 * kernel.mr, dtype, threads), choice("direct_terms", 0, dtype, threads),
        choice("direct_share", 0.0, dtype, threads),
    )  # fmt: skip


def all_direct(dtype: str, threads: int = 1) -> tuple[Choice, ...]:
    return choice("direct_terms", 512**3, dtype, threads), choice("direct_share", 4.0, dtype, threads)


def test_tuned_blocks_are_in_the_plan_which_says_since_when_and_why() -> None:
    kernel, model = KERNEL["float32"], planned(path="packed")
    plan = planned(choice("nc", kernel.nr), choice("mc", 8 * kernel.mr), path="packed")
    assert plan.blocking is not None and model.blocking is not None
    assert plan.blocking.nc == kernel.nr and plan.blocking.mc <= 8 * kernel.mr
    assert plan.blocking.footprints != model.blocking.footprints
    text = str(plan)
    assert (
        f"nc: {plan.blocking.nc} in place of the model's {model.blocking.nc}, tuned on 2026-11-30 (file ~/t.toml): "
        "4 % faster at 1000x1000x1000 and 1 more shape\n"
    ) in text
    assert text.count("nc = ") == 1  # only in Low et al.'s answer
    assert plan.workspace_bytes < model.workspace_bytes


def test_kc_is_never_tuned() -> None:
    for dtype, threads in itertools.product(DTYPES, (1, 2)):
        tuned = small_block(dtype, threads), all_direct(dtype, threads)
        for choices, k in itertools.product(tuned, (1, 100, 513, 1000, 5000)):
            plans = planned(dtype=dtype, threads=threads, k=k), planned(*choices, dtype=dtype, threads=threads, k=k)
            assert plans[0].blocking and plans[1].blocking
            assert plans[0].blocking.kc == plans[1].blocking.kc
            assert plans[0].bits == plans[1].bits


def test_a_tuned_block_takes_no_more_memory_than_the_problem() -> None:
    kernel = KERNEL["float32"]
    huge = choice("mc", 100 * kernel.mr), choice("nc", 100 * kernel.nr)
    plan = planned(*huge, m=kernel.mr + 1, n=kernel.nr + 1, k=600, path="packed", kernel=kernel)
    assert plan.blocking is not None
    assert (plan.blocking.mc, plan.blocking.nc) == (2 * kernel.mr, 2 * kernel.nr)


@pytest.mark.parametrize("case", ["threads", "dtype", "kernel", "short k", "too little work", "batch", "asked for"])
def test_a_choice_counts_only_where_it_was_measured(case: str) -> None:
    kernel = KERNEL["float32"]
    tuned = choice("nc", kernel.nr, threads=2)
    arguments: dict[str, Any] = {"threads": 2, "path": "packed"}
    assert planned(tuned, **arguments) != planned(**arguments)
    if case == "threads":
        arguments["threads"] = 1
    elif case == "dtype":
        arguments["dtype"] = "float64"
    elif case == "kernel":
        tuned = replace(tuned, kernel="f32_1x1_none")
    elif case == "short k":
        arguments["k"] = 100
    elif case == "too little work":
        tuned = replace(tuned, threads=64)
        arguments |= {"threads": 64, "m": 100, "n": 100}
    elif case == "batch":
        arguments["batch"] = 8
    else:
        arguments["blocking"] = (kernel.mr, kernel.nr, 512)
    assert planned(tuned, **arguments) == planned(**arguments)


def test_a_shorter_kc_gets_more_columns_of_the_same_bytes() -> None:
    kernel = KERNEL["float32"]
    plan = planned(choice("nc", 4 * kernel.nr), n=10**6, k=128, path="packed")
    assert plan.blocking is not None
    assert plan.blocking.nc == 8 * kernel.nr


@pytest.mark.parametrize("threads", [1, 4])
def test_an_a_that_is_read_as_it_lies_is_one_panel_whatever_was_tuned(threads: int, lying: None) -> None:
    mc, nc, mt = (choice(what, 2 * step, threads=threads) for what, step in (("mc", MR), ("nc", NR), ("mt", MR)))
    arguments: dict[str, Any] = {"threads": threads, "path": "packed", "a_rows": True}
    model = planned(**arguments)
    assert model.half and model.blocking is not None
    assert planned(mc, **arguments) == model
    assert planned(mc, **arguments | {"a_rows": False}) != planned(**arguments | {"a_rows": False})
    plan = planned(mc, nc, *[mt] * (threads > 1), **arguments)
    assert plan.blocking is not None and plan.blocking.mc == model.blocking.mc
    assert plan.blocking.nc <= 2 * NR
    assert plan.blocking.mt == model.blocking.mc if threads == 1 else plan.blocking.mt <= 2 * MR


def test_tuned_tiles_are_in_the_plan_which_counts_them() -> None:
    mr, nr = MR, NR
    model = planned(threads=4, path="packed").blocking
    plan = planned(
        choice("nc", 5 * nr, threads=4), choice("mc", 10 * mr, threads=4), choice("mt", 4 * mr, threads=4),
        threads=4, path="packed",
    )  # fmt: skip
    blocking = plan.blocking
    assert blocking is not None and model is not None
    assert blocking.nc <= 5 * nr and blocking.mc <= 10 * mr and blocking.mt <= 4 * mr
    assert blocking.nb % blocking.nc == 0 and blocking.nb >= 1000
    assert f"mt: {blocking.mt} in place of the model's {model.mt}, tuned on 2026-11-30 (file ~/t.toml)" in str(plan)
    tiles = -(-blocking.mc // blocking.mt) * -(-1000 // blocking.nc)
    assert [text for text in blocking.reasons if text.startswith(("mc = ", "nc = ", "mt = "))] == [
        f"mt = {blocking.mt}: {tiles} tiles of {blocking.mt} x {blocking.nc} for 4 threads, each of which takes the "
        "next when it is free"
    ]
    block = next(each for each in blocking.footprints if each.what == "block of B")
    assert block.bytes == blocking.nc * blocking.kc * 4


def test_a_tuned_mc_alone_cuts_its_tiles_evenly() -> None:
    plan = planned(choice("mc", 10 * MR, threads=4), threads=4, path="packed")
    blocking = plan.blocking
    assert blocking is not None
    assert blocking.mt % MR == 0 and 0 < blocking.mt <= blocking.mc
    tiles = -(-blocking.mc // blocking.mt)
    assert tiles * blocking.mt - blocking.mc < tiles * MR


def test_tuned_tiles_of_several_threads_count_near_the_size_that_was_timed() -> None:
    for what, value in (("nc", NR), ("mt", MR)):
        tuned = choice(what, value, threads=4)
        for m, n, counts in ((1000, 1000, True), (1800, 1800, True), (600, 500, True), (4000, 4000, False)):
            plans = [planned(*choices, m=m, n=n, threads=4, path="packed") for choices in ((tuned,), ())]
            assert (plans[0] != plans[1]) == counts, (what, m, n)
    one = choice("nc", NR)
    assert planned(one, m=4000, n=4000, path="packed") != planned(m=4000, n=4000, path="packed")


def test_tuned_limits_choose_the_path_and_the_plan_says_so() -> None:
    share = planned(choice("direct_share", 4.0), m=300, n=300, k=300)
    assert share.path == "direct"
    if model_limits("float32")[1] == 0:
        assert "direct while B takes up to 400.0% of L2 in place of the model's 0.0%, tuned on" in str(share)
    packed = planned(choice("direct_terms", 1000), choice("direct_share", 0.0), m=100, n=100, k=100)
    assert packed.path == "packed"
    model = model_limits("float32")[0]
    assert f"direct up to m n k = 1,000 in place of the model's {model:,}, tuned on 2026-11-30" in str(packed)
    assert "tuned" not in str(planned(choice("direct_terms", 1000), m=9, n=9, k=9))


def test_the_fast_lane_follows_a_lower_limit_and_no_higher_one(use: Callable[..., None]) -> None:
    untuned = {dtype: fast_lane_terms(dtype) for dtype in ("float64", "complex64")}
    use(choice("direct_terms", 1000, threads=7), choice("direct_terms", 512**3, "float64"))
    assert fast_lane_terms("float32") == (1000, 1000)
    assert {dtype: fast_lane_terms(dtype) for dtype in untuned} == untuned


@pytest.mark.parametrize(("dtype", "threads"), [*((dtype, 1) for dtype in DTYPES), ("float32", 2)])
@pytest.mark.parametrize("make", [small_block, all_direct])
def test_tuning_changes_no_bit(make: Any, dtype: str, threads: int, use: Callable[..., None]) -> None:
    rng = np.random.default_rng(3)
    shapes = [(100, 100, 100), (130, 140, 150), (61, 230, 1100), (300, 33, 520)]
    pairs = [(draw_reals(rng, (m, k), dtype), draw_reals(rng, (k, n), dtype)) for m, n, k in shapes]

    def products(a: np.ndarray, b: np.ndarray) -> list[np.ndarray]:
        with blisgemm.num_threads(threads):
            return [blisgemm.matmul(a, b), blisgemm.gemm(a, b, alpha=0.7), blisgemm.gemm(a, b, a @ b, beta=1.3)]

    use()
    model = [products(a, b) for a, b in pairs]
    use(*make(dtype, threads))
    differing = 0
    for (a, b), wants in zip(pairs, model, strict=True):
        plan = plan_operands(prepare(a, b, None, 1, 0, None, False, False, None, None, "same_kind", "K"), threads)
        differing += "tuned on" in str(plan)
        for got, want in zip(products(a, b), wants, strict=True):
            expect_equal(got, want, plan, same_bits=True)
    assert differing >= 2


def test_the_pinned_bits_are_those_of_tuned_products_too(use: Callable[..., None]) -> None:
    if not current().isa.fma:
        pytest.skip("the pinned bits are those of machines with fma")
    use(*(c for dtype in DTYPES for c in small_block(dtype)))
    with blisgemm.num_threads(1):  # pinned on one, checked on several elsewhere
        assert golden.digests() == golden.load()


# ---- the search ----------------------------------------------------------------------------------


class Fake:
    """A machine on which a plan takes as long as ``cost`` says, give or take ``noise``; its clock is its own."""

    def __init__(self, cost: Callable[[Plan], float], noise: float = 0.0) -> None:
        self.cost, self.noise = cost, noise
        self.rng = np.random.default_rng(5)
        self.clock, self.renewed = 0.0, 0
        self.checked: set[Plan] = set()

    def now(self) -> float:
        return self.clock

    def check(self, plan: Plan) -> None:
        self.clock += 1e-3
        self.checked.add(plan)

    def sample(self, plan: Plan) -> float:
        assert plan in self.checked, "timed before it was checked"
        seconds = 1e-3 * self.cost(plan) * float(np.exp(self.noise * self.rng.standard_normal()))
        self.clock += seconds
        return seconds

    def renew(self) -> None:
        self.renewed += 1


def found(watch: Fake, seconds: float = 60, threads: int = 2, dtype: str = "float32") -> dict[str, tuner.Finding]:
    return {x.what: x for x in find_choices(dtype, threads, seconds, watch, DAY)}


def half_nc(dtype: str, threads: int = 2) -> int:
    """Return half of the nc that the model takes for what is timed, rounded up to whole micro-panels."""
    blocking = planned(n=1000 if threads > 1 else 10**7, threads=threads, dtype=dtype, path="packed").blocking
    assert blocking is not None
    nr = KERNEL[dtype].nr
    return -(-blocking.nc // (2 * nr)) * nr


def is_nc(plan: Plan, nc: int) -> bool:
    """Whether a packed product, as large as those that blocks are timed with, has so small an nc."""
    large = plan.m * plan.n > 800_000
    return large and plan.path == "packed" and plan.blocking is not None and plan.blocking.nc <= nc


def more_mt(dtype: str) -> int:
    """Return a bit more than the mt that the model takes for what is timed on two threads."""
    blocking = planned(threads=2, dtype=dtype, path="packed").blocking
    assert blocking is not None
    return round(1.3 * blocking.mt)


def is_high(plan: Plan, mt: int) -> bool:
    """Whether the tiles of several threads are as high as that."""
    return plan.path == "packed" and plan.threads > 1 and plan.blocking is not None and plan.blocking.mt >= mt


def test_one_thread_has_no_tiles_to_search() -> None:
    assert "mt" not in found(Fake(lambda plan: 1.0), threads=1)
    assert "mt" in found(Fake(lambda plan: 1.0), threads=2)


def test_an_a_that_is_read_as_it_lies_has_no_panel_to_search(lying: None) -> None:
    watch = Fake(lambda plan: 1.0)
    assert found(watch)["mc"].note == "no other"
    assert any(plan.half for plan in watch.checked)


def test_noise_alone_is_never_kept() -> None:
    for noise in (0.0, 0.01, 0.1):
        findings = found(Fake(lambda plan: 1.0, noise))
        assert [x.what for x in findings.values() if x.choice] == []
        assert all(x.note in ("noise", "slower", "no other") for x in findings.values())


def test_a_planted_block_is_found_verified_and_reported() -> None:
    limit = half_nc("float32")
    watch = Fake(lambda plan: 0.9 if is_nc(plan, limit) else 1.0, 0.01)
    findings = found(watch)
    kept = findings["nc"].choice
    assert kept is not None
    assert isinstance(kept.value, int) and isinstance(kept.model, int) and kept.value < kept.model
    assert kept.value % KERNEL["float32"].nr == 0
    assert kept.gain[0] == pytest.approx(1 / 0.9, rel=0.03)
    assert kept.gain[1] <= kept.gain[0] <= kept.gain[2]
    assert (kept.on, kept.threads, kept.dtype) == (DAY, 2, "float32")
    assert watch.renewed >= 1
    assert not any(x.choice for x in findings.values() if x.what != "nc")


def test_what_wins_only_once_is_not_kept() -> None:
    watch = Fake(lambda plan: 1.0)
    limit = half_nc("float32")
    watch.cost = lambda plan: 0.9 if is_nc(plan, limit) and not watch.renewed else 1.0
    assert not any(x.choice for x in found(watch).values())
    assert watch.renewed >= 1


def test_what_loses_on_one_shape_is_not_kept() -> None:
    limit = half_nc("float32")
    watch = Fake(lambda plan: (1.05 if plan.n > 1500 else 0.8) if is_nc(plan, limit) else 1.0)
    finding = found(watch)["nc"]
    assert finding.choice is None
    assert finding.ratio is not None and finding.ratio.median > 1.01 and not finding.ratio.wins


def test_two_choices_are_raced_together() -> None:
    limit, high = half_nc("float32"), more_mt("float32")

    def cost(plan: Plan) -> float:
        return (0.9 if is_high(plan, high) else 1.0) * (0.9 if is_nc(plan, limit) else 1.0)

    findings = found(Fake(cost, 0.005))
    for kept in (findings["mt"].choice, findings["nc"].choice):
        assert kept is not None and isinstance(kept.value, int) and isinstance(kept.model, int)
        assert (kept.value > kept.model) == (kept.what == "mt")
    assert findings["mt"].choice is not None and findings["mt"].choice.value % KERNEL["float32"].mr == 0
    together = findings["together"]
    assert together.ratio is not None and together.choice is None
    assert together.ratio.median > 1.15


def test_the_direct_path_is_widened_as_far_as_it_wins() -> None:
    share = model_limits("float64")[1]
    limit = 150**3
    cost: Callable[[Plan], float] = lambda plan: (  # noqa: E731
        (0.8 if plan.path == "direct" else 1.0) if plan.m * plan.n * plan.k <= limit else 1.0 + (plan.path == "direct")
    )
    findings = found(Fake(cost, 0.01), threads=1, dtype="float64")
    if share == 0:
        kept = [x.choice for x in findings.values() if x.choice]
        assert kept and all(c.what.startswith("direct") for c in kept)
        for x in kept:
            assert x.gain[0] > 1.01


def test_the_direct_path_is_narrowed_as_far_as_packing_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "AS_IT_LIES", {})  # as if no C were so small that packing is never asked for
    monkeypatch.setattr(limits, "AS_IT_LIES_ELSEWHERE", (0, 0))
    for name in ("NEAR", "STRIP_ROWS", "FEW"):
        monkeypatch.setattr(limits, name, {})
    plan_for.cache_clear()
    findings = found(Fake(lambda plan: 0.7 if plan.path == "packed" else 1.0, 0.01), threads=1)
    terms = findings["direct_terms"].choice
    assert terms is not None
    assert terms.value == 16**3
    plan = planned(terms, choice("direct_share", 0.0), m=100, n=100, k=100)
    assert plan.path == "packed"
    plan_for.cache_clear()


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_found_is_what_a_file_may_hold(dtype: str, tmp_path: Path) -> None:
    limit, high = half_nc(dtype), more_mt(dtype)

    def cost(plan: Plan) -> float:
        packed = plan.path == "packed"
        return (0.8 if is_high(plan, high) else 1.0) * (0.8 if is_nc(plan, limit) else 1.0) * (0.8 if packed else 1.0)

    kept = tuple(x.choice for x in found(Fake(cost), dtype=dtype).values() if x.choice)
    assert {"nc", "mt"} <= {choice.what for choice in kept}
    assert read(written(tmp_path / "t.toml", *kept), current()) == Tuning(kept, str(tmp_path / "t.toml"))


def test_time_that_is_up_ends_the_search() -> None:
    watch = Fake(lambda plan: 1000.0)  # a second each
    findings = found(watch, seconds=5)
    assert watch.now() < 120
    assert "no time" in {x.note for x in findings.values()}
    assert not any(x.choice for x in findings.values())


def test_a_win_needs_all_three() -> None:
    assert Ratio(1.05, 1.02, 1.1, 1.0, 9).wins
    assert not Ratio(1.009, 1.005, 1.1, 1.0, 9).wins
    assert not Ratio(1.05, 0.99, 1.1, 1.0, 9).wins
    assert not Ratio(1.05, 1.02, 1.1, 0.98, 9).wins
    assert Ratio(0.9, 0.8, 0.95, 0.9, 9).verdict == "slower"


# ---- the command ---------------------------------------------------------------------------------


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., int]:
    """Run ``tune`` on a machine of our own: tiny blocks are faster by a tenth."""
    pytest.importorskip("rich")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("BLISGEMM_TUNING", str(tmp_path / "t.toml"))
    limits = {dtype: half_nc(dtype, 1) for dtype in DTYPES}
    cost: Callable[[Plan], float] = lambda plan: 0.9 if is_nc(plan, limits[plan.dtype]) else 1.0  # noqa: E731
    monkeypatch.setattr("blisgemm.cli.products.ProductWatch", lambda dtype, tick: Fake(cost))
    return lambda *words: main(["tune", "--threads", "1", *words])


def test_tune_saves_shows_and_forgets(command: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t.toml"
    assert command("--dtype", "f32") == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80 or str(tmp_path) in out
    assert "1.111" in out and "kept" in out and "Saved" in out
    saved = read(path, current())
    assert [c.key for c in saved.choices] == [("nc", "float32", 1)] and not saved.ignored

    assert command("--dtype", "c64,f64") == 0  # the others stay
    assert {c.dtype for c in read(path, current()).choices} == {"float32", "float64", "complex64"}
    assert "1 from before" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == [path]

    assert command("--show") == 0
    assert path.read_text().rstrip() in capsys.readouterr().out
    assert command("--forget") == 0
    assert not path.exists()
    assert command("--forget") == command("--show") == 0
    assert f"There is no {shown(path)}" in capsys.readouterr().out


def test_dry_run_and_output(command: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("--dry-run", "--dtype", "f32") == 0
    assert list(tmp_path.iterdir()) == []
    other = tmp_path / "new" / "other.toml"
    assert command("-o", str(other), "--dtype", "f32") == 0
    assert len(read(other, current()).choices) == 1
    assert f"BLISGEMM_TUNING={other}" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == [other.parent]


def test_nothing_faster_saves_nothing(command: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
                                      capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    monkeypatch.setattr("blisgemm.cli.products.ProductWatch", lambda dtype, tick: Fake(lambda plan: 1.0))
    assert command() == 0
    assert "The model stands" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_saves_nothing_and_says_so(command: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
                                          capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    def interrupt(plan: Plan) -> float:
        raise KeyboardInterrupt

    path = written(tmp_path / "t.toml", choice("mc", MR))
    before = path.read_text()
    monkeypatch.setattr("blisgemm.cli.products.ProductWatch", lambda dtype, tick: Fake(interrupt))
    assert command() == 130
    assert "interrupted, nothing is saved" in capsys.readouterr().err
    assert path.read_text() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_place_that_cannot_be_written_is_told_before_the_minute(
    command: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("blisgemm.cli.products.ProductWatch", None)  # not even begun
    (tmp_path / "file").write_text("")
    for bad in (tmp_path / "file" / "t.toml", tmp_path):
        assert command("-o", str(bad)) == 2
        assert f"cannot write {shown(bad)}: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--dtype", "f32,f33"], "--dtype: expected a list of f32, f64, c64, c128; got 'f32,f33'"),
        (["--dtype", ","], "--dtype: expected"),
        (["--threads", "0"], "--threads: expected"),
        (["--threads", "99999"], "--threads: expected at most"),
        (["--seconds", "-1"], "--seconds: expected a number above 0"),
        (["--seconds", "nan"], "--seconds: expected a number above 0"),
    ],
)
def test_tune_names_the_wrong_word(
    words: list[str], message: str, command: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(*words) == 2
    assert capsys.readouterr().err.startswith(f"blisgemm tune: error: {message}")


def test_a_bad_file_is_shown_with_its_reason_and_replaced(
    command: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.toml"
    path.write_text("= =")
    assert command("--show") == 1
    assert "ignored: it is damaged" in capsys.readouterr().out
    assert command("--dtype", "f32") == 0
    assert "written anew" in " ".join(capsys.readouterr().out.split())
    assert not read(path, current()).ignored


def test_two_tunes_at_once_leave_a_whole_file(tmp_path: Path) -> None:
    from blisgemm.cli.tune import save

    path = tmp_path / "t.toml"
    sets = [[choice("mc", count * MR)] for count in range(1, 9)]
    threads = [threading.Thread(target=save, args=(path, choices)) for choices in sets for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            assert not read(path, current()).ignored
        thread.join()
    assert list(read(path, current()).choices) in sets
    assert list(tmp_path.iterdir()) == [path]


def test_info_names_the_file_in_force(use: Callable[..., None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
                                      capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.setenv("BLISGEMM_TUNING", str(tmp_path / "t.toml"))
    use(choice("mc", MR, threads=2))
    assert main(["info"]) == 0
    assert f"tuning      {shown(tmp_path / 't.toml')}: mc of float32 on 2 threads" in capsys.readouterr().out
    monkeypatch.setenv("BLISGEMM_TUNING", "off")
    assert main(["info"]) == 0
    assert "tuning      off (BLISGEMM_TUNING)" in capsys.readouterr().out


def test_the_real_watch_checks_and_times_and_refuses_a_wrong_product(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rich")
    from blisgemm import driver
    from blisgemm.cli.console import CommandError
    from blisgemm.cli.products import ProductWatch

    watch = ProductWatch("float32")
    plans = tuple(planned(m=30, n=40, k=50, path=path, a_rows=True) for path in ("direct", "packed"))
    for _ in range(2):
        for plan in plans:
            watch.check(plan)
            assert watch.sample(plan) > 0
        watch.renew()
    monkeypatch.setattr(driver, "run", lambda plan, operands: operands.out.fill(1))
    with pytest.raises(CommandError, match="a product is wrong, nothing is tuned"):
        watch.check(plans[1])
