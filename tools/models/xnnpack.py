"""Well-known models that ExecuTorch lowers for its XNNPACK delegate, with what the wheel's own runtime answers.

    python tools/models/xnnpack.py [OUT]                       what is missing (OUT is `target/xnnpack-models` by default)
    python tools/models/xnnpack.py --only vit_b_16 --only edsr --dtypes float16
    python tools/models/xnnpack.py --list

Architectures are those of ExecuTorch's own examples, from torchvision, timm, torchsr and transformers; Wav2Letter, whose
package has no build for this version of torch, is written out here after Collobert, Puhrsch and Synnaeve (2016). Weights
are random, from a fixed seed. `OUT/<name>-<dtype>/` gets `model.pte`, and `cases.json` with its `.npz` in the form that
tools/cases.py documents, except that results are those of XNNPACK. A model is made in a process of its own, one at a
time, which takes up to four gigabytes.

The tolerance is relative to each output's scale: twice XNNPACK's own error against float32 in PyTorch, and at least that
of all models in float32, four roundings in float16. XNNPACK rounds every partial sum to 16 bits on this kind of machine.
Those in int8 are quantized by PT2E with ExecuTorch's XNNPACKQuantizer, weights by channel, and both sides round at the same
places, so that results part only where a number lies on the edge between two levels; random weights make more of it from
layer to layer. Where the wheel's runtime refuses a quantized program that it lowered itself (swin_t), results are those of the
quantized module in PyTorch. Those with dynamic activations are compared with what torchao made, in PyTorch. Where XNNPACK's answer has
nothing to do with the model (transformers in float16, which it gives as nearly zero), the results are PyTorch's in
float32, and the tolerance comes from PyTorch's own error in that type.
"""

import argparse
import hashlib
import importlib.metadata
import json
import multiprocessing
import shutil
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE.parent))

SEED = 20
DTYPES = ("float32", "float16", "int8", "8da8w", "8da4w", "8da4w_groups")
# Linear layers with activations of eight bits whose scales are chosen when they run, made by torchao.
DYNAMIC = ("8da8w", "8da4w", "8da4w_groups")
# Those that are quantized too: others take the wheel long.
QUANTIZED = ("mobilenet_v2", "mobilenet_v3_small", "resnet18", "edsr", "swin_t")
PACKAGES = ("executorch", "torch", "torchvision", "timm", "torchsr", "transformers")
# From here on XNNPACK's results say nothing of the model's.
WRONG = 0.99
LEAST_TOLERANCE = {"float32": 1e-4, "float16": 4 * 2**-11, "int8": 2e-2} | dict.fromkeys(DYNAMIC, 1e-3)


def torchvision(name, family="models", **options):
    import torchvision.models as architectures

    holder = architectures if family == "models" else getattr(architectures, family)
    return getattr(holder, name)(weights=None, **options)


def picture(side):
    import torch

    return (torch.randn(1, 3, side, side),)


def deeplab():
    return torchvision("deeplabv3_resnet50", "segmentation", weights_backbone=None)


def inception_v4():
    import timm

    return timm.create_model("inception_v4", pretrained=False)


def edsr():
    from torchsr.models import edsr_r16f64

    return edsr_r16f64(2, False)


def mobilebert():
    from transformers import MobileBertConfig, MobileBertModel

    # The defaults are the published model's, with attention as ExecuTorch's example has it: spelled out.
    return MobileBertModel(MobileBertConfig(return_dict=False, attn_implementation="eager"))


def words():
    import torch

    return (torch.randint(0, 30522, (1, 8)),)


def wav2letter():
    from torch import nn

    def layer(inputs, outputs, window, stride=1, padding=0):
        return [nn.Conv1d(inputs, outputs, window, stride, padding), nn.ReLU()]

    middle = [part for _ in range(7) for part in layer(250, 250, 7, padding=3)]
    return nn.Sequential(
        *layer(1, 250, 250, 160, 45), *layer(250, 250, 48, 2, 23), *middle,
        *layer(250, 2000, 32, padding=16), *layer(2000, 2000, 1), *layer(2000, 4096, 1), nn.LogSoftmax(1),
    )  # fmt: skip


def sound():
    import torch

    return (torch.randn(10, 1, 700),)


def feed_forward():
    from torch import nn

    return nn.Sequential(nn.Linear(128, 320), nn.GELU(), nn.Linear(320, 96), nn.ReLU(), nn.Linear(96, 40))


