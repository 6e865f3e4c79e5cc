"""Makes the small exported programs in `tests/corpus/pt2/`, which the tests of the `.pt2` front end read and mutate.

    python tools/pt2_samples.py                    all of them
    python tools/pt2_samples.py --only cond,misc   some of them
    python tools/pt2_samples.py --old              one named after the torch that this Python has, with its older container

Run with the Python of `tools/requirements.txt`; for `--old`, with those of torch 2.3.0 and 2.8.0 (`tools/corpus/make.py`
says how they are made). Each sample shows one thing that programs saved by `torch.export.save`
do; `<name>_core.pt2` is the same program after `run_decompositions()`. Stack traces keep the names of files without
their folders, and the record of which pass made a node is left out, so that the files are small and the same wherever
this runs.
"""

import argparse
import collections
import warnings

import torch
import traces
from torch import nn
from torch.export import Dim

FOLDER = traces.ROOT / "tests" / "corpus" / "pt2"
SIZE_LIMIT = 60_000
SAMPLES = {}

Pair = collections.namedtuple("Pair", ["first", "second"])


def sample(core=False):
    """Registers a function that returns (module, args) and perhaps further arguments of `torch.export.export`."""

    def register(make):
        SAMPLES[make.__name__] = make, core
        return make

    return register


class KvCache(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("k", torch.zeros(1, 2, 8, 4))
        self.register_buffer("mask", torch.ones(8, 8).tril().bool(), persistent=False)

    def forward(self, position, x):
        self.k[:, :, position] = x
        scores = self.k @ x.transpose(-1, -2)
        return scores.masked_fill(~self.mask[position].T, float("-inf")), x


@sample(core=True)
def kv_cache():
    """A buffer changed in place, one that is not saved, an index with holes, an output that is an input."""
    return KvCache(), (torch.tensor([3]), torch.randn(1, 2, 1, 4))


class Cond(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: self.linear(x) + 1, lambda x: x - 1, (x,))


@sample(core=True)
def cond():
    """Graphs within a graph."""
    return Cond(), (torch.randn(2, 3),)


class Loop(nn.Module):
    def forward(self, x):
        from torch._higher_order_ops.while_loop import while_loop

        return while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (torch.tensor(0), x))


@sample()
def while_loop():
    """A loop: an empty list, a graph that returns one tensor, and a tensor constant."""
    return Loop(), (torch.randn(2),)


class Nested(nn.Module):
    def forward(self, features, scale, pair, *, mode="sum", bias=None):
        total = features["a"] + features["b"][0] * scale
        if mode == "sum" and bias is not None:
            total = total + bias
        return {"total": total, "pair": Pair(pair.second, [pair.first, 7]), "none": None}


@sample()
def nested():
    """Dictionaries, lists and named tuples of inputs and outputs, with literals among them."""
    torch.utils._pytree._register_namedtuple(Pair, serialized_type_name="samples.Pair")
    x = torch.arange(4.0)
    features = collections.OrderedDict(a=x, b=[x.double(), (x.half(),)])
    args = (features, float("nan"), Pair(x.to(torch.bfloat16), torch.tensor(True)))
    return Nested(), args, {"kwargs": {"mode": "sum", "bias": torch.ones(4, dtype=torch.int64)}}


class Keywords(nn.Module):
    def forward(self, image, *, batch, scale=1.0):
        total = image + batch["boxes"][0] * batch["boxes"][1] * scale
        return {"logits": total, "stats": {"mean": total.mean(), "parts": (~batch["mask"], [total.abs()])}}


@sample()
def keywords():
    """Keyword arguments, of which one is nested and one fixed, and a dictionary of outputs in dictionaries and lists."""
    x = torch.arange(4.0)
    batch = {"mask": torch.tensor([True, False]), "boxes": [x + 1, x - 2]}
    return Keywords(), (x,), {"kwargs": {"batch": batch, "scale": 0.5}}


class Dynamic(nn.Module):
    def forward(self, x, y):
        wide = torch.cat([x, y])[::2]
        ones = torch.ones(wide.shape[0] * 2) * (0.5 * x.shape[0])
        count = (x > 0).sum().item()
        torch._check(count >= 0)
        return wide, ones, torch.zeros(count + 1), x.shape[0] + 1


@sample(core=True)
def dynamic():
    """Sizes known only when the program runs: from inputs, derived from others, and from data."""
    n = Dim("n", min=2, max=64)
    return Dynamic(), (torch.randn(4), torch.randn(8)), {"dynamic_shapes": ({0: n}, {0: 2 * n})}


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(6, 4)
        self.head = nn.Linear(4, 6, bias=False)
        self.head.weight = self.embedding.weight
        base = torch.arange(24.0)
        self.register_buffer("rows", base[:12].view(3, 4))
        self.register_buffer("columns", base[12:].view(3, 4).T)
        self.conv = nn.Conv2d(2, 3, 3).to(memory_format=torch.channels_last)
        self.scalar = nn.Parameter(torch.tensor(2.0))
        self.register_buffer("empty", torch.zeros(0, 3))

    def forward(self, tokens, image):
        hidden = self.embedding(tokens) @ self.columns @ self.rows
        return self.head(hidden) * self.scalar + self.empty.sum(), self.conv(image)


