"""Networks that PyTorch's quantizers made integers of, one pattern each: results within a level of those of the quantized
graph in eager PyTorch.

A value on the edge between two levels may fall to either side. One level of 255 is about 1/127 of an output's scale, and
more where the calls have not reached the ends of the range that was observed.
"""

import torch
import torch.ao.quantization.fx._decomposed  # noqa: F401 the operators of integers
from dtypes import quantizer
from registry import Model, Module, model, uniform
from torch import nn

LEVEL = 1e-2


def rounded(x, scale=0.02, zero_point=3):
    """The numbers that int8 stands for."""
    parameters = scale, zero_point, -128, 127, torch.int8
    integers = torch.ops.quantized_decomposed.quantize_per_tensor(x, *parameters)
    return torch.ops.quantized_decomposed.dequantize_per_tensor(integers, *parameters)


def rounded_as_seen(x):
    """The same with a scale that is chosen when the numbers are seen."""
    ops, form = torch.ops.quantized_decomposed, (-128, 127, torch.int8)
    scale, zero_point = ops.choose_qparams.tensor(x, -128, 127, 2**-12, torch.int8)
    integers = ops.quantize_per_tensor.tensor(x, scale, zero_point, *form)
    return ops.dequantize_per_tensor.tensor(integers, scale, zero_point, *form)


class Integers(nn.Module):
    """Weights of int8, with one scale or with one for each index of an axis."""

    def __init__(self, weight, axis=None):
        super().__init__()
        dims = [dim for dim in range(weight.dim()) if dim != axis]
        scales = weight.detach().abs().amax(dims, keepdim=True) / 127
        self.axis, self.scale = axis, scales.max().item()
        self.register_buffer("integers", (weight.detach() / scales).round().to(torch.int8))
        self.register_buffer("scales", scales.flatten())
        self.register_buffer("zeros", torch.zeros(scales.numel(), dtype=torch.int64))

    def forward(self):
        ops, form = torch.ops.quantized_decomposed, (-127, 127, torch.int8)
        if self.axis is None:
            return ops.dequantize_per_tensor(self.integers, self.scale, 0, *form)
        return ops.dequantize_per_channel(self.integers, self.scales, self.zeros, self.axis, *form)


def static(network, *shapes, levels=1, calls=2):
    """Static int8, weights by channel."""
    inputs = [tuple(uniform(*shape) for shape in shapes) for _ in range(calls)]
    return Model(network, inputs, tolerance=levels * LEVEL, quantize=quantizer(is_per_channel=True))


@model
def quantized_windows():
    """Convolutions of pictures and lines in all their forms, each as a branch of its own."""

    class Windows(nn.Module):
        def __init__(self):
            super().__init__()
            self.branches = nn.ModuleList([
                nn.Conv2d(3, 20, 7, stride=2, padding=3), nn.Conv2d(3, 8, 3, padding=1, bias=False),
                nn.Conv2d(3, 6, 3, padding=2, dilation=2), nn.Conv2d(3, 5, 1), nn.Conv2d(3, 9, 1, stride=2),
            ])  # fmt: skip

        def forward(self, x):
            return [branch(x) for branch in self.branches]

    return static(Windows(), (2, 3, 19, 23))


@model
def quantized_depthwise():
    """Depthwise and grouped convolutions, of windows and steps of several sizes."""

    class Depthwise(nn.Module):
        def __init__(self):
            super().__init__()
            self.branches = nn.ModuleList([
                nn.Conv2d(24, 24, 3, padding=1, groups=24), nn.Conv2d(24, 24, 3, stride=2, padding=1, groups=24),
                nn.Conv2d(24, 24, 5, padding=2, groups=24), nn.Conv2d(24, 24, 5, stride=2, padding=2, groups=24),
                nn.Conv2d(24, 12, 3, padding=1, groups=3), nn.Conv2d(24, 48, 3, groups=24),
            ])  # fmt: skip

        def forward(self, x):
            return [branch(x) for branch in self.branches]

    return static(Depthwise(), (1, 24, 13, 17))


