# %% [markdown]
# # 2. Block sizes, and the cliff
#
# How large should a block be? Small blocks are copied and updated too often. Large blocks fall out of the cache.
# Between the two is a wide valley, and behind it a cliff.
#
# First we simulate, since a simulated cache shows every miss. Then we measure on this very machine.
#
# Sources: Goto and van de Geijn, ACM TOMS 34(3), 2008, section 4; Low, Igual, Smith and Quintana-Orti, *Analytical
# Modeling Is Enough for High-Performance BLIS*, ACM TOMS 43(2), 2016.

# %%
import numpy as np

import blisgemm
from blisgemm import teach
from blisgemm.bench.measure import cpu_clock, interleave
from blisgemm.blocking import footprints
from blisgemm.ladder import run
from blisgemm.teach import check
from blisgemm.testing import draw_reals

# %% [markdown]
# ## nc: the block of B in L2
#
# The block of B has `kc` x `nc` elements, and L2 shall keep it while all of a panel of A passes.
# We take the caches of a Haswell (L2: 256 KiB) and let `nc` grow. The product is 384 x 384 x 384.

# %%
N = 384
haswell = teach.machine_named("haswell")
sweep = []
for nc in (16, 32, 64, 128, 144, 160, 192, 384):
    steps = teach.trace(N, N, N, machine=haswell, path="packed", blocking=(N, nc, N), half=False)
    rows = teach.compare(teach.trace_traffic(steps, haswell), teach.simulate_trace(steps, haswell))
    sweep.append((nc, N * nc * 4, rows[2].predicted, rows[2].counted))

