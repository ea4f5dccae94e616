"""Messages that appear only when asked for: ``BLISGEMM_VERBOSE=1``, on standard error."""

from __future__ import annotations

import os
import sys

__all__ = ["say"]


def say(message: str) -> None:
    """Print one line if ``BLISGEMM_VERBOSE`` is set to something other than 0."""
    if os.environ.get("BLISGEMM_VERBOSE", "0") not in ("", "0"):
        sys.stderr.write(f"blisgemm: {message}\n")  # in one piece, whatever other threads write
        sys.stderr.flush()
