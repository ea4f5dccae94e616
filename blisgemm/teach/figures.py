"""Numbers with the unit that suits them.

Knows: units. Does not know: what is measured. Pure. Called by ``explain``, ``html``, ``roofline`` and ``roofplot``.
"""

from __future__ import annotations

import math

__all__ = ["bar", "bytes_text", "rate_text", "seconds_text", "share_text", "three", "work_text"]


def three(value: float) -> str:
    """Return three significant digits, no exponent.

    Example:
        >>> three(0.01234), three(1.5), three(123456), three(999.7)
        ('0.0123', '1.5', '123,456', '1,000')
    """
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def bytes_text(count: float) -> str:
    """Return bytes with a binary unit.

    Example:
        >>> bytes_text(512), bytes_text(36 * 1024), bytes_text(3 << 30)
        ('512 bytes', '36 KiB', '3 GiB')
    """
    return _scaled(count, ("bytes", "KiB", "MiB", "GiB", "TiB"), 1024)


def rate_text(per_second: float) -> str:
    """Return bytes per second with a decimal unit, as data sheets do.

    Example:
        >>> rate_text(25.6e9)
        '25.6 GB/s'
    """
    return _scaled(per_second, ("B/s", "kB/s", "MB/s", "GB/s", "TB/s"), 1000)


def work_text(per_second: float) -> str:
    """Return floating-point operations per second.

    Example:
        >>> work_text(989e12), work_text(95.2e9)
        ('989 TFLOP/s', '95.2 GFLOP/s')
    """
    return _scaled(per_second, ("FLOP/s", "kFLOP/s", "MFLOP/s", "GFLOP/s", "TFLOP/s", "PFLOP/s"), 1000)


def seconds_text(seconds: float) -> str:
    """Return a duration.

    Example:
        >>> seconds_text(2.5), seconds_text(0.00125), seconds_text(3e-7)
        ('2.5 s', '1.25 ms', '0.3 µs')
    """
    for factor, unit in ((1.0, "s"), (1e3, "ms")):
        if seconds * factor >= 1:
            return f"{three(seconds * factor)} {unit}"
    return f"{three(seconds * 1e6)} µs"


def share_text(share: float) -> str:
    """Return a share in per cent: whole ones, or one digit below 1 %.

    Example:
        >>> share_text(0.497), share_text(0.004), share_text(0)
        ('50 %', '0.4 %', '0 %')
    """
    return f"{share * 100:.1f} %" if 0 < share < 0.01 else f"{share * 100:.0f} %"


def bar(share: float, width: int = 20) -> str:
    """Return a share as a bar of blocks, at most full; what exceeds it shows as ``+``.

    Example:
        >>> bar(0.5, 4), bar(1.5, 4)
        ('██··', '███+')
    """
    full = min(width, round(share * width))
    return "█" * (width - 1) + "+" if share > 1 else "█" * full + "·" * (width - full)


def _scaled(value: float, units: tuple[str, ...], step: int) -> str:
    unit = units[0]
    for unit in units:
        if abs(value) < 999.5 or unit == units[-1]:  # 1000 KiB are written as 0.977 MiB
            break
        value /= step
    return f"{three(value)} {unit}"
