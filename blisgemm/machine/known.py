"""Machines whose facts are printed in their vendors' manuals.

Knows: caches, vector set and cores of named processors, which of them stands for an LLVM
host name, and how such a machine lends the facts that a host does not report. Does not
know: this host (``detect``) or what a fact is used for (``blocking``). Called by
``detect``, by the tests of the blocking model and by ``explain`` for other machines.

Sources, cited by short name in the table:

- IOM: Intel 64 and IA-32 Architectures Optimization Reference Manual, order no. 248966, the
  cache hierarchy of each microarchitecture; cores and total L3 of the part named: ark.intel.com
- SOG17 / SOG19 / SOGZ4 / SOGZ5: AMD Software Optimization Guide for family 17h models 30h and
  later (56305), family 19h (56665), Zen 4 (57647), Zen 5 (58455), the memory hierarchy chapter
- TRM: Arm Technical Reference Manual of the core named, L1 and L2 memory system chapters
- CMN: Arm CoreLink CMN-600 (100180) and CMN-650 (101481) TRM, system level cache
- APL: Apple Silicon CPU Optimization Guide; ``sysctl hw`` on the machine
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ..errors import OverrideError
from .facts import Cache, Isa, Machine
from .isas import AVX2, AVX512, GENERIC, ISAS, NEON, SSE2

__all__ = ["KNOWN", "LLVM_NAMES", "CacheReading", "complete_caches", "isa_named", "lender_for"]

KIB = 1024
MIB = 1024 * KIB

_MACHINES = (
    # Nehalem, the last of the plain SSE generation: 32K/8, 256K/8, inclusive L3 8M/16 of 4 cores
    # (Core i7-920). IOM, Nehalem.
    Machine("generic-sse2", "x86_64", SSE2, Cache(1, 32 * KIB, 8), Cache(2, 256 * KIB, 8),
            Cache(3, 8 * MIB, 16, cores=4), 4, source="IOM, Nehalem; Core i7-920"),
    # 32K/8, 256K/8, inclusive L3 2M per core /16; Core i7-4770 has 4 cores. IOM, Haswell.
    Machine("haswell", "x86_64", AVX2, Cache(1, 32 * KIB, 8), Cache(2, 256 * KIB, 8),
            Cache(3, 8 * MIB, 16, cores=4), 4, source="IOM, Haswell; Core i7-4770"),
    # 32K/8, 256K/4 (half the ways of Haswell), L3 2M per core /16; Core i7-6700 has 4. IOM, Skylake client.
    Machine("skylake", "x86_64", AVX2, Cache(1, 32 * KIB, 8), Cache(2, 256 * KIB, 4),
            Cache(3, 8 * MIB, 16, cores=4), 4, source="IOM, Skylake client; Core i7-6700"),
    # 48K/12, 1.25M/10, L3 3M per core /12; Core i9-12900K has 8 such cores and 30M, of which 6M come
    # with its 8 small ones. IOM, Golden Cove.
    Machine("alder-lake", "x86_64", AVX2, Cache(1, 48 * KIB, 12), Cache(2, 1280 * KIB, 10),
            Cache(3, 30 * MIB, 12, cores=16), 8, source="IOM, Golden Cove client; Core i9-12900K"),
    # 32K/8, 1M/16, non-inclusive L3 1.375M per core /11; Core i9-7900X has 10. IOM, Skylake server.
    Machine("skylake-x", "x86_64", AVX512, Cache(1, 32 * KIB, 8), Cache(2, 1 * MIB, 16),
            Cache(3, 10 * 1408 * KIB, 11, cores=10), 10, source="IOM, Skylake server; Core i9-7900X",
            notes=("L3 is non-inclusive: it holds what L2 has evicted",)),
    # 48K/12, 1.25M/20, non-inclusive L3 1.5M per core /12; Xeon 8380 has 40. IOM, Ice Lake server.
    Machine("ice-lake-sp", "x86_64", AVX512, Cache(1, 48 * KIB, 12), Cache(2, 1280 * KIB, 20),
            Cache(3, 40 * 1536 * KIB, 12, cores=40), 40, source="IOM, Ice Lake server; Xeon 8380",
            notes=("L3 is non-inclusive: it holds what L2 has evicted",)),
    # 48K/12, 2M/16, non-inclusive L3 1.875M per core /15; Xeon 8480+ has 56. IOM, Sapphire Rapids.
    Machine("sapphire-rapids", "x86_64", AVX512, Cache(1, 48 * KIB, 12), Cache(2, 2 * MIB, 16),
            Cache(3, 56 * 1920 * KIB, 15, cores=56), 56, source="IOM, Sapphire Rapids; Xeon 8480+",
            notes=("L3 is non-inclusive: it holds what L2 has evicted",)),
    # 32K/8, 512K/8, victim L3 16M/16 per complex of 4; Ryzen 7 3700X has two complexes. SOG17.
    Machine("zen2", "x86_64", AVX2, Cache(1, 32 * KIB, 8), Cache(2, 512 * KIB, 8),
            Cache(3, 16 * MIB, 16, cores=4), 8, source="SOG17; Ryzen 7 3700X"),
    # 32K/8, 512K/8, victim L3 32M/16 per complex of 8; Ryzen 7 5800X has one. SOG19.
    Machine("zen3", "x86_64", AVX2, Cache(1, 32 * KIB, 8), Cache(2, 512 * KIB, 8),
            Cache(3, 32 * MIB, 16, cores=8), 8, source="SOG19; Ryzen 7 5800X"),
    # 32K/8, 1M/8, victim L3 32M/16 per complex of 8; Ryzen 7 7700X has one. 512-bit operations
    # pass a 256-bit datapath twice. SOGZ4.
    Machine("zen4", "x86_64", AVX512, Cache(1, 32 * KIB, 8), Cache(2, 1 * MIB, 8),
            Cache(3, 32 * MIB, 16, cores=8), 8, source="SOGZ4; Ryzen 7 7700X",
            notes=("a 512-bit operation passes a 256-bit datapath twice",)),
    # 48K/12, 1M/16, victim L3 32M/16 per complex of 8; Ryzen 7 9700X has one. SOGZ5.
    Machine("zen5", "x86_64", AVX512, Cache(1, 48 * KIB, 12), Cache(2, 1 * MIB, 16),
            Cache(3, 32 * MIB, 16, cores=8), 8, source="SOGZ5; Ryzen 7 9700X"),
    # Cortex-A53, the smallest common 64-bit Arm core: L1d 32K/4, L2 512K/16 shared by 4 (Raspberry
    # Pi 3). TRM DDI 0500.
    Machine("generic-neon", "aarch64", NEON, Cache(1, 32 * KIB, 4), Cache(2, 512 * KIB, 16, cores=4),
            None, 4, source="TRM Cortex-A53 (DDI 0500); Raspberry Pi 3"),
    # 64K/4, 1M/8 private; system cache of the mesh 32M/16 of 64 cores (Graviton2). TRM 100616, CMN-600.
    Machine("neoverse-n1", "aarch64", NEON, Cache(1, 64 * KIB, 4), Cache(2, 1 * MIB, 8),
            Cache(3, 32 * MIB, 16, cores=64), 64, source="TRM Neoverse N1 (100616), CMN-600; Graviton2",
            notes=("L3 is the system cache of the mesh; Ampere Altra does not report it",)),
    # 64K/4, 1M/8 private; system cache of the mesh 32M/16 of 64 cores (Graviton3). TRM 101427, CMN-650.
    Machine("neoverse-v1", "aarch64", NEON, Cache(1, 64 * KIB, 4), Cache(2, 1 * MIB, 8),
            Cache(3, 32 * MIB, 16, cores=64), 64, source="TRM Neoverse V1 (101427), CMN-650; Graviton3",
            notes=("L3 is the system cache of the mesh",)),
    # 64K/4, 2M/8 private, 96 cores (Graviton4). TRM 102375. The ways of its system cache are not public.
    Machine("neoverse-v2", "aarch64", NEON, Cache(1, 64 * KIB, 4), Cache(2, 2 * MIB, 8),
            None, 96, source="TRM Neoverse V2 (102375); Graviton4",
            notes=("the system cache (36 MiB of 96 cores) is not listed: its ways are not public",)),
    # Performance core: L1d 128K/8, L2 12M/12 shared by 4, lines of 128 bytes by hw.cachelinesize,
    # pages of 16K. APL.
    Machine("apple-m1", "aarch64", NEON, Cache(1, 128 * KIB, 8, 128), Cache(2, 12 * MIB, 12, 128, cores=4),
            None, 4, page_bytes=16 * KIB, source="APL; Apple M1, performance cores",
            notes=("no L3; an 8 MiB system cache is shared with the graphics processor",)),
    # Not a processor: what nearly every 64-bit core has at least (POWER8/9: L1d 32 to 64K/8, L2
    # 512K/8; SiFive U74: 32K/8, 2M/16; Cortex-A53 as above), hence the smallest of each.
    Machine("generic", "any", GENERIC, Cache(1, 32 * KIB, 4), Cache(2, 256 * KIB, 8),
            None, 1, source="an assumption: the least that common 64-bit cores have"),
)  # fmt: skip

KNOWN: dict[str, Machine] = {machine.name: machine for machine in _MACHINES}

# LLVM's name of a host -> the known machine with that core. LLVM: Host.cpp, getHostCPUName.
LLVM_NAMES: dict[str, str] = {
    "nehalem": "generic-sse2",
    "haswell": "haswell",
    "broadwell": "haswell",
    "skylake": "skylake",
    "skylake-avx512": "skylake-x",
    "cascadelake": "skylake-x",
    "cooperlake": "skylake-x",
    "icelake-server": "ice-lake-sp",
    "sapphirerapids": "sapphire-rapids",
    "alderlake": "alder-lake",
    "znver2": "zen2",
    "znver3": "zen3",
    "znver4": "zen4",
    "znver5": "zen5",
    "cortex-a53": "generic-neon",
    "neoverse-n1": "neoverse-n1",
    "neoverse-v1": "neoverse-v1",
    "neoverse-v2": "neoverse-v2",
    "apple-m1": "apple-m1",
}

# Cores that keep their own name, and the nearest known machine to lend what they do not report.
LLVM_RELATIVES: dict[str, str] = {
    "znver1": "zen2",
    "icelake-client": "ice-lake-sp",
    "tigerlake": "ice-lake-sp",
    "rocketlake": "ice-lake-sp",
    "emeraldrapids": "sapphire-rapids",
    "graniterapids": "sapphire-rapids",
    "raptorlake": "alder-lake",
    "meteorlake": "alder-lake",
    "cortex-a76": "neoverse-n1",
    "neoverse-n2": "neoverse-n1",
    "neoverse-n3": "neoverse-n1",
    "neoverse-v3": "neoverse-v2",
    "apple-m2": "apple-m1",
    "apple-m3": "apple-m1",
    "apple-m4": "apple-m1",
}

# The machine assumed when nothing but the vector set is known: an early or small one that has it.
DEFAULTS: dict[str, str] = {
    "avx512": "skylake-x",
    "avx2": "haswell",
    "sse2": "generic-sse2",
    "neon": "generic-neon",
    "generic": "generic",
}


def isa_named(text: str) -> Isa:
    """Return the vector set that a name stands for, whether or not this host has it.

    Args:
        text: a vector set, or a known machine whose set is meant; in any case.

    Raises:
        OverrideError: no such name; the message lists those that exist.
    """
    name = text.strip().lower()
    if name in ISAS:
        return ISAS[name]
    if name in KNOWN:
        return KNOWN[name].isa
    raise OverrideError(
        f"BLISGEMM_ARCH: expected a vector set ({', '.join(ISAS)}) or a known machine "
        f"({', '.join(sorted(KNOWN))}), got {text!r}"
    )


@dataclass(frozen=True)
class CacheReading:
    """What a host reports of one cache level; ``None`` is a fact that it does not report.

    Units: ``size_bytes`` and ``line_bytes`` in bytes; ``cores`` share one instance.
    """

    size_bytes: int | None = None
    ways: int | None = None
    line_bytes: int | None = None
    cores: int | None = None


def lender_for(llvm_name: str, isa: Isa) -> Machine:
    """Return the known machine that lends the facts a host does not report.

    Args:
        llvm_name: LLVM's name of the host, which may be unknown or empty.
        isa: the host's best vector set, which decides when the name says nothing.
    """
    name = LLVM_NAMES.get(llvm_name) or LLVM_RELATIVES.get(llvm_name) or DEFAULTS[isa.name]
    return KNOWN[name]


def complete_caches(
    readings: Mapping[int, CacheReading], lender: Machine
) -> tuple[Cache, Cache, Cache | None, tuple[str, ...]]:
    """Fill the gaps of a reading from a known machine, and say which they were.

    Args:
        readings: by level; empty when the host reports no cache at all.
        lender: the machine that lends (``lender_for``).

    Returns:
        ``(l1, l2, l3, notes)``. A third level that is not reported beside others is taken as absent.
    """
    if not readings:
        return lender.l1, lender.l2, lender.l3, (f"caches: none reported; assumed those of {lender.name}",)
    l1, note1 = _complete(1, readings.get(1, CacheReading()), lender.l1, lender.name)
    l2, note2 = _complete(2, readings.get(2, CacheReading()), lender.l2, lender.name)
    l3: Cache | None = None
    note3 = "L3: none reported; assumed that there is none"
    if 3 in readings:
        # A lender without L3 still knows the number of ways that nearly all shared caches have: 16.
        like = lender.l3 or replace(l2, level=3, size_bytes=0, ways=16)
        if _plausible_size(readings[3]) or like.size_bytes:
            l3, note3 = _complete(3, readings[3], like, lender.name)
        else:
            note3 = "L3: reported without its size; assumed that there is none"
    return l1, l2, l3, tuple(note for note in (note1, note2, note3) if note)


def _complete(level: int, reading: CacheReading, like: Cache, lender: str) -> tuple[Cache, str]:
    """Return the cache with every gap filled from ``like``, and the note that names the gaps."""
    size = _plausible_size(reading) or like.size_bytes
    line = reading.line_bytes or like.line_bytes
    if line & (line - 1) or line > size:
        line = like.line_bytes
    ways = reading.ways or 0
    if not 0 < ways * line <= size:
        # Ways must divide the size: 12 ways, as in a 12 MiB L2, do not fit a relative with 16 MiB.
        ways = next((w for w in (like.ways, 16, 12, 8, 4, 2) if size % (w * line) == 0), 1)
    cache = Cache(level, size, ways, line, reading.cores or like.cores)
    facts = (
        ("size_bytes", reading.size_bytes, cache.size_bytes),
        ("ways", reading.ways, cache.ways),
        ("line_bytes", reading.line_bytes, cache.line_bytes),
        ("cores", reading.cores, cache.cores),
    )
    assumed = [f"{fact} {used}" for fact, read, used in facts if read != used]
    return cache, f"L{level}: not reported; assumed, after {lender}: {', '.join(assumed)}" if assumed else ""


def _plausible_size(reading: CacheReading) -> int:
    """Return the size in bytes, or 0 if it cannot be a data cache: no 64-bit core has one under 1 KiB."""
    size = reading.size_bytes or 0
    return size if size >= KIB else 0
