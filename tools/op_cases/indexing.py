"""Gathering and scattering by index or mask, embeddings, and distances."""

import itertools

import torch

from . import opinfo
from .values import BF16, BOOL, F16, F32, F64, FLOATS, I32, I64, REALB, U8, Values, channels_last, specials

NAMES = (
    "index.Tensor_out index_put.out index_select.out gather.out scatter.src_out scatter.value_out scatter_add.out select_scatter.out "
    "slice_scatter.out masked_scatter.out masked_select.out nonzero.out embedding.out _cdist_forward.out _pdist_forward.out"
).split()
OPERATORS = [f"aten::{n}" for n in NAMES] + ["aten::index_put_"]
SOURCES = (
    "index_select gather scatter scatter_add select_scatter slice_scatter masked_scatter masked_select nonzero nn.functional.embedding "
    "index_put __getitem__ take_along_dim cdist nn.functional.pdist take index_fill index_copy"
).split()
# Shape -> indices as (shape or None, whether a mask): what advanced indexing distinguishes.
INDICES = (
    ((4, 3), [(2,)]), ((4, 3), [None, (2,)]), ((4, 3), [(5,), (5,)]), ((4, 3), [(2, 1), (3,)]), ((2, 3, 4), [None, (2,), None]), ((2, 3, 4), [(2,), None, (2,)]),
    ((2, 3, 4), [None, (2, 2), (2,)]), ((5,), [()]), ((5,), [(0,)]), ((3, 2, 2, 2), [None, (2,), (2,), None]), ((2, 2, 2, 2, 2), [(2,), None, None, (2,), None]), ((4, 3), [(3,), None]), ((6,), [(13,)]),
)  # fmt: skip


def index_tensors(v, shape, spec, dtype=I64, negative=False):
    return [None if s is None else v.index(s, shape[d], dtype, negative) for d, s in enumerate(spec)]


def advanced(cases):
    op = "aten::index.Tensor_out"
    v = Values(op)
    for dtype in REALB:
        cases.call(op, v.tensor((4, 3), dtype), [v.index((5,), 4)], _name="dtype")
        cases.call(op, v.tensor((4, 3), dtype), [v.tensor((4, 3), BOOL)], _name="mask")
    for shape, spec in INDICES:
        for dtype, negative in itertools.product((I64, I32), (False, True)):
            cases.call(op, v.tensor(shape), index_tensors(v, shape, spec, dtype, negative), _name=f"rank{len(shape)}")
    for shape, mask in (((4, 3), (4,)), ((4, 3), (4, 3)), ((2, 3, 4), (2, 3)), ((5,), (5,)), ((2, 0), (2, 0)), ((3, 2, 2), (3, 2, 2))):
        for dtype in (BOOL, U8):
            cases.call(op, v.tensor(shape), [v.tensor(mask, dtype, 0, 1)], _name="mask")
        cases.call(op, v.tensor(shape), [torch.zeros(mask, dtype=BOOL)], _name="mask-none")
    cases.call(op, v.tensor((3, 4)), [None, v.tensor((4,), BOOL)], _name="mask-second")
    cases.call(op, channels_last(v.tensor((2, 3, 2, 2))), [None, v.index((2,), 3)], _name="channels-last")


def puts(cases):
    for op in ("aten::index_put.out", "aten::index_put_"):
        v = Values(op)
        for dtype in REALB:
            for accumulate in (False, True):
                if dtype != BOOL or not accumulate:
                    cases.call(op, v.tensor((4, 3), dtype), [v.permutation(4)[:2]], v.tensor((2, 3), dtype), accumulate, _name="dtype")
        for shape, spec in INDICES:
            for negative in (False, True):
                indices = index_tensors(v, shape, spec, I64, negative)
                result = v.tensor(shape)[tuple(slice(None) if i is None else i for i in indices)]
                # Duplicates are written in an unspecified order, unless all write the same or they add up.
                cases.call(op, v.tensor(shape), indices, v.tensor(()), False, _name="one-value")
                cases.call(op, v.tensor(shape), indices, v.tensor(result.shape), True, _mag=op.endswith("out"), _name="accumulate")
                cases.call(op, v.tensor(shape), indices, v.tensor(()), True, _mag=op.endswith("out"), _name="accumulate-one")
        for dtype in (BOOL, U8):
            mask = v.tensor((4, 3), dtype, 0, 1)
            cases.call(op, v.tensor((4, 3)), [mask], v.tensor(()), False, _name="mask")
            cases.call(op, v.tensor((4, 3)), [mask], v.tensor((int(mask.sum()),)), False, _name="mask")
        cases.call(op, v.tensor((4, 3)), [v.permutation(4)[:3].to(I32)], v.tensor((3, 3)), _name="int32")
        cases.call(op, v.tensor((4, 3)), [None, v.permutation(3)[:2]], v.tensor((4, 2)), _name="second")


