"""Compiles PyTorch models and exported programs to .pte files."""

import functools
import inspect
import io
import logging
import math
import os
import time
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple, Optional

from . import _quantization as quantization
from . import _rushlight
from ._arguments import check_bool, check_count, check_text, count_of, path_of
from ._backend import adapted
from ._meta import OperatorUse
from ._module import Module
from ._progress import Progress
from ._quantization import Quantization
from ._report import NodeReport, left_nodes, shares
from ._text import Table, count, printable_with_repr, size

# Maximum inputs on which a quantized module of PT2E is compared with its floats.
_COMPARED = 8
_MAX_ALIGNMENT = 1 << 16
_LOGGER = logging.getLogger("rushlight")


class MethodReport(NamedTuple):
    """The size of a method: its instructions, the bytes of planned memory, and its operators with their calls."""

    name: str
    instructions: int
    planned_bytes: int
    operators: list


@printable_with_repr
class Report(NamedTuple):
    """The content of a program. `nbytes` is the size of its file. A report prints as a table."""

    nbytes: int
    methods: list
    nodes: list

    @property
    def instructions(self):
        """Number of instructions of all methods."""
        return sum(method.instructions for method in self.methods)

    @property
    def planned_bytes(self):
        """Bytes of planned memory of all methods."""
        return sum(method.planned_bytes for method in self.methods)

    @property
    def operators(self):
        """Operators of all methods with the number of instructions that call each, the most frequent first."""
        calls = {}
        for method in self.methods:
            for use in method.operators:
                calls[use.name] = calls.get(use.name, 0) + use.calls
        return [OperatorUse(*use) for use in sorted(calls.items(), key=lambda use: -use[1])]

    @property
    def backends(self):
        """The number of nodes of each backend, the largest first; "portable" is the runtime's operators."""
        return dict(Counter(node.backend for node in self.nodes).most_common())

    def _parts(self):
        parts = [f"{size(self.nbytes)} · {count(len(self.methods), 'method')}"]
        parts += shares(self.backends)
        for method in self.methods:
            planned = size(method.planned_bytes)
            parts += ["", f"{method.name}  {count(method.instructions, 'instruction')} · activations {planned}"]
            if method.operators:
                parts.append(Table([("  operator", "calls"), *(("  " + use.name, use.calls) for use in method.operators)], (1,)))
        return parts + left_nodes(self.nodes)


class Program:
    """A compiled program, the content of a .pte file. Call it to run it at once."""

    __slots__ = ("_buffer", "_core", "_external_data", "_loaded", "_progress")

    def __init__(self, core, progress):
        self._core = core
        self._progress = progress
        self._buffer = None
        self._external_data = None
        self._loaded = None

    def save(self, path):
        """Writes the .pte file, and its files of external weights beside it. Returns the size of the .pte file in bytes.

        After a failure, the old files are unchanged.
        """
        with self._progress:
            return self._core.save(path_of("path", path))

    @property
    def buffer(self):
        """The bytes of the .pte file."""
        if self._buffer is None:
            with self._progress:
                self._buffer = self._core.to_bytes()
        return self._buffer

    @property
    def external_data(self):
        """The .ptd files of external weights, as a dict of names to bytes. The names are those beside a program `model.pte`."""
        if self._external_data is None:
            self._external_data = dict(self._core.external_data())
        return self._external_data

    @property
    def report(self):
        """Methods, instructions, planned memory and operators, and the backend of each node, or the reasons of refusal."""
        methods = [
            MethodReport(
                name=method["name"],
                instructions=method["instructions"],
                planned_bytes=method["planned_bytes"],
                operators=[OperatorUse(*use) for use in method["operators"]],
            )
            for method in self._core.methods()
        ]
        nodes = [NodeReport(**node) for node in self._core.nodes()]
        return Report(nbytes=self._core.size(), methods=methods, nodes=nodes)

    @property
    def quantization(self):
        """The result of `quantize` as a rushlight.QuantizationReport; None without it."""
        text = self._core.quantization()
        return None if text is None else quantization.report(text)

    def __call__(self, /, *inputs, **named):
        """Runs `forward`, as `rushlight.Module` does."""
        return self._module()(*inputs, **named)

    def run(self, method, /, *inputs, **named):
        """Runs a method, as `rushlight.Module.run` does."""
        return self._module().run(method, *inputs, **named)

    def _module(self):
        # Loaded once, so that state is kept between calls. If two threads load it, the first one counts.
        if self._loaded is None:
            loaded = Module(_rushlight.Module(self.buffer, list(self.external_data.values()) or None))
            if self._loaded is None:
                self._loaded = loaded
        return self._loaded

    def __repr__(self):
        return f"rushlight.Program(methods={[method['name'] for method in self._core.methods()]})"

    def __str__(self):
        return f"{self!r}\n\n{self.report}"

    def _repr_html_(self):
        return self.report._repr_html_()


