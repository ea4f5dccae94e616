"""The search for choices that beat the model on this machine, by more than the noise.

Knows: which values are worth a try, and in what order. Does not know: how a race is run (``races``), arrays, clocks or
files (a ``Stopwatch`` is given). Called by ``cli.tune``.

Candidates are first screened, the best by the median; then it alone meets the model again, twice, the
second time on operands of other places in memory, and must win both: ``Ratio.wins``. What is reported is the second
meeting, which had no part in the selection. One choice follows the other; a later one is raced on top of those kept.

kc is never tried: it alone would change bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from ..blocking import KC_MAX, Blocking
from ..plan import Plan, plan_for
from ..tuning import NOTHING, Choice, Tuning
from ..tuning.choices import Value
from ..ways import model_limits
from .races import MEDIAN, Ratio, Stopwatch, race, screen

__all__ = ["Finding", "find_choices"]

Shape = tuple[int, int, int]

# Of the time for one dtype and number of threads.
_TIME = {"nc": 0.3, "mt": 0.15, "mc": 0.2, "direct_share": 0.2, "direct_terms": 0.1, "together": 0.05}

_NC_FACTORS = (0.5, 0.67, 0.8, 1.25, 1.5, 2.0)  # of the model's: twice as much is three quarters of L2
_MT_FACTORS = (0.25, 0.5, 0.75, 1.5, 2.0, 3.0)  # of the model's: tiles are many, so that slow threads take fewer
_MC_ROWS = (384, 768, 1536, 3072, 6144)  # below, packing B again costs 5 % (blocking.MC_MIN); the timed m end above
_SHARES = (1 / 16, 1 / 8, 3 / 16, 1 / 4, 3 / 8, 1 / 2, 3 / 4, 1.0, 1.5)
_CUBES = (16, 24, 32, 40, 48, 64, 80, 96, 112, 128, 144, 160, 192, 224, 256, 320, 400)
_VAST = 10**7  # columns: with so many, nc is what L2 allows


@dataclass(frozen=True)
class Finding:
    """What came of one search: the value kept, or why none was."""

    what: str
    dtype: str
    threads: int
    model: Value | None
    best: Value | None
    ratio: Ratio | None
    choice: Choice | None
    note: str


Tell = Callable[[str], None]


def find_choices(
    dtype: str, threads: int, seconds: float, watch: Stopwatch, today: str, tell: Tell = lambda text: None
) -> Iterator[Finding]:
    """Yield what each search found, as it ends; those with a ``choice`` are to be kept.

    Args:
        dtype: of the products; threads: what they may use.
        seconds: to spend on all of it, roughly: a race that has begun is run to its least number of rounds.
        today: the date that the choices carry.
        tell: called with a few words whenever something else begins.
    """
    search = _Search(dtype, threads, watch, today, tell, NOTHING)
    tell("compiling")
    for plan in search.first_plans():
        watch.check(plan)
    begin = watch.now()
    names = [name for name in _TIME if name != "mt" or threads > 1]
    for number, name in enumerate(names):
        left = seconds - (watch.now() - begin)
        share = left * _TIME[name] / sum(_TIME[other] for other in names[number:])
        if name == "together":
            packed = [choice for choice in search.tuning.choices if not choice.what.startswith("direct")]
            if len(packed) > 1:
                yield search.together(packed, share)
        elif name.startswith("direct"):
            yield search.climb(name, share)
        else:
            yield search.pick(name, share)


@dataclass
class _Search:
    dtype: str
    threads: int
    watch: Stopwatch
    today: str
    tell: Tell
    tuning: Tuning  # the model and what has been kept so far

    # ---- packed: the best of a few values -------------------------------------------------------------

    @property
    def _shapes(self) -> tuple[Shape, ...]:
        """Products that are square, tall and wide; k is two kc blocks just short of the longest.

        Not two whole ones: rows of a power of two would measure conflicts in the cache.
        """
        k = 2 * KC_MAX[self.dtype] - 24
        return (1000, 1000, k), (1800, 500, k), (500, 1800, k)

    def _packed(self, tuning: Tuning) -> tuple[Plan, ...]:
        rest = self.dtype, self.threads, "rows"
        return tuple(plan_for(*shape, *rest, path="packed", tuning=tuning) for shape in self._shapes)

    def first_plans(self) -> tuple[Plan, ...]:
        """Return plans that need most of what must be compiled, which is not what the time is meant for."""
        return *self._packed(NOTHING), plan_for(100, 100, 100, self.dtype, self.threads, "rows", tuning=NOTHING)

    def pick(self, what: str, seconds: float) -> Finding:
        """Screen all values of nc, mt or mc; keep the best if it then wins twice."""
        base = self._packed(self.tuning)
        kernel, blocking = base[0].kernel, base[0].blocking
        assert kernel is not None and blocking is not None
        model = self._model_of(what, base[0])
        contestants: dict[Value, tuple[Plan, ...]] = {}
        seen = {_runs(base)}
        for value in self._values(what, base[0]):
            trial = _with(self.tuning, self._choice(what, kernel.name, blocking.kc, value, model, shapes=self._shapes))
            plans = self._packed(trial)
            if _runs(plans) not in seen:
                seen.add(_runs(plans))
                contestants[value] = plans
        if not contestants:
            return self._finding(what, model, None, None, None, "no other")
        end = self.watch.now() + seconds
        if not self._checked(what, (base, *contestants.values()), end):
            return self._finding(what, model, None, None, None, "no time")
        self.tell(f"{what}: {len(contestants)} values")
        ranking = screen(self.watch, base, contestants, 0.4 * (end - self.watch.now()))
        best = max(ranking, key=lambda value: ranking[value].median)
        if ranking[best].median <= MEDIAN:
            return self._finding(what, model, best, ranking[best], None, ranking[best].verdict)
        ratio, won = self._meet_twice(what, base, contestants[best], end)
        if not won:
            return self._finding(what, model, best, ratio, None, ratio.verdict)
        choice = self._choice(what, kernel.name, blocking.kc, best, model, ratio, self._shapes)
        self.tuning = _with(self.tuning, choice)
        return self._finding(what, model, best, ratio, choice, "kept")

    def together(self, packed: Sequence[Choice], seconds: float) -> Finding:
        """Race all packed choices at once against the model."""
        model, tuned = self._packed(NOTHING), self._packed(self.tuning)
        end = self.watch.now() + seconds
        if not self._checked("all together", (model, tuned), end):
            return self._finding("together", None, None, None, None, "no time")
        ratio = race(self.watch, model, tuned, end - self.watch.now())
        return self._finding("together", None, None, ratio, None, ", ".join(choice.what for choice in packed))

    def _model_of(self, what: str, plan: Plan) -> Value:
        """Return the largest that the model allows: tiles of several threads at the first shape, else at any."""
        assert plan.blocking is not None
        if what == "mc":
            return max(other.blocking.mc for other in self._packed(self.tuning) if other.blocking)
        if self.threads > 1:
            return plan.blocking.mt if what == "mt" else plan.blocking.nc
        vast = plan_for(plan.m, _VAST, plan.k, self.dtype, self.threads, "rows", path="packed", tuning=self.tuning)
        assert vast.blocking is not None
        return vast.blocking.nc

    def _values(self, what: str, plan: Plan) -> list[Value]:
        kernel = plan.kernel
        assert kernel is not None
        if what in ("nc", "mt"):
            step, factors = (kernel.nr, _NC_FACTORS) if what == "nc" else (kernel.mr, _MT_FACTORS)
            limit = self._model_of(what, plan)
            return list(dict.fromkeys(max(1, round(factor * limit / step)) * step for factor in factors))
        return [-(-rows // kernel.mr) * kernel.mr for rows in _MC_ROWS]

    # ---- direct: as far as it wins, step by step ------------------------------------------------------

    def climb(self, what: str, seconds: float) -> Finding:
        """Raise a limit of the direct path while each step wins; else lower it while each step wins."""
        terms, share = model_limits(self.dtype)
        model: Value = terms if what == "direct_terms" else share
        ladder = [float(x) for x in _SHARES] if what == "direct_share" else [n**3 for n in _CUBES]
        rises = [x for x in ladder if x > float(model)]
        falls = [*(x for x in reversed(ladder) if x < float(model)), *([0.0] if what == "direct_share" else [])]
        end = self.watch.now() + seconds
        last = self._finding(what, model, None, None, None, "no other")
        for direction in (rises, falls):
            kept, last = self._steps(what, model, direction, end, last)
            if kept is not None:
                self.tuning = _with(self.tuning, kept)
                return last
        return last

    def _steps(
        self, what: str, model: Value, values: Sequence[Value], end: float, last: Finding
    ) -> tuple[Choice | None, Finding]:
        """Go from the model's value through ``values`` until a step doesn't win; the last one that did is kept."""
        kept: Choice | None = None
        before = model
        for value in values:
            shapes = self._shapes_between(what, before, value)
            pairs = zip(shapes, *(self._direct(what, x, model, shapes) for x in (before, value)), strict=True)
            before = value
            differing = [pair for pair in pairs if _runs(pair[1:2]) != _runs(pair[2:])]
            if not differing:
                continue  # this step decides no product that was not decided before
            shapes, old, new = zip(*differing, strict=True)
            if not self._checked(what, (old, new), end):
                return kept, last if kept else replace(last, note="no time")
            ratio, won = self._meet_twice(f"{what} {_text(value)}", old, new, end)
            if not won:
                if kept is None:
                    last = self._finding(what, model, value, ratio, None, ratio.verdict)
                break
            direct = next((plan for plan in (*old, *new) if plan.path != "packed"), new[0])
            assert direct.kernel is not None and direct.blocking is not None
            kept = self._choice(what, direct.kernel.name, direct.blocking.kc, value, model, ratio, shapes)
            last = self._finding(what, model, value, ratio, kept, "kept")
        return kept, last

    def _shapes_between(self, what: str, a: Value, b: Value) -> tuple[Shape, ...]:
        """Return products that the larger of two limits lets go direct, and the smaller does not."""
        high = max(float(a), float(b))
        if what == "direct_terms":
            n = round(high ** (1 / 3)) // 2 * 2
            return (n, n, n), (2 * n, n, n // 2), (n // 2, 2 * n, n)
        plan = plan_for(8, 8, 8, self.dtype, 1, "rows", tuning=NOTHING)
        assert plan.kernel is not None
        l2 = plan.machine.l2
        elements = high * (l2.size_bytes // l2.cores) / plan.kernel.itemsize
        n = max(16, math.isqrt(int(elements)) // 16 * 16)
        return (n, n, n), (3 * n, n, n), (n, 2 * n, n // 2)

    def _direct(self, what: str, value: Value, model: Value, shapes: Sequence[Shape]) -> tuple[Plan, ...]:
        """Return the plans for a limit; both kernels of the direct path carry it while it is only tried."""
        tuning = self.tuning
        if value != model:
            role = plan_for(8, 8, 8, self.dtype, 1, "rows", tuning=NOTHING).kernel
            assert role is not None
            tuning = _with(tuning, self._choice(what, role.name, 1, value, model))
        return tuple(plan_for(m, n, k, self.dtype, self.threads, "rows", tuning=tuning) for m, n, k in shapes)

    # ---- both -----------------------------------------------------------------------------------------

    def _checked(self, what: str, fields: Sequence[Sequence[Plan]], end: float) -> bool:
        """Verify every plan; False if the time ran out before the races could begin."""
        self.tell(f"{what}: checking")
        for plan in (plan for plans in fields for plan in plans):
            if self.watch.now() > end:
                return False
            self.watch.check(plan)
        return self.watch.now() <= end

    def _meet_twice(self, what: str, base: Sequence[Plan], other: Sequence[Plan], end: float) -> tuple[Ratio, bool]:
        """Race two sets of plans; if the second wins, again on other operands. Return the last ratio."""
        self.tell(f"{what}: deciding")
        ratio = race(self.watch, base, other, (end - self.watch.now()) / 2)
        if not ratio.wins:
            return ratio, False
        self.watch.renew()
        self.tell(f"{what}: verifying")
        ratio = race(self.watch, base, other, end - self.watch.now())
        return ratio, ratio.wins

    def _choice(
        self, what: str, kernel: str, kc: int, value: Value, model: Value, ratio: Ratio | None = None,
        shapes: Sequence[Shape] = ((1, 1, 1),),
    ) -> Choice:  # fmt: skip
        gain = (ratio.median, ratio.low, ratio.high) if ratio else (1.0, 1.0, 1.0)
        rounded = tuple(round(x, 4) for x in gain)
        at = tuple("x".join(map(str, shape)) for shape in shapes)
        return Choice(
            what, self.dtype, self.threads, kernel, kc, value, model, self.today, rounded, at  # type: ignore[arg-type]
        )  # fmt: skip

    def _finding(
        self, what: str, model: Value | None, best: Value | None, ratio: Ratio | None, choice: Choice | None, note: str
    ) -> Finding:
        return Finding(what, self.dtype, self.threads, model, best, ratio, choice, note)


def _runs(plans: Sequence[Plan]) -> tuple[object, ...]:
    """Return what of plans the machine can tell apart."""

    def bare(blocking: Blocking | None) -> Blocking | None:
        return blocking and replace(blocking, footprints=(), reasons=())

    return tuple(replace(plan, blocking=bare(plan.blocking), reasons=()) for plan in plans)


def _with(tuning: Tuning, choice: Choice) -> Tuning:
    rest = tuple(other for other in tuning.choices if other.key != choice.key)
    return replace(tuning, choices=(*rest, choice), source=tuning.source or "not saved yet")


def _text(value: Value) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
