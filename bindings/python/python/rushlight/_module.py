"""Loading and running programs."""

import functools
import logging
import math
import os

from . import _meta, _signature
from ._arguments import count_of, path_of
from ._backend import Adapter, adapted
from ._calls import Binding, Instances, Prepared, built, flat_outputs, in_thread, new_outputs
from ._errors import failure
from ._files import LoadedFile
from ._profile import Benchmark, Profile, Trace
from ._report import LoadReport, NodeReport
from ._rushlight import Module as _Core
from ._rushlight import benchmark as _benchmark
from ._rushlight import profile as _profile
from ._text import printable


@printable
class Module:
    """A loaded program. A method is loaded at its first call, and keeps its state between calls."""

    __slots__ = ("_core", "_plain", "_run", "_signatures", "_source")

    def __init__(self, core, source=None):
        self._core = core
        # The absolute path, the other arguments of `load`, and the state of the files at that time.
        self._source = source
        self._run = core.run
        self._signatures = {}
        # The methods whose calls by position are passed to the core unchanged.
        self._plain = set()

    def __call__(self, /, *inputs, out=None, **named):
        """Runs `forward`, as `run` does."""
        if not named and out is None and "forward" in self._plain:
            outputs = self._run("forward", *inputs)
            return outputs[0] if len(outputs) == 1 else tuple(outputs)
        return self._call("forward", inputs, named, out)

    def run(self, name, /, *inputs, out=None, **named):
        """Runs a method with the arguments of the exported function, by position or by name. Returns the value of that function: a
        tensor, or a tuple, list, dict or named tuple, also nested. Objects of other classes, such as dataclasses and the
        `ModelOutput` of transformers, are returned as dicts, and may be given as dicts. Values that the export fixed may be left
        out of calls by name.

        A program of ExecuTorch's compiler has no names. It takes the leaves of the containers, in order, and returns its output, or
        a tuple of several outputs.

        `out`: arrays that the outputs are written to, in the containers of the result: arrays of NumPy, tensors of PyTorch, or other
        objects with writable buffers. The call makes no new arrays, and returns `out`. Shapes and element types are those of the
        results, the elements are dense, and nothing shares their memory with the inputs. None stands for an output that is not
        needed. A method with an input named `out` takes this argument as that input; use `bind` to give it outputs.
        """
        return self._call(name, inputs, named, out)

    async def call_async(self, /, *inputs, method="forward", out=None, **named):
        """Runs a method in a thread, as `run` does: `await module.call_async(x)`. Other coroutines continue meanwhile.

        Calls of one module take turns, in threads as in coroutines. `instances` runs several at the same time. Cancelling the task
        ends the call after its current step, and then raises CancelledError.
        """
        return await in_thread(self._call, method, inputs, named, out)

    def bind(self, /, *inputs, method="forward", out=None, **named):
        """Binds the inputs and outputs of a method, and returns a `rushlight.Binding`: each call of it reads these inputs and writes these
        outputs, in place.

        `out` is as for `run`. By default the outputs are new arrays of the library of the inputs, which takes fixed shapes.
        """
        signature = self._signature(method)
        leaves = self._leaves(method, signature, inputs, named)
        if out is None:
            outputs = new_outputs(leaves, self.meta(method).outputs)
            out = built(signature, outputs)
        else:
            outputs = flat_outputs(signature, out, len(self._core.meta(method)["outputs"]))
        return Binding(functools.partial(self._core.run_into, method), leaves, outputs, out)

    def instances(self, count, method="forward"):
        """Loads a method `count` times, each with memory of its own for intermediate results, over the same weights. Returns
        `rushlight.Instances`, which any number of threads may call: `count` calls run at the same time, and others wait.

        Each call uses all threads of the module. For many small calls, load the module with `threads=1`.

        Raises rushlight.Error for a method that keeps state between calls, because each copy would have its own.
        """
        core = self._core.load_method(method, _int("count", count, 1, _MAX_INSTANCES))
        if core.has_state():
            raise failure(
                "NotSupported",
                f"`{method}` keeps state between calls, of which each instance would have its own",
                hint="load a module for each user, or export the state as an input and an output",
            )
        return Instances(self, core, method)

    def _call(self, name, inputs, named, out, cancellation=None):
        call = self._prepared(name, inputs, named, out)
        return call.run(self._core.run_list, self._core.run_into, (name,), cancellation)

    def _prepared(self, name, inputs, named, out):
        """The arguments of a call, checked and in order."""
        signature = self._signature(name)
        if out is not None and signature is not None and "out" in signature.names:
            named, out = {**named, "out": out}, None
        leaves = self._leaves(name, signature, inputs, named)
        outputs = None
        if out is not None:
            outputs = flat_outputs(signature, out, 0 if signature else len(self._core.meta(name)["outputs"]))
        return Prepared(signature, leaves, outputs, out)

    def _signature(self, name):
        """The signature of a method, or None for a program without names."""
        try:
            return self._signatures[name]
        except KeyError:
            signature = self._signatures[name] = _signature.of_method(self._core, name)
            if signature is None or signature.is_plain:
                self._plain.add(name)
            if _LOGGER.isEnabledFor(logging.INFO):
                _LOGGER.info("%r, method %r: %s", self, name, ", ".join(self.report._summary()))
            return signature

    def benchmark(self, /, *inputs, method="forward", warmup=3, runs=30, **named):
        """Runs a method `warmup` times, then `runs` times, and returns a `rushlight.Benchmark` with the times of the latter. The inputs are
        those of a call. A method with state changes it, as other calls do.
        """
        warmup, runs = _int("warmup", warmup, 0, _MAX_RUNS), _int("runs", runs, 1, _MAX_RUNS)
        leaves = self._leaves(method, self._signature(method), inputs, named)
        return Benchmark(_benchmark(self._core, method, leaves, warmup, runs))

    def profile(self, /, *inputs, method="forward", runs=10, **named):
        """Runs a method `runs` times, and returns a `rushlight.Profile`: the time of each operator, instruction and step, with the nodes
        of the model, and the limits of the device. The inputs are those of a call.
        """
        runs = _int("runs", runs, 1, _MAX_RUNS)
        leaves = self._leaves(method, self._signature(method), inputs, named)
        return Profile(*_profile(self._core, method, leaves, runs))

    def trace(self, /, *inputs, method="forward", runs=1, **named):
        """Runs a method once, and then `runs` times, and returns a `rushlight.Trace` of the latter: the start and the time of each run,
        instruction and step, in the order of their starts. The inputs are those of a call.
        """
        runs = _int("runs", runs, 1, _MAX_RUNS)
        leaves = self._leaves(method, self._signature(method), inputs, named)
        return Trace(_profile(self._core, method, leaves, runs)[1])

    @staticmethod
    def _leaves(name, signature, inputs, named):
        """The inputs of a call in the order of the method's."""
        if signature is not None:
            return list(signature.flatten(inputs, named))
        if named:
            raise TypeError(f"`{name}` has no input `{next(iter(named))}`: the program does not record names")
        return list(inputs)

    @property
    def method_names(self):
        """Names of the methods, in the order of the file."""
        return self._core.method_names()

    def meta(self, name="forward"):
        """Describes a method. Does not load it."""
        return _meta.from_dict(self._core.meta(name))

    def attribute(self, name, method="forward"):
        """Returns a copy of a parameter or buffer, by its name in the exported module."""
        return self._core.attribute(method, name)

    @property
    def report(self):
        """The backend of each node after lowering, or the reason why the program was not lowered.

        Reading this loads the first method, if no call has done so.
        """
        nodes, reason, cache = self._core.report()
        return LoadReport(reason, [NodeReport(**node) for node in nodes], cache)

    def __reduce__(self):
        if self._source is None:
            raise TypeError(
                "a module that was loaded from bytes cannot be pickled: load it from a file, which the copy loads again"
            )
        path, options, files = self._source
        return _reload, (path, options, [file.fingerprint() for file in files])

    def __repr__(self):
        name = "" if self._source is None else f"{self._source[0]!r}, "
        return f"rushlight.Module({name}methods={self.method_names})"

    def _parts(self):
        heading = [repr(self), ""]
        return heading + [part for name in self.method_names for part in (*self.meta(name)._parts(), "")][:-1]


