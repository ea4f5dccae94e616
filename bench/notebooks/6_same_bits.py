# %% [markdown]
# # 6. Rounding, and the same bits
#
# Computers round. So the order in which numbers are added changes the result, a little. Most libraries let the order
# depend on the layout of the arrays, the number of threads and the processor. So the same product may have other last
# bits tomorrow.
#
# This library pins the order. Here we look at rounding, at its bound, and at what pinned bits are good for.
#
# Source: Nicholas Higham, *Accuracy and Stability of Numerical Algorithms*, 2nd edition, SIAM 2002, chapters 2 and 3.

# %%
from fractions import Fraction

import numpy as np

import blisgemm
from blisgemm import testing
from blisgemm.blocking import kc_for
from blisgemm.teach import check
from blisgemm.testing import draw_reals

rng = np.random.default_rng(6)

# %% [markdown]
# ## One rounding
#
# A float32 has 24 bits for its digits. What needs more is rounded to the nearest float, by at most half a unit in the
# last place. Relative to the number that is `u = 2**-24`, the *unit roundoff*.

# %%
u = Fraction(1, 2**24)
tenth = Fraction(float(np.float32(0.1)))
error = abs(tenth - Fraction(1, 10)) / Fraction(1, 10)
print(f"0.1 as float32 is off by {float(error):.2e}, u is {float(u):.2e}")
assert error <= u

# %% [markdown]
# ## Order matters
#
# In float32 the numbers around 2**24 are 1 apart or 2 apart. Add 1 to 2**24, and nothing happens.

# %%
big, one = np.float32(2**24), np.float32(1)
print("(big + 1) + 1 =", (big + one) + one)
print("big + (1 + 1) =", big + (one + one))
assert (big + one) + one != big + (one + one)

# %% [markdown]
# Now the same with a real sum: one row times one column, 1000 terms, in three orders.

# %%
x, y = (draw_reals(rng, 1000, np.float32) for _ in range(2))
terms = x * y


def one_by_one(values):
    """Add from left to right."""
    total = np.float32(0)
    for value in values:
        total += value
    return total


print("forwards      ", one_by_one(terms))
print("backwards     ", one_by_one(terms[::-1]))
print("halves, halves", np.add.reduce(terms))
print("exactly       ", float(sum(Fraction(float(p)) * Fraction(float(q)) for p, q in zip(x, y, strict=True))))

# %% [markdown]
# ## The fused multiply-add
#
# `fma(a, b, c)` is `a * b + c` with *one* rounding, where a product and a sum have two. It is what the microkernels
# are made of. In Python we get it exactly with fractions, and round once.

# %%
rounds = 0


def to_float32(exact):
    """Round a fraction to the nearest float32; among two the even one."""
    global rounds
    rounds += 1
    near = np.float32(float(exact))
    around = (np.nextafter(near, np.float32(-np.inf)), near, np.nextafter(near, np.float32(np.inf)))
    return min(around, key=lambda z: (abs(Fraction(float(z)) - exact), z.view(np.int32) & 1))


def fma(a, b, c):
    """Return a * b + c of float32, rounded once."""
    return to_float32(Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c)))


x, minus = np.float32(1 + 2**-12), np.float32(-1 - 2**-11)
print("x * x - (1 + 2**-11), two roundings:", x * x + minus)
print("one rounding:", fma(x, x, minus), "which is 2**-24, exactly right")
assert x * x + minus == 0 and fma(x, x, minus) == 2.0**-24

# %% [markdown]
# ## What this library promises
#
# An element of C is one chain: from +0, one fma for each p in ascending order, within a block of `kc`. The sums of
# the blocks are added in order. And `kc` depends on the dtype and on k alone, never on the machine. So we can foretell
# every bit.

# %%
m, n, k = 5, 4, 700
a = draw_reals(rng, (m, k), np.float32)
b = draw_reals(rng, (k, n), np.float32)
kc = kc_for("float32", k)
print("kc =", kc)


def foretold(row, column):
    """Return the chain of one element."""
    result = np.float32(0)
    for pc in range(0, len(row), kc):
        total = np.float32(0)
        for p in range(pc, min(len(row), pc + kc)):
            total = fma(row[p], column[p], total)
        result = total if pc == 0 else to_float32(Fraction(float(result)) + Fraction(float(total)))
    return result


rounds = 0
first = foretold(a[0], b[:, 0])
rounds_of_one = rounds
ours = blisgemm.matmul(a, b)
print("foretold", first, " computed", ours[0, 0], " NumPy", (a @ b)[0, 0])

# %% [markdown]
# This holds wherever the processor has a fused multiply-add. The plan says so:

# %%
plan = blisgemm.make_plan(m, n, k)
fused = plan.kernel.isa.fma
print(plan.bits)
if fused:
    assert first == ours[0, 0]

