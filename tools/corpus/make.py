"""Makes the corpus of small program files of one ExecuTorch generation, in `tests/corpus/<version>/`.

    python tools/corpus/make.py                    the generation of the executorch that this Python has
    python tools/corpus/make.py --only add,cond    some of it

The corpus holds three generations: the oldest wheel that still installs and exports, one of the middle, and the newest.
Each needs an environment of its own, since a wheel is tied to one torch:

    python3.11 -m venv old; old/bin/pip install 'numpy<2' 'setuptools<70' executorch==0.2.0    (torch 2.3.0)
    python3.11 -m venv mid; mid/bin/pip install executorch==0.7.0 torch==2.8.0
    python3.11 -m venv new; new/bin/pip install -r tools/requirements.txt                      (executorch 1.5.1)

and then the command above with each of their Pythons. A program that a generation's exporter refuses is reported and
left out. `<name>.json` beside a program holds its calls and eager PyTorch's results, in the form of `tools/cases.py`
with the values inline. Files are small (below 100 KB each): they are checked in, and they also seed the mutation tests.
"""

import argparse
import copy
import importlib.metadata
import os
import sys
import traceback
from pathlib import Path

import torch
from executorch import exir
from torch import nn
from torch.export import Dim

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))
import cases  # noqa: E402

VERSION = importlib.metadata.version("executorch").split("+")[0]
GENERATION = tuple(int(part) for part in VERSION.split(".")[:2])
SIZE_LIMIT = 100_000
# The exporter starts `flatc`, which lies beside this Python, also when its environment is not activated.
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
PROGRAMS = {}


class Program:
    """One program of the corpus: its methods, the calls to record, and how it is lowered."""

    def __init__(
        self, methods, calls, dynamic=None, constants=None, config=None, partitioners=(), wrap=None, tolerance=1e-4, exported=None
    ):
        self.methods = methods if isinstance(methods, dict) else {"forward": methods}
        self.calls = [call if isinstance(call[0], str) else ("forward", call) for call in calls]
        self.dynamic, self.constants, self.config = dynamic, constants, config or {}
        self.partitioners, self.wrap, self.tolerance = partitioners, wrap, tolerance
        self.exported = exported  # the name and the bytes of the lowered archive, if it is kept beside the program


def program(since=(0, 0), until=(99, 0)):
    """Registers a program that the generations from `since` to `until` can express."""

    def register(build):
        if since <= GENERATION <= until:
            PROGRAMS[build.__name__] = build
        return build

    return register


def uniform(*shape):
    return torch.rand(*shape) * 2 - 1


@program()
def add():
    class Add(nn.Module):
        def forward(self, x, y):
            return x + y

    return Program(Add(), [(uniform(2, 3), uniform(2, 3)), (uniform(2, 3), torch.full((2, 3), float("inf")))])


@program()
def linear():
    return Program(nn.Linear(7, 5), [(uniform(3, 7),) for _ in range(2)])


@program()
def mlp():
    layers = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4), nn.Sigmoid())
    return Program(layers, [(uniform(2, 8),) for _ in range(2)])


@program(until=(0, 3))
def mlp_inline():
    """Weights in the flatbuffer itself, as the first releases wrote them."""
    layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    return Program(layers, [(uniform(2, 8),) for _ in range(2)], config={"extract_constant_segment": False})


@program()
def conv():
    layers = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1, groups=8),
        nn.Hardtanh(0.0, 6.0),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(8 * 4 * 4, 10),
    )
    return Program(layers.eval(), [(uniform(1, 3, 16, 16),) for _ in range(2)])


@program()
def softmax():
    return Program(nn.Softmax(dim=1), [(5 * uniform(2, 6),), (100 * uniform(2, 6),)])


@program()
def integers():
    class Integers(nn.Module):
        def forward(self, x, table):
            picked = table.index_select(0, x % 4)
            return picked.sum(dim=1), x > 3, x * 2 - 1

    table = torch.arange(8).reshape(4, 2)
    return Program(Integers(), [(torch.tensor([7, 0, 2]), table), (torch.tensor([3, 5, 1]), -table)])


