"""NumPy arrays opened by compiled code without Numba's boxing: the low-overhead entry.

Knows: where a PyArrayObject keeps its fields. Does not know: GEMM. Called by ``entry`` only.

Numba's own unboxing of an array takes a reference and allocates a descriptor each call; for a
4 x 4 product that costs more than the product. Here the object pointer itself is the argument, and
compiled code reads the fields. The caller of the compiled function holds the references.

Layout: ``PyArrayObject_fields`` of NumPy's C API (ndarraytypes.h), unchanged since NumPy 1.7 and part
of NumPy 2's stable ABI: data, nd, dimensions, strides, base, descr, flags after the object header.
``layout_is_as_expected`` checks it against the running NumPy before anyone relies on it.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import NativeValue, intrinsic, models, register_model, unbox
from numba.np import numpy_support
from numba.np.arrayobj import populate_array

from .vec import I1, I32, I64, PTR, at

__all__ = [
    "PyObject", "address", "layout_is_as_expected", "ndim_of", "open_integers", "open_matrix", "open_stack", "permuted",
    "plain_ndim", "repeated",
]  # fmt: skip

_HEADER = object.__basicsize__
_TYPE, _DATA, _ND, _DIMS, _STRIDES, _DESCR, _FLAGS = -8, 0, 8, 16, 24, 40, 48  # bytes after the header
_WRITEABLE = 0x0400  # NPY_ARRAY_WRITEABLE


class _PyObjectType(types.Type):
    def __init__(self) -> None:
        super().__init__(name="BlisgemmPyObject")


PyObject = _PyObjectType()
register_model(_PyObjectType)(models.OpaqueModel)


@unbox(_PyObjectType)
def _unbox_object(typ: Any, obj: Any, c: Any) -> NativeValue:
    return NativeValue(obj)


def _field(builder: ir.IRBuilder, obj: ir.Value, offset: int, typ: ir.Type) -> ir.Value:
    return builder.load(at(builder, obj, _HEADER + offset), typ=typ)


@intrinsic
def plain_ndim(typing_context, obj, ndarray_type, descr, writeable):  # type: ignore[no-untyped-def]
    """Return the number of dimensions if ``obj`` is exactly an ndarray with that dtype object, else -1.

    ``writeable``: also -1 unless it may be written.
    """
    if ndarray_type is not PyObject or obj is not PyObject or descr is not PyObject:
        return None

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        obj, ndarray_type, descr, writeable = args
        is_array = builder.icmp_unsigned("==", _field(builder, obj, _TYPE, PTR), ndarray_type)
        result = builder.alloca(I64)
        builder.store(I64(-1), result)
        with builder.if_then(is_array):  # the other fields exist only then
            same_dtype = builder.icmp_unsigned("==", _field(builder, obj, _DESCR, PTR), descr)
            flags = builder.and_(_field(builder, obj, _FLAGS, I32), I32(_WRITEABLE))
            may_write = builder.or_(builder.icmp_signed("!=", flags, I32(0)), builder.not_(_as_bit(builder, writeable)))
            ndim = builder.sext(_field(builder, obj, _ND, I32), I64)
            builder.store(builder.select(builder.and_(same_dtype, may_write), ndim, I64(-1)), result)
        return builder.load(result)

    return types.intp(obj, ndarray_type, descr, types.boolean), codegen


@intrinsic
def ndim_of(typing_context, obj):  # type: ignore[no-untyped-def]
    """Return the number of dimensions of an ndarray object."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.sext(_field(builder, args[0], _ND, I32), I64)

    return types.intp(obj), codegen


def _as_bit(builder: Any, value: Any) -> Any:
    return value if value.type == I1 else builder.trunc(value, I1)


def _open(kernel, obj, ndim):  # type: ignore[no-untyped-def]
    """Return (signature, codegen) that views an ndarray object of the kernel's dtype as a Numba array.

    It may have fewer dimensions than that: those that it lacks come first and are 1 long.
    """
    dtype = numpy_support.from_dtype(np.dtype(kernel.spec.acc_dtype))
    array_type = types.Array(dtype, ndim, "A")

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        obj = args[1]
        array = context.make_array(array_type)(context, builder)
        dims, strides = _field(builder, obj, _DIMS, PTR), _field(builder, obj, _STRIDES, PTR)

        present = builder.sext(_field(builder, obj, _ND, I32), I64)

        def values(base: ir.Value, missing: int) -> list[ir.Value]:
            absent = builder.alloca(I64)
            builder.store(I64(missing), absent)
            places = []
            for axis in range(ndim):
                index = builder.sub(present, I64(ndim - axis))
                place = builder.gep(base, [index], source_etype=I64)
                places.append(builder.select(builder.icmp_signed("<", index, I64(0)), absent, place))
            return [builder.load(place, typ=I64) for place in places]

        populate_array(
            array,
            data=builder.bitcast(_field(builder, obj, _DATA, PTR), context.get_data_type(dtype).as_pointer()),
            shape=values(dims, 1),
            strides=values(strides, 0),
            itemsize=context.get_constant(types.intp, kernel.spec.itemsize),
            meminfo=None,
        )
        return array._getvalue()

    return array_type(kernel, obj), codegen


