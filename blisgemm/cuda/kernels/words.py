"""The named steps of an epilogue, as the Python functions that are compiled into a kernel.

Knows: what each word does to an element. Does not know: where elements are, or who asks. Called by ``finish``.

Each is ``f(x, item, i, j, *arguments)`` for the element x in row i and column j of item ``item`` of a batch.

Source: Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016 (gelu, and its form by tanh); Elfwing et al., 2017
(silu).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["function_of"]


def function_of(word: str, reals: str) -> Callable[..., Any]:
    """Return the function of a word, for sums of ``float32`` or ``float64``: its constants have that type."""
    kind = np.float32 if reals == "float32" else np.float64
    zero, half, one = kind(0), kind(0.5), kind(1)
    by_root_2, by_root_pi, cubic = kind(math.sqrt(0.5)), kind(math.sqrt(2 / math.pi)), kind(0.044715)

    def relu(x, item, i, j):  # type: ignore[no-untyped-def]
        return x if x > zero or x != x else zero  # NaN stays NaN

    def gelu(x, item, i, j):  # type: ignore[no-untyped-def]
        return half * x * (one + math.erf(x * by_root_2))

    def gelu_tanh(x, item, i, j):  # type: ignore[no-untyped-def]
        return half * x * (one + math.tanh(by_root_pi * (x + cubic * x * x * x)))

    def silu(x, item, i, j):  # type: ignore[no-untyped-def]
        return x / (one + math.exp(-x))

    def clamp(x, item, i, j, low, high):  # type: ignore[no-untyped-def]
        return low if x < low else high if x > high else x

    def scale(x, item, i, j, factor):  # type: ignore[no-untyped-def]
        return x * factor

    def scale_rows(x, item, i, j, factors):  # type: ignore[no-untyped-def]
        return x * factors[i]

    def scale_columns(x, item, i, j, factors):  # type: ignore[no-untyped-def]
        return x * factors[j]

    def bias_rows(x, item, i, j, bias):  # type: ignore[no-untyped-def]
        return x + bias[i]

    def bias_columns(x, item, i, j, bias):  # type: ignore[no-untyped-def]
        return x + bias[j]

    def add(x, item, i, j, other):  # type: ignore[no-untyped-def]
        return x + other[i, j]

    def add_items(x, item, i, j, other):  # type: ignore[no-untyped-def]
        return x + other[item, i, j]

    words = (
        relu, gelu, gelu_tanh, silu, clamp, scale, scale_rows, scale_columns, bias_rows, bias_columns, add, add_items,
    )  # fmt: skip
    return {word.__name__: word for word in words}[word]
