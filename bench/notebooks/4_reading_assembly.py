# %% [markdown]
# # 4. Reading assembly
#
# Assembly looks hostile. But the loop that takes nearly all the time of a matrix product is short, and only three kinds
# of instructions matter in it. After this page you can tell at a glance whether such a loop is good.
#
# The library can compile its kernels for any processor that LLVM knows. Nothing runs, so a laptop reads them all.
#
# Sources: Intel SDM volume 2 (the instructions); Goto and van de Geijn, ACM TOMS 34(3), 2008, section 3 (what the inner
# kernel must do).

# %%
import re
from collections import Counter

from blisgemm import teach
from blisgemm.machine import ISAS
from blisgemm.teach import check
from blisgemm.teach.kdiff import difference, table
from blisgemm.ukernel.assembly import cpus_of
from blisgemm.ukernel.spec import KernelSpec

# %% [markdown]
# ## One step of p
#
# `f32_6x16_avx2` holds a tile of 6 x 16 float32 sums. For each p it does `C[6 x 16] += A[6] * B[16]`. Here is its first
# step, straight from the compiler.

# %%
kernel = teach.read_kernel("f32_6x16_avx2")
lines = [line.strip().expandtabs(4) for line in kernel.loop.lines]
for line in lines[1:21]:
    print(line)

# %% [markdown]
# Three kinds of instructions. (Your compiler may choose other registers.)
#
# - `vmovaps -224(%r13), %ymm12` **loads** 8 floats of B from memory into register `ymm12`. The target comes last.
#   The number before the bracket is a distance in bytes.
# - `vbroadcastss -92(%r14), %ymm14` **broadcasts**: one float of A, into all 8 lanes.
# - `vfmadd231ps %ymm12, %ymm14, %ymm11` **multiplies and adds**: `ymm11 += ymm14 * ymm12`, in all lanes, with one
#   rounding.
#
# So one p is: 2 loads, then 6 times (1 broadcast, 2 multiply-adds). Count the words of the whole loop:

# %%
words = Counter(line.split()[0] for line in lines[1:])
for word, count in words.most_common():
    print(f"{count:3d}  {word}")

# %% [markdown]
# The compiler has put four values of p into one turn. What is left over, two `addq`, a `decq` and a `jne`, moves the
# pointers and closes the loop. There is no store: the sums stay in registers.
#
# The library counts for you, and holds the count against what the tile needs.

# %%
print(kernel)

# %% [markdown]
# The map below the counts says which register holds which part of C. It is read from the assembly, not from the
# generator.
#
# ## Is it fast?
#
# A core can begin only so many instructions in a cycle. Many cores begin 2 fmas and 2 loads. Then one p takes at
# least `fmas / 2` cycles for the multiply-adds and `loads / 2` for loads and broadcasts. The larger number rules.


# %%
def cycles(step, fmas=2, loads=2):
    """Return the least cycles of one k step: (for multiply-adds, for loads)."""
    counts = {need.what: need.counted for need in teach.needs(step)}
    return counts["fmas"] / fmas, (counts["vector loads"] + counts["broadcasts"]) / loads


for name in ("f32_6x16_avx2", "f32_4x24_avx2", "f32_8x48_avx512", "f32_8x12_neon"):
    of_fmas, of_loads = cycles(teach.read_kernel(name))
    print(f"{name:16} multiply-adds {of_fmas:4.1f} cycles, loads {of_loads:4.1f}")

# %% [markdown]
# Everywhere the multiply-adds rule, with room to spare. That is what the register tile is for.
#
# ## Kernels side by side

# %%
for title, *counts in table([kernel, teach.read_kernel("f32_8x48_avx512"), teach.read_kernel("f32_8x12_neon")]):
    print(f"{title:29}" + "".join(f"{count.split('@')[0]:>17}" for count in counts))

