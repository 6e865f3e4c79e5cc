"""Checks of arguments. Their errors name the argument."""

import operator
import os
import sys

_MAX_COUNT = (1 << 64) - 1


def path_of(what, given):
    """Converts a str, bytes or an object with `__fspath__` to a path as a str."""
    try:
        return os.fsdecode(given)
    except TypeError:
        raise TypeError(f"{what}: expected a path, as a str, bytes or os.PathLike, got {type(given).__name__}") from None


def check_text(what, text):
    """Raises unless `text` is a str that can be encoded as UTF-8."""
    if not isinstance(text, str):
        raise TypeError(f"{what} must be a str, got {text!r}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{what} must be a str without lone surrogates, got {text!r}") from None


def check_bool(what, value):
    """Raises unless `value` is a bool."""
    if not isinstance(value, bool):
        raise TypeError(f"{what} must be a bool, got {value!r}")


def count_of(value, least, most):
    """Returns `value` as an int from `least` to `most`; None for any other value."""
    try:
        count = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        count = None
    return count if count is not None and least <= count <= most else None


def check_count(what, value, most=_MAX_COUNT):
    """Raises unless `value` is None or an int from 0 to `most`."""
    if value is not None and count_of(value, 0, most) is None:
        raise ValueError(f"{what} must be an int from 0 to {most} or None, got {value!r}")


def kind_of_arrays(values):
    """Returns the module that the first array among the values is of: numpy or torch. None without such an array."""
    for value in values:
        for cls in type(value).__mro__:
            module = cls.__module__.partition(".")[0]
            if module in ("numpy", "torch"):
                return sys.modules.get(module)
    return None


def new_array(module, sizes, dtype):
    """Makes an array of numpy or torch, without values."""
    if module.__name__ == "torch":
        return module.empty(sizes, dtype=getattr(module, dtype))
    if dtype == "bfloat16":
        raise TypeError("NumPy has no bfloat16: give a tensor of PyTorch as out=")
    return module.empty(sizes, dtype=dtype)
