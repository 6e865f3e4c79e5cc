"""The description of methods in a program."""

from typing import NamedTuple, Optional, Union

from ._text import Table, count, printable, size


class TensorInfo(NamedTuple):
    """A tensor as the program declares it. `sizes` are upper bounds if `is_dynamic`.

    `ranges` has the allowed sizes of each dimension of a dynamic input, such as `"1..=8"` or `"2*x.size()[0]"`. It is empty if
    all sizes are static, or if the program has only upper bounds.
    """

    dtype: str
    dtype_code: int
    sizes: tuple
    dim_order: tuple
    is_dynamic: bool
    is_memory_planned: bool
    nbytes: int
    name: Optional[str]
    ranges: tuple = ()


class ValueInfo(NamedTuple):
    """An input or output that is not a tensor: its kind, and the value that the export fixed."""

    kind: str
    value: Union[int, float, bool, str, None]


class OperatorUse(NamedTuple):
    """An operator of a method, and the number of instructions that call it."""

    name: str
    calls: int


@printable
class MethodMeta(NamedTuple):
    """Inputs, outputs and needs of a method. `planned_buffers` are in bytes.

    `signature` is the signature of the exported function, such as `(x, batch: {ids, mask}) -> {logits}`. `input_names` and
    `output_names` have a name for each input and output, such as `batch.ids`. Programs of ExecuTorch's compiler have none:
    `signature` is None and the lists are empty.
    """

    name: str
    inputs: list
    outputs: list
    attributes: list
    planned_buffers: list
    operators: list
    backends: list
    num_instructions: int
    signature: Optional[str] = None
    input_names: list = []
    output_names: list = []

    def _parts(self):
        """Lines and a table for people."""
        backends = "".join(f" · {name}" for name in self.backends)
        planned = size(sum(self.planned_buffers))
        heading = f"{self.name}  {count(self.num_instructions, 'instruction')} · activations {planned}{backends}"
        rows = [("", "name", "dtype", "sizes")]
        for what, infos, names in (("input", self.inputs, self.input_names), ("output", self.outputs, self.output_names)):
            for index, info in enumerate(infos):
                name = names[index] if index < len(names) else str(index)
                rows.append((what, name, *_described(info)))
        return [heading, *([self.signature] if self.signature else []), Table(rows)]


def _described(info):
    """Returns the dtype and sizes of a tensor, or the kind and value of something else."""
    if isinstance(info, ValueInfo):
        return info.kind, "" if info.value is None else str(info.value)
    ranges = info.ranges or [f"..={size}" if info.is_dynamic else str(size) for size in info.sizes]
    return info.dtype, f"[{', '.join(map(str, ranges))}]"


def _value(info):
    kind = info["kind"]
    if kind != "tensor":
        return ValueInfo(kind, info["value"])
    return TensorInfo(**{field: info[field] for field in TensorInfo._fields})


def from_dict(meta):
    """Converts the description of the extension module to these types."""
    return MethodMeta(
        name=meta["name"],
        inputs=[_value(info) for info in meta["inputs"]],
        outputs=[_value(info) for info in meta["outputs"]],
        attributes=[_value(info) for info in meta["attributes"]],
        planned_buffers=meta["planned_buffers"],
        operators=[OperatorUse(*use) for use in meta["operators"]],
        backends=meta["backends"],
        num_instructions=meta["num_instructions"],
        signature=meta["signature_text"],
        input_names=meta["input_names"],
        output_names=meta["output_names"],
    )
