"""The disk cache may be missing, full, damaged, foreign or contended for: the product is right all the same.

Each test runs fresh processes on a folder of its own. The small direct kernel of float64 is what they
compile: about a second.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from support import REPOSITORY, run_python

import blisgemm.cache
from blisgemm.machine import host_arch

PRODUCT = """
    import numpy as np, blisgemm
    a, b = np.arange(12.0).reshape(3, 4), np.arange(20.0).reshape(4, 5)
    got = blisgemm.gemm(a, b)
    assert (got == [[70, 76, 82, 88, 94], [190, 212, 234, 256, 278], [310, 348, 386, 424, 462]]).all(), got
    print("right")
"""


def product(folder: Path | str, code: str = PRODUCT, **keywords: object) -> subprocess.CompletedProcess[str]:
    """Run one small product in a fresh process on that folder; standard error tells what was compiled."""
    done = run_python(code, BLISGEMM_CACHE_DIR=str(folder), BLISGEMM_VERBOSE="1", NUMBA_CACHE_DIR=None, **keywords)  # type: ignore[arg-type]
    assert done.stdout.split()[-1:] == ["right"]
    return done


def compiled(done: subprocess.CompletedProcess[str]) -> int:
    """How many functions the process says that it compiled."""
    return sum(" compiled " in f" {line}" and "damaged" not in line for line in done.stderr.splitlines())


def entries(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that one process has filled."""
    folder = tmp_path_factory.mktemp("cache") / "filled"
    first = product(folder)
    assert compiled(first) >= 1
    assert entries(folder), "nothing was written"
    return folder


@pytest.fixture
def copy(filled: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(filled, tmp_path / "copy"))


def test_a_second_process_compiles_nothing(copy: Path) -> None:
    before = entries(copy)
    done = product(copy)
    assert compiled(done) == 0, done.stderr
    assert "loaded" in done.stderr
    assert entries(copy) == before, "a process that compiled nothing rewrote its entries"


def test_the_folder_is_the_owners_alone_and_holds_whole_files_only(filled: Path) -> None:
    if os.name == "posix":
        assert filled.stat().st_mode & 0o077 == 0, "entries are code: nobody else may write or read them"
    assert not [name for name in entries(filled) if name.endswith(".tmp")]


