"""The vector instruction sets that a microkernel can be generated for.

Knows: registers, lanes, features. Does not know: which of them this host has
(``detect``). Called by ``detect``, ``known`` and the kernel catalog. One row per set; within an
architecture the best comes first.

Source: Intel SDM vol. 1 ch. 13 to 15, Arm ARM (Advanced SIMD), LLVM's
``-mcpu`` tables for the feature names.
"""

from __future__ import annotations

from .facts import Isa

__all__ = ["AVX2", "AVX512", "GENERIC", "ISAS", "NEON", "SSE2", "isas_of"]

AVX512 = Isa("avx512", "x86_64", 64, 32, True, True, True, "memory",
             ("avx512f", "avx512vl", "avx512bw", "avx512dq", "avx2", "fma"), "skylake-avx512")  # fmt: skip
AVX2 = Isa("avx2", "x86_64", 32, 16, True, True, False, "memory", ("avx2", "fma"), "haswell")
SSE2 = Isa("sse2", "x86_64", 16, 16, False, False, False, "memory", ("sse2",), "x86-64")
NEON = Isa("neon", "aarch64", 16, 32, True, False, False, "lane", ("neon",), "generic")
# Any other 64-bit processor: LLVM's own lowering of 128-bit vectors; fma as the target has it.
GENERIC = Isa("generic", "any", 16, 16, True, False, False, "memory", (), None)

ISAS: dict[str, Isa] = {isa.name: isa for isa in (AVX512, AVX2, SSE2, NEON, GENERIC)}


def isas_of(arch: str) -> tuple[Isa, ...]:
    """Return the sets of an architecture, best first; every architecture ends with GENERIC."""
    return tuple(isa for isa in ISAS.values() if isa.arch in (arch, "any"))
