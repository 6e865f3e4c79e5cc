"""CMSIS-NN's int8 softmax and average pooling, in integers: ExecuTorch's Python operators compute both in float.

The softmax is gemmlowp's: `high` is its SaturatingRoundingDoublingHighMul, `divided` its RoundingDivideByPOT.
"""

import torch
from torch.nn import functional as F


def divided(value, exponent):
    """`value / 2^exponent`, halves away from zero."""
    quotient, rest = value >> exponent, value & ((1 << exponent) - 1)
    return quotient + (rest > (((1 << exponent) - 1) >> 1) + (quotient < 0))


def high(a, b):
    """`a * b / 2^31`, rounded by the sign of the product: gemmlowp's SaturatingRoundingDoublingHighMul."""
    nudge = (1 << 30) if (a < 0) == (b < 0) else 1 - (1 << 30)
    total = a * b + nudge
    return min(-(-total // 2**31) if total < 0 else total // 2**31, 2**31 - 1)


def exponential(value):
    """`e^value`, a Q5.26 number that is not positive, as a Q0.31 number."""
    if value == 0:
        return 2**31 - 1
    rest = (value & 0xFFFFFF) - (1 << 24)
    x = (rest << 5) + (1 << 28)
    square = high(x, x)
    terms = high(divided(high(square, square), 2) + high(square, x), 715827883) + square
    result = 1895147668 + high(1895147668, x + divided(terms, 1))
    for bit, factor in enumerate((1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)):
        if (rest - value) >> (24 + bit) & 1:
            result = high(result, factor)
    return result


def inverse(value):
    """`1 / (1 + value)` in Q0.31, for a number from 0 to 1."""
    half = (value + 2**31) // 2
    x = 1515870810 + high(half, -1010580540)
    for _ in range(3):
        x += high(x, (1 << 29) - high(half, x)) << 2
    return min(x << 1, 2**31 - 1)


def softmax_row(row, multiplier, shift, diff_min):
    differences = [x - max(row) for x in row]
    exps = [exponential(high(d << shift, multiplier)) if d >= diff_min else None for d in differences]
    total = sum(divided(e, 12) for e in exps if e is not None)
    headroom = 32 - total.bit_length()
    scale = inverse((total << headroom) - 2**31)
    values = [0 if e is None else divided(high(scale, e), 35 - headroom) for e in exps]
    return [max(-128, min(127, v - 128)) for v in values]


def softmax(x, dim, input_zero_point, output_zero_point, multiplier, shift, diff_min):
    rows = x.movedim(dim, -1)
    results = [softmax_row(row.tolist(), multiplier, shift, diff_min) for row in rows.reshape(-1, rows.shape[-1])]
    return torch.tensor(results, dtype=torch.int8).reshape(rows.shape).movedim(-1, dim)


def avg_pool2d(x, kernel, stride, padding, ceil_mode, *_):
    # In float64, sums of int8 are exact. The average excludes the padding.
    options = dict(stride=stride or None, padding=padding, ceil_mode=ceil_mode)
    sums = F.avg_pool2d(x.double(), kernel, divisor_override=1, **options).round().long()
    counts = F.avg_pool2d(torch.ones_like(x, dtype=torch.float64), kernel, divisor_override=1, **options).round().long()
    halves = torch.where(sums > 0, counts // 2, -(counts // 2))
    averages = torch.div(sums + halves, counts, rounding_mode="trunc")
    return averages.to(torch.int8).contiguous(memory_format=torch.channels_last)
