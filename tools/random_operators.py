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
    # Eager leaves empty tensors as they are, against the shape that it promises.
    unshuffle = f"F.pixel_unshuffle({a}, {c.random.choice([1, 2])})" if c.of(a).numel() else f"F.pixel_shuffle({a}, 1)"
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
        f"F.pixel_shuffle({a}, {c.random.choice([1, 2])})", unshuffle,
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


SPECIAL = """i0 i0e i1 i1e erfcx ndtr log_ndtr entr sinc expit bessel_j0 bessel_j1 bessel_y0 bessel_y1 modified_bessel_i0 modified_bessel_i1
    modified_bessel_k0 modified_bessel_k1 scaled_modified_bessel_k0 spherical_bessel_j0 airy_ai""".split()
POLYNOMIALS = "chebyshev_polynomial_t chebyshev_polynomial_u hermite_polynomial_h laguerre_polynomial_l legendre_polynomial_p".split()


@operator(2)
def special(c):
    a = c.any()
    b = c.other(a)
    return c.random.choice([
        f"torch.special.{c.random.choice(SPECIAL)}({a})", f"torch.special.{c.random.choice(POLYNOMIALS)}({a}, {c.random.randint(0, 4)})",
        f"torch.polygamma({c.random.randint(0, 3)}, {a})", f"torch.igamma({a}.abs(), {b})", f"torch.igammac({a}.abs(), {b})",
        f"torch.special.zeta({a}, {b})", f"torch.special.xlog1py({a}, {b})", f"torch.gcd({a}, {b})", f"torch.lcm({a}, {b})",
        f"torch.nextafter({a}, {b})", f"torch.logaddexp2({a}, {b})", f"torch.float_power({a}, {c.random.choice([2, 0.5, -1])})",
        f"torch.ldexp({a}, {b})", f"torch.lerp({a}, {a} * 2, {c.random.choice([0.25, 1.5])})", f"torch.logit({a}, 0.25)",
    ])  # fmt: skip


@operator(2)
def choosing(c):
    """What sorts, counts, or finds."""
    a = c.any()
    d = c.dim(a)
    size = c.shape(a)[d] if c.rank(a) else 1
    k, keep, edges = c.random.randint(1, max(size, 1)), c.flag(), c.indices(6, c.random.choice([1, 3]))
    return c.random.choice([
        f"torch.kthvalue({a}, {k}, {d}, {keep})[0]", f"torch.median({a}, {d}, {keep})[0]", f"torch.nanmedian({a}, {d}, {keep})[0]",
        f"torch.median({a})", f"torch.mode({a}, {d}, {keep})[0]", f"torch.cummin({a}, {d})[{c.random.randrange(2)}]", f"torch.msort({a})",
        f"torch.aminmax({a}, dim={d}, keepdim={keep})[{c.random.randrange(2)}]", f"torch.unique({a})", f"torch.unique_consecutive({a})",
        f"torch.unique({a}, return_counts=True)[1]", f"torch.unique({a}, return_inverse=True)[1]", f"torch.nonzero({a})",
        f"torch.masked_select({a}, {a} > 0)", f"torch.isin({a}, {edges})", f"torch.searchsorted({edges}.sort()[0], {a}, right={keep})",
        f"torch.bucketize({a}, {edges}.sort()[0])", f"torch.histc({a}.float(), 4, -1, 1)", f"torch.quantile({a}, 0.3, dim={d}, keepdim={keep})",
        f"torch.nanmean({a}, dim={d}, keepdim={keep})", f"torch.sort({a}, dim={d}, stable=True)[1]", f"torch.trapezoid({a}, dim={d})",
        f"torch.cumulative_trapezoid({a}, dim={d})", f"torch.renorm({a}, 2, {d}, 1.0)", f"torch.var_mean({a}, dim={d}, keepdim={keep})[0]",
        f"torch.argsort({a}, dim={d}, descending=True, stable=True)", f"torch.nonzero_static({a}, size={k})", f"torch.frexp({a})[{c.random.randrange(2)}]",
    ])  # fmt: skip


@operator(2)
def placing(c):
    """What writes to places."""
    a = c.any()
    d = c.dim(a)
    size = c.shape(a)[d] if c.rank(a) else 1
    rows = c.shape(a)[0] if c.rank(a) else 1
    places, count = c.indices(rows, 2), c.random.choice([1, 2])
    into = f"torch.zeros_like({a}, dtype=torch.int64)"
    reduce = c.random.choice(["sum", "prod", "mean", "amax", "amin"])
    return c.random.choice([
        f"{a}.index_put(({places}.long(),), torch.tensor({c.scalar()}, dtype={c.of(a).dtype}), accumulate={c.flag()})",
        f"torch.scatter_reduce({a}, {d}, {into}, {a}, {reduce!r}, include_self={c.flag()})", f"torch.scatter_add({a}, {d}, {into}, {a})",
        f"{a}.masked_scatter({a} > 0, {a}.flip({c.dims(a)}))", f"torch.take({a}, {c.indices(max(c.of(a).numel(), 1), 3)}.long())",
        f"torch.index_copy({a}, {d}, {c.indices(size, 1)}.long(), {a}.narrow({d}, 0, 1))", f"torch.diag_embed({a}, {c.random.randint(-1, 1)})",
        f"torch.diagonal_scatter({a}, {a}.diagonal() * 2)", f"torch.index_reduce({a}, {d}, {c.indices(size, 1)}.long(), {a}.narrow({d}, 0, 1), 'amax')",
        f"{a}[{a} > 0]", f"{a}[..., ::2]", f"{a}[None]", f"{a}[:, {places}.long()]", f"{a}[{places}.long(), {c.random.randrange(max(rows, 1))}]",
        f"torch.put({a}, {c.indices(max(c.of(a).numel(), 1), count)}.long(), torch.ones({count}, dtype={c.of(a).dtype}))",
    ])  # fmt: skip


