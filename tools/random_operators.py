"""Operators with random arguments, as expressions of Python, for `random_programs`."""

import torch

FLOATS = (torch.float32, torch.float32, torch.float16, torch.bfloat16, torch.float64)
TYPES = (
    "torch.float32", "torch.float32", "torch.float16", "torch.bfloat16", "torch.float64", "torch.int64", "torch.int32",
    "torch.int16", "torch.int8", "torch.uint8", "torch.bool",
)  # fmt: skip


class Chooser:
    """Chooses values and arguments. `buffers` are the constants that an expression brings."""

    def __init__(self, random, values, numbers):
        self.random, self.values, self.numbers, self.buffers = random, values, numbers, {}

    def any(self, test=lambda value: True):
        """The name of a value, one of the last more often; None if no value passes."""
        names = [name for name, value in self.values.items() if test(value)]
        if not names:
            return None
        return self.random.choice(names[-2:]) if self.random.random() < 0.7 else self.random.choice(names)

    def float(self):
        return self.any(lambda value: value.is_floating_point())

    def of(self, name):
        return self.values[name]

    def rank(self, name):
        return self.of(name).dim()

    def dim(self, name, surplus=0):
        rank = max(self.rank(name) + surplus, 1)
        return self.random.randrange(-rank, rank)

    def dims(self, name):
        """Some dimensions, in any order; often one, sometimes none."""
        rank = self.rank(name)
        count = self.random.choice([0, 1, 1, 2, rank])
        chosen = self.random.sample(range(rank), min(count, rank))
        return [dim - rank if self.random.random() < 0.4 else dim for dim in chosen]

    def shape(self, name):
        return list(self.of(name).shape)

    def flag(self):
        return self.random.random() < 0.5

    def scalar(self):
        return self.random.choice([0, 1, 2, -1, 3, 0.5, -0.25, 1.5, 2.0, True])

    def buffer(self, dtype, shape):
        name = f"c{self.random.randrange(10**6)}"
        self.buffers[name] = self.numbers(self.random, dtype, shape)
        return f"self.{name}"

    def indices(self, size, count):
        name = f"c{self.random.randrange(10**6)}"
        values = [self.random.randrange(size) for _ in range(count)] if size else []
        self.buffers[name] = torch.tensor(values, dtype=self.random.choice([torch.int64, torch.int32]))
        return f"self.{name}"

    def other(self, name):
        """A value or a constant that may broadcast with another."""
        if self.random.random() < 0.5 and (other := self.any()):
            return other
        shape = [size if self.random.random() < 0.6 else 1 for size in self.shape(name)]
        shape = shape[self.random.randint(0, len(shape)):] if self.flag() else shape
        dtype = self.of(name).dtype if self.random.random() < 0.7 else self.random.choice(FLOATS)
        return self.buffer(dtype, shape)


OPERATORS = []


def operator(weight=1):
    def add(function):
        OPERATORS.extend([function] * weight)
        return function

    return add


UNARY = """relu sigmoid tanh exp log sqrt rsqrt abs neg reciprocal sin cos tan asin acos atan sinh cosh asinh acosh atanh erf erfc
    floor ceil round trunc frac sign logical_not isnan isinf isfinite exp2 expm1 log1p log2 log10 square bitwise_not digamma lgamma
    sgn positive deg2rad signbit nan_to_num clone detach real""".split()
FUNCTIONAL = """gelu silu softplus mish hardtanh hardswish hardsigmoid relu6 leaky_relu elu selu celu logsigmoid softsign tanhshrink
    softshrink hardshrink""".split()
BINARY = """add sub mul div maximum minimum pow eq ne lt le gt ge logical_and logical_or logical_xor atan2 fmod remainder
    floor_divide bitwise_and bitwise_or bitwise_xor fmax fmin hypot copysign true_divide rsub heaviside xlogy logaddexp""".split()
SCALAR = "add sub mul div pow eq ne lt le gt ge fmod remainder floor_divide rsub clamp_min clamp_max".split()


@operator(8)
def unary(c):
    return f"torch.{c.random.choice(UNARY)}({c.any()})"


@operator(4)
def functional(c):
    return f"F.{c.random.choice(FUNCTIONAL)}({c.float()})"


@operator(8)
def binary(c):
    a = c.any()
    return f"torch.{c.random.choice(BINARY)}({a}, {c.other(a)})"


@operator(5)
def with_scalar(c):
    return f"torch.{c.random.choice(SCALAR)}({c.any()}, {c.scalar()})"


@operator(3)
def cast(c):
    return f"{c.any()}.to({c.random.choice(TYPES)})"


