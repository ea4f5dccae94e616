"""What a battery of rules found, as a value that can be read.

Knows: how it is told. Does not know: the rules. Called by ``battery``; read by people and tests.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

from ..errors import BlisgemmValueError

__all__ = ["Failure", "Report", "RuleResult"]


@dataclass(frozen=True)
class Failure:
    """One call that broke a rule: what was called, what was wrong, and how much that tells.

    ``telling`` is 2 if a part of the result was right, 1 if anything was computed. Those come first in a rule.
    """

    case: str
    message: str
    telling: int = 0

    def __str__(self) -> str:
        return self.message if self.case in self.message or not self.case else f"{self.message}\ncase: {self.case}"


@dataclass(frozen=True)
class RuleResult:
    """One rule and how it fared.

    Args:
        name: such as ``beta-zero``.
        says: the rule in a sentence.
        calls: how often the function was judged by it.
        failures: the calls that broke it, in order.
        skipped: why it was not asked; empty if it was.
    """

    name: str
    says: str
    calls: int
    failures: tuple[Failure, ...] = ()
    skipped: str = ""

    @property
    def state(self) -> str:
        """``kept``, ``broken`` or ``not asked``."""
        return "not asked" if self.skipped else "broken" if self.failures else "kept"


@dataclass(frozen=True)
class Report:
    """All rules of a battery on one function; printing it tells which are broken, by which call first.

    Example:
        >>> report = Report("f", (RuleResult("exact", "integers come out exact", 3),))
        >>> report.ok, report.broken
        (True, ())
        >>> print(report)
        f: all 1 rules kept in 3 calls
          kept       exact        3 calls: integers come out exact
    """

    function: str
    rules: tuple[RuleResult, ...]

    @property
    def broken(self) -> tuple[str, ...]:
        """Names of the broken rules."""
        return tuple(rule.name for rule in self.rules if rule.failures)

    @property
    def ok(self) -> bool:
        """Whether no rule is broken."""
        return not self.broken

    def __getitem__(self, name: str) -> RuleResult:
        """Return the result of a rule by its name."""
        for rule in self.rules:
            if rule.name == name:
                return rule
        raise BlisgemmValueError(f"name: expected one of {', '.join(rule.name for rule in self.rules)}; got {name!r}")

    def require(self) -> Report:
        """Return the report itself if no rule is broken.

        Raises:
            AssertionError: with the whole report.
        """
        if not self.ok:
            raise AssertionError(str(self))
        return self

    def __str__(self) -> str:
        asked = [rule for rule in self.rules if not rule.skipped]
        calls = sum(rule.calls for rule in asked)
        verdict = f"all {len(asked)} rules kept" if self.ok else f"{len(self.broken)} of {len(asked)} rules broken"
        lines = [f"{self.function}: {verdict} in {calls} calls"]
        for rule in self.rules:
            head = f"  {rule.state:<10} {rule.name:<12}"
            if rule.skipped:
                lines.append(f"{head} {rule.skipped}")
            elif rule.failures:
                lines.append(f"{head} {len(rule.failures)} of {rule.calls} calls: {rule.says}")
                lines += _wrapped(str(rule.failures[0]))
            else:
                lines.append(f"{head} {rule.calls} calls: {rule.says}")
        return "\n".join(lines)


def _wrapped(text: str) -> list[str]:
    """Return lines of at most 110 characters, indented under their rule."""
    return [
        piece
        for line in text.splitlines()
        for piece in textwrap.wrap(line, 110, initial_indent=" " * 15, subsequent_indent=" " * 17)
    ]
