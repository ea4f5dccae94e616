"""``mul`` on files: every format there and back, every error one line that names the file, no half files.

Knows: what a user keeps in files. Does not know: how products are computed; the data are small integers,
so results are compared with ``==``.
"""

from __future__ import annotations

import builtins
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import draw, exact_gemm

import blisgemm
from blisgemm.cli import main
from blisgemm.cli.matrixfile import ENDINGS, parse_name, read_matrix

pytest.importorskip("rich")

RNG = np.random.default_rng(20)


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")


def write(name: str, array: np.ndarray) -> str:
    """Write a matrix as NumPy and SciPy do it themselves."""
    stem, _, member = name.partition(":")
    ending = Path(stem).suffix
    if ending == ".npy":
        np.save(name, array)
    elif ending == ".npz":
        np.savez(stem, **{member or "x": array})
    elif ending == ".mtx":
        import scipy.io

        scipy.io.mmwrite(stem, array)
    else:
        np.savetxt(stem, array, delimiter="\t" if ending == ".tsv" else ",", fmt="%s")
    return name


def read(name: str) -> np.ndarray:
    """Read a result as NumPy and SciPy do it themselves."""
    stem, _, member = name.partition(":")
    ending = Path(stem).suffix
    if ending == ".npy":
        return np.load(name)
    if ending == ".npz":
        return np.load(stem)[member or "c"]
    if ending == ".mtx":
        import scipy.io

        return np.asarray(scipy.io.mmread(stem))
    return np.loadtxt(stem, delimiter="\t" if ending == ".tsv" else ",", ndmin=2)


