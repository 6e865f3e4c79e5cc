import os
from typing import (
    Any,
    Callable,
    Iterable,
    Iterator,
    Literal,
    Mapping,
    NamedTuple,
    Optional,
    Protocol,
    Sequence,
    SupportsFloat,
    SupportsIndex,
    Union,
    final,
)

__all__ = [
    "Backend",
    "BackendInfo",
    "Benchmark",
    "Binding",
    "Claims",
    "ComparedOutput",
    "Comparison",
    "ComparisonRow",
    "Constants",
    "Error",
    "Instances",
    "InstructionTime",
    "Limit",
    "LoadReport",
    "Metadata",
    "Method",
    "MethodBackend",
    "MethodMeta",
    "MethodReport",
    "Module",
    "Node",
    "NodeReport",
    "OperatorTime",
    "OperatorUse",
    "OptionSpec",
    "Part",
    "Payload",
    "Profile",
    "Program",
    "Quantization",
    "QuantizationProposal",
    "QuantizationReport",
    "QuantizationWarning",
    "QuantizedLayer",
    "QuantizedOutput",
    "Report",
    "State",
    "StepTime",
    "SymInt",
    "Tensor",
    "TensorInfo",
    "Trace",
    "TraceEvent",
    "Value",
    "ValueInfo",
    "__version__",
    "backends",
    "compare",
    "compile",
    "export",
    "load",
    "operator_names",
    "register_backend",
    "register_op",
]

__version__: str

_Bytes = Union[bytes, bytearray, memoryview]
_Source = Union[str, os.PathLike[str], _Bytes]

class Error(RuntimeError):
    code: int
    code_name: str
    site: Optional[str]
    expected: Optional[str]
    got: Optional[str]
    hint: Optional[str]
    missing_operators: list[str]

@final
class Tensor:
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> str: ...
    def tolist(self) -> Any: ...
    def tobytes(self) -> bytes: ...
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __dlpack__(self, **options: Any) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

class TensorInfo(NamedTuple):
    dtype: str
    dtype_code: int
    sizes: tuple[int, ...]
    dim_order: tuple[int, ...]
    is_dynamic: bool
    is_memory_planned: bool
    nbytes: int
    name: Optional[str]
    ranges: tuple[str, ...] = ()

class ValueInfo(NamedTuple):
    kind: str
    value: Union[int, float, bool, str, None]

class OperatorUse(NamedTuple):
    name: str
    calls: int

class MethodMeta(NamedTuple):
    name: str
    inputs: list[Union[TensorInfo, ValueInfo]]
    outputs: list[Union[TensorInfo, ValueInfo]]
    attributes: list[TensorInfo]
    planned_buffers: list[int]
    operators: list[OperatorUse]
    backends: list[str]
    num_instructions: int
    signature: Optional[str] = None
    input_names: list[str] = ...
    output_names: list[str] = ...

class Module:
    def __call__(self, /, *inputs: Any, out: Any = None, **named: Any) -> Any: ...
    def run(self, name: str, /, *inputs: Any, out: Any = None, **named: Any) -> Any: ...
    async def call_async(self, /, *inputs: Any, method: str = "forward", out: Any = None, **named: Any) -> Any: ...
    def bind(self, /, *inputs: Any, method: str = "forward", out: Any = None, **named: Any) -> Binding: ...
    def instances(self, count: SupportsIndex, method: str = "forward") -> Instances: ...
    def benchmark(
        self, /, *inputs: Any, method: str = "forward", warmup: int = 3, runs: int = 30, **named: Any
    ) -> Benchmark: ...
    def profile(self, /, *inputs: Any, method: str = "forward", runs: int = 10, **named: Any) -> Profile: ...
    def trace(self, /, *inputs: Any, method: str = "forward", runs: int = 1, **named: Any) -> Trace: ...
    @property
    def method_names(self) -> list[str]: ...
    def meta(self, name: str = "forward") -> MethodMeta: ...
    def attribute(self, name: str, method: str = "forward") -> Tensor: ...
    @property
    def report(self) -> LoadReport: ...

class Binding:
    inputs: list[Any]
    out: Any
    def __call__(self) -> Any: ...

class Instances:
    def __call__(self, /, *inputs: Any, out: Any = None, **named: Any) -> Any: ...
    async def call_async(self, /, *inputs: Any, out: Any = None, **named: Any) -> Any: ...
    def __len__(self) -> int: ...

class LoadReport(NamedTuple):
    reason: Optional[str]
    nodes: list[NodeReport]
    cache: Optional[str] = None
    @property
    def lowered(self) -> bool: ...
    @property
    def backends(self) -> dict[str, int]: ...