# %% [markdown]
# On NEON there are no broadcasts at all: `fmla v29.4s, v11.4s, v13.s[0]` multiplies by lane 0 of `v13`. Four elements
# of A come with one load, and `ldp` loads two registers at once.

# %%
arm = teach.read_kernel("f32_8x12_neon")
for line in arm.loop.lines[1:12]:
    print(line.strip().expandtabs(4))

# %% [markdown]
# Two loops can also be compared, with roles in place of registers. `-` is only in the first, `+` only in the second;
# `4 x (...)` says that something repeats.

# %%
print("\n".join(difference(kernel, teach.read_kernel("f32_4x24_avx2"))))

# %% [markdown]
# ## Without a fused multiply-add
#
# SSE2 is older. It multiplies into a register, then adds: two instructions and two roundings. And its broadcast is a
# load and a shuffle.

# %%
old = teach.read_kernel("f32_4x8_sse2")
print(Counter(line.split()[0] for line in old.loop.lines[1:]).most_common())

# %% [markdown]
# ## Another processor
#
# Name any processor that LLVM knows. The text may change, the work must not.

# %%
print(f"LLVM knows {len(cpus_of('x86_64'))} of x86-64, such as {', '.join(cpus_of('x86_64')[-4:])}")
for cpu in ("haswell", "znver3", "skylake-avx512"):
    step = teach.read_kernel("f32_6x16_avx2", cpu=cpu)
    print(f"{cpu:16} {step.loop.fmas / step.loop.steps:g} fmas, {step.loop.registers} registers")

# %% [markdown]
# ## Exercises
#
# **Exercise 1.** How many multiply-add instructions has one step of p in `f32_8x48_avx512`? (A register holds 16
# floats.)

# %%
mine = None

# %%
wide = teach.read_kernel("f32_8x48_avx512")
answer = 8 * 48 // 16
check(1, answer, wide.loop.fmas // wide.loop.steps, mine)

# %% [markdown]
# **Exercise 2.** How many bytes of A and B does one step of that kernel read?

# %%
mine = None

# %%
answer = (8 + 48) * 4
read = 0
for line in wide.loop.lines[1:]:
    if "(" in line and "prefetch" not in line:
        read += 4 if "broadcast" in line or "1to16" in line else 64
check(2, answer, read // wide.loop.steps, mine)

# %% [markdown]
# **Exercise 3.** A Haswell begins two 8-float fmas in a cycle. How many floating-point operations is that in a cycle?
# (A fused multiply-add counts as two.)

# %%
mine = None

# %%
answer = 2 * 8 * 2
sheet = teach.data_sheet(teach.machine_named("haswell"))
check(3, answer, round(sheet.peak("float32") / 3.9e9), mine)  # the data sheet's peak, at its 3.9 GHz

# %% [markdown]
# **Exercise 4.** `f32_6x16_avx2` moves the pointer of B by how many bytes in one *turn* of the loop? Find out how many
# steps of p one turn has; then look for the `addq` that says so.

# %%
mine = None

# %%
answer = kernel.loop.steps * 16 * 4
advances = [int(x) for line in kernel.loop.lines for x in re.findall(r"[asd]+q\s+\$(-?\d+), %r", line)]
check(4, answer, max(abs(x) for x in advances), mine)

# %% [markdown]
# **Exercise 5.** A tile of 1 x 16 (AVX2) would do 2 multiply-adds for each p. How many loads and broadcasts? So which
# limit rules, and at what share of the peak does it run at best, with 2 loads and 2 fmas a cycle?

# %%
mine = None

# %%
answer = 2 / 3  # 2 loads and 1 broadcast for 2 fmas
thin = teach.read_kernel(KernelSpec("float32", "float32", "float32", 1, 16, ISAS["avx2"]))
loads = sum("(" in line for line in thin.loop.lines) / thin.loop.steps  # fmas that read memory load too
check(5, answer, thin.loop.fmas / thin.loop.steps / loads, mine, within=0.01)
