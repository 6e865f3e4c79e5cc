"""The names and behaviour of ExecuTorch's `executorch.extension.pybindings.portable_lib`.

A script changes its import and nothing else. Outputs are torch tensors if the inputs are, or if torch is loaded. Without
torch they are `rushlight.Tensor`. Verification is always complete, at any level: a file that passes cannot harm the
process. Functions without a meaning here say so: ETDump is not recorded, and there is no thread pool.
"""

import enum
import sys

from .._errors import Error
from .._rushlight import Bundle as _Bundle
from .._rushlight import Module as _Core
from .._rushlight import operator_names as _operator_names
from .._rushlight import program_backends as _program_backends

__all__ = [
    "BundledModule",
    "ExecuTorchMethod",
    "ExecuTorchModule",
    "ExecuTorchProgram",
    "MethodMeta",
    "TensorInfo",
    "Verification",
]


class Verification(enum.Enum):
    """The level of verification at load. Both levels verify everything here."""

    Minimal = 0
    InternalConsistency = 1


# ExecuTorch's names of scalar types, by their numbers.
_SCALAR_TYPES = {
    0: "Byte",
    1: "Char",
    2: "Short",
    3: "Int",
    4: "Long",
    5: "Half",
    6: "Float",
    7: "Double",
    11: "Bool",
    15: "BFloat16",
    27: "UInt16",
    28: "UInt32",
    29: "UInt64",
}


class TensorInfo:
    """Metadata of an input, output or attribute tensor."""

    def __init__(self, info):
        self._info = info

    def sizes(self):
        """Sizes; upper bounds if the shape is dynamic."""
        return tuple(self._info["sizes"])

    def dtype(self):
        """The number of the scalar type."""
        return self._info["dtype_code"]

    def is_memory_planned(self):
        return self._info["is_memory_planned"]

    def nbytes(self):
        return self._info["nbytes"]

    def __repr__(self):
        sizes = ", ".join(str(size) for size in self.sizes())
        return (
            f"TensorInfo(sizes=[{sizes}], dtype={_SCALAR_TYPES.get(self.dtype(), self._info['dtype'])}, "
            f"is_memory_planned={self.is_memory_planned()}, nbytes={self.nbytes()})"
        )


class MethodMeta:
    """Metadata of a method."""

    def __init__(self, meta):
        self._meta = meta

    def name(self):
        return self._meta["name"]

    def num_inputs(self):
        return len(self._meta["inputs"])

    def num_outputs(self):
        return len(self._meta["outputs"])

    def num_attributes(self):
        return len(self._meta["attributes"])

    def _tensor(self, what, index):
        infos = self._meta[what]
        if not 0 <= index < len(infos):
            raise IndexError(f"{what[:-1]} {index} is outside of 0..{len(infos)}")
        if infos[index]["kind"] != "tensor":
            raise RuntimeError(f"{what[:-1]} {index} of {self.name()} is not a tensor: {infos[index]['kind']}")
        return TensorInfo(infos[index])

    def input_tensor_meta(self, index):
        return self._tensor("inputs", index)

    def output_tensor_meta(self, index):
        return self._tensor("outputs", index)

    def attribute_tensor_meta(self, index):
        return self._tensor("attributes", index)

    def __repr__(self):
        def shown(what):
            infos = self._meta[what]
            return str([str(TensorInfo(info)) if info["kind"] == "tensor" else info["kind"] for info in infos])

        return (
            f"MethodMeta(name='{self.name()}', num_inputs={self.num_inputs()}, input_tensor_meta={shown('inputs')}, "
            f"num_outputs={self.num_outputs()}, output_tensor_meta={shown('outputs')})"
        )


def _as_torch(values):
    """Converts outputs to torch tensors if torch is loaded and the inputs do not decide."""
    torch = sys.modules.get("torch")
    if torch is None:
        return values
    return [torch.from_dlpack(value) if type(value).__module__ == "rushlight" else value for value in values]


def _no_etdump(*_):
    raise RuntimeError("no ETDump is recorded; rushlight's `run --profile` shows where the time goes")


