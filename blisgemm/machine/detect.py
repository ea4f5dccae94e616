"""Find out what this host is: the only file of the package that reads the system.

Knows: where Linux and macOS report caches, cores, affinity and cgroup quotas (elsewhere a known
machine lends its caches), how LLVM names the host, and the override ``BLISGEMM_ARCH``. Does not
know: the facts of named processors (``known``), or what any fact is used for. Called by ``plan``
(``current``), ``parallel`` (``usable_cpus``), ``ukernel`` (``host_isas``), ``cli`` (``cpu_limits``).

No reader raises: what is absent or garbage becomes a note in ``Machine.notes``. Readers take
their root path as an argument, so that a test can feed them another system.

Sources: Linux Documentation/ABI/testing/sysfs-devices-system-cpu, admin-guide/cgroup-v2.rst
(cpu.max), scheduler/sched-bwc.rst (cpu.cfs_quota_us); Apple sysctl(3).
"""

from __future__ import annotations

import math
import mmap
import os
import platform
import re
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from ..errors import OverrideError
from ..forking import compiling
from .facts import Isa, Machine
from .isas import isas_of
from .known import LLVM_NAMES, CacheReading, complete_caches, isa_named, lender_for

__all__ = ["CpuLimits", "cpu_limits", "current", "detect_machine", "host_arch", "host_features",
           "host_isas", "resolve_arch", "usable_cpus"]  # fmt: skip

CPU_ROOT = Path("/sys/devices/system/cpu")
CGROUP_ROOT = Path("/sys/fs/cgroup")
PROC_CGROUP = Path("/proc/self/cgroup")
CPUINFO = Path("/proc/cpuinfo")
MAX_CPUS = 1 << 16  # a list beyond it is garbage; CONFIG_NR_CPUS of Linux goes to 8192


@lru_cache(maxsize=1)
def current() -> Machine:
    """Return this machine, detected once, with ``BLISGEMM_ARCH`` applied.

    The override replaces the vector set alone: caches and cores stay those of the host, and a
    note says so. ``current.cache_clear()`` makes the next call look again.

    Raises:
        OverrideError: the override is unknown or cannot run here (``resolve_arch``).
    """
    with compiling():
        machine = detect_machine()
    text = os.environ.get("BLISGEMM_ARCH", "").strip()
    if not text:
        return machine
    isa = resolve_arch(text)
    note = f"BLISGEMM_ARCH={text}: vector set {isa.name} by request; the host's best is {machine.isa.name}"
    return replace(machine, isa=isa, notes=(*machine.notes, note))


def detect_machine(cpu_root: Path = CPU_ROOT) -> Machine:
    """Read this host afresh, without overrides.

    Returns:
        The machine. ``cores`` are the physical cores that this process may use, or the usable
        CPUs where cores cannot be told apart. What the host does not report is lent by the
        known machine of LLVM's host name; ``notes`` names each such fact.
    """
    isa, llvm_name, limits = host_isas()[0], _llvm_host_name(), cpu_limits()
    readings: dict[int, CacheReading]
    notes: tuple[str, ...] = ()
    if sys.platform == "darwin":
        readings = read_sysctl_caches(_sysctl)
        cores = _sysctl("hw.perflevel0.physicalcpu") or _sysctl("hw.physicalcpu") or limits.usable
    else:
        cpus = limits.affinity or tuple(range(limits.online))
        readings, notes = read_sysfs_caches(cpu_root, _fastest_cpu(cpus, cpu_root))
        cores = count_cores(cpus, cpu_root)
    l1, l2, l3, assumed = complete_caches(readings, lender_for(llvm_name, isa))
    name = LLVM_NAMES.get(llvm_name, llvm_name or "unknown")
    source = f"this host, {llvm_name or 'unknown'} to LLVM"
    cores = min(cores, limits.usable)
    return Machine(name, host_arch(), isa, l1, l2, l3, cores, mmap.PAGESIZE, source, (*notes, *assumed))


def host_arch() -> str:
    """Return ``x86_64``, ``aarch64`` or what else the system calls its processor, in lower case."""
    arch = platform.machine().lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(arch, arch)  # Windows, macOS