print(f"L2 holds {haswell.l2.size_bytes // 1024} KiB")
print(" nc   block of B   L2 and L3 exchange: predicted    counted")
for nc, block, predicted, counted in sweep:
    bar = "#" * (counted // 10**6)
    print(f"{nc:3d}  {block / 1024:7.0f} KiB {predicted / 1e6:25.1f} MB {counted / 1e6:7.1f} MB  {bar}")

# %% [markdown]
# Read it in three parts.
#
# - On the left the block is small. Each block meets the whole panel of A, so many blocks mean many passes of A.
# - In the middle is the valley.
# - On the right the block no longer fits. Then *every* micro-panel of A fetches *all* of it again.
#
# The prediction is one rule: if all that one turn of a loop touches fits in a cache, the next turn finds it there.
# The count knows sets and ways, so its cliff is a slope.

# %%
drawn = teach.picture()
if drawn:
    figure, axes = drawn
    axes.plot([x[1] / 1024 for x in sweep], [x[3] / 1e6 for x in sweep], "o-", label="counted")
    axes.plot([x[1] / 1024 for x in sweep], [x[2] / 1e6 for x in sweep], "s--", label="predicted")
    axes.axvline(haswell.l2.size_bytes / 1024, color="gray", linewidth=1)
    axes.set(xlabel="block of B, KiB (line: all of L2)", ylabel="MB between L2 and L3", ylim=(0, None))
    axes.legend()

# %% [markdown]
# Where does the library stand? It gives the block of B half of L2, so that the other things that pass have room.

# %%
plan = teach.plan_on("haswell", 2000, 2000, 2000, threads=1)
for place in plan.blocking.footprints:
    print(place)

# %% [markdown]
# ## mc and kc: what small ones cost
#
# B is packed again for each panel of A (`mc` rows). C is updated again for each `kc` block. Both are pure counting.

# %%


def moved(operand, mc=N, nc=128, kc=N):
    """Return how many elements of an operand pass between registers and L1."""
    plan = teach.plan_on(haswell, N, N, N, path="packed", threads=1, blocking=(mc, nc, kc))
    return teach.traffic_of(plan).bytes_of("L1", operand) // 4


print(" mc   elements of B read by packing")
for mc in (24, 48, 96, 192, 384):
    print(f"{mc:3d}   {moved('B', mc=mc):9,}")
print(" kc   elements of C read and written")
for kc in (16, 32, 64, 128, 384):
    print(f"{kc:3d}   {moved('C', kc=kc):9,}")

# %% [markdown]
# ## Measured, here
#
# Now the real thing. Each call is the library's own code with other blocks; they take turns, so that a clock that
# changes meets all of them alike. The numbers are medians. They are this machine's: yours will differ.

# %%
rng = np.random.default_rng(1)
a, b = (draw_reals(rng, (N, N), np.float32) for _ in range(2))
kernel = blisgemm.make_plan(N, N, N, path="packed", threads=1).kernel
mr, nr = kernel.mr, kernel.nr
whole = -(-N // mr) * mr


def measured(blocks):
    """Return GFLOP/s for each of some (mc, nc, kc)."""
    plans = {x: blisgemm.make_plan(N, N, N, path="packed", threads=1, blocking=x) for x in blocks}
    out = np.empty((N, N), np.float32)
    calls = {x: lambda plan=plan: blisgemm.gemm(a, b, out=out, plan=plan) for x, plan in plans.items()}
    times = interleave(calls, seconds=0.2, clock=cpu_clock()[0])
    return {x: 2 * N**3 / float(np.median(t)) / 1e9 for x, t in times.items()}


def show(title, blocks):
    """Print them."""
    rates = measured(blocks)
    print(f"{kernel.name}, {title}")
    for (mc, nc, kc), rate in rates.items():
        bar = "#" * round(40 * rate / max(rates.values()))
        print(f"  mc {mc:4d}  nc {nc:4d}  kc {kc:4d}  {rate:6.1f} GFLOP/s  {bar}")


show("kc grows", [(whole, 8 * nr, kc) for kc in (8, 32, 128, N)])
show("mc grows", [(mc, 8 * nr, N) for mc in (mr, 4 * mr, 16 * mr, whole)])
show("nc grows", [(whole, nc * nr, N) for nc in (1, 2, 4, -(-N // nr))])

# %% [markdown]
# Small `kc` and small `mc` hurt everywhere. Large `nc` often hurts little: today's processors fetch the next lines
# of a block ahead of time, and a line from L3 arrives while a dozen sums or more keep the pipes busy. The cliff is
# there all the same, in traffic, and traffic is what several cores share.
#
# One thing must not change: `mc` and `nc` move work about, and never a bit of the result.

# %%
results = [
    blisgemm.gemm(a, b, plan=blisgemm.make_plan(N, N, N, path="packed", threads=1, blocking=(mc, nc, N)))
    for mc, nc in ((mr, nr), (16 * mr, 4 * nr), (whole, 8 * nr))
]
assert all((x == results[0]).all() for x in results)
print("three blockings, one result")

# %% [markdown]
# ## Another cliff: powers of two
#
# A cache has sets. A line can lie in one set only, and `ways` lines share it. The three plain loops `ijk` walk down
# columns of B. If rows are a power of two apart, a whole column crowds into few sets.

# %%
for n in (250, 256):
    counts = teach.simulate(teach.loop_order_stream("ijk", n, n, n), "haswell")
    print(f"n = {n}: {counts.misses[0, 1] / n**3:.3f} misses of L1 for each element of B that is read")

# %% [markdown]
# Six more columns, sixteen times the misses. And measured, with rung 1 of the ladder, which is these loops compiled:

# %%
arrays = {n: [draw_reals(rng, (n, n), np.float32) for _ in range(3)] for n in (250, 256)}
calls = {n: lambda three=three: run("r1", *three) for n, three in arrays.items()}
times = interleave(calls, seconds=0.2, rounds=(3, 50), clock=cpu_clock()[0])
for n, taken in times.items():
    print(f"n = {n}: {float(np.median(taken)) / n**3 * 1e9:.2f} ns for each multiply-add")

# %% [markdown]
# ## Exercises
#
# **Exercise 1.** Zen 3 has 512 KiB of L2. With `kc` = 256 and float32, which is the largest `nc`, a multiple of 16,
# whose block of B takes at most half of it?

# %%
mine = None

# %%
answer = 512 * 1024 // 2 // (256 * 4)
zen3 = teach.machine_named("zen3")
tile = teach.plan_on("zen3", 2000, 2000, 2000, threads=1).kernel
shares = {nc: footprints(zen3, tile, 600, nc, 256)[3] for nc in range(16, 1024, 16)}
assert all(place.what == "block of B" for place in shares.values())
check(1, answer, max(nc for nc, place in shares.items() if place.share <= 0.5), mine)

# %% [markdown]
# **Exercise 2.** m = n = k = 384 and `mc` = 48. How often as much of B is packed as there is of B?

# %%
mine = None

# %%
steps = teach.trace(N, N, N, machine="haswell", path="packed", blocking=(48, 128, N), half=False)
packs = steps.events[steps.events["kind"] == teach.PACK_B]
packed = int(((packs["j1"] - packs["j0"]) * (packs["p1"] - packs["p0"])).sum())
answer = N // 48
check(2, answer, packed / N**2, mine)

# %% [markdown]
# **Exercise 3.** Beside a block of B, L2 must hold what passes between two uses of it: one micro-panel of A
# (`mr` x `kc`) and one row of micro-tiles of C (`mr` x `nc`). For Haswell, `mr` = 6, `kc` = 384, float32: up to which
# `nc`, a multiple of 16, does all that fit in 256 KiB? (Then look at the table: where does the predicted cliff begin?)

# %%
mine = None

# %%
answer = int((256 * 1024 / 4 - 6 * 384) / (384 + 6)) // 16 * 16


def exchanged(nc):
    """Return the predicted bytes between L2 and L3."""
    plan = teach.plan_on(haswell, N, N, N, path="packed", threads=1, blocking=(N, nc, N))
    return teach.traffic_of(plan).bytes_of("L3")


fits = [nc for nc in range(112, 224, 16) if exchanged(nc) < 2 * exchanged(112)]
check(3, answer, max(fits), mine)

# %% [markdown]
# **Exercise 4.** Haswell's L1 has 64 sets of 8 lines of 64 bytes. Rows of 1024 float32 lie one behind the other.
# Into how many sets does a column fall, and so how many of its lines can stay?

# %%
mine = None

# %%
answer = 8  # 4096 bytes between rows are 64 lines: one set, of 8 ways
column = np.arange(1024) * 1024
sets = len(np.unique(column * 4 // 64 % haswell.l1.sets))
twice = teach.simulate((1, np.concatenate([column[:8]] * 2)), [haswell.l1])
assert twice.hits[0, 1] == 8, "eight lines stay"
assert teach.simulate((1, np.concatenate([column[:9]] * 2)), [haswell.l1]).hits[0, 1] == 0, "nine do not"
check(4, answer, sets * haswell.l1.ways, mine)
