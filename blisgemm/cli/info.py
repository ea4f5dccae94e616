"""Show what blisgemm knows about this machine, what it chose, and what overrides it.

Knows: which facts a bug report needs. Does not know: how a fact is found (``machine``, ``parallel``,
``cache``).
"""

from __future__ import annotations

import argparse
import os
import platform
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from .console import bytes_text, figures_table, print_facts, print_table

if TYPE_CHECKING:
    from ..machine import Cache, Machine

__all__ = ["HELP", "add_arguments", "run"]

HELP = "this machine, the kernels chosen for it, caches, versions"

_OWN = {
    "BLISGEMM_ARCH", "BLISGEMM_KERNEL", "BLISGEMM_NUM_THREADS", "BLISGEMM_CACHE_DIR", "BLISGEMM_TUNING",
    "BLISGEMM_VERBOSE", "BLISGEMM_CUDA_HOST_BYTES",
}  # fmt: skip
# Settings of Numba that change what runs here. Source: Numba's reference, "Environment variables".
_NUMBA = (
    "NUMBA_NUM_THREADS", "NUMBA_THREADING_LAYER", "NUMBA_THREADING_LAYER_PRIORITY", "NUMBA_CPU_NAME",
    "NUMBA_CPU_FEATURES", "NUMBA_OPT", "NUMBA_DISABLE_JIT", "NUMBA_DEBUG",
)  # fmt: skip
_LARGE, _SMALL = 2000, 8  # extents of square products that are surely packed, surely direct


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """There is nothing to choose."""


def run(args: argparse.Namespace, console: Console) -> int:
    """Print the facts, the caches and the kernels."""
    from .._version import __version__
    from ..machine import current

    machine = current()
    console.print(f"blisgemm {__version__}\n", style="bold")
    print_facts(console, _machine_facts(machine))
    console.print()
    print_table(console, _caches(machine.caches))
    console.print()
    console.print(_kernels())  # its last column may go on in the next line
    console.print()
    print_facts(console, _software_facts())
    return 0


def _machine_facts(machine: Machine) -> Iterable[tuple[str, str]]:
    from ..machine import cpu_limits, host_isas

    isa = machine.isa
    yield "machine", f"{machine.name}, {machine.arch} ({machine.source})"
    fma = "fused multiply-add" if isa.fma else "no fused multiply-add"
    others = ", ".join(other.name for other in host_isas() if other != isa)
    yield "vectors", f"{isa.name}: {isa.registers} registers of {isa.vector_bytes} bytes, {fma}"
    yield "", f"also here: {others}" if others else "no other set"
    limits = cpu_limits()
    yield "cores", f"{machine.cores} that this process may use"
    affinity = f"affinity {_ranges(limits.affinity)}" if limits.affinity is not None else "no affinity mask"
    quota = f"cgroup quota {limits.quota:.4g} ({limits.quota_source})" if limits.quota else "no cgroup quota"
    yield "CPUs", f"{limits.online} online, {affinity}, {quota}: {limits.usable} usable"
    for note in machine.notes:
        yield "note", note
    yield from _gpus()


def _gpus() -> Iterable[tuple[str, str]]:
    from ..cuda import driver

    missing = driver.why_unavailable()
    if missing is not None:
        yield "GPU", f"not used: {missing}"
        return
    for ordinal in range(driver.device_count()):
        facts = driver.attributes(ordinal)
        major, minor = facts["capability"]
        yield (
            "GPU" if ordinal == 0 else "",
            f"{facts['name']}, compute capability {major}.{minor}, {facts['multiprocessors']} multiprocessors, "
            f"{bytes_text(facts['memory_bytes'])}",
        )


def _ranges(cpus: tuple[int, ...]) -> str:
    """Return CPUs as Linux writes them: ``0-3,8``."""
    runs: list[list[int]] = []
    for cpu in cpus:
        if runs and cpu == runs[-1][1] + 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def _caches(caches: Iterable[Cache]) -> Table:
    table = figures_table("cache", "size", "ways", "sets", "line", "shared by")
    for cache in caches:
        shared = "1 core" if cache.cores == 1 else f"{cache.cores} cores"
        table.add_row(
            f"L{cache.level}", bytes_text(cache.size_bytes), str(cache.ways), f"{cache.sets:,}",
            bytes_text(cache.line_bytes), shared,
        )  # fmt: skip
    return table