def host_features(cpuinfo: Path = CPUINFO) -> frozenset[str]:
    """Return the LLVM features that this host has and its operating system supports.

    LLVM reports AVX-512 only when XCR0 says that the system saves its registers. Linux drops the
    avx512 flags of /proc/cpuinfo in the same case (and when booted with ``clearcpuid``), so where
    that file lists flags an avx512 feature must be among them. SSE2 belongs to x86_64 and NEON
    to aarch64: both are assumed even where LLVM reports nothing, as under some emulators.
    """
    import llvmlite.binding as llvm  # type: ignore[import-untyped, unused-ignore]

    try:
        with compiling():  # for who asks this alone
            features = {name for name, present in llvm.get_host_cpu_features().items() if present}
    except RuntimeError:
        features = set()
    if flags := re.search(r"^flags\s*:(.*)$", _read(cpuinfo), re.MULTILINE):
        shown = flags[1].replace("avx512_", "avx512").split()
        features = {name for name in features if not name.startswith("avx512") or name in shown}
    base = {"x86_64": {"sse2"}, "aarch64": {"neon"}}.get(host_arch(), set())
    return frozenset(features | base)


def host_isas() -> tuple[Isa, ...]:
    """Return the vector sets that run here, best first; never empty, since GENERIC runs anywhere."""
    features = host_features()
    return tuple(isa for isa in isas_of(host_arch()) if features.issuperset(isa.features))


def resolve_arch(text: str) -> Isa:
    """Return the vector set that an override names.

    Args:
        text: a vector set or a known machine, as ``isa_named`` takes it.

    Raises:
        OverrideError: the name is unknown, or this host lacks a feature that the set needs.
    """
    isa, runnable, features = isa_named(text), host_isas(), host_features()
    if isa in runnable:
        return isa
    lack = ", ".join(feature for feature in isa.features if feature not in features)
    lack = lack if isa.arch == host_arch() else f"{lack} of {isa.arch}"
    raise OverrideError(
        f"BLISGEMM_ARCH={text}: {isa.name} needs {lack}, which this {host_arch()} host or its operating "
        f"system lacks; expected one of {', '.join(isa.name for isa in runnable)}"
    )


@dataclass(frozen=True)
class CpuLimits:
    """What limits the CPUs of this process, one fact each.

    Args:
        online: logical CPUs of the system.
        affinity: CPUs that the scheduler may use, ``None`` where the system has no such mask.
        quota: CPUs' worth of time of the tightest cgroup, ``None`` without a limit.
        quota_source: the file that says so, or an empty string.
    """

    online: int
    affinity: tuple[int, ...] | None
    quota: float | None
    quota_source: str

    @property
    def usable(self) -> int:
        """The least of them, a fraction of a CPU counted as one; at least 1."""
        counts = (self.online, len(self.affinity or ()), math.ceil(self.quota or 0))
        return min((count for count in counts if count > 0), default=1)


def cpu_limits(proc_cgroup: Path = PROC_CGROUP, cgroup_root: Path = CGROUP_ROOT) -> CpuLimits:
    """Read the limits that hold at this moment; not cached, because affinity may change."""
    affinity: tuple[int, ...] | None = None
    if hasattr(os, "sched_getaffinity"):
        with suppress(OSError):
            affinity = tuple(sorted(os.sched_getaffinity(0)))
    return CpuLimits(os.cpu_count() or 1, affinity, *read_cgroup_quota(proc_cgroup, cgroup_root))


def usable_cpus() -> int:
    """Return how many logical CPUs this process may keep busy: online, affinity, cgroup quota."""
    return cpu_limits().usable


def read_cgroup_quota(proc_cgroup: Path = PROC_CGROUP, root: Path = CGROUP_ROOT) -> tuple[float | None, str]:
    """Return the tightest CPU quota of this process's cgroup and all its parents, and its file.

    Version 2 (at ``root``, or at ``unified`` beside version 1) and version 1 (at the names of its
    controllers) are both walked. A container may list its host's path, which does not exist
    below its own ``root``: the levels that exist count, and the last of them is ``root``.
    """
    levels = {root, root / "cpu"}
    for row in _read(proc_cgroup).splitlines():
        controllers, _, path = row.partition(":")[2].partition(":")
        if controllers and "cpu" not in controllers.split(","):
            continue
        parts = [part for part in path.split("/") if part not in ("", ".", "..")]
        for base in (root / controllers, root / ("cpu" if controllers else "unified")):
            levels |= {base.joinpath(*parts[:depth]) for depth in range(len(parts) + 1)}
    found: list[tuple[float, str]] = []
    for level in levels:
        v2, v1 = level / "cpu.max", level / "cpu.cfs_quota_us"
        for file, period_file in ((v2, v2), (v1, level / "cpu.cfs_period_us")):
            quota = _number(_read(file).partition(" ")[0])
            period = _number(_read(period_file).split(" ")[-1])
            if quota and period:
                found.append((quota / period, str(file)))
    return min(found, default=(None, ""))


