"""Seeded input tensors: ordinary values, values where an operator's behaviour changes, and layouts."""

import hashlib
import math

import torch

U8, I8, I16, I32, I64 = torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64
F16, BF16, F32, F64, BOOL = torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.bool
C32, C64, C128 = torch.complex32, torch.complex64, torch.complex128

INT = (U8, I8, I16, I32, I64)
FLOATS = (F16, BF16, F32, F64)
REAL = INT + FLOATS
REALB = REAL + (BOOL,)
COMPLEX = (C64, C128)
EVERY = REALB + COMPLEX

# Ranks 0 to 5, a size-1 dimension, an empty tensor, and a length that leaves a tail after any vector width.
SHAPES = ((), (1,), (7,), (3, 4), (2, 3, 4), (0, 3), (2, 1, 3, 2), (2, 1, 2, 3, 2), (37,))


class Values:
    """Random tensors that depend only on `label` and the order of the calls."""

    def __init__(self, label):
        seed = int.from_bytes(hashlib.sha256(label.encode()).digest()[:6], "little")
        self.g = torch.Generator().manual_seed(seed)

    def tensor(self, shape, dtype=F32, low=-4.0, high=4.0):
        """Multiples of 1/256 in [low, high] (of 1 for integers, within the type's range)."""
        shape = tuple(shape)
        if dtype == BOOL:
            return torch.randint(0, 2, shape, generator=self.g).bool()
        if dtype.is_complex:
            part = {C32: F32, C64: F32, C128: F64}[dtype]
            z = torch.complex(self.tensor(shape, part, low, high), self.tensor(shape, part, low, high))
            return z.to(dtype)
        if dtype in INT:
            info = torch.iinfo(dtype)
            if (low, high) == (-4.0, 4.0):
                low, high = -20, 21
            low, high = max(int(low), info.min), min(int(high), info.max)
            return torch.randint(low, high + 1, shape, generator=self.g).to(dtype)
        steps = torch.randint(math.ceil(low * 256), math.floor(high * 256) + 1, shape, generator=self.g)
        return (steps.double() / 256).to(dtype)

    def index(self, shape, below, dtype=I64, negative=False):
        return torch.randint(-below if negative else 0, below, tuple(shape), generator=self.g).to(dtype)

    def permutation(self, n):
        return torch.randperm(n, generator=self.g)

    def distinct(self, shape, dtype=F32):
        """Every element different, in random order, with negative ones."""
        n = math.prod(shape)
        steps = torch.randperm(n, generator=self.g) - n // 2
        if dtype in (U8, BOOL):
            steps = steps + n // 2
        return (steps.double() * (0.25 if dtype.is_floating_point else 1)).to(dtype).reshape(tuple(shape))

    def uniform(self):
        return torch.rand((), generator=self.g).item()

    def choice(self, items):
        return items[int(torch.randint(0, len(items), (), generator=self.g))]


def specials(dtype):
    """Values where elementwise functions change: NaN, infinities, zeros, units, halves, extremes."""
    if dtype == BOOL:
        return torch.tensor([True, False])
    if dtype in INT:
        info = torch.iinfo(dtype)
        return torch.tensor([v for v in (info.min, info.max, info.min + 1, -2, -1, 0, 1, 2, 3, 100) if info.min <= v], dtype=dtype)
    if dtype.is_complex:
        part = {C32: F32, C64: F32, C128: F64}[dtype]
        real = torch.tensor([0.0, -0.0, 1.0, -1.5, math.inf, -math.inf, math.nan, 3.0], dtype=part)
        return torch.complex(real, real.flip(0)).to(dtype)
    info = torch.finfo(dtype)
    values = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, -1.5, 2.5, 0.49, 10.0, -10.0, 88.5, -104.0]
    values += [info.max, info.min, info.tiny, -info.tiny, info.tiny / 4, info.eps, 1 + info.eps, 1 - info.eps / 2]
    return torch.tensor(values, dtype=F64).to(dtype)


def channels_last(t):
    """The same values in channels-last dim order (rank 4 or 5)."""
    return t.contiguous(memory_format=torch.channels_last if t.dim() == 4 else torch.channels_last_3d)
