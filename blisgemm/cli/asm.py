"""Print a kernel as assembly, for any processor that LLVM knows: its k loop counted, its registers drawn.

Knows: how the text is shown. Does not know: how it is made and counted (``ukernel.assembly``) or what registers hold
(``teach``). Counts and map are comments, so that the output is still a file for an assembler.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Container, Iterable
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from ..errors import BlisgemmValueError
from .console import can_draw, verbatim

if TYPE_CHECKING:
    from ..teach.kstep import KStep, Word

__all__ = ["HELP", "add_arguments", "run"]

HELP = "a kernel as assembly, for any processor: counts, register map, differences"

_STYLES = {
    "sum": "cyan", "A": "yellow", "B": "green", "A and B": "bright_red", "product": "magenta", "frame": "dim", "": "",
}  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the kernel, the processor and the part to show."""
    parser.add_argument("kernel", help="a kernel of the catalog, such as f32_8x12_neon")
    parser.add_argument("other", nargs="?", help="a second kernel: as --diff")
    parser.add_argument(
        "--cpu",
        metavar="NAME",
        help="LLVM's name of a processor, such as znver4 or apple-m1; 'help' lists them",
    )
    parser.add_argument(
        "--arch", metavar="NAME", help="for kernels of the set generic: x86_64, aarch64, ppc64le or riscv64"
    )
    parser.add_argument(
        "--access",
        choices=("packed", "half", "rows", "columns", "parts"),
        default="packed",
        help="micro-panels, or the matrices as they lie: B by rows or by columns, or a kc block in parts",
    )
    parser.add_argument("--loop-only", action="store_true", help="only the loop over k")
    parser.add_argument("--map", action="store_true", help="only the counts and the register map")
    parser.add_argument(
        "--diff", metavar="KERNEL[@CPU]", help="compare the k loops of two kernels, or of one on two processors"
    )
    parser.add_argument("--json", action="store_true", help="counts, registers and the loop as JSON")


def run(args: argparse.Namespace, console: Console) -> int:
    """Print the counts and the map, then the text; or a difference; or JSON."""
    from ..ukernel import assembly, catalog

    if args.cpu == "help":
        arch, _ = assembly.target_of(catalog.by_name(args.kernel), None, args.arch)
        verbatim(console, "\n".join(assembly.cpus_of(arch)))
        return 0
    if args.other and args.diff:
        raise BlisgemmValueError(f"--diff: expected nothing beside a second kernel; got {args.diff!r}")
    steps = [_read(name, args) for name in (args.kernel, args.diff or args.other) if name]
    if args.json:
        facts = [step.facts() for step in steps]
        verbatim(console, json.dumps(facts[0] if len(facts) == 1 else facts, indent=1))
    elif len(steps) > 1:
        _print_difference(console, *steps)
    else:
        _print_kernel(console, steps[0], loop_only=args.loop_only, map_only=args.map)
    return 0


def _read(name: str, args: argparse.Namespace) -> KStep:
    from ..teach.kstep import read_kernel
    from ..ukernel import catalog
    from ..ukernel.emit import Access

    kernel, _, cpu = name.partition("@")
    return read_kernel(catalog.by_name(kernel), Access(args.access), cpu or args.cpu, args.arch)


def _print_kernel(console: Console, step: KStep, *, loop_only: bool, map_only: bool) -> None:
    from ..teach.kstep import draw_map

    head, _, body = step.text.partition("\n")
    _print(console, head, *_account(step))
    for words in draw_map(step, boxes=can_draw(console)):
        text = _styled([("#   ", "green"), *words])
        text.rstrip()
        console.print(text, soft_wrap=True)
    if not map_only:
        lines = step.loop.lines if loop_only else body.splitlines()
        _print(console, "", *lines, loop_lines=set(step.loop.lines), step=step)


def _account(step: KStep) -> list[str]:
    """Return what one k step does, beside what the tile needs."""
    from ..teach.kstep import needs

    loop, steps = step.loop, step.loop.steps or 1
    lines = [f"# k loop: {len(loop.lines) - 1} instructions for {steps} step{'s' * (steps > 1)} of k; per step"]
    for need in needs(step):
        text = need.what
        if need.needed is None:
            text += f": {need.why}" if need.counted else ""
        elif need.needed:
            text += f"; the tile needs {need.why} = {need.needed:.4g}"
            text += (
                " (vectors that are too wide here are split)"
                if need.counted > need.needed == step.spec.fmas_per_k
                else ""
            )
        elif need.counted:
            text += f": {need.why}"
        lines.append(f"#   {need.counted:5.4g} {text}")
    return [*lines, f"# {loop.registers} vector registers; {step.spec.isa.name} has {step.spec.isa.registers}"]


def _print_difference(console: Console, one: KStep, other: KStep) -> None:
    from ..teach.kdiff import difference, table

    rows = table((one, other))
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    for number, row in enumerate(rows):
        line = f"{row[0]:<{widths[0]}}  {row[1]:>{widths[1]}}  {row[2]:>{widths[2]}}"
        console.print(Text(line, style="bold" if not number else ""), soft_wrap=True)
    console.print(Text(f"\n--- {one.title}\n+++ {other.title}", style="bold"), soft_wrap=True)
    for line in difference(one, other):
        style = {"-": "red", "+": "green"}.get(line[0], "dim")
        console.print(Text(line, style=style), soft_wrap=True)


def _styled(words: Iterable[Word]) -> Text:
    text = Text()
    for word, role in words:
        text.append(word, _STYLES.get(role, role))
    return text


def _print(console: Console, *lines: str, loop_lines: Container[str] = (), step: KStep | None = None) -> None:
    """Print lines; on a terminal with comments, labels, directives, and registers of the k loop by their role."""
    from ..teach.kstep import roles_in

    for line in lines:
        text = Text(line)
        if line.startswith("#"):
            text.stylize("green")
        elif re.match(r"\S+:", line):
            text.stylize("bold yellow")
        elif re.match(r"\s+\.", line):
            text.stylize("dim")
        elif step is not None and line in loop_lines:
            text = _styled(roles_in(step, line))
        console.print(text, soft_wrap=True)
