"""Compares random programs with eager PyTorch in all ways in which Rushlight runs them.

    python tools/random_programs.py --count 1000              programs of the seeds 0 to 999
    python tools/random_programs.py --first 5000 --seconds 60 as many as fit in a minute, from seed 5000
    python tools/random_programs.py --one 1234                 one program, with its source

Each is a chain of operators of random arguments over shapes with 0 and 1, of all element types. A fifth of them varies a size. It is
run with the reference operators, lowered at load, compiled for the CPU, with a time limit, and as a batch of several sessions, each
time with several inputs. A program that `compile` refuses is counted by its reason; one that is accepted and then fails, or gives other
numbers, is a failure. PYTHONPATH says where the package is.

Most of the time goes into `torch.export`, so programs of neighbouring seeds are parts of one module. Where the module fails, its halves
are tried, down to single programs. Each sixteenth module is taken apart from the start.
"""

import argparse
import pathlib
import random
import re
import sys
import time
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import torch
from random_operators import OPERATORS, Chooser
from random_runs import MODES, Tally

warnings.filterwarnings("ignore")

# The element types of inputs, the common ones more often.
DTYPES = [
    *[torch.float32] * 10, *[torch.int64] * 2, *[torch.bool] * 2, torch.float16, torch.bfloat16, torch.float64, torch.int32,
    torch.int16, torch.int8, torch.uint8,
]  # fmt: skip
RARE_DTYPES = [
    torch.uint16, torch.uint32, torch.uint64, torch.complex64, torch.complex128, torch.float8_e4m3fn, torch.float8_e5m2,
]  # fmt: skip
SIZES = [0, 1, 1, 2, 2, 3, 3, 4, 5, 8]
# Steps that are tried before a program is given up.
TRIES = 40
# The part of the programs in which a size varies.
VARYING = 0.2
# Programs of one module, and of how many modules one is taken apart.
TOGETHER, APART = 16, 16
SIZED_BY_DATA = re.compile(r"unique|nonzero\(|masked_select|\w\[\w+ > 0\]")
# What eager raises for arguments that do not fit.
REFUSED = (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError, ZeroDivisionError, KeyError, AttributeError)


