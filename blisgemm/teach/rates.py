"""How fast a machine is: fused multiply-adds and bytes per second of each level, from data sheets.

Knows: clocks, fma pipes, bytes a clock and memory of the machines of ``known`` and of some GPUs, and where each figure
is printed. Does not know: products (``roofline``), or how a machine is measured (``bench.rates``). Pure. Called by
``explain``, ``roofline`` and ``bench.rates``, which returns the same value.

A rate here is a roof: the highest clock on every core, the widest path in every cycle. All cores together, or wide
vectors, run at lower clocks. A figure that its vendor does not print is absent, and no roof is drawn for it.

Sources, cited by short name in the table:

- IOM: Intel 64 and IA-32 Architectures Optimization Reference Manual (248966): the cache parameters and execution
  units of each microarchitecture; Haswell's ring as Sandy Bridge's: 32 bytes a cycle at each stop
- ARK: ark.intel.com, highest turbo frequency, memory types
- SOG: AMD Software Optimization Guide of the family (56305, 56665, 57647, 58455): load and floating-point pipes, paths
  between the caches; Zen 4's and Zen 5's paths from L2 to L1 as AMD showed them at Hot Chips 2023 and 2024
- AMD: amd.com, maximum boost clock and memory speed of the part
- ASOG: Arm Neoverse N1 (PJDOC-466751330-9707), V1 (PJDOC-466751330-9685) and V2 (PJDOC-466751330-593177) Software
  Optimization Guide, the pipelines; clocks and memory as Amazon announced them
- APL: Apple Silicon CPU Optimization Guide; Apple's announcement of the M1
- NV: NVIDIA's data sheet of the card, memory bandwidth
"""

from __future__ import annotations

from dataclasses import dataclass

from ..cuda.device import KNOWN_DEVICES, Device
from ..errors import BlisgemmTypeError, BlisgemmValueError
from ..machine.facts import Machine

__all__ = ["GPU_BYTES_PER_SECOND", "Level", "Rates", "Sheet", "data_sheet", "device_sheet", "real_of"]


@dataclass(frozen=True)
class Level:
    """One level's bandwidth. Units: bytes per second of one core, and of all together; ``None``: no such limit."""

    name: str
    of_core: float | None
    of_all: float | None = None

    def rate(self, threads: int) -> float:
        """Return bytes per second for so many threads, each on a core of its own."""
        limits = [self.of_core * threads] if self.of_core is not None else []
        limits += [self.of_all] if self.of_all is not None else []
        return min(limits)


@dataclass(frozen=True)
class Rates:
    """How fast a machine is.

    Attributes:
        name: of the machine. source: of the figures, or how they were measured.
        peaks: floating-point operations per second of one core, by real type: (``float32``, ...), (``float64``, ...).
        levels: nearest first; a level without a public figure is absent.
        cores: how many there are.
    """

    name: str
    source: str
    peaks: tuple[tuple[str, float], ...]
    levels: tuple[Level, ...]
    cores: int = 1

    def peak(self, dtype: str, threads: int = 1) -> float:
        """Return flops per second of so many cores; complex products count their real operations.

        Raises:
            BlisgemmValueError: there is no peak for the dtype.
        """
        peaks = dict(self.peaks)
        if real_of(dtype) not in peaks:
            raise BlisgemmValueError(f"dtype: expected one with a peak, {', '.join(peaks)}; got {dtype!r}")
        return peaks[real_of(dtype)] * threads

    def bandwidth(self, level: str, threads: int = 1) -> float | None:
        """Return bytes per second of a level, ``None`` where nobody says."""
        return next((each.rate(threads) for each in self.levels if each.name == level), None)


def real_of(dtype: str) -> str:
    """Return the real type that the lanes of a dtype hold.

    Example:
        >>> real_of("complex64"), real_of("float64")
        ('float32', 'float64')
    """
    return {"complex64": "float32", "complex128": "float64"}.get(dtype, dtype)


@dataclass(frozen=True)
class Sheet:
    """What data sheets say of one machine. Units: GHz; bytes; cycles of a core.

    Attributes:
        part: the processor named. ghz, base_ghz: highest and guaranteed clock.
        pipes, pipe_bytes: vector pipes that multiply and add, and how wide one is.
        pairs: multiplications with an addition each per cycle, where they are two instructions.
        l1, l2, l3: bytes per cycle of a core from each level; 0: not public.
        memory: channels of 8 bytes, and million transfers per second.
    """

    part: str
    ghz: float
    base_ghz: float
    pipes: int
    pipe_bytes: int
    l1: int
    l2: int
    l3: int
    memory: tuple[int, int]
    source: str
    pairs: int = 1

    def peak_bytes(self, machine: Machine) -> int:
        """Return bytes of operands that are multiplied and added per cycle, with the machine's vector set."""
        width = min(self.pipe_bytes, machine.isa.vector_bytes)
        return (self.pipes if machine.isa.fma else self.pairs) * width

    @property
    def memory_rate(self) -> float:
        """Bytes per second of all channels."""
        return self.memory[0] * self.memory[1] * 1e6 * 8