def rows():
    import torch

    # Rows of different sizes, which have scales of their own.
    return (torch.randn(1, 9, 128) * torch.linspace(0.2, 3, 9)[:, None],)


MODELS = {
    name: (lambda name=name: torchvision(name), lambda: picture(224))
    for name in (
        "mobilenet_v2", "mobilenet_v3_small", "mobilenet_v3_large", "resnet18", "resnet50", "swin_t", "vit_b_16",
    )
}  # fmt: skip
MODELS |= {
    "inception_v3": (lambda: torchvision("inception_v3", init_weights=False), lambda: picture(224)),
    "inception_v4": (inception_v4, lambda: picture(299)),
    "deeplab_v3": (deeplab, lambda: picture(224)),
    "edsr": (edsr, lambda: picture(224)),
    "mobilebert": (mobilebert, words),
    "wav2letter": (wav2letter, sound),
    "feed_forward": (feed_forward, rows),
}


def versions():
    return {package: importlib.metadata.version(package) for package in PACKAGES}


def fingerprint():
    """A hash of everything that the generated files depend on."""
    digest = hashlib.sha256(json.dumps(versions()).encode())
    for source in (Path(__file__), HERE.parent / "cases.py"):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def is_current(folder):
    recorded = folder / "cases.json"
    return recorded.exists() and json.loads(recorded.read_text()).get("source") == fingerprint()


def settle(module, args):
    """Gives batch norms the statistics of random inputs: with the initial ones, activations of deep models vanish.

    Matrices that are zero, such as the head of torchvision's vision transformers, become random: a result of zeros says
    nothing.
    """
    import torch
    from torch import nn

    for parameter in module.parameters():
        if parameter.dim() > 1 and not parameter.any():
            nn.init.normal_(parameter, std=0.02)

    norms = [part for part in module.modules() if isinstance(part, nn.modules.batchnorm._BatchNorm)]
    module.eval()
    for norm in norms:
        norm.train()
        norm.momentum = None
    if norms:
        # Two of each, for norms of a single position.
        module(*(torch.cat([arg, torch.randn_like(arg)]) for arg in args))
    module.eval()


def dtypes_of(name, wanted):
    if name == "feed_forward":
        return [dtype for dtype in wanted if dtype in DYNAMIC]
    return [dtype for dtype in wanted if dtype not in ("int8", *DYNAMIC) or name in QUANTIZED and dtype == "int8"]


def quantized(module, args):
    """The module as PT2E's quantized operators."""
    import torch
    from executorch.backends.xnnpack.quantizer import xnnpack_quantizer
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    config = xnnpack_quantizer.get_symmetric_quantization_config(is_per_channel=True)
    quantizer = xnnpack_quantizer.XNNPACKQuantizer().set_global(config)
    prepared = prepare_pt2e(torch.export.export(module, args).module(check_guards=False), quantizer)
    prepared(*args)
    return convert_pt2e(prepared)


def with_dynamic_activations(module, scheme):
    """A copy whose linear layers torchao has quantized."""
    import copy

    import torch
    from torchao.quantization import Int8DynamicActivationIntxWeightConfig, quantize_
    from torchao.quantization.granularity import PerAxis, PerGroup
    from torchao.utils import unwrap_tensor_subclass

    granularity = PerGroup(32) if scheme.endswith("_groups") else PerAxis(0)
    weights = torch.int8 if scheme == "8da8w" else torch.int4
    config = Int8DynamicActivationIntxWeightConfig(weight_dtype=weights, weight_granularity=granularity)
    module = copy.deepcopy(module)
    quantize_(module, config)
    return unwrap_tensor_subclass(module)


def generate(name, dtypes, out):
    """Writes the folders of a model; runs in a process of its own."""
    import cases
    import torch
    from torch.utils import _pytree as pytree

    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    build, example = MODELS[name]
    module, args = build().requires_grad_(False), example()
    settle(module, args)
    want = cases.leaves(module(*args))
    for dtype in dtypes:
        if dtype == "int8":
            write(f"{name}-{dtype}", quantized(module.float(), args), args, want, dtype, out)
            continue
        if dtype in DYNAMIC:
            made = with_dynamic_activations(module, dtype)
            write(f"{name}-{dtype}", made, args, cases.leaves(made(*args)), dtype, out)
            continue
        wanted = getattr(torch, dtype)
        cast = pytree.tree_map(lambda x: x.to(wanted) if x.is_floating_point() else x, args)
        write(f"{name}-{dtype}", module.to(wanted), cast, want, dtype, out)


