"""What an instruction of a k loop does with registers: loads, copies, multiply-adds, pointers that advance.

Knows: the operands of vector instructions on four architectures. Does not know: what they compute together
(``registers``) or how they are counted (``ukernel.assembly``). Called by ``registers`` only.

Source: Intel SDM vol. 2 (vfmadd132/213/231), Arm ARM DDI 0487 (fmla by element), Power ISA 3.1 (xvmadda, xvmaddm),
RISC-V V 1.0, section 13.6 (vfmacc, vfmadd).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

__all__ = ["READERS", "Advance", "Copy", "Effect", "Fma", "Load", "Memory", "Operand", "Product", "Sum"]


@dataclass(frozen=True)
class Memory:
    """A place in memory: registers added up, and a distance; ``wide``: a vector there, not one element."""

    bases: tuple[str, ...]
    distance: int
    wide: bool


@dataclass(frozen=True)
class Operand:
    """What is multiplied: a register, an element of one, or memory."""

    register: str = ""
    lane: int | None = None
    memory: Memory | None = None


@dataclass(frozen=True)
class Load:
    """``dst`` gets what lies in memory, an element perhaps in all lanes."""

    dst: str
    memory: Memory


@dataclass(frozen=True)
class Copy:
    """``dst`` gets the value of ``src``, or one of its elements in all lanes."""

    dst: str
    src: str
    lane: int | None = None


@dataclass(frozen=True)
class Fma:
    """``dst`` gets ``addend + x y``."""

    dst: str
    addend: str
    x: Operand
    y: Operand


@dataclass(frozen=True)
class Product:
    """``dst`` gets ``x y``."""

    dst: str
    x: Operand
    y: Operand


@dataclass(frozen=True)
class Sum:
    """``dst`` gets the sum of two registers."""

    dst: str
    x: str
    y: str


@dataclass(frozen=True)
class Advance:
    """A pointer goes on by a constant; ``by is None``: to somewhere unknown."""

    register: str
    by: int | None


Effect = Load | Copy | Fma | Product | Sum | Advance


def _operands(line: str) -> tuple[str, list[str]]:
    """Return the mnemonic, and the operands that commas outside brackets part."""
    word, _, rest = line.strip().partition("\t")
    if not rest:
        word, _, rest = line.strip().partition(" ")
    return word, [part.strip() for part in re.split(r",\s*(?![^(\[]*[)\]])", rest) if part.strip()]


# ---- x86-64, AT&T: the destination comes last ---------------------------------------------------

_X86_WIDE = r"vmaskmovp[sd]$|v?mov(aps|apd|ups|upd|dqu\w*|dqa\w*)$"
_X86_ELEMENT = r"v?movs[sd]$|vbroadcasts[sd]$|v?movddup$|vpbroadcast\w+$"
_X86_SPREAD = r"v?shufp[sd]$|v?unpcklp[sd]$|v?movlhps$|vpermilps$|v?pshufd$"


def _x86(line: str) -> Iterator[Effect]:
    word, parts = _operands(line)
    if not parts:
        return
    dst = _x86_register(parts[-1])
    if re.match(r"vf\w+p[sd]$", word):
        third, second = _x86_operand(parts[0]), _x86_operand(parts[1])
        order = re.search(r"(132|213|231)", word)
        held = Operand(dst)
        if order is None:
            return
        if order[1] == "231":
            yield Fma(dst, dst, second, third)
        elif order[1] == "213":
            yield Fma(dst, third.register, second, held)
        else:
            yield Fma(dst, second.register, held, third)
    elif re.match(r"v?mulp[sd]$", word):
        yield Product(dst, _x86_operand(parts[0]), _x86_operand(parts[-2] if len(parts) == 3 else parts[1]))
    elif re.match(r"v?addp[sd]$", word):
        yield Sum(dst, _x86_register(parts[0]), _x86_register(parts[-2] if len(parts) == 3 else parts[1]))
    elif re.match(f"{_X86_WIDE}|{_X86_ELEMENT}|{_X86_SPREAD}", word) and dst:
        memory = _x86_memory(parts[0], wide=bool(re.match(_X86_WIDE, word)))
        if memory:
            yield Load(dst, memory)
        elif _x86_register(parts[-2]) and not word.startswith("movs"):
            yield Copy(dst, _x86_register(parts[-2]))
    elif re.match(r"(add|sub)q$", word) and parts[0].startswith("$"):
        yield Advance(parts[1], int(parts[0][1:], 0) * (-1 if word == "subq" else 1))
    elif re.match(r"(inc|dec)q$", word):
        yield Advance(parts[0], 1 if word == "incq" else -1)
    elif re.match(r"(mov|lea|add|sub)q$", word):
        yield Advance(parts[-1], None)


def _x86_register(text: str) -> str:
    found = re.match(r"%([xyz]mm\d+)", text)
    return found[1] if found else ""


def _x86_memory(text: str, *, wide: bool) -> Memory | None:
    found = re.match(r"(-?\w*)\(([^)]*)\)(.*)", text)
    if not found:
        return None
    bases = tuple(part for part in found[2].split(",") if part)
    return Memory(bases, int(found[1] or "0", 0), wide and "1to" not in found[3])


def _x86_operand(text: str) -> Operand:
    memory = _x86_memory(text, wide=True)
    return Operand(memory=memory) if memory else Operand(_x86_register(text))


# ---- AArch64 ------------------------------------------------------------------------------------


def _aarch64(line: str) -> Iterator[Effect]:
    word, parts = _operands(line)
    if re.match(r"(ldu?r|ldp|ld1r?)$", word):
        yield from _aarch64_load(word, parts)
    elif word == "fmla" and len(parts) == 3:
        dst, x, y = (_aarch64_operand(part) for part in parts)
        yield Fma(dst.register, dst.register, x, y)
    elif word == "fmul" and len(parts) == 3:
        dst, x, y = (_aarch64_operand(part) for part in parts)
        yield Product(dst.register, x, y)
    elif word == "dup" and "." in parts[1]:
        src = _aarch64_operand(parts[1])
        yield Copy(_aarch64_operand(parts[0]).register, src.register, src.lane)
    elif word == "mov" and parts[0].startswith("v") and parts[1].startswith("v") and "[" not in line:
        yield Copy(_aarch64_operand(parts[0]).register, _aarch64_operand(parts[1]).register)
    elif re.match(r"(add|sub)s?$", word) and parts[-1].startswith("#") and parts[0] == parts[1]:
        yield Advance(parts[0], int(parts[2][1:], 0) * (-1 if word.startswith("sub") else 1))
    elif re.match(r"(add|sub|mov)$", word):
        yield Advance(parts[0], None)


def _aarch64_load(word: str, parts: list[str]) -> Iterator[Effect]:
    place = next((i for i, part in enumerate(parts) if part.startswith("[")), None)
    if place is None or not re.match(r"\{?\s*[qvds]\d", parts[0]):
        return
    inside = [part.strip() for part in parts[place].strip("[]!").split(",")]
    distance = int(inside[1][1:], 0) if len(inside) > 1 and inside[1].startswith("#") else 0
    bases = tuple(part for part in inside if not part.startswith("#"))
    wide = bool(re.match(r"\{?\s*[qv]", parts[0])) and word != "ld1r"
    size = {"q": 16, "v": 16, "d": 8, "s": 4}[parts[0].strip("{ ")[0]]
    if parts[place].endswith("!"):  # the pointer goes on first
        yield Advance(inside[0], distance)
        distance = 0
    for number, register in enumerate(parts[:place]):
        name = _aarch64_operand(register.strip("{} ")).register
        yield Load(name, Memory(bases, distance + number * size, wide))
    if len(parts) > place + 1:  # and here afterwards
        yield Advance(inside[0], int(parts[-1][1:], 0) if parts[-1].startswith("#") else None)


def _aarch64_operand(text: str) -> Operand:
    found = re.match(r"[vqds](\d+)(?:\.\w+)?(?:\[(\d+)\])?", text)
    if not found:
        return Operand()
    return Operand(f"v{found[1]}", None if found[2] is None else int(found[2]))


# ---- Power: bare numbers ------------------------------------------------------------------------


def _ppc64le(line: str) -> Iterator[Effect]:
    word, parts = _operands(line)
    if re.match(r"xvmadd[am][sd]p$", word):
        dst, x, y = (f"vs{part}" for part in parts)
        yield Fma(dst, dst, Operand(x), Operand(y)) if word[6] == "a" else Fma(dst, y, Operand(x), Operand(dst))
    elif re.match(r"lxv[wd]sx$|lxvx$|lxvd2x$|lxvw4x$", word):
        bases = tuple(part for part in parts[1:] if part != "0")
        yield Load(f"vs{parts[0]}", Memory(bases, 0, not word.endswith("sx")))
    elif word == "lxv":
        found = re.match(r"(-?\d+)\((\d+)\)", parts[1])
        if found:
            yield Load(f"vs{parts[0]}", Memory((found[2],), int(found[1]), True))
    elif re.match(r"xxspltw|xxspltd|xxpermdi|xxswapd", word):
        yield Copy(f"vs{parts[0]}", f"vs{parts[1]}", int(parts[-1]) if word.startswith("xxsplt") else None)
    elif word == "addi":
        yield Advance(parts[0], int(parts[2]) if parts[0] == parts[1] else None)


# ---- RISC-V -------------------------------------------------------------------------------------


def _riscv64(line: str) -> Iterator[Effect]:
    word, parts = _operands(line)
    if re.match(r"vfmacc\.v[vf]$", word):
        yield Fma(parts[0], parts[0], Operand(parts[1]), Operand(parts[2]))
    elif re.match(r"vfmadd\.v[vf]$", word):
        yield Fma(parts[0], parts[2], Operand(parts[1]), Operand(parts[0]))
    elif re.match(r"vle\d+\.v$|fl[wd]$", word):
        found = re.match(r"(-?\d*)\((\w+)\)", parts[1])
        if found:
            yield Load(parts[0], Memory((found[2],), int(found[1] or "0"), word.startswith("v")))
    elif re.match(r"vfmv\.v\.f$|vmv\d?r?\.v", word):
        yield Copy(parts[0], parts[1])
    elif word == "addi":
        yield Advance(parts[0], int(parts[2])) if parts[0] == parts[1] else Copy(parts[0], f"{parts[1]}+{parts[2]}")


READERS: dict[str, Callable[[str], Iterator[Effect]]] = {
    "x86_64": _x86,
    "aarch64": _aarch64,
    "ppc64le": _ppc64le,
    "riscv64": _riscv64,
}