@model
def quantized_transposed():
    """Transposed convolutions in all their forms. Weights have a scale for each output channel of a group, or one."""

    class Transposed(nn.Module):
        def __init__(self):
            super().__init__()
            forms = [
                dict(out_channels=8, kernel_size=3, stride=2, padding=1, output_padding=1),
                dict(out_channels=20, kernel_size=2, stride=2),
                dict(out_channels=9, kernel_size=(3, 5), stride=(3, 1), dilation=(2, 1), groups=3, bias=False),
                dict(out_channels=4, kernel_size=1, stride=2, groups=2, output_padding=1),
                dict(out_channels=6, kernel_size=4, stride=2, padding=1, groups=6),
            ]
            self.branches = nn.ModuleList([nn.ConvTranspose2d(6, **form) for form in forms])
            self.lines = nn.ConvTranspose1d(6, 5, 5, stride=3, padding=2)
            layers = [*self.branches, self.lines]
            self.weights = nn.ModuleList([Integers(layer.weight, axis) for layer, axis in zip(layers, [1, None] * 3)])
            for layer in layers:
                layer.weight = None

        def forward(self, x):
            x = rounded(x, 1 / 100)
            results = []
            for layer, weight in zip(self.branches, self.weights):
                geometry = layer.stride, layer.padding, layer.output_padding, layer.groups, layer.dilation
                results.append(nn.functional.conv_transpose2d(x, weight(), layer.bias, *geometry))
            line = nn.functional.conv_transpose1d(x[:, :, 0], self.weights[-1](), self.lines.bias, 3, 2)
            first, *others = results
            return [first, rounded(first.relu(), 1 / 200, -128), rounded(line, 1 / 200), *(rounded(y, 1 / 200) for y in others)]

    # A level is 1/200, and results are below 0.5.
    return Model(Transposed(), [(uniform(2, 6, 5, 7),) for _ in range(2)], tolerance=1.3 * LEVEL)


@model
def quantized_lines():
    """Convolutions in one dimension, and a product after them."""
    network = nn.Sequential(
        nn.Conv1d(5, 16, 3, padding=1), nn.ReLU(), nn.Conv1d(16, 8, 5, stride=2), nn.Flatten(), nn.Linear(8 * 9, 7)
    )
    return static(network, (2, 5, 21), levels=2)


