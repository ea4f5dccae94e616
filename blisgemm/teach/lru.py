"""Caches of sets and ways, line by line, compiled: what a stream of addresses does to them.

Knows: how one access passes the levels. Does not know: machines, or which operand is which. Called by
``cachesim``.

Each level is an array of tags, ``ways`` for each set, the most recently used first. A tag is ``line << 4 | operand << 1
| dirty``, -1 where there is none: a line belongs to one operand, as these begin on pages of their own.

- An access looks in L1, and in the next level only if the line is not there. Every level that missed takes the line in
  (write-allocate), in place of its least recently used one. No level is told what another drops: they are neither
  inclusive nor exclusive.
- A store makes the line dirty in L1. A dirty line that is dropped is stored where a further level has it, or else in
  memory; this is traffic, but no access: it changes no order of use.

So what one level sees doesn't depend on how large the next ones are, and more ways never give more misses.

Source: Mattson, Gecsei, Slutz and Traiger, IBM Systems Journal 9(2), 1970 (the stack property of LRU); cachegrind's
manual, section "Cache simulation specifics", for write-allocate and levels that are not told.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit

from ..cache import DiskCache
from .streams import READ, UPDATE

__all__ = ["BACK", "HITS", "MISSES", "RESIDENT", "flush", "new_state", "run_accesses", "run_nests"]

# The first axis of the counts.
HITS, MISSES, BACK, RESIDENT = range(4)

# Columns of the geometry of a level: where its tags begin, its sets, its ways, sets - 1 if that is a mask, else -1.
_FIRST, _SETS, _WAYS, _MASK = range(4)


def new_state(levels: Any, operands: int) -> tuple[Any, Any, Any]:
    """Return empty caches: (tags, geometry, counts); counts: (HITS to RESIDENT) x levels x operands.

    Args:
        levels: objects with ``sets`` and ``ways``, nearest first.
        operands: how many operands there are, at most 8.
    """
    geometry, first = [], 0
    for level in levels:
        mask = level.sets - 1 if level.sets & (level.sets - 1) == 0 else -1
        geometry.append((first, level.sets, level.ways, mask))
        first += level.sets * level.ways
    counts = np.zeros((4, len(geometry), operands), np.int64)
    return np.full(first, -1, np.int64), np.array(geometry, np.int64), counts


@njit(nogil=True, inline="always", _nrt=False)
def _first_way(geometry, level, line):  # type: ignore[no-untyped-def]
    """Return where the set of a line begins."""
    mask = geometry[level, _MASK]
    index = line & mask if mask >= 0 else line % geometry[level, _SETS]
    return geometry[level, _FIRST] + index * geometry[level, _WAYS]


@njit(nogil=True, _nrt=False)
def _store_back(tags, geometry, counts, tag, level):  # type: ignore[no-untyped-def]
    """Take a dirty line to the first level from ``level`` on that has it, or to memory."""
    for to in range(level, len(geometry)):
        first = _first_way(geometry, to, tag >> 4)
        for way in range(first, first + geometry[to, _WAYS]):
            if tags[way] | 1 == tag:
                tags[way] = tag
                return
        counts[BACK, to, tag >> 1 & 7] += 1


@njit(nogil=True, inline="always", _nrt=False)
def _touch(tags, geometry, counts, key, dirty):  # type: ignore[no-untyped-def]
    """Let one access pass the levels; ``key``: the tag of the line while it is clean."""
    operand = key >> 1 & 7
    level, levels = 0, len(geometry)
    while level < levels:
        first = _first_way(geometry, level, key >> 4)
        end, way, moved = first + geometry[level, _WAYS], first, key | dirty
        found = False
        while way < end and not found:  # the line goes in front, the others become one step older
            tag = tags[np.uint64(way)]  # unsigned: an index that needs no look at its sign
            tags[np.uint64(way)] = moved
            moved = tag
            way += 1
            found = tag & ~1 == key
        if found:
            counts[HITS, level, operand] += 1
            tags[first] |= moved & 1
            level = levels
        else:
            counts[MISSES, level, operand] += 1
            counts[RESIDENT, level, operand] += 1
            if moved >= 0:  # the oldest
                counts[RESIDENT, level, moved >> 1 & 7] -= 1
                if moved & 1:
                    counts[BACK, level, moved >> 1 & 7] += 1
                    _store_back(tags, geometry, counts, moved, level + 1)
            dirty = 0
            level += 1


@njit(nogil=True, inline="always", _nrt=False)
def _access(tags, geometry, counts, line, operand, what):  # type: ignore[no-untyped-def]
    """Let one access of any kind pass, the most frequent case first: a line that L1 has used last in its set."""
    key = line << 4 | operand << 1
    first = _first_way(geometry, 0, line)
    if tags[np.uint64(first)] & ~1 == key:
        counts[HITS, 0, operand] += 1
        if what != READ:
            tags[np.uint64(first)] = key | 1
    else:
        _touch(tags, geometry, counts, key, 1 if what != READ else 0)
    if what == UPDATE:
        counts[HITS, 0, operand] += 1


@njit(nogil=True, _nrt=False)
def run_accesses(state, bases, size_bytes, line_shift, operands, indices, what):  # type: ignore[no-untyped-def]
    """Run accesses one by one: element ``indices[x]`` of operand ``operands[x]``."""
    tags, geometry, counts = state
    for x in range(len(indices)):
        operand = np.int64(operands[x])
        line = (bases[operand] + indices[x] * size_bytes) >> line_shift
        _access(tags, geometry, counts, line, operand, np.int64(what[x]))


@njit(nogil=True, _nrt=False)
def _same_lines(refs, bases, size_bytes, line_shift, first_ref, end_ref, outer):  # type: ignore[no-untyped-def]
    """Return how many further turns of the innermost loop touch the very lines that this one did.

    ``outer``: (i0, i1, i2) of this turn. Each reference is one element.
    """
    i0, i1, i2 = outer
    turns, line_bytes = np.int64(1) << 40, np.int64(1) << line_shift
    for ref in range(first_ref, end_ref):
        start = refs[ref, 1] + i0 * refs[ref, 2] + i1 * refs[ref, 3] + i2 * refs[ref, 4]
        at, step = bases[refs[ref, 0]] + start * size_bytes & line_bytes - 1, refs[ref, 4] * size_bytes
        if step > 0:
            turns = min(turns, (line_bytes - 1 - at) // step)
        elif step < 0:
            turns = min(turns, at // -step)
    return turns


@njit(nogil=True, _nrt=False)
def run_nests(state, bases, size_bytes, line_shift, nests, refs, history):  # type: ignore[no-untyped-def]
    """Run loop nests of accesses (``streams.Nests``), and note the counts after each event.

    What is bound to hit is counted, not looked up: the rest of a line that a run has touched; and further turns of the
    innermost loop that touch no other lines than the turn before, if the ways of L1 hold them all.

    Args:
        history: an (events, 4, levels, operands) array; without rows nothing is noted.
    """
    tags, geometry, counts = state
    line_bytes = np.int64(1) << line_shift
    for nest in range(len(nests)):
        e0, e1, e2, first_ref, end_ref, event = nests[nest]
        narrow = end_ref - first_ref <= geometry[0, _WAYS]
        for ref in range(first_ref, end_ref):
            narrow = narrow and refs[ref, 5] == 1 and abs(refs[ref, 4]) * size_bytes < line_bytes
        for i0 in range(e0):
            for i1 in range(e1):
                i2 = np.int64(0)
                while i2 < e2:
                    for ref in range(first_ref, end_ref):
                        operand, count, step, what = refs[ref, 0], refs[ref, 5], refs[ref, 6], refs[ref, 7]
                        start = refs[ref, 1] + i0 * refs[ref, 2] + i1 * refs[ref, 3] + i2 * refs[ref, 4]
                        address = bases[operand] + start * size_bytes
                        x = np.int64(0)
                        while x < count:
                            _access(tags, geometry, counts, address >> line_shift, operand, what)
                            same = np.int64(1)
                            if step == 1 and count > 1:
                                left = line_bytes - (address & line_bytes - 1)
                                same = min(count - x, max(1, left // size_bytes))
                                counts[HITS, 0, operand] += (same - 1) * (2 if what == UPDATE else 1)
                            x += same
                            address += same * step * size_bytes
                    i2 += 1
                    if narrow and i2 < e2:
                        same = _same_lines(refs, bases, size_bytes, line_shift, first_ref, end_ref, (i0, i1, i2 - 1))
                        same = min(same, e2 - i2)
                        for ref in range(first_ref, end_ref):
                            counts[HITS, 0, refs[ref, 0]] += same * (2 if refs[ref, 7] == UPDATE else 1)
                        i2 += same
        if len(history):
            for kind in range(4):
                for level in range(len(geometry)):
                    for operand in range(counts.shape[2]):
                        history[event, kind, level, operand] = counts[kind, level, operand]


@njit(nogil=True, _nrt=False)
def flush(state):  # type: ignore[no-untyped-def]
    """Store all dirty lines, from the nearest level on, down to memory."""
    tags, geometry, counts = state
    for level in range(len(geometry)):
        first = geometry[level, _FIRST]
        for way in range(first, first + geometry[level, _SETS] * geometry[level, _WAYS]):
            tag = tags[way]
            if tag >= 0 and tag & 1:
                counts[BACK, level, tag >> 1 & 7] += 1
                tags[way] = tag ^ 1
                _store_back(tags, geometry, counts, tag, level + 1)


def _keep_compiled() -> None:
    """Let the functions that are called from Python be kept on disk, as the library's own are.

    Compiling them took 3.8 s of CPU time, loading them 0.1 (Zen 3 VM, 2 cores, 2026-11-30).
    """
    text = Path(__file__)
    if text.is_file():  # else nobody knows which text an entry was made from
        digest = hashlib.sha256(text.read_bytes() + bytes((READ, UPDATE))).hexdigest()
        for function in (run_accesses, run_nests, flush):
            function._cache = DiskCache(f"{function.__name__} {digest}")


_keep_compiled()