@program()
def embedding():
    class Embedding(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(32, 8)
            self.project = nn.Linear(8, 32, bias=False)

        def forward(self, tokens):
            return self.project(torch.tanh(self.table(tokens)))

    return Program(Embedding(), [(torch.randint(0, 32, (1, 5)),) for _ in range(2)])


@program()
def lstm():
    class Lstm(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(4, 6, batch_first=True)

        def forward(self, x):
            sequence, (hidden, cell) = self.lstm(x)
            return sequence, hidden, cell

    return Program(Lstm(), [(uniform(1, 3, 4),) for _ in range(2)])


@program()
def cond():
    class Cond(nn.Module):
        def forward(self, x):
            return torch.cond(x.sum() > 0, lambda x: x.sin() + 1, lambda x: x * x, [x])

    return Program(Cond(), [(torch.ones(2, 3),), (-torch.ones(2, 3),)])


@program()
def cond_wide():
    """Branches of several outputs, one with a layer, whose temporaries lie where the other branch's results are."""

    class Cond(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 6)

        def forward(self, x, y):
            def large(x, y):
                return self.layer(x) + y, x.sum(dim=1)

            def small(x, y):
                return x * y - 1, (x - y).amax(dim=1)

            first, second = torch.cond(x.abs().sum() > y.abs().sum(), large, small, [x, y])
            return first.relu(), second

    x, y = uniform(3, 6), uniform(3, 6)
    return Program(Cond(), [(3 * x, y), (x, 3 * y), (3 * x, y)])


@program(since=(0, 4))
def map_rows():
    from torch._higher_order_ops.map import map as map_

    class Rows(nn.Module):
        def forward(self, xs, y):
            return map_(lambda x, y: torch.tanh(x) * y + x.sum(), xs, y)

    return Program(Rows(), [(uniform(3, 2, 4), uniform(2, 4)) for _ in range(2)])


@program()
def dynamic():
    class Dynamic(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x):
            return torch.relu(self.layer(x)).reshape(-1)

    from executorch.exir.passes.sym_shape_eval_pass import ConstraintBasedSymShapeEvalPass

    shapes = {"x": {0: Dim("batch", min=1, max=8)}}
    config = {"sym_shape_eval_pass": ConstraintBasedSymShapeEvalPass()}  # the first releases planned for the example
    return Program(Dynamic(), [(uniform(n, 4),) for n in (3, 1, 8)], dynamic=shapes, config=config)


@program()
def counter():
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("total", torch.zeros(3))

        def forward(self, x):
            self.total.add_(x)
            return self.total * 2

    return Program(Counter(), [(uniform(3),) for _ in range(3)])


@program(since=(0, 7))
def counter_initial():
    """A buffer whose initial value is part of the program."""
    from executorch.exir.passes.init_mutable_pass import InitializedMutableBufferPass

    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("total", torch.tensor([10.0, 20.0, 30.0]))

        def forward(self, x):
            self.total.add_(x)
            return self.total * 2

    config = {"passes": [InitializedMutableBufferPass(["total"])], "emit_mutable_buffer_names": True}
    return Program(Counter(), [(uniform(3),) for _ in range(3)], config=config)


@program(since=(0, 7))
def external():
    """Weights in `external.ptd`."""
    layers = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 2))
    return Program(layers, [(uniform(2, 6),) for _ in range(2)], config={"external_constants": lambda node: "external"})


@program()
def unplanned():
    """Inputs and outputs that the caller has to provide memory for, and an output that is an input."""
    from executorch.exir.passes import MemoryPlanningPass

    class Pair(nn.Module):
        def forward(self, x, y):
            return x * y + 1, [x, torch.cat([x, y])]

    planning = {"alloc_graph_input": False, "alloc_graph_output": False}
    if GENERATION < (0, 4):
        planning["memory_planning_algo"] = "greedy"
    config = {"memory_planning_pass": MemoryPlanningPass(**planning)}
    return Program(Pair(), [(uniform(2, 3), uniform(2, 3)) for _ in range(2)], config=config)


@program()
def half():
    layers = nn.Sequential(nn.Linear(6, 4), nn.ReLU()).half()
    return Program(layers, [(uniform(2, 6).half(),) for _ in range(2)], tolerance=4e-3)


@program(since=(1, 0))
def bfloat16():
    layers = nn.Sequential(nn.Linear(6, 4), nn.ReLU()).bfloat16()
    return Program(layers, [(uniform(2, 6).bfloat16(),) for _ in range(2)], tolerance=3e-2)


@program(since=(1, 0))
def channels_last():
    """Dim orders that are not the identity. (0.7.0 writes such weights in the wrong order: its own runtime agrees with
    the file and not with PyTorch.)"""
    layers = nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU()).to(memory_format=torch.channels_last)
    return Program(layers, [(uniform(1, 2, 5, 5).to(memory_format=torch.channels_last),) for _ in range(2)])


@program(since=(0, 4))
def multi_method():
    encode = nn.Sequential(nn.Linear(6, 3), nn.Tanh())
    decode = nn.Linear(3, 6)
    decode.weight = nn.Parameter(encode[0].weight.detach().t().contiguous())
    x = uniform(2, 6)
    calls = [("encode", (x,)), ("decode", (encode(x).detach(),)), ("encode", (uniform(2, 6),))]
    constants = {"get_max_seq_len": 128, "get_scale": 0.5, "use_kv_cache": True}
    return Program({"encode": encode, "decode": decode}, calls, constants=constants)


