"""The facts of a card that plans are made from, and some cards by name.

Knows: multiprocessors, shared memory, registers, how fast each dtype is. Does not know: tiles, products. Called by
``plan`` (any card) and ``run`` (the one at hand).
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import BlisgemmValueError

__all__ = ["KNOWN_DEVICES", "Device"]

# fmas a clock of one multiprocessor, by compute capability: float32, float64 (tensor cores where there are some).
# Source: CUDA C++ Programming Guide, "Arithmetic Instructions"; NVIDIA's data sheets for tensor cores of float64.
_FMAS = {(7, 5): (64, 2), (8, 0): (64, 64), (8, 6): (128, 2), (8, 9): (128, 2), (9, 0): (128, 128), (10, 0): (128, 64)}
_FMAS_ELSEWHERE = (128, 2)


@dataclass(frozen=True)
class Device:
    """One card. Units: bytes; clock in GHz, 0 where nobody says."""

    name: str
    capability: tuple[int, int]
    multiprocessors: int
    shared_bytes_per_block: int
    shared_bytes_per_multiprocessor: int
    registers_per_multiprocessor: int
    threads_per_multiprocessor: int
    l2_bytes: int
    memory_bytes: int
    clock_ghz: float = 0.0

    def __post_init__(self) -> None:
        counts = ("multiprocessors", "shared_bytes_per_block", "shared_bytes_per_multiprocessor",
                  "registers_per_multiprocessor", "threads_per_multiprocessor")  # fmt: skip
        for name in counts:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise BlisgemmValueError(f"{name}: expected an integer >= 1; got {value!r}")
        capability = self.capability
        if not (isinstance(capability, tuple) and len(capability) == 2 and all(type(x) is int for x in capability)):
            raise BlisgemmValueError(f"capability: expected two integers, such as (9, 0); got {capability!r}")
        if capability < (7, 0):
            raise BlisgemmValueError(f"capability: expected (7, 0) or later; got {capability}")

    def fmas(self, reals: str) -> int:
        """Return real fmas a clock of one multiprocessor, for ``float32`` or ``float64``."""
        return _FMAS.get(self.capability, _FMAS_ELSEWHERE)[reals == "float64"]

    @property
    def asynchronous(self) -> bool:
        """Whether it copies to shared memory by itself."""
        return self.capability >= (8, 0)

    def blocks(self, threads: int, registers: int, shared_bytes: int) -> int:
        """Return how many blocks of threads fit on a multiprocessor at once.

        Registers are given by warps, 256 at a time; the card keeps 1 KiB of shared memory of each block.
        """
        per_warp = -(-registers * 32 // 256) * 256
        by_registers = self.registers_per_multiprocessor // per_warp // (threads // 32)
        by_shared = self.shared_bytes_per_multiprocessor // (shared_bytes + 1024)
        return max(0, min(by_registers, by_shared, self.threads_per_multiprocessor // threads, 32))


def _known(name: str, capability: tuple[int, int], sms: int, shared: int, l2: float, memory: int, ghz: float,
           threads: int = 2048) -> Device:  # fmt: skip
    return Device(name, capability, sms, (shared - 1) << 10, shared << 10, 65536, threads, int(l2 * 2**20),
                  memory << 30, ghz)  # fmt: skip


# Source: NVIDIA's data sheets and the CUDA C++ Programming Guide, "Compute Capabilities".
KNOWN_DEVICES = {
    "t4": Device("T4", (7, 5), 40, 64 << 10, 64 << 10, 65536, 1024, 4 << 20, 16 << 30, 1.59),
    "a100": _known("A100", (8, 0), 108, 164, 40, 80, 1.41),
    "rtx3090": _known("RTX 3090", (8, 6), 82, 100, 6, 24, 1.70, 1536),
    "rtx4090": _known("RTX 4090", (8, 9), 128, 100, 72, 24, 2.52, 1536),
    "h100": _known("H100 SXM", (9, 0), 132, 228, 50, 80, 1.98),
    "h200": _known("H200", (9, 0), 132, 228, 50, 141, 1.98),
    "b200": _known("B200", (10, 0), 148, 228, 126, 192, 1.97),
    "rtx5090": _known("RTX 5090", (12, 0), 170, 100, 96, 32, 2.41, 1536),
}
