"""Compares random programs with eager PyTorch in all ways in which Rushlight runs them.

    python tools/random_programs.py --count 1000              programs of the seeds 0 to 999
    python tools/random_programs.py --first 5000 --seconds 60 as many as fit in a minute, from seed 5000
    python tools/random_programs.py --one 1234                 one program, with its source

Each is a chain of operators of random arguments over shapes with 0 and 1, of all element types. It is run with the reference
operators, lowered at load, compiled for the CPU, and with a time limit. A program that `compile` refuses is counted by its reason;
one that is accepted and then fails, or gives other numbers, is a failure. PYTHONPATH says where the package is.
"""

import argparse
import collections
import pathlib
import random
import re
import sys
import time
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import rushlight
import torch
from random_operators import OPERATORS, Chooser

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
MODES = ("reference", "lowered", "compiled", "limited")
# Steps that are tried before a program is given up.
TRIES = 40


class Program:
    """Source of a module, its inputs, and what eager gave for them."""

    def __init__(self, seed, rare):
        self.seed, self.random = seed, random.Random(seed)
        torch.manual_seed(seed)
        self.dtypes = DTYPES + RARE_DTYPES if rare else DTYPES
        self.inputs = [self.tensor() for _ in range(self.random.randint(1, 2))]
        self.names = [f"x{index}" for index in range(len(self.inputs))]
        self.values = dict(zip(self.names, self.inputs, strict=True))
        self.lines, self.buffers = [], {}
        wanted = self.random.randint(1, 6)
        for _ in range(TRIES):
            if len(self.lines) >= wanted:
                break
            self.step()
        self.outputs = self.choose_outputs()

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
        except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError, ZeroDivisionError, KeyError, AttributeError):
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

    def source(self):
        lines = [f"def forward(self, {', '.join(self.names)}):", *(f"    {line}" for line in self.lines)]
        lines.append(f"    return ({', '.join(self.outputs)},)")
        return "\n".join(lines)

    def describe(self):
        inputs = [f"# {name}: {value.dtype} {list(value.shape)}" for name, value in zip(self.names, self.inputs, strict=True)]
        buffers = [f"# self.{name} = {value.tolist() if value.numel() < 40 else value.shape}, {value.dtype}" for name, value in self.buffers.items()]
        return "\n".join([f"# seed {self.seed}", *inputs, *buffers, self.source()])

    def module(self):
        scope = {"torch": torch, "F": torch.nn.functional}
        exec(self.source(), scope)
        module = type("Random", (torch.nn.Module,), {"forward": scope["forward"]})()
        for name, value in self.buffers.items():
            module.register_buffer(name, value.clone())
        return module.eval()


class _Buffers:
    def __init__(self, values):
        self.__dict__.update(values)


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


def run(core, inputs):
    result = core(*(value.clone() for value in inputs))
    return list(result) if isinstance(result, (tuple, list)) else [result]


def modes(exported, wanted):
    """Programs that are ready to be called, by mode; making one may fail."""
    portable = None
    for mode in wanted:
        if mode == "compiled":
            yield mode, lambda: rushlight.load(rushlight.compile(exported, backend="cpu", progress=False).buffer)
            continue
        if portable is None:
            portable = rushlight.compile(exported, progress=False).buffer
        lower = "off" if mode == "reference" else "cpu"
        limit = {"time_limit": 60.0} if mode == "limited" else {}
        yield mode, lambda lower=lower, limit=limit: rushlight.load(portable, lower=lower, **limit)


TOLERANCES = {torch.float16: 1e-2, torch.bfloat16: 6e-2, torch.float64: 1e-9, torch.complex128: 1e-9}


def difference(got, want, tolerance):
    """What differs; None if they agree."""
    if len(got) != len(want):
        return f"{len(got)} results for {len(want)}"
    for index, (ours, theirs) in enumerate(zip(got, want, strict=True)):
        ours = torch.as_tensor(ours)
        if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
            return f"result {index} is {ours.dtype} {list(ours.shape)} for {theirs.dtype} {list(theirs.shape)}"
        if theirs.numel() == 0:
            continue
        if not (theirs.is_floating_point() or theirs.is_complex()):
            if not torch.equal(ours, theirs):
                return f"result {index} is {short(ours)} for {short(theirs)}"
            continue
        wide = torch.complex128 if theirs.is_complex() else torch.float64
        ours, theirs = ours.to(wide), theirs.to(wide)
        limit = tolerance or TOLERANCES.get(want[index].dtype, 1e-4)
        scale = theirs.abs().nan_to_num(0, 0, 0).max().item()
        if not torch.allclose(ours, theirs, rtol=limit, atol=limit * max(scale, 1.0), equal_nan=True):
            return f"result {index} is {short(ours)} for {short(theirs)}"
    return None


