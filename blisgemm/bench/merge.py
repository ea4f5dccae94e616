"""Runs put together as one: what must be the same in all of them, and what adds up.

Knows: which runs can stand in one table. Does not know: where they are from or how they look. Called by ``tables``
and ``cli.bench``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import BlisgemmValueError
from .results import Run

__all__ = ["merged"]

_MAY_DIFFER = ("cores",)  # affinity gives a run some of them


def merged(runs: Sequence[Run], names: Sequence[str] = ()) -> Run:
    """Return runs of one machine as one. They may have had some of its cores each.

    Args:
        names: of the runs, for messages, such as their files.

    Raises:
        BlisgemmValueError: they are of several machines or versions, or have a row twice.
    """
    names = names or [f"run {number}" for number in range(1, len(runs) + 1)]
    for run, name in zip(runs, names, strict=True):
        for fact in {**runs[0].machine, **run.machine}:
            expected, got = runs[0].machine.get(fact), run.machine.get(fact)
            if fact not in _MAY_DIFFER and expected != got:
                raise BlisgemmValueError(
                    f"{name}: machine.{fact}: expected {expected!r}, as in {names[0]}; got {got!r}"
                )
    _check_peers(runs, names)
    _check_rows(runs, names)
    cores = max((run.machine["cores"] for run in runs if "cores" in run.machine), key=int, default="1")
    peers = {peer: version for run in runs for peer, version in run.peers.items()}
    return Run(
        commands=list(dict.fromkeys(command for run in runs for command in run.commands)),
        dates=sorted({date for run in runs for date in run.dates}),
        machine={**runs[0].machine, "cores": cores},
        peers=peers,
        absent={peer: why for run in runs for peer, why in run.absent.items() if peer not in peers},
        rows=[row for run in runs for row in run.rows],
    )


def _check_peers(runs: Sequence[Run], names: Sequence[str]) -> None:
    seen: dict[str, tuple[str, str]] = {}
    for run, name in zip(runs, names, strict=True):
        for peer, version in run.peers.items():
            expected, where = seen.setdefault(peer, (version, name))
            if version != expected:
                raise BlisgemmValueError(f"{name}: peers.{peer}: expected {expected!r}, as in {where}; got {version!r}")


def _check_rows(runs: Sequence[Run], names: Sequence[str]) -> None:
    """Raise for a row that is there twice: means would count it twice."""
    seen: dict[tuple[Any, ...], str] = {}
    for run, name in zip(runs, names, strict=True):
        for row in run.rows:
            alike = (row.case, row.dtype, row.threads, row.out, row.state)
            if alike in seen:
                raise BlisgemmValueError(
                    f"{name}: rows: expected every product once; got {row.case.label} of {row.case.group} in "
                    f"{row.dtype}, threads {row.threads}, {row.state}, out {row.out}, which {seen[alike]} has already"
                )
            seen[alike] = name