def read_sysfs_caches(root: Path = CPU_ROOT, cpu: int = 0) -> tuple[dict[int, CacheReading], tuple[str, ...]]:
    """Return what Linux reports of one CPU's data caches, by level, and notes on what is garbage."""
    readings: dict[int, CacheReading] = {}
    notes: list[str] = []
    for index in range(16):  # CPUID and CLIDR_EL1 describe at most 7 levels, each split in two at most
        folder = root / f"cpu{cpu}" / "cache" / f"index{index}"
        level, kind = _number(_read(folder / "level")), _read(folder / "type")
        if not level or kind not in ("Data", "Unified"):
            if os.path.exists(folder) and kind != "Instruction":
                notes.append(f"{folder}: neither level nor type can be read; ignored")
            continue
        sharing = _cpu_list(_read(folder / "shared_cpu_list"))
        readings[level] = CacheReading(
            _size_bytes(_read(folder / "size")),
            _number(_read(folder / "ways_of_associativity")),
            _number(_read(folder / "coherency_line_size")),
            count_cores(sharing, root) or None,
        )
    return readings, tuple(notes)


def count_cores(cpus: Iterable[int], root: Path = CPU_ROOT) -> int:
    """Return how many physical cores the CPUs belong to; a CPU with unknown siblings is a core."""
    left, cores = set(cpus), 0
    while left:
        cpu = left.pop()
        left -= _cpu_list(_read(root / f"cpu{cpu}" / "topology" / "thread_siblings_list"))
        cores += 1
    return cores


def read_sysctl_caches(sysctl: Callable[[str], int | None]) -> dict[int, CacheReading]:
    """Return what macOS reports of its fastest cores (``hw.perflevel0``, or ``hw`` on Intel)."""

    def look(name: str) -> int | None:
        return sysctl(f"hw.perflevel0.{name}") or sysctl(f"hw.{name}") or None

    threads = (look("logicalcpu") or 1) // (look("physicalcpu") or 1) or 1  # hyper-threads of one core
    sharing = {1: 1, 2: (look("cpusperl2") or 1) // threads or 1, 3: look("physicalcpu")}
    sizes = {1: look("l1dcachesize"), 2: look("l2cachesize"), 3: look("l3cachesize")}
    line = look("cachelinesize")
    return {level: CacheReading(size, None, line, sharing[level]) for level, size in sizes.items() if size}


def _fastest_cpu(cpus: tuple[int, ...], root: Path) -> int:
    """Return the CPU of the largest ``cpu_capacity`` (hybrid machines have it), else the first."""
    return max(cpus, key=lambda cpu: _number(_read(root / f"cpu{cpu}" / "cpu_capacity")) or 0)


def _llvm_host_name() -> str:
    """Return LLVM's name of the host, or an empty string where it knows none."""
    import llvmlite.binding as llvm

    name = str(llvm.get_host_cpu_name())
    return "" if name == "generic" else name


def _sysctl(name: str) -> int | None:
    """Return an integer of sysctl(3), or ``None`` if this system has no such name."""
    import ctypes

    value, size = ctypes.c_uint64(0), ctypes.c_size_t(8)
    with suppress(AttributeError, OSError, TypeError):
        call = ctypes.CDLL(None).sysctlbyname
        if not call(name.encode(), ctypes.byref(value), ctypes.byref(size), None, ctypes.c_size_t(0)):
            return int(value.value)
    return None


def _read(path: Path) -> str:
    """Return the head of a file without outer blanks; empty if it cannot be read."""
    with suppress(OSError, ValueError), open(path, encoding="ascii", errors="replace") as file:
        return file.read(1 << 14).strip()  # 16 KiB: of /proc/cpuinfo one CPU is enough, the rest is small
    return ""


def _number(text: str) -> int | None:
    """Return a positive decimal, else ``None``: 0 and -1 mean unknown or unlimited in these files."""
    return int(text) or None if re.fullmatch(r"[0-9]{1,18}", text) else None


def _size_bytes(text: str) -> int | None:
    """Return the bytes of ``32K``, ``1024K``, ``32M``; ``None`` for anything else."""
    match = re.fullmatch(r"([0-9]{1,12})([KMG]?)", text)
    return int(match[1]) * 1024 ** " KMG".index(match[2] or " ") or None if match else None


def _cpu_list(text: str) -> set[int]:
    """Return the CPUs of a list such as ``0-3,8``; empty if any part is garbage."""
    cpus: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"([0-9]{1,6})(?:-([0-9]{1,6}))?", part)
        if not match or int(match[2] or match[1]) >= MAX_CPUS:
            return set()
        cpus |= set(range(int(match[1]), int(match[2] or match[1]) + 1))
    return cpus
