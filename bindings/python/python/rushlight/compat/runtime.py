"""The names and behaviour of ExecuTorch's `executorch.runtime`: a script changes its import and nothing else."""

import functools
import os

from . import portable_lib
from .portable_lib import MethodMeta, Verification

__all__ = ["BackendRegistry", "Method", "MethodMeta", "OperatorRegistry", "Program", "Runtime", "Verification"]


class Method:
    """A method of a program, with its own memory."""

    def __init__(self, method):
        self._method = method

    def execute(self, inputs):
        """Runs the method. Returns a list of its outputs."""
        return self._method(inputs)

    @property
    def metadata(self):
        """Inputs, outputs and memory of the method."""
        return self._method.method_meta()


class Program:
    """A program. Each method is loaded once, when it is first requested."""

    def __init__(self, program):
        self._program = program
        self._names = [program.get_method_name(index) for index in range(program.num_methods())]
        self._methods = {}

    @property
    def method_names(self):
        """The names of the methods, as a set."""
        return set(self._names)

    def load_method(self, name):
        """Returns the method with this name. Raises KeyError if there is none."""
        if name not in self._names:
            raise KeyError(name)
        if name not in self._methods:
            self._methods[name] = Method(self._program.load_method(name))
        return self._methods[name]

    def metadata(self, method_name):
        """Describes a method. It need not be loaded."""
        return self._program.method_meta(method_name)

    def write_etdump_result_to_file(self, etdump_path, debug_buffer_path):
        """Raises RuntimeError: no ETDump is recorded."""
        self._program.write_etdump_result_to_file(etdump_path, debug_buffer_path)


class BackendRegistry:
    """The available backends."""

    @property
    def registered_backend_names(self):
        """The names of the backends, as a list."""
        return portable_lib._get_registered_backend_names()

    def is_available(self, backend_name):
        """Returns True if programs for this backend run."""
        return portable_lib._is_available(backend_name)


class OperatorRegistry:
    """The operators with a kernel."""

    @property
    def operator_names(self):
        """The names of the operators, as a set."""
        return set(portable_lib._get_operator_names())


class Runtime:
    """Loads programs. `Runtime.get()` returns the only instance."""

    @staticmethod
    @functools.lru_cache(maxsize=1)
    def get():
        """Returns the runtime."""
        return Runtime()

    def __init__(self):
        self.backend_registry = BackendRegistry()
        self.operator_registry = OperatorRegistry()

    def load_program(
        self,
        data,
        *,
        verification=Verification.InternalConsistency,
        enable_etdump=False,
        debug_buffer_size=0,
        data_path=None,
    ):
        """Loads a program from a path, from bytes, or from an object with a method `read`. `data_path` is a .ptd file with constants
        of the program.
        """
        settings = {
            "enable_etdump": enable_etdump,
            "debug_buffer_size": debug_buffer_size,
            "program_verification": verification,
            "data_path": None if data_path is None else os.fspath(data_path),
        }
        if isinstance(data, (str, os.PathLike)):
            return Program(portable_lib._load_program(os.fspath(data), **settings))
        if hasattr(data, "read"):
            data = data.read()
        if not isinstance(data, (bytes, bytearray)):
            raise TypeError(
                "data: expected the path of a .pte file, bytes, a bytearray, or an object with a method `read`, "
                f"got {type(data).__name__}"
            )
        return Program(portable_lib._load_program_from_buffer(bytes(data), **settings))
