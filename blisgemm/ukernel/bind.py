"""The Numba glue: a kernel is a type, and the words that compiled loops may call.

Knows: how a KernelSpec passes through Numba, and how ``microkernel`` and its kin, ``sweep`` and
``pack_micro_panels`` are lowered. Does not know: what the vector code looks like (``emit``, ``sweep``, ``packer``).
Called by ``loops``, ``pack`` and ``entry``.

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
from .sweep import emit_sweep
from .vec import I64, at

__all__ = [
    "KernelType", "inlined", "microkernel", "microkernel_items", "microkernel_of", "microkernel_part",
    "microkernel_strip", "pack_micro_panels", "sweep",
]  # fmt: skip

_INTEGER_FACTS = ("mr", "nr", "planes", "itemsize", "lanes", "chains", "sums", "sweep_rows")


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


def microkernel(kernel, access, m_cur, n_cur, kc_cur, alpha, a, b, beta, c, conj):  # type: ignore[no-untyped-def]
    """Update one micro-tile of C by one kc block: ``c := alpha * a b + beta * c``.

    Args:
        kernel: the KernelSpec.
        access: the literal ``"packed"``, ``"half"`` (b packed, a as it lies), ``"rows"`` or ``"columns"`` (how b lies).
        m_cur, n_cur, kc_cur: extents, at least 1; at most mr, nr; any.
        alpha, beta: scalars of C's dtype.
        a: a packed micro-panel (1-D, reals), or the rows of A themselves (2-D, any strides; ``half``: unit column
            stride).
        b: a packed micro-panel (1-D, reals), or B itself (2-D) with unit column stride (``rows``) or unit row stride
            (``columns``); then a is 2-D too.
        c: 2-D view whose first element is the tile's corner; any strides.
        conj: bit 0 conjugates A, bit 1 conjugates B; no meaning for real types.
    """
    reference.microkernel(kernel, m_cur, n_cur, kc_cur, alpha, a, b, beta, c, conj)


def microkernel_of(  # type: ignore[no-untyped-def]
    kernel, access, m_cur, n_cur, kc_cur, alpha, a, a_pack, ir, b, beta, c, conj
):
    """Update one micro-tile of C likewise, by the rows of a panel of A from ``ir`` on, a multiple of mr.

    Args: as ``microkernel``'s, with access ``"packed"`` or ``"half"``, and
        a: the panel as it lies (2-D); ``half``: unit column stride, and this is read.
        a_pack: its micro-panels (2-D, one a row); ``packed``: these are read.
    """
    micro_panel = a[ir:] if access == "half" else a_pack[ir // kernel.mr]
    reference.microkernel(kernel, m_cur, n_cur, kc_cur, alpha, micro_panel, b, beta, c, conj)


def microkernel_part(  # type: ignore[no-untyped-def]
    kernel, m_cur, n_cur, p_cur, alpha, a, b, beta, c, conj, sums, last
):
    """Do p_cur steps of a kc block of one micro-tile: sums += a b; with ``last``, ``c := alpha * sums + beta * c``.

    Args: as ``microkernel``'s; a and b are matrices, b with unit column stride, and
        sums: mr * nr * chains reals, 16-byte aligned; zeros before the first part. What they hold is the kernel's own
            order.
        last: whether the kc block ends here.
    """
    reference.microkernel_part(kernel, m_cur, n_cur, p_cur, alpha, a, b, beta, c, conj, sums, last)


def microkernel_strip(  # type: ignore[no-untyped-def]
    kernel, m_cur, n_cur, p_cur, alpha, a, b, beta, c, conj, sums, last, ahead, rows_ahead
):
    """Do the same with micro-panels (1-D), and ask meanwhile for what a later call needs.

    Args: as ``microkernel_part``'s, and
        ahead, rows_ahead: a matrix (2-D), the first nr columns of whose first so many rows are asked for; they need not
            exist. At most p_cur rows.
    """
    reference.microkernel_part(kernel, m_cur, n_cur, p_cur, alpha, a, b, beta, c, conj, sums, last)


def microkernel_items(  # type: ignore[no-untyped-def]
    kernel, m_cur, n_cur, kc_cur, alpha, a, b, c, conj, first, items, ir, jr, group, turns, turn, steps
):
    """Compute ``c := alpha * a b`` for one micro-tile of each of ``items`` products of one shape.

    Args: as ``microkernel``'s with access ``"rows"``; a, b and c are whole batches, with one more axis in front; alpha
        is real, c has unit column stride, kc_cur is the whole sum, and
        first, items: the first of them and how many.
        ir, jr: the tile's first row and column.
        group, turns, turn, steps: every item asks ``turns`` times for bytes of a, b and c, of that ``group`` items
            later, each time ``steps`` bytes further, beginning with time number ``turn``.
    """
    for item in range(first, first + items):
        reference.microkernel(
            kernel, m_cur, n_cur, kc_cur, alpha, a[item, ir:], b[item, :, jr:], 0, c[item, ir:, jr:], conj
        )


def sweep(kernel, m_cur, n_cur, p_cur, alpha, a, b, beta, c, conj, sums, last):  # type: ignore[no-untyped-def]
    """Do p_cur steps of a kc block of a few rows of C: sums += a b; with ``last``, ``c := alpha * sums + beta * c``.

    Args:
        m_cur, n_cur, p_cur: rows, columns and steps, at least 1; m_cur at most ``kernel.sweep_rows``, SWEEP_STEPS
            (``spec``) steps at once are fast.
        a, b, c: 2-D views whose first elements are those of the first row of A, of B and of the first row of C; b has
            unit column stride.
        sums: for each row n_cur columns (rounded up to whole vectors) times chains reals, 16-byte aligned; zeros
            before the first part. What they hold is the kernel's own order.
        Others: as ``microkernel_part``.
    """
    for i in range(m_cur):
        reference.microkernel_part(kernel, 1, n_cur, p_cur, alpha, a[i:], b, beta, c[i:], conj, sums[i], last)


def pack_micro_panels(kernel, width, x, out):  # type: ignore[no-untyped-def]
    """Pack the rows of x into the micro-panels of ``out``, one per ``width`` rows; missing rows are zeros.

    Args:
        kernel: the KernelSpec.
        width: the literal ``"mr"`` or ``"nr"``: it is decided when the loops are compiled.
        x: 2-D, any strides: rows by p.
        out: (panels, reals) buffer.
    """
    reference.pack_micro_panels(kernel, width, x, out)


@type_callable(microkernel)
def _type_microkernel(context: Any) -> Any:
    def typer(kernel, access, m_cur, n_cur, kc_cur, alpha, a, b, beta, c, conj):  # type: ignore[no-untyped-def]
        if isinstance(kernel, KernelType) and isinstance(access, types.StringLiteral):
            return types.void
        return None

    return typer


@type_callable(microkernel_part)
def _type_microkernel_part(context: Any) -> Any:
    def typer(  # type: ignore[no-untyped-def]
        kernel, m_cur, n_cur, p_cur, alpha, a, b, beta, c, conj, sums, last
    ):
        return types.void if isinstance(kernel, KernelType) else None

    return typer


@type_callable(microkernel_strip)
def _type_microkernel_strip(context: Any) -> Any:
    def typer(  # type: ignore[no-untyped-def]
        kernel, m_cur, n_cur, p_cur, alpha, a, b, beta, c, conj, sums, last, ahead, rows_ahead
    ):
        return types.void if isinstance(kernel, KernelType) else None

    return typer


@type_callable(pack_micro_panels)
def _type_pack(context: Any) -> Any:
    def typer(kernel, width, x, out):  # type: ignore[no-untyped-def]
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
    kernel_t, access_t, *types_ = sig.args
    a_t, b_t = types_[4], types_[5]
    access = Access(access_t.literal_value)
    if (a_t.ndim, b_t.ndim) != {Access.PACKED: (1, 1), Access.HALF: (2, 1)}.get(access, (2, 2)):
        raise TypeError(f"access: expected one that fits a, b of {a_t.ndim}, {b_t.ndim} dimensions; got {access}")
    _call_microkernel(context, builder, kernel_t.spec, access, types_, args[2:])
    return context.get_dummy_value()


@type_callable(microkernel_of)
def _type_microkernel_of(context: Any) -> Any:
    def typer(  # type: ignore[no-untyped-def]
        kernel, access, m_cur, n_cur, kc_cur, alpha, a, a_pack, ir, b, beta, c, conj
    ):
        if isinstance(kernel, KernelType) and isinstance(access, types.StringLiteral):
            return types.void
        return None

    return typer


@lower_builtin(microkernel_of, types.VarArg(types.Any))
def _lower_microkernel_of(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    kernel_t, access_t, *extents_t, alpha_t, a_t, a_pack_t, _, b_t, beta_t, c_t, conj_t = sig.args
    *extents, alpha, a, a_pack, ir_value, b, beta, c, conj = args[2:]
    spec, access = kernel_t.spec, Access(access_t.literal_value)
    from_t, source = (a_t, a) if access is Access.HALF else (a_pack_t, a_pack)
    data, strides = _array(context, builder, from_t, source)
    row = _as_i64(builder, ir_value)
    if access is not Access.HALF:
        row = builder.sdiv(row, I64(spec.mr))
    here = at(builder, data, builder.mul(row, strides[0]))
    types_ = (*extents_t, alpha_t, from_t, b_t, beta_t, c_t, conj_t)
    values = (*extents, alpha, source, b, beta, c, conj)
    _call_microkernel(context, builder, spec, access, types_, values, a_data=here)
    return context.get_dummy_value()


@lower_builtin(microkernel_part, types.VarArg(types.Any))
def _lower_microkernel_part(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    kernel_t, *types_ = sig.args
    sums, _ = _array(context, builder, types_[9], args[10])
    extra = [sums, _as_i64(builder, args[11])]
    _call_microkernel(context, builder, kernel_t.spec, Access.PARTS, types_[:9], args[1:10], extra)
    return context.get_dummy_value()


@lower_builtin(microkernel_strip, types.VarArg(types.Any))
def _lower_microkernel_strip(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    kernel_t, *types_ = sig.args
    sums, _ = _array(context, builder, types_[9], args[10])
    ahead, ahead_strides = _array(context, builder, types_[11], args[12])
    extra = [sums, _as_i64(builder, args[11]), ahead, ahead_strides[0], _as_i64(builder, args[13])]
    _call_microkernel(context, builder, kernel_t.spec, Access.STRIP, types_[:9], args[1:10], extra)
    return context.get_dummy_value()


@type_callable(microkernel_items)
def _type_microkernel_items(context: Any) -> Any:
    def typer(  # type: ignore[no-untyped-def]
        kernel, m_cur, n_cur, kc_cur, alpha, a, b, c, conj, first, items, ir, jr, group, turns, turn, steps
    ):
        return types.void if isinstance(kernel, KernelType) else None

    return typer


@lower_builtin(microkernel_items, types.VarArg(types.Any))
def _lower_microkernel_items(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    kernel_t, _, _, _, alpha_t, a_t, b_t, c_t, *_ = sig.args
    _, m_cur, n_cur, kc_cur, alpha, a, b, c, conj, first, items, ir, jr, group, turns, turn, steps = args
    spec = kernel_t.spec
    function = emit_microkernel(builder.module, spec, Access.ITEMS)
    (a_data, a_strides), (b_data, b_strides), (c_data, c_strides) = (
        _array(context, builder, typ, value) for typ, value in ((a_t, a), (b_t, b), (c_t, c))
    )
    corners, ahead, steps = [], [], cgutils.unpack_tuple(builder, steps, 3)
    for data, strides, row, column, step in (
        (a_data, a_strides, ir, I64(0), steps[0]), (b_data, b_strides, I64(0), jr, steps[1]),
        (c_data, c_strides, ir, jr, steps[2]),
    ):  # fmt: skip
        inside = builder.add(builder.mul(row, strides[1]), builder.mul(column, strides[2]))
        corners.append(at(builder, data, builder.add(builder.mul(first, strides[0]), inside)))
        part = builder.add(builder.mul(group, strides[0]), builder.mul(turn, step))
        ahead.append(builder.sub(part, inside))
    zero = context.get_constant_generic(builder, alpha_t, 0)
    builder.call(
        function,
        [
            *(_as_i64(builder, extent) for extent in (m_cur, n_cur, kc_cur)), corners[0], *a_strides[1:], corners[1],
            b_strides[1], corners[2], *c_strides[1:],
            _factors(context, builder, spec, (alpha_t, alpha), (alpha_t, zero)), _as_i64(builder, conj), items,
            a_strides[0], b_strides[0], c_strides[0], turns, *ahead, *steps,
        ],
    )  # fmt: skip
    return context.get_dummy_value()


@type_callable(sweep)
def _type_sweep(context: Any) -> Any:
    def typer(  # type: ignore[no-untyped-def]
        kernel, m_cur, n_cur, p_cur, alpha, a, b, beta, c, conj, sums, last
    ):
        return types.void if isinstance(kernel, KernelType) else None

    return typer


@lower_builtin(sweep, types.VarArg(types.Any))
def _lower_sweep(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    kernel_t, _, _, _, alpha_t, a_t, b_t, beta_t, c_t, _, sums_t, _ = sig.args
    _, *extents, alpha, a, b, beta, c, conj, sums, last = args
    spec = kernel_t.spec
    function = emit_sweep(builder.module, spec)
    a_data, a_strides = _array(context, builder, a_t, a)
    b_data, b_strides = _array(context, builder, b_t, b)
    c_data, c_strides = _array(context, builder, c_t, c)
    sums_data, sums_strides = _array(context, builder, sums_t, sums)
    factors = _factors(context, builder, spec, (alpha_t, alpha), (beta_t, beta))
    builder.call(
        function,
        [
            *(_as_i64(builder, extent) for extent in extents), a_data, b_data, b_strides[0], sums_data,
            *a_strides, sums_strides[0], c_data, *c_strides, factors, _as_i64(builder, conj), _as_i64(builder, last),
        ],
    )  # fmt: skip
    return context.get_dummy_value()


def _factors(context: Any, builder: Any, spec: KernelSpec, *scalars: tuple[Any, Any]) -> Any:
    """Emit alpha and beta, in the kernel's dtype, to the stack; return their address."""
    parts = [part for typ, value in scalars for part in _parts(context, builder, spec, typ, value)]
    factors = cgutils.alloca_once(builder, ir.ArrayType(parts[0].type, len(parts)))
    for index, part in enumerate(parts):
        builder.store(part, builder.gep(factors, [I64(0), I64(index)]))
    return factors


