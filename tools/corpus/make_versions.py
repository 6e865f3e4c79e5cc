"""Makes programs that one version of the writers tells from another, in `tests/corpus/<environment>/`, and archives of
`torch.export.save` in `tests/archives/<environment>/`.

    python tools/corpus/make_versions.py                        everything that this Python's ExecuTorch can write
    python tools/corpus/make_versions.py --only pooled,images   some of it
    python tools/corpus/make_versions.py --out FOLDER           elsewhere: what `cargo xtask test writers` does

The environment is the version of ExecuTorch, and `-flatbuffers-<version>` where the Python package of that name is not the
one that the newest ExecuTorch comes with. The corpus has those of

    python3.11 -m venv old; old/bin/pip install executorch==0.6.0 torch==2.7.0
    python3.11 -m venv mid; mid/bin/pip install executorch==1.2.0 torch==2.11.0 flatbuffers==25.2.10
    python3.11 -m venv new; new/bin/pip install -r tools/requirements.txt

Files are described in `make.py`. Results are ExecuTorch's own where its runtime runs the program, as quantized results depend
on who rounds; eager PyTorch's elsewhere. Each is checked against the other within `LOOSE`.
"""

import importlib.metadata
import inspect
import os

import torch
from executorch import exir
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from torch import nn
from torch.export import Dim
from torch.nn import functional as F

import make  # isort: skip
import traces  # isort: skip
from make import GENERATION, Program, cases, uniform

PROGRAMS = {}
#: The version of `flatbuffers` that needs no mention.
NEWEST_FLATBUFFERS = "25.12.19"
FLATBUFFERS = importlib.metadata.version("flatbuffers")
ENVIRONMENT = make.VERSION if FLATBUFFERS == NEWEST_FLATBUFFERS else f"{make.VERSION}-flatbuffers-{FLATBUFFERS}"
#: Largest difference of a runtime's result from eager PyTorch's, relative to the largest element: a step or two of int8.
LOOSE = 0.1


def program(since=(0, 0)):
    """Registers a program that versions from `since` on can write."""

    def register(build):
        if since <= GENERATION:
            PROGRAMS[build.__name__] = build
        return build

    return register


class Function(nn.Module):
    """A function of an input and named layers."""

    def __init__(self, function, **layers):
        super().__init__()
        self.function = function
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, x):
        return self.function(self, x)


def delegated(model, *calls, **options):
    return Program(model.eval(), list(calls), partitioners=[XnnpackPartitioner()], **options)


def with_views():
    """Linear layers whose inputs are views."""

    def forward(self, x):
        return self.second(self.first(x.view(4, 16)).view(6, 8)).view(2, 2, 6)

    return Function(forward, first=nn.Linear(16, 12), second=nn.Linear(8, 4))


@program()
def portable():
    layers = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 6, 3, groups=2), nn.GELU(),
        nn.Flatten(), nn.Linear(24, 5), nn.LayerNorm(5), nn.Softmax(-1),
    )  # fmt: skip
    return Program(layers.eval(), [(uniform(1, 3, 8, 8),) for _ in range(2)])


@program()
def batches():
    layers = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    return Program(layers, [(uniform(n, 6),) for n in (3, 1, 8)], dynamic=({0: Dim("batch", min=1, max=8)},))


@program()
def pooled():
    """A view between delegates, as at the end of most classifiers of images."""

    def forward(self, x):
        x = F.hardswish(self.norm(self.convolution(x)))
        return self.classify(F.adaptive_avg_pool2d(x, 1).flatten(1))

    layers = {"convolution": nn.Conv2d(3, 4, 3, stride=2), "norm": nn.BatchNorm2d(4), "classify": nn.Linear(4, 5)}
    return delegated(Function(forward, **layers), (uniform(1, 3, 9, 9),))


@program()
def views():
    return delegated(with_views(), (uniform(2, 32),))


@program()
def mixed():
    """Delegates, views, and an operator that XNNPACK lacks."""

    def forward(self, x):
        x = torch.cumsum(self.first(x), 1).view(4, 6)
        return torch.cumsum(self.second(x).view(2, 16), 1)

    return delegated(Function(forward, first=nn.Linear(8, 12), second=nn.Linear(6, 8)), (uniform(2, 8),))


@program(since=(1, 5))
def copies():
    """A copy of an input, which the delegate has memory of its own for. Earlier partitioners leave copies out."""
    return delegated(Function(lambda self, x: x.clone()), (uniform(2, 3),))


@program()
def views_linear_only():
    """Only linear layers are delegated, so that views stand before and between them."""
    from executorch.backends.xnnpack.partition.config.gemm_configs import AddmmConfig, LinearConfig, MMConfig

    partitioner = XnnpackPartitioner(configs=[LinearConfig, AddmmConfig, MMConfig])
    return Program(with_views(), [(uniform(2, 32),)], partitioners=[partitioner])


