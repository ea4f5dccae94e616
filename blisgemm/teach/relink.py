"""The same text, bound to other words: functions of a module whose global names mean something else.

Knows: how a function object is made anew from a code object. Does not know: what is replaced or why. Called by
``trace`` (the loops with words that record) and ``elsewhere`` (the plan of another machine).

Not a line is added to what is bound anew, and nothing of the module itself changes: the functions that calls run
are other objects, made from the same code.
"""

from __future__ import annotations

from types import FunctionType, ModuleType
from typing import Any

__all__ = ["relinked"]


def relinked(module: ModuleType, **replacements: Any) -> dict[str, Any]:
    """Return the names of ``module``, its functions made anew so that they see the replacements and each other.

    A compiled or cached function is taken as the plain Python function that it was made from.

    Args:
        module: where the functions are; it is not changed.
        replacements: what its names shall mean, also names of builtins.

    Example:
        >>> from blisgemm import parallel
        >>> asked = relinked(parallel, usable_cpus=lambda: 7)
        >>> asked["_default_threads"]() <= 7
        True
    """
    names = dict(vars(module))
    for name, value in vars(module).items():
        plain = getattr(value, "py_func", None) or getattr(value, "__wrapped__", value)
        if isinstance(plain, FunctionType) and plain.__module__ == module.__name__:
            made = FunctionType(plain.__code__, names, plain.__name__, plain.__defaults__, plain.__closure__)
            made.__kwdefaults__ = plain.__kwdefaults__
            made.__doc__ = plain.__doc__
            names[name] = made
    names.update(replacements)
    return names