def _call_microkernel(
    context: Any, builder: Any, spec: KernelSpec, access: Access, types_: Any, args: Any,
    extra: list[Any] | None = None, a_data: Any = None,
) -> None:  # fmt: skip
    """Emit the call of the kernel's function; ``types_`` and ``args`` begin with m_cur and end with conj.

    ``a_data``: where A's part begins, if not where the array does.
    """
    _, _, _, alpha_t, a_t, b_t, beta_t, c_t, _ = types_
    m_cur, n_cur, kc_cur, alpha, a, b, beta, c, conj = args
    function = emit_microkernel(builder.module, spec, access)
    start, a_strides = _array(context, builder, a_t, a)
    a_data = start if a_data is None else a_data
    b_data, b_strides = _array(context, builder, b_t, b)
    c_data, c_strides = _array(context, builder, c_t, c)
    a_steps = [I64(0), I64(0)] if access in (Access.PACKED, Access.STRIP) else a_strides
    b_step = I64(0) if b_t.ndim == 1 else b_strides[-1 if access is Access.COLUMNS else 0]
    factors = _factors(context, builder, spec, (alpha_t, alpha), (beta_t, beta))
    builder.call(
        function,
        [
            *(_as_i64(builder, extent) for extent in (m_cur, n_cur, kc_cur)),
            a_data, *a_steps, b_data, b_step,
            c_data, *c_strides, factors, _as_i64(builder, conj), *(extra or ()),
        ],
    )  # fmt: skip


def _as_i64(builder: Any, value: Any) -> Any:
    if value.type == I64:
        return value
    return builder.zext(value, I64) if value.type.width == 1 else builder.sext(value, I64)


@lower_builtin(pack_micro_panels, types.VarArg(types.Any))
def _lower_pack(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    kernel_t, width_t, x_t, out_t = sig.args
    _, _, x, out = args
    spec = kernel_t.spec
    function = emit_packer(builder.module, spec, getattr(spec, width_t.literal_value))
    x_data, x_strides = _array(context, builder, x_t, x)
    x_shape = cgutils.unpack_tuple(builder, context.make_array(x_t)(context, builder, x).shape, 2)
    out_data, out_strides = _array(context, builder, out_t, out)
    builder.call(function, [*x_shape, x_data, *x_strides, out_data, out_strides[0]])
    return context.get_dummy_value()
