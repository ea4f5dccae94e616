"""What a microkernel is, as a value, and the checks that it can exist.

Knows: names, shapes, dtypes, the register budget. Does not know: how a kernel is emitted
(``emit``) or which ones the library carries (``catalog``). Pure; called by everything above.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..errors import BlisgemmValueError
from ..machine.facts import Isa

__all__ = ["SHORT_NAMES", "SWEEP_STEPS", "KernelSpec", "rows_together", "vectors_of_sweep"]

SHORT_NAMES = {"float32": "f32", "float64": "f64", "complex64": "c64", "complex128": "c128"}
_REAL_BITS = {"float32": 32, "float64": 64, "complex64": 32, "complex128": 64}

# Rows of B that pass at once in ``sweep``, side by side. Source: Zen 3 VM, AVX2, busy, 2026-11-30, speed of 4 and of 16
# by that of 8, 1, 2, 4, 6 rows, B of 1000 and 2000 square: f32 1.00 0.98 0.89 0.84, 0.91 0.83 0.80 0.87 and 0.90 0.99
# 1.05 1.08, 0.93 0.90 0.86 0.92; f64 0.98 0.92 0.88 0.90, 0.91 0.83 0.85 0.93 and 0.92 1.00 1.01 1.04, 0.90 0.70 0.66
# 0.73; c64, c128 0.80 to 0.94 and 0.62 to 1.01.
SWEEP_STEPS = 8

# Rows of A that meet B at once in ``sweep``, at most, of reals; half as many of complex numbers. Source: there, speed
# of 4 and of 3 by that of 6, f32 and f64: 4 rows 1.00 and 0.80; 5 rows 0.90 and 0.91; 6 rows 0.93 to 1.00 and 0.94 to
# 0.99; 8 and 12 rows 0.98 to 1.12 and 0.92 to 1.01. More than 6 were not tried.
SWEEP_ROWS = 6


@dataclass(frozen=True)
class KernelSpec:
    """One microkernel: an mr x nr tile of C held in registers while p runs.

    Args:
        a_dtype, b_dtype: element types of A and B as NumPy names.
        acc_dtype: element type of the accumulators and of C.
        mr, nr: rows and columns of the micro-tile, in elements.
        isa: the vector set that the tile is laid out for.
        kr: consecutive p that one register lane consumes (1 for plain fma kernels).
        unroll: copies of the k step in the loop over packed panels. It changes speed only:
            every element of C is one chain of p in order.

    Raises:
        BlisgemmValueError: the tile doesn't divide into vectors, or needs more registers
            than the set has.
    """

    a_dtype: str
    b_dtype: str
    acc_dtype: str
    mr: int
    nr: int
    isa: Isa
    kr: int = 1
    unroll: int = 4

    def __post_init__(self) -> None:
        for field, value in (("a_dtype", self.a_dtype), ("b_dtype", self.b_dtype), ("acc_dtype", self.acc_dtype)):
            if value not in _REAL_BITS:
                raise BlisgemmValueError(f"{field}: expected one of {', '.join(_REAL_BITS)}; got {value!r}")
        if self.mr < 1 or self.nr < 1 or self.nr % self.lanes:
            raise BlisgemmValueError(
                f"mr, nr: expected mr >= 1 and nr a positive multiple of {self.lanes} lanes "
                f"({self.acc_dtype} on {self.isa.name}); got mr={self.mr}, nr={self.nr}"
            )
        if self.registers_needed > self.isa.registers:
            raise BlisgemmValueError(
                f"mr, nr: expected at most {self.isa.registers} vector registers on {self.isa.name}; "
                f"{self.mr}x{self.nr} {self.acc_dtype} needs {self.register_account}"
            )

    @property
    def name(self) -> str:
        """``<dtype>_<mr>x<nr>_<isa>``, e.g. ``f32_12x32_avx512``."""
        return f"{SHORT_NAMES[self.acc_dtype]}_{self.mr}x{self.nr}_{self.isa.name}"

    @property
    def complex(self) -> bool:
        """Whether elements are (re, im) pairs, kept planar in a micro-panel."""
        return self.acc_dtype.startswith("complex")

    @property
    def sweep_rows(self) -> int:
        """Rows of A that meet B at once in ``sweep``, at most."""
        return max(rows for rows in range(1, SWEEP_ROWS // self.planes + 1) if vectors_of_sweep(self, rows))

    @property
    def planes(self) -> int:
        """Real numbers per element: 1, or 2 for complex."""
        return 2 if self.complex else 1

    @property
    def real_bits(self) -> int:
        """Width of the real number that the lanes hold."""
        return _REAL_BITS[self.acc_dtype]

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.planes * self.real_bits // 8

    @property
    def lanes(self) -> int:
        """Real numbers per vector register."""
        return self.isa.vector_bytes * 8 // self.real_bits

    @property
    def row_vectors(self) -> int:
        """Vectors that one row of the tile takes, per plane."""
        return self.nr // self.lanes

    @property
    def chains(self) -> int:
        """Accumulators per element: 1, or for complex the four sums rr, ii, ri, ir."""
        return 4 if self.complex else 1

    @property
    def accumulators(self) -> int:
        """Vector registers that hold sums."""
        return self.mr * self.row_vectors * self.chains

    @property
    def sums(self) -> int:
        """Reals that the sums of one micro-tile take in memory."""
        return self.accumulators * self.lanes

    @property
    def one(self) -> Any:
        """The factor of C from the second kc block on."""
        return 1 + 0j if self.complex else 1.0

    @property
    def zero(self) -> Any:
        """The factor of C when C is not read."""
        return 0j if self.complex else 0.0

    @property
    def fmas_per_k(self) -> int:
        """Vector fused multiply-adds of one k step: one per accumulator."""
        return self.accumulators

    @property
    def b_registers(self) -> int:
        """Vector registers that B passes through: its whole row, unless there is one row of A to meet it."""
        return self.planes * (self.row_vectors if self.mr > 1 else 1)

    @property
    def registers_needed(self) -> int:
        """Accumulators, the row of B, and what A's elements pass through.

        A broadcast that the fma reads from memory needs no register on AVX-512; one is counted
        all the same, since AVX2 and SSE2 need it. Lane-indexed fmas hold one vector of A.
        """
        without_fma = 0 if self.isa.fma else 1  # the product before it is added
        return self.accumulators + self.b_registers + 1 + without_fma

    @property
    def register_account(self) -> str:
        """The budget in words: ``24 accumulators + 2 of B + 1 broadcast = 27 of 32``."""
        extra = "" if self.isa.fma else " + 1 product"
        return (
            f"{self.accumulators} accumulators + {self.b_registers} of B + 1 broadcast{extra} "
            f"= {self.registers_needed} of {self.isa.registers}"
        )

    @property
    def flops_per_k(self) -> int:
        """Floating-point operations of one k step (a complex term is 8)."""
        return self.mr * self.nr * (8 if self.complex else 2)


def vectors_of_sweep(spec: KernelSpec, rows: int) -> int:
    """Return how many vectors of columns a tile of ``sweep`` takes for so many rows; 0: there are too few registers.

    As many as keep eight fmas going, which at a latency of four cycles is two a cycle (Agner Fog's tables).
    """
    without_fma = 0 if spec.isa.fma else 1
    room = spec.isa.registers - spec.planes - without_fma  # beside an element of A, and the product before it is added
    chains = rows * spec.chains
    return min(4, -(-8 // chains), room // (chains + spec.planes))


def rows_together(spec: KernelSpec, m: int) -> int:
    """Return how many of m rows meet B at once in ``loops.sweep_rows``: as even as can be."""
    return -(-m // -(-m // spec.sweep_rows))
