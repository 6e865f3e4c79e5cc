"""Writes what the tests of `bindings/jvm` need besides `tests/corpus`: exports, with PyTorch's results as lines of text.

`python tools/jvm_programs.py` writes `bindings/jvm/tests/programs`. A line is `call METHOD TOLERANCE INPUTS OUTPUTS`, or one of the
values that follow it: `tensor DTYPE SIZES BASE64`, with `-` for no sizes. `cargo xtask test jvm` makes the same lines of the corpus.
"""

import base64
import pathlib

import torch

FOLDER = pathlib.Path(__file__).parent.parent / "bindings/jvm/tests/programs"

# An argument and a result of each element type that PyTorch computes with.
ARGUMENTS = {
    "u8": torch.tensor([0, 1, 127, 200], dtype=torch.uint8),
    "i8": torch.tensor([-100, -1, 0, 101], dtype=torch.int8),
    "i16": torch.tensor([-20000, -1, 0, 30000], dtype=torch.int16),
    "i32": torch.tensor([-2000000000, -1, 0, 7], dtype=torch.int32),
    "i64": torch.tensor([-(2**62), -1, 0, 2**40], dtype=torch.int64),
    "f16": torch.tensor([-65504.0, -6e-8, 0.0, 1.5], dtype=torch.float16),
    "bf16": torch.tensor([-3e38, -1e-40, 0.0, 1.5], dtype=torch.bfloat16),
    "f32": torch.tensor([-3.4e38, -1e-45, float("nan"), 1.5], dtype=torch.float32),
    "f64": torch.tensor([-1.7e308, -5e-324, float("inf"), 1.5], dtype=torch.float64),
    "b": torch.tensor([True, False, False, True]),
}


class Types(torch.nn.Module):
    """Turns each argument around, so that all bits are those that came."""

    def forward(self, u8, i8, i16, i32, i64, f16, bf16, f32, f64, b):
        return {name: torch.flip(value, [0]) for name, value in locals().items() if name in ARGUMENTS}


class Grow(torch.nn.Module):
    def forward(self, x):
        return x.repeat(1 << 18)


class Loop(torch.nn.Module):
    """Counts up to a number, one by one."""

    def forward(self, n):
        return torch.while_loop(lambda i: i < n, lambda i: (i + 1,), (torch.zeros_like(n),))[0]


class Twice(torch.nn.Module):
    """Takes any number of elements, so that a result may be empty although its bound is large."""

    def forward(self, x):
        return x + x


def line(tensor):
    sizes = ",".join(map(str, tensor.shape)) or "-"
    data = tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return f"tensor {str(tensor.dtype).removeprefix('torch.')} {sizes} {base64.b64encode(data).decode()}"


def main():
    FOLDER.mkdir(exist_ok=True)
    lines = []
    size = torch.export.Dim("size", min=0, max=2048)
    for name, module, arguments, dynamic in [
        ("types", Types(), tuple(ARGUMENTS.values()), None),
        ("grow", Grow(), (torch.tensor([1.5]),), None),
        ("loop", Loop(), (torch.tensor(3),), None),
        ("twice", Twice(), (torch.tensor([1.5, -2.0, 0.25]),), ({0: size},)),
    ]:
        exported = torch.export.export(module, arguments, dynamic_shapes=dynamic)
        for graph in exported.graph_module.modules():
            for node in graph.graph.nodes:
                node.meta.pop("stack_trace", None)  # names folders of this machine
        torch.export.save(exported, FOLDER / f"{name}.pt2")
        results = module(*arguments)
        results = list(results.values()) if isinstance(results, dict) else [results]
        if name == "grow":
            continue  # a megabyte of one number
        lines.append(f"call {name} 0 {len(arguments)} {len(results)}")
        lines += map(line, [*arguments, *results])
    (FOLDER / "calls.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
