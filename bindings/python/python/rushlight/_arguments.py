"""Checks of arguments, whose errors say which one is meant."""

import operator
import os

_MAX_COUNT = (1 << 64) - 1


def path_of(what, given):
    """A path as a str, of a str, bytes or an object with `__fspath__`."""
    try:
        return os.fsdecode(given)
    except TypeError:
        raise TypeError(f"{what}: expected a path, as a str, bytes or os.PathLike, got {type(given).__name__}") from None


def check_text(what, text):
    """Refuses what is no str, or one that no file can hold."""
    if not isinstance(text, str):
        raise TypeError(f"{what} must be a str, got {text!r}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{what} must be a str without lone surrogates, got {text!r}") from None


def check_bool(what, value):
    """Refuses what is no bool."""
    if not isinstance(value, bool):
        raise TypeError(f"{what} must be a bool, got {value!r}")


def count_of(value, least, most):
    """A value as an int from `least` to `most`, or None if it is none."""
    try:
        count = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        count = None
    return count if count is not None and least <= count <= most else None


def check_count(what, value, most=_MAX_COUNT):
    """Refuses what is neither None nor an int from 0 to `most`."""
    if value is not None and count_of(value, 0, most) is None:
        raise ValueError(f"{what} must be an int from 0 to {most} or None, got {value!r}")
