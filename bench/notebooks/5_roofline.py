# %% [markdown]
# # 5. The roofline
#
# How fast can a product be on a machine? Two things are given: how many floating-point operations (flops) the processor
# does in a second, and how many bytes its memory sends in a second. The *roofline* is the smaller of two limits:
#
# `min(peak, bandwidth * flops per byte)`
#
# Samuel Williams, Andrew Waterman and David Patterson drew it in 2009 (*Roofline: An Insightful Visual Performance
# Model for Multicore Architectures*, CACM 52(4)). Flops per byte is called *arithmetic intensity*. It belongs to the
# program; peak and bandwidth belong to the machine.

# %%
from blisgemm import teach
from blisgemm.bench.rates import measure_rates, time_product
from blisgemm.ladder import RUNGS
from blisgemm.teach import check
from blisgemm.teach.placing import device_roofline, rung_intensity

# %% [markdown]
# ## A machine from its data sheet
#
# One core of a Haswell, with a product of 1000 x 1000 x 1000 under its roofs. Both axes are logarithmic.

# %%
chart = teach.roofline(1000, 1000, 1000, machine="haswell")
print(chart)

# %% [markdown]
# There is a slanted roof for each level, since each sends at its own rate. A product has one point at each level,
# because a different number of bytes passes there. All points lie at one height: what the limit that rules allows.
# Here every point lies under the flat roof. So the multiply-adds rule, and the product can reach the peak.
#
# The same as a table, with the bytes that are expected at each level:

# %%
explained = teach.explain(1000, 1000, 1000, machine="haswell", threads=1)
for bound in explained.bounds:
    print(bound)
print("the limit that rules:", explained.ruling.name)

# %% [markdown]
# In a notebook the whole explanation is a page. (As a script this line shows nothing.)

# %%
explained

# %% [markdown]
# ## What the ladder does
#
# The ladder of this library leads from three plain loops to the real thing. What happens to the flops per byte between
# registers and L1?

# %%
plan = teach.plan_on("haswell", 512, 512, 512, path="packed", threads=1)
for rung in RUNGS:
    intensity = rung_intensity(rung.number, plan)
    allowed = chart.attainable(intensity, "L1") / 1e9
    print(f"{rung.short}  {intensity:5.2f} FLOP/byte, at most {allowed:5.1f} GFLOP/s   {rung.title}")

# %% [markdown]
# A tile of `mr` x `nr` in registers loads `mr + nr` elements for `2 * mr * nr` flops. That is where intensity is made.
# The roof is only a limit: rung 0 is far below it, for other reasons.

# %%
for tile in ((1, 1), (4, 4), (6, 16), (8, 48), (128, 128)):
    print(f"tile of {tile[0]:3d} x {tile[1]:3d}: {teach.tile_intensity(*tile):6.2f} FLOP/byte in float32")

# %% [markdown]
# ## A product that no one can make fast
#
# Matrix times vector: each element of the matrix is used once. Then memory rules, whatever the processor.

# %%
for m in (1, 4, 32, 256):
    it = teach.explain(m, 2000, 2000, machine="haswell", threads=1)
    print(f"{m:3d} x 2000 x 2000: {it.traffic.intensity('memory'):7.2f} FLOP/byte of memory, {it.ruling.name} rules, "
          f"at most {it.attainable / 1e9:6.1f} GFLOP/s")  # fmt: skip

# %% [markdown]
# ## A GPU
#
# The same picture, other numbers. An H100 does 989 TFLOP/s with its matrix units (16-bit) and has 3.35 TB/s of memory.
# From how many flops per byte on is it busy?

# %%
print(f"{teach.ridge(989e12, 3.35e12):.0f} FLOP/byte: the ridge")
print(f"{teach.tile_intensity(128, 128):.0f} FLOP/byte: a 128 x 128 tile in float32")
chart_h100, words = device_roofline("h100", (4096, 4096, 4096))
for point in chart_h100.points:
    print(f"{point.name}: {point.intensity:.0f} FLOP/byte, at most {point.flops_per_second / 1e12:.0f} TFLOP/s")
print(words)

# %% [markdown]
# A tile of 128 x 128 alone is far below that ridge. So L2 must serve what neighbouring tiles share, and 16-bit elements
# help twice.
#
# ## And here
#
# Now this very machine, measured: the multiply-adds on data in L1, and each level as it is read again and again. It
# takes a second or two. The product is timed too.

# %%
rates = measure_rates("float32", 1, 0.5)
own = teach.plan_on(None, 500, 500, 500, threads=1)
here = teach.roofline(500, 500, 500, rates=rates, measured=time_product(own, 1, 0.1))
print(here)

# %%
drawn = teach.picture(7, 4.5)
if drawn:
    figure, axes = drawn
    xs = [2**e for e in range(-4, 12)]
    for roof in here.roofs:
        axes.loglog(xs, [here.attainable(x, roof.level) / 1e9 for x in xs], label=roof.level)
    for point in here.points:
        axes.loglog(point.intensity, point.flops_per_second / 1e9, "ko")
    axes.set(xlabel="FLOP/byte", ylabel="GFLOP/s", title=here.title)
    axes.legend()

# %% [markdown]
# ## Exercises
#
# **Exercise 1.** The triple loop reads an element of A and one of B for each multiply-add. How many flops per byte is
# that in float64?

# %%
mine = None

# %%
answer = 2 / (2 * 8)
check(1, answer, teach.tile_intensity(1, 1, "float64"), mine)

# %% [markdown]
# **Exercise 2.** A square tile of t x t in float32 does t / 4 flops per byte. If all tiles came from memory, which is
# the least t for which one core of the Haswell above is not held up by its memory? (Its peak and bandwidth are printed
# above.)

# %%
mine = None

# %%
peak, memory = chart.peak, next(roof.rate for roof in chart.roofs if roof.level == "memory")
answer = -int(-4 * peak // memory)
found = next(t for t in range(1, 1000) if chart.attainable(teach.tile_intensity(t, t), "memory") == peak)
check(2, answer, found, mine)

# %% [markdown]
# **Exercise 3.** Matrix times vector, float32, a large matrix: 2 flops for each element of 4 bytes. How many GFLOP/s
# can the Haswell above reach at most? (1 % may be missing, since the vectors move too.)

# %%
mine = None

# %%
answer = memory * 2 / 4 / 1e9
it = teach.explain(1, 4000, 4000, machine="haswell", threads=1)
check(3, answer, it.attainable / 1e9, mine, within=0.01)

# %% [markdown]
# **Exercise 4.** A GPU has 132 multiprocessors; each takes one tile of C at a time. Which share of their time is worked
# with 133 tiles?

# %%
mine = None

# %%
answer = 133 / (2 * 132)  # a second wave with one tile
check(4, answer, teach.wave_share(133, 132), mine)

# %% [markdown]
# **Exercise 5.** Next year's processor has twice the peak and the same memory. Each operand of an n x n x n product
# comes once, and C goes back as well: 16 n^2 bytes in float32. From which n on could the old Haswell core, and from
# which the new one, reach its peak? How many times as large must n be?

# %%
mine = None

# %%
answer = 2  # 2 n^3 / (16 n^2) = n / 8 flops per byte, so n grows as the ridge does
old, new = (8 * teach.ridge(factor * peak, memory) for factor in (1, 2))
print(f"n = {old:.0f} and {new:.0f}")
check(5, answer, new / old, mine)
