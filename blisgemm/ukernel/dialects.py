"""How four architectures spell a kernel in assembly, and where the loops are in such a text.

Knows: patterns of instructions, and natural loops. Does not know: kernels, or how the text was made.
Called by ``assembly`` only.

Source: AT&T syntax of the GNU assembler (x86-64); Arm ARM DDI 0487 (A64); Power ISA 3.1 ch. 7 (VSX);
RISC-V unprivileged ISA, F, D and V.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["ARCHES", "CALL", "PREFETCH", "Dialect", "innermost_loops"]


@dataclass(frozen=True)
class Dialect:
    """How one architecture writes what is counted, as regular expressions on one instruction.

    ``lanes`` pairs a pattern of a multiply-add with the bits of the vector it works on, 0 for one
    element alone and ``None`` for the kernel's own vector; the first that matches counts.
    """

    triple: str
    cpu: str  # the plainest processor with fma, where a kernel names none
    lanes: tuple[tuple[str, int | None], ...]
    product: str  # what stands for the fma in a kernel of a set without it
    load: str
    broadcast: str
    store: str  # of a vector register
    stack: str
    frame: str  # the function keeps a frame pointer
    by_frame: str  # what is addressed by it
    register: str  # empty: numbers alone, as on Power


ARCHES: dict[str, Dialect] = {
    "x86_64": Dialect(
        triple="x86_64-unknown-linux-gnu",
        cpu="haswell",
        lanes=((r"vf\w*s[sd]\b", 0), (r"vf.*%zmm", 512), (r"vf.*%ymm", 256), (r"vf.*%xmm", 128)),
        product=r"v?mulp[sd]\b",
        load=r"\S+\s+[^,(]*\(.*\),.*%[xyz]mm\d+(\s*\{.*)?$",
        broadcast=r"v?broadcast|vmovddup|.*\{1to|shufps|pshufd|unpcklpd|movlhps",
        store=r"\S+\s+%[xyz]mm\d+,.*\)(\s*\{.*)?$",
        stack=r"\(%rsp",
        frame=r"(?m)^\s*movq\s+%rsp, %rbp$",
        by_frame=r"\(%rbp",
        register=r"%[xyz]mm(\d+)",
    ),
    "aarch64": Dialect(
        triple="aarch64-unknown-linux-gnu",
        cpu="generic",
        lanes=((r"fn?m(add|sub)\b", 0), (r"fml[as]\s+v\d+\.(4s|2d)", 128), (r"fml[as]\s+v\d+\.2s", 64)),
        product=r"fmul\b",
        load=r"(ldu?r|ldp|ld1)\s+\{?\s*[qvds]\d",
        broadcast=r"(dup|ld1r)\b",
        store=r"(stu?r|stp|st1)\s+\{?\s*[qvds]\d",
        stack=r"\[sp",
        frame=r"(?m)^\s*(mov|add)\s+x29, sp",
        by_frame=r"\[x29",
        register=r"\b[vqds](\d+)\b",
    ),
    "ppc64le": Dialect(
        triple="powerpc64le-unknown-linux-gnu",
        cpu="ppc64le",
        lanes=((r"xvn?m(add|sub)[am][sd]p", 128), (r"(xsn?m|fn?m)(add|sub)", 0)),
        product=r"xvmul[sd]p",
        load=r"(lxv\w*|lxs\w*|lvx|lf[sd]x?)\s",
        broadcast=r"lxv[wd]sx|xxsplt[wd]|vsplt",
        store=r"(stxv?\w*|stf[sd]\w*|stvx)\s",
        stack=r"\(1\)|^(lx|stx|lv|stv)\w* \d+, 1, \d+$",
        frame=r"(?m)^\s*mr\s+31, 1$",
        by_frame=r"\(31\)|^(lx|stx|lv|stv)\w* \d+, 31, \d+$",
        register=r"",
    ),
    "riscv64": Dialect(
        triple="riscv64-unknown-linux-gnu",
        cpu="sifive-u74",
        lanes=((r"fn?m(add|sub)\.[sd]", 0), (r"vfn?m(acc|add|sac|sub)\.v[vf]", None)),
        product=r"v?fmul\.",
        load=r"(fl[wd]|vle\d+\.v)\b",
        broadcast=r"vfmv\.v\.f|vrgather|vlse\d+",
        store=r"(fs[wd]|vs[se]\d+\.v)\b",
        stack=r"\(sp\)",
        frame=r"(?m)^\s*addi\s+s0, sp,",
        by_frame=r"\(s0\)",
        register=r"\b(v\d+|f[tas]\d+)\b",
    ),
}

# Branches, those of them that never fall through, and calls; on all four architectures.
_BRANCH = r"\s+(j\w*|b|b\w*|cbn?z|tbn?z|ret\w*)(\s|$|\.\w+\s)(?<!\sbl\s)"
_COMPUTED = r"\s+(jmpq?\s+\*|br\s|bctr|jr\s)"  # goes to what a table of addresses or distances says
_TABLE = r"(?m)^\s+\.(?:quad|long|word|hword|byte|xword|4byte|8byte|half)\s+(.*\.L.*)$"
_LEAVES = r"\s+(jmpq?|j|b|jr|br|ret\w*|blr|bctr)(\s|$)"
PREFETCH = r"(prefetch|prfm|dcbt)"
CALL = r"(callq?|bl|blr|bctrl|jalr?)\s"


def innermost_loops(assembly: str) -> list[list[str]]:
    """Return the lines of every loop that holds no other, in the order of the text.

    A loop is what reaches the tail of a back edge without passing its header (natural loops; Aho,
    Lam, Sethi and Ullman, ch. 9.6): blocks that the compiler has moved out of line still belong to it.
    """
    blocks: list[list[str]] = [[]]
    for line in assembly.splitlines():
        if re.match(r"[.\w$]+:", line):
            blocks.append([line])
        elif re.match(r"\s+[^.#\s]", line):  # neither a directive nor a comment
            blocks[-1].append(line)
            if re.match(_BRANCH, line):
                blocks.append([])
    at_label = {block[0].partition(":")[0]: i for i, block in enumerate(blocks) if block and ":" in block[0]}
    in_tables = {at_label[label] for line in re.findall(_TABLE, assembly) for label in re.findall(r"\.L\w+", line)
                 if label in at_label}  # fmt: skip
    following: list[set[int]] = []
    for i, block in enumerate(blocks):
        last = block[-1] if block else ""
        target = re.search(r"(\.L\w+)$", last) if re.match(_BRANCH, last) else None
        falls = i + 1 < len(blocks) and not re.match(_LEAVES, last)
        computed = in_tables if re.match(_COMPUTED, last) else set()
        following.append(({at_label[target[1]]} if target else computed) | ({i + 1} if falls else set()))
    before: list[set[int]] = [set() for _ in blocks]
    for i, targets in enumerate(following):
        for target_block in targets:
            before[target_block].add(i)
    loops: dict[int, set[int]] = {}
    for tail, header in _back_edges(following):
        body, left = {header}, [tail]
        while left:
            block_number = left.pop()
            if block_number not in body:
                body.add(block_number)
                left += before[block_number]
        loops.setdefault(header, set()).update(body)
    innermost = [body for header, body in sorted(loops.items()) if not (body - {header}) & loops.keys()]
    return [[line for i in sorted(body) for line in blocks[i]] for body in innermost]


def _back_edges(following: list[set[int]]) -> list[tuple[int, int]]:
    """Return the edges of a flow graph that lead to a block still on the path of a depth-first walk."""
    edges, seen, on_path = [], {0}, {0}
    walk = [(0, iter(sorted(following[0])))]
    while walk:
        block, targets = walk[-1]
        for target in targets:
            if target in on_path:
                edges.append((block, target))
            elif target not in seen:
                seen.add(target)
                on_path.add(target)
                walk.append((target, iter(sorted(following[target]))))
                break
        else:
            walk.pop()
            on_path.discard(block)
    return edges
