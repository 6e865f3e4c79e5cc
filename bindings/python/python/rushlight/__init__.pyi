import os
from typing import Any, NamedTuple, Optional, Sequence, Union

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
