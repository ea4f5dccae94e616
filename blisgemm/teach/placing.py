"""Where things lie under a roofline: a product on this machine, on another, on a GPU, and the rungs of the ladder.

Knows: which plan, traffic and rates belong together. Does not know: how any of them follows (``plan``, ``traffic``,
``rates``, ``roofline``), or clocks. Pure. Called by ``python -m blisgemm roofline`` and notebooks.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..cuda.plan import make_plan as make_device_plan
from ..errors import BlisgemmValueError
from ..machine.facts import Machine
from ..parallel import check_threads
from ..plan import Plan
from .elsewhere import machine_named, plan_on
from .rates import Rates, data_sheet, device_sheet
from .roofline import Point, Roofline, points_of, roofline_of, tile_intensity, wave_share, waves
from .traffic import flops_of, traffic_of

__all__ = ["device_roofline", "product_roofline", "roofline", "rung_intensity", "rung_points"]

_SIZES = {"float32": 4, "float64": 8, "complex64": 8, "complex128": 16}


def product_roofline(
    plan: Plan | None, dtype: str, threads: int, rates: Rates | None, machine: Any = None,
    measured: float | None = None, points: Iterable[Point] = (),
) -> Roofline:  # fmt: skip
    """Return a machine's roofs with a product under them.

    Args:
        plan: of the product; ``None``: roofs alone.
        rates: measured ones; ``None``: those of the machine's data sheet.
        machine: a Machine, needed without rates and plan.
        measured: flops per second of the product as timed.
        points: others to draw.

    Raises:
        BlisgemmValueError: nobody says how fast the machine is, or it has fewer cores than threads.

    Example:
        >>> from blisgemm.teach.elsewhere import plan_on
        >>> chart = product_roofline(plan_on("zen3", 1000, 1000, 1000, threads=1), "float32", 1, None)
        >>> [(p.level, p.intensity > chart.ridge(p.level)) for p in chart.points]
        [('L1', True), ('L2', True), ('L3', True), ('memory', True)]
    """
    where = plan.machine if plan is not None else machine
    if rates is None and check_threads(threads) > where.cores:
        raise BlisgemmValueError(f"threads: expected at most the {where.cores} cores of {where.name}; got {threads}")
    rates = rates if rates is not None else data_sheet(where)
    if rates is None:
        raise BlisgemmValueError(f"machine: expected one with a data sheet; nobody says how fast {where.name} is")
    own: tuple[Point, ...] = ()
    if plan is not None and plan.path != "numpy":
        own = points_of(f"{plan.m}×{plan.n}×{plan.k}", traffic_of(plan), rates, dtype, threads, measured)
    return roofline_of(rates, dtype, threads, (*own, *points))


def roofline(
    m: int, n: int, k: int, dtype: str = "float32", *, machine: Machine | str | None = None, threads: int = 1,
    rates: Rates | None = None, measured: float | None = None,
) -> Roofline:  # fmt: skip
    """Return a machine's roofs with an m x k by k x n product of C-contiguous arrays under them.

    Args:
        m, n, k, dtype, machine, threads: as ``explain`` takes them.
        rates, measured: as ``product_roofline`` takes them.

    Raises:
        BlisgemmTypeError, BlisgemmValueError: an argument is not as above, or the machine has no data sheet.

    Example:
        >>> print(roofline(1000, 1000, 1000, machine="haswell").title)
        haswell, 1 thread
    """
    there = machine_named(machine)
    plan = plan_on(machine, m, n, k, dtype, threads=threads)
    return product_roofline(plan, plan.dtype, threads, rates, there, measured)


def device_roofline(name: str, product: tuple[int, int, int] | None, dtype: str = "float32") -> tuple[Roofline, str]:
    """Return a GPU's roofs with a product's two points, and its waves in words.

    The left point is the tiles' demand: each block loads its rows of A and columns of B, M N K (1/bm + 1/bn) elements,
    and L2 serves what blocks share. The right one is what memory must send at least: each operand once.

    Raises:
        BlisgemmTypeError, BlisgemmValueError: as ``cuda.make_plan``.

    Example:
        >>> chart, words = device_roofline("h100", (4096, 4096, 4096))
        >>> chart.ridge("memory") < chart.points[0].intensity < chart.points[1].intensity
        True
    """
    device, rates = device_sheet(name)
    if product is None:
        return roofline_of(rates, dtype), ""
    m, n, k = product
    plan = make_device_plan(m, n, k, dtype, device=device)
    tile, size, flops = plan.spec.tile, _SIZES[dtype], flops_of(m, n, k, dtype)
    once = flops / (size * (m * k + k * n + m * n))
    demand = min(tile_intensity(tile.bm, tile.bn, dtype), once)
    peak, memory = rates.peak(dtype), rates.bandwidth("memory")
    assert memory is not None
    at_most = min(peak, memory * once)
    label = f"{m}×{n}×{k}"
    points = [
        Point(f"{label}, tiles of {tile.bm}×{tile.bn} without L2", "memory", demand, min(peak, memory * demand)),
        Point(f"{label}, each operand once", "memory", once, at_most),
    ]
    tiles = -(-plan.m // tile.bm) * -(-plan.n // tile.bn)
    count, share = waves(tiles, device.multiprocessors), wave_share(tiles, device.multiprocessors)
    words = (
        f"{tiles} tiles of {tile.bm} x {tile.bn} on {device.multiprocessors} multiprocessors: "
        f"{count} wave{'s' * (count > 1)}, {share:.0%} of the multiprocessors' time is worked"
    )
    return roofline_of(rates, dtype, 1, points), words


def rung_intensity(number: int, plan: Plan) -> float:
    """Return the flops per byte between registers and L1 of a rung of the CPU ladder, by its inner loop.

    Rungs 0 and 1 load an element of A and one of B for each multiply-add. Rung 2 keeps the element of A and loads one
    of B, loads and stores one of C. Rung 3 has a tile of 4 x 4, rungs 4 and 5 one of mr x nr; from rung 6 on packing
    and each kc block's update of C count as well, as in ``traffic``.

    Args:
        number: of the rung. plan: the packed plan of its product, on one thread.

    Example:
        >>> from blisgemm.teach.elsewhere import plan_on
        >>> plan = plan_on("haswell", 512, 512, 512, path="packed", threads=1)
        >>> [round(rung_intensity(number, plan), 2) for number in (0, 2, 3, 4)]
        [0.25, 0.17, 1.0, 2.18]
    """
    assert plan.kernel is not None
    size = _SIZES[plan.dtype]
    if number in (0, 1):
        return tile_intensity(1, 1, plan.dtype)
    if number == 2:
        return 2 / (3 * size)
    if number == 3:
        return tile_intensity(4, 4, plan.dtype)
    if number in (4, 5):
        return tile_intensity(plan.kernel.mr, plan.kernel.nr, plan.dtype)
    return traffic_of(plan).intensity("L1")


def rung_points(timed: Iterable[tuple[str, float]], plan: Plan) -> tuple[Point, ...]:
    """Return the points of rungs under the roof of L1.

    Args:
        timed: (name, flops per second), a name such as ``r4``.
        plan: as ``rung_intensity`` takes it.
    """
    return tuple(Point(name, "L1", rung_intensity(int(name[1:]), plan), rate, True) for name, rate in timed)
