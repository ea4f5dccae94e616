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
    "CudaError",
    "CudaUnavailableError",
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


class CudaUnavailableError(BlisgemmError, RuntimeError):
    """Nothing can run on a GPU here: the text says what is missing and which extra brings it."""


class CudaError(BlisgemmError, RuntimeError):
    """A CUDA call failed.

    ``call`` is the name of the driver function, ``name`` CUDA's name of the error
    (``"CUDA_ERROR_OUT_OF_MEMORY"``), ``text`` what it means.
    """

    def __init__(self, call: str, name: str, text: str) -> None:
        super().__init__(call, name, text)
        self.call, self.name, self.text = call, name, text

    def __str__(self) -> str:
        return f"{self.call} failed with {self.name}: {self.text}"


class BlisgemmWarning(UserWarning):
    """Something beside the product that was left out, such as a tuning file for another machine."""