def _says_where_precision_is(function):
    @functools.wraps(function)
    def checked(*args, **kwargs):
        if "precision" in kwargs:
            raise TypeError(
                f"{function.__name__}() takes no `precision`, which is an option of a backend: "
                f"backend=\"cpu:precision={kwargs['precision']}\""
            )
        return function(*args, **kwargs)

    return checked


@_says_where_precision_is
def compile(
    source,
    *,
    quantize=None,
    calibration=None,
    backend=None,
    share_state=False,
    kv_cache="f32",
    constant_methods=None,
    plan_inputs=True,
    plan_outputs=True,
    alignment=16,
    stack_traces=False,
    debug_map=True,
    external_weights=False,
    external_weights_max_bytes=None,
    tokenizer=None,
    progress=None,
):
    """Compiles exported programs to a program that runs without PyTorch. Compiling needs no torch either.

    `source`: a file of `torch.export.save` (a path, or an object with its bytes), a `torch.export.ExportedProgram`, or a dict of
    method names to these. A single source becomes the method `forward`. A file is mapped, and must not change while the program
    is in use.
    `quantize`: quantizes layers, by the name of a scheme, such as "int8", "int8-dynamic" or "8da4w", or by a
    `rushlight.Quantization`. `program.quantization` has the result of each layer. Outputs are compared with those in floats, on
    the calibration, or without one on the inputs of the export. A `rushlight.QuantizationWarning` names the outputs with a
    signal-to-noise ratio below 10 dB.
    `calibration`: an iterable of inputs from which the ranges of activations are measured. Each is a tuple of arguments, a dict
    of them by name, or one tensor. For several methods, a dict of method names to these. Without one, "int8" takes the ranges from
    the inputs of the export, and a `rushlight.QuantizationWarning` says so. A `torch.utils.data.DataLoader` may have labels after
    the inputs, and larger batches than the model.
    `backend`: the backend that may claim nodes. Nodes that it does not claim run on the portable operators. It is one of those
    that come with Rushlight, as "cpu" or with options as "cpu:precision=bf16"; an object of your own with `name`,
    `partition(node)` and `preprocess(part)` (see `rushlight.Backend`); either of them with a dict of options, as
    ("cpu", {"precision": "bf16"}); or a list of these, the first with the highest priority. With `quantize` it is "cpu" by
    default. `rushlight.backends()` has the names and their options. `program.report` has the backend of each node, or the reasons
    of refusal.
    `share_state`: True if buffers with the same name in several methods are one. A method then sees the writes of the others.
    `kv_cache`: element type of KV caches, which are states whose rows the program writes at positions: "f32", "f16", "bf16",
    "int8" with a scale and a zero point for each row, or "int4" with those for each group of 32 elements.
    `constant_methods`: methods without inputs that return constants: a dict of names to ints, floats, bools, strs, None,
    tensors or arrays, or lists of them.
    `plan_inputs`, `plan_outputs`: True if inputs and outputs have a place in planned memory, False if they are in the caller's.
    `alignment`: alignment of planned tensors in bytes, a power of two.
    `stack_traces`: True if the file has the Python line of each instruction.
    `debug_map`: True if the file has the data by which tools name nodes and lines of Python.
    `external_weights`: the weights that are in .ptd files instead of the program. `save` writes these files beside the program,
    and `rushlight.load` takes them as `data`. True puts all weights in one file with the name of the program; a str is the name
    of the file. A dict has patterns of weights' names, in which `*` is any text, and for each a name of a file or True. The
    first pattern that matches counts; weights that match none stay in the program.
    `external_weights_max_bytes`: maximum bytes of weights in a file. Larger files are split.
    `tokenizer`: the path of the tokenizer's file or folder, for a language model. The program then carries the tokenizer, for
    `rushlight.llm.LLM` and `rushlight llm`.

    `progress`: shows the progress of compiling, if that takes more than half a second, and later of writing the file. None
    shows a bar if standard error is a terminal, True shows one always, False never. A function gets a stage, the work done, and
    the total, on this thread.

    Ctrl-C ends the call within 0.2 seconds. It leaves no half-written file. Python code of a backend runs on this thread, and
    handles Ctrl-C itself.

    Raises rushlight.Error if the program cannot be compiled. The error names the node and its Python line.
    """
    sources = source if isinstance(source, Mapping) else {"forward": source}
    progress = progress if isinstance(progress, Progress) else Progress(progress)
    for name in sources:
        check_text("the name of a method", name)
    methods = [(name, bytes_or_path(name, exported, progress)) for name, exported in sources.items()]
    return compiled(
        methods,
        quantize=quantization.request(quantize, calibration, methods),
        backends=adapted(_default_backend(backend, quantize)),
        share_state=share_state,
        kv_cache=kv_cache,
        constant_methods=constant_methods,
        plan_inputs=plan_inputs,
        plan_outputs=plan_outputs,
        alignment=alignment,
        stack_traces=stack_traces,
        debug_map=debug_map,
        external_weights=_external_rules(external_weights, external_weights_max_bytes),
        tokenizer=tokenizer,
        progress=progress,
    )


