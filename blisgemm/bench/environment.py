"""The variables that BLAS libraries read when they are loaded, and what this machine is.

Knows: how each library is held to a vector set, how its idle workers are kept from spinning, and how a
process starts itself again with other variables. Does not know: what is measured. Called by ``cli.bench``
and the scripts of ``bench/``.
"""

from __future__ import annotations

import datetime
import os
import platform
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["ARCHES", "command_line", "machine_facts", "machine_line", "restart_with", "start_again", "variables"]

# OpenBLAS, MKL, ATen, oneDNN and BLIS name processors and vector sets, no two of them alike.
_HASWELL = {
    "OPENBLAS_CORETYPE": "Haswell", "MKL_ENABLE_INSTRUCTIONS": "AVX2", "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2", "BLIS_ARCH_TYPE": "haswell",
}  # fmt: skip
ARCHES: dict[str, dict[str, str]] = {
    "haswell": _HASWELL,
    "avx2": _HASWELL,
    "skx": {
        "OPENBLAS_CORETYPE": "SkylakeX", "MKL_ENABLE_INSTRUCTIONS": "AVX512", "ATEN_CPU_CAPABILITY": "avx512",
        "ONEDNN_MAX_CPU_ISA": "AVX512_CORE", "BLIS_ARCH_TYPE": "skx",
    },
    "sse2": {
        "OPENBLAS_CORETYPE": "Prescott",
        # on AMD, MKL 2026.2 heeds this and not the other (Zen 3, 2026-11-30: 18 GFLOP/s in f32 in place of 72)
        "MKL_CBWR": "COMPATIBLE", "MKL_ENABLE_INSTRUCTIONS": "SSE4_2", "ATEN_CPU_CAPABILITY": "default",
        "ONEDNN_MAX_CPU_ISA": "SSE41", "BLIS_ARCH_TYPE": "generic",
    },
}  # fmt: skip

# A worker that waits by spinning takes the core of the library that is measured next. Intel's OpenMP spins for
# 200 ms unless told otherwise, OpenBLAS for 2**28 ticks or so; 2**20 ticks are under half a millisecond.
_SHORT_SPINS = {"KMP_BLOCKTIME": "1", "OPENBLAS_THREAD_TIMEOUT": "20", "GOMP_SPINCOUNT": "100000"}


def variables(threads: int, arch: str | None = None) -> dict[str, str]:
    """Return the variables that hold every library to the same number of threads and the same vector set.

    Args:
        threads: the most that will be asked for; the libraries are told the number of each row later.
        arch: a value of BLISGEMM_ARCH; the peers are held to the like where that is known (``ARCHES``).
    """
    names = ("BLISGEMM", "OPENBLAS", "MKL", "OMP", "VECLIB", "BLIS")
    chosen = {f"{name}_NUM_THREADS": str(threads) for name in names}
    chosen |= {"MKL_DYNAMIC": "FALSE", "MKL_THREADING_LAYER": "SEQUENTIAL" if threads == 1 else "INTEL"}
    if threads > 1:
        chosen |= _SHORT_SPINS
    if arch is not None:
        chosen |= {"BLISGEMM_ARCH": arch, **ARCHES.get(arch, {})}
    return chosen


def restart_with(wanted: Mapping[str, str]) -> None:
    """Return if the process has these variables, else start it again with them, by the same command line."""
    if any(os.environ.get(name) != value for name, value in wanted.items()):
        start_again(os.environ | wanted)


def start_again(environment: Mapping[str, str]) -> None:
    """Replace this process by a new one of the same command line."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], dict(environment))


def machine_facts() -> dict[str, str]:
    """Return processor, vector set, caches, versions and date, by name."""
    import numba
    import numpy as np

    from ..machine import current

    machine = current()
    caches = ", ".join(
        f"L{cache.level} {cache.size_bytes / (1 << 20):g} MiB"
        if cache.size_bytes >= 1 << 20
        else f"L{cache.level} {cache.size_bytes // 1024} KiB"
        for cache in machine.caches
    )
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]  # type: ignore[call-overload]
    return {
        "processor": _processor_name(),
        "machine": machine.name,
        "vectors": machine.isa.name,
        "caches": caches,
        "cores": str(machine.cores),
        "python": platform.python_version(),
        "numpy": f"{np.__version__} with {blas['name']} {blas['version']}",
        "numba": numba.__version__,
        "date": datetime.date.today().isoformat(),
    }


def machine_line() -> str:
    """Return the facts in one line."""
    f = machine_facts()
    return (
        f"{f['processor']} ({f['machine']}, {f['vectors']}; {f['caches']}; {f['cores']} cores), "
        f"Python {f['python']}, NumPy {f['numpy']}, Numba {f['numba']}, {f['date']}"
    )


def _processor_name() -> str:
    """Return what the processor calls itself."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def command_line(without: Sequence[str] = ()) -> str:
    """Return how this process was called, with the script's path as seen from the checkout.

    Args:
        without: options to leave out, with their values: those that only say where results go.
    """
    words: list[str] = []
    dropping = False
    for word in sys.argv[1:]:
        option = word.partition("=")[0]
        dropping = option in without or (dropping and not word.startswith("-"))
        if not dropping:
            words.append(word)
        elif "=" in word:
            dropping = False
    script = Path(sys.argv[0]).resolve()
    if script.name == "__main__.py":
        return shlex.join(["python", "-m", script.parent.name, *words])
    name = f"{script.parent.name}/{script.name}" if script.suffix == ".py" else script.name
    return shlex.join([*(["python"] if script.suffix == ".py" else []), name, *words])
