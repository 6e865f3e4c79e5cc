import os
from typing import Any, Callable, Mapping, NamedTuple, Optional, Protocol, Sequence, Union

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

class Module:
    def __call__(self, *inputs: Any) -> Any: ...
    def run(self, name: str, *inputs: Any) -> Any: ...
    @property
    def method_names(self) -> list[str]: ...
    def meta(self, name: str = "forward") -> MethodMeta: ...
    def attribute(self, name: str, method: str = "forward") -> Tensor: ...

def load(
    path_or_bytes: _Source,
    *,
    data: Union[None, _Source, Sequence[_Source]] = None,
    threads: Optional[int] = None,
) -> Module: ...
def operator_names() -> list[str]: ...

class MethodReport(NamedTuple):
    name: str
    instructions: int
    planned_bytes: int
    operators: list[OperatorUse]

class Report(NamedTuple):
    nbytes: int
    methods: list[MethodReport]
    @property
    def instructions(self) -> int: ...
    @property
    def planned_bytes(self) -> int: ...
    @property
    def operators(self) -> list[OperatorUse]: ...

class Program:
    def save(self, path: Union[str, os.PathLike[str]]) -> int: ...
    @property
    def buffer(self) -> bytes: ...
    @property
    def report(self) -> Report: ...
    def __call__(self, *inputs: Any) -> Any: ...
    def run(self, method: str, *inputs: Any) -> Any: ...

class _ExportedProgram(Protocol):
    """A torch.export.ExportedProgram."""

    @property
    def graph_module(self) -> Any: ...
    @property
    def graph_signature(self) -> Any: ...

_Exported = Union[_Source, _ExportedProgram]
_Constant = Union[int, float, bool, str, None]
_ConstantMethods = Mapping[str, Union[_Constant, Sequence[_Constant]]]

def compile(
    source: Union[_Exported, Mapping[str, _Exported]],
    *,
    share_state: bool = False,
    constant_methods: Optional[_ConstantMethods] = None,
    plan_inputs: bool = True,
    plan_outputs: bool = True,
    stack_traces: bool = False,
) -> Program: ...
def export(
    model: Any,
    args: Union[tuple[Any, ...], Mapping[str, tuple[Any, ...]]],
    kwargs: Optional[Mapping[str, Any]] = None,
    *,
    dynamic_shapes: Any = None,
    strict: bool = False,
    share_state: bool = False,
    constant_methods: Optional[_ConstantMethods] = None,
) -> Program: ...
def register_op(name: str, function: Callable[..., Any], *, inputs: Optional[int] = None) -> None: ...