def load(
    path_or_bytes: _Source,
    *,
    data: Union[None, _Source, Sequence[_Source]] = None,
    threads: Optional[SupportsIndex] = None,
    lower: _Lower = "auto",
    cache: Union[None, str, bytes, os.PathLike[str]] = None,
    memory_limit: Optional[SupportsIndex] = None,
    time_limit: Optional[SupportsFloat] = None,
) -> Module: ...
def operator_names() -> list[str]: ...

class MethodReport(NamedTuple):
    name: str
    instructions: int
    planned_bytes: int
    operators: list[OperatorUse]

class NodeReport(NamedTuple):
    method: str
    node: str
    op: str
    module: str
    source: Optional[str]
    backend: str
    reasons: dict[str, str]
    precision: Optional[str] = None

class Report(NamedTuple):
    nbytes: int
    methods: list[MethodReport]
    nodes: list[NodeReport]
    @property
    def instructions(self) -> int: ...
    @property
    def planned_bytes(self) -> int: ...
    @property
    def operators(self) -> list[OperatorUse]: ...
    @property
    def backends(self) -> dict[str, int]: ...

class Program:
    def save(self, path: Union[str, bytes, os.PathLike[str]]) -> int: ...
    @property
    def buffer(self) -> bytes: ...
    @property
    def external_data(self) -> dict[str, bytes]: ...
    @property
    def report(self) -> Report: ...
    @property
    def quantization(self) -> Optional[QuantizationReport]: ...
    def __call__(self, /, *inputs: Any, **named: Any) -> Any: ...
    def run(self, method: str, /, *inputs: Any, **named: Any) -> Any: ...

class _ExportedProgram(Protocol):
    """A torch.export.ExportedProgram."""

    @property
    def graph_module(self) -> Any: ...
    @property
    def graph_signature(self) -> Any: ...

_Exported = Union[_Source, _ExportedProgram]

class _Tensor(Protocol):
    """A torch.Tensor, a numpy.ndarray, a rushlight.Tensor, or another array in the CPU's memory."""

    @property
    def shape(self) -> Any: ...

_Array = Union[_Tensor, bytes, bytearray, memoryview]
_Constant = Union[int, float, bool, str, None, _Array]
_ConstantMethods = Mapping[str, Union[_Constant, Sequence[_Constant]]]
_ExternalWeights = Union[bool, str, None, Mapping[str, Union[str, Literal[True]]]]

class SymInt(NamedTuple):
    expr: str
    min: Optional[int]
    max: Optional[int]

class Value(NamedTuple):
    name: str
    dtype: str
    shape: Optional[tuple[Union[int, SymInt], ...]]
    dim_order: Optional[tuple[int, ...]]
    is_constant: bool
    id: int
    producer: Optional[int] = None
    state: Optional[str] = None
    @property
    def is_static(self) -> bool: ...

_Arg = Union[Value, SymInt, int, float, bool, str, complex, None, list[Any]]

class Metadata:
    @property
    def nn_module_stack(self) -> list[tuple[str, str, str]]: ...
    @property
    def source_fn_stack(self) -> list[tuple[str, str]]: ...
    @property
    def torch_fn(self) -> Optional[tuple[str, str]]: ...
    @property
    def custom(self) -> dict[str, Any]: ...
    @property
    def from_node(self) -> list[Any]: ...

class Node(NamedTuple):
    name: str
    op: str
    args: dict[str, _Arg]
    inputs: list[Value]
    outputs: list[Value]
    module: str
    source: Optional[str]
    id: int
    users: list[int]
    has_other_uses: bool
    debug_handle: Optional[int]
    metadata: Optional[Metadata]

class Constants(Mapping[Value, Tensor]):
    def __getitem__(self, value: Value) -> Tensor: ...
    def __iter__(self) -> Iterator[Value]: ...
    def __len__(self) -> int: ...

class State:
    name: str
    dtype: str
    shape: tuple[Union[int, SymInt], ...]
    dim_order: tuple[int, ...]
    value: Optional[Value]
    update: Optional[Value]
    @property
    def initial(self) -> Tensor: ...

class Method:
    name: str
    inputs: list[_Arg]
    outputs: list[_Arg]
    nodes: list[Node]
    constants: Constants
    states: list[State]
    symbols: list[SymInt]
    def node(self, id: int) -> Node: ...
    def producer(self, value: Value) -> Optional[Node]: ...
    def users(self, value: Value) -> list[Node]: ...
    def is_claimed(self, node: Node) -> bool: ...
    def is_constant(self, node: Node) -> bool: ...

