"""The notebooks run from end to end, their exercises are all there, and a wrong answer is noticed."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from support import REPOSITORY, run_python

FOLDER = REPOSITORY / "bench" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.py"))
CPU_SECONDS = 20.0  # what a laptop may take for one

# Runs a file as a script would run, and says what it took; no picture appears on a screen.
RUN = """
import os, resource, runpy, sys
os.environ["MPLBACKEND"] = "Agg"
if sys.argv[2:] == ["without matplotlib"]:
    sys.modules["matplotlib"] = None
runpy.run_path(sys.argv[1], run_name="__main__")
spent = resource.getrusage(resource.RUSAGE_SELF)
print(f"CPU {spent.ru_utime + spent.ru_stime:.1f}", file=sys.stderr)
"""


def cells(path: Path) -> list[tuple[str, str]]:
    """Return (``markdown`` or ``code``, text) of each cell."""
    parts = re.split(r"(?m)^# %%(.*)\n", path.read_text(encoding="utf-8"))
    assert not parts[0].strip(), "nothing stands before the first cell"
    kinds = ["markdown" if head.strip() == "[markdown]" else "code" for head in parts[1::2]]
    return list(zip(kinds, parts[2::2], strict=True))


def run(path: Path, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return run_python(RUN, str(path), *words, check=check, popen={"cwd": path.parent})


def exercises_of(path: Path) -> list[int]:
    texts = [text for kind, text in cells(path) if kind == "markdown"]
    return [int(number) for number in re.findall(r"\*\*Exercise (\d+)\.\*\*", "".join(texts))]


def test_there_are_six() -> None:
    assert [path.name[0] for path in NOTEBOOKS] == list("123456")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_its_answers_are_checked(path: Path) -> None:
    bare = ["without matplotlib"] if path.name[0] == "2" else []
    done = run(path, *bare)
    assert not bare or "pip install 'blisgemm[plot]'" in done.stdout
    asked = exercises_of(path)
    assert asked == list(range(1, len(asked) + 1)) and 3 <= len(asked) <= 5
    assert [int(x) for x in re.findall(r"(?m)^exercise (\d+): .*\. Checked\.$", done.stdout)] == asked
    spent = re.search(r"CPU ([\d.]+)", done.stderr)
    assert spent and float(spent[1]) < CPU_SECONDS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_each_exercise_is_a_question_a_cell_for_the_reader_and_an_answer(path: Path) -> None:
    found = cells(path)
    assert found[0][0] == "markdown" and found[0][1].startswith(f"# # {path.name[0]}. ")
    at = [number for number, (_, text) in enumerate(found) if "**Exercise " in text]
    for number, place in enumerate(at, 1):
        (asks, _), (mine, empty), (answers, worked) = found[place : place + 3]
        assert (asks, mine, answers) == ("markdown", "code", "code")
        assert empty.strip() == "mine = None"
        assert re.search(r"(?m)^answer = ", worked) and re.search(rf"(?m)^check\({number}, answer, .*mine", worked)


def test_a_wrong_answer_fails(tmp_path: Path) -> None:
    text = NOTEBOOKS[0].read_text(encoding="utf-8")
    broken = tmp_path / "broken.py"
    broken.write_text(re.sub(r"(?m)^check\(3, answer,", "check(3, answer + 1,", text), encoding="utf-8")
    done = run(broken, check=False)
    assert done.returncode == 1 and "AssertionError: exercise 3: the answer is" in done.stderr
    assert "exercise 2: " in done.stdout and "exercise 4: " not in done.stdout