def along_dim(cases):
    for dtype in REALB:
        v = Values(f"along{dtype}")
        cases.call("aten::index_select.out", v.tensor((4, 3), dtype), 0, v.index((5,), 4), _name="dtype")
        cases.call("aten::gather.out", v.tensor((4, 3), dtype), 1, v.index((4, 2), 3), _name="dtype")
        cases.call("aten::scatter.src_out", v.tensor((3, 4), dtype), 1, unique(v, (3, 2), 1, 4), v.tensor((3, 2), dtype), _name="dtype")
        for value in (1, 2.75, True, 0):
            cases.call("aten::scatter.value_out", v.tensor((3, 4), dtype), 1, v.index((3, 2), 4), value, _name="dtype")
        cases.call("aten::scatter_add.out", v.tensor((3, 4), dtype), 1, v.index((3, 5), 4), v.tensor((3, 5), dtype), _mag=True, _name="dtype")
        cases.call("aten::select_scatter.out", v.tensor((3, 4), dtype), v.tensor((4,), dtype), 0, 1, _name="dtype")
        cases.call("aten::slice_scatter.out", v.tensor((5, 3), dtype), v.tensor((2, 3), dtype), 0, 1, 5, 2, _name="dtype")
        for n in (1, 4):
            cases.call("aten::masked_scatter.out", v.tensor((3, 4), dtype), v.tensor((n,), BOOL), v.tensor((14,), dtype), _name="dtype")
        cases.call("aten::masked_select.out", v.tensor((3, 4), dtype), v.tensor((3, 4), BOOL), _name="dtype")
        cases.call("aten::nonzero.out", v.tensor((3, 4), dtype, -1, 1), _name="dtype")
        cases.call("aten::embedding.out", v.tensor((5, 3), dtype), v.index((4,), 5), _name="dtype")
    v = Values("along")
    for shape, dim in (((6,), 0), ((3, 4), 0), ((3, 4), -1), ((2, 3, 4), 1), ((2, 2, 3, 2), 2), ((1, 2, 1, 3, 2), 3), ((5, 17), 1)):
        n = shape[dim]
        for count, dtype in itertools.product((0, 1, n, n + 2), (I64, I32)):
            cases.call("aten::index_select.out", v.tensor(shape), dim, v.index((count,), n, dtype), _name=f"dim{dim}")
        for size in {1, n}:
            ishape = list(shape)
            ishape[dim] = size
            index = v.index(ishape, n)
            for dtype in (F32, I64, F16):
                cases.call("aten::gather.out", v.tensor(shape, dtype), dim, index, _name=f"dim{dim}")
                cases.call("aten::scatter.src_out", v.tensor(shape, dtype), dim, unique(v, ishape, dim, n), v.tensor(shape, dtype), _name=f"dim{dim}")
                cases.call("aten::scatter.value_out", v.tensor(shape, dtype), dim, index, 7, _name=f"dim{dim}")
                cases.call("aten::scatter_add.out", v.tensor(shape, dtype), dim, index, v.tensor(shape, dtype), _mag=True, _name=f"dim{dim}")
        for at in {0, n - 1, -1, -n}:
            for dtype in (F32, I64):
                part = list(shape)
                del part[dim]
                cases.call("aten::select_scatter.out", v.tensor(shape, dtype), v.tensor(part, dtype), dim, at, _name=f"dim{dim}")
        for start, end, step in ((0, n, 1), (1, n, 1), (None, None, 2), (-2, -1, 1), (0, 100, 3), (n, n, 1)):
            part = v.tensor(shape)[(slice(None),) * (dim % len(shape)) + (slice(start, end, step),)]
            cases.call("aten::slice_scatter.out", v.tensor(shape), v.tensor(part.shape), dim, start, end, step, _name=f"dim{dim}")
    for name, args in (("index_select", (0, v.index((), 1))), ("index_select", (0, v.index((1,), 1))), ("gather", (0, v.index((), 1))), ("gather", (0, v.index((3,), 1)))):
        cases.call(f"aten::{name}.out", v.tensor(()), *args, _name="rank0")
    cases.call("aten::scatter.value_out", v.tensor(()), 0, v.index((), 1), 2.5, _name="rank0")
    cases.call("aten::scatter_add.out", v.tensor(()), 0, v.index((), 1), v.tensor(()), _name="rank0")
    for name in ("gather", "scatter.value"):
        cases.call(f"aten::{name}.out" if name == "gather" else "aten::scatter.value_out", v.tensor((3, 0)), 0, v.index((2, 0), 3), *([] if name == "gather" else [1]), _name="empty")