@operator(2)
def clamp(c):
    low, high = (c.random.choice([None, -1, 0, 0.5, 1, 2]) for _ in range(2))
    return f"torch.clamp({c.any()}, {low}, {high})"


@operator(3)
def where(c):
    a = c.any()
    condition = c.any(lambda value: value.dtype == torch.bool) or f"({a} > 0)"
    return f"torch.where({condition}, {a}, {c.other(a) if c.flag() else c.scalar()})"


@operator(2)
def masked_fill(c):
    a = c.any()
    condition = c.any(lambda value: value.dtype == torch.bool) or f"({a} > 0)"
    return f"{a}.masked_fill({condition}, {c.scalar()})"


@operator(6)
def reduction(c):
    a = c.any()
    name = c.random.choice("sum mean amax amin any all prod var std logsumexp nansum count_nonzero argmax argmin max min".split())
    form = c.random.randrange(4)
    if form == 0 and name not in ("logsumexp", "amax", "amin"):
        return f"torch.{name}({a})"
    keep = c.flag()
    if name in ("prod", "argmax", "argmin", "count_nonzero") or form == 1:
        keep = "" if name == "count_nonzero" else f", keepdim={keep}"
        text = f"torch.{name}({a}, dim={c.dim(a)}{keep})"
        return f"{text}[{c.random.randrange(2)}]" if name in ("max", "min") else text
    if name in ("max", "min"):
        return None
    dims = c.dims(a)
    more = f", correction={c.random.randrange(2)}" if name in ("var", "std") else ""
    return f"torch.{name}({a}, dim={tuple(dims)}, keepdim={keep}{more})"


@operator(2)
def norm(c):
    a = c.float()
    order = c.random.choice([1, 2, 0, 3, "float('inf')"])
    return f"torch.linalg.vector_norm({a}, ord={order}, dim={tuple(c.dims(a)) or None}, keepdim={c.flag()})"


@operator(3)
def reshape(c):
    a = c.any()
    shape, count = [], c.of(a).numel()
    if count == 0:
        shape = c.shape(a)
        c.random.shuffle(shape)
        return f"{a}.reshape({shape})"
    for factor in (2, 3, 2, 5):
        if count % factor == 0 and c.flag():
            shape.append(factor)
            count //= factor
    shape.append(-1 if c.flag() else count)
    if c.flag():
        shape.insert(c.random.randint(0, len(shape)), 1)
    return f"{a}.reshape({shape})"


@operator(4)
def movement(c):
    a = c.any()
    d, e = c.dim(a), c.dim(a)
    permutation = c.random.sample(range(c.rank(a)), c.rank(a))
    return c.random.choice([
        f"{a}.permute({permutation})", f"{a}.transpose({d}, {e})", f"{a}.movedim({d}, {e})", f"{a}.unsqueeze({c.dim(a, 1)})",
        f"{a}.squeeze()", f"{a}.squeeze({d})", f"{a}.squeeze({tuple(c.dims(a))})", f"{a}.flatten({min(d, e)}, {max(d, e)})",
        f"{a}.flip({c.dims(a)})", f"torch.roll({a}, {c.random.randint(-3, 3)}, {d})", f"torch.roll({a}, {c.random.randint(-3, 3)})",
        f"{a}.contiguous()", f"{a}.mT", f"torch.atleast_2d({a})", f"torch.swapaxes({a}, {d}, {e})", f"torch.rot90({a}, {c.random.randint(-1, 3)})",
    ])  # fmt: skip


@operator(4)
def slices(c):
    a = c.any()
    d = c.dim(a)
    size = c.shape(a)[d] if c.rank(a) else 1
    start, end = c.random.randint(-size - 1, size + 1), c.random.randint(-size - 1, size + 1)
    return c.random.choice([
        f"torch.ops.aten.slice.Tensor({a}, {d}, {start}, {end}, {c.random.randint(1, 3)})", f"{a}.narrow({d}, 0, {size // 2})",
        f"{a}.select({d}, {c.random.randint(-size, max(size - 1, 0))})", f"{a}.chunk({c.random.randint(1, 3)}, {d})[0]",
        f"{a}.split({c.random.randint(1, 3)}, {d})[-1]", f"{a}.unbind({d})[0]", f"{a}.unbind({d})[-1]", f"torch.diagonal({a})",
        f"torch.tensor_split({a}, {c.random.randint(1, 3)}, {d})[0]", f"{a}[..., None]", f"{a}[::2]", f"{a}.unfold({d}, {min(size, 2)}, 1)",
        f"torch.as_strided({a}, [2], [0])", f"torch.slice_scatter({a}, torch.ones_like({a}), {d}, {start}, {size})",
        f"torch.select_scatter({a}, {a}.select({d}, 0), {d}, {size - 1})",
    ])  # fmt: skip