@program(since=(0, 4))
def kv_cache():
    class Cache(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("keys", torch.zeros(1, 2, 8, 4))
            self.register_buffer("values", torch.zeros(1, 2, 8, 4))
            self.project = nn.Linear(8, 24)

        def forward(self, x, position):
            query, key, value = self.project(x).reshape(1, 1, 3, 2, 4).permute(2, 0, 3, 1, 4)
            self.keys[:, :, position] = key
            self.values[:, :, position] = value
            future = torch.arange(8) > position
            scores = (query @ self.keys.transpose(-1, -2)).masked_fill(future, float("-inf"))
            return (scores.softmax(-1) @ self.values).transpose(1, 2).reshape(1, 1, 8)

    return Program(Cache(), [(uniform(1, 1, 8), torch.tensor([step])) for step in range(4)])


@program(since=(0, 7))
def bundled():
    """A bundled program: the program and its test inputs in one file."""
    from executorch.devtools import BundledProgram
    from executorch.devtools.bundled_program.config import MethodTestCase, MethodTestSuite
    from executorch.devtools.bundled_program.serialize import serialize_from_bundled_program_to_flatbuffer

    layer = nn.Linear(4, 2)
    calls = [(uniform(1, 4),) for _ in range(2)]

    def wrap(lowered):
        tests = [MethodTestCase(inputs=call, expected_outputs=(layer(*call).detach(),)) for call in calls]
        program = BundledProgram(lowered, [MethodTestSuite("forward", tests)])
        return bytes(serialize_from_bundled_program_to_flatbuffer(program))

    return Program(layer, calls, wrap=wrap)


@program()
def xnnpack():
    """Delegated whole: without that backend it fails to load, and the error has to name it."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner

    layers = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 2))
    return Program(layers, [(uniform(1, 6),)], partitioners=[XnnpackPartitioner()])


def lower(built):
    """Exports and lowers with this generation's own compiler; (manager, bytes of the program file)."""
    first = {}
    for method, args in built.calls:
        first.setdefault(method, args)
    exported = {
        method: torch.export.export(copy.deepcopy(module), first[method], dynamic_shapes=built.dynamic)
        for method, module in built.methods.items()
    }
    config = exir.EdgeCompileConfig(_check_ir_validity=GENERATION >= (0, 7))
    edge = exir.to_edge(exported, constant_methods=built.constants, compile_config=config)
    for partitioner in built.partitioners:
        edge = edge.to_backend(partitioner)
    lowered = edge.to_executorch(exir.ExecutorchBackendConfig(**built.config))
    return lowered, built.wrap(lowered) if built.wrap else bytes(lowered.buffer)


@torch.no_grad()
def record(name, build, out):
    torch.manual_seed(20)
    built = build()
    modules = {method: copy.deepcopy(module) for method, module in built.methods.items()}
    lowered, data = lower(built)
    file = f"{name}.bpte" if built.wrap else f"{name}.pte"
    files = {file: data}
    if "external_constants" in built.config:
        (weights,) = lowered._tensor_data.values()
        files[f"{name}.ptd"] = bytes(weights)
    if built.exported:
        archive, content = built.exported
        files[archive] = content
    for written, content in files.items():
        if len(content) > SIZE_LIMIT:
            raise ValueError(f"{written} has {len(content)} bytes, above the corpus' limit of {SIZE_LIMIT}")
        (out / written).write_bytes(content)

    calls = []
    for method, args in built.calls:
        results = cases.eager(modules[method], args)
        calls.append({
            "method": method,
            "inputs": [cases.inline(leaf) for leaf in cases.leaves(args)],
            "outputs": [cases.inline(leaf) for leaf in cases.leaves(results)],
            "tolerance": built.tolerance,
        })
    for method, constant in (built.constants or {}).items():
        calls.append({"method": method, "inputs": [], "outputs": [cases.inline(constant)], "tolerance": 0})
    description = {"name": name, "program": file}
    if built.wrap:
        description["bundled"] = True
    if any(written.endswith(".ptd") for written in files):
        description["data"] = sorted(written for written in files if written.endswith(".ptd"))
    if built.partitioners:
        plans = lowered.executorch_program.execution_plan
        description["backends"] = sorted({delegate.id for plan in plans for delegate in plan.delegates})
    description["made_with"] = {"executorch": VERSION, "torch": torch.__version__.split("+")[0]}
    cases.dump({**description, "calls": calls}, out / f"{name}.json")
    return sum(map(len, files.values()))


def main(folder=VERSION, then=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "tests" / "corpus")
    parser.add_argument("--only", type=lambda names: names.split(","), default=None)
    args = parser.parse_args()
    out = args.out / folder
    out.mkdir(parents=True, exist_ok=True)
    failed = []
    for name, build in PROGRAMS.items():
        if args.only is None or name in args.only:
            try:
                print(f"{name}: {record(name, build, out)} bytes")
            except Exception as error:
                traceback.print_exc()
                failed.append(f"{name}: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
    if then is not None and args.only is None:
        then(out)
    if failed:
        print(f"executorch {VERSION} cannot make:", *failed, sep="\n  ")


if __name__ == "__main__":
    main()
