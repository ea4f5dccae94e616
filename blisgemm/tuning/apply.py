"""How tuned choices enter a plan: in place of the model's mc, nc, mt and limits of the direct path.

Knows: where a choice was measured and how far from there it still counts. Does not know: files, or how a choice
was found. Pure. Called by ``plan``. None of this touches kc.

A tuned mc, nc or mt is a limit, as the model's is: it is made even over the rows and columns of the product at hand,
so a small product takes no more memory than it needs. It holds a number of bytes: where kc is shorter, the block has
more columns. The tiles of several threads, mt x nc, grow with the product, so there they count near the sizes timed
only.
"""

from __future__ import annotations

from dataclasses import replace

from ..blocking import PANEL_BYTES_MAX, Blocking, even_columns, even_rows, footprints, pack_together, say_tiles
from ..machine.facts import Machine
from ..ukernel.spec import KernelSpec
from .choices import Choice, Tuning

__all__ = ["direct_limits", "lane_terms", "tuned_blocking"]

# A kc below this part of the one that was timed is another case, left to the model. Source: our choice.
_KC_PART = 2

# A tile counts where C has up to so many times more or fewer elements than where it was timed. Source: of the tiles of
# blocking.tiles_for, the best at n = 1000 and 2000 lost 4 % at 4000 and 11 % at 8000.
_AREA = 4


def tuned_blocking(
    tuning: Tuning, machine: Machine, kernel: KernelSpec, chosen: Blocking, m: int, n: int, threads: int,
    *, half: bool = False,
) -> Blocking:  # fmt: skip
    """Return the blocking with tuned mc, nc and mt where they count and differ; kc is the model's own.

    ``half``: A is read as it lies: then all its rows are one panel, whatever was tuned.
    """
    sizes = {"nc": chosen.nc, "mc": chosen.mc, "mt": chosen.mt}
    reasons = list(chosen.reasons)
    for what, before in tuple(sizes.items()):
        choice = tuning.find(what, kernel.acc_dtype, threads)
        if choice is None or choice.kernel != kernel.name or chosen.kc * _KC_PART < choice.kc:
            continue
        if (threads > 1 and what != "mc" and not _near(choice, m * n)) or (half and what == "mc"):
            continue
        limit = _limit(choice, kernel, chosen.kc)
        extent = min(sizes["mc"], m) if what == "mt" else m
        sizes[what] = even_columns(kernel, n, limit) if what == "nc" else even_rows(kernel, extent, limit)
        if sizes[what] == before:
            continue
        reasons = [reason for reason in reasons if not reason.startswith(f"{what} = ")]
        reasons.append(f"{what}: {sizes[what]} in place of the model's {before}, {choice.evidence(tuning.source)}")
    if threads == 1:
        sizes["mt"] = sizes["mc"]
    elif sizes["mc"] != chosen.mc:
        sizes["mt"] = even_rows(kernel, min(sizes["mc"], m), sizes["mt"])
    if sizes == {"nc": chosen.nc, "mc": chosen.mc, "mt": chosen.mt}:
        return chosen
    places = footprints(machine, kernel, sizes["mc"], sizes["nc"], chosen.kc, threads)
    changed = replace(chosen, mc=sizes["mc"], nc=sizes["nc"], mt=sizes["mt"], nb=0, footprints=places)
    if threads > 1:
        changed = pack_together(kernel, changed, n)
        reasons = [reason for reason in reasons if not reason.startswith("mt = ")]
        reasons.append(say_tiles(changed, m, n, threads))
    return replace(changed, reasons=tuple(reasons))


def _near(choice: Choice, area: int) -> bool:
    """Whether a product of so many elements of C is about as large as those that were timed."""
    timed = [m * n for m, n, _ in (map(int, shape.split("x")) for shape in choice.at)]
    return min(timed) <= _AREA * area and area <= _AREA * max(timed)


def _limit(choice: Choice, kernel: KernelSpec, kc: int) -> int:
    """Return the limit in rows or columns: the bytes that were timed, at this kc."""
    assert isinstance(choice.value, int)
    limit = max(choice.value, choice.value * choice.kc // kc)
    return limit if choice.what == "nc" else min(limit, PANEL_BYTES_MAX // (kc * kernel.itemsize))


def direct_limits(
    tuning: Tuning, dtype: str, kernels: tuple[str, ...], threads: int, terms: int, share: float
) -> tuple[int, float, tuple[str, ...]]:
    """Return (terms, share of L2) up to which products go direct, and the words for what is tuned.

    Args:
        kernels: names of the direct and the wide kernel; a choice for another one does not count.
        threads: what the product may use.
        terms, share: the model's.
    """
    reasons = []
    choice = tuning.find("direct_terms", dtype, threads)
    if choice is not None and choice.kernel in kernels and isinstance(choice.value, int) and choice.value != terms:
        text = f"path: direct up to m n k = {choice.value:,} in place of the model's {terms:,}"
        reasons.append(f"{text}, {choice.evidence(tuning.source)}")
        terms = choice.value
    choice = tuning.find("direct_share", dtype, threads)
    if choice is not None and choice.kernel in kernels and isinstance(choice.value, float) and choice.value != share:
        text = f"path: direct while B takes up to {choice.value:.1%} of L2 in place of the model's {share:.1%}"
        reasons.append(f"{text}, {choice.evidence(tuning.source)}")
        share = choice.value
    return terms, share, tuple(reasons)


def lane_terms(tuning: Tuning, dtype: str, terms: int) -> int:
    """Return up to how many terms the fast lane multiplies at once: never above ``terms``, since it holds the GIL."""
    tuned = (c.value for c in tuning.choices if (c.what, c.dtype) == ("direct_terms", dtype))
    return min([terms, *(value for value in tuned if isinstance(value, int))])
