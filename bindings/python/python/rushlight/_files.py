"""Files that must be unchanged when they are loaded again."""

import hashlib
import os
import stat

from ._errors import failure

_BLOCK = 1 << 20


class LoadedFile:
    """A file in the state in which it was loaded."""

    __slots__ = ("_digest", "_identity", "path")

    def __init__(self, path, identity):
        self.path = path
        self._identity = identity
        self._digest = None

    @classmethod
    def of(cls, path):
        """Makes the record of a file, by its absolute path, just before it is loaded. None if it is not a regular file."""
        try:
            found = os.stat(path)
        except (OSError, ValueError):
            return None
        return cls(path, _identity(found)) if stat.S_ISREG(found.st_mode) else None

    def fingerprint(self):
        """Returns the identity of the file for other processes: its path and the hash of its content, for which it is read once.

        Raises rushlight.Error if the file has changed since it was loaded.
        """
        if self._digest is None:
            digest = _digest(self.path)
            if _identity(os.stat(self.path)) != self._identity:
                raise failure(
                    "InvalidState",
                    f"`{self.path}` has changed since the module was loaded, which cannot be pickled",
                    hint="load the module again",
                )
            self._digest = digest
        return self._identity, self._digest

    def check(self, fingerprint):
        """Raises rushlight.Error if the file does not have this fingerprint."""
        identity, digest = fingerprint
        if identity != self._identity:
            got = _digest(self.path)
            if got != digest:
                raise failure(
                    "InvalidState",
                    f"`{self.path}` is another file than that of the module that was pickled",
                    expected=f"the SHA-256 {digest}",
                    got=got,
                    hint="load the module from its file, and pickle it again",
                )
        self._digest = digest


def _identity(found):
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _digest(path):
    digest = hashlib.sha256()
    with open(path, "rb", buffering=0) as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()
