"""A team: several threads run one compiled call together and share its work by numbers.

Knows: how compiled code enters Numba's threading layer, and the words by which a team's threads agree. Does not know:
what the work is, which layer there is or how many threads (``parallel``). Called by ``entry`` and ``loops``.

An entry point that may run on several threads has a last argument ``team`` and begins with ``join(team)``. From there
on every thread of the team runs the same text with the same arguments; pieces of work are numbered in the order of
that text, and each is done by the thread that took its number::

    number = take_number(work)
    while number < pieces:
        ...  # the piece of that number
        mark_done(work)
        number = take_number(work)
    wait_until_done(work, pieces)  # where what follows needs them all

Nobody waits for a thread that has no piece in hand. So it doesn't matter how many threads the layer has, whether they
run at the same time, or how late one starts: one that comes last finds all numbers taken. The address of the layer's
function is an argument too, so compiled code is kept on disk without it and fits every layer; and a team of one runs
the very same code. Called from plain Python, the same words serve one thread.

Source: ``numba_parallel_for`` as numba/np/ufunc/parallel.py declares it, and ``parallel_for`` in tbbpool.cpp,
omppool.cpp and workqueue.c beside it.
"""

import sys

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic, lower_builtin, type_callable
from numba.np.arrayobj import populate_array

from .ukernel.vec import I64

__all__ = ["TEAM", "join", "mark_done", "take_number", "wait_until_done"]

# The type of ``team``: (address of the layer's function or 0 for one thread, number of threads, 0). A member is called
# with the address of the leader's ``work`` in the last place.
TEAM = types.UniTuple(types.intp, 3)

# ``work``: two integers, how many numbers are taken and how many pieces are done.
_WORK = types.Array(types.intp, 1, "C")
_TAKEN, _DONE = 0, 1

# How a waiting thread lets others run, as OpenBLAS's do (common.h, YIELDING).
_YIELD = "SwitchToThread" if sys.platform == "win32" else "sched_yield"

_BYTES = ir.IntType(8).as_pointer()


@intrinsic
def join(typing_context, team):
    """Run the call that this is part of on every thread of ``team``; return the ``work`` that they share.

    ``team`` is the last argument of the function that is compiled. The leader comes back when all others have returned.
    """
    if team != TEAM:
        return None

    def codegen(context, builder, signature, args):
        call = builder.function  # of (place of the result, place of an exception, arguments ..., team)
        layer, threads, shared = call.args[-3:]
        call.attributes.add("noinline")  # it has two callers: one copy of it will do
        own = _new_work(builder)
        led = builder.icmp_unsigned("!=", layer, I64(0))
        leads = builder.and_(led, builder.icmp_unsigned("==", shared, I64(0)))
        with builder.if_then(leads):
            values = [*call.args[2:-1], builder.ptrtoint(own, I64)]
            arguments = cgutils.alloca_once(builder, ir.LiteralStructType([value.type for value in values]))
            for index, value in enumerate(values):
                builder.store(value, cgutils.gep_inbounds(builder, arguments, 0, index))
            members = cgutils.alloca_once(builder, I64)
            builder.store(threads, members)
            null = ir.Constant(_BYTES, None)
            function_type = ir.FunctionType(ir.VoidType(), [_BYTES] * 5 + [I64] * 3)
            member = _member(call, arguments.type)
            pointers = [builder.bitcast(x, _BYTES) for x in (member, null, members, null, arguments)]
            builder.call(builder.inttoptr(layer, function_type.as_pointer()), [*pointers, I64(0), I64(0), threads])
        is_member = builder.icmp_unsigned("!=", shared, I64(0))
        return _work(context, builder, builder.select(is_member, builder.inttoptr(shared, own.type), own))

    return _WORK(team), codegen


def _member(call, arguments_type):
    """Return the function that the layer runs on each thread: ``call`` with the leader's arguments."""
    pointers = ir.FunctionType(ir.VoidType(), [_BYTES] * 4)  # args, dimensions, steps, data
    member = ir.Function(call.module, pointers, f"{call.name}.member")
    member.linkage = "internal"
    builder = ir.IRBuilder(member.append_basic_block())
    arguments = builder.bitcast(member.args[3], arguments_type)
    count = len(arguments_type.pointee.elements)
    values = [builder.load(cgutils.gep_inbounds(builder, arguments, 0, index)) for index in range(count)]
    builder.call(call, [*(builder.alloca(place.type.pointee) for place in call.args[:2]), *values])
    builder.ret_void()
    return member


def _new_work(builder):
    place = cgutils.alloca_once(builder, I64, size=2)
    for index in (_TAKEN, _DONE):
        builder.store(I64(0), builder.gep(place, [I64(index)]))
    return place


def _work(context, builder, place):
    array = context.make_array(_WORK)(context, builder)
    populate_array(array, data=place, shape=[I64(2)], strides=[I64(8)], itemsize=I64(8), meminfo=None)
    return array._getvalue()


def take_number(work):
    """Return the next number, and take it: nobody else gets it."""
    number = int(work[_TAKEN])
    work[_TAKEN] = number + 1
    return number


def mark_done(work):
    """Say that a piece is done, and let the others see what it wrote."""
    work[_DONE] += 1


def wait_until_done(work, count):
    """Wait until ``count`` pieces are done, and see what they wrote."""
    if work[_DONE] < count:
        raise RuntimeError(f"expected {count} pieces done; got {work[_DONE]}")


@type_callable(take_number)
def _type_take_number(context):
    return lambda work: types.intp if work == _WORK else None


@type_callable(mark_done)
def _type_mark_done(context):
    return lambda work: types.void if work == _WORK else None


@type_callable(wait_until_done)
def _type_wait_until_done(context):
    return lambda work, count: types.void if work == _WORK and isinstance(count, types.Integer) else None


def _place(context, builder, work, index):
    return builder.gep(context.make_array(_WORK)(context, builder, work).data, [I64(index)])


@lower_builtin(take_number, _WORK)
def _lower_take_number(context, builder, signature, args):
    return builder.atomic_rmw("add", _place(context, builder, args[0], _TAKEN), I64(1), "monotonic")


@lower_builtin(mark_done, _WORK)
def _lower_mark_done(context, builder, signature, args):
    builder.atomic_rmw("add", _place(context, builder, args[0], _DONE), I64(1), "release")
    return context.get_dummy_value()


@lower_builtin(wait_until_done, _WORK, types.Integer)
def _lower_wait_until_done(context, builder, signature, args):
    place = _place(context, builder, args[0], _DONE)
    look, wait, go_on = (builder.append_basic_block(name) for name in ("look", "wait", "go_on"))
    builder.branch(look)
    builder.position_at_end(look)
    done = builder.load_atomic(place, "acquire", 8)
    builder.cbranch(builder.icmp_signed(">=", done, args[1]), go_on, wait)
    builder.position_at_end(wait)
    yield_type = ir.FunctionType(ir.IntType(32), [])
    builder.call(cgutils.get_or_insert_function(builder.module, yield_type, _YIELD), [])
    builder.branch(look)
    builder.position_at_end(go_on)
    return context.get_dummy_value()
