"""Print a kernel as assembly, for any processor that LLVM knows, and count its k loop.

Knows: how the text is shown. Does not know: how it is made and counted (``ukernel.assembly``). The
counts are comments, so that the output is still a file for an assembler.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Container
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from .console import verbatim

if TYPE_CHECKING:
    from ..ukernel.assembly import KLoop
    from ..ukernel.spec import KernelSpec

__all__ = ["HELP", "add_arguments", "run"]

HELP = "a kernel as assembly, for any processor"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the kernel, the processor and the part to show."""
    parser.add_argument("kernel", help="a kernel of the catalog, such as f32_8x12_neon")
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


def run(args: argparse.Namespace, console: Console) -> int:
    """Print the counts, then the text."""
    from ..ukernel import assembly, catalog
    from ..ukernel.emit import Access

    spec = catalog.by_name(args.kernel)
    if args.cpu == "help":
        arch, _ = assembly.target_of(spec, None, args.arch)
        verbatim(console, "\n".join(assembly.cpus_of(arch)))
        return 0
    triple = assembly.triple_of(args.arch) if args.arch else None
    text = assembly.assemble(spec, Access(args.access), args.cpu, triple)
    loop = assembly.k_loop(text, spec)
    head, _, body = text.partition("\n")
    _print(console, head, *_account(spec, loop))
    _print(console, *(loop.lines if args.loop_only else body.splitlines()), loop_lines=set(loop.lines))
    return 0


def _account(spec: KernelSpec, loop: KLoop) -> list[str]:
    """Return what one k step does, beside what the tile needs."""
    steps = loop.steps or 1
    product = "fmas" if spec.isa.fma else "products, each with its sum"
    chains = f" x {spec.chains} sums" if spec.chains > 1 else ""
    vectors = "1 vector" if spec.row_vectors == 1 else f"{spec.row_vectors} vectors"
    lane = "" if loop.broadcasts or spec.isa.broadcast != "lane" else ": each fma picks a lane of A"
    spilled = " (spilled registers)" if loop.stack_accesses else ""
    rows = [
        (loop.fmas, f"{product}; the tile needs {spec.mr} rows x {vectors}{chains} = {spec.fmas_per_k}"),
        (loop.loads, "vector loads"),
        (loop.broadcasts, f"broadcasts{lane}"),
        (loop.stack_accesses, f"accesses of the stack{spilled}"),
        (loop.others, "other instructions: moves, addresses, the loop itself"),
    ]
    if loop.calls:
        rows.append((loop.calls, "calls of a function: this processor has no fma"))
    lines = [f"# k loop: {len(loop.lines) - 1} instructions for {steps} step{'s' * (steps > 1)} of k; per step"]
    lines += [f"#   {count / steps:5.4g} {what}" for count, what in rows]
    return [*lines, f"# {loop.registers} vector registers; {spec.isa.name} has {spec.isa.registers}", ""]


def _print(console: Console, *lines: str, loop_lines: Container[str] = ()) -> None:
    """Print lines; on a terminal with comments, labels, directives and multiply-adds told apart."""
    for line in lines:
        text = Text(line)
        if line.startswith("#"):
            text.stylize("green")
        elif re.match(r"\S+:", line):
            text.stylize("bold yellow")
        elif re.match(r"\s+\.", line):
            text.stylize("dim")
        elif line in loop_lines and re.match(r"\s+(vf\w*m|fml|fmadd|xvm|v?mulp|vfmacc|vfmadd)", line):
            text.stylize("cyan")
        console.print(text, soft_wrap=True)
