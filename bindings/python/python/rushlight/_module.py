"""Loading and calling."""

import os

from . import _meta
from ._report import LoadReport, NodeReport
from ._rushlight import Module as _Core


class Module:
    """A program whose methods are loaded when they are first called, and keep their state between calls."""

    __slots__ = ("_core", "_run")

    def __init__(self, core):
        self._core = core
        self._run = core.run

    def __call__(self, *inputs):
        """Runs `forward`. Returns its output, or a tuple of them if there are several."""
        outputs = self._run("forward", *inputs)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def run(self, name, *inputs):
        """Runs a method. Returns its output, or a tuple of them if there are several."""
        outputs = self._run(name, *inputs)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    @property
    def method_names(self):
        """Names of the methods, in the file's order."""
        return self._core.method_names()

    def meta(self, name="forward"):
        """What the program says about a method. Does not load it."""
        return _meta.from_dict(self._core.meta(name))

    def attribute(self, name, method="forward"):
        """A copy of a parameter or buffer, by its name in the exported module."""
        return self._core.attribute(method, name)

    @property
    def report(self):
        """How the program runs here: what became of each node when it was lowered, or why it was left as it is.

        That is decided when the first method is loaded, or by this.
        """
        nodes, reason, cache = self._core.report()
        return LoadReport(reason, [NodeReport(**node) for node in nodes], cache)

    def __repr__(self):
        return f"rushlight.Module(methods={self.method_names})"


def load(path_or_bytes, *, data=None, threads=None, lower="auto", cache=None):
    """Loads a program.

    `path_or_bytes` is the path of a .pte file, which is mapped, or an object with its bytes, which are copied.
    `data` is a .ptd file (path or bytes) with constants that the program does not hold, or a list of them.
    `threads` is how many threads a call may use, at least 1; as many as the machine runs at once by default. The
    reference operators use the calling thread alone.
    `lower` says what is done with a portable program when its first method is loaded: "auto" compiles it for this
    machine where that pays, "cpu" for the CPU back end in any case, and "off" runs it on the reference operators, as
    does a program that cannot be compiled: `Module.report` says why.
    `cache` is a folder of your own, made if it is missing, where compiled programs of a megabyte and more are kept, so that
    the next load finds them there; by default the environment variable RUSHLIGHT_CACHE names it, and without that nothing
    is kept. `Module.report` says what it did; whatever goes wrong with it, the program runs.

    Raises rushlight.Error if the file cannot be read or is not a well-formed program.
    """
    if threads is not None and (not isinstance(threads, int) or threads < 1):
        raise ValueError(f"threads must be an int of at least 1, got {threads!r}")
    if data is None:
        files = None
    elif isinstance(data, (str, bytes, bytearray, memoryview, os.PathLike)):
        files = [data]
    else:
        files = list(data)
    if lower not in ("auto", "off", "cpu"):
        raise ValueError(f"lower must be 'auto', 'off' or 'cpu', got {lower!r}")
    return Module(_Core(path_or_bytes, files, threads, lower, cache))
