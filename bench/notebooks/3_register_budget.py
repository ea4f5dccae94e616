# %% [markdown]
# # 3. The register budget
#
# The innermost part of a matrix product is the *microkernel*. It holds a tile of C, `mr` x `nr`, in vector registers
# while p runs. Why is this tile 6 x 16 on one processor, 8 x 48 on another, 8 x 12 on a third?
#
# There are few registers, so it is a budget. This page does the sums, and then looks into the assembly of a tile that
# spends too much.
#
# Source of the rule: Low, Igual, Smith and Quintana-Orti, *Analytical Modeling Is Enough for High-Performance BLIS*,
# ACM TOMS 43(2), 2016, section 3.

# %%
from dataclasses import replace

from blisgemm import BlisgemmValueError, teach
from blisgemm.machine import ISAS
from blisgemm.teach import check
from blisgemm.ukernel import catalog
from blisgemm.ukernel.spec import KernelSpec

# %% [markdown]
# ## What there is
#
# A vector set has so many registers of so many bytes. A float32 takes 4 bytes.

# %%
for name in ("sse2", "avx2", "avx512", "neon"):
    isa = ISAS[name]
    print(f"{name:7} {isa.registers} registers of {isa.lanes(4):2d} float32, fused multiply-add: {isa.fma}")

# %% [markdown]
# ## What a tile needs
#
# For each p the kernel loads one row of B (`nr` elements, whole vectors) and meets it with `mr` elements of A, one
# after the other. So it needs
#
# - a register for each vector of the tile: `mr * nr / lanes` sums,
# - one for each vector of the row of B,
# - one for the element of A, spread over all lanes.

# %%
for name in ("f32_6x16_avx2", "f32_8x48_avx512", "f32_8x12_neon"):
    print(f"{name:16} {catalog.by_name(name).register_account}")

# %% [markdown]
# ## Why not another tile?
#
# Two things count, and they pull the same way: towards large and nearly square tiles.
#
# 1. *Loads for each multiply-add.* A step loads `nr / lanes` vectors and `mr` elements, and does `mr * nr / lanes`
#    fused multiply-adds (fma). Many cores load twice and multiply-add twice in a cycle. More loads than fmas, and the
#    loads rule.
# 2. *Elements for each term.* A step brings `mr + nr` elements for `mr * nr` terms. B comes from L2, so `mr` counts
#    most: an element of B is used `mr` times.
#
# Let us list the AVX2 tiles that the budget allows and that multiply more than they load: fewest elements first.


# %%
def tile(mr, nr, isa="avx2", dtype="float32"):
    """Return the kernel of a tile, or None where it does not fit."""
    try:
        return KernelSpec(dtype, dtype, dtype, mr, nr, ISAS[isa])
    except BlisgemmValueError:
        return None


def table(isa, most_rows, most_vectors, shown=8):
    """Print the tiles with the fewest elements for each term, and return them."""
    lanes = ISAS[isa].lanes(4)
    fitting = [tile(mr, v * lanes, isa) for mr in range(1, most_rows + 1) for v in range(1, most_vectors + 1)]
    found = [spec for spec in fitting if spec and spec.mr + spec.row_vectors < spec.accumulators]
    found = sorted(found, key=lambda spec: 1 / spec.mr + 1 / spec.nr)
    print(f"{isa}: the first {min(shown, len(found))} of {len(found)}")
    print("   mr x nr   registers  sums  loads/fma  elements/term")
    for spec in found[:shown]:
        loads = (spec.mr + spec.row_vectors) / spec.accumulators
        each = 1 / spec.mr + 1 / spec.nr
        need = f"{spec.registers_needed:4d} of {spec.isa.registers}"
        print(f"   {spec.mr:2d} x {spec.nr:3d}   {need}  {spec.accumulators:4d}  {loads:9.3f}  {each:13.3f}")
    return found[:shown]


best = table("avx2", 14, 6)[0]
assert (best.mr, best.nr) == (6, 16)

# %% [markdown]
# 6 x 16 leads. That is the tile of the library, and of BLIS. Now the others.

# %%
wide = table("avx512", 30, 6)
arm = table("neon", 30, 8)

# %% [markdown]
# Here the library does not take the first of the list. The account is a rule of thumb: it knows no compiler and no
# cache.
#
# - AVX-512: 14 x 32 and 9 x 48 need 31 of 32 registers, which leaves no room for anything unforeseen (below).
#   Of the others in the list 8 x 48 has the fewest loads, 12 x 32 nearly the fewest elements. Which is faster? A budget
#   cannot say; a measurement did (its numbers stand in `blisgemm/ukernel/catalog.py`).
# - NEON multiplies by *one lane of a register*, so elements of A come as whole vectors, four with one load. Then `mr`
#   should be a multiple of 4. 8 x 12 and 12 x 8 remain, and 8 x 12 loads less.

