"""Recognise handwritten digits with one matrix product, then race NumPy.

Knows: the order of the show. Does not know: how digits are told apart (``digits``) or how a race is run
(``race``).
"""

from __future__ import annotations

import argparse

from rich.console import Console

from .console import CommandError, can_draw, print_facts, print_plan, seconds_text, verbatim

__all__ = ["HELP", "add_arguments", "run"]

HELP = "recognise handwritten digits with one product, then race NumPy"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the short form."""
    parser.add_argument("--quick", action="store_true", help="a shorter race, for a test of the installation")


def run(args: argparse.Namespace, console: Console) -> int:
    """Classify, check, draw, race; return 1 if any product was wrong."""
    import numpy as np

    from ..cache import entries
    from . import digits

    data = digits.load()
    console.print("Handwritten digits: nearest neighbours by one matrix product\n", style="bold")
    compiled_before = len(entries())
    result = digits.classify(data)
    right = int(np.count_nonzero(result.labels == data.test_labels))
    tests, train = len(data.test_labels), len(data.train_labels)
    m, n, k = tests, train, data.test.shape[1]
    facts = [
        (
            "data",
            f"{tests + train} images of 8 x 8 pixels (scikit-learn): {train} to learn from, {tests} to test",
        ),
        ("product", f"{m} x {k} times {k} x {n}, float32: all distances |x - y|² at once"),
        ("", "gemm(X, Y, C, alpha=-2, beta=1, trans_b=True) with C = |x|² + |y|²"),
        ("first call", f"{seconds_text(result.first_seconds)}: {_origin_of_code(compiled_before)}"),
        (
            "later calls",
            f"{seconds_text(result.seconds)}, {2 * m * n * k / result.seconds / 1e9:.3g} GFLOP/s",
        ),
        (
            "accuracy",
            f"{right / tests:.1%}: {right} of {tests} by the vote of {digits.NEIGHBOURS} neighbours",
        ),
    ]
    print_facts(console, facts)
    good = _print_checks(digits.check(data, result), console)
    console.print()
    console.print("The plan of that product\n", style="bold")
    print_plan(console, digits.explain(data))
    console.print()
    console.print("Two of the images, and the nearest to each\n", style="bold")
    for index in digits.pick(data, result):
        verbatim(console, digits.draw(data, result, index, blocks=can_draw(console)))
        console.print()
    return 0 if _race(args.quick, console) and good else 1


def _origin_of_code(entries_before: int) -> str:
    """Tell where the machine code of the first call came from."""
    from ..cache import cache_dir, entries

    if len(entries()) > entries_before:
        return f"loaded Numba, compiled, and kept the code in {cache_dir()} for the next process"
    if entries_before:
        return f"loaded Numba, and compiled code from {cache_dir()}"
    return "loaded Numba and compiled; there is no cache folder to keep the code"


def _print_checks(checks: list[tuple[bool, str]], console: Console) -> bool:
    for good, what in checks:
        verbatim(console, f"{'ok' if good else 'WRONG':<12}{what}", "green" if good else "bold red")
    return all(good for good, _ in checks)


def _race(quick: bool, console: Console) -> bool:
    """Run the races; return whether every product was right."""
    from .race import run_races

    try:
        return run_races(console, quick)
    except ImportError as error:
        raise CommandError(f"the race needs {error.name}: pip install 'blisgemm[demo]'") from None
