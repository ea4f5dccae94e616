"""Facts about a machine, as frozen values.

Knows: the dataclasses. Does not know: how a fact is found (``detect``) or what it
is used for (``blocking``, ``ukernel``). Called by every pure layer.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Cache", "Isa", "Machine"]


@dataclass(frozen=True)
class Cache:
    """One level of data cache.

    Units: ``size_bytes`` and ``line_bytes`` in bytes; ``ways`` is the associativity;
    ``cores`` is how many cores share one instance.
    """

    level: int
    size_bytes: int
    ways: int
    line_bytes: int = 64
    cores: int = 1

    @property
    def sets(self) -> int:
        """Number of sets, ``size / (ways * line)``."""
        return self.size_bytes // (self.ways * self.line_bytes)

    @property
    def way_bytes(self) -> int:
        """Bytes of one way over all sets."""
        return self.sets * self.line_bytes


@dataclass(frozen=True)
class Isa:
    """One vector instruction set, as far as a microkernel generator needs it.

    Args:
        name: the word used in kernel names, e.g. ``avx2``.
        arch: ``x86_64``, ``aarch64`` or ``any``.
        vector_bytes: width of one vector register.
        registers: number of architectural vector registers.
        fma: whether a fused multiply-add exists. Without it the bits of a product differ.
        masks: whether masked vector loads and stores are single instructions that
            never fault on masked-off lanes.
        masked_stores: whether the stores among them are as fast as plain ones.
        broadcast: ``memory`` (a scalar is loaded and broadcast by one instruction) or
            ``lane`` (a vector is loaded and the fma picks a lane).
        features: LLVM feature names that the host must report for this set to run.
        llvm_cpu: the plainest LLVM CPU that has it; a kernel is compiled for this CPU, so
            that a lower set forced on a newer machine really uses the lower set. ``None``
            compiles for the host.
    """

    name: str
    arch: str
    vector_bytes: int
    registers: int
    fma: bool
    masks: bool
    masked_stores: bool
    broadcast: str
    features: tuple[str, ...]
    llvm_cpu: str | None

    def lanes(self, itemsize: int) -> int:
        """Elements of ``itemsize`` bytes in one vector register."""
        return self.vector_bytes // itemsize


@dataclass(frozen=True)
class Machine:
    """One core's view of a computer: its vector set, caches and neighbours.

    ``l3`` is ``None`` on a machine without a third level. ``notes`` says in plain words
    which facts could not be read and what was assumed instead.
    """

    name: str
    arch: str
    isa: Isa
    l1: Cache
    l2: Cache
    l3: Cache | None
    cores: int
    page_bytes: int = 4096
    source: str = ""
    notes: tuple[str, ...] = ()

    @property
    def caches(self) -> tuple[Cache, ...]:
        """The levels that exist, nearest first."""
        return tuple(c for c in (self.l1, self.l2, self.l3) if c is not None)