_Nodes = Union[Node, int, Iterable[Union[Node, int]]]

class Claims:
    def take(self, nodes: _Nodes, tag: str = "") -> None: ...
    def inner(self, nodes: _Nodes, tag: str = "") -> None: ...
    def copy(self, nodes: _Nodes) -> None: ...
    def decompose(self, nodes: _Nodes) -> None: ...
    def refuse(self, nodes: _Nodes, reason: str) -> None: ...
    def set_options(self, options: _Options, tag: str = "") -> None: ...

class Part(NamedTuple):
    method: str
    inputs: list[_Arg]
    outputs: list[_Arg]
    nodes: list[Node]
    constants: Constants
    text: str
    tag: str
    options: Mapping[str, Union[bool, int, str]]
    states: list[State]
    symbols: list[SymInt]

class Payload(NamedTuple):
    data: _Bytes
    compile_specs: Mapping[str, _Bytes] = ...
    named_data: Mapping[str, _Bytes] = ...

class MethodBackend(Protocol):
    name: str
    def claim(self, method: Method, claims: Claims) -> None: ...
    def compile(self, part: Part) -> Union[_Bytes, Payload]: ...

class Backend(Protocol):
    name: str
    def partition(self, node: Node) -> Union[bool, str]: ...
    def preprocess(self, part: Part) -> Union[_Bytes, Payload]: ...

class _Delegate(Protocol):
    """Runs a part. `execute` returns the output, or a list or tuple of the outputs."""

    num_outputs: int
    def execute(self, inputs: list[Union[Tensor, int, float, bool]], /) -> Any: ...

class _StatefulDelegate(Protocol):
    """Runs a part with states. `states` has their first bytes by name. `execute` gets their bytes and changes them in place."""

    num_outputs: int
    states: Mapping[str, _Bytes]
    def execute(
        self, inputs: list[Union[Tensor, int, float, bool]], states: dict[str, bytearray], /
    ) -> Any: ...

class _RuntimeBackend(Protocol):
    """The run-time half of a backend."""

    name: str
    def init(self, payload: Payload, /) -> Union[_Delegate, _StatefulDelegate]: ...

# Generated from the table of options by `UPDATE_DOCS=1 cargo test -p rushlight-cli --test it bindings`.
_Scheme = Literal["int8", "int8-dynamic", "8da4w", "int4", "int8-weight"]
# End of the generated options.

class Quantization(NamedTuple):
    scheme: _Scheme = "int8"
    observer: Literal["histogram", "minmax", "average", "percentile", "mse", "best"] = "histogram"
    weights: Literal["mse", "nearest", "gptq"] = "mse"
    keep: Sequence[str] = ()
    bias_correction: bool = True
    min_snr: Optional[float] = None
    embeddings: Optional[int] = None

class QuantizedLayer(NamedTuple):
    method: str
    name: str
    op: str
    source: Optional[str]
    sizes: list[int]
    kept: Optional[str]
    bytes_before: int
    bytes_after: int
    weight_snr: Optional[float]
    snr: Optional[float]
    range: Optional[list[float]]

class QuantizedOutput(NamedTuple):
    method: str
    # Overrides `tuple.index`.
    index: int  # type: ignore[assignment]
    name: str
    snr: Optional[float]
    non_finite: int

class QuantizationWarning(UserWarning): ...

class QuantizationProposal(NamedTuple):
    method: str
    keep: list[str]
    output_snr: float
    nbytes: int
    multiplications: float

class QuantizationReport(NamedTuple):
    scheme: str
    observer: str
    rounding: str
    samples: int
    calibrated_on: Optional[Literal["calibration", "example"]]
    layers: list[QuantizedLayer]
    output_snr: Optional[float]
    outputs: list[QuantizedOutput]
    compared_on: Optional[Literal["calibration", "example"]]
    not_compared: Optional[str]
    proposals: list[QuantizationProposal]
    warnings: list[str]
    bytes_before: int
    bytes_after: int
    layers_in_integers: int

class OptionSpec(NamedTuple):
    name: str
    default: Union[bool, int, str]
    about: str
    choices: tuple[str, ...] = ()

class BackendInfo(NamedTuple):
    name: str
    about: str
    options: list[OptionSpec]

_Options = Mapping[str, Union[bool, int, str]]
_Known = Union[str, tuple[str, _Options]]
_OwnBackend = Union[Backend, MethodBackend]
_Backend = Union[_Known, _OwnBackend, tuple[_OwnBackend, _Options]]
_Backends = Union[_Backend, Sequence[_Backend], None]
_Lower = Union[_Known, Sequence[_Known]]

