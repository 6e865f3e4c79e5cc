"""The exceptions of the library."""

import errno
import os
import sys


class Error(RuntimeError):
    """An error of the library: its message, place, expected and actual values, and a hint.

    `str(error)` is the whole text, and the attributes are its parts. `code` is ExecuTorch's error code, `code_name` its name.
    `missing_operators` lists all operators that a program needs and this build lacks.
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
    """An error of the operating system. `errno`, `strerror` and `filename` are those of an OSError."""


class FileNotFound(FileError, FileNotFoundError):
    """A file does not exist."""


class FileExists(FileError, FileExistsError):
    """A file exists already."""


class PermissionDenied(FileError, PermissionError):
    """The process may not read or write a file."""


class IsADirectory(FileError, IsADirectoryError):
    """A path is a folder, and a file is needed."""


class NotADirectory(FileError, NotADirectoryError):
    """A path is a file, and a folder is needed."""


class BrokenPipe(FileError, BrokenPipeError):
    """A pipe has no reader."""


_CLASSES = {
    FileNotFoundError: FileNotFound,
    FileExistsError: FileExists,
    PermissionError: PermissionDenied,
    IsADirectoryError: IsADirectory,
    NotADirectoryError: NotADirectory,
    BrokenPipeError: BrokenPipe,
}
_CODES = {"InvalidState": 0x02, "NotSupported": 0x10, "InvalidProgram": 0x23}


def make(message, os_error, **fields):
    """Makes the exception of an error. `os_error` is the system's error number and the path of a file that could not be accessed.
    The number is None for a folder in place of a file.
    """
    if os_error is None:
        return Error(message, **fields)
    number, path = os_error
    # OSError selects the class for a number. On Windows, it also converts the system's number to that of C.
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
    """Makes an error of this package, with a text in the library's form."""
    code = _CODES[code_name]
    lines = [("expected", expected), ("got", got), ("help", hint)]
    text = "".join(f"\n  {name:<9} {line}" for name, line in lines if line is not None)
    text = f"[{code_name} 0x{code:02x}] {message}{text}"
    return Error(text, code, code_name, expected=expected, got=got, hint=hint)