@model
def quantized_joins():
    """Sums, products and concatenations of branches that have scales of their own, with what follows them."""

    class Joins(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Conv2d(4, 8, 3, padding=1), nn.Conv2d(4, 8, 1)

        def forward(self, x, y):
            a, b = self.first(x), 3 * self.second(x)
            return torch.relu(a + b), a * b, torch.cat([a, b, y], 1), (a + y[:, :8]).clamp(0, 1)

    return static(Joins(), (1, 4, 9, 11), (1, 8, 9, 11), levels=2)


@model
def quantized_pools():
    """Maxima and means of quantized pictures."""

    class Pools(nn.Module):
        def __init__(self):
            super().__init__()
            self.before = nn.Conv2d(3, 16, 3, padding=1)

        def forward(self, x):
            x = self.before(x)
            pooled = nn.functional.max_pool2d(x, 3, 2, 1)
            means = [nn.functional.adaptive_avg_pool2d(x, 1), x.mean((2, 3)), nn.functional.avg_pool2d(x, 2)]
            y = rounded(x)
            for padding, options in [(1, {}), (1, dict(count_include_pad=False)), (0, dict(ceil_mode=True))]:
                means.append(rounded(nn.functional.avg_pool2d(y, 3, 2, padding, **options), 0.01, -5))
            return pooled, *means, nn.functional.adaptive_avg_pool2d(y, (3, 7))

    # A level of the last ones is 1/49 of their scale.
    return static(Pools(), (1, 3, 12, 14), levels=3)


@model
def quantized_sizes():
    """Quantized pictures in other sizes, rounded as they were and in another way."""

    def sizes(x):
        x, resize = rounded(x), nn.functional.interpolate
        nearest, double = resize(x, scale_factor=2), resize(x, scale_factor=2, mode="bilinear")
        smaller, wider = resize(x, size=(5, 4)), resize(x, size=(7, 25), mode="bilinear", align_corners=True)
        return rounded(nearest), rounded(smaller, 0.03, -10), rounded(double), rounded(wider, 0.015, 20)

    # A level is 0.02 here. Those between two pixels are mostly on the edge between two levels, and fall to either side.
    return Model(Module(sizes), [(uniform(2, 5, 9, 11),) for _ in range(2)], tolerance=2.1 * LEVEL)


@model
def quantized_softmax():
    """Softmax of quantized channels, rows and long rows."""

    def softmax(x, y):
        x, y = rounded(4 * x, 0.04), rounded(8 * y, 0.07, -20)
        return rounded(x.softmax(1), 1 / 256, -128), rounded(x.softmax(-1), 1 / 256, -128), rounded(y.softmax(-1), 1e-3, -128)

    return Model(Module(softmax), [(uniform(2, 21, 6, 7), uniform(3, 500)) for _ in range(2)], tolerance=LEVEL)


@model
def quantized_activations():
    """Functions of one quantized tensor, which are tables."""

    class Activations(nn.Module):
        def __init__(self):
            super().__init__()
            self.before = nn.Conv2d(3, 8, 1)
            names = ("hardswish", "hardsigmoid", "relu6", "leaky_relu", "sigmoid", "silu", "gelu", "tanh", "elu")
            self.functions = [getattr(nn.functional, name) for name in names]
            self.after = nn.ModuleList([nn.Conv2d(8, 8, 1) for _ in self.functions])

        def forward(self, x):
            x = self.before(2 * x)
            return [after(function(x)) for function, after in zip(self.functions, self.after)]

    return static(Activations(), (1, 3, 8, 8), levels=3)


@model
def quantized_gate():
    """An inverted residual with a squeeze-and-excitation gate, as MobileNetV3 has."""

    class Gate(nn.Module):
        def __init__(self):
            super().__init__()
            self.expand, self.depthwise = nn.Conv2d(16, 48, 1), nn.Conv2d(48, 48, 5, padding=2, groups=48)
            self.squeeze, self.excite = nn.Conv2d(48, 12, 1), nn.Conv2d(12, 48, 1)
            self.project = nn.Conv2d(48, 16, 1)

        def forward(self, x):
            y = nn.functional.hardswish(self.depthwise(nn.functional.hardswish(self.expand(x))))
            gate = torch.relu(self.squeeze(nn.functional.adaptive_avg_pool2d(y, 1)))
            return x + self.project(y * nn.functional.hardsigmoid(self.excite(gate)))

    return static(Gate(), (1, 16, 14, 14), levels=3)


@model
def quantized_shapes():
    """What is quantized, arranged in other ways before it is multiplied."""

    class Shapes(nn.Module):
        def __init__(self):
            super().__init__()
            self.before, self.after = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(8, 12)

        def forward(self, x):
            x = self.before(x)
            tokens = x.flatten(2).transpose(1, 2)
            return self.after(tokens), self.after(tokens[:, :5]), nn.functional.pad(x, (1, 2, 0, 1)), x[:, 2:6]

    return static(Shapes(), (1, 3, 6, 7), levels=2)


@model
def quantized_dynamic_tokens():
    """Dynamic int8 of three dimensions: one scale for all tokens, weights by channel."""
    network = nn.Sequential(nn.Linear(24, 40), nn.GELU(), nn.Linear(40, 24, bias=False))
    calls = [(uniform(2, 5, 24),) for _ in range(2)]
    return Model(network, calls, tolerance=1.5 * LEVEL, quantize=quantizer(is_per_channel=True, is_dynamic=True))


@model
def quantized_dynamic_windows():
    """Dynamic int8 convolutions, one scale for a picture, as XNNPACK's quantizer has them."""
    network = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 24, 1), nn.SiLU(), nn.Conv2d(24, 8, 3, stride=2, dilation=2),
        nn.ConvTranspose2d(8, 6, 3, stride=2, padding=1),
    )  # fmt: skip
    calls = [(uniform(2, 3, 13, 11),) for _ in range(2)]
    return Model(network, calls, tolerance=1.5 * LEVEL, quantize=quantizer(is_per_channel=True, is_dynamic=True))