def compiled(
    methods,
    *,
    quantize,
    backends,
    kv_cache,
    tokenizer,
    progress,
    share_state=False,
    constant_methods=None,
    plan_inputs=True,
    plan_outputs=True,
    alignment=16,
    stack_traces=False,
    debug_map=True,
    external_weights=None,
    language_model=None,
):
    """Compiles methods, or a language model, with settings in the form of the core."""
    if constant_methods is not None and not isinstance(constant_methods, Mapping):
        raise TypeError(f"constant_methods must be a dict of names to values, got {constant_methods!r}")
    for name in constant_methods or ():
        check_text("the name of a constant method", name)
    check_text("kv_cache", kv_cache)
    check_bool("share_state", share_state)
    check_bool("plan_inputs", plan_inputs)
    check_bool("plan_outputs", plan_outputs)
    check_bool("stack_traces", stack_traces)
    check_bool("debug_map", debug_map)
    if count_of(alignment, 1, _MAX_ALIGNMENT) is None or alignment & (alignment - 1):
        raise ValueError(f"alignment must be a power of two from 1 to {_MAX_ALIGNMENT}, got {alignment!r}")
    if tokenizer is not None and tokenizer is not False:
        tokenizer = path_of("tokenizer", tokenizer)
    constants = [
        (name, list(value) if isinstance(value, (list, tuple)) else [value])
        for name, value in (constant_methods or {}).items()
    ]
    start = time.monotonic()
    with progress:
        core = _rushlight.compile(
            {
                "methods": methods,
                "constants": constants,
                "quantization": quantize,
                "backends": backends,
                "share_state": share_state,
                "kv_cache": kv_cache,
                "plan_inputs": plan_inputs,
                "plan_outputs": plan_outputs,
                "alignment": alignment,
                "stack_traces": stack_traces,
                "debug_map": debug_map,
                "external_weights": external_weights,
                "tokenizer": None if tokenizer is False else tokenizer,
                "omits_tokenizer": tokenizer is False,
                "language_model": language_model,
            },
            progress.report,
        )
    program = Program(core, progress)
    if _LOGGER.isEnabledFor(logging.INFO):
        _log(program, time.monotonic() - start)
    report = program.quantization
    for warning in report.warnings if report else ():
        quantization.warn(warning)
    for warning in core.missing_operators():
        quantization.warn(warning, UserWarning)
    return program


def _log(program, seconds):
    report = program.report
    parts = [size(report.nbytes), *shares(report.backends), f"compiled in {seconds:.3g} s"]
    _LOGGER.info("%r: %s", program, ", ".join(parts))


