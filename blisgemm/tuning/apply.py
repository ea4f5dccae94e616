"""How tuned choices enter a plan: in place of the model's ways, mc, nc and limits of the direct path.

Knows: where a choice was measured and how far from there it still counts. Does not know: files, or how a choice
was found. Pure. Called by ``plan``. None of this touches kc.

A tuned mc or nc is a limit, as the model's is: it is made even over the rows and columns of the product at hand,
so a small product takes no more memory than it needs. It holds a number of bytes: where kc is shorter, the block has
more rows.
"""

from __future__ import annotations

from dataclasses import replace

from ..blocking import PANEL_BYTES_MAX, Blocking, even_mc, even_nc, footprints
from ..machine.facts import Machine
from ..ukernel.spec import KernelSpec
from .choices import Choice, Tuning

__all__ = ["direct_limits", "lane_terms", "tuned_blocking", "tuned_ways"]

# A kc below this part of the one that was timed is another case, left to the model. Source: our choice.
_KC_PART = 2

# Tuned ways are taken unless their busiest thread gets more than this many times the micro-tiles of the model's
# choice: ways are timed on shapes that divide well, and balance matters more elsewhere. Source: our choice.
_TILES_MORE = 1.05


def tuned_ways(
    tuning: Tuning, kernel: KernelSpec, m: int, n: int, threads: int, ways: tuple[int, int]
) -> tuple[tuple[int, int], tuple[str, ...]]:
    """Return (ic_ways, jr_ways) for a product that keeps ``threads`` busy, and why, if they are not the model's."""
    choice = tuning.find("ways", kernel.acc_dtype, threads)
    if choice is None or choice.kernel != kernel.name or choice.value == ways or not isinstance(choice.value, tuple):
        return ways, ()
    rows, columns = -(-m // kernel.mr), -(-n // kernel.nr)

    def busiest(ic: int, jr: int) -> int:
        return -(-rows // ic) * -(-columns // jr)

    if busiest(*choice.value) > _TILES_MORE * busiest(*ways):
        return ways, ()
    text = f"ways: ic {choice.value[0]} x jr {choice.value[1]} in place of the model's {ways[0]} x {ways[1]}, "
    return choice.value, (text + choice.evidence(tuning.source),)


def tuned_blocking(
    tuning: Tuning, machine: Machine, kernel: KernelSpec, chosen: Blocking, m: int, n: int, threads: int,
    ic_ways: int, jr_ways: int,
) -> Blocking:  # fmt: skip
    """Return the blocking with tuned mc and nc where they count and differ; kc is the model's own."""
    mc, nc, kc = chosen.mc, chosen.nc, chosen.kc
    reasons = list(chosen.reasons)
    for what in ("mc", "nc"):
        choice = tuning.find(what, kernel.acc_dtype, threads)
        if choice is None or choice.kernel != kernel.name or kc * _KC_PART < choice.kc:
            continue
        limit = _limit(choice, kernel, kc)
        before = mc if what == "mc" else nc
        after = even_mc(kernel, m, ic_ways, limit) if what == "mc" else even_nc(kernel, n, jr_ways, limit)
        if after == before:
            continue
        mc, nc = (after, nc) if what == "mc" else (mc, after)
        reasons = [reason for reason in reasons if not reason.startswith(f"{what} = ")]
        reasons.append(f"{what}: {after} in place of the model's {before}, {choice.evidence(tuning.source)}")
    if (mc, nc) == (chosen.mc, chosen.nc):
        return chosen
    sizes = footprints(machine, kernel, mc, nc, kc, ic_ways * jr_ways)
    return replace(chosen, mc=mc, nc=nc, footprints=sizes, reasons=tuple(reasons))


def _limit(choice: Choice, kernel: KernelSpec, kc: int) -> int:
    """Return the limit in rows or columns: the bytes that were timed, at this kc."""
    assert isinstance(choice.value, int)
    limit = max(choice.value, choice.value * choice.kc // kc)
    return limit if choice.what == "mc" else min(limit, PANEL_BYTES_MAX // (kc * kernel.itemsize))


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