def unique(v, shape, dim, n):
    """Indices without duplicates along `dim`."""
    dim %= len(shape)
    count = shape[dim]
    rest = [s for d, s in enumerate(shape) if d != dim]
    rows = torch.stack([v.permutation(n)[:count] for _ in range(max(1, torch.Size(rest).numel()))])
    return rows.reshape(*rest, count).movedim(-1, dim).contiguous()


def masked(cases):
    v = Values("masked")
    for a, b in (((2, 3), (3,)), ((3,), (2, 3)), ((2, 1, 3), (4, 1)), ((), ()), ((0, 2), (2,)), ((2, 3), ()), ((2, 1, 2, 1, 2), (1, 2)), ((53,), (53,)), ((2, 2, 2, 2), (2, 1, 2))):
        for dtype in (F32, I64, F16):
            cases.call("aten::masked_select.out", v.tensor(a, dtype), v.tensor(b, BOOL), _name="broadcast")
            cases.call("aten::masked_scatter.out", v.tensor(a, dtype), v.tensor(b, BOOL), v.tensor((60,), dtype), _name="broadcast")
    for value in (True, False):
        cases.call("aten::masked_select.out", v.tensor((2, 3)), torch.full((2, 3), value), _name=f"all-{value}".lower())
        cases.call("aten::masked_scatter.out", v.tensor((2, 3)), torch.full((2, 3), value), v.tensor((6,)), _name=f"all-{value}".lower())
    for shape in ((), (0,), (1,), (7,), (2, 3, 2), (2, 1, 2, 3), (1, 2, 2, 1, 2), (2, 0, 3), (59,)):
        for dtype in (F32, I64, BOOL):
            cases.call("aten::nonzero.out", v.tensor(shape, dtype, -1, 1), _name=f"rank{len(shape)}")
            cases.call("aten::nonzero.out", torch.zeros(shape, dtype=dtype), _name="zeros")
    for dtype in FLOATS:
        cases.call("aten::nonzero.out", specials(dtype), _name="special")
    op = "aten::embedding.out"
    for shape in ((), (0,), (3,), (2, 3), (2, 1, 2), (1, 2, 1, 2)):
        for index in (I64, I32):
            for padding in (-1, 0):
                cases.call(op, v.tensor((5, 4)), v.index(shape, 5, index), padding, _name=f"rank{len(shape)}")
    cases.call(op, v.tensor((7, 33), F16), v.index((3,), 7), _name="wide")


def distances(cases):
    inf = float("inf")
    v = Values("distance")
    for dtype in (F32, F64, F16, BF16):
        half = {"_as": F32} if dtype in (F16, BF16) else {}
        for p, mode in itertools.product((0.0, 0.5, 1.0, 2.0, 3.0, inf), (None, 2)):
            for a, b in (((3, 4), (2, 4)), ((2, 3, 2), (2, 1, 2)), ((1, 5), (4, 5))):
                cases.call("aten::_cdist_forward.out", v.tensor(a, dtype), v.tensor(b, dtype), p, mode, **half, _name=f"p{p}")
        for p in (0.0, 0.5, 1.0, 2.0, 3.0, inf):
            for shape in ((4, 3), (2, 5), (1, 2), (6, 1), (0, 2), (3, 0)):
                cases.call("aten::_pdist_forward.out", v.tensor(shape, dtype), p, **half, _name=f"p{p}")
    for a, b in (((0, 4), (2, 4)), ((2, 4), (0, 4)), ((2, 0), (3, 0)), ((1, 2, 3, 2), (4, 1, 2, 2)), ((5, 19), (6, 19))):
        for p in (1.0, 2.0, inf):
            cases.call("aten::_cdist_forward.out", v.tensor(a), v.tensor(b), p, None, _name="shapes")
    nan = torch.tensor([[1.0, float("nan")], [inf, 2.0]])
    for p in (1.0, 2.0, inf):
        cases.call("aten::_cdist_forward.out", nan, v.tensor((2, 2)), p, 2, _name="special")


def generate(cases):
    advanced(cases)
    puts(cases)
    along_dim(cases)
    masked(cases)
    distances(cases)
    opinfo.collect(cases, SOURCES, OPERATORS, (F32, F16, I64, BOOL, BF16, F64, I32), numel=200, per_dtype=4)