def largest_error(want, got):
    """Relative to each output's largest element."""
    pairs = [(w.double(), g.double()) for w, g in zip(want, got, strict=True)]
    return max(((w - g).abs().max() / w.abs().max()).item() for w, g in pairs)


def write(name, module, args, want, dtype, out):
    import cases
    import torch
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import (
        XnnpackDynamicallyQuantizedPartitioner,
        XnnpackPartitioner,
    )
    from executorch.exir import to_edge_transform_and_lower
    from executorch.extension.pybindings import portable_lib

    start = time.monotonic()
    with torch.no_grad():
        exported = torch.export.export(module, args)
        partitioners = [XnnpackDynamicallyQuantizedPartitioner()] if dtype in DYNAMIC else []
        partitioners.append(XnnpackPartitioner())
        program = to_edge_transform_and_lower(exported, partitioner=partitioners).to_executorch()
    plan = program.executorch_program.execution_plan[0]
    instructions = [type(instruction.instr_args).__name__ for chain in plan.chains for instruction in chain.instructions]
    delegated = instructions.count("DelegateCall")
    if not delegated:
        raise RuntimeError("the partitioner took nothing")
    folder = out / f".{name}.new"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "model.pte").write_bytes(program.buffer)
    try:
        results = portable_lib._load_for_executorch(str(folder / "model.pte")).forward(args)
    except RuntimeError as error:
        # The wheel lowers int8 Swin Transformers to a payload without its output, which its own runtime does not load.
        if dtype != "int8":
            raise
        print(f"{name}: ExecuTorch's runtime refuses the program ({error}); compared with PyTorch instead", flush=True)
        with torch.no_grad():
            results = cases.leaves(module(*args))

    if not cases.say_something(want):
        raise RuntimeError("all results are zero")
    error = own = largest_error(want, cases.leaves(results))
    if error >= WRONG:
        with torch.no_grad():
            own = largest_error(want, cases.leaves(module(*args)))
        results = [w.to(r.dtype) for w, r in zip(want, cases.leaves(results), strict=True)]
    call = {
        "method": "forward",
        "inputs": cases.filed(cases.leaves(args), "arg", folder / "inputs_0.npz"),
        "outputs": cases.filed(cases.leaves(results), "out", folder / "expected_0.npz"),
        "tolerance": max(LEAST_TOLERANCE[dtype], 2 * own),
    }
    description = {
        "name": name,
        "program": "model.pte",
        "backends": ["XnnpackBackend"],
        "delegate_calls": delegated,
        "instructions": len(instructions),
        "xnnpack_error": error,
        "source": fingerprint(),
        "made_with": versions(),
        "calls": [call],
    }
    cases.dump(description, folder / "cases.json")
    shutil.rmtree(out / name, ignore_errors=True)
    folder.rename(out / name)
    figures = f"{delegated} delegate calls of {len(instructions)} instructions, XNNPACK is off by {error:.1e}"
    print(f"{name}: {figures}, {time.monotonic() - start:.1f} s", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, nargs="?", default=ROOT / "target" / "xnnpack-models")
    parser.add_argument("--only", action="append", choices=MODELS, help="a model; may be given again")
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, default=DTYPES)
    parser.add_argument("--force", action="store_true", help="make again what is up to date")
    parser.add_argument("--list", action="store_true", help="print the names and stop")
    args = parser.parse_args()
    names = args.only or list(MODELS)
    if args.list:
        print(*(f"{name}-{dtype}" for name in names for dtype in dtypes_of(name, args.dtypes)), sep="\n")
        return
    failed = []
    for name in names:
        wanted = dtypes_of(name, args.dtypes)
        stale = [dtype for dtype in wanted if args.force or not is_current(args.out / f"{name}-{dtype}")]
        if not stale:
            continue
        process = multiprocessing.get_context("spawn").Process(target=generate, args=(name, stale, args.out))
        process.start()
        process.join()
        if process.exitcode:
            failed.append(name)
    if failed:
        print("failed:", *failed, sep="\n  ")
        sys.exit(1)


if __name__ == "__main__":
    main()