# %% [markdown]
# ## The same bits, whatever you do
#
# Other layouts, a row alone, another path: compare with `==`, not with a tolerance.

# %%
a, b = draw_reals(rng, (150, 200), np.float32), draw_reals(rng, (200, 130), np.float32)
whole = blisgemm.matmul(a, b)
same = {
    "B by columns": blisgemm.matmul(a, np.asfortranarray(b)),
    "A reversed, and back": blisgemm.matmul(a[::-1], b)[::-1],
    "row 7 alone": np.vstack([whole[:7], blisgemm.matmul(a[7:8], b), whole[8:]]),
    "the transpose": blisgemm.matmul(b.T, a.T).T,
}
for path in ("direct", "packed"):
    forced = blisgemm.make_plan(150, 130, 200, path=path, threads=1)
    same[f"the {path} path"] = blisgemm.gemm(a, b, plan=forced)
for what, result in same.items():
    print(f"{what:22} {'the same bits' if (result == whole).all() else 'DIFFERENT'}")
assert all((result == whole).all() for result in same.values())

# %% [markdown]
# What is it good for? A result can be checked on another machine, a bug can be run again, and two programs agree on
# which of two numbers is larger.
#
# ## How far off can it be?
#
# A term of C meets at most one rounding for each of the k steps after it, and a few more. Higham (section 3.5): the
# error of an element is at most about `(k + 2) u` times `|A| |B|` at that place. This is a bound and no tolerance: it
# holds for every input and every order. Rounding errors cancel in part, so what one sees is far smaller.

# %%
print("     k    bound, in u    worst seen, in u")
for k in (16, 256, 4096):
    a, b = draw_reals(rng, (8, k), np.float32), draw_reals(rng, (k, 8), np.float32)
    worst = testing.assert_within_bound(blisgemm.matmul(a, b), a, b)
    print(f"{k:6d}   {worst.roundings:12d}   {worst.roundoffs:17.2f}")

# %% [markdown]
# Sums in float16 break the bound of float32, and the message says where:

# %%
a, b = draw_reals(rng, (8, 16), np.float32), draw_reals(rng, (16, 8), np.float32)
try:
    testing.assert_within_bound((a.astype(np.float16) @ b.astype(np.float16)).astype(np.float32), a, b)
except AssertionError as found:
    print(str(found)[:150], "...")

# %% [markdown]
# ## Data that does not round
#
# Tests should not have to think about rounding. Small integers help: as long as no partial sum exceeds 2**24, float32
# is exact, in every order. Then `==` finds each lost term.

# %%
a, b = (testing.draw_integers(rng, shape, np.float32, k=30) for shape in ((40, 30), (30, 20)))
testing.assert_exact(blisgemm.matmul(a, b), testing.exact_product(a, b))
print("exactly right")

# %% [markdown]
# ## Exercises
#
# **Exercise 1.** What is 2**24 + 1 in float32?

# %%
mine = None

# %%
answer = 2**24
check(1, answer, int(np.float32(2**24) + np.float32(1)), mine)

# %% [markdown]
# **Exercise 2.** A and B hold integers of absolute value at most v, and k = 4096. Which is the largest v for which no
# sum in float32 can round?

# %%
mine = None

# %%
answer = int((testing.exact_limit("float32") / 4096) ** 0.5)
check(2, answer, testing.largest_exact("float32", 4096), mine)

# %% [markdown]
# **Exercise 3.** One element of the product with k = 700 above: how many roundings does it take in all? (Each fma
# rounds once, and so does each addition of a block to those before.)

# %%
mine = None

# %%
answer = 700 + (-(-700 // kc) - 1)
check(3, answer, rounds_of_one, mine)

# %% [markdown]
# **Exercise 4.** You compute in float64 in place of float32. By which factor does the bound shrink, at the same k?

# %%
mine = None

# %%
answer = 2.0 ** (53 - 24)
check(4, answer, float(np.finfo(np.float32).eps / np.finfo(np.float64).eps), mine)


# %% [markdown]
# **Exercise 5.** This gemm forgets something. Which rule does the library's test battery find broken: `exact`,
# `beta-zero`, `alpha-zero`, `nan` or `layouts`?
#
#     def gemm(a, b, c=None, *, alpha=1, beta=0):
#         result = np.zeros((a.shape[0], b.shape[1]), np.result_type(a, b)) if alpha == 0 else alpha * (a @ b)
#         return result if c is None else result + beta * c

# %%
mine = None


# %%
def gemm(a, b, c=None, *, alpha=1, beta=0):
    """Forget that 0 times NaN is NaN: beta = 0 must not read C."""
    result = np.zeros((a.shape[0], b.shape[1]), np.result_type(a, b)) if alpha == 0 else a.dtype.type(alpha) * (a @ b)
    return result if c is None else result + a.dtype.type(beta) * c


answer = "beta-zero"
check(5, answer, ", ".join(testing.check_gemm(gemm).broken), mine)