@intrinsic
def open_matrix(typing_context, kernel, obj):  # type: ignore[no-untyped-def]
    """View an ndarray object of the kernel's dtype, of at most 2 dimensions, as a 2-D Numba array.

    A vector is one row, a scalar 1 x 1. Takes no reference.
    """
    return _open(kernel, obj, 2)


@intrinsic
def open_stack(typing_context, kernel, obj):  # type: ignore[no-untyped-def]
    """View an ndarray object of at most 3 dimensions, a batch of matrices, likewise."""
    return _open(kernel, obj, 3)


@intrinsic
def open_integers(typing_context, obj):  # type: ignore[no-untyped-def]
    """View an ndarray object of int64, one contiguous dimension, as a Numba array; takes no reference."""
    array_type = types.Array(types.intp, 1, "C")

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array = context.make_array(array_type)(context, builder)
        size = builder.load(_field(builder, args[0], _DIMS, PTR), typ=I64)
        data = builder.bitcast(_field(builder, args[0], _DATA, PTR), I64.as_pointer())
        populate_array(array, data=data, shape=[size], strides=[I64(8)], itemsize=I64(8), meminfo=None)
        return array._getvalue()

    return array_type(obj), codegen


@intrinsic(prefer_literal=True)
def permuted(typing_context, array, first, second, third):  # type: ignore[no-untyped-def]
    """View a 3-D array as ``array.transpose(first, second, third)`` does, with literal axes.

    Numba's own transpose can raise, and brings all that the text of its error takes: 4 s to compile.
    """
    axes = [axis.literal_value for axis in (first, second, third)]
    result = types.Array(array.dtype, 3, "A")

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        given = context.make_array(signature.args[0])(context, builder, args[0])
        shape, strides = (cgutils.unpack_tuple(builder, field, 3) for field in (given.shape, given.strides))
        view = context.make_array(result)(context, builder)
        populate_array(
            view,
            data=given.data,
            shape=[shape[axis] for axis in axes],
            strides=[strides[axis] for axis in axes],
            itemsize=given.itemsize,
            meminfo=None,
        )
        return view._getvalue()

    return result(array, first, second, third), codegen


@intrinsic
def repeated(typing_context, array, items):  # type: ignore[no-untyped-def]
    """View a 3-D array of one item as ``items`` of it, at a stride of zero; one of more items as it is."""
    result = types.Array(array.dtype, 3, "A")

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        given = context.make_array(signature.args[0])(context, builder, args[0])
        shape, strides = (cgutils.unpack_tuple(builder, field, 3) for field in (given.shape, given.strides))
        single = builder.icmp_signed("==", shape[0], I64(1))
        view = context.make_array(result)(context, builder)
        populate_array(
            view,
            data=given.data,
            shape=[builder.select(single, args[1], shape[0]), *shape[1:]],
            strides=[builder.select(single, I64(0), strides[0]), *strides[1:]],
            itemsize=given.itemsize,
            meminfo=None,
        )
        return view._getvalue()

    return result(array, types.intp), codegen


@intrinsic
def address(typing_context, array):  # type: ignore[no-untyped-def]
    """Return the address of an array's first element as an integer."""
    if not isinstance(array, types.Array):
        return None

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        return builder.ptrtoint(data, I64)

    return types.intp(array), codegen


def layout_is_as_expected() -> bool:
    """Check the field offsets against the running interpreter and NumPy (a few microseconds)."""
    probe = np.arange(6.0).reshape(2, 3)[:, ::2]
    base = id(probe) + _HEADER

    def word(offset: int) -> int:
        return ctypes.c_int64.from_address(base + offset).value

    def half(offset: int) -> int:
        return ctypes.c_int32.from_address(base + offset).value

    return (
        ctypes.sizeof(ctypes.c_void_p) == 8
        and word(_TYPE) == id(np.ndarray)
        and word(_DATA) == probe.__array_interface__["data"][0]
        and half(_ND) == 2
        and word(_DESCR) == id(probe.dtype)
        and bool(half(_FLAGS) & _WRITEABLE)
        # only now are the pointers known to be pointers
        and [ctypes.c_int64.from_address(word(_DIMS) + 8 * axis).value for axis in range(2)] == [2, 2]
        and [ctypes.c_int64.from_address(word(_STRIDES) + 8 * axis).value for axis in range(2)] == [24, 16]
    )
