"""Digests of a fixed set of products: the bits that every machine must give.

Knows: inputs made from integers alone (no random generator, no libm), and the digests beside
this file. Does not know: pytest. Called by ``test_same_bits`` and by ``emulated/check.py``, whose root has
numpy, numba and the standard library only; kept small because emulation is slow.

    python tests/golden.py            compare, print what differs
    python tests/golden.py --update   write golden.json anew (a change of bits: say why in CHANGELOG)
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["FILE", "Case", "cases", "digest", "digests", "load", "numbers"]

FILE = Path(__file__).with_suffix(".json")
DTYPES = ("float32", "float64", "complex64", "complex128")
LONG = 1285  # p: two whole kc blocks and a bit for every kc that the library may choose (at most 640)

# m, n, k, trans_a, trans_b, alpha, beta. Edges of every tile, one and several kc blocks, all four
# trans, alpha and beta that round. Complex types take the imaginary parts, real types leave them out.
SHAPES: tuple[tuple[int, int, int, Any, Any, complex, complex], ...] = (
    (5, 7, 3, False, False, 1, 0),
    (1, 45, 257, "T", "R", 1, 0),
    (37, 29, LONG, False, "C", 0.7, 1.3),
    (50, 67, 131, "R", "T", -0.3 + 0.6j, 1),
    (61, 1, LONG, "C", False, 1.1, -0.9 + 0.2j),
)

Case = tuple[str, np.ndarray, np.ndarray, "np.ndarray | None", dict[str, Any]]


def splitmix(index: np.ndarray) -> np.ndarray:
    """Hash integers to 64 bits. Source: Steele, Lea and Flood, OOPSLA 2014 (SplitMix64)."""
    with np.errstate(over="ignore"):
        z = (index.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def numbers(shape: tuple[int, int], dtype: str, stream: int) -> np.ndarray:
    """Return numbers in [-1, 1) with all the bits that ``dtype`` holds, each exact."""
    count = shape[0] * shape[1]

    def reals(part: int) -> np.ndarray:
        word = splitmix(np.arange(count) + ((2 * stream + part) << 32))
        if dtype in ("float32", "complex64"):
            return ((word >> np.uint64(39)).astype(np.int64) - 2**24).astype(np.float32) / np.float32(2**24)
        return ((word >> np.uint64(10)).astype(np.int64) - 2**53).astype(np.float64) / 2.0**53

    values = np.empty(count, dtype)
    if values.dtype.kind == "c":
        values.real, values.imag = reals(0), reals(1)
    else:
        values[...] = reals(0)
    return values.reshape(shape)


def cases() -> Iterator[Case]:
    """Yield (name, a, b, c, keywords of gemm)."""
    stream = 0
    for dtype in DTYPES:
        for m, n, k, trans_a, trans_b, alpha, beta in SHAPES:
            stream += 3
            a = numbers((k, m) if trans_a in ("T", "C") else (m, k), dtype, stream)
            b = numbers((n, k) if trans_b in ("T", "C") else (k, n), dtype, stream + 1)
            c = numbers((m, n), dtype, stream + 2) if beta else None
            if not dtype.startswith("complex"):
                alpha, beta = complex(alpha).real, complex(beta).real
            name = f"{dtype} {m}x{n}x{k} {trans_a or 'N'}{trans_b or 'N'} alpha={alpha} beta={beta}"
            yield name, a, b, c, {"alpha": alpha, "beta": beta, "trans_a": trans_a, "trans_b": trans_b}


def digest(x: np.ndarray) -> str:
    """Return SHA-256 of the elements in C order, little endian."""
    return hashlib.sha256(np.ascontiguousarray(x, x.dtype.newbyteorder("<")).tobytes()).hexdigest()


def digests(dtypes: Collection[str] = DTYPES) -> dict[str, str]:
    """Compute every product of these dtypes here and now."""
    from blisgemm import gemm

    return {name: digest(gemm(a, b, c, **keywords)) for name, a, b, c, keywords in cases() if name.split()[0] in dtypes}


def load(dtypes: Collection[str] = DTYPES) -> dict[str, str]:
    """Return the digests of these dtypes that are pinned."""
    pinned: dict[str, str] = json.loads(FILE.read_text())
    return {name: value for name, value in pinned.items() if name.split()[0] in dtypes}


def main() -> int:
    """Compare or update; return the exit status."""
    got = digests()
    if sys.argv[1:] == ["--update"]:
        FILE.write_text(json.dumps(got, indent=1) + "\n")
        return 0
    want = load() if FILE.exists() else {}
    wrong = sorted(name for name in want.keys() | got.keys() if want.get(name) != got.get(name))
    for name in wrong:
        print(f"{name}: expected {want.get(name)}, got {got.get(name)}")
    return bool(wrong)


if __name__ == "__main__":
    sys.path.insert(0, str(FILE.parents[1]))
    sys.exit(main())
