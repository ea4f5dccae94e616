# %% [markdown]
# # 1. The five loops, traced
#
# A fast matrix product is five loops around a small kernel.
# Kazushige Goto and Robert van de Geijn described them in 2008
# (*Anatomy of High-Performance Matrix Multiplication*, ACM TOMS 34(3)).
#
# This page runs the loops of the library and writes down what they do. Nothing is drawn from memory:
# it is the text of `blisgemm/loops.py` itself, run with words that record in place of words that compute.
#
# You need Python and a little patience. No GPU, no special processor.

# %%
import inspect

import numpy as np

from blisgemm import loops, teach
from blisgemm.teach import check

# %% [markdown]
# ## A product that fits on one screen
#
# C is 4 x 6, and k is 2. We choose all blocks ourselves: micro-tiles of `mr` x `nr` = 2 x 3, and cache blocks
# `mc`, `nc`, `kc` so large that every cache loop turns once.

# %%
tiny = teach.trace(4, 6, 2, mr=2, nr=3, blocking=(4, 6, 2), machine="teaching")
print(tiny)

# %% [markdown]
# Read it from the top. B is packed, then A is packed. *Packing* copies a block into the order in which it will be used.
# Then come four calls of the *microkernel*, one for each 2 x 3 tile of C. Each line says which part of C grows, and
# by which parts of A and B.

# %% [markdown]
# ## All five loops turn
#
# Now smaller blocks, so that each loop has two turns or more. The loops are called `ic pc jc ir jr`, outermost first.
# `i` runs down C, `j` along C, and `p` along the sum.

# %%
steps = teach.trace(16, 24, 16, mr=4, nr=4, blocking=(8, 12, 8), machine="teaching")
for line in steps.lines(0, 12):
    print(line)

# %% [markdown]
# How often does each loop take its next value? An inner loop moves with nearly every step; an outer loop hardly ever
# does.

# %%
calls = steps.events[steps.events["kind"] == teach.MICROKERNEL]
moves = {loop: int(np.count_nonzero(np.diff(calls[loop]))) for loop in ("ic", "pc", "jc", "ir", "jr")}
print(f"{len(calls)} calls of the microkernel")
for loop, count in moves.items():
    print(f"{loop}: moves {count:3d} times  {'#' * count}")
assert list(moves.values()) == sorted(moves.values())

# %% [markdown]
# The numbers below are the micro-tiles of C. Each shows when the tile is first visited.
# Follow them with a finger: a block of `nc` = 12 columns is finished before the next one begins.