def quantized(model, inputs, partitioner=None, **options):
    """int8 by PT2E."""
    try:
        from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
            XNNPACKQuantizer,
            get_symmetric_quantization_config,
        )
    except ImportError:
        from torch.ao.quantization.quantizer.xnnpack_quantizer import XNNPACKQuantizer, get_symmetric_quantization_config
    try:
        from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    except ImportError:
        from torch.ao.quantization.quantize_pt2e import convert_pt2e, prepare_pt2e
    quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True, **options))
    export = getattr(torch.export, "export_for_training", torch.export.export) if GENERATION < (1, 0) else torch.export.export
    prepared = prepare_pt2e(export(model.eval(), inputs).module(), quantizer)
    prepared(*inputs)
    return Program(convert_pt2e(prepared), [inputs], partitioners=[partitioner or XnnpackPartitioner()], tolerance=1e-5)


@program()
def int8():
    layers = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5))
    return quantized(layers, (uniform(1, 3, 6, 6),))


@program()
def rows():
    """Scales that are chosen for each row."""
    return quantized(nn.Sequential(nn.Linear(16, 12), nn.ReLU(), nn.Linear(12, 5)), (uniform(4, 16),), is_dynamic=True)


@program()
def rows_of_views():
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackDynamicallyQuantizedPartitioner

    return quantized(with_views(), (uniform(2, 32),), XnnpackDynamicallyQuantizedPartitioner(), is_dynamic=True)


def every_kind_of_row(width):
    """Calls with rows of which the choice of scale and zero point could go wrong. Column 0 is always zero."""
    rows, generator = 24, torch.Generator().manual_seed(51)

    def of(low, high):
        return low + (high - low) * torch.rand(rows, width, generator=generator)

    magnitudes = torch.logspace(-30, 30, rows).reshape(rows, 1)
    few = torch.randint(-256, 256, (rows, width), generator=generator)
    kinds = [
        *(of(-1, 1) for _ in range(4)),
        of(-1, 1) * magnitudes,
        of(0.5, 3), of(-3, -0.5), of(-0.01, 5), of(-5, 0.01),
        # Values between two integers, and zero points too.
        few / 2, few / 4, (few.clamp(-127, 127) + 0.5) * 2,
        torch.zeros(rows, width), torch.full((rows, width), -0.75) * magnitudes, torch.full((rows, width), 2.5) * magnitudes,
        # The inverse scale is nearly infinite; it is infinite; values are subnormal.
        of(-1, 1) * 1e-35, of(-1, 1) * 1e-37, of(-1, 1) * 1e-40, of(-1, 1) * 1.6e38,
    ]  # fmt: skip
    for kind in kinds:
        kind[:, 0] = 0
    return [(kind,) for kind in kinds]


@program(since=(1, 0))
def every_row():
    """The integers of rows times their scales, exactly: each weight is one, beside one that sets the scale of its channel."""
    width = 13
    layer = nn.Linear(width, width - 1, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.cat([torch.full((width - 1, 1), 127.0), torch.eye(width - 1)], dim=1))
    built = quantized(layer, every_kind_of_row(width)[0], is_dynamic=True)
    built.calls = [("forward", call) for call in every_kind_of_row(width)]
    built.tolerance = 0
    # PyTorch has one scale for all rows, and a smallest one.
    built.loose = float("inf")
    return built


@program(since=(1, 5))
def half_rows():
    """Rows of f16, the inverse scales of which stay in f32: XNNPACK computes fully connected layers of f16 in f32."""
    built = quantized(nn.Linear(14, 15).half(), (torch.randn(256, 14).half(),), is_dynamic=True)
    # Integers that differ by one change the result by a multiple of this.
    built.tolerance = 1e-3
    return built


@program(since=(1, 5))
def half_images():
    """Images of f16, the inverse scales of which are rounded to f16: XNNPACK quantizes them before the convolution."""
    from executorch.backends.xnnpack.partition.config.xnnpack_config import ConfigPrecisionType

    partitioner = XnnpackPartitioner(config_precisions=ConfigPrecisionType.DYNAMIC_QUANT, per_op_mode=True)
    built = quantized(nn.Conv2d(3, 4, 3).half(), (torch.randn(16, 3, 8, 8).half(),), partitioner, is_dynamic=True)
    built.tolerance = 1e-3
    return built


@program(since=(1, 0))
def images():
    """Scales that are chosen for each image of a batch."""
    from executorch.backends.xnnpack.partition.config.xnnpack_config import ConfigPrecisionType

    partitioner = XnnpackPartitioner(config_precisions=ConfigPrecisionType.DYNAMIC_QUANT, per_op_mode=True)
    scale = torch.tensor([0.2, 1.0, 7.0]).reshape(3, 1, 1, 1)
    return quantized(nn.Conv2d(3, 8, 3), (scale * uniform(3, 3, 6, 6),), partitioner, is_dynamic=True)


