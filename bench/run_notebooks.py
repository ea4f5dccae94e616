"""Run the files of ``bench/notebooks`` as notebooks: what they print and draw is kept in ``bench/out``.

    make notebooks                                           all of them
    python bench/run_notebooks.py bench/notebooks/5_*.py     some

The files are Python with cells, which Jupyter opens through jupytext and which run as scripts too.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import jupytext
import nbclient
import nbformat

HERE = Path(__file__).parent
CELL_SECONDS = 120


def run(path: Path, out: Path) -> Path:
    """Run one file in a kernel of its own; return where the notebook is."""
    book = jupytext.read(path, fmt="py:percent")
    book.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbclient.NotebookClient(book, timeout=CELL_SECONDS, resources={"metadata": {"path": str(path.parent)}}).execute()
    target = out / f"{path.stem}.ipynb"
    nbformat.write(book, target)
    return target


def main(names: list[str]) -> int:
    """Run the files named, or all."""
    out = HERE / "out"
    out.mkdir(exist_ok=True)
    for path in map(Path, names or sorted((HERE / "notebooks").glob("*.py"))):
        start = time.perf_counter()
        target = run(path, out)
        print(f"{target}  {time.perf_counter() - start:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
