"""cblas through ctypes: gemm, gemv and strided batches of gemm, for any library that exports them.

Knows: how arrays become cblas arguments. Does not know: where a library lies or which one it is. Called by
``mkl_cblas`` and ``openblas_cblas``.

The arguments are made once: the time of a call is the library's, with about 1 µs of ctypes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from .peer import UnsupportedError

__all__ = ["Cblas"]

_ROW_MAJOR, _COLUMN_MAJOR, _NO_TRANS, _TRANS = 101, 102, 111, 112  # cblas.h
_LETTERS = {"float32": "s", "float64": "d", "complex64": "c", "complex128": "z"}


def _rows(x: np.ndarray) -> int | None:
    """Return the row stride in elements where rows have unit stride, else None."""
    rs, cs = x.strides[-2:]
    m, n = x.shape[-2:]
    if x.itemsize not in (cs, 0) and n > 1:
        return None
    lead = rs // x.itemsize if m > 1 else n
    return lead if rs % x.itemsize == 0 and lead >= n else None


class Cblas:
    """The calls of one library.

    Args:
        library: loaded.
        prefix, suffix: around ``cblas_sgemm`` in its names.
        index: its integer.
    """

    def __init__(self, library: ctypes.CDLL, prefix: str, suffix: str, index: type) -> None:
        self._library, self._prefix, self._suffix, self._index = library, prefix, suffix, index

    def product(self, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> Callable[[], object]:
        """Return a call that does ``c[...] = a @ b``.

        Raises:
            UnsupportedError: strides that cblas has no word for, or batches it can't do.
        """
        if c.dtype.name not in _LETTERS:
            raise UnsupportedError(f"no {c.dtype.name}")
        if a.ndim == 1:
            return self._gemv(b.T, a, c)
        if b.ndim == 1:
            return self._gemv(a, b, c)
        if c.ndim > 3:
            raise UnsupportedError("cblas has no batches of more than one extent")
        return self._gemm(a, b, c)

    def _function(self, name: str, dtype: np.dtype) -> Any:
        full = f"{self._prefix}cblas_{_LETTERS[dtype.name]}{name}{self._suffix}"
        try:
            function = getattr(self._library, full)
        except AttributeError:
            raise UnsupportedError(f"the library has no {full}") from None
        function.restype = None
        return function

    def _factors(self, dtype: np.dtype) -> tuple[list[Any], list[np.ndarray]]:
        one, zero = np.ones(1, dtype), np.zeros(1, dtype)
        if dtype.kind == "c":  # by address
            return [ctypes.c_void_p(x.ctypes.data) for x in (one, zero)], [one, zero]
        real = ctypes.c_float if dtype == np.float32 else ctypes.c_double
        return [real(1), real(0)], []

    def _gemm(self, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> Callable[[], object]:
        (m, k), n = a.shape[-2:], b.shape[-1]
        order, ldc = _ROW_MAJOR, _rows(c)
        if ldc is None:
            order, ldc = _COLUMN_MAJOR, _rows(c.swapaxes(-1, -2))
        if ldc is None:
            raise UnsupportedError("cblas needs rows or columns of C with unit stride")
        flags = []
        for name, x in (("A", a), ("B", b)):
            straight, turned = _rows(x), _rows(x.swapaxes(-1, -2))
            if order == _COLUMN_MAJOR:
                straight, turned = turned, straight
            if straight is not None:
                flags.append((_NO_TRANS, straight))
            elif turned is not None:
                flags.append((_TRANS, turned))
            else:
                raise UnsupportedError(f"cblas needs rows or columns of {name} with unit stride")
        (trans_a, lda), (trans_b, ldb) = flags
        i, p = self._index, ctypes.c_void_p
        (one, zero), alive = self._factors(c.dtype)
        head = [ctypes.c_int(order), ctypes.c_int(trans_a), ctypes.c_int(trans_b), i(m), i(n), i(k), one]
        if c.ndim == 2:
            function = self._function("gemm", c.dtype)
            arguments = [*head, p(a.ctypes.data), i(lda), p(b.ctypes.data), i(ldb), zero, p(c.ctypes.data), i(ldc)]
        else:
            function = self._function("gemm_batch_strided", c.dtype)
            steps = [i(x.strides[0] // x.itemsize if x.ndim == 3 else 0) for x in (a, b, c)]
            arguments = [
                *head, p(a.ctypes.data), i(lda), steps[0], p(b.ctypes.data), i(ldb), steps[1], zero,
                p(c.ctypes.data), i(ldc), steps[2], i(c.shape[0]),
            ]  # fmt: skip
        return _call(function, arguments, [a, b, c, *alive])

    def _gemv(self, a: np.ndarray, x: np.ndarray, y: np.ndarray) -> Callable[[], object]:
        m, k = a.shape
        trans, lda = _NO_TRANS, _rows(a)
        if lda is None:
            trans, lda, m, k = _TRANS, _rows(a.T), k, m
        if lda is None:
            raise UnsupportedError("cblas needs rows or columns of A with unit stride")
        i, p = self._index, ctypes.c_void_p
        (one, zero), alive = self._factors(y.dtype)
        steps = [i(v.strides[0] // v.itemsize) for v in (x, y)]
        arguments = [
            ctypes.c_int(_ROW_MAJOR), ctypes.c_int(trans), i(m), i(k), one, p(a.ctypes.data), i(lda),
            p(x.ctypes.data), steps[0], zero, p(y.ctypes.data), steps[1],
        ]  # fmt: skip
        return _call(self._function("gemv", y.dtype), arguments, [a, x, y, *alive])


def _call(function: Any, arguments: list[Any], alive: list[np.ndarray]) -> Callable[[], object]:
    """Bind the arguments; ``alive`` holds the memory they point to as long as the call exists."""

    def call(alive: object = alive) -> None:
        function(*arguments)

    return call
