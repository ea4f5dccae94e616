"""The command line: every command through ``main``, a few as processes; errors are one line.

Knows: what a user types and sees. Does not know: how anything is computed. Files: ``test_cli_files``.
"""

from __future__ import annotations

import builtins
import os
import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from support import REPOSITORY, run_python

import blisgemm
from blisgemm.cli import COMMANDS, main
from blisgemm.machine import current, host_isas

pytest.importorskip("rich")

ESCAPE = "\x1b"


@pytest.fixture(autouse=True)
def eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plain terminal of 80 columns, whatever runs the tests."""
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)


def run_module(*words: str, **popen: Any) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY), **popen.pop("env", {})}
    command = [sys.executable, "-m", "blisgemm", *words]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, **popen)


# ---- all commands --------------------------------------------------------------------------------


def test_no_command_prints_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    out = capsys.readouterr().out
    for command in COMMANDS:
        assert re.search(rf"^ +{command} ", out, re.MULTILINE)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_within_80_columns(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    out = capsys.readouterr().out
    assert "usage:" in out
    assert max(map(len, out.splitlines())) <= 80


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"blisgemm {blisgemm.__version__}\n"


@pytest.mark.parametrize("words", [["dance"], ["explain", "1"], ["explain", "1", "x", "3"], ["mul", "a.npy", "b.npy"]])
def test_wrong_words_end_with_status_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "error:" in captured.err


def test_module_and_script_run_the_same_program() -> None:
    done = run_module()
    assert done.returncode == 0
    assert done.stdout.startswith("usage: python -m blisgemm ")
    done = run_module("--version")
    assert done.stdout == f"blisgemm {blisgemm.__version__}\n"


def test_errors_of_the_library_are_one_line_on_stderr() -> None:
    done = run_module("explain", "10", "10", "-1")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == "blisgemm explain: error: k: expected an integer >= 0; got -1\n"


def test_missing_rich_says_what_to_install(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["info"]) == 2
    assert "pip install 'blisgemm[cli]'" in capsys.readouterr().err


def test_rich_is_imported_by_the_command_line_only() -> None:
    run_python("""
        import sys, numpy as np, blisgemm
        blisgemm.gemm(np.ones((2, 2)), np.ones((2, 2)))
        assert "rich" not in sys.modules
    """)


@pytest.mark.skipif(os.name == "nt", reason="no bash")
def test_reader_that_stops_early_sees_no_traceback() -> None:
    command = f"{sys.executable} -m blisgemm asm f32_6x16_avx2 | head -n 1; exit ${{PIPESTATUS[0]}}"
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(["bash", "-c", command], env=env, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (141, "")  # 128 + SIGPIPE, as shells count
    assert done.stdout.startswith("# f32_6x16_avx2 packed for x86_64 haswell")


def test_output_survives_an_encoding_without_blocks() -> None:
    done = run_module("info", env={"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0
    assert done.stdout.isascii()


# ---- explain -------------------------------------------------------------------------------------


def test_explain_prints_the_plan(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "300", "200", "100", "--dtype", "float64", "--threads", "1"]) == 0
    assert capsys.readouterr().out == f"{blisgemm.make_plan(300, 200, 100, 'float64', threads=1)}\n"


def test_explain_wraps_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # what Rich takes for a terminal
    assert main(["explain", "1000", "1000", "1000"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    plan = str(blisgemm.make_plan(1000, 1000, 1000))
    assert " ".join(" ".join(lines).split()) == " ".join(plan.split())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--dtype", "float33"], "dtype: expected"),
        (["--kernel", "f32_1x1_none"], "kernel: expected one of"),
        (["--kernel", "f64_8x6_neon"], "kernel: expected"),
        (["--threads", "0"], "threads: expected an integer >= 1; got 0"),
    ],
)
def test_explain_names_the_wrong_choice(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "10", "20", "30", *words]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"blisgemm explain: error: {message}")
    assert captured.err.count("\n") == 1


# ---- info ----------------------------------------------------------------------------------------


def test_info_shows_machine_kernels_and_versions(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info"]) == 0
    out = capsys.readouterr().out
    machine = current()
    assert machine.name in out
    for isa in host_isas():
        assert isa.name in out
    for cache in machine.caches:
        assert re.search(rf"^L{cache.level} .*\b{cache.ways}\b.*{cache.sets:,}", out, re.MULTILINE)
    for dtype in ("float32", "float64", "complex64", "complex128"):
        for n in (2000, 8):
            kernel = blisgemm.make_plan(n, n, n, dtype).kernel
            assert kernel is not None
            assert re.search(rf"^{dtype} .*{kernel.name}", out, re.MULTILINE)
    assert np.__version__ in out
    assert "LLVM" in out
    assert os.environ["BLISGEMM_CACHE_DIR"] in out.replace("\n            ", "")
    assert ESCAPE not in out
    assert max(map(len, out.splitlines())) <= 80


def test_info_lists_overrides_and_unknown_settings() -> None:
    settings = {"BLISGEMM_NUM_THREADS": "1", "BLISGEMM_TREADS": "3", "BLISGEMM_CACHE_DIR": ""}
    done = run_module("info", env=settings)
    assert done.returncode == 0, done.stderr
    text = " ".join(done.stdout.split())
    assert "BLISGEMM_CACHE_DIR=, BLISGEMM_NUM_THREADS=1" in text
    assert "BLISGEMM_TREADS is set, but means nothing here" in text
    assert "code cache off" in text
    assert "1 at most; Numba's layer: not started" in text


def test_info_with_an_impossible_override_is_one_line() -> None:
    done = run_module("info", env={"BLISGEMM_ARCH": "abacus"})
    assert done.returncode == 2
    assert done.stderr.startswith("blisgemm info: error: BLISGEMM_ARCH: expected")
    assert done.stderr.count("\n") == 1


# ---- asm -----------------------------------------------------------------------------------------


def test_asm_shows_counts_and_an_assembler_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["asm", "f32_8x12_neon"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("# f32_8x12_neon packed for aarch64 generic, LLVM")
    assert any(re.fullmatch(r"# +24 fmas; the tile needs 8 rows x 3 vectors = 24", line) for line in lines)
    assert any(re.fullmatch(r"# +0 accesses of the stack", line) for line in lines)
    assert sum("fmla" in line for line in lines) >= 96
    assert "blisgemm_f32_8x12_neon_packed:" in lines


def test_asm_loop_only_is_the_loop(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["asm", "f32_6x16_avx2", "--loop-only", "--access", "rows"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line and not line.startswith("#")]
    assert re.fullmatch(r"\.L\w+:", lines[0])
    assert sum("vfmadd" in line for line in lines) % 12 == 0
    assert not any(line.strip().startswith(".") for line in lines[1:])


@pytest.mark.parametrize(
    ("words", "head"),
    [
        (["f32_4x8_generic", "--arch", "ppc64le"], "for ppc64le ppc64le,"),
        (["f32_4x8_generic", "--cpu", "spacemit-x60"], "for riscv64 spacemit-x60,"),
        (["f32_8x48_avx512", "--cpu", "znver4"], "for x86_64 znver4,"),
        (["f32_8x12_neon", "--cpu", "apple-m1"], "for aarch64 apple-m1,"),
    ],
)
def test_asm_for_other_processors(words: list[str], head: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["asm", *words, "--loop-only"]) == 0
    assert head in capsys.readouterr().out.splitlines()[0]


def test_asm_lists_processors(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["asm", "f32_8x12_neon", "--cpu", "help"]) == 0
    assert "neoverse-v2" in capsys.readouterr().out.split()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["f32_9x9_none"], "kernel: expected one of"),
        (["f32_8x12_neon", "--cpu", "abacus"], "cpu: expected a processor that LLVM knows"),
        (["f32_4x8_generic", "--arch", "vax"], "triple: expected"),
    ],
)
def test_asm_names_the_wrong_choice(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["asm", *words]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith(f"blisgemm asm: error: {message}")
    assert captured.err.count("\n") == 1


# ---- selftest ------------------------------------------------------------------------------------


def test_selftest_passes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["selftest", "--threads", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "all is well"
    assert all(re.match(r"ok +\S.* \d+ products +\S+ (s|ms|µs)$", line) for line in lines[:-1])
    assert len(lines) > 8


def test_selftest_finds_a_wrong_product(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    real = blisgemm.gemm

    def off_by_one(*args: Any, **keywords: Any) -> Any:
        out = real(*args, **keywords)
        if out.shape == (37, 53):
            out[5, 7] += 1
        return out

    monkeypatch.setattr(blisgemm, "gemm", off_by_one)
    assert main(["selftest"]) == 1
    out = capsys.readouterr().out
    assert re.search(r"^FAIL layouts", out, re.MULTILINE)
    assert "the first at (5, 7): expected" in out
    assert "1 group failed" in out


def test_selftest_survives_a_crash_of_one_group(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*args: Any, **keywords: Any) -> Any:
        raise RuntimeError("no such luck")

    monkeypatch.setattr(blisgemm, "matmul", broken)
    assert main(["selftest"]) == 1
    out = capsys.readouterr().out
    assert "RuntimeError: no such luck" in out
    assert re.search(r"^ok +layouts", out, re.MULTILINE)


# ---- demo ----------------------------------------------------------------------------------------


def test_quick_demo_recognises_digits_and_races(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("sklearn")
    assert main(["demo", "--quick"]) == 0
    out = capsys.readouterr().out
    accuracy = re.search(r"accuracy +([\d.]+)%: (\d+) of (\d+)", out)
    assert accuracy is not None
    assert float(accuracy[1]) > 97
    assert out.count("\nok ") == 3
    assert "WRONG" not in out
    assert "first call" in out
    assert "path      packed" in out
    assert "█" in out
    for n in (8, 128, 512):
        assert re.search(rf"^ *{n} +[\d.]+ +[\d.]+ +[\d.]+ ", out, re.MULTILINE)
    assert ESCAPE not in out
    long = [line for line in out.splitlines() if len(line) > 80]  # a plan isn't wrapped into a pipe
    assert all(line.startswith(("kernel ", "bits ", "because ", "          ")) for line in long)


def test_demo_tells_a_wrong_product(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("sklearn")
    real = blisgemm.gemm

    def off_by_one(*args: Any, **keywords: Any) -> Any:
        out = real(*args, **keywords)
        out[0, 0] += 1
        return out

    monkeypatch.setattr(blisgemm, "gemm", off_by_one)
    assert main(["demo", "--quick"]) == 1
    assert capsys.readouterr().out.count("WRONG") == 3


def test_demo_without_scikit_learn_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real_import = builtins.__import__

    def without(name: str, *args: Any, **keywords: Any) -> Any:
        if name.startswith("sklearn"):
            raise ImportError(name)
        return real_import(name, *args, **keywords)

    monkeypatch.setattr(builtins, "__import__", without)
    assert main(["demo"]) == 2
    assert "pip install 'blisgemm[demo]'" in capsys.readouterr().err