# By the names of ``machine.known``. A machine without a row: Cortex-A53 (Arm prints no timings of it), ``generic``.
_SHEETS = {
    "generic-sse2": Sheet("Core i7-920", 2.93, 2.66, 2, 16, 16, 0, 0, (3, 1066), "IOM Nehalem, ARK"),
    "haswell": Sheet("Core i7-4770", 3.9, 3.4, 2, 32, 64, 64, 32, (2, 1600), "IOM Haswell, ARK"),
    "skylake": Sheet("Core i7-6700", 4.0, 3.4, 2, 32, 64, 64, 32, (2, 2133), "IOM Skylake client, ARK"),
    "alder-lake": Sheet("Core i9-12900K", 5.2, 3.2, 2, 32, 96, 64, 0, (2, 4800), "IOM Golden Cove, ARK"),
    "skylake-x": Sheet("Core i9-7900X", 4.5, 3.3, 2, 64, 128, 64, 16, (4, 2666), "IOM Skylake server, ARK"),
    "ice-lake-sp": Sheet("Xeon 8380", 3.4, 2.3, 2, 64, 128, 64, 0, (8, 3200), "IOM Ice Lake, ARK"),
    "sapphire-rapids": Sheet("Xeon 8480+", 3.8, 2.0, 2, 64, 128, 64, 0, (8, 4800), "IOM Golden Cove, ARK"),
    "zen2": Sheet("Ryzen 7 3700X", 4.4, 3.6, 2, 32, 64, 32, 32, (2, 3200), "SOG 56305, AMD", pairs=2),
    "zen3": Sheet("Ryzen 7 5800X", 4.7, 3.8, 2, 32, 64, 32, 32, (2, 3200), "SOG 56665, AMD", pairs=2),
    "zen4": Sheet("Ryzen 7 7700X", 5.4, 4.5, 2, 32, 64, 32, 32, (2, 5200), "SOG 57647, AMD", pairs=2),
    "zen5": Sheet("Ryzen 7 9700X", 5.5, 3.8, 2, 64, 128, 64, 32, (2, 5600), "SOG 58455, AMD", pairs=2),
    "neoverse-n1": Sheet("Graviton2", 2.5, 2.5, 2, 16, 32, 0, 0, (8, 3200), "ASOG"),
    "neoverse-v1": Sheet("Graviton3", 2.6, 2.6, 4, 16, 48, 0, 0, (8, 4800), "ASOG"),
    "neoverse-v2": Sheet("Graviton4", 2.8, 2.8, 4, 16, 48, 0, 0, (12, 5600), "ASOG"),
    "apple-m1": Sheet("Apple M1, performance cores", 3.2, 3.2, 4, 16, 48, 0, 0, (2, 4266), "APL"),
}

# Memory bandwidth by the names of ``cuda.device.KNOWN_DEVICES``. Source: NV; b200: one of the eight of an HGX B200.
GPU_BYTES_PER_SECOND = {
    "t4": 320e9, "a100": 2039e9, "rtx3090": 936e9, "rtx4090": 1008e9, "h100": 3.35e12, "h200": 4.8e12, "b200": 8e12,
    "rtx5090": 1792e9,
}  # fmt: skip


def data_sheet(machine: Machine) -> Rates | None:
    """Return the rates of a machine of ``known``, or of a host with such cores; ``None`` where nobody prints them.

    Example:
        >>> from blisgemm.machine import KNOWN
        >>> rates = data_sheet(KNOWN["haswell"])
        >>> f"{rates.peak('float32') / 1e9:.1f} GFLOP/s, {rates.bandwidth('memory') / 1e9:.1f} GB/s"
        '124.8 GFLOP/s, 25.6 GB/s'
        >>> data_sheet(KNOWN["generic"]) is None
        True
    """
    if not isinstance(machine, Machine):
        raise BlisgemmTypeError(f"machine: expected a Machine, as machine_named returns; got {machine!r}")
    sheet = _SHEETS.get(machine.name)
    if sheet is None:
        return None
    clock = sheet.ghz * 1e9
    peaks = tuple((real, 2 * sheet.peak_bytes(machine) // size * clock) for real, size in _REALS)
    per_cycle = (("L1", sheet.l1), ("L2", sheet.l2), ("L3", sheet.l3 if machine.l3 else 0))
    levels = [Level(name, count * clock) for name, count in per_cycle if count]
    levels.append(Level("memory", None, sheet.memory_rate))
    source = f"data sheet of {sheet.part} at {sheet.ghz} GHz (guaranteed {sheet.base_ghz}): {sheet.source}"
    return Rates(machine.name, source, peaks, tuple(levels), machine.cores)


_REALS = (("float32", 4), ("float64", 8))


def device_sheet(name: str) -> tuple[Device, Rates]:
    """Return a GPU by name and its rates: what its multiprocessors compute, and its memory.

    Raises:
        BlisgemmValueError: no such card; the message lists those that exist.

    Example:
        >>> device, rates = device_sheet("h200")
        >>> f"{rates.peak('float32') / 1e12:.0f} TFLOP/s, {rates.bandwidth('memory') / 1e12} TB/s"
        '67 TFLOP/s, 4.8 TB/s'
    """
    key = str(name).lower().replace(" ", "")
    if key not in KNOWN_DEVICES or key not in GPU_BYTES_PER_SECOND:
        raise BlisgemmValueError(f"device: expected one of {', '.join(GPU_BYTES_PER_SECOND)}; got {name!r}")
    device = KNOWN_DEVICES[key]
    per_fma = 2 * device.multiprocessors * device.clock_ghz * 1e9
    peaks = tuple((real, device.fmas(real) * per_fma) for real, _ in _REALS)
    source = f"data sheet of {device.name}: {device.multiprocessors} multiprocessors at {device.clock_ghz} GHz"
    return device, Rates(device.name, source, peaks, (Level("memory", None, GPU_BYTES_PER_SECOND[key]),))
