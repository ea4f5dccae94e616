"""What the benchmarks share: the environment, interleaved timing, verification, the table in the README.

Knows: how to time calls against each other and how to say on what. Does not know: what is timed.
Called by the scripts beside it. Importing it does not import NumPy: ``set_environment`` must come
before, since the BLAS libraries read their variables when they are loaded.
"""

from __future__ import annotations

import datetime
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

ROOT = Path(__file__).resolve().parents[1]
SHORT_NAMES = {"f32": "float32", "f64": "float64", "c64": "complex64", "c128": "complex128"}

# OpenBLAS and MKL name processors and vector sets, not both the same thing.
_PEERS_LIKE = {
    "haswell": {"OPENBLAS_CORETYPE": "Haswell", "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
    "avx2": {"OPENBLAS_CORETYPE": "Haswell", "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
    "skx": {"OPENBLAS_CORETYPE": "SkylakeX", "MKL_ENABLE_INSTRUCTIONS": "AVX512"},
    "sse2": {"OPENBLAS_CORETYPE": "Prescott", "MKL_ENABLE_INSTRUCTIONS": "SSE4_2"},
}


def set_environment(threads: int, arch: str | None = None) -> None:
    """Give every library the same number of threads and, with ``arch``, the same vector set.

    Args:
        threads: for blisgemm, OpenBLAS and MKL alike.
        arch: a value of BLISGEMM_ARCH; OpenBLAS and MKL are held to the like where that is known.
    """
    assert "numpy" not in sys.modules, "set_environment: NumPy has already loaded its BLAS"
    names = ("BLISGEMM", "OPENBLAS", "MKL", "OMP", "VECLIB", "BLIS")
    os.environ.update({f"{name}_NUM_THREADS": str(threads) for name in names})
    os.environ["MKL_DYNAMIC"] = "FALSE"
    if arch is not None:
        os.environ["BLISGEMM_ARCH"] = arch
        os.environ.update(_PEERS_LIKE.get(arch, {}))


@dataclass(frozen=True)
class Spread:
    """The median of some numbers and their quartiles."""

    low: float
    median: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f}–{self.high:.2f})"


def spread(values: Sequence[float]) -> Spread:
    """Return the quartiles of ``values``."""
    import numpy as np

    low, median, high = np.percentile(values, (25, 50, 75))
    return Spread(float(low), float(median), float(high))


def interleave(
    calls: Mapping[str, Callable[[], Any]], *, seconds: float = 2.0, rounds: tuple[int, int] = (5, 200)
) -> dict[str, list[float]]:
    """Time calls in turn, so that a clock that changes meets all of them alike.

    A round takes one sample of each call; the order rotates from round to round. A sample repeats its
    call until about 200 µs have passed, which is 1000 times what the clock resolves.

    Args:
        calls: by name.
        seconds: about how long to go on.
        rounds: at least and at most so many.

    Returns:
        Seconds per call: one list per name, one entry per round.
    """
    repeats = {}
    for name, call in calls.items():
        call()
        begin = time.perf_counter()
        call()
        once = time.perf_counter() - begin
        repeats[name] = max(1, round(200e-6 / max(once, 50e-9)))
    times: dict[str, list[float]] = {name: [] for name in calls}
    names = list(calls)
    end = time.perf_counter() + seconds
    for turn in range(rounds[1]):
        if turn >= rounds[0] and time.perf_counter() > end:
            break
        start = turn % len(names)
        for name in names[start:] + names[:start]:
            call, count = calls[name], range(repeats[name])
            begin = time.perf_counter()
            for _ in count:
                call()
            times[name].append((time.perf_counter() - begin) / len(count))
    return times


def ratios(times: Mapping[str, Sequence[float]], other: str, ours: str = "blisgemm") -> Spread:
    """Return how many times as long ``other`` took, round by round; above 1 is for ``ours``."""
    return spread([x / y for x, y in zip(times[other], times[ours], strict=True)])


def fill_exact(rng: np.random.Generator, *arrays: np.ndarray) -> None:
    """Fill with integers of -4 to 4: every partial sum of a product is exact, whatever the order."""
    for x in arrays:
        x[...] = rng.integers(-4, 5, x.shape)
        if x.dtype.kind == "c":
            x.imag = rng.integers(-4, 5, x.shape)


def fill_normal(rng: np.random.Generator, *arrays: np.ndarray) -> None:
    """Fill with normal deviates."""
    for x in arrays:
        x[...] = rng.standard_normal(x.shape)
        if x.dtype.kind == "c":
            x.imag = rng.standard_normal(x.shape)


def require_exact(a: np.ndarray, b: np.ndarray, got: np.ndarray, what: str) -> None:
    """Raise unless ``got`` is a @ b; a and b come from ``fill_exact``."""
    import numpy as np

    wide = np.complex128 if got.dtype.kind == "c" else np.float64
    wrong = np.argwhere(got != a.astype(wide) @ b.astype(wide))
    if len(wrong):
        raise SystemExit(f"{what}: {len(wrong)} of {got.size} elements wrong, the first at {tuple(wrong[0])}")


def flops(m: int, n: int, k: int, dtype: str) -> int:
    """Return the floating-point operations of a product; a complex term counts 8."""
    return m * n * k * (8 if dtype.startswith("complex") else 2)


def machine_line() -> str:
    """Return processor, vector set, caches, versions and date in one line."""
    import numba
    import numpy as np

    from blisgemm.machine import current

    machine = current()
    caches = ", ".join(
        f"L{cache.level} {cache.size_bytes / (1 << 20):g} MiB"
        if cache.size_bytes >= 1 << 20
        else f"L{cache.level} {cache.size_bytes // 1024} KiB"
        for cache in machine.caches
    )
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return (
        f"{processor_name()} ({machine.name}, {machine.isa.name}; {caches}; {machine.cores} cores), "
        f"Python {platform.python_version()}, NumPy {np.__version__} with {blas['name']} {blas['version']}, "
        f"Numba {numba.__version__}, {datetime.date.today().isoformat()}"
    )


def processor_name() -> str:
    """Return what the processor calls itself."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def command_line() -> str:
    """Return how this script was called, relative to the checkout."""
    script = Path(sys.argv[0]).resolve().relative_to(ROOT)
    return " ".join(["python", script.as_posix(), *sys.argv[1:]])


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a Markdown table; all columns but the first are aligned to the right."""
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def write_between(path: Path, name: str, text: str) -> None:
    """Replace what stands between ``<!-- name:begin -->`` and ``<!-- name:end -->`` in a file."""
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    whole = path.read_text(encoding="utf-8")
    if whole.count(begin) != 1 or whole.count(end) != 1:
        raise SystemExit(f"{path}: expected one {begin} and one {end}")
    before, rest = whole.split(begin)
    after = rest.split(end)[1]
    path.write_text(f"{before}{begin}\n{text.strip()}\n{end}{after}", encoding="utf-8")


def positive_list(text: str) -> list[int]:
    """Parse ``256,512``: an argparse type."""
    return [int(part) for part in text.split(",")]


def dtype_list(text: str) -> list[str]:
    """Parse ``f32,c128`` into NumPy names: an argparse type."""
    return [SHORT_NAMES[part] for part in text.split(",")]