def short(tensor):
    text = str(tensor.flatten().tolist())
    return text if len(text) < 160 else text[:160] + "..."


def is_unstable(program, module):
    """True if rounding decides what eager gives: in f64, or from inputs that are a little larger, the result is another."""
    def as_double(value):
        return value.double() if value.is_floating_point() else value

    def larger(value):
        return (value.double() * (1 + 3e-7) + 1e-7).to(value.dtype) if value.is_floating_point() else value

    if any(value.is_floating_point() and value.numel() and value.abs().nan_to_num(0, 0, 0).max() > 1e15 for value in program.values.values()):
        # Squares and sums of such numbers overflow in one order and not in another.
        return True
    want = [value.double() if value.is_floating_point() else value for value in run(module, program.inputs)]
    lowest = min((value.dtype.itemsize for value in program.values.values() if value.is_floating_point()), default=4)
    for change in (as_double, larger):
        try:
            scope = {name: change(value) for name, value in program.buffers.items()}
            other = program.module()
            for name, value in scope.items():
                setattr(other, name, value)
            got = run(other, [change(value) for value in program.inputs])
            got = [value.double() if value.is_floating_point() else value for value in got]
            if difference(got, want, 3e-2 if lowest <= 2 else 3e-5):
                return True
        except (RuntimeError, TypeError, ValueError, IndexError):
            return lowest <= 2
    return False


class Tally:
    def __init__(self):
        self.counts = collections.Counter()
        self.refusals, self.failures = collections.Counter(), []
        self.first_refused = {}

    def check(self, program, wanted):
        if not program.outputs:
            self.counts["empty"] += 1
            return
        self.counts["programs"] += 1
        module = program.module()
        try:
            with torch.no_grad():
                want = run(module, program.inputs)
                exported = torch.export.export(module, tuple(value.clone() for value in program.inputs), strict=False)
        except Exception as error:
            self.counts["not exported"] += 1
            self.last = error
            return
        try:
            for mode, make in modes(exported, wanted):
                self.counts[mode] += 1
                if problem := self.run_mode(program, module, want, mode, make):
                    self.failures.append((program.seed, mode, problem))
                    print(f"{program.describe()}\n# {mode}: {problem}\n", flush=True)
        except rushlight.Error as error:
            self.refuse(program, error)
            if is_defect(error):
                self.failures.append((program.seed, "compile", str(error)))
                print(f"{program.describe()}\n# compile: {error}\n", flush=True)
        except BaseException as error:
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise
            self.failures.append((program.seed, "compile", repr(error)))
            print(f"{program.describe()}\n# compile: {error!r}\n", flush=True)

    def refuse(self, program, error):
        """Counts a refusal by its reason, without the numbers in it."""
        reason = re.sub(r"v\d+|x\d+|_\d+|\d+", "N", str(error).split("\n")[0])
        self.refusals[reason] += 1
        self.first_refused.setdefault(reason, program.seed)
        self.counts["refused"] += 1

    def run_mode(self, program, module, want, mode, make):
        try:
            loaded = make()
        except rushlight.Error as error:
            if mode == "compiled" and is_defect(error):
                return f"does not compile for the CPU: {error}"
            if mode == "compiled":
                self.refuse(program, error)
                return None
            return f"does not load: {error}"
        for call in range(2):
            try:
                got = run(loaded, program.inputs)
            except rushlight.Error as error:
                return f"call {call} fails: {error}"
            except ValueError as error:
                if "elements of type" in str(error):
                    self.counts["input refused"] += 1
                    return None
                raise
            if found := difference(got, want, None):
                if is_unstable(program, module):
                    self.counts["unstable"] += 1
                    return None
                return found
        return None


def is_defect(error):
    text = str(error)
    return error.code_name in ("Internal",) or "breaks the rules" in text or "defect" in text or "invalid payload" in text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--one", type=int)
    parser.add_argument("--rare", action="store_true", help="also element types that few operators take")
    parser.add_argument("--modes", default=",".join(MODES))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    tally, end = Tally(), time.monotonic() + arguments.seconds
    seeds = [arguments.one] if arguments.one is not None else range(arguments.first, arguments.first + arguments.count)
    for seed in seeds:
        if time.monotonic() > end:
            break
        program = Program(seed, arguments.rare)
        if arguments.one is not None:
            print(program.describe())
        tally.check(program, arguments.modes.split(","))
    for reason, count in tally.refusals.most_common():
        print(f"refused {count}: {reason} (seed {tally.first_refused[reason]})")
    print(", ".join(f"{count} {what}" for what, count in tally.counts.items()))
    print(f"{len(tally.failures)} failures: {[seed for seed, _, _ in tally.failures][:100]}")
    sys.exit(1 if tally.failures else 0)


if __name__ == "__main__":
    main()