def fails(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Run ``mul``, which must fail with one line and leave no file behind; return the line's message."""
    before = {name: Path(name).stat().st_mtime_ns for name in os.listdir()}
    assert main(["mul", *words]) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert "Traceback" not in captured.err
    assert {name: Path(name).stat().st_mtime_ns for name in os.listdir()} == before
    head = "blisgemm mul: error: "
    assert captured.err.startswith(head)
    return captured.err[len(head) :].rstrip("\n")


def small(shape: tuple[int, int], dtype: Any = "float64") -> np.ndarray:
    return draw(RNG, shape, dtype)


# ---- formats -------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("out_ending", ENDINGS)
def test_every_format_in_and_out(ending: str, out_ending: str, capsys: pytest.CaptureFixture[str]) -> None:
    if ".mtx" in (ending, out_ending):
        pytest.importorskip("scipy")
    a, b = small((7, 5)), small((5, 9))
    words = ["mul", write(f"a{ending}", a), write(f"b{ending}", b), "-o", f"c{out_ending}"]
    assert main(words) == 0
    np.testing.assert_array_equal(read(f"c{out_ending}"), exact_gemm(a, b, None, 1, 0))
    out = capsys.readouterr().out
    assert re.search(rf"^out +c{re.escape(out_ending)} +7 x 9 +float64$", out, re.MULTILINE)
    assert "GFLOP/s" in out


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128", "int64", "float16"])
@pytest.mark.parametrize("ending", [".npy", ".npz", ".mtx", ".csv"])
def test_every_value_comes_back_unchanged(dtype: str, ending: str) -> None:
    if ending == ".mtx":
        pytest.importorskip("scipy")
        if dtype == "float16":
            pytest.skip("Matrix Market of SciPy has no half precision")
    if dtype == "int64":
        a = RNG.integers(-(2**40), 2**40, (4, 6))
    else:
        a = (RNG.standard_normal((4, 6)) / 3).astype(dtype)
        if np.dtype(dtype).kind == "c":
            a += (1j * RNG.standard_normal((4, 6))).astype(dtype)
    np.save("a.npy", a)
    np.save("one.npy", np.eye(4, dtype=dtype))
    assert main(["mul", "one.npy", "a.npy", "-o", f"c{ending}"]) == 0
    back, _ = read_matrix(parse_name("C", f"c{ending}"), np.dtype(dtype), None, 0)
    np.testing.assert_array_equal(back.astype(dtype), a)
    if ending in (".npy", ".npz"):
        assert back.dtype == dtype


@pytest.mark.parametrize("order", ["C", "F"])
def test_npy_is_mapped_in_both_directions(order: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = small((130, 140)), small((140, 150))
    np.save("a.npy", np.asarray(a, order=order))
    np.save("b.npy", np.asarray(b, order=order))
    seen: list[Any] = []
    real = blisgemm.gemm

    def spy(*args: Any, **keywords: Any) -> Any:
        seen.append((args[0], args[1], keywords.get("out")))
        return real(*args, **keywords)

    monkeypatch.setattr(blisgemm, "gemm", spy)
    assert main(["mul", "a.npy", "b.npy", "-o", "c.npy"]) == 0
    assert all(isinstance(x, np.memmap) for x in seen[-1])
    np.testing.assert_array_equal(np.load("c.npy"), exact_gemm(a, b, None, 1, 0))


@pytest.mark.parametrize("shapes", [((0, 3), (3, 4)), ((3, 0), (0, 4)), ((3, 4), (4, 0)), ((0, 0), (0, 0))])
def test_empty_matrices(shapes: tuple[tuple[int, int], tuple[int, int]], capsys: pytest.CaptureFixture[str]) -> None:
    np.save("a.npy", np.ones(shapes[0]))
    np.save("b.npy", np.ones(shapes[1]))
    assert main(["mul", "a.npy", "b.npy", "-o", "c.npy"]) == 0
    np.testing.assert_array_equal(np.load("c.npy"), np.zeros((shapes[0][0], shapes[1][1])))
    assert "GFLOP/s" not in capsys.readouterr().out


def test_sparse_becomes_dense_with_a_note(capsys: pytest.CaptureFixture[str]) -> None:
    scipy_sparse = pytest.importorskip("scipy.sparse")
    import scipy.io

    a = small((6, 8)) * (RNG.random((6, 8)) < 0.3)
    scipy.io.mmwrite("a.mtx", scipy_sparse.coo_matrix(a))
    np.save("b.npy", np.eye(8))
    assert main(["mul", "a.mtx", "b.npy", "-o", "c.npy"]) == 0
    np.testing.assert_array_equal(np.load("c.npy"), a)
    assert f"A: sparse, {np.count_nonzero(a)} entries: made dense" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("1,2\n3,4\n", "comma"),
        ("1;2\n3;4\n", "semicolon"),
        ("1\t2\n3\t4\n", "tab"),
        ("1 2\n3 4\n", "space"),
        ("  1   2\n  3   4\n", "space"),
        ("1.0e0, 2.0\n 3, 4e0\n", "comma"),
        ("\ufeff1,2\r\n3,4\r\n", "comma"),
        ("# x, y\n1,2\n3,4\n", "comma"),
    ],
)
def test_separator_of_text_is_guessed(text: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.csv").write_text(text, encoding="utf-8", newline="")
    np.save("one.npy", np.eye(2))
    assert main(["mul", "a.csv", "one.npy", "-o", "c.npy"]) == 0
    np.testing.assert_array_equal(np.load("c.npy"), [[1, 2], [3, 4]])
    assert f"A: separated by {name}, read as float64" in capsys.readouterr().out


def test_one_column_and_one_row_of_text() -> None:
    Path("a.txt").write_text("1\n2\n3\n")
    Path("b.txt").write_text("4 5\n")
    assert main(["mul", "a.txt", "b.txt", "-o", "c.txt"]) == 0
    assert Path("c.txt").read_text() == "4,5\n8,10\n12,15\n"


def test_separator_and_header_as_told() -> None:
    Path("a.csv").write_text("x|y\n1|2\n3|4\n")
    np.save("one.npy", np.eye(2))
    words = ["mul", "a.csv", "one.npy", "-o", "c.csv", "--delimiter", "|", "--skip-rows", "1"]
    assert main(words) == 0
    assert Path("c.csv").read_text() == "1|2\n3|4\n"


def test_array_of_an_npz_by_name() -> None:
    np.savez("both.npz", left=np.full((2, 3), 2.0), right=np.ones((3, 2)))
    assert main(["mul", "both.npz:left", "both.npz:right", "-o", "c.npz:product"]) == 0
    np.testing.assert_array_equal(np.load("c.npz")["product"], np.full((2, 2), 6.0))


# ---- gemm's arguments ----------------------------------------------------------------------------


def test_alpha_beta_trans_and_dtype() -> None:
    a, b, c = small((5, 7), "complex64"), small((9, 5), "complex64"), small((7, 9), "complex64")
    for name, array in zip("abc", (a, b, c), strict=True):
        np.save(f"{name}.npy", array)
    words = ["mul", "a.npy", "b.npy", "-o", "out.npy", "--c", "c.npy", "--trans-a", "C", "--trans-b", "T"]
    assert main([*words, "--alpha=-2", "--beta=1+2j", "--threads", "1", "--dtype", "complex128"]) == 0
    expected = exact_gemm(a.conj().T, b.T, c, -2, 1 + 2j).astype("complex128")
    got = np.load("out.npy")
    assert got.dtype == "complex128"
    np.testing.assert_array_equal(got, expected)


def test_result_has_the_dtype_that_gemm_gives() -> None:
    a = RNG.integers(-9, 9, (6, 6), dtype=np.int8)
    np.save("a.npy", a)
    assert main(["mul", "a.npy", "a.npy", "-o", "c.npy"]) == 0
    expected = blisgemm.gemm(a, a)
    got = np.load("c.npy")
    assert got.dtype == expected.dtype
    np.testing.assert_array_equal(got, expected)


def test_large_product_reports_speed_and_plan(capsys: pytest.CaptureFixture[str]) -> None:
    a, b = small((300, 200), "float32"), small((200, 400), "float32")
    np.save("a.npy", a)
    np.save("b.npy", np.asfortranarray(b))  # strided columns, which every machine packs
    assert main(["mul", "a.npy", "b.npy", "-o", "c.npy", "--plan", "--threads", "1"]) == 0
    np.testing.assert_array_equal(np.load("c.npy"), exact_gemm(a, b, None, 1, 0))
    out = capsys.readouterr().out
    assert "path      packed" in out
    assert re.search(r"^A · B: \S+ (s|ms|µs), \S+ GFLOP/s \(after \S+ (s|ms|µs) to load or compile", out, re.MULTILINE)


# ---- what is written -----------------------------------------------------------------------------


def test_existing_output_is_replaced_with_its_permissions() -> None:
    np.save("a.npy", np.eye(3))
    np.save("c.npy", np.zeros((50, 50)))
    os.chmod("c.npy", 0o640)
    assert main(["mul", "a.npy", "a.npy", "-o", "c.npy"]) == 0
    np.testing.assert_array_equal(np.load("c.npy"), np.eye(3))
    assert os.stat("c.npy").st_mode & 0o777 == 0o640


def test_new_output_has_the_usual_permissions() -> None:
    np.save("a.npy", np.eye(3))
    Path("plain").touch()
    assert main(["mul", "a.npy", "a.npy", "-o", "c.npy"]) == 0
    assert os.stat("c.npy").st_mode == os.stat("plain").st_mode


def test_link_keeps_pointing_to_its_file() -> None:
    np.save("a.npy", np.eye(3))
    np.save("real.npy", np.zeros(1))
    os.symlink("real.npy", "link.npy")
    assert main(["mul", "a.npy", "a.npy", "-o", "link.npy"]) == 0
    assert os.path.islink("link.npy")
    np.testing.assert_array_equal(np.load("real.npy"), np.eye(3))


@pytest.mark.parametrize("ending", [".npy", ".csv"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), MemoryError("2 TiB")])
def test_failure_leaves_no_half_file(
    ending: str, error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save("a.npy", np.eye(3))
    Path(f"c{ending}").write_text("what was there")
    real = blisgemm.gemm

    def breaks(*args: Any, **keywords: Any) -> Any:
        if keywords.get("out") is not None:
            keywords["out"][0] = 7
            raise error
        return real(*args, **keywords)

    monkeypatch.setattr(blisgemm, "gemm", breaks)
    message = fails(capsys, "a.npy", "a.npy", "-o", f"c{ending}")
    assert "no space left on device" in message or "not enough memory: 2 TiB" in message
    assert Path(f"c{ending}").read_text() == "what was there"


def test_interrupt_leaves_no_half_file(monkeypatch: pytest.MonkeyPatch) -> None:
    np.save("a.npy", np.eye(3))

    def interrupted(*args: Any, **keywords: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(blisgemm, "gemm", interrupted)
    assert main(["mul", "a.npy", "a.npy", "-o", "c.npy"]) == 130
    assert os.listdir() == ["a.npy"]


# ---- errors --------------------------------------------------------------------------------------


def test_missing_file_and_folder(capsys: pytest.CaptureFixture[str]) -> None:
    np.save("a.npy", np.eye(3))
    os.mkdir("folder.npy")
    for ending in ENDINGS:
        if ending != ".mtx":
            message = fails(capsys, f"no{ending}", "a.npy", "-o", "c.npy")
            assert message == f"A: no{ending}: no such file or directory"
    assert fails(capsys, "a.npy", "folder.npy", "-o", "c.npy") == "B: folder.npy: is a directory"
    assert fails(capsys, "a.npy", "a.npy", "-o", "folder.npy") == "-o: folder.npy: is a folder"
    message = fails(capsys, "a.npy", "a.npy", "-o", "nowhere/c.npy")
    assert message.startswith("-o: nowhere/c.npy: cannot write in ")
    assert message.endswith("nowhere: no such file or directory")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_folder_without_permission(capsys: pytest.CaptureFixture[str]) -> None:
    np.save("a.npy", np.eye(3))
    os.mkdir("locked", 0o500)
    assert fails(capsys, "a.npy", "a.npy", "-o", "locked/c.npy").endswith("permission denied")


def test_unknown_ending(capsys: pytest.CaptureFixture[str]) -> None:
    np.save("a.npy", np.eye(3))
    endings = "expected one of the endings .npy, .npz, .mtx, .csv, .tsv, .txt, .dat"
    assert fails(capsys, "a.mat", "a.npy", "-o", "c.npy") == f"A: a.mat: {endings}; got '.mat'"
    assert fails(capsys, "a.npy", "a.npy", "-o", "c") == f"-o: c: {endings}; got none"


def test_output_that_is_an_input(capsys: pytest.CaptureFixture[str]) -> None:
    np.save("a.npy", np.eye(3))
    os.symlink("a.npy", "same.npy")
    os.link("a.npy", "hard.npy")
    for name in ("a.npy", "same.npy", "./a.npy", "hard.npy"):
        assert "is the file of A too" in fails(capsys, "a.npy", "a.npy", "-o", name)
    np.save("c.npy", np.eye(3))
    message = fails(capsys, "a.npy", "a.npy", "--c", "c.npy", "--beta", "1", "-o", "c.npy")
    assert "is the file of --c too" in message


def test_shapes_that_do_not_fit(capsys: pytest.CaptureFixture[str]) -> None:
    np.save("a.npy", np.ones((2, 3)))
    np.save("b.npy", np.ones((4, 5)))
    np.save("v.npy", np.ones(3))
    np.save("t.npy", np.ones((2, 2, 2)))
    message = fails(capsys, "a.npy", "b.npy", "-o", "c.npy")
    assert message == "B: b.npy: expected 3 rows of B, since A of a.npy is 2 x 3; got 4 x 5"
    message = fails(capsys, "a.npy", "b.npy", "-o", "c.npy", "--trans-a", "T", "--trans-b", "C")
    assert message == "B: b.npy: expected 2 rows of Bᴴ, since Aᵀ of a.npy is 3 x 2; got 5 x 4"
    message = fails(capsys, "a.npy", "a.npy", "--trans-b", "T", "--c", "b.npy", "--beta", "2", "-o", "c.npy")
    assert message == "--c: b.npy: expected the shape of the product, 2 x 2; got 4 x 5"
    message = fails(capsys, "v.npy", "a.npy", "-o", "c.npy")
    assert message == "A: v.npy: expected a matrix (2 dimensions); got shape (3,)"
    assert "got shape (2, 2, 2)" in fails(capsys, "t.npy", "a.npy", "-o", "c.npy")


def test_what_is_no_matrix_of_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    np.save("one.npy", np.eye(2))
    np.save("words.npy", np.array([["a", "b"]]))
    np.save("objects.npy", np.array([[object()]]), allow_pickle=True)
    np.savez("objects.npz", x=np.array([[object()]]))
    whole = Path("one.npy").read_bytes()
    Path("cut.npy").write_bytes(whole[:-8])
    Path("empty.npy").touch()
    Path("text.npy").write_text("1 2\n3 4\n")
    Path("text.npz").write_text("1 2\n3 4\n")
    Path("npy.npz").write_bytes(whole)
    np.savez("none.npz")
    np.savez("two.npz", x=np.eye(2), y=np.eye(2))
    expected = {
        "words.npy": "expected numbers; got dtype <U1",
        "objects.npy": "expected numbers; got an array of Python objects, which are never loaded",
        "objects.npz": "expected numbers; got an array of Python objects, which are never loaded",
        "cut.npy": "expected a whole npy file; got",
        "empty.npy": "expected an npy file; got an empty one",
        "text.npy": "expected a whole npy file; got: other bytes",
        "text.npz": "expected an npz file; got: other bytes",
        "npy.npz": "expected an npz file; got a single array: call it .npy",
        "none.npz": "expected FILE.npz:NAME with one of (none); got 0 arrays",
        "two.npz": "expected FILE.npz:NAME with one of x, y; got 2 arrays",
    }
    for name, message in expected.items():
        assert fails(capsys, name, "one.npy", "-o", "c.npy").startswith(f"A: {name}: {message}")
    message = fails(capsys, "two.npz:z", "one.npy", "-o", "c.npy")
    assert message == "A: two.npz: expected FILE.npz:NAME with one of x, y; got no array 'z'"


def test_pickles_are_never_loaded(capsys: pytest.CaptureFixture[str]) -> None:
    class Trap:
        def __reduce__(self) -> Any:
            return os.mkdir, ("trapped",)

    np.save("trap.npy", np.array([[Trap()]], dtype=object), allow_pickle=True)
    Path("trap.npz").write_bytes(Path("trap.npy").read_bytes())
    for name in ("trap.npy", "trap.npz"):
        fails(capsys, name, "trap.npy", "-o", "c.npy")
    assert not os.path.exists("trapped")


def test_text_that_is_no_matrix(capsys: pytest.CaptureFixture[str]) -> None:
    np.save("one.npy", np.eye(2))
    texts = {
        "header.csv": (
            "x,y\n1,2\n",
            "line 1 is 'x,y' (a header: --skip-rows 1; another separator: --delimiter)",
        ),
        "comma.csv": (
            "1,5;2,5\n3,5;4,5\n",
            "expected float64 numbers with a decimal point; line 1 is '1,5;2,5'",
        ),
        "ragged.csv": ("1,2\n3\n", "expected rows of numbers; got: "),
        "later.csv": ("1,2\n3,x\n", "expected rows of numbers; got: could not convert string 'x' to float64"),
        "empty.csv": ("", "expected rows of numbers; got an empty file"),
        "blank.csv": ("\n\n# only a comment\n", "expected rows of numbers; got an empty file"),
    }
    for name, (text, message) in texts.items():
        Path(name).write_text(text)
        found = fails(capsys, name, "one.npy", "-o", "c.npy")
        assert found.startswith(f"A: {name}: ")
        assert message in found
    Path("latin.csv").write_bytes("1,2\n3,é\n".encode("latin-1"))
    assert "not UTF-8" in fails(capsys, "latin.csv", "one.npy", "-o", "c.npy")


def test_matrix_market_errors(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("scipy")
    np.save("one.npy", np.eye(2))
    Path("bad.mtx").write_text("no matrix\n")
    assert fails(capsys, "no.mtx", "one.npy", "-o", "c.npy") == "A: no.mtx: no such file or directory"
    message = fails(capsys, "bad.mtx", "one.npy", "-o", "c.npy")
    assert message.startswith("A: bad.mtx: expected a Matrix Market file; got: ")
    real_import = builtins.__import__

    def without(name: str, *args: Any, **keywords: Any) -> Any:
        if name.startswith("scipy"):
            raise ImportError(name)
        return real_import(name, *args, **keywords)

    monkeypatch.setattr(builtins, "__import__", without)
    assert "pip install 'blisgemm[io]'" in fails(capsys, "bad.mtx", "one.npy", "-o", "c.npy")
    assert "pip install 'blisgemm[io]'" in fails(capsys, "one.npy", "one.npy", "-o", "c.mtx")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--beta", "1"], "--beta: expected the file of C in --c, since beta is 1"),
        (["--dtype", "float33"], "--dtype: expected a NumPy type of numbers, such as float32; got 'float33'"),
        (["--dtype", "U3"], "--dtype: expected a NumPy type of numbers"),
        (["--dtype", "int32"], "dtype: expected"),
        (["--threads", "0"], "threads: expected an integer >= 1; got 0"),
        (["--alpha", "1j"], "alpha: expected a real number"),
    ],
)
def test_arguments_that_do_not_fit(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    np.save("a.npy", np.eye(3))
    assert fails(capsys, "a.npy", "a.npy", "-o", "c.npy", *words).startswith(message)


def test_factor_that_is_no_number(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mul", "a.npy", "a.npy", "-o", "c.npy", "--alpha", "one"]) == 2
    assert "argument --alpha: expected a number; got 'one'" in capsys.readouterr().err