_LOGGER = logging.getLogger("rushlight")
_MAX_THREADS = 1024
_MAX_RUNS = 1 << 20
_MAX_INSTANCES = 1024
_MAX_BYTES = (1 << 63) - 1
_MAX_SECONDS = 1e9


def load(path_or_bytes, *, data=None, threads=None, lower="auto", cache=None, memory_limit=None, time_limit=None):
    """Loads a program.

    `path_or_bytes`: the path of a .pte file, which is mapped, or an object with its bytes, which are copied.
    `data`: a .ptd file (path or bytes) with constants of the program, or a list of them.
    `threads`: maximum threads of a call, 1 to 1024; by default one for each processor. The reference operators use only the
    calling thread.
    `lower`: what to do with a portable program when its first method is loaded. "auto" compiles it for this machine if that
    pays. A backend ("cpu", "cpu:precision=bf16", ("cpu", {"precision": "bf16"}), or a list of these; see
    `rushlight.backends()`) compiles it always. "off" runs it on the reference operators. A program that cannot be compiled runs
    there, too, and `Module.report` has the reason.
    `cache`: a folder that caches compiled programs of a megabyte and more for later loads. Only you may have access to it. It is
    made if it is missing. By default it is the folder of the environment variable RUSHLIGHT_CACHE, or none. `Module.report` says
    if the cache was used. An error of the cache does not stop the program.
    `memory_limit`: maximum bytes of each method; `time_limit`: maximum seconds of each call. Both are for programs that you do not
    trust, and there is no limit by default. A method that needs more memory is not loaded. A call that takes longer ends with
    an error between two steps, and the module can be called again. The time of loading and lowering at the first call does not
    count.

    Threads may share a module. A call waits for the call of another thread; `Module.instances` runs several at the same time. After
    `os.fork`, the child can use the modules of its parent, with its own threads. A module that another thread was using at the fork
    is lost in the child, and raises RuntimeError.

    A module that was loaded from a path can be pickled. The copy loads the file again, from its absolute path and with the same
    options, and has its own state. Pickling reads the file once. If the file has changed, unpickling raises rushlight.Error.

    Raises rushlight.Error if the file cannot be read or is not a well-formed program. For an error of the operating system, it is
    also the matching OSError, such as FileNotFoundError.
    """
    data = _data(data)
    is_path = isinstance(path_or_bytes, (str, os.PathLike))
    options, files = None, [None]
    if is_path:
        # The copy may be loaded in another working directory.
        path, *data_again = (_absolute(file) for file in (path_or_bytes, *(data or ())))
        cache_again = None if cache is None else os.path.abspath(path_of("cache", cache))
        options = {"data": data_again or None, "threads": threads, "lower": lower, "cache": cache_again}
        options |= {"memory_limit": memory_limit, "time_limit": time_limit}
        files = [LoadedFile.of(file) for file in (path, *data_again) if isinstance(file, str)]
    core = _Core(*core_arguments(path_or_bytes, data, threads, lower, cache, memory_limit, time_limit))
    return Module(core, None if None in files else (path, options, files))


