"""Multiply matrices in files: C := alpha op(A) op(B) + beta C.

Knows: the options, the order of checks, the report. Does not know: file formats (``matrixfile``) or how
matrices are multiplied (``gemm``).
"""

from __future__ import annotations

import argparse
import math
import os
import time
from typing import Any

import numpy as np
from rich.console import Console

from .console import CommandError, bytes_text, print_plan, seconds_text, verbatim
from .matrixfile import ENDINGS, Array, MatrixFile, open_result, parse_name, read_matrix

__all__ = ["HELP", "add_arguments", "run"]

HELP = "multiply matrices in files (npy, npz, Matrix Market, text)"
_OPS = {"N": "{}", "T": "{}ᵀ", "C": "{}ᴴ", "R": "conj({})"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the files, gemm's arguments, and how text is read."""
    parser.epilog = f"A file ends in {', '.join(ENDINGS)}; FILE.npz:NAME names one array of several."
    parser.add_argument("a", metavar="A", help="file of the left matrix")
    parser.add_argument("b", metavar="B", help="file of the right matrix")
    parser.add_argument("-o", "--out", metavar="FILE", required=True, help="file to write; one that exists is replaced")
    parser.add_argument(
        "--alpha",
        metavar="X",
        type=_number,
        default=1,
        help="factor of the product (default: 1); a negative one as --alpha=-1e3",
    )
    parser.add_argument("--beta", metavar="X", type=_number, default=0, help="factor of the matrix in --c (default: 0)")
    parser.add_argument("--c", metavar="FILE", help="file of the matrix to add; needed unless beta is 0")
    for letter in "ab":
        parser.add_argument(
            f"--trans-{letter}", choices=("N", "T", "C", "R"), default="N", metavar="OP",
            help=f"{letter.upper()} as it is (N), transposed (T), conjugate transposed (C) or conjugated (R)",
        )  # fmt: skip
    parser.add_argument("--dtype", metavar="TYPE", help="element type of the result (default: NumPy's promotion)")
    parser.add_argument("--threads", metavar="N", type=int, help="at most so many threads")
    parser.add_argument("--plan", action="store_true", help="print the plan too")
    text = parser.add_argument_group("text files")
    text.add_argument("--delimiter", metavar="D", help="comma, semicolon, tab, space or a character (default: guessed)")
    text.add_argument("--skip-rows", metavar="N", type=int, default=0, help="lines of header to skip (default: 0)")


def _number(text: str) -> complex | float | int:
    for kind in (int, float, complex):
        try:
            return kind(text.replace("i", "j") if kind is complex else text)
        except ValueError:
            pass
    raise argparse.ArgumentTypeError(f"expected a number; got {text!r}")


def run(args: argparse.Namespace, console: Console) -> int:
    """Read, multiply, write, report."""
    import blisgemm

    names = {role: parse_name(role, text) for role, text in (("A", args.a), ("B", args.b)) if text}
    if args.c:
        names["--c"] = parse_name("--c", args.c)
    target = parse_name("-o", args.out)
    dtype = _dtype(args.dtype)
    if args.beta != 0 and not args.c:
        raise CommandError(f"--beta: expected the file of C in --c, since beta is {args.beta}")
    _refuse_input_as_output(target, list(names.values()))

    arrays: dict[str, Array] = {}
    rows: list[tuple[str, ...]] = []
    notes: list[str] = []
    for role, file in names.items():
        array, note = read_matrix(file, dtype, args.delimiter, args.skip_rows)
        arrays[role] = array
        notes += [f"{role}: {note}"] * bool(note)
        rows.append((role.strip("-").upper(), str(file.path), _shape_text(array.shape), str(array.dtype)))
    a, b, c = arrays["A"], arrays["B"], arrays.get("--c")
    m, n, k = _extents(names, arrays, args)
    keywords = ("alpha", "beta", "trans_a", "trans_b", "dtype", "threads")
    options: dict[str, Any] = {keyword: getattr(args, keyword) for keyword in keywords}
    start = time.perf_counter()
    out_dtype = _result_dtype(a, b, c, options)
    with open_result(target, (m, n), out_dtype, args.delimiter) as out:
        _print_rows(console, [*rows, ("out", str(target.path), _shape_text((m, n)), str(out_dtype))])
        for note in notes:
            verbatim(console, note)
        if args.plan:
            print_plan(console, blisgemm.explain(a, b, c, out=out, **options))
        _prepare_code(a, b, options)
        ready = time.perf_counter() - start
        start = time.perf_counter()
        blisgemm.gemm(a, b, c, out=out, **options)
        took = time.perf_counter() - start
    verbatim(console, _report(args, (m, n, k), out_dtype, took, ready))
    verbatim(console, f"{target.path}: {bytes_text(target.path.stat().st_size)} written")
    return 0


def _print_rows(console: Console, rows: list[tuple[str, ...]]) -> None:
    """Print the files in columns, as wide as they need: a path is never cut."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        verbatim(console, "  ".join(f"{word:<{width}}" for word, width in zip(row, widths, strict=True)).rstrip())


def _dtype(text: str | None) -> np.dtype[Any] | None:
    try:
        dtype = np.dtype(text) if text else None
    except TypeError:
        raise CommandError(f"--dtype: expected a NumPy type of numbers, such as float32; got {text!r}") from None
    if dtype is not None and dtype.kind not in "biufc":
        raise CommandError(f"--dtype: expected a NumPy type of numbers, such as float32; got {text!r}")
    return dtype


def _refuse_input_as_output(target: MatrixFile, inputs: list[MatrixFile]) -> None:
    """Inputs are memory-mapped and must outlive the product, and nobody means to lose one."""
    for file in inputs:
        if target.path.exists() and file.path.exists() and os.path.samefile(target.path, file.path):
            raise target.error(f"is the file of {file.role} too; choose another name for the result")


def _extents(names: dict[str, MatrixFile], arrays: dict[str, Array], args: argparse.Namespace) -> tuple[int, int, int]:
    """Return m, n, k; errors name the files."""
    shapes = {}
    for role, trans in (("A", args.trans_a), ("B", args.trans_b)):
        shape = arrays[role].shape
        shapes[role] = shape[::-1] if trans in ("T", "C") else shape
    (m, k), (rows, n) = shapes["A"], shapes["B"]
    if rows != k:
        left, right = _OPS[args.trans_a].format("A"), _OPS[args.trans_b].format("B")
        raise names["B"].error(
            f"expected {k} rows of {right}, since {left} of {names['A'].path} is {m} x {k}; got {rows} x {n}"
        )
    c = arrays.get("--c")
    if c is not None and c.shape != (m, n):
        raise names["--c"].error(f"expected the shape of the product, {m} x {n}; got {_shape_text(c.shape)}")
    return m, n, k


def _result_dtype(a: Array, b: Array, c: Array | None, options: dict[str, Any]) -> np.dtype[Any]:
    """Ask gemm itself, with operands of one element."""
    import blisgemm

    one = [None if x is None else np.zeros((1, 1), x.dtype) for x in (a, b, c)]
    return np.asarray(blisgemm.gemm(*one, **options)).dtype.newbyteorder("=")


def _prepare_code(a: Array, b: Array, options: dict[str, Any]) -> None:
    """Compile or load what the product needs, by a corner of it that takes the same path."""
    import blisgemm

    extents = (*a.shape, b.shape[1])
    terms = math.prod(extents)
    side = 256  # 256^3 terms are work enough for the packed path and for 64 threads
    while math.prod(min(side, x) for x in extents) < min(terms, 256**3):
        side *= 2
    blisgemm.gemm(a[:side, :side], b[:side, :side], **{**options, "beta": 0})


def _report(args: argparse.Namespace, extents: tuple[int, int, int], dtype: Any, took: float, ready: float) -> str:
    m, n, k = extents
    left, right = _OPS[args.trans_a].format("A"), _OPS[args.trans_b].format("B")
    alpha = "" if args.alpha == 1 else f"{args.alpha} · "
    plus = "" if args.beta == 0 else f" + {'' if args.beta == 1 else f'{args.beta} · '}C"
    flops = m * n * k * (8 if np.dtype(dtype).kind == "c" else 2)
    speed = f", {flops / took / 1e9:.3g} GFLOP/s" if flops else ""
    before = f"after {seconds_text(ready)} to load or compile the code"
    return f"{alpha}{left} · {right}{plus}: {seconds_text(took)}{speed} ({before})"


def _shape_text(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))