@operator(3)
def joins(c):
    a, d = c.any(), 0
    d = c.dim(a)
    b = c.any(lambda value: value.shape == c.of(a).shape) if c.flag() else c.other(a)
    return c.random.choice([f"torch.cat([{a}, {b}], {d})", f"torch.cat([{a}, {a}, {b}], {d})", f"torch.stack([{a}, {b}], {c.dim(a, 1)})",
                            f"torch.hstack([{a}, {b}])", f"torch.vstack([{a}, {a}])"])  # fmt: skip


@operator(3)
def growing(c):
    a = c.any()
    shape = [c.random.choice([1, 2]), *(size if size != 1 else c.random.choice([1, 3]) for size in c.shape(a))]
    repeats = [c.random.choice([0, 1, 1, 2]) for _ in shape[c.random.randrange(2):]]
    pads = [c.random.choice([-1, 0, 0, 1, 2]) for _ in range(2 * c.random.randint(0, min(c.rank(a), 3)))]
    mode = c.random.choice(["reflect", "replicate", "circular"])
    return c.random.choice([
        f"{a}.expand({shape})", f"{a}.repeat({repeats})", f"F.pad({a}, {pads}, value={c.scalar()})", f"F.pad({a}, {pads}, mode={mode!r})",
        f"torch.tile({a}, {tuple(repeats)})", f"torch.repeat_interleave({a}, {c.random.randint(0, 2)}, dim={c.dim(a)})",
        f"torch.broadcast_to({a}, {shape})",
    ])  # fmt: skip


@operator(4)
def indexing(c):
    a = c.any()
    d = c.dim(a)
    size = c.shape(a)[d] if c.rank(a) else 1
    index = c.indices(size, c.random.choice([0, 1, 2, 5]))
    computed = c.any(lambda value: value.dtype in (torch.int64, torch.int32) and value.dim() == 1)
    scattered = f"{a}.argsort({d})" if c.flag() else f"torch.zeros_like({a}, dtype=torch.int64)"
    return c.random.choice([
        f"torch.index_select({a}, {d}, {index})", f"torch.index_select({a}, {d}, {computed or index}.clamp(0, {max(size - 1, 0)}))",
        f"torch.gather({a}, {d}, {scattered})", f"{a}[{index}.long().clamp(0, {max((c.shape(a) or [1])[0] - 1, 0)})]",
        f"torch.take_along_dim({a}, {scattered}, {d})", f"torch.index_select({a}, {d}, torch.zeros({c.random.randint(0, 3)}, dtype=torch.int64))",
        f"torch.scatter({a}, {d}, {scattered}, {c.scalar()})", f"{a}.index_fill({d}, {index}.long(), {c.scalar()})",
        f"torch.index_add({a}, {d}, {index}.long(), torch.index_select({a}, {d}, {index}))",
    ])  # fmt: skip


@operator(4)
def products(c):
    a = c.float()
    shape, dtype = c.shape(a), c.of(a).dtype
    columns = c.random.choice([0, 1, 3, 16, 17])
    inner = shape[-1] if shape else 1
    weight, bias = c.buffer(dtype, [columns, inner]), c.buffer(dtype, [columns])
    batch = shape[:-2] if c.flag() else []
    right = c.buffer(dtype, [*batch, inner, columns])
    same = c.any(lambda value: value.dtype == dtype)
    return c.random.choice([
        f"F.linear({a}, {weight}, {bias})", f"F.linear({a}, {weight})", f"torch.matmul({a}, {right})", f"torch.matmul({a}, {same})",
        f"torch.addmm({bias}, {a}, {right})", f"torch.bmm({a}, {right})", f"torch.mm({a}, {right})", f"torch.baddbmm({a}, {a}, {right}, beta=0.5, alpha=2)",
        f"{a} @ {a}.mT", f"torch.outer({a}, {a})", f"torch.dot({a}, {a})", f"torch.einsum('...i,...j->...ij', {a}, {a})",
        f"torch.cdist({a}, {a})", f"F.scaled_dot_product_attention({a}, {a}, {a})",
    ])  # fmt: skip