# %%
roomy = [spec for spec in wide if spec.registers_needed <= 30]
fewest = min(roomy, key=lambda spec: (spec.mr + spec.row_vectors) / spec.accumulators)
assert (fewest.mr, fewest.nr) == (8, 48)
assert [(spec.mr, spec.nr) for spec in arm if spec.mr % 4 == 0] == [(8, 12), (12, 8)]
for spec in (tile(8, 48, "avx512"), tile(12, 32, "avx512"), tile(14, 32, "avx512")):
    print(f"{spec.mr} x {spec.nr}: {spec.register_account}; a row of C is {spec.nr * 4 / 64:g} cache lines")
print(teach.read_kernel("f32_8x12_neon"))

# %% [markdown]
# ## The other limit: waiting for the sum before
#
# Each sum is a chain: the next fma on it must wait until the last one is done. On Haswell an fma takes 5 cycles, and
# two can begin in each cycle. So fewer than 10 independent sums leave the pipes idle. A few lines of Python play it:


# %%
def share_of_peak(sums, latency=5, pipes=2, steps=200):
    """Return the share of all slots that are used, where each sum waits for its last fma."""
    ready, cycle, left = [0] * sums, 0, [s for _ in range(steps) for s in range(sums)]
    done = 0
    while done < len(left):
        for _ in range(pipes):
            if done < len(left) and ready[left[done]] <= cycle:
                ready[left[done]] = cycle + latency
                done += 1
        cycle += 1
    return len(left) / (cycle * pipes)


for sums in (1, 4, 8, 10, 12):
    share = share_of_peak(sums)
    print(f"{sums:2d} sums: {share:4.0%} of the peak {'#' * round(40 * share)}")

# %% [markdown]
# ## A tile that spends too much
#
# The library refuses a tile beyond the budget, and says why.

# %%
try:
    KernelSpec("float32", "float32", "float32", 8, 16, ISAS["avx2"])
except BlisgemmValueError as error:
    print(error)

# %% [markdown]
# What would happen otherwise? We pretend that AVX2 had 32 registers, and compile for a processor that has 16.
# Nothing runs here; we only read.

# %%
generous = replace(ISAS["avx2"], registers=32)
print("mr x nr  sums  accesses of the stack in each k step")
spills = {}
for mr in (4, 5, 6, 7, 8, 9):
    step = teach.read_kernel(KernelSpec("float32", "float32", "float32", mr, 16, generous))
    spills[mr] = step.loop.stack_accesses / step.loop.steps
    print(f"{mr} x 16   {mr * 2:4d}  {spills[mr]:5.1f}  {'#' * round(2 * spills[mr])}")
assert spills[6] == 0 < spills[8]

# %% [markdown]
# 7 x 16 is one register over the budget, and it shows at once. The compiler keeps some of the sums on the stack and
# fetches them in every step: a *spill*. Here is a part of the loop of 8 x 16. `(%rsp)` is the stack.

# %%
step = teach.read_kernel(KernelSpec("float32", "float32", "float32", 8, 16, generous))
for line in [text.strip() for text in step.loop.lines if "(%rsp)" in text][:6]:
    print(line.replace("\t", " "))

# %% [markdown]
# Each of them is a load or a store that no account has foreseen, and a sum that waits for memory.
#
# ## Exercises
#
# **Exercise 1.** How many AVX2 registers does a tile of 6 x 8 in float64 need? (A register holds 4 of them.)

# %%
mine = None

# %%
answer = 6 * 2 + 2 + 1
check(1, answer, catalog.by_name("f64_6x8_avx2").registers_needed, mine)

# %% [markdown]
# **Exercise 2.** With AVX-512 and `nr` = 48, what is the largest `mr` within 32 registers?

# %%
mine = None

# %%
answer = (32 - 3 - 1) // 3
check(2, answer, max(mr for mr in range(1, 30) if tile(mr, 48, "avx512")), mine)

# %% [markdown]
# **Exercise 3.** A tile of 4 x 16 with AVX2 has 8 sums. By the rule above, which share of Haswell's peak can it reach?

# %%
mine = None

# %%
answer = 8 / (5 * 2)  # 8 sums in the 5 cycles in which 10 fmas could begin
check(3, answer, share_of_peak(8), mine, within=0.01)

# %% [markdown]
# **Exercise 4.** SSE2 has no fused multiply-add: a product needs a register before it is added. What does the
# library's 4 x 8 float32 tile need there (4 lanes)?

# %%
mine = None

# %%
answer = 4 * 2 + 2 + 1 + 1
check(4, answer, catalog.by_name("f32_4x8_sse2").registers_needed, mine)

# %% [markdown]
# **Exercise 5.** A complex product is four real ones, so the library keeps four sums for each element, and loads real
# and imaginary parts as vectors of their own. How many registers hold sums in the c64 tile of 3 x 8 with AVX2?

# %%
mine = None

# %%
answer = 3 * 1 * 4
step = teach.read_kernel("c64_3x8_avx2")
check(5, answer, len(step.registers.accumulators), mine)
