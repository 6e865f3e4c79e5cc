"""Models whose point is their data type: integers, booleans, halves, and quantized ones."""

import torch
from registry import Model, Module, model, tokens, uniform
from torch import nn


@model
def integers():
    """Integer arithmetic only, of several widths, with floor and truncating division and wrap-around."""

    def arithmetic(a, b, c):
        wide = a.to(torch.int64) * b + 7
        bits = (a & 12) | (a ^ 5) & ~b
        shifted = torch.bitwise_right_shift(torch.bitwise_left_shift(b.abs() + 1, 2), 1)
        return wide // 3, torch.div(a, 3, rounding_mode="trunc"), a % 5, bits, shifted, c * c, c.sum(), wide.cumsum(1)

    def call():
        return (
            torch.randint(-50, 50, (3, 4), dtype=torch.int32),
            torch.randint(-50, 50, (3, 4), dtype=torch.int32),
            torch.randint(0, 256, (6,), dtype=torch.uint8),
        )

    return Model(Module(arithmetic), [call(), call()], tolerance=0, beyond_core=True)


@model
def booleans():
    """Masks: comparisons, logic, reductions with any and all, selection."""

    def logic(x, y, m):
        above = (x > y) & ~m
        either = torch.logical_or(x.isnan(), m) | torch.logical_xor(above, m)
        chosen = torch.where(either, x, y).nan_to_num(nan=9.0)
        kept = above.masked_fill(m, True)
        return above, either.any(dim=1), kept.all(dim=0), either.any(), m.sum(), chosen, torch.logical_not(x), m == kept

    def call():
        x = uniform(4, 5)
        x[0, 1], x[2, 3] = float("nan"), 0.0
        return x, uniform(4, 5), torch.rand(4, 5) > 0.6

    return Model(Module(logic), [call(), call()])


class Narrow(nn.Module):
    """A small convolutional and attentive network, to be run in a narrow floating-point type."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.norm, self.qkv, self.out = nn.LayerNorm(8), nn.Linear(8, 24), nn.Linear(8, 4)

    def forward(self, x):
        x = nn.functional.gelu(self.conv(x)).flatten(2).transpose(1, 2)
        query, key, value = self.qkv(self.norm(x)).chunk(3, dim=-1)
        attention = (query @ key.transpose(1, 2) * 0.35).softmax(-1)
        return self.out(x + attention @ value), attention.amax(-1)


# Rounding happens in different places: half has 11 significant bits, bfloat16 8, and a few roundings add up.
def narrow(dtype, tolerance):
    return Model(Narrow().to(dtype), [(uniform(1, 3, 8, 8, dtype=dtype),) for _ in range(2)], tolerance=tolerance)


@model
def half():
    return narrow(torch.float16, 4e-3)


@model
def bfloat16():
    return narrow(torch.bfloat16, 3e-2)


@model
def double():
    return narrow(torch.float64, 1e-6)


@model
def mixed():
    """Half weights with single-precision accumulation by explicit casts, and a promotion of mixed operands."""

    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("weight", uniform(6, 4, dtype=torch.float16))

        def forward(self, x, counts):
            y = x @ self.weight.float().T
            return y + counts, (y > 0).float() * counts.half(), y.to(torch.bfloat16), (10 * y).to(torch.int8)

    return Model(Mixed(), [(uniform(3, 4), torch.arange(6)), (uniform(3, 4), 2 - torch.arange(6))])


def quantizer(**options):
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    def quantize(exported, calls):
        prepared = prepare_pt2e(exported, XNNPACKQuantizer().set_global(get_symmetric_quantization_config(**options)))
        for args in calls:
            prepared(*args)
        return convert_pt2e(prepared)

    return quantize


@model
def quantized_conv():
    """Static int8, one scale a channel: quantized_decomposed operators around floating-point ones."""
    network = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(8, 10),
    )
    calls = [(uniform(1, 3, 12, 12),) for _ in range(3)]
    # A value on the edge between two levels may fall to either side, which is one level of 255.
    return Model(network, calls, tolerance=1e-2, quantize=quantizer(is_per_channel=True))


@model
def quantized_linear_dynamic():
    """Dynamic int8: the scale of the activations is computed in the program."""
    network = nn.Sequential(nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 8))
    calls = [(uniform(4, 16),) for _ in range(3)]
    return Model(network, calls, tolerance=1e-2, quantize=quantizer(is_per_channel=True, is_dynamic=True))


@model
def quantized_tensor():
    """Static int8, one scale a tensor, with an addition of two quantized branches."""

    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 1)

        def forward(self, x):
            return self.first(x).relu() + self.second(x)

    calls = [(uniform(1, 4, 8, 8),) for _ in range(2)]
    return Model(Residual(), calls, tolerance=1e-2, quantize=quantizer())


@model
def embedding_bag():
    """Integer inputs to floating-point outputs by table and masked mean."""

    class Bag(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.score = nn.Embedding(40, 12), nn.Linear(12, 3)

        def forward(self, words):
            present = (words != 0).unsqueeze(-1)
            summed = (self.table(words) * present).sum(1) / present.sum(1).clamp(min=1)
            return self.score(summed), summed.argmax(dim=-1)

    return Model(Bag(), [(tokens(40, 3, 7),), (tokens(3, 3, 7),)])
