"""Hardware facts, and nothing else.

Knows: which names the rest of the package takes from here. Does not know: any fact itself
(``facts`` the dataclasses, ``isas`` vector sets, ``known`` named machines, ``detect`` this
host). Called by every layer above. Importing it reads nothing and loads no compiler: the
host is looked at on the first call of ``current``.

Example:
    >>> from blisgemm.machine import KNOWN
    >>> KNOWN["zen4"].l2.ways, KNOWN["zen4"].l2.sets
    (8, 2048)
"""

from .detect import (
    CpuLimits,
    cpu_limits,
    current,
    detect_machine,
    host_arch,
    host_features,
    host_isas,
    resolve_arch,
    usable_cpus,
)
from .facts import Cache, Isa, Machine
from .isas import ISAS, isas_of
from .known import KNOWN

__all__ = [
    "ISAS",
    "KNOWN",
    "Cache",
    "CpuLimits",
    "Isa",
    "Machine",
    "cpu_limits",
    "current",
    "detect_machine",
    "host_arch",
    "host_features",
    "host_isas",
    "isas_of",
    "resolve_arch",
    "usable_cpus",
]