def _listed(inputs):
    """Converts inputs to a list. A single input is a list of one."""
    return list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]


def _check_devices(inputs):
    """Raises RuntimeError for a tensor on another device, with ExecuTorch's message."""
    for index, value in enumerate(inputs):
        device = getattr(value, "device", None)
        if getattr(device, "type", "cpu") != "cpu":
            raise RuntimeError(
                f"input {index} is on device {device}: ExecuTorch takes only CPU and CUDA tensors, and this runtime only "
                "those on the CPU"
            )


def _run(run, *arguments):
    """Calls `run`, whose last argument is the inputs. TypeError and ValueError become RuntimeError, as in ExecuTorch's bindings."""
    try:
        return run(*arguments)
    except (TypeError, ValueError) as error:
        # Checked only after an error: reading `device` of each input would slow down every call.
        _check_devices(arguments[-1])
        raise RuntimeError(str(error)) from error


class _Traced:
    """The ETDump methods that modules and programs share."""

    def has_etdump(self):
        return False

    def write_etdump_result_to_file(self, path, debug_buffer_path=None):
        _no_etdump(path, debug_buffer_path)


class ExecuTorchModule(_Traced):
    """A loaded program whose methods keep their state between calls."""

    def __init__(self, core):
        self._core = core
        self._bundled = {}

    def forward(self, inputs=(), clone_outputs=True):
        return self.run_method("forward", inputs, clone_outputs)

    def __call__(self, inputs=(), clone_outputs=True):
        return self.run_method("forward", inputs, clone_outputs)

    def run_method(self, method_name, inputs=(), clone_outputs=True):
        return _as_torch(_run(self._core.run_list, method_name, _listed(inputs)))

    def plan_execute(self, method_name, clone_outputs=True):
        """Runs with the inputs of `load_bundled_input`, or without any."""
        return self.run_method(method_name, self._bundled.get(method_name, ()), clone_outputs)

    def load_bundled_input(self, bundle, method_name, testset_idx):
        self._bundled[method_name] = bundle._bundle.inputs(method_name, testset_idx)

    def verify_result_with_bundled_expected_output(self, bundle, method_name, testset_idx, rtol=1e-5, atol=1e-8):
        """Runs a bundled test case. Raises if an output differs, else returns the outputs."""
        self.load_bundled_input(bundle, method_name, testset_idx)
        outputs = self._core.run_list(method_name, self._bundled[method_name])
        expected = bundle._bundle.expected_outputs(method_name, testset_idx)
        for index, (got, want) in enumerate(zip(outputs, expected)):
            if not _close(got, want, rtol, atol):
                text = f"output {index} of {method_name} differs from test case {testset_idx}: rtol {rtol}, atol {atol}"
                raise RuntimeError(text)
        return _as_torch(outputs)

    def method_meta(self, method_name):
        return MethodMeta(self._core.meta(method_name))

    def method_names(self):
        return self._core.method_names()


def _close(got, want, rtol, atol):
    """ExecuTorch's comparison: floats within tolerance, NaN equal to NaN, everything else equal."""
    if not hasattr(want, "tolist"):
        return got == want
    if got.shape != want.shape or got.dtype != want.dtype:
        return False
    if "float" not in want.dtype:
        return got.tobytes() == want.tobytes()

    def flat(value):
        return [leaf for item in value for leaf in flat(item)] if isinstance(value, list) else [value]

    def near(a, b):
        return a == b or (a != a and b != b) or abs(a - b) <= atol + rtol * abs(b)

    return all(near(a, b) for a, b in zip(flat(got.tolist()), flat(want.tolist())))


