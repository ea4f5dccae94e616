"""The search for choices that beat the model on this machine, by more than the noise.

Knows: which names ``cli.tune`` takes from here. Does not know: arrays, clocks or files.
"""

from .races import Ratio, Stopwatch, race
from .search import Finding, find_choices

__all__ = ["Finding", "Ratio", "Stopwatch", "find_choices", "race"]
