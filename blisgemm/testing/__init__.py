"""Tools to test any matrix product, yours too, against what it must be.

``check_gemm(f)`` and ``check_matmul(f)`` run a battery of rules on a function and return a report; ``assert_exact`` and
``assert_within_bound`` judge one result. They need NumPy only. Strategies for Hypothesis, which the extra ``testing``
brings, are in ``blisgemm.testing.strategies``. ``python -m blisgemm.testing numpy:matmul`` runs the battery on a
function by its name.

Knows: the public names. Does not know: any product of this library. Called by tests, the project's own and others'.

Example:
    >>> import numpy as np
    >>> from blisgemm.testing import check_gemm
    >>> def my_gemm(a, b, c=None, *, alpha=1, beta=0):
    ...     return alpha * (a @ b) + (beta * c if c is not None else 0)
    >>> report = check_gemm(my_gemm)
    >>> report.broken
    ('alpha-zero', 'beta-zero')
    >>> print(report["beta-zero"].failures[0])
    1 of 1 elements wrong, the first at (0, 0): expected ..., got nan
    looks like: C was read although beta = 0 (0 * NaN is NaN)
    case: float32, m n k = 1 1 1, alpha = 1, beta = 0, C holds nan
"""

from __future__ import annotations

from .assertions import WorstError, assert_exact, assert_within_bound
from .battery import check_gemm, check_matmul
from .cases import TILES, GemmCase, extents_around
from .layouts import INPUT_LAYOUTS, OUTPUT_LAYOUTS, lay_out, surroundings
from .reference import exact_product
from .report import Failure, Report, RuleResult
from .values import draw_integers, draw_reals, exact_limit, largest_exact, special_numbers

__all__ = [
    "INPUT_LAYOUTS",
    "OUTPUT_LAYOUTS",
    "TILES",
    "Failure",
    "GemmCase",
    "Report",
    "RuleResult",
    "WorstError",
    "assert_exact",
    "assert_within_bound",
    "check_gemm",
    "check_matmul",
    "draw_integers",
    "draw_reals",
    "exact_limit",
    "exact_product",
    "extents_around",
    "largest_exact",
    "lay_out",
    "special_numbers",
    "surroundings",
]