class ExecuTorchMethod:
    """A method with its own memory."""

    __slots__ = ("_call", "_core", "_inputs", "_instance", "_name", "_outputs")

    def __init__(self, core, name):
        self._core = core
        self._name = name
        self._instance = core.load_method(name)
        self._call = self._instance.call
        self._inputs = None
        self._outputs = None

    def set_inputs(self, inputs):
        inputs = _listed(inputs)
        _check_devices(inputs)
        self._inputs = inputs

    def execute(self):
        if self._inputs is None:
            self._inputs = []
        self._outputs = _run(self._call, self._inputs)

    def get_outputs(self, clone_outputs=True):
        if self._outputs is None:
            raise RuntimeError(f"{self._name} has not been executed")
        return _as_torch(self._outputs)

    def call(self, inputs=(), clone_outputs=True):
        inputs = _listed(inputs)
        self._outputs = outputs = _run(self._call, inputs)
        return outputs if inputs else _as_torch(outputs)

    __call__ = call

    def method_meta(self):
        return MethodMeta(self._core.meta(self._name))

    def get_attribute(self, name):
        return _as_torch([self._instance.attribute(name)])[0]


class ExecuTorchProgram(_Traced):
    """A parsed program, to load methods from."""

    def __init__(self, core):
        self._core = core

    def num_methods(self):
        return len(self._core.method_names())

    def get_method_name(self, method_index):
        names = self._core.method_names()
        if not 0 <= method_index < len(names):
            raise RuntimeError(f"method {method_index} is outside of 0..{len(names)}")
        return names[method_index]

    def load_method(self, method_name):
        return ExecuTorchMethod(self._core, method_name)

    def method_meta(self, method_name):
        return MethodMeta(self._core.meta(method_name))


class BundledModule:
    """A bundled program: a program with test cases."""

    def __init__(self, buffer):
        self._bundle = _Bundle(buffer)


class _Unusable:
    """A program whose external data cannot be read. As in ExecuTorch's bindings, using a method raises the error."""

    def __init__(self, error):
        self._error = error

    def __getattr__(self, name):
        raise self._error


def _loaded(source, data=None):
    """Loads a program with its external data, a path or bytes."""
    try:
        return _Core(source, None if data is None else [data])
    except Error as error:
        if error.code_name == "InvalidExternalData":
            return _Unusable(error)
        raise


def _load_for_executorch(
    program_path,
    data_path=None,
    enable_etdump=False,
    debug_buffer_size=0,
    program_verification=Verification.InternalConsistency,
):
    return ExecuTorchModule(_loaded(program_path, data_path))


def _load_for_executorch_from_buffer(
    buffer,
    data_map_buffer=None,
    enable_etdump=False,
    debug_buffer_size=0,
    program_verification=Verification.InternalConsistency,
):
    return ExecuTorchModule(_loaded(buffer, data_map_buffer))


def _load_for_executorch_from_bundled_program(module, data_map_buffer=None, enable_etdump=False, debug_buffer_size=0):
    return ExecuTorchModule(_loaded(module._bundle.program(), data_map_buffer))


def _load_for_executorch_from_data_loader(loader, data_path=None, enable_etdump=False, debug_buffer_size=0):
    """Loads a program from a `loader` with `size()` and `load(offset, size)`, which returns bytes. Reads it whole."""
    return ExecuTorchModule(_loaded(bytes(loader.load(0, loader.size())), data_path))


def _load_bundled_program_from_buffer(buffer, non_const_pool_size=0):
    return BundledModule(buffer)


def _load_program(
    path, enable_etdump=False, debug_buffer_size=0, program_verification=Verification.Minimal, data_path=None
):
    return ExecuTorchProgram(_loaded(path, data_path))


def _load_program_from_buffer(
    buffer, enable_etdump=False, debug_buffer_size=0, program_verification=Verification.Minimal, data_path=None
):
    return ExecuTorchProgram(_loaded(buffer, data_path))


def _is_available(backend_name):
    return backend_name in _get_registered_backend_names()


def _get_operator_names():
    return _operator_names()


def _get_registered_backend_names():
    return _program_backends()


def _create_profile_block(name):
    """ExecuTorch's old profiler. Nothing is recorded."""


def _dump_profile_results():
    return b""


def _reset_profile_results():
    """ExecuTorch's old profiler. Nothing is recorded."""


def _unsafe_reset_threadpool(num_threads):
    """Does nothing: operators run on the calling thread."""


def _threadpool_get_thread_count():
    return 1


