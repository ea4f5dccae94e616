"""The exceptions of blisgemm: what was asked, what was expected, what came.

Knows nothing else; every layer may import it. Each class derives from the
builtin that NumPy raises in the same situation, so code written for NumPy
keeps working.
"""

__all__ = [
    "BlisgemmError",
    "BlisgemmTypeError",
    "BlisgemmValueError",
    "BlisgemmWarning",
    "OverrideError",
]


class BlisgemmError(Exception):
    """Base of every error that blisgemm raises on purpose."""


class BlisgemmValueError(BlisgemmError, ValueError):
    """A value or a shape that the call can't accept."""


class BlisgemmTypeError(BlisgemmError, TypeError):
    """A type or a dtype that the call can't accept."""


class OverrideError(BlisgemmValueError):
    """An environment override (``BLISGEMM_*``) that is unknown or can't run on this machine."""


class BlisgemmWarning(UserWarning):
    """Something beside the product that was left out, such as a tuning file for another machine."""
