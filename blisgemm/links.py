"""One compiled function calls another, which it knows by its address only.

Knows: how Numba's compiled functions take arguments. Does not know: which function it is, or why. Called by ``checks``.
"""

from numba.core import cgutils, types
from numba.extending import intrinsic

from .team import TEAM
from .ukernel.vec import I64

__all__ = ["arguments_of_direct", "call_direct"]


def arguments_of_direct(kernel, scalar, pointer):
    """Return the Numba types of what ``entry.run_direct`` and ``run_columns`` take; ``compiled`` compiles them so."""
    ways = types.UniTuple(types.intp, 2)
    product = (scalar, pointer, pointer, scalar, pointer, types.intp)
    return (kernel, types.intp, types.boolean, ways, *product, TEAM)


@intrinsic
def call_direct(typing_context, address, kernel, kc, rows_first, alpha, a, b, beta, c, op):
    """Call ``entry.run_direct`` or ``run_columns`` of some kernel, compiled, on this thread alone.

    Args:
        address: where its machine code is.
        kernel: any; it carries no bytes.
        Others: as those functions take them, in one share.
    """
    wanted = arguments_of_direct(kernel, alpha, a)
    if (alpha, a, b, beta, c, types.intp) != wanted[4:-1]:
        return None

    def codegen(context, builder, signature, args):
        address, kernel, kc, rows_first, alpha, a, b, beta, c, op = args
        one_share = context.make_tuple(builder, wanted[3], (I64(1), I64(1)))
        alone = context.make_tuple(builder, TEAM, (I64(0), I64(1), I64(0)))
        values = [kernel, kc, rows_first, one_share, alpha, a, b, beta, c, op, alone]
        conventions = context.call_conv
        function = builder.inttoptr(address, conventions.get_function_type(types.none, wanted).as_pointer())
        status, _ = conventions.call_function(builder, function, types.none, wanted, values)
        with cgutils.if_unlikely(builder, status.is_error):
            conventions.return_status_propagate(builder, status)
        return context.get_dummy_value()

    return types.void(types.intp, kernel, types.intp, types.boolean, alpha, a, b, beta, c, types.intp), codegen
