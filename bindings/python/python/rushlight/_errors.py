"""The exceptions that failures of the library raise."""

import errno
import os
import sys


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
            state |= {"errno": self.errno, "strerror": self.strerror, "filename": self.filename}
        return type(self), self.args, state


class FileError(Error, OSError):
    """A failure of the system. `errno`, `strerror` and `filename` are as of any OSError."""


class FileNotFound(FileError, FileNotFoundError):
    """A file that is not there."""


class FileExists(FileError, FileExistsError):
    """A file that is there already."""


class PermissionDenied(FileError, PermissionError):
    """A file that may not be read or written."""


class IsADirectory(FileError, IsADirectoryError):
    """A folder where a file should be."""


class NotADirectory(FileError, NotADirectoryError):
    """A file where a folder should be."""


class BrokenPipe(FileError, BrokenPipeError):
    """A pipe that nobody reads."""


_CLASSES = {
    FileNotFoundError: FileNotFound,
    FileExistsError: FileExists,
    PermissionError: PermissionDenied,
    IsADirectoryError: IsADirectory,
    NotADirectoryError: NotADirectory,
    BrokenPipeError: BrokenPipe,
}
_CODES = {"InvalidState": 0x02, "InvalidProgram": 0x23}


def make(message, os_error, **fields):
    """The exception of a failure; `os_error` is the system's number and the path of a file that could not be accessed, without a
    number for a folder."""
    if os_error is None:
        return Error(message, **fields)
    number, path = os_error
    # Python knows the class of each number, and on Windows that of C for each of the system's.
    if number is None:
        known = OSError(errno.EISDIR, "")
    elif sys.platform == "win32":
        known = OSError(0, "", None, number)
    else:
        known = OSError(number, "")
    error = _CLASSES.get(type(known), FileError)(message, **fields)
    error.errno, error.strerror, error.filename = known.errno, os.strerror(known.errno), str(path)
    return error


def failure(code_name, message, expected=None, got=None, hint=None):
    """An error of this package in the form of the library's."""
    code = _CODES[code_name]
    lines = [("expected", expected), ("got", got), ("help", hint)]
    text = "".join(f"\n  {name:<9} {line}" for name, line in lines if line is not None)
    text = f"[{code_name} 0x{code:02x}] {message}{text}"
    return Error(text, code, code_name, expected=expected, got=got, hint=hint)
