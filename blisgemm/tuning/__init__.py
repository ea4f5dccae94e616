"""What was measured on this machine and is used in place of the model: read, checked, applied to a plan.

Knows: which names ``plan`` and the CLI take from here. Does not know: how anything is measured (``tuner``).
Tuning changes speed only: no choice here touches kc, so the bits of every product stay what they are.
"""

from .apply import direct_limits, lane_terms, tuned_blocking
from .choices import CHOICES, NOTHING, Choice, Tuning, as_document, from_document
from .file import MAX_BYTES, default_file, file_in_use, in_force, parse, read, read_again, shown

__all__ = [
    "CHOICES", "MAX_BYTES", "NOTHING", "Choice", "Tuning", "as_document", "default_file", "direct_limits",
    "file_in_use", "from_document", "in_force", "lane_terms", "parse", "read", "read_again", "shown",
    "tuned_blocking",
]  # fmt: skip