@_says_where_precision_is
def export(
    model,
    args,
    kwargs=None,
    *,
    dynamic_shapes=None,
    strict=False,
    quantize=None,
    calibration=None,
    backend=None,
    share_state=False,
    kv_cache="f32",
    constant_methods=None,
    plan_inputs=True,
    plan_outputs=True,
    alignment=16,
    stack_traces=False,
    debug_map=True,
    external_weights=False,
    external_weights_max_bytes=None,
    tokenizer=None,
    progress=None,
):
    """Exports a `torch.nn.Module` with `torch.export.export` and compiles it. Needs torch.

    `args`, `kwargs`, `dynamic_shapes` and `strict` are those of `torch.export.export`. For several methods, `model` is a dict of
    method names to modules, and `args`, `kwargs` and `dynamic_shapes` are dicts with the same keys.
    `quantize`: as for `rushlight.compile`, or a quantizer of PT2E, such as `rushlight.quantizers.CpuQuantizer`, which
    quantizes in PyTorch and needs torchao.
    `calibration`: as for `rushlight.compile`. Observers of static quantization see it.
    The other arguments are those of `rushlight.compile`.
    """
    # Checked first, because the export may take long.
    backends = adapted(_default_backend(backend, quantize))
    is_ours = quantize is None or isinstance(quantize, (str, Quantization))
    if is_ours and quantize is not None:
        # Iterators can be read only once.
        methods = list(model) if isinstance(model, Mapping) else ["forward"]
        calibration = quantization.calls(calibration, methods) or None
        quantization.check(quantize, calibration, methods)
    progress = Progress(progress)
    try:
        import torch
    except ModuleNotFoundError as error:
        help = "`export` needs PyTorch; `rushlight.compile` takes a .pt2 file without it"
        raise ModuleNotFoundError(f"{error}: {help}", name=error.name) from error

    def exported(module, args, kwargs, dynamic_shapes, calibration=calibration):
        with torch.no_grad():
            program = torch.export.export(module, args, kwargs, dynamic_shapes=dynamic_shapes, strict=strict)
            if is_ours:
                return program
            module = _quantized(program, quantize, calibration)
            return torch.export.export(module, args, kwargs, dynamic_shapes=dynamic_shapes, strict=strict)

    with progress.stage("exporting"):
        if isinstance(model, Mapping):
            kwargs, dynamic_shapes = kwargs or {}, dynamic_shapes or {}
            source = {
                name: exported(
                    module, args[name], kwargs.get(name), dynamic_shapes.get(name), (calibration or {}).get(name)
                )
                for name, module in model.items()
            }
        else:
            source = exported(model, args, kwargs, dynamic_shapes)
    return compile(
        source,
        quantize=quantize if is_ours else None,
        calibration=calibration if is_ours else None,
        backend=backends,
        share_state=share_state,
        kv_cache=kv_cache,
        constant_methods=constant_methods,
        plan_inputs=plan_inputs,
        plan_outputs=plan_outputs,
        alignment=alignment,
        stack_traces=stack_traces,
        debug_map=debug_map,
        external_weights=external_weights,
        external_weights_max_bytes=external_weights_max_bytes,
        tokenizer=tokenizer,
        progress=progress,
    )


def _default_backend(backend, quantize):
    """Returns the CPU backend for a quantized program without one: the portable operators have no kernels for quantized layers."""
    return "cpu" if backend is None and quantize is not None else backend


def _quantized(program, quantize, calibration):
    """Converts an exported program to a module of PT2E's quantized operators."""
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    prepared = prepare_pt2e(program.module(check_guards=False), quantize)
    seen, compared = 0, []
    for inputs in quantization.batches(() if calibration is None else calibration):
        if isinstance(inputs, quantization.Batch):
            inputs = inputs.inputs(program.module_call_graph[0].signature.forward_arg_names)
        args, kwargs = inputs, {}
        if isinstance(inputs, Mapping):
            args, kwargs = _arguments(program, inputs)
        elif not isinstance(inputs, (tuple, list)):
            args = (inputs,)
        prepared(*args, **kwargs)
        seen += 1
        if seen <= _COMPARED:
            compared.append((args, kwargs))
    if calibration is None:
        # Observers of weights see them when the module runs.
        args, kwargs = program.example_inputs
        prepared(*args, **kwargs)
        compared.append((args, kwargs))
    elif not seen:
        raise ValueError("calibration has no inputs: observers have seen nothing")
    converted = convert_pt2e(prepared)
    _warn_of_noise(program.module(check_guards=False), converted, compared)
    return converted


def _arguments(program, named):
    """Converts inputs by name to those of an exported module: arguments that were exported by position are given by position."""
    named = dict(named)
    names = program.module_call_graph[0].signature.forward_arg_names[: len(program.example_inputs[0])]
    missing = [name for name in names if name not in named]
    if missing:
        raise TypeError(f"a call of the calibration lacks {', '.join(f'`{name}`' for name in missing)}")
    return tuple(named.pop(name) for name in names), named