@operator(4)
def images(c):
    a = c.any(lambda value: value.is_floating_point() and value.dim() in (2, 3, 4))
    shape, dtype = c.shape(a), c.of(a).dtype
    n = len(shape) - 2 if len(shape) > 2 else 1
    channels = shape[-n - 1]
    if channels == 0:
        # Convolutions give as many channels as the input has then, whatever the weights say.
        return None
    kernel = c.random.choice([1, 1, 2, 3])
    groups = channels if channels and c.random.random() < 0.3 else 1
    out = groups * c.random.choice([1, 2, 5])
    weight = c.buffer(dtype, [out, channels // max(groups, 1), *[kernel] * n])
    turned = c.buffer(dtype, [channels, c.random.choice([1, 3]), *[kernel] * n])
    stride, padding, dilation = c.random.choice([1, 1, 2]), c.random.choice([0, 0, 1, 2]), c.random.choice([1, 1, 2])
    window = f"{kernel}, {stride}, {min(padding, kernel // 2)}"
    size = [c.random.choice([1, 2, 3]) for _ in range(n)]
    mode = {1: "linear", 2: c.random.choice(["bilinear", "bicubic", "nearest", "nearest-exact"]), 3: "trilinear"}.get(n)
    align = f", align_corners={c.flag()}" if mode and "near" not in mode else ""
    alias = ", antialias=True" if mode in ("bilinear", "bicubic") and c.random.random() < 0.4 else ""
    factor = c.random.choice([0.4, 0.5, 0.9, 1.0, 1.05, 1.3, 2, 2.2])
    return c.random.choice([
        f"F.conv{n}d({a}, {weight}, None, {stride}, {padding}, {dilation}, {groups})", f"F.conv_transpose{n}d({a}, {turned}, None, {stride})",
        f"F.max_pool{n}d({a}, {window}, ceil_mode={c.flag()})", f"F.avg_pool{n}d({a}, {window}, {c.flag()}, {c.flag()})",
        f"F.adaptive_avg_pool{n}d({a}, {size})", f"F.adaptive_max_pool{n}d({a}, {size})",
        f"F.interpolate({a}, scale_factor={factor}, mode={mode!r}{align}{alias})", f"F.interpolate({a}, size={size}, mode={mode!r}{align}{alias})",
        f"F.interpolate({a}, scale_factor={factor}, mode={mode!r}{align}{alias}, recompute_scale_factor=True)",
        f"F.pixel_shuffle({a}, {c.random.choice([1, 2])})", f"F.pixel_unshuffle({a}, {c.random.choice([1, 2])})",
    ])  # fmt: skip


@operator(3)
def normalisation(c):
    a = c.float()
    shape, dtype = c.shape(a), c.of(a).dtype
    last = shape[-1:] or [1]
    weight = c.buffer(dtype, last)
    channels = shape[1] if len(shape) > 1 else 1
    d = c.dim(a)
    return c.random.choice([
        f"torch.softmax({a}, {d})", f"torch.log_softmax({a}, {d})", f"F.layer_norm({a}, {last}, {weight})", f"F.layer_norm({a}, {last})",
        f"F.rms_norm({a}, {last}, {weight})", f"F.group_norm({a}, {channels})", f"F.normalize({a}, dim={d})", f"F.glu({a}, {d})",
        f"F.batch_norm({a}, torch.zeros({channels}), torch.ones({channels}))", f"F.instance_norm({a})", f"F.softmin({a}, {d})",
    ])  # fmt: skip


@operator(3)
def ordering(c):
    a = c.any()
    d = c.dim(a)
    size = c.shape(a)[d] if c.rank(a) else 1
    k = c.random.randint(0, size)
    return c.random.choice([
        f"torch.cumsum({a}, {d})", f"torch.sort({a}, dim={d}, descending={c.flag()})[0]", f"torch.topk({a}, {k}, {d})[0]",
        f"torch.tril({a}, {c.random.randint(-2, 2)})", f"torch.triu({a}, {c.random.randint(-2, 2)})", f"torch.cumprod({a}, {d})",
        f"torch.argsort({a}, dim={d}, stable=True)", f"torch.diff({a}, dim={d})", f"torch.logcumsumexp({a}, {d})", f"torch.cummax({a}, {d})[0]",
    ])  # fmt: skip


@operator(2)
def creation(c):
    a = c.any()
    shape = c.shape(a)
    return c.random.choice([
        f"torch.zeros_like({a})", f"torch.full_like({a}, {c.scalar()})", f"torch.ones({shape}, dtype={c.random.choice(TYPES)}) + {a}",
        f"torch.arange({c.random.randint(0, 5)}) + {c.scalar()}", f"{a} + torch.full({shape}, {c.scalar()})", f"F.one_hot({a}.long().clamp(0, 3), 4)",
        f"torch.eye({c.random.randint(0, 3)}) * {c.scalar()}", f"F.embedding({a}.long().clamp(0, 4), {c.buffer(torch.float32, [5, 3])})",
    ])  # fmt: skip