@sample()
def tied():
    """Weights that share their storage: tied, sliced, transposed, and in channels-last order."""
    return Tied(), (torch.tensor([[1, 2]]), torch.randn(1, 2, 4, 4).to(memory_format=torch.channels_last))


class Misc(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.tensor([0.5, float("inf")], dtype=torch.float16))
        self.lookup = torch.tensor([[1, 2], [3, 4]], dtype=torch.uint8)

    def forward(self, x, state):
        state.add_(1)
        a, _ = x.split([1, 3], -1)
        top, _ = torch.topk(x, 2)
        clamped = x.clamp(max=float("inf")).to(torch.bfloat16)
        padded = torch.nn.functional.pad(x, [1, 1], value=-1.5)
        image = torch.empty(1, 2, 2, 2, memory_format=torch.channels_last).zero_()
        picked = x[torch.tensor([0, 1]), :, None]
        return a * self.scale[0], top, clamped, padded, image, picked, torch.einsum("ij,kj->ik", x, x), self.lookup + 1


@sample(core=True)
def misc():
    """Kinds of arguments: lists, nothing, types, devices, memory formats, text, infinity; a changed input."""
    return Misc(), (torch.randn(2, 4), torch.zeros(3))


@sample()
def int8():
    """Quantized with PT2E: integer weights as buffers, scales per channel, operators of `quantized_decomposed`."""
    import torchao.quantization.pt2e.quantize_pt2e as pt2e
    from executorch.backends.xnnpack.quantizer import xnnpack_quantizer as xnnpack

    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 2)).eval()
    args = (torch.randn(1, 1, 4, 4),)
    quantizer = xnnpack.XNNPACKQuantizer()
    quantizer.set_global(xnnpack.get_symmetric_quantization_config(is_per_channel=True))
    prepared = pt2e.prepare_pt2e(torch.export.export(model, args).module(), quantizer)
    prepared(*args)
    return pt2e.convert_pt2e(prepared), args


@torch.library.custom_op("example::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@twice.register_fake
def _(x):
    return torch.empty_like(x)


class Custom(nn.Module):
    def forward(self, x):
        return twice(x) + 1


@torch.library.custom_op("example::scaled_and_shifted", mutates_args=())
def scaled_and_shifted(x: torch.Tensor, by: float) -> tuple[torch.Tensor, torch.Tensor]:
    return x * by, x + by


@scaled_and_shifted.register_fake
def _(x, by):
    return torch.empty_like(x), torch.empty_like(x)


class CustomResults(nn.Module):
    def forward(self, x):
        scaled, shifted = scaled_and_shifted(x, 3.0)
        return scaled - shifted, shifted


@sample()
def custom_operator():
    """An operator of the user's own, which no table knows."""
    return Custom(), (torch.randn(4),)


@sample()
def custom_results():
    """An operator of the user's own with several results."""
    return CustomResults(), (torch.arange(4.0),)


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.register_buffer("offset", torch.ones(2), persistent=False)

    def forward(self, x):
        return self.linear(x) + self.offset


def old():
    """What every version of torch can export."""
    return Plain().eval(), (torch.ones(1, 2),)


def weights_in_4_bits():
    from torchao.quantization import Int8DynamicActivationIntxWeightConfig, quantize_
    from torchao.quantization.granularity import PerGroup

    model = nn.Sequential(nn.Linear(64, 8)).eval()
    quantize_(model, Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int4, weight_granularity=PerGroup(32)))
    return model


@sample()
def int4_subclass():
    """Quantized with torchao, exported as it is: the weight is a tensor subclass, saved as a pickle."""
    return weights_in_4_bits(), (torch.randn(1, 64),)


@sample()
def int4():
    """Quantized with torchao, unwrapped before export: ordinary weights."""
    from torchao.utils import unwrap_tensor_subclass

    return unwrap_tensor_subclass(weights_in_4_bits()), (torch.randn(1, 64),)


def save(name, program):
    data = traces.archive(program, name, extra_files={"note.txt": name} if name == "misc" else None)
    assert len(data) <= SIZE_LIMIT, f"{name} has {len(data)} bytes"
    (FOLDER / f"{name}.pt2").write_bytes(data)
    print(f"{name:16} {len(data):6} bytes")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", help="names of samples, separated by commas")
    parser.add_argument("--old", action="store_true", help="the sample of an older torch")
    arguments = parser.parse_args()
    only = arguments.only
    warnings.filterwarnings("ignore")
    FOLDER.mkdir(parents=True, exist_ok=True)
    if arguments.old:
        torch.manual_seed(0)
        save("torch_" + ".".join(torch.__version__.split(".")[:2]), torch.export.export(*old()))
        return
    for name in only.split(",") if only else SAMPLES:
        make, core = SAMPLES[name]
        torch.manual_seed(0)
        module, args, *more = make()
        program = torch.export.export(module.eval() if name != "int8" else module, args, **(more[0] if more else {}))
        save(name, program)
        if core:
            save(f"{name}_core", program.run_decompositions())


if __name__ == "__main__":
    main()