def _warn_of_noise(floats, converted, inputs):
    """Warns of outputs that are mostly rounding noise."""
    import torch
    from torch.utils import _pytree as pytree

    off = {}
    for args, kwargs in inputs:
        pairs = zip(pytree.tree_leaves(floats(*args, **kwargs)), pytree.tree_leaves(converted(*args, **kwargs)))
        for index, (expected, got) in enumerate(pairs):
            if isinstance(expected, torch.Tensor) and expected.is_floating_point():
                counted = expected.isfinite()
                expected, got = expected[counted].double(), got[counted].double()
                signal, noise = off.get(index, (0.0, 0.0))
                off[index] = signal + expected.square().sum().item(), noise + (got - expected).square().sum().item()
    for index, (signal, noise) in off.items():
        # NaN counts as noise.
        if noise != 0 and not signal >= noise * 10 ** (quantization.LOW_SNR / 10):
            is_number = noise == noise and signal > 0
            ratio = f"{10 * math.log10(signal / noise):.1f} dB" if is_number else "no signal" if signal == 0 else "NaN"
            quantization.warn(
                f"output {index} has a signal-to-noise of {ratio} where PyTorch runs the quantized module: below "
                f"{quantization.LOW_SNR:.0f} dB it is mostly rounding noise; leave sensitive modules in floats "
                "(CpuQuantizer().set_module_name(name, None)), show more inputs in calibration=, choose dynamic "
                'activations (Int8(dynamic=True)) or quantize="int8-weight"'
            )


def register_op(name, function, *, inputs=None, outputs=1):
    """Registers a Python function as the kernel of a custom operator, in methods that are loaded after this call.

    A method is loaded at its first call. If that failed because the operator was missing, call it again.

    `name` is the operator's name in PyTorch: `"namespace::name"`, with or without an overload. The function gets the operator's
    arguments in order: tensors, numbers, strs, None, and lists of these. A tensor is a `rushlight.Tensor` with a copy of the
    elements; `numpy.asarray` and `torch.from_dlpack` do not copy them again. The function returns one tensor or array with the
    dtype of the result, which is copied to the program's memory. With several `outputs`, it returns a tuple or list of them.
    `inputs` is the number of arguments, by default the number of the function's parameters.

    Use it to try an operator before it is written in Rust: every call copies, and holds the interpreter's lock. Results are
    tensors. An operator has at most 32 arguments and results, and a process at most 64 operators. Registering a name again
    replaces its function, also in loaded programs.

    An exception of the function becomes the `__cause__` of the `rushlight.Error` that the call of the program raises. The
    function may call other programs, but not the one that calls it. That is an error, as is any circle of programs that wait
    for each other. A thread that the function starts and waits for must not call the program either: that deadlock is not
    detected.
    """
    if not callable(function):
        raise TypeError(f"the kernel of {name} has to be callable, got a {type(function).__name__}")
    if inputs is None:
        inputs = _parameters(name, function)
    check_count("inputs", inputs)
    check_count("outputs", outputs)
    _rushlight.register_op(name, function, inputs, outputs)


def _external_rules(weights, max_bytes):
    """Returns the patterns, each with the name of a file or None for the program's, and the maximum bytes of a file."""
    if weights is None or weights is False:
        if max_bytes is not None:
            raise ValueError("external_weights_max_bytes divides external weights, and there are none")
        return None
    check_count("external_weights_max_bytes", max_bytes)
    rules = weights if isinstance(weights, Mapping) else {"*": weights}
    for pattern, file in rules.items():
        check_text("a pattern of external_weights", pattern)
        if file is not True and not isinstance(file, str):
            raise TypeError(f"the file of the weights {pattern!r} has to be a str or True, got a {type(file).__name__}")
    return [(pattern, None if file is True else file) for pattern, file in rules.items()], max_bytes


def _parameters(name, function):
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:
        parameters = None
    if parameters is None or any(parameter.kind not in positional for parameter in parameters):
        raise TypeError(f"the arguments of {name} cannot be counted from its function; give inputs=")
    return len(parameters)


def bytes_or_path(name, source, progress):
    if isinstance(source, (str, os.PathLike, bytes, bytearray)):
        return source
    if hasattr(source, "graph_module") and hasattr(source, "graph_signature"):
        import torch

        file = io.BytesIO()
        with progress.stage("serializing"):
            torch.export.save(source, file)
            return file.getvalue()
    try:
        return bytes(memoryview(source))
    except TypeError:
        raise TypeError(
            f"cannot compile a {type(source).__name__} as `{name}`: expected the path or the bytes of a .pt2 file, or "
            "a torch.export.ExportedProgram; rushlight.export takes a module"
        ) from None