class Program:
    """Source of a module, its inputs, and the values that eager gave for them."""

    def __init__(self, seed, rare=False):
        self.seed, self.random = seed, random.Random(seed)
        torch.manual_seed(seed)
        self.dtypes = DTYPES + RARE_DTYPES if rare else DTYPES
        self.inputs = [self.tensor() for _ in range(self.random.randint(1, 2))]
        self.names = [f"x{index}" for index in range(len(self.inputs))]
        self.values = dict(zip(self.names, self.inputs, strict=True))
        self.lines, self.buffers = [], {}
        wanted = self.random.randint(1, 6)
        for _ in range(TRIES):
            # Of sizes that data decides, `torch.export` knows too little for most operators.
            if len(self.lines) >= wanted or (self.lines and SIZED_BY_DATA.search(self.lines[-1])):
                break
            self.step()
        self.outputs = self.choose_outputs()
        self.varied = self.choose_varied()

    def tensor(self):
        shape = [self.random.choice(SIZES) for _ in range(self.random.choice([0, 1, 2, 2, 3, 3, 4]))]
        return numbers(self.random, self.random.choice(self.dtypes), shape)

    def step(self):
        """Adds an operator, if eager takes it with these arguments."""
        chooser = Chooser(self.random, self.values, numbers)
        make = self.random.choice(OPERATORS)
        try:
            text = make(chooser)
            if text is None:
                return
            names = {**self.values, **self.buffers, **{f"self.{k}": v for k, v in chooser.buffers.items()}}
            scope = {"torch": torch, "F": torch.nn.functional, "self": _Buffers({**self.buffers, **chooser.buffers}), **names}
            value = eval(text, scope)
        except REFUSED:
            return
        if not isinstance(value, torch.Tensor) or value.numel() > 100_000 or value.dim() > 6:
            return
        name = f"v{len(self.lines)}"
        self.buffers.update(chooser.buffers)
        self.lines.append(f"{name} = {text}")
        self.values[name] = value

    def choose_outputs(self):
        computed = [name for name in self.values if name.startswith("v")]
        if not computed:
            return []
        others = [name for name in computed[:-1] if self.random.random() < 0.3]
        return [*others, computed[-1]]

    def choose_varied(self):
        """The size that varies, and what it becomes in another call; None in most programs."""
        sizes = sorted({size for value in self.inputs for size in value.shape if size > 1})
        if self.random.random() >= VARYING or not sizes:
            return None
        size = self.random.choice(sizes)
        return size, self.random.choice([other for other in (size - 1, size + 1, size + 3) if other > 1])

    def dynamic_shapes(self):
        """What `torch.export` is told of the sizes of each input."""
        if self.varied is None:
            return [None for _ in self.inputs]
        hint = torch.export.Dim.AUTO(max=2 * max(self.varied) + 8)
        return [{dim: hint for dim, size in enumerate(value.shape) if size == self.varied[0]} for value in self.inputs]

    def other_inputs(self):
        """Other inputs by name: with the elements in another order, and of another size where it varies."""
        flipped = [value.flatten().flip(0).reshape(value.shape) for value in map(_plain, self.inputs)]
        others = {"flipped": [value.view(like.dtype) for value, like in zip(flipped, self.inputs, strict=True)]}
        if self.varied is not None:
            size, other = self.varied
            source = random.Random(self.seed)
            shapes = [[other if n == size else n for n in value.shape] for value in self.inputs]
            others["resized"] = [numbers(source, value.dtype, shape) for value, shape in zip(self.inputs, shapes, strict=True)]
        return others

    def source(self):
        lines = [f"def forward(self, {', '.join(self.names)}):", *(f"    {line}" for line in self.lines)]
        lines.append(f"    return ({', '.join(self.outputs)},)")
        return "\n".join(lines)

    def describe(self):
        inputs = [f"# {name}: {value.dtype} {list(value.shape)}" for name, value in zip(self.names, self.inputs, strict=True)]
        buffers = [f"# self.{name} = {value.tolist() if value.numel() < 40 else value.shape}, {value.dtype}" for name, value in self.buffers.items()]
        varied = [] if self.varied is None else [f"# the size {self.varied[0]} varies, and becomes {self.varied[1]}"]
        return "\n".join([f"# seed {self.seed}", *inputs, *buffers, *varied, self.source()])

    def module(self):
        scope = {"torch": torch, "F": torch.nn.functional}
        exec(self.source(), scope)
        module = type("Random", (torch.nn.Module,), {"forward": scope["forward"]})()
        for name, value in self.buffers.items():
            module.register_buffer(name, value.clone())
        return module.eval()

    def precision_of(self, output):
        """The element type of the fewest digits among the floats that an output is computed from, as torch knows it."""
        needed, types = {output}, []
        for line in reversed(self.lines):
            name, text = line.split(" = ", 1)
            if name in needed:
                needed.update(re.findall(r"\b(?:[xv]\d+|c\d+)\b", text))
        for name, value in {**self.values, **self.buffers}.items():
            if name in needed and (value.is_floating_point() or value.is_complex()):
                types.append(value.dtype)
        return max(types, key=lambda dtype: torch.finfo(dtype).eps, default=torch.float32)

    def values_of(self, inputs):
        """All values that eager computes for inputs, by name."""
        scope = {"torch": torch, "F": torch.nn.functional, "self": _Buffers(self.buffers), **dict(zip(self.names, inputs, strict=True))}
        for line in self.lines:
            exec(line, scope)
        return {name: scope[name] for name in self.values}


class _Buffers:
    def __init__(self, values):
        self.__dict__.update(values)


def _plain(value):
    """The same bits in a type that all operators of movement take."""
    plain = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}.get(value.dtype.itemsize)
    return value if plain is None or value.dtype.is_complex else value.view(plain)


def numbers(source, dtype, shape):
    """Numbers that are exact in all types and often equal."""
    count = 1
    for size in shape:
        count *= size
    if dtype == torch.bool:
        return torch.tensor([source.random() < 0.5 for _ in range(count)], dtype=dtype).reshape(shape)
    if dtype.is_floating_point:
        return torch.tensor([source.randint(-8, 8) / 4 for _ in range(count)], dtype=torch.float64).to(dtype).reshape(shape)
    if dtype.is_complex:
        values = [complex(source.randint(-8, 8) / 4, source.randint(-8, 8) / 4) for _ in range(count)]
        return torch.tensor(values, dtype=dtype).reshape(shape)
    least = 0 if not dtype.is_signed else -4
    return torch.tensor([source.randint(least, 6) for _ in range(count)], dtype=torch.int64).to(dtype).reshape(shape)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--one", type=int)
    parser.add_argument("--rare", action="store_true", help="also element types that few operators take")
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--together", type=int, default=TOGETHER, help="how many programs are parts of one module")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    tally, end = Tally(arguments.modes.split(",")), time.monotonic() + arguments.seconds
    if arguments.one is not None:
        program = Program(arguments.one, arguments.rare)
        print(program.describe())
        tally.check([program])
    else:
        last = arguments.first + arguments.count
        for index, first in enumerate(range(arguments.first, last, arguments.together)):
            if time.monotonic() > end:
                break
            programs = [Program(seed, arguments.rare) for seed in range(first, min(first + arguments.together, last))]
            for part in [[program] for program in programs] if index % APART == 0 else [programs]:
                tally.check(part)
    tally.report()
    sys.exit(1 if tally.failures else 0)


if __name__ == "__main__":
    main()