_KvCache = Literal["f32", "f16", "bf16", "int8", "int4"]
# A function of a stage, how much of it is done, and the total; or whether a bar is shown.
_Progress = Union[None, bool, Callable[[str, int, int], object]]

def backends() -> list[BackendInfo]: ...
def register_backend(backend: _RuntimeBackend) -> None: ...
def compile(
    source: Union[_Exported, Mapping[str, _Exported]],
    *,
    quantize: Union[_Scheme, Quantization, None] = None,
    calibration: Any = None,
    backend: _Backends = None,
    share_state: bool = False,
    kv_cache: _KvCache = "f32",
    constant_methods: Optional[_ConstantMethods] = None,
    plan_inputs: bool = True,
    plan_outputs: bool = True,
    alignment: SupportsIndex = 16,
    stack_traces: bool = False,
    debug_map: bool = True,
    external_weights: _ExternalWeights = False,
    external_weights_max_bytes: Optional[int] = None,
    tokenizer: Union[None, str, os.PathLike[str]] = None,
    progress: _Progress = None,
) -> Program: ...
def export(
    model: Any,
    args: Union[tuple[Any, ...], Mapping[str, tuple[Any, ...]]],
    kwargs: Optional[Mapping[str, Any]] = None,
    *,
    dynamic_shapes: Any = None,
    strict: bool = False,
    quantize: Any = None,
    calibration: Any = None,
    backend: _Backends = None,
    share_state: bool = False,
    kv_cache: _KvCache = "f32",
    constant_methods: Optional[_ConstantMethods] = None,
    plan_inputs: bool = True,
    plan_outputs: bool = True,
    alignment: SupportsIndex = 16,
    stack_traces: bool = False,
    debug_map: bool = True,
    external_weights: _ExternalWeights = False,
    external_weights_max_bytes: Optional[int] = None,
    tokenizer: Union[None, str, os.PathLike[str]] = None,
    progress: _Progress = None,
) -> Program: ...

class ComparisonRow(NamedTuple):
    result: str
    node: str
    op: str
    module: str
    source: Optional[str]
    max_abs: float
    relative: float
    snr_db: float
    shapes: Optional[tuple[list[int], list[int]]]
    unseen: int

class ComparedOutput(NamedTuple):
    name: str
    max_abs: float
    relative: float
    snr_db: float
    shapes: Optional[tuple[list[int], list[int]]]

class Benchmark:
    times: list[float]
    @property
    def median(self) -> float: ...
    @property
    def fastest(self) -> float: ...

class OperatorTime(NamedTuple):
    name: str
    calls: int
    seconds: float
    share: float

class InstructionTime(NamedTuple):
    instruction: int
    name: str
    seconds: float
    share: float
    node: Optional[str]
    module: Optional[str]
    source: Optional[str]

class StepTime(NamedTuple):
    instruction: int
    step: int
    backend: str
    kind: str
    seconds: float
    share: float
    flops_per_s: float
    bytes_per_s: float
    limit_share: Optional[float]
    limit: Optional[str]
    node: str
    module: str
    source: Optional[str]

class Limit(NamedTuple):
    backend: str
    device: str
    flops_per_s: float
    bytes_per_s: float

class Profile:
    seconds: float
    operators: list[OperatorTime]
    instructions: list[InstructionTime]
    steps: list[StepTime]
    limits: list[Limit]
    def slowest(self, count: int = 10) -> Union[list[StepTime], list[InstructionTime]]: ...
    def save_trace(self, path: Union[str, bytes, os.PathLike[str]]) -> None: ...

class TraceEvent(NamedTuple):
    name: str
    kind: Literal["execution", "instruction", "step"]
    start: float
    seconds: float
    details: dict[str, Any]

class Trace:
    events: list[TraceEvent]
    def save(self, path: Union[str, bytes, os.PathLike[str]]) -> None: ...

class Comparison:
    rows: list[ComparisonRow]
    outputs: list[ComparedOutput]
    only_in_reference: list[str]
    def worst(self, count: int = 5) -> list[ComparisonRow]: ...
    def parting(self, tolerance: float = 1e-4) -> Optional[str]: ...
    def first_difference(self, tolerance: float = 1e-4) -> Optional[ComparisonRow]: ...

def compare(
    reference: _Exported,
    candidate: Union[_Source, Program],
    inputs: Any = None,
    *,
    method: str = "forward",
    seed: Optional[int] = None,
    progress: _Progress = None,
) -> Comparison: ...
def register_op(
    name: str, function: Callable[..., Any], *, inputs: Optional[int] = None, outputs: int = 1
) -> None: ...
