"""The open box: what the library does, made visible on its own code.

The names that one begins with are here; the others are in the modules, as said there.

    >>> from blisgemm import teach
    >>> steps = teach.trace(8, 8, 8, mr=4, nr=4, blocking=(8, 8, 8), half=False)
    >>> teach.simulate_trace(steps, "teaching").accesses
    576

Knows: the names of its modules. Does not know: anything else. Called by ``cli``, notebooks and people. Nothing below
imports it, so a program that only multiplies matrices never loads it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

# Functions that are named as a module is: bound here at once, so that the name never means the module.
from .explain import explain
from .page import page
from .placing import roofline
from .trace import trace

if TYPE_CHECKING:
    from .cachesim import Counts, loop_order_stream, simulate, simulate_trace
    from .elsewhere import machine_named, plan_on
    from .kdiff import difference
    from .kstep import draw_map, needs, read_kernel
    from .machines import TEACHING_MACHINE
    from .notebook import check, picture
    from .rates import data_sheet
    from .roofline import ridge, tile_intensity, wave_share, waves
    from .trace import MICROKERNEL, PACK_A, PACK_B, Trace
    from .traffic import compare, loops_traffic, tile_reads, trace_traffic, traffic_of

__all__ = [
    "MICROKERNEL", "PACK_A", "PACK_B", "TEACHING_MACHINE", "Counts", "Trace", "check", "compare", "data_sheet",
    "difference", "draw_map", "explain", "loop_order_stream", "loops_traffic", "machine_named", "needs", "page",
    "picture", "plan_on", "read_kernel", "ridge", "roofline", "simulate", "simulate_trace", "tile_intensity",
    "tile_reads", "trace", "trace_traffic", "traffic_of", "wave_share", "waves",
]  # fmt: skip

# The other names, and the module that each is loaded from when it is first asked for.
_LATER = {
    "cachesim": ("Counts", "loop_order_stream", "simulate", "simulate_trace"),
    "elsewhere": ("machine_named", "plan_on"),
    "kdiff": ("difference",),
    "kstep": ("draw_map", "needs", "read_kernel"),
    "machines": ("TEACHING_MACHINE",),
    "notebook": ("check", "picture"),
    "rates": ("data_sheet",),
    "roofline": ("ridge", "tile_intensity", "wave_share", "waves"),
    "trace": ("MICROKERNEL", "PACK_A", "PACK_B", "Trace"),
    "traffic": ("compare", "loops_traffic", "tile_reads", "trace_traffic", "traffic_of"),
}
_MODULE_OF = {name: module for module, names in _LATER.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
