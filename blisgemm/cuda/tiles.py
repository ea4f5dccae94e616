"""One GPU kernel as a value: its tiles, what it assumes of the operands, and what it takes of the card.

Knows: how block, warp and thread tiles divide, and the account of registers and shared bytes. Does not know: products,
plans, how a kernel is written. Called by ``catalog``, ``plan`` and ``kernels``.

The same blocking as on the CPU, one level over (the CPU's word in parentheses)::

    block tile   bm x bn x bk   in shared memory, by one block of threads      (mc x nc x kc in L2 and L1)
    warp tile    wm x wn        by 32 threads in step                          (the macrokernel's loops)
    thread tile  tm x tn        in registers: sums while p runs                (mr x nr)

Layouts of an operand: ``k`` where its elements are adjacent along p (A by rows, B by columns), ``r`` where they are
along its own rows or columns (A by columns, B by rows). Shared memory has them as they come, or ``turned`` from k to r.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from ..errors import BlisgemmValueError

__all__ = ["ENGINES", "OF_THIS_PROCESS", "SHORT", "KernelSpec", "Operand", "Tile"]

SHORT = {"float32": "f32", "float64": "f64", "complex64": "c64", "complex128": "c128"}
_BYTES = {"float32": 4, "float64": 8, "complex64": 8, "complex128": 16, "float16": 2, "bfloat16": 2}
OF_THIS_PROCESS = "_of_this_process"  # ends the word of a step that means nothing elsewhere
# fma by threads; f64 tensor cores by m16n8k8 (sm_90) and m8n8k4 (sm_80); fma straight from memory (``kernels.vector``)
ENGINES = ("simt", "dmma8", "dmma4", "rows", "dots")
CHUNK_BYTES = 16  # what one thread copies at once, at most


@dataclass(frozen=True)
class Tile:
    """The tiles of one kernel. Units: elements; stages: k slabs in shared memory at once.

    Raises:
        BlisgemmValueError: the tiles don't divide into each other.
    """

    bm: int
    bn: int
    bk: int
    wm: int
    wn: int
    tm: int
    tn: int
    stages: int = 2
    blocks: int = 2  # of threads that shall fit on a multiprocessor together
    engine: str = "simt"

    def __post_init__(self) -> None:
        lanes = self.wm // self.tm * (self.wn // self.tn)
        whole = self.bm % self.wm == self.bn % self.wn == self.wm % self.tm == self.wn % self.tn == 0
        if self.engine.startswith("dmma"):  # the height of a fragment of the tensor cores
            whole = whole and self.wm % (16 if self.engine == "dmma8" else 8) == self.wn % 8 == 0
        if not whole or lanes != 32 or self.stages < 2 or self.engine not in ENGINES:
            raise BlisgemmValueError(f"tile: expected tiles that divide, 32 lanes and 2 stages or more; got {self}")

    @property
    def threads(self) -> int:
        return self.bm // self.wm * (self.bn // self.wn) * 32

    @property
    def name(self) -> str:
        return f"{self.engine}_{self.bm}x{self.bn}x{self.bk}_w{self.wm}x{self.wn}_t{self.tm}x{self.tn}_s{self.stages}"


@dataclass(frozen=True)
class Operand:
    """How one operand of a kernel lies: layout ``k`` or ``r``, and how many adjacent elements are copied at once.

    ``turned``: from layout k in memory to layout r in shared memory, element by element; or ``vector`` at once through
    registers, if k is a multiple of it.
    """

    layout: str
    vector: int
    turned: bool = False

    @property
    def shared(self) -> str:
        """Layout in shared memory."""
        return "r" if self.turned else self.layout

    @property
    def name(self) -> str:
        return f"{self.layout}{'t' if self.turned else ''}{self.vector}"


@dataclass(frozen=True)
class Step:
    """One step of an epilogue: ``x = word(x, ..., arguments)`` for each element x of C.

    Args:
        word: a name of ``kernels.words``, or what tells a Python function from every other (``epilogue``).
        arguments: their types: ``float32`` and the like for numbers, with ``[1]`` or ``[2]`` for arrays of so many
        axes.
        function: the Python function; it is not compared, ``word`` is.
    """

    word: str
    arguments: tuple[str, ...] = ()
    function: Any = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class KernelSpec:
    """One kernel: tiles, dtype, and what it assumes.

    Args:
        dtype: of A, B and the sums; out: of C, D and what the epilogue returns.
        a, b: how the operands lie. c_vector: elements of C that are stored at once along its rows (1: any strides).
        edges: whether extents may end inside tiles; without, tests for it are left out.
        reads_c: whether beta is not zero. schedule: ``tiles`` (a block of threads per tile) or ``streamk`` (a share of
        all k slabs of all tiles for each, in order; whoever is last adds the parts up, in order).
        reduction: how parts of a tile meet: ``ordered``, or ``atomic``, each added to C as it comes (C scaled before).
        copies: ``async`` (sm_80 and later) or ``plain``.
        epilogue: what is done to each element of C before it is stored; swapped: whether its rows are the caller's
        columns.
    """

    dtype: str
    tile: Tile
    a: Operand
    b: Operand
    c_vector: int = 1
    edges: bool = True
    reads_c: bool = False
    schedule: str = "tiles"
    reduction: str = "ordered"
    copies: str = "async"
    out: str = ""
    conj_a: bool = False
    conj_b: bool = False
    swapped: bool = False
    epilogue: tuple[Step, ...] = ()
    group: int = 8

    def __post_init__(self) -> None:
        object.__setattr__(self, "out", self.out or self.dtype)
        if self.streams:
            if self.b.layout != ("k" if self.tile.engine == "dots" else "r") or self.a.turned or self.b.turned:
                raise BlisgemmValueError(f"kernel: {self.tile.name} can't read B as {self.b}")
            if not self.edges:
                raise BlisgemmValueError(f"kernel: {self.tile.name} always ends inside its tile; got edges=False")
            return
        for operand, rows in ((self.a, self.tile.bm), (self.b, self.tile.bn)):
            fast, slow = (self.tile.bk, rows) if operand.layout == "k" else (rows, self.tile.bk)
            across = self.across(operand, rows)
            down = self.tile.threads // across
            uneven = slow % down and down % slow  # more threads than rows: some copy nothing
            turned = not operand.turned or operand.layout == "k"
            if fast % (across * operand.vector) or self.tile.threads % across or uneven or not turned:
                raise BlisgemmValueError(f"kernel: {self.tile.name} can't be copied by {operand}")

    @property
    def lasts(self) -> bool:
        """Whether another process would mean the same kernel by it."""
        return not any(step.word.endswith(OF_THIS_PROCESS) for step in self.epilogue)

    @property
    def complex(self) -> bool:
        return self.dtype.startswith("complex")

    @property
    def reals(self) -> str:
        """The real type of a sum."""
        return {"complex64": "float32", "complex128": "float64"}.get(self.dtype, self.dtype)

    @property
    def planes(self) -> int:
        return 2 if self.complex else 1

    @property
    def itemsize(self) -> int:
        return _BYTES[self.dtype]

    @property
    def out_itemsize(self) -> int:
        return _BYTES[self.out]

    @property
    def group_elements(self) -> int:
        """Elements in one load from shared memory."""
        return max(1, CHUNK_BYTES // self.itemsize)

    @property
    def dmma(self) -> bool:
        return self.tile.engine.startswith("dmma")

    @property
    def streams(self) -> bool:
        """Whether A and B go straight to registers."""
        return self.tile.engine in ("rows", "dots")

    def across(self, operand: Operand, rows: int) -> int:
        """Return how many threads copy side by side along the elements that are adjacent in memory.

        Turned: as many as 32 bytes take, what the card fetches at least; the other lanes of the warp lie along the
        operand's rows, so that all write to different banks.
        """
        if operand.turned:
            return 32 // self.itemsize // operand.vector
        fast = self.tile.bk if operand.layout == "k" else rows
        return min(self.tile.threads, fast // operand.vector)

    def leading(self, operand: Operand, rows: int) -> int:
        """Return the distance of the rows of an operand's slab in shared memory, in elements.

        It keeps the lanes of a warp that are served together on different banks. fmas, layout k: eight rows are read,
        16 bytes each. Tensor cores read 8 bytes for 4 rows and 4 steps, or 16 (complex128) for 2 rows and 4 steps.
        """
        along = self.tile.bk if operand.shared == "k" else rows
        if self.dmma and self.complex:
            return along + ((4 if operand.shared == "k" else 2) - along) % 8
        if self.dmma:
            return along + (4 - along) % 16
        if operand.turned:
            return along + 4 if along % 8 == 0 else along
        return along + self.group_elements if operand.layout == "k" else along

    def slab_bytes(self, operand: Operand, rows: int) -> int:
        """Return the bytes of an operand's k slab in shared memory."""
        return self.leading(operand, rows) * (rows if operand.shared == "k" else self.tile.bk) * self.itemsize

    @property
    def a_bytes(self) -> int:
        return self.slab_bytes(self.a, self.tile.bm)

    @property
    def stage_bytes(self) -> int:
        return self.a_bytes + self.slab_bytes(self.b, self.tile.bn)

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory of a block of threads."""
        if self.streams:
            return self.sum_bytes if self.tile.engine == "rows" else 0
        return self.stage_bytes * self.tile.stages

    @property
    def sums(self) -> int:
        """Real sums that a thread holds."""
        return self.tile.tm * self.tile.tn * self.planes

    @property
    def sum_bytes(self) -> int:
        """Bytes of the sums of a block of threads, which a part of a tile leaves for the last one."""
        return self.sums * self.tile.threads * (4 if self.reals == "float32" else 8)

    @property
    def name(self) -> str:
        """``f32_simt_64x128x32_w32x64_t8x8_s2_k4r4_c4`` and what else differs from the plainest kernel."""
        words = [SHORT[self.dtype], self.tile.name, self.a.name + self.b.name]
        words.append(f"c{self.c_vector}")
        words += [self.out] * (self.out != self.dtype) + ["edges"] * self.edges + ["beta"] * self.reads_c
        words += [self.schedule] * (self.schedule != "tiles") + [self.copies] * (self.copies != "async")
        words += ["atomic"] * (self.reduction == "atomic")
        words += ["conja"] * self.conj_a + ["conjb"] * self.conj_b + [step.word[:12] for step in self.epilogue]
        return "_".join(words)

    def with_(self, **changes: object) -> KernelSpec:
        """Return the same kernel with other fields."""
        return replace(self, **changes)  # type: ignore[arg-type]
