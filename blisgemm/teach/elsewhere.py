"""The plan that another machine would make.

Knows: which words of ``ways`` and ``plan`` ask about this host. Does not know: how a plan is chosen (``ways``,
``plan``). Called by ``trace``, and by whatever explains a product on a machine of ``known``.

The library plans for the machine it runs on. Here the same text runs with another answer to "which machine is this?":
nothing is copied, and a rule that changes there changes here.
"""

from __future__ import annotations

from typing import Any

from .. import plan as plan_module
from .. import ways as ways_module
from ..errors import BlisgemmTypeError, BlisgemmValueError
from ..machine import KNOWN, current
from ..machine.facts import Machine
from ..plan import Plan, make_plan
from .relink import relinked

__all__ = ["machine_named", "plan_on"]


def machine_named(machine: Machine | str | None) -> Machine:
    """Return the machine: itself, one of ``machine.known`` or ``"teaching"`` by name, or this one for ``None``.

    Raises:
        BlisgemmValueError: no such name; the message lists those that exist. BlisgemmTypeError: neither.

    Example:
        >>> machine_named("haswell").l2.ways
        8
    """
    if machine is None:
        return current()
    if isinstance(machine, Machine):
        return machine
    if not isinstance(machine, str):
        raise BlisgemmTypeError(f"machine: expected a Machine, a name or None; got {machine!r}")
    from .machines import TEACHING_MACHINE

    known = {**KNOWN, TEACHING_MACHINE.name: TEACHING_MACHINE}
    if machine.lower() not in known:
        raise BlisgemmValueError(f"machine: expected one of {', '.join(sorted(known))}; got {machine!r}")
    return known[machine.lower()]


def plan_on(machine: Machine | str | None, m: int, n: int, k: int, dtype: Any = "float32", **choices: Any) -> Plan:
    """Return what ``make_plan`` would return on ``machine``: with its kernels, limits and caches, untuned.

    Args:
        machine: as ``machine_named`` takes it; ``None`` is this one, with its tuning file.
        m, n, k, dtype, choices: as ``make_plan`` takes them.

    Raises:
        BlisgemmTypeError, BlisgemmValueError: as ``make_plan`` and ``machine_named``.

    Example:
        >>> plan_on("skylake-x", 2000, 2000, 2000, threads=1).kernel.name
        'f32_8x48_avx512'
        >>> plan_on("haswell", 2000, 2000, 2000, threads=1).kernel.name
        'f32_6x16_avx2'
    """
    there = machine_named(machine)
    if machine is None:
        return make_plan(m, n, k, dtype, **choices)
    from ..tuning import Tuning

    untuned = Tuning()

    def answer() -> Machine:
        return there

    ways = relinked(ways_module, current=answer, _forced_kernel=lambda: None, runnable=lambda spec: spec)
    words = {name: ways[name] for name in ways_module.__all__}
    plans = relinked(plan_module, current=answer, **words)
    with_tuning = plans["plan_for"]

    def plan_for(*arguments: Any, **choices: Any) -> Plan:
        plan: Plan = with_tuning(*arguments, tuning=untuned, **choices)
        return plan

    plans["plan_for"] = plan_for
    return plans["make_plan"](m, n, k, dtype, **choices)  # type: ignore[no-any-return]
