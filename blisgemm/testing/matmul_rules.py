"""The rules that a matmul has beside those of a gemm: vectors, stacks of matrices, mixed dtypes.

Knows: what ``numpy.matmul`` makes of shapes. Does not know: how findings are told. Called by ``battery``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .assertions import assert_exact
from .report import Failure
from .rules import MOST, Rule, Setting, Trials, rule
from .subject import Subject
from .values import draw_integers

__all__ = ["MATMUL_RULES"]

Array = np.ndarray[Any, Any]

MATMUL_RULES: list[Rule] = []

_VECTORS = (((4,), (4,)), ((1,), (1,)), ((3,), (3, 5)), ((6, 3), (3,)), ((2, 6, 3), (3,)), ((3,), (2, 3, 5)))
_STACKS = (
    ((2, 3, 4), (2, 4, 5)), ((2, 3, 4), (4, 5)), ((3, 4), (2, 4, 5)), ((1, 3, 4), (7, 4, 5)), ((2, 1, 3, 4), (3, 4, 2)),
    ((0, 3, 4), (4, 5)), ((2, 3, 0), (2, 0, 5)), ((3, 1, 1, 1), (1, 4, 1, 1)),
)  # fmt: skip
_REFUSED = (((), (3,)), ((3, 4), ()), ((3,), (4,)), ((2, 3, 4), (3, 4, 5)), ((3, 4), (2, 5, 3)))


def _against_numpy(subject: Subject, a: Array, b: Array, note: str) -> Failure | None:
    """Judge a product by NumPy's of the same integers, which no BLAS touches."""
    dtype = np.result_type(a, b).newbyteorder("=")
    whole = np.complex128 if dtype.kind == "c" else np.int64
    expected = np.asarray(np.einsum("...ij,...jk->...ik", *_as_matrices(a.astype(whole), b.astype(whole))))
    expected = expected[..., 0] if b.ndim == 1 else expected
    expected = (expected[..., 0, :] if b.ndim > 1 else expected[..., 0]) if a.ndim == 1 else expected
    case = f"{a.dtype}{list(a.shape)} @ {b.dtype}{list(b.shape)}{', ' * bool(note)}{note}"
    try:
        assert_exact(subject.call(a, b), expected.astype(dtype))
    except AssertionError as error:
        return Failure(case, str(error))
    except Exception as error:
        return Failure(case, f"raised {type(error).__name__}: {error}")
    return None


def _as_matrices(a: Array, b: Array) -> tuple[Array, Array]:
    return (a[None] if a.ndim == 1 else a), (b[:, None] if b.ndim == 1 else b)


def _shapes(subject: Subject, setting: Setting, shapes: Any) -> Trials:
    for dtype in setting.dtypes:
        rng = setting.rng("shapes", dtype)
        for shape_a, shape_b in shapes:
            a, b = (draw_integers(rng, shape, dtype, k=shape_a[-1], most=MOST) for shape in (shape_a, shape_b))
            yield _against_numpy(subject, a, b, "")


@rule("vectors", "vectors are a row or a column, whose axis is dropped", to=MATMUL_RULES)
def _vectors(subject: Subject, setting: Setting) -> Trials:
    yield from _shapes(subject, setting, _VECTORS)


@rule("stacks", "leading dimensions are stacks of matrices, and broadcast", to=MATMUL_RULES)
def _stacks(subject: Subject, setting: Setting) -> Trials:
    yield from _shapes(subject, setting, _STACKS)


@rule("promotion", "the result has NumPy's promoted dtype", to=MATMUL_RULES)
def _promotion(subject: Subject, setting: Setting) -> Trials:
    rng = setting.rng("promotion")
    for of_a in setting.dtypes:
        for of_b in setting.dtypes:
            a, b = (draw_integers(rng, shape, x, k=3, most=MOST) for shape, x in (((5, 3), of_a), ((3, 4), of_b)))
            yield _against_numpy(subject, a, b, "")


@rule("refused", "scalars, and shapes that numpy.matmul refuses, are an error",
      to=MATMUL_RULES)  # fmt: skip
def _refused(subject: Subject, setting: Setting) -> Trials:
    dtype = setting.dtypes[0]
    for shape_a, shape_b in _REFUSED:
        try:
            got = subject.call(np.ones(shape_a, dtype), np.ones(shape_b, dtype))
        except Exception:
            yield None
        else:
            yield Failure(f"{list(shape_a)} @ {list(shape_b)}", f"expected an error, got an array of shape {got.shape}")
