"""``python -m blisgemm.testing module:function``: run the battery on a function by its name.

Without a name the examples are run, each with its bug. Called by people.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import BlisgemmError, BlisgemmValueError
from .battery import check_gemm, check_matmul
from .examples import BUGGY, right


def main(argv: Sequence[str] | None = None) -> int:
    """Print a report for each function; return 1 if a rule is broken, 2 if there is no such function."""
    parser = argparse.ArgumentParser(prog="python -m blisgemm.testing", description="Judge a matrix product by rules.")
    parser.add_argument("function", nargs="*", help="module:function, such as numpy:matmul; none: examples with bugs")
    parser.add_argument("--matmul", action="store_true", help="judge it as numpy.matmul: vectors, stacks, promotion")
    parser.add_argument("--dtypes", default="float32,float64", help="separated by commas (default: float32,float64)")
    parser.add_argument("--accepts", help="arguments beside a and b, separated by commas, such as c,alpha,beta,out")
    parser.add_argument("--rules", help="only these, separated by commas")
    args = parser.parse_args(argv)
    words: dict[str, Any] = {name: _words(getattr(args, name)) for name in ("dtypes", "accepts", "rules")}
    check = check_matmul if args.matmul else check_gemm
    examples = [right, *(function for function, _, _ in BUGGY.values())]
    try:
        functions = [(name, _find(name)) for name in args.function] or [(f.__name__, f) for f in examples]
        reports = [check(function, name=name, **words) for name, function in functions]
    except (BlisgemmError, ImportError) as error:
        sys.stderr.write(f"blisgemm.testing: error: {' '.join(str(error).split())}\n")
        return 2
    sys.stdout.write("\n\n".join(map(str, reports)) + "\n")
    return 0 if all(report.ok for report in reports) else 1


def _words(text: str | None) -> list[str] | None:
    return None if text is None else [word.strip() for word in text.split(",") if word.strip()]


def _find(name: str) -> Callable[..., Any]:
    module, _, path = name.partition(":")
    if not module or not path or module.startswith("."):
        raise BlisgemmValueError(f"function: expected module:function, such as numpy:matmul; got {name!r}")
    try:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except ImportError:
        raise
    except (Exception, SystemExit) as error:  # whatever a module does when it is imported
        raise BlisgemmValueError(f"function: {name} can't be had: {type(error).__name__}: {error}") from None
    return found  # type: ignore[no-any-return]


if __name__ == "__main__":
    sys.exit(main())
