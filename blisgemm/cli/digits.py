"""Handwritten digits told apart by their nearest neighbours: every distance from one product.

Knows: the data, the formula, how an image is drawn. Does not know: how a product is computed. Called
by ``demo``.

|x - y|^2 = |x|^2 - 2 x·y + |y|^2, so with the sums of squares in C, one call gives all distances. The pixels
are integers of 0 to 16: every distance is an integer below 2^24, hence exact in float32, and must be
equal to what 64-bit integers give, whatever the order of the sums.

Source of the data: scikit-learn's ``load_digits``, the test set of E. Alpaydin and C. Kaynak, Optical
Recognition of Handwritten Digits, UCI Machine Learning Repository, 1998.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from .console import CommandError

__all__ = ["NEIGHBOURS", "check", "classify", "draw", "explain", "load", "pick"]

Array = np.ndarray[Any, Any]

NEIGHBOURS = 3
REPEATS = 10
_SHADES, _PLAIN_SHADES = " ░▒▓█", " .:*#"


@dataclass(frozen=True)
class Data:
    """Images as rows of 64 float32 pixels, and the digits they show."""

    train: Array
    train_labels: Array
    test: Array
    test_labels: Array


@dataclass(frozen=True)
class Result:
    """Distances of every test image to every training image, the nearest ones, the vote; seconds."""

    distances: Array
    nearest: Array
    labels: Array
    first_seconds: float
    seconds: float


def load() -> Data:
    """Return the images, a third of them (drawn with a fixed seed) to test with.

    Raises:
        CommandError: scikit-learn, which carries them, is missing.
    """
    try:
        from sklearn.datasets import load_digits  # type: ignore[import-untyped, unused-ignore]
    except ImportError:
        raise CommandError("the digits come with scikit-learn: pip install 'blisgemm[demo]'") from None
    pixels, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    images = np.ascontiguousarray(pixels[order], np.float32)
    labels = labels[order]
    tests = len(labels) // 3
    return Data(images[tests:], labels[tests:], images[:tests], labels[:tests])


def classify(data: Data) -> Result:
    """Compute all distances by one call, and let the nearest neighbours vote (ties: the smaller digit)."""
    from .. import gemm

    x, y = data.test, data.train
    c = (x * x).sum(1)[:, None] + (y * y).sum(1)[None, :]
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        distances = gemm(x, y, c, alpha=-2, beta=1, trans_b=True)
        times.append(time.perf_counter() - start)
    nearest = np.argsort(distances, axis=1, kind="stable")[:, :NEIGHBOURS]
    votes = data.train_labels[nearest]
    labels = np.array([np.bincount(row, minlength=10).argmax() for row in votes])
    return Result(distances, nearest, labels, times[0], statistics.median(times[1:]))


def explain(data: Data) -> str:
    """Return the plan of the product that ``classify`` makes."""
    from .. import explain as explain_product

    x, y = data.test, data.train
    return explain_product(x, y, np.empty((len(x), len(y)), np.float32), alpha=-2, beta=1, trans_b=True)


def check(data: Data, result: Result) -> list[tuple[bool, str]]:
    """Compare with integers and with NumPy, exactly; then real numbers with the bound."""
    from .. import gemm

    x, y = data.test, data.train
    xi, yi = x.astype(np.int64), y.astype(np.int64)
    squares = (xi * xi).sum(1)[:, None] - 2 * (xi @ yi.T) + (yi * yi).sum(1)[None, :]
    exact = bool(np.array_equal(result.distances, squares))
    equal = bool(np.array_equal(gemm(x, y, trans_b=True), x @ y.T))
    scaled_x, scaled_y = ((images - y.mean(0)) / np.float32(y.std()) for images in (x, y))
    ours, numpys = gemm(scaled_x, scaled_y, trans_b=True), scaled_x @ scaled_y.T
    share, numpys_share = (_share_of_bound(scaled_x, scaled_y.T, product) for product in (ours, numpys))
    return [
        (exact, f"all {squares.size:,} distances equal those of 64-bit integers"),
        (equal, "X Yᵀ equals NumPy's X @ Y.T, element by element"),
        (
            share <= 1,
            f"scaled to reals: error at most {share:.1%} of the bound (NumPy: {numpys_share:.1%})",
        ),
    ]


def _share_of_bound(a: Array, b: Array, product: Array) -> float:
    """Return the largest error as a part of (k + 2) u |a| |b| (Higham, Accuracy and Stability, ch. 3)."""
    a64, b64 = a.astype(np.float64), b.astype(np.float64)
    unit_roundoff = np.finfo(product.dtype).eps / 2
    bound = (a.shape[1] + 2) * unit_roundoff * (np.abs(a64) @ np.abs(b64))
    error = np.abs(product - a64 @ b64)
    return float((error / np.where(bound == 0, 1, bound)).max())


def pick(data: Data, result: Result) -> list[int]:
    """Return two test images: the one with the nearest neighbour, and the first that was mistaken."""
    mistaken = np.flatnonzero(result.labels != data.test_labels)
    typical = int(result.distances.min(1).argmin())
    return [typical, int(mistaken[0]) if len(mistaken) else (typical + 1) % len(result.labels)]


def draw(data: Data, result: Result, index: int, *, blocks: bool) -> str:
    """Return a test image and its nearest neighbours side by side, 74 columns wide."""
    shades = _SHADES if blocks else _PLAIN_SHADES
    images = [data.test[index], *data.train[result.nearest[index]]]
    seen = int(result.labels[index])
    truth = int(data.test_labels[index])
    verdict = f"seen as {seen}" + ("" if seen == truth else f", is {truth}")
    labels = [verdict] + [
        f"a {data.train_labels[j]}, at {np.sqrt(result.distances[index, j]):.1f}" for j in result.nearest[index]
    ]
    rows = ["   ".join(f"{label:<16}" for label in labels).rstrip()]
    for r in range(8):
        strips = []
        for image in images:
            levels = np.rint(image.reshape(8, 8)[r] / 16 * (len(shades) - 1)).astype(int)
            strips.append("".join(shades[level] * 2 for level in levels))
        rows.append("   ".join(strips).rstrip())
    return "\n".join(rows)
