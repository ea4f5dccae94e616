"""The Numba glue: a kernel is a type, and the two words that compiled loops may call.

Knows: how a KernelSpec passes through Numba, and how ``microkernel`` and ``pack_micro_panel`` are
lowered. Does not know: what the vector code looks like (``emit``, ``packer``). Called by ``loops`` and
``pack``.

The kernel is an argument without bytes: its spec lives in its Numba *type*, so that Numba's
own specialisation compiles one set of loops per kernel. Called from plain Python, the same words
run their NumPy meaning (``reference``), which is how a trace replays the very same loops.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit
from numba.core import cgutils, types
from numba.core.imputils import lower_getattr_generic
from numba.core.typing.templates import AttributeTemplate, infer_getattr
from numba.extending import (
    NativeValue,
    lower_builtin,
    models,
    register_model,
    type_callable,
    typeof_impl,
    unbox,
)
from numba.np import numpy_support

from . import reference
from .emit import Access, emit_microkernel
from .packer import emit_packer
from .spec import KernelSpec
from .vec import I64

__all__ = ["KernelType", "inlined", "microkernel", "pack_micro_panel"]

_INTEGER_FACTS = ("mr", "nr", "planes", "itemsize")


class KernelType(types.Type):
    """The Numba type of one KernelSpec; values carry no bytes."""

    def __init__(self, spec: KernelSpec) -> None:
        self.spec = spec
        super().__init__(name=f"Kernel({spec.name}, unroll={spec.unroll}, kr={spec.kr})")


register_model(KernelType)(models.OpaqueModel)


@typeof_impl.register(KernelSpec)
def _typeof_spec(spec: KernelSpec, context: Any) -> KernelType:
    return KernelType(spec)


@unbox(KernelType)
def _unbox_spec(typ: Any, obj: Any, c: Any) -> NativeValue:
    return NativeValue(c.context.get_dummy_value())


@infer_getattr
class _KernelFacts(AttributeTemplate):
    """``kernel.mr`` and the like are constants in compiled code."""

    key = KernelType

    def generic_resolve(self, typ: Any, attribute: str) -> Any:
        if attribute in ("one", "zero"):
            return numpy_support.from_dtype(np.dtype(typ.spec.acc_dtype))
        return types.intp if attribute in _INTEGER_FACTS else None


@lower_getattr_generic(KernelType)
def _lower_kernel_fact(context: Any, builder: Any, typ: Any, value: Any, attribute: str) -> Any:
    if attribute in ("one", "zero"):
        scalar = numpy_support.from_dtype(np.dtype(typ.spec.acc_dtype))
        return context.get_constant_generic(builder, scalar, getattr(typ.spec, attribute))
    return context.get_constant(types.intp, getattr(typ.spec, attribute))


# Functions that compiled code calls: their text is inlined there, so that one function is compiled per entry
# point (compiling each on its own took three times as long). ``f.py_func`` is the plain Python function.
inlined = njit(nogil=True, inline="always")


# ---- the words -----------------------------------------------------------------------------------


def microkernel(kernel, m_cur, n_cur, kc_cur, alpha, a, b, beta, c, conj):  # type: ignore[no-untyped-def]
    """Update one micro-tile of C by one kc block: ``c := alpha * a b + beta * c``.

    Args:
        kernel: the KernelSpec.
        m_cur, n_cur, kc_cur: extents; at most mr, nr; any.
        alpha, beta: scalars of C's dtype.
        a: a packed micro-panel (1-D, reals), or the rows of A themselves (2-D, any strides).
        b: a packed micro-panel (1-D, reals), or the rows of B themselves (2-D, unit column stride).
        c: 2-D view whose first element is the tile's corner; any strides.
        conj: bit 0 conjugates A, bit 1 conjugates B; no meaning for real types.
    """
    reference.microkernel(kernel, m_cur, n_cur, kc_cur, alpha, a, b, beta, c, conj)


def pack_micro_panel(kernel, width, rows, kc_cur, x, out):  # type: ignore[no-untyped-def]
    """Pack ``rows`` of the ``width`` rows of x, kc_cur columns, into the micro-panel ``out``; pad with zeros.

    ``width`` is the literal ``"mr"`` or ``"nr"``: it is decided when the loops are compiled.
    """
    reference.pack_micro_panel(kernel, width, rows, kc_cur, x, out)


@type_callable(microkernel)
def _type_microkernel(context: Any) -> Any:
    def typer(kernel, m_cur, n_cur, kc_cur, alpha, a, b, beta, c, conj):  # type: ignore[no-untyped-def]
        if isinstance(kernel, KernelType):
            return types.void
        return None

    return typer


@type_callable(pack_micro_panel)
def _type_pack(context: Any) -> Any:
    def typer(kernel, width, rows, kc_cur, x, out):  # type: ignore[no-untyped-def]
        if isinstance(kernel, KernelType) and isinstance(width, types.StringLiteral):
            return types.void
        return None

    return typer


def _array(context: Any, builder: Any, typ: Any, value: Any) -> tuple[Any, list[Any]]:
    """Return the data pointer and the byte strides of an array value."""
    array = context.make_array(typ)(context, builder, value)
    strides = cgutils.unpack_tuple(builder, array.strides, typ.ndim)
    return array.data, strides


def _parts(context: Any, builder: Any, spec: KernelSpec, typ: Any, value: Any) -> list[Any]:
    """Return a scalar, in the kernel's dtype, as (re, im)."""
    scalar = numpy_support.from_dtype(np.dtype(spec.acc_dtype))
    value = context.cast(builder, value, typ, scalar)
    if spec.complex:
        return [builder.extract_value(value, 0), builder.extract_value(value, 1)]
    return [value, ir.Constant(value.type, 0.0)]


@lower_builtin(microkernel, types.VarArg(types.Any))
def _lower_microkernel(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    kernel_t, _, _, _, alpha_t, a_t, b_t, beta_t, c_t, _ = sig.args
    _, m_cur, n_cur, kc_cur, alpha, a, b, beta, c, conj = args
    spec = kernel_t.spec
    access = Access(a_packed=a_t.ndim == 1, b_packed=b_t.ndim == 1)
    function = emit_microkernel(builder.module, spec, access)
    a_data, a_strides = _array(context, builder, a_t, a)
    b_data, b_strides = _array(context, builder, b_t, b)
    c_data, c_strides = _array(context, builder, c_t, c)
    zero = I64(0)
    builder.call(
        function,
        [
            *(_as_i64(builder, extent) for extent in (m_cur, n_cur, kc_cur)),
            a_data, *((zero, zero) if access.a_packed else a_strides),
            b_data, zero if access.b_packed else b_strides[0],
            c_data, *c_strides,
            *_parts(context, builder, spec, alpha_t, alpha), *_parts(context, builder, spec, beta_t, beta),
            _as_i64(builder, conj),
        ],
    )  # fmt: skip
    return context.get_dummy_value()


def _as_i64(builder: Any, value: Any) -> Any:
    return value if value.type == I64 else builder.sext(value, I64)


@lower_builtin(pack_micro_panel, types.VarArg(types.Any))
def _lower_pack(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    kernel_t, width_t, _, _, x_t, out_t = sig.args
    _, _, rows, kc_cur, x, out = args
    spec = kernel_t.spec
    function = emit_packer(builder.module, spec, getattr(spec, width_t.literal_value))
    x_data, x_strides = _array(context, builder, x_t, x)
    out_data, _ = _array(context, builder, out_t, out)
    builder.call(function, [_as_i64(builder, rows), _as_i64(builder, kc_cur), x_data, *x_strides, out_data])
    return context.get_dummy_value()