def _kernels() -> Table:
    """Return the table of what is chosen, from plans, and what else could be asked for."""
    from ..machine import host_isas
    from ..plan import make_plan
    from ..ukernel import catalog
    from ..ukernel.spec import SHORT_NAMES

    here = {isa.name for isa in host_isas()}
    table = figures_table("dtype", f"kernel (n = {_LARGE})", f"kernel (n = {_SMALL})", "other kernels here", left=3)
    table.columns[-1].justify, table.columns[-1].no_wrap = "left", False
    for dtype in SHORT_NAMES:
        plans = [make_plan(n, n, n, dtype) for n in (_LARGE, _SMALL)]
        chosen = [plan.kernel.name if plan.kernel else plan.path for plan in plans]
        rest = [s.name for s in catalog.kernels(dtype) if s.isa.name in here and s.name not in chosen]
        table.add_row(dtype, *chosen, " ".join(name.partition("_")[2] for name in rest) or "none")
    return table


def _software_facts() -> Iterable[tuple[str, str]]:
    import llvmlite
    import llvmlite.binding as llvm
    import numba
    import numpy as np

    from ..parallel import get_num_threads

    yield "threads", f"{get_num_threads()} at most; Numba's layer: {_layer()}"
    overrides = [f"{name}={os.environ[name]}" for name in (*sorted(_OWN), *_NUMBA) if name in os.environ]
    yield "overrides", ", ".join(overrides) or "none"
    for name in sorted(os.environ):
        if name.startswith("BLISGEMM_") and name not in _OWN and not name.startswith("BLISGEMM_TEST"):
            yield "note", f"{name} is set, but means nothing here (known: {', '.join(sorted(_OWN))})"
    yield "code cache", _cache_state()
    yield "tuning", _tuning_state()
    llvm_version = ".".join(map(str, llvm.llvm_version_info))
    yield "versions", f"Python {platform.python_version()} on {platform.system()} {platform.release()}"
    yield (
        "",
        f"NumPy {np.__version__}, Numba {numba.__version__}, llvmlite {llvmlite.__version__} (LLVM {llvm_version})",
    )


def _tuning_state() -> str:
    """Name the tuning file in force, what it tunes, and what of it is ignored."""
    from ..machine import current
    from ..tuning import file_in_use, in_force, shown

    machine = current()
    path, tuning = file_in_use(machine), in_force(machine)
    if path is None:
        return "off (BLISGEMM_TUNING)"
    if tuning.ignored:
        return f"{shown(path)}: {tuning.ignored}"
    if not tuning.source:
        return f"none, the model decides ({shown(path)} does not exist)"
    tuned = ", ".join(f"{c.what} of {c.dtype} on {c.threads} thread{'s' * (c.threads > 1)}" for c in tuning.choices)
    return f"{shown(path)}: {tuned or 'nothing but the model'}"


def _layer() -> str:
    """Return the threading layer, which is started for that: only then is it known."""
    from ..parallel import get_num_threads, start_layer

    if get_num_threads() == 1:
        return "not started, one thread needs none"
    try:
        return start_layer()
    except Exception as error:  # Numba finds no layer: products run on one thread, and info must still work
        return f"cannot start ({str(error).splitlines()[0] if str(error) else type(error).__name__})"


def _cache_state() -> str:
    from ..cache import cache_dir, entries

    folder = cache_dir()
    if folder is None:
        return "off (BLISGEMM_CACHE_DIR is empty): every process compiles anew"
    sizes = []
    for path in entries():
        with suppress(OSError):
            sizes.append(path.stat().st_size)
    state = f"{len(sizes)} entries, {bytes_text(sum(sizes))}" if sizes else "empty"
    at = folder
    while not at.exists() and at != at.parent:
        at = at.parent
    writable = "" if at.is_dir() and os.access(at, os.W_OK) else "; not writable, so every process compiles anew"
    return f"{folder}: {state}{writable}"
