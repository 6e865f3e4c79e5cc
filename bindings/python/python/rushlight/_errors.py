"""The exceptions that failures of the library raise."""

import errno


class Error(RuntimeError):
    """What went wrong, where, what was expected, what came, and what to do about it.

    `str(error)` is the whole text; the attributes hold its parts. `code` is ExecuTorch's number for the condition,
    `code_name` its name. `missing_operators` lists all operators that a program needs and this build lacks.
    """

    def __init__(
        self,
        message,
        code=0,
        code_name="",
        site=None,
        expected=None,
        got=None,
        hint=None,
        missing_operators=(),
    ):
        super().__init__(message)
        self.code = code
        self.code_name = code_name
        self.site = site
        self.expected = expected
        self.got = got
        self.hint = hint
        self.missing_operators = list(missing_operators)

    def __str__(self):
        return self.args[0]

    def __reduce__(self):
        state = dict(self.__dict__)
        if isinstance(self, OSError):
            state |= {"errno": self.errno, "filename": self.filename}
        return type(self), self.args, state


class FileNotFound(Error, FileNotFoundError):
    """A file that is not there. `errno` and `filename` are as of any FileNotFoundError."""


class PermissionDenied(Error, PermissionError):
    """A file that may not be read or written."""


_CLASSES = {
    errno.ENOENT: FileNotFound,
    errno.EACCES: PermissionDenied,
    errno.EPERM: PermissionDenied,
}


def make(message, os_error, **fields):
    """The exception of a failure; `os_error` is the system's number and the path of a file that could not be accessed."""
    if os_error is None:
        return Error(message, **fields)
    number, path = os_error
    error = _CLASSES.get(number, Error)(message, **fields)
    error.errno, error.filename = number, str(path)
    return error