@operator(2)
def matrices(c):
    """Linear algebra of matrices that are far from singular, and whose result has no free sign."""
    a = c.any(lambda value: value.dtype in (torch.float32, torch.float64) and value.dim() >= 2 and value.shape[-1] == value.shape[-2])
    b = c.any(lambda value: value.dtype in (torch.float32, torch.float64) and value.dim() >= 2)
    if a is None:
        if b is None:
            return None
        return c.random.choice([
            f"torch.linalg.svdvals({b})", f"torch.linalg.matrix_norm({b}, 'nuc')", f"torch.linalg.matrix_norm({b}, 2)", f"{b}.mT @ {b}",
            f"torch.kron({b}, {b})", f"torch.linalg.pinv({b})", f"torch.cdist({b}, {b}, p=1.0)", f"torch.tensordot({b}, {b}, dims=([0], [0]))",
        ])  # fmt: skip
    size, dtype = c.shape(a)[-1], c.of(a).dtype
    far = f"({a} + 9 * torch.eye({size}, dtype={dtype}))"
    sides = c.buffer(dtype, [size, c.random.choice([0, 1, 3])])
    return c.random.choice([
        f"torch.linalg.inv({far})", f"torch.linalg.det({a})", f"torch.linalg.solve({far}, {sides})", f"torch.linalg.slogdet({far})[1]",
        f"torch.linalg.cholesky({a} @ {a}.mT + 9 * torch.eye({size}, dtype={dtype}))", f"torch.linalg.matrix_exp({a} * 0.25)",
        f"torch.linalg.eigvalsh({a} + {a}.mT)", f"torch.linalg.solve_triangular({far}.triu(), {sides}, upper=True)", f"torch.trace({a})",
        f"torch.linalg.matrix_power({a}, {c.random.randint(0, 3)})", f"torch.logdet({a} @ {a}.mT + 9 * torch.eye({size}, dtype={dtype}))",
    ])  # fmt: skip


@operator(2)
def windows(c):
    """Windows and samples of images."""
    a = c.any(lambda value: value.dtype in (torch.float32, torch.float64) and value.dim() == 4)
    if a is None:
        return None
    n, _, h, w = c.shape(a)
    align, k = c.flag(), c.random.choice([1, 2])
    grid = c.buffer(c.of(a).dtype, [n, c.random.choice([1, 3]), 2, 2])
    mode, border = c.random.choice(["bilinear", "nearest", "bicubic"]), c.random.choice(["zeros", "border", "reflection"])
    return c.random.choice([
        f"F.unfold({a}, {k}, padding={c.random.randrange(2)})", f"F.fold(F.unfold({a}, {k}), ({h}, {w}), {k})", f"F.lp_pool2d({a}, 2.0, {k})",
        f"F.grid_sample({a}, {grid}, {mode!r}, {border!r}, align_corners={align})", f"F.max_unpool2d(*F.max_pool2d({a}, {k}, return_indices=True), {k})",
        f"F.max_pool2d({a}, {k}, return_indices=True)[1]", f"F.local_response_norm({a}, 2)", f"F.channel_shuffle({a}, 1)", f"F.avg_pool2d({a}, {k}, divisor_override=3)",
        f"F.conv_transpose2d({a}, {c.buffer(c.of(a).dtype, [c.shape(a)[1], 2, 2, 2])}, None, 2, 1, 1, 1, 2)" if c.shape(a)[1] else f"{a} + 1",
    ])  # fmt: skip


@operator(2)
def losses(c):
    a = c.float()
    reduction = c.random.choice(["none", "mean", "sum"])
    name = c.random.choice("smooth_l1_loss huber_loss mse_loss l1_loss kl_div binary_cross_entropy_with_logits soft_margin_loss".split())
    return c.random.choice([
        f"F.{name}({a}, {a} * 0.5, reduction={reduction!r})", f"F.cosine_similarity({a}, {a} + 1, dim={c.dim(a)})",
        f"F.pairwise_distance({a}, {a} * 2)", f"F.cross_entropy({a}, torch.zeros_like({a}[:, 0], dtype=torch.int64), reduction={reduction!r})",
        f"F.nll_loss({a}, torch.zeros_like({a}[:, 0], dtype=torch.int64), reduction={reduction!r})", f"F.bilinear({a}, {a}, {c.buffer(c.of(a).dtype, [2, *[c.shape(a)[-1] if c.shape(a) else 1] * 2])})",
        f"F.prelu({a}, {c.buffer(c.of(a).dtype, [1])})", f"F.threshold({a}, 0.5, -1)", f"F.hinge_embedding_loss({a}, torch.ones_like({a}), reduction={reduction!r})",
    ])  # fmt: skip