def _reload(path, options, fingerprints):
    """Loads a pickled module."""
    module = load(path, **options)
    if module._source is None:
        raise failure(
            "InvalidState",
            f"`{path}` or its data is no longer a file that can be read twice, as when the module was pickled",
            hint="load the module from its file, and pickle it again",
        )
    for file, fingerprint in zip(module._source[2], fingerprints):
        file.check(fingerprint)
    return module


def core_arguments(path_or_bytes, data, threads, lower, cache, memory_limit, time_limit):
    """Checks the arguments of `load`, and converts them for the core."""
    threads = _count("threads", threads, _MAX_THREADS)
    memory_limit = _count("memory_limit", memory_limit, _MAX_BYTES)
    time_limit = _seconds("time_limit", time_limit)
    if lower is None or (isinstance(lower, (str, list, tuple)) and not lower):
        raise ValueError(f"lower must be 'auto', 'off' or a backend, got {lower!r}")
    if not isinstance(lower, str):
        lower = adapted(lower)
        if any(isinstance(backend, Adapter) for backend in lower):
            raise TypeError("programs are lowered to backends that come with Rushlight: compile the model for your own")
    cache = None if cache is None else path_of("cache", cache)
    return path_or_bytes, _data(data), threads, lower, cache, memory_limit, time_limit


def _data(data):
    """Returns the .ptd files as a list, or None."""
    if data is None:
        return None
    if isinstance(data, (str, bytes, bytearray, memoryview, os.PathLike)):
        return [data]
    try:
        files = iter(data)
    except TypeError:
        raise TypeError(
            f"data: expected the path or the bytes of a .ptd file, or a list of these, got {type(data).__name__}"
        ) from None
    return list(files)


def _absolute(path_or_bytes):
    """Returns the absolute path of a file, or the given bytes."""
    if isinstance(path_or_bytes, (str, os.PathLike)):
        return os.path.abspath(path_of("path", path_or_bytes))
    return path_or_bytes


def _count(name, value, most):
    """Returns an int from 1 to `most`, or None."""
    return None if value is None else _int(name, value, 1, most)


def _int(name, value, least, most):
    """Returns an int from `least` to `most`."""
    count = count_of(value, least, most)
    if count is None:
        raise ValueError(f"{name} must be an int from {least} to {most}, got {value!r}")
    return count


def _seconds(name, value):
    """Returns a float above 0, or None."""
    if value is None:
        return None
    try:
        seconds = math.nan if isinstance(value, (bool, str, bytes)) else float(value)
    except (TypeError, ValueError, OverflowError):
        seconds = math.nan
    if not 0 < seconds <= _MAX_SECONDS:
        raise ValueError(f"{name} must be a number of seconds above 0 and up to {_MAX_SECONDS:.0e}, got {value!r}")
    return seconds
