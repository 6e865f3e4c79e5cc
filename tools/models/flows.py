"""PyTorch's own flows on an exported model, for Rushlight's to be compared with: programs of the executorch wheel, and
quantized networks in eager PyTorch.

`lower` writes `model.pte` (portable) and `xnnpack.pte` (for the XNNPACK delegate) to the folder of a model, and what became
of them to `lowered.json`. `quantize` writes `quantized.json`: for each scheme the signal-to-noise of the outputs, in dB. It
calibrates with the recorded calls and measures on them, and takes the worst output, over all calls; a scheme without noise
has `null`. Beside it is the number of layers that the flow quantizes. What a flow cannot do has its error instead.
"""

import copy
import json
import math

import torch


def first_line(error):
    reason = next((line for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {reason}"


def lower(folder):
    """Compiles the exported program of a folder in portable form and for XNNPACK."""
    import executorch.kernels.quantized  # noqa: F401  registers the operators of quantized models
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import EdgeCompileConfig, to_edge, to_edge_transform_and_lower

    config = EdgeCompileConfig(_check_ir_validity=False)
    forms = {
        "model.pte": lambda exported: to_edge(exported, compile_config=config),
        "xnnpack.pte": lambda exported: to_edge_transform_and_lower(
            exported, partitioner=[XnnpackPartitioner()], compile_config=config
        ),
    }
    made = {}
    for file, form in forms.items():
        try:
            with torch.no_grad():
                program = form(torch.export.load(folder / "forward.pt2")).to_executorch()
            (folder / file).write_bytes(program.buffer)
            plan = program.executorch_program.execution_plan[0]
            made[file] = {"delegates": len(plan.delegates)}
        except Exception as error:
            made[file] = {"error": first_line(error)}
    (folder / "lowered.json").write_text(json.dumps(made, indent=1) + "\n")


def signal_to_noise(module, calls, expected):
    """The worst of the outputs' ratios over all calls, in dB; infinite without noise."""
    import cases

    signal, noise = {}, {}
    for args, wanted in zip(calls, expected, strict=True):
        for position, (got, want) in enumerate(zip(cases.leaves(module(*args)), wanted, strict=True)):
            if isinstance(want, torch.Tensor) and want.is_floating_point():
                signal[position] = signal.get(position, 0) + want.double().square().sum().item()
                noise[position] = noise.get(position, 0) + (got - want).double().square().sum().item()
    ratios = [signal[position] / noise[position] if noise[position] else math.inf for position in signal]
    worst = min(ratios, default=math.inf)
    return -math.inf if worst == 0 else 10 * math.log10(worst) if math.isfinite(worst) else worst


def rounding(folder, module, calls):
    """Writes to `rounding.json` how far eager PyTorch in f32 is from itself in f64, relative to the largest element of an output."""
    import cases

    def widened(value):
        return value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value

    error = 0.0
    with torch.no_grad():
        wide = copy.deepcopy(module).double()
        for args in calls:
            exact = cases.leaves(wide(*torch.utils._pytree.tree_map(widened, args)))
            for got, want in zip(cases.leaves(module(*args)), exact, strict=True):
                if isinstance(want, torch.Tensor) and want.is_floating_point() and want.numel():
                    error = max(error, ((got - want).abs().max() / want.abs().max()).item())
    (folder / "rounding.json").write_text(json.dumps({"error": error}) + "\n")


def through_pt2e(folder, calls, is_dynamic):
    from executorch.backends.xnnpack.quantizer import xnnpack_quantizer
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    config = xnnpack_quantizer.get_symmetric_quantization_config(is_per_channel=True, is_dynamic=is_dynamic)
    quantizer = xnnpack_quantizer.XNNPACKQuantizer().set_global(config)
    exported = torch.export.load(folder / "forward.pt2").module(check_guards=False)
    prepared = prepare_pt2e(exported, quantizer)
    for args in calls:
        prepared(*args)
    converted = convert_pt2e(prepared)
    # Only weights have scales by channel.
    layers = sum("dequantize_per_channel" in str(node.target) for node in converted.graph.nodes)
    return converted, layers


def through_torchao(module, scheme):
    """A copy whose linear layers torchao has quantized, and their number: those that groups of 32 divide, where weights are in
    groups.
    """
    from torch import nn
    from torchao.quantization import Int8DynamicActivationIntxWeightConfig, IntxWeightOnlyConfig, quantize_
    from torchao.quantization.granularity import PerAxis, PerGroup

    config = {
        "8da4w": lambda: Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int4, weight_granularity=PerGroup(32)),
        "int4": lambda: IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(32)),
        "int8-weight": lambda: IntxWeightOnlyConfig(weight_dtype=torch.int8, granularity=PerAxis(0)),
    }[scheme]()
    grouped = scheme != "int8-weight"
    module = copy.deepcopy(module)
    chosen = [
        name for name, part in module.named_modules()
        if isinstance(part, nn.Linear) and (not grouped or part.in_features % 32 == 0)
    ]  # fmt: skip
    if not chosen:
        raise ValueError("no linear layer to quantize")
    quantize_(module, config, filter_fn=lambda part, name: name in chosen)
    return module, len(chosen)


FLOWS = {
    "int8": lambda folder, module, calls: through_pt2e(folder, calls, False),
    "int8-dynamic": lambda folder, module, calls: through_pt2e(folder, calls, True),
    **{
        scheme: lambda folder, module, calls, scheme=scheme: through_torchao(module, scheme)
        for scheme in ("8da4w", "int4", "int8-weight")
    },
}


def quantize(folder, module, calls):
    """Quantizes a module in all schemes and measures."""
    import cases

    expected = [cases.leaves(cases.eager(module, args)) for args in calls]
    made = {}
    for scheme, flow in FLOWS.items():
        try:
            with torch.no_grad():
                quantized, layers = flow(folder, module, calls)
                ratio = signal_to_noise(quantized, calls, expected)
            made[scheme] = {"snr": ratio if math.isfinite(ratio) else None, "layers": layers}
        except Exception as error:
            made[scheme] = {"error": first_line(error)}
    (folder / "quantized.json").write_text(json.dumps(made, indent=1) + "\n")