@program(since=(1, 0))
def int4():
    """Weights of 4 bits in groups, and scales that are chosen for each row."""
    from torchao.quantization import quantize_

    try:
        from torchao.quantization import Int8DynamicActivationIntxWeightConfig
        from torchao.quantization.granularity import PerGroup

        config = Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int4, weight_granularity=PerGroup(32))
    except ImportError:
        from torchao.quantization import int8_dynamic_activation_int4_weight

        config = int8_dynamic_activation_int4_weight(group_size=32)
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackDynamicallyQuantizedPartitioner
    from torchao.utils import unwrap_tensor_subclass

    model = nn.Sequential(nn.Linear(64, 32, bias=False), nn.ReLU(), nn.Linear(32, 8, bias=False))
    quantize_(model, config)
    model = unwrap_tensor_subclass(model) or model
    return Program(model, [(uniform(3, 64),)], partitioners=[XnnpackDynamicallyQuantizedPartitioner()], tolerance=1e-5)


def external_config():
    takes_functions = "Callable" in str(inspect.signature(exir.ExecutorchBackendConfig).parameters["external_constants"])
    return {"external_constants": (lambda node: "weights") if takes_functions else True}


@program(since=(0, 6))
def data():
    """Weights in a `.ptd` file."""
    layers = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 2))
    return Program(layers, [(uniform(2, 6),)], config=external_config())


@program(since=(0, 6))
def bundle():
    """A program for XNNPACK with test inputs, in one file."""
    from executorch.devtools import BundledProgram
    from executorch.devtools.bundled_program.config import MethodTestCase, MethodTestSuite
    from executorch.devtools.bundled_program.serialize import serialize_from_bundled_program_to_flatbuffer

    layer, call = nn.Linear(4, 2), (uniform(1, 4),)

    def wrap(lowered):
        tests = [MethodTestCase(inputs=call, expected_outputs=(layer(*call).detach(),))]
        return bytes(serialize_from_bundled_program_to_flatbuffer(BundledProgram(lowered, [MethodTestSuite("forward", tests)])))

    return delegated(layer, call, wrap=wrap)


def lower(built):
    exported = torch.export.export(built.model, built.calls[0][1], dynamic_shapes=built.dynamic)
    config = exir.EdgeCompileConfig(_check_ir_validity=False)
    if built.partitioners:
        edge = exir.to_edge_transform_and_lower(exported, partitioner=built.partitioners, compile_config=config)
    else:
        edge = exir.to_edge(exported, compile_config=config)
    lowered = edge.to_executorch(exir.ExecutorchBackendConfig(**built.config))
    built.lowered = bytes(lowered.buffer)
    return lowered, built.wrap(lowered) if built.wrap else built.lowered


def recorded_by_the_runtime(build):
    """A program that answers as ExecuTorch's own runtime does, for `make.record`, which asks it after lowering."""
    built = build()
    (model,) = built.methods.values()
    built.model = model
    if built.config:
        return built

    class Runtime:
        """Called as the module is, once the program is there. Its copy is made before."""

        def __deepcopy__(self, memo):
            return self

        def __call__(self, *args):
            from executorch.extension.pybindings import portable_lib

            expected = model(*args)
            program = portable_lib._load_for_executorch_from_buffer(built.lowered)
            (result,) = (output.clone() for output in program.forward(list(args)))
            difference = (result - expected).abs().max() / expected.abs().max()
            if difference > getattr(built, "loose", LOOSE):
                raise ValueError(f"ExecuTorch's runtime differs from PyTorch by {difference:.2f}")
            return result

    built.methods = {"forward": Runtime()}
    return built


def record(name, build, out):
    return RECORD(name, lambda: recorded_by_the_runtime(build), out)


def exported(out):
    """An archive for each of some programs, which a front end reads."""
    torch.manual_seed(20)
    out = out.parent.with_name("archives") / out.name
    out.mkdir(parents=True, exist_ok=True)
    for name in ("portable", "batches", "views"):
        built = PROGRAMS[name]()
        (model,) = built.methods.values()
        program = torch.export.export(model, built.calls[0][1], dynamic_shapes=built.dynamic)
        (out / f"{name}.pt2").write_bytes(traces.archive(program, name))
        calls = [
            {
                "method": "forward",
                "inputs": [cases.inline(leaf) for leaf in cases.leaves(args)],
                "outputs": [cases.inline(leaf) for leaf in cases.leaves(cases.eager(model, args))],
                "tolerance": built.tolerance,
            }
            for _, args in built.calls
        ]
        versions = {"executorch": make.VERSION, "torch": torch.__version__.split("+")[0]}
        files = {"forward": [f"{name}.pt2", f"{name}.pt2"]}
        cases.dump({"name": name, "exported": files, "made_with": versions, "calls": calls}, out / f"{name}.json")


RECORD = make.record

if __name__ == "__main__":
    os.environ.setdefault("FLATC_EXECUTABLE", "flatc")
    make.PROGRAMS, make.lower, make.record = PROGRAMS, lower, record
    make.main(ENVIRONMENT, then=exported)