def test_importing_compiles_nothing_and_touches_no_folder(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    done = run_python(
        """
        import sys
        import blisgemm
        print("numba" in sys.modules, "llvmlite" in sys.modules)
        import numba.core.event as event
        with event.install_recorder("numba:compile") as recorder:
            import blisgemm.api, blisgemm.plan, blisgemm.compiled, blisgemm.driver
            blisgemm.make_plan(100, 100, 100)
        print(len(recorder.buffer))
        """,
        BLISGEMM_CACHE_DIR=str(folder),
    )
    assert done.stdout.split() == ["False", "False", "0"], "numba and llvmlite are for the first product"
    assert not folder.exists()


def test_a_plan_is_made_and_explained_without_compiling(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    run_python(
        """
        import numpy as np, blisgemm
        print(blisgemm.explain(np.ones((200, 200)), np.ones((200, 200))))
        """,
        BLISGEMM_CACHE_DIR=str(folder),
    )
    assert not folder.exists()


@pytest.mark.parametrize("where", ["below a file", "proc", "too long"])
def test_a_folder_that_cannot_exist_is_no_error(where: str, tmp_path: Path) -> None:
    # root may write anywhere, so these are places where nobody can
    (tmp_path / "file").write_text("not a folder")
    folder = {
        "below a file": tmp_path / "file" / "cache",
        "proc": Path("/proc/blisgemm"),
        "too long": tmp_path / ("x" * 300),
    }[where]
    done = product(folder)
    assert compiled(done) >= 1
    assert "can't write" in done.stderr, "what isn't cached is told to those who ask"
    assert (tmp_path / "file").read_text() == "not a folder"


def test_an_empty_name_turns_the_cache_off(tmp_path: Path) -> None:
    done = run_python(PRODUCT, BLISGEMM_CACHE_DIR="", BLISGEMM_VERBOSE="1", HOME=str(tmp_path), popen={"cwd": tmp_path})
    assert compiled(done) >= 1
    assert not entries(tmp_path), "something was written although the cache is off"


# Root becomes a user whom file modes stop, once everything is imported that it could read as root only.
AS_NOBODY = """
    import os
    folder = os.environ["BLISGEMM_CACHE_DIR"]
    os.environ["BLISGEMM_CACHE_DIR"] = ""
    import numpy as np, blisgemm, blisgemm.cache
    blisgemm.gemm(np.ones((2, 2), "c8"), np.ones((2, 2), "c8"))
    blisgemm.cache.source_digest()
    os.environ["BLISGEMM_CACHE_DIR"] = folder
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    print("nobody")
"""


def compiled_as_nobody(done: subprocess.CompletedProcess[str], dtype: str) -> bool:
    return any("compiled" in line and dtype in line for line in done.stderr.splitlines())


@pytest.mark.skipif(os.name != "posix", reason="file modes are POSIX's")
@pytest.mark.parametrize("mode", [0o555, 0o000], ids=["read-only", "closed"])
def test_a_read_only_or_closed_folder_is_no_error(filled: Path, mode: int) -> None:
    with tempfile.TemporaryDirectory() as base:  # pytest's own folders are closed to others
        os.chmod(base, 0o755)
        folder = Path(shutil.copytree(filled, Path(base) / "cache"))
        for path in folder.iterdir():
            path.chmod(0o444)
        folder.chmod(mode)
        more = PRODUCT.replace('print("right")', 'blisgemm.gemm(a.astype("f4"), b.astype("f4"))\n    print("right")')
        done = product(folder, AS_NOBODY + more)
        folder.chmod(0o755)
        assert compiled_as_nobody(done, "f64") == (mode == 0), done.stderr
        assert compiled_as_nobody(done, "f32")
        assert "can't write" in done.stderr
        assert entries(folder) == entries(filled)


@pytest.mark.skipif(os.name != "posix", reason="RLIMIT_FSIZE is POSIX's")
def test_a_disk_that_is_full_in_the_middle_of_an_entry_is_no_error(tmp_path: Path) -> None:
    limit = """
    import resource, signal
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, resource.RLIM_INFINITY))
"""
    done = product(tmp_path / "cache", limit + PRODUCT)
    assert "can't write" in done.stderr
    assert not entries(tmp_path / "cache"), "a part of an entry was left behind"
    assert compiled(product(tmp_path / "cache")) >= 1, "the next run, with room, writes it"
    assert compiled(product(tmp_path / "cache")) == 0


@pytest.mark.parametrize("call", ["os.replace", "tempfile.mkstemp"])
def test_no_space_left_is_no_error_whichever_call_finds_it(call: str, tmp_path: Path) -> None:
    module, name = call.split(".")
    fail = f"""
    import {module}, numba, blisgemm.compiled
    def fail(*args, **keywords):
        raise OSError(28, "No space left on device")
    {module}.{name} = fail
"""
    done = product(tmp_path / "cache", fail + PRODUCT)
    assert "No space left" in done.stderr
    assert not entries(tmp_path / "cache"), "a part of an entry was left behind"


DAMAGE = {
    "flipped byte at the start": lambda x: bytes([x[0] ^ 1]) + x[1:],
    "flipped byte in the middle": lambda x: x[: len(x) // 2] + bytes([x[len(x) // 2] ^ 0x80]) + x[len(x) // 2 + 1 :],
    "half": lambda x: x[: len(x) // 2],
    "empty": lambda x: b"",
    "longer": lambda x: x + b"more",
    "zeros": lambda x: bytes(len(x)),
}


def is_whole(entry: bytes) -> bool:
    """Whether an entry is what the cache writes: the SHA-256 of the rest, then the rest."""
    return len(entry) > 1000 and hashlib.sha256(entry[32:]).digest() == entry[:32]


def test_entries_are_whole(filled: Path) -> None:
    assert all(is_whole(entry) for entry in entries(filled).values())


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_entry_is_compiled_again_and_written_anew(how: str, copy: Path) -> None:
    for path in copy.iterdir():
        path.write_bytes(DAMAGE[how](path.read_bytes()))
    damaged = entries(copy)
    assert not any(is_whole(entry) for entry in damaged.values())
    assert compiled(product(copy)) >= 1
    assert set(entries(copy)) == set(damaged)
    assert all(is_whole(entry) for entry in entries(copy).values()), "a damaged entry was left"


def test_an_entry_of_good_digest_that_does_not_load_is_compiled_again(copy: Path) -> None:
    for payload in (b"no pickle", pickle.dumps(("another", "thing"))):
        for path in copy.iterdir():
            path.write_bytes(hashlib.sha256(payload).digest() + payload)
        assert compiled(product(copy)) >= 1
        assert compiled(product(copy)) == 0


def test_an_entry_that_is_a_folder_is_no_error(copy: Path) -> None:
    for path in copy.iterdir():
        path.unlink()
        path.mkdir()
    assert compiled(product(copy)) >= 1


def test_two_first_runs_at_once_are_both_right_and_leave_one_good_folder(tmp_path: Path) -> None:
    folder, go = tmp_path / "cache", tmp_path / "go"
    code = f"""
import os, time
import numpy as np, numba, blisgemm.compiled
deadline = time.time() + 60
while not os.path.exists({str(go)!r}) and time.time() < deadline:
    time.sleep(0.005)
""" + "\n".join(line[4:] for line in PRODUCT.splitlines())
    env = dict(os.environ, BLISGEMM_CACHE_DIR=str(folder), PYTHONPATH=str(REPOSITORY))
    running = [
        subprocess.Popen(
            [sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for _ in range(3)
    ]
    time.sleep(2)
    go.touch()
    for process in running:
        output, _ = process.communicate(timeout=120)
        assert process.returncode == 0, output
        assert output.split() == ["right"]
    assert not [name for name in entries(folder) if name.endswith(".tmp")]
    assert compiled(product(folder)) == 0


def test_an_entry_for_another_cpu_is_not_used(copy: Path) -> None:
    before = entries(copy)
    done = product(copy, NUMBA_CPU_NAME="x86-64-v2" if host_arch() == "x86_64" else "generic", NUMBA_CPU_FEATURES="")
    assert compiled(done) >= 1, "code for another CPU was loaded"
    assert set(entries(copy)) > set(before), "it wasn't written beside the other's"
    assert compiled(product(copy)) == 0, "this machine's own entries are still good"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the package that a test may edit."""
    return Path(
        shutil.copytree(
            REPOSITORY / "blisgemm",
            tmp_path / "checkout" / "blisgemm",
            ignore=shutil.ignore_patterns("__pycache__"),
        )
    ).parent


EDITED = """
    import numpy as np, blisgemm, sys
    assert blisgemm.__file__.startswith(sys.argv[1]), blisgemm.__file__
    a, b = np.arange(12.0).reshape(3, 4), np.arange(20.0).reshape(4, 5)
    print((blisgemm.gemm(a, b) == a @ b).all(), (blisgemm.gemm(a, b) == -(a @ b)).all())
"""


def edited_product(checkout: Path, cache: Path) -> list[str]:
    script = checkout / "product.py"
    script.write_text("\n".join(line[4:] for line in EDITED.splitlines()))
    env = dict(os.environ, BLISGEMM_CACHE_DIR=str(cache), PYTHONPATH=str(checkout), PYTHONDONTWRITEBYTECODE="1")
    done = subprocess.run(
        [sys.executable, str(script), str(checkout)],
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        cwd=checkout,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_editing_the_generator_or_the_loops_is_noticed(checkout: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert edited_product(checkout, cache) == ["True", "False"]
    vec = checkout / "blisgemm" / "ukernel" / "vec.py"
    text = vec.read_text()
    vec.write_text(
        text + "\n\n_plain_fma = fma\n\n\ndef fma(b, x, y, acc, *, fused, name=''):\n"
        "    return _plain_fma(b, b.fneg(x), y, acc, fused=fused, name=name)\n"
    )
    # alpha * s is no fma when beta = 0: one sign
    assert edited_product(checkout, cache) == ["False", "True"], (
        "an edit of ukernel/vec.py was not noticed: stale code ran"
    )
    vec.write_text(text)
    assert edited_product(checkout, cache) == ["True", "False"]
    loops = checkout / "blisgemm" / "loops.py"
    text = loops.read_text()
    edited = text.replace("for pc in range(0, k, kc)", "for pc in range(0, k - k, kc)")
    assert edited != text, "loops.py reads differently now: choose another edit"
    loops.write_text(edited)
    assert edited_product(checkout, cache) == ["False", "False"], "an edit of loops.py was not noticed: stale code ran"


def test_every_module_that_shapes_compiled_code_is_part_of_the_key() -> None:
    # what checks.py imports, entry.py among it, and what that imports, within the package
    import ast

    package = REPOSITORY / "blisgemm"
    seen: set[Path] = set()
    waiting = [package / "checks.py", package / "entry.py"]
    while waiting:
        path = waiting.pop()
        if path in seen or not path.exists():
            continue
        seen.add(path)
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.level:
                base = path.parents[node.level - 1]
                module = base.joinpath(*(node.module or "").split(".")) if node.module else base
                waiting += [module.with_suffix(".py"), *(module / f"{alias.name}.py" for alias in node.names)]
    keyed: set[Path] = set()
    for name in blisgemm.cache._COMPILED_SOURCES:
        path = package / name
        assert path.exists(), f"the cache's key names {name}, which doesn't exist"
        keyed |= set(path.glob("*.py")) if path.is_dir() else {path}
    harmless = {package / "errors.py"}  # messages
    missing = sorted(str(path.relative_to(package)) for path in seen - keyed - harmless)
    assert not missing, f"not part of the cache's key: {missing}"


def test_clear_removes_every_entry_and_counts_them(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BLISGEMM_CACHE_DIR", str(copy))
    assert blisgemm.cache.cache_dir() == copy
    count = len(entries(copy))
    assert blisgemm.cache.clear() == count > 0
    assert not entries(copy)
    assert blisgemm.cache.clear() == 0
    monkeypatch.setenv("BLISGEMM_CACHE_DIR", "")
    assert blisgemm.cache.cache_dir() is None
    assert blisgemm.cache.clear() == 0


def test_the_default_folder_follows_the_platforms_habit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("BLISGEMM_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = blisgemm.cache.cache_dir()
    assert folder is not None
    assert folder.name == "blisgemm"
    if sys.platform.startswith("linux"):
        assert folder == tmp_path / "blisgemm"


@pytest.mark.parametrize("n", [200, 1000])
def test_a_first_product_beyond_the_lane_compiles_its_own_path_only(n: int, tmp_path: Path) -> None:
    done = run_python(
        f"""
        import numpy as np, blisgemm
        a = np.ones(({n}, {n}), np.float32)
        assert (blisgemm.gemm(a, a) == {n}).all() and (blisgemm.matmul(a, a) == {n}).all()
        """,
        BLISGEMM_CACHE_DIR=str(tmp_path), BLISGEMM_VERBOSE="1",
    )  # fmt: skip
    plan = blisgemm.make_plan(n, n, n)
    access, several = "half" if plan.half else "packed", "_together" * (plan.ic_ways > 1)
    assert made(done) == [("compiled", f"run_{access}{several}")]


def test_the_code_in_memory_does_not_grow_with_the_shapes() -> None:
    """What was compiled for a way serves all of its products: one entry point, and one where the lane does some."""
    done = run_python(
        """
        import numpy as np, blisgemm
        from blisgemm.compiled import entry_point

        rng, made_for, made = np.random.default_rng(0), {}, lambda: entry_point.cache_info().currsize
        for _ in range(40):
            blisgemm.matmul(np.ones((9, 9), np.float32), np.ones((9, 9), np.float32))
        for _ in range(400):
            m, n, k = (int(2 ** rng.uniform(0, 9)) for _ in range(3))
            plan = blisgemm.make_plan(m, n, k, threads=1)
            a, b = (np.ones(shape, np.float32) for shape in ((m, k), (k, n)))
            way, before = (plan.path, plan.kernel.name, plan.half, plan.access, plan.swapped), made()
            assert (blisgemm.gemm(a, b, threads=1) == k).all()
            made_for[way] = made_for.get(way, 0) + made() - before
        assert max(made_for.values()) <= 2, made_for
        print("ways", len(made_for))
        """
    )
    assert int(done.stdout.split()[1]) >= 4


def test_the_lane_opens_after_many_such_products_and_at_once_where_it_is_kept(tmp_path: Path) -> None:
    code = """
        import numpy as np, blisgemm
        from blisgemm import lane
        lane._PATIENCE = 5
        a = np.ones((200, 200), np.float32)
        for _ in range({calls}):
            assert (blisgemm.gemm(a, a) == 200).all()
        """
    for calls, way in ((4, []), (6, ["compiled"]), (1, ["loaded"])):
        done = run_python(code.format(calls=calls), BLISGEMM_CACHE_DIR=str(tmp_path), BLISGEMM_VERBOSE="1")
        assert [how for how, name in made(done) if name == "fast_lane"] == way


def made(done: subprocess.CompletedProcess[str]) -> list[tuple[str, str]]:
    """What the process says that it compiled or loaded: (how, which function)."""
    lines = [line.split() for line in done.stderr.splitlines()]
    return [(words[1], words[2]) for words in lines if words[1:2] in (["compiled"], ["loaded"])]
