"""Two small kernels for any strides: a copy, and ``c := beta * c``.

Knows: one element a thread, in tiles of 32 x 8 so that either axis may be the contiguous one. Does not know: products.
Called by ``compile``.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import cuda

from ..ptx import GLOBAL, intrinsic_of, load, of_type, store, types

__all__ = ["copy_of_items", "scale_of"]

i32, i64 = types.int32, types.int64


def copy_of_items(item_bytes: int) -> tuple[Any, Any]:
    """Return the kernel (target, its 3 strides, source, its 3 strides, rows, columns) and its signature.

    Strides in bytes: of items (blockIdx.z), rows and columns.
    """
    word, count = (ir.IntType(8 * item_bytes), 1) if item_bytes <= 8 else (ir.IntType(64), 2)

    def emit(b: ir.IRBuilder, args: list[ir.Value]) -> None:
        for half in range(count):  # an element of 16 bytes may be aligned to no more than 8
            target, source = (b.add(address, ir.Constant(address.type, 8 * half)) for address in args)
            store(b, load(b, source, word, 1, GLOBAL), target, GLOBAL)

    move = intrinsic_of("move", (i64, i64), emit)

    def kernel(target, t0, t1, t2, source, s0, s1, s2, rows, columns):  # type: ignore[no-untyped-def]
        item = i64(cuda.blockIdx.z)
        i = i32(cuda.blockIdx.y * 8 + (cuda.threadIdx.x >> 5))
        j = i32(cuda.blockIdx.x * 32 + (cuda.threadIdx.x & 31))
        while i < rows:
            if j < columns:
                move(target + item * t0 + i * t1 + j * t2, source + item * s0 + i * s1 + j * s2)
            i = i32(i + cuda.gridDim.y * 8)

    return kernel, types.void(*(i64,) * 8, i32, i32)


def scale_of(dtype: str) -> tuple[Any, Any]:
    """Return the kernel (c, its 3 strides, rows, columns, beta_re, beta_im) and its signature; 0 doesn't read c."""
    planes = 2 if dtype.startswith("complex") else 1
    real_numba, real = of_type("float32" if dtype in ("float32", "complex64") else "float64")
    size = 4 if dtype in ("float32", "complex64") else 8

    def emit(b: ir.IRBuilder, args: list[ir.Value]) -> None:
        address, beta = args[0], args[1:3]
        places = [b.add(address, ir.Constant(address.type, plane * size)) for plane in range(planes)]
        zero = ir.Constant(real, 0.0)
        nothing = b.fcmp_ordered("==", beta[0], zero)
        if planes == 2:
            nothing = b.and_(nothing, b.fcmp_ordered("==", beta[1], zero))
        with b.if_else(nothing) as (clear, scale):
            with clear:
                for place in places:
                    store(b, [zero], place, GLOBAL)
            with scale:
                old = [load(b, place, real, 1, GLOBAL)[0] for place in places]
                if planes == 1:
                    new = [b.fmul(beta[0], old[0])]
                else:
                    new = [
                        b.fsub(b.fmul(beta[0], old[0]), b.fmul(beta[1], old[1])),
                        b.fadd(b.fmul(beta[0], old[1]), b.fmul(beta[1], old[0])),
                    ]
                for place, value in zip(places, new, strict=True):
                    store(b, [value], place, GLOBAL)

    scale = intrinsic_of("scale", (i64, real_numba, real_numba), emit)

    def kernel(c, s0, s1, s2, rows, columns, beta_re, beta_im):  # type: ignore[no-untyped-def]
        item = i64(cuda.blockIdx.z)
        i = i32(cuda.blockIdx.y * 8 + (cuda.threadIdx.x >> 5))
        j = i32(cuda.blockIdx.x * 32 + (cuda.threadIdx.x & 31))
        while i < rows:
            if j < columns:
                scale(c + item * s0 + i * s1 + j * s2, beta_re, beta_im)
            i = i32(i + cuda.gridDim.y * 8)

    return kernel, types.void(*(i64,) * 4, i32, i32, real_numba, real_numba)