@model
def quantized_dynamic_forms():
    """Dynamic int8 of other convolutions: depthwise, with groups, transposed, of lines, and one that needs floats."""

    class Forms(nn.Module):
        def __init__(self):
            super().__init__()
            self.depthwise, self.groups = nn.Conv2d(8, 8, 5, padding=2, groups=8), nn.Conv2d(8, 12, 3, groups=2)
            self.transposed = nn.ConvTranspose2d(8, 6, 3, stride=(1, 2), padding=1, groups=2)
            self.lines, self.mixed = nn.Conv1d(8, 5, 3, padding=2, dilation=2), nn.Conv2d(8, 4, 1)
            layers = [self.depthwise, self.groups, self.transposed, self.lines, self.mixed]
            # The last one has a scale for each input channel.
            axes = [0, 0, 1, None, 1]
            self.weights = nn.ModuleList([Integers(layer.weight, axis) for layer, axis in zip(layers, axes)])
            for layer in layers:
                layer.weight = None

        def forward(self, x):
            convolve, own = nn.functional, [weight() for weight in self.weights]
            y = convolve.conv2d(rounded_as_seen(x), own[0], self.depthwise.bias, padding=2, groups=8)
            y = rounded_as_seen(y.relu())
            wide = convolve.conv_transpose2d(y, own[2], self.transposed.bias, (1, 2), 1, 0, 2)
            line = convolve.conv1d(rounded_as_seen(x[:, :, 1]), own[3], self.lines.bias, 1, 2, 2)
            mixed = convolve.conv2d(y, own[4], self.mixed.bias)
            return convolve.conv2d(y, own[1], self.groups.bias, groups=2), wide, line, mixed

    return Model(Forms(), [(uniform(2, 8, 9, 12),) for _ in range(2)], tolerance=LEVEL)


@model
def quantized_wide():
    """Activations of 16 bits, signed and unsigned, which are moved as integers, too; weights of 8 and 16 bits."""
    ops = torch.ops.quantized_decomposed

    class Wide(nn.Module):
        def __init__(self):
            super().__init__()
            self.window, self.deep, self.last = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, groups=8), nn.Linear(8, 5)
            weights = (self.window, torch.int16, 2**-17), (self.last, torch.uint16, 2**-16)
            for layer, dtype, scale in weights:
                zero_point = 0 if dtype == torch.int16 else 32768
                integers = (layer.weight.detach() / scale).round().clamp(-32768, 32767) + zero_point
                layer.register_buffer("integers", integers.to(dtype))
                layer.form = scale, zero_point, -32768 + zero_point, 32767 + zero_point, dtype
                layer.weight = None
            self.eight = Integers(self.deep.weight, 0)
            self.deep.weight = None

        def forward(self, x, given):
            signed, unsigned = (2**-13, 5, -32768, 32767, torch.int16), (2**-14, 30000, 0, 65535, torch.uint16)
            weight = ops.dequantize_per_tensor(self.window.integers, *self.window.form)
            integers = ops.quantize_per_tensor(x, *signed)
            y = nn.functional.conv2d(ops.dequantize_per_tensor(integers, *signed), weight, self.window.bias, padding=1)
            y = ops.dequantize_per_tensor(ops.quantize_per_tensor(y.relu(), *unsigned), *unsigned)
            y = nn.functional.conv2d(y, self.eight(), self.deep.bias, groups=8) + ops.dequantize_per_tensor(given, *signed)
            moved = ops.quantize_per_tensor(y, *signed).flatten(2).transpose(1, 2)[:, 1:]
            z = ops.dequantize_per_tensor(moved, *signed)
            z = nn.functional.linear(z, ops.dequantize_per_tensor(self.last.integers, *self.last.form), self.last.bias)
            return ops.dequantize_per_tensor(ops.quantize_per_tensor(z, *unsigned), *unsigned), integers

    given = torch.randint(-2000, 2000, (1, 8, 1, 1), dtype=torch.int16)
    # A level of the result is 2**-14.
    return Model(Wide(), [(uniform(1, 3, 7, 9), given) for _ in range(2)], tolerance=2e-4)