# %%
order = np.zeros((16 // 4, 24 // 4), int)
for number, call in reversed(list(enumerate(calls))):
    order[call["i0"] // 4, call["j0"] // 4] = number
print(order)

# %% [markdown]
# And as a picture, if there is matplotlib: dark tiles come first.

# %%
drawn = teach.picture(6, 3)
if drawn:
    figure, axes = drawn
    axes.imshow(order, cmap="viridis")
    for (row, column), number in np.ndenumerate(order):
        axes.text(column, row, str(number), ha="center", va="center", color="white")
    axes.set(xlabel="column of micro-tiles (jc, jr)", ylabel="row (ic, ir)", title="when a tile of C is first visited")

# %% [markdown]
# ## Is it a matrix product at all?
#
# A matrix product adds `A[i, p] * B[p, j]` to `C[i, j]` for every i, j and p, once. So let us count.

# %%
covered = np.zeros((16, 24, 16), int)
for call in calls:
    covered[call["i0"] : call["i1"], call["j0"] : call["j1"], call["p0"] : call["p1"]] += 1
print("each (i, j, p) is covered", np.unique(covered), "time")
assert (covered == 1).all()

# %% [markdown]
# ## What is it good for?
#
# Each loop keeps one thing near. Here is the text of the second and the first loop:

# %%
print(inspect.getsource(loops.macrokernel.py_func))

# %% [markdown]
# The *teaching machine* has caches so small that a product of 64 x 64 exceeds them. We send every access of the
# five loops through these caches, and every access of the three plain loops too.

# %%
for cache in teach.TEACHING_MACHINE.caches:
    print(f"L{cache.level}: {cache.size_bytes} bytes in {cache.sets} sets of {cache.ways} lines")
five = teach.simulate_trace(teach.trace(64, 64, 64, mr=4, nr=8, blocking=(64, 16, 32), machine="teaching"), "teaching")
three = teach.simulate(teach.loop_order_stream("ijk", 64, 64, 64), "teaching")
print("bytes between        three loops    five loops")
rows = ("registers and L1", "L1 and L2", "L2 and L3", "L3 and memory")
for name, plain, blocked in zip(
    rows, (three.element_bytes, *three.traffic_bytes), (five.element_bytes, *five.traffic_bytes), strict=True
):
    print(f"{name:18} {plain:13,} {blocked:13,}")

# %% [markdown]
# The five loops move less at every level but the last: memory has to send A and B once in any case, and the
# five loops own two packed buffers besides.
#
# ## Exercises
#
# Write your answer into `mine`, then run the cell below it.
#
# **Exercise 1.** m, n, k = 20, 24, 16 with mr x nr = 4 x 8 and mc, nc, kc = 8, 16, 8. How often is the microkernel
# called? (Count tiles of C first. Then ask how often each of them is visited.)

# %%
mine = None

# %%
steps = teach.trace(20, 24, 16, mr=4, nr=8, blocking=(8, 16, 8), machine="teaching")
tiles = (20 // 4) * (24 // 8)
answer = tiles * (16 // 8)  # each tile once for each kc block
check(1, answer, steps.count(teach.MICROKERNEL), mine)

# %% [markdown]
# **Exercise 2.** In the same product, how many elements does packing B copy in all? Is it more than B has?

# %%
mine = None

# %%
packs = steps.events[steps.events["kind"] == teach.PACK_B]
copied = int(((packs["j1"] - packs["j0"]) * (packs["p1"] - packs["p0"])).sum())
panels_of_a = -(-20 // 8)  # ic takes three values, the last with four rows
answer = panels_of_a * 16 * 24  # all of B again for every panel of A
check(2, answer, copied, mine)

# %% [markdown]
# **Exercise 3.** And how many elements does packing A copy?

# %%
mine = None

# %%
packs = steps.events[steps.events["kind"] == teach.PACK_A]
copied = int(((packs["i1"] - packs["i0"]) * (packs["p1"] - packs["p0"])).sum())
answer = 20 * 16  # each panel once: it stays while all blocks of B pass
check(3, answer, copied, mine)

# %% [markdown]
# **Exercise 4.** m = 10 is no multiple of mr = 4, and n = 20 none of nr = 8. With k = kc, how many calls of the
# microkernel have a tile that is cut off at an edge?

# %%
mine = None

# %%
steps = teach.trace(10, 20, 8, mr=4, nr=8, blocking=(12, 24, 8), machine="teaching")
calls = steps.events[steps.events["kind"] == teach.MICROKERNEL]
cut = int(np.count_nonzero((calls["i1"] - calls["i0"] < 4) | (calls["j1"] - calls["j0"] < 8)))
answer = 3 * 3 - 2 * 2  # 3 x 3 tiles, of which 2 x 2 are whole
check(4, answer, cut, mine)

# %% [markdown]
# **Exercise 5.** Which block makes memory traffic of C grow: how often is each element of C stored when k = 32 and
# kc = 8?

# %%
mine = None

# %%
steps = teach.trace(8, 8, 32, mr=4, nr=4, blocking=(8, 8, 8), machine="teaching")
stored = np.zeros((8, 8), int)
for call in steps.events[steps.events["kind"] == teach.MICROKERNEL]:
    stored[call["i0"] : call["i1"], call["j0"] : call["j1"]] += 1
answer = 32 // 8  # once for each kc block, so a small kc costs
assert (stored == stored[0, 0]).all()
check(5, answer, int(stored[0, 0]), mine)
