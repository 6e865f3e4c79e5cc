"""Composite operators of structure: views, joins, indexing, products, attention, convolution, pooling, resizing, recurrence."""

import torch

from .composites import collect, record
from .values import BF16, BOOL, C64, F16, F32, F64, I8, I64, Values

PER_OPERATOR = 60
COMPOSITES = True

NAMES = """
    scaled_dot_product_attention _scaled_dot_product_attention_math _scaled_dot_product_flash_attention_for_cpu
    _safe_softmax _native_multi_head_attention _transformer_encoder_layer_fwd
    convolution_overrideable _convolution _convolution.deprecated _convolution_mode conv1d conv1d.padding conv2d
    conv2d.padding conv3d conv3d.padding _conv_depthwise2d conv_depthwise3d thnn_conv2d conv_transpose1d
    conv_transpose2d.input conv_transpose3d.input conv_tbc
    einsum tensordot bilinear _trilinear
    _unsafe_index.Tensor _unsafe_masked_index take take_along_dim argwhere where nonzero_numpy
    _embedding_bag_forward_only embedding_bag embedding_bag.padding_idx one_hot bucketize.Tensor bucketize.Scalar
    searchsorted.Tensor searchsorted.Scalar
    concat concatenate hstack vstack row_stack dstack column_stack atleast_1d.Sequence atleast_2d.Sequence
    atleast_3d.Sequence broadcast_tensors meshgrid meshgrid.indexing cartesian_prod block_diag tile
    repeat_interleave.self_int repeat_interleave.self_Tensor fliplr flipud rot90 triu diag_embed diagflat
    pad _pad_enum _pad_circular
    max_pool1d max_pool1d_with_indices max_pool2d max_pool3d avg_pool1d adaptive_avg_pool1d adaptive_avg_pool2d
    adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d
    linear matmul linalg_matmul mv dot vdot baddbmm addbmm addmv addr outer ger inner linalg_vecdot chain_matmul
    linalg_multi_dot matrix_power linalg_matrix_power kron linalg_cross cross
    lstm.input gru.input rnn_tanh.input rnn_relu.input lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell
    upsample_nearest1d upsample_nearest1d.vec upsample_nearest2d upsample_nearest3d upsample_nearest3d.vec
    upsample_linear1d upsample_linear1d.vec upsample_bilinear2d upsample_trilinear3d upsample_trilinear3d.vec
    _upsample_nearest_exact1d _upsample_nearest_exact1d.vec _upsample_nearest_exact2d _upsample_nearest_exact2d.vec
    _upsample_nearest_exact3d _upsample_nearest_exact3d.vec upsample_bicubic2d upsample_bicubic2d.vec
    _upsample_bicubic2d_aa _upsample_bicubic2d_aa.vec _upsample_lanczos2d_aa _upsample_lanczos2d_aa.vec
    _upsample_bilinear2d_aa.vec
    grid_sampler affine_grid_generator channel_shuffle native_channel_shuffle im2col max_unpool2d max_unpool3d
    _unsafe_index_put _unsafe_masked_index_put_accumulate index_add index_copy index_fill.int_Scalar
    index_fill.int_Tensor index_reduce scatter.reduce scatter.value_reduce masked_fill.Tensor diagonal_scatter
    as_strided_scatter put
    select.int slice.Tensor narrow split.Tensor unsafe_split.Tensor chunk unsafe_chunk split_with_sizes split.sizes
    unsafe_split_with_sizes tensor_split.sections tensor_split.indices hsplit.int hsplit.array vsplit.int
    vsplit.array dsplit.int dsplit.array unbind.int diagonal diag as_strided unfold
    view _unsafe_view reshape _reshape_copy _reshape_alias _reshape_alias_copy view_as reshape_as
    flatten.using_ints unflatten.int ravel squeeze squeeze.dim squeeze.dims squeeze_copy unsqueeze atleast_1d
    atleast_2d atleast_3d alias detach lift lift_fresh resolve_conj resolve_neg view.dtype view_copy.dtype real
    view_as_real imag expand expand_as broadcast_to permute transpose.int swapaxes swapdims t numpy_T mT adjoint
    matrix_H movedim.int movedim.intlist moveaxis.int moveaxis.intlist
""".split()

SOURCES = """
    __getitem__ __rmatmul__ addbmm addmv addr argwhere as_strided as_strided_partial_views as_strided_scatter atleast_1d atleast_2d
    atleast_3d baddbmm block_diag bmm broadcast_tensors broadcast_to bucketize cartesian_prod cat chunk column_stack cross
    diag diag_embed diagflat diagonal diagonal_scatter dot dsplit dstack einsum expand expand_as flatten fliplr flipud
    hsplit hstack index_add index_copy index_fill index_reduce index_put inner kron linalg.cross linalg.matrix_power
    linalg.multi_dot linalg.vecdot masked_fill matmul mT meshgrid movedim mv narrow nn.functional.adaptive_avg_pool1d
    nn.functional.adaptive_avg_pool2d nn.functional.adaptive_avg_pool3d nn.functional.adaptive_max_pool1d
    nn.functional.adaptive_max_pool2d nn.functional.adaptive_max_pool3d nn.functional.avg_pool1d nn.functional.avg_pool2d
    nn.functional.avg_pool3d nn.functional.bilinear nn.functional.channel_shuffle nn.functional.conv1d
    nn.functional.conv2d nn.functional.conv3d nn.functional.conv_transpose1d nn.functional.conv_transpose2d
    nn.functional.conv_transpose3d nn.functional.embedding_bag nn.functional.fold nn.functional.grid_sample
    nn.functional.interpolate nn.functional.linear nn.functional.lp_pool1d nn.functional.lp_pool2d
    nn.functional.max_pool1d nn.functional.max_pool2d nn.functional.max_pool3d nn.functional.max_unpool2d
    nn.functional.one_hot nn.functional.pad nn.functional.scaled_dot_product_attention nn.functional.unfold
    nn.functional.upsample_bilinear nn.functional.upsample_nearest outer permute put ravel real repeat_interleave reshape
    reshape_as resolve_conj resolve_neg rot90 scatter scatter_reduce searchsorted select slice split split_with_sizes
    squeeze T t take take_along_dim tensor_split tensordot tile transpose triu unbind unflatten unfold unsafe_chunk
    unsafe_split unsqueeze vdot view view_as vsplit vstack imag
""".split()

# Only gradients need these results, whose sizes depend on the path that PyTorch takes.
BAGS = (1, 2, 3)
UNSPECIFIED = {"aten::embedding_bag": BAGS, "aten::embedding_bag.padding_idx": BAGS}


def generate(cases):
    collect(cases, SOURCES, [f"aten::{name}" for name in NAMES], (F32, I64, BOOL, F16), unspecified=UNSPECIFIED)
    v = Values("composites_structure")
    for part in (views, indexing, products, attention, convolutions, pooling, resizing, recurrent):
        part(v, lambda name, *args, **kwargs: record(cases, f"aten::{name}", *args, **kwargs))


def views(v, call):
    x = v.tensor((2, 3, 4))
    for sizes in ((4, 6), (-1,), (2, -1, 2), (6, 4, 1)):
        for name in ("view", "reshape", "_unsafe_view", "_reshape_copy"):
            call(name, x, sizes)
    call("_reshape_alias", x, (4, 6), (6, 1))
    for dims in ((0, 2), (0, -1), (1, 1), (-2, -1)):
        call("flatten.using_ints", x, *dims)
    call("flatten.using_ints", v.tensor(()), 0, 0)
    call("unflatten.int", v.tensor((2, 12)), 1, (3, -1))
    call("unflatten.int", v.tensor((2, 12)), -1, (2, 3, 2))
    ones = v.tensor((1, 3, 1, 2, 1))
    call("squeeze", ones)
    call("squeeze_copy", ones)
    for dim in (0, 1, -1):
        call("squeeze.dim", ones, dim)
    for dims in ((0, 2), (-1, 1), ()):
        call("squeeze.dims", ones, dims)
    for dim in (0, 2, -1, -4):
        call("unsqueeze", x, dim)
    for sizes in ((5, 2, 3, 4), (-1, 3, 4), (2, 3, 4)):
        call("expand", x, sizes)
    call("expand", v.tensor((3, 1)), (2, -1, 4))
    call("broadcast_to", v.tensor((3, 1)), (2, 3, 4))
    for dims in ((2, 0, 1), (-1, 0, -2), (0, 1, 2)):
        call("permute", x, dims)
    for name in ("swapaxes", "swapdims", "transpose.int"):
        call(name, x, 0, -1)
    for name in ("movedim", "moveaxis"):
        call(f"{name}.int", x, 0, 2)
        call(f"{name}.intlist", x, (0, 1), (2, 0))
        call(f"{name}.intlist", x, (-1,), (0,))
    for name in ("numpy_T",):
        call(name, x)
        call(name, v.tensor((2, 3)))
    for name in ("mT", "mH", "adjoint", "matrix_H"):
        call(name, v.tensor((3, 4)))
    call("linalg_diagonal", x, offset=1)
    call("flatten_dense_tensors", [x, v.tensor(()), v.tensor((2,))])
    call("_stack", [v.tensor((2, 3)), v.tensor((2, 3))], -1)
    for side in ("left", "right"):
        for batch_first in (False, True):
            call("pad_sequence", [v.tensor((2, 3)), v.tensor((4, 3)), v.tensor((1, 3))], batch_first, 0.5, side)
    call("mT", x)
    call("view.dtype", x, F32)
    for name in ("alias", "detach", "lift_fresh", "lift", "resolve_neg", "resolve_conj", "real"):
        call(name, x)
    for start, end, step in ((0, 2, 1), (1, 100, 2), (-3, -1, 1), (None, None, 3), (3, 1, 1), (-100, 9223372036854775807, 1)):
        call("slice.Tensor", x, -1, start, end, step)
    call("select.int", x, 1, -1)
    for start in (0, 1, -2):
        call("narrow", x, 2, start, 2)
    seven = v.tensor((2, 7))
    for size in (1, 3, 7, 9):
        call("split.Tensor", seven, size, 1)
        call("unsafe_split.Tensor", seven, size, -1)
        call("chunk", seven, size, 1)
        call("unsafe_chunk", seven, size, 1)
        call("tensor_split.sections", seven, size, 1)
    for name in ("split.sizes", "split_with_sizes", "unsafe_split_with_sizes"):
        call(name, seven, (2, 0, 5), -1)
    for indices in ((2, 5), (5, 2), (-3, 100), ()):
        call("tensor_split.indices", seven, indices, 1)
    for name, shape in (("hsplit", (2, 4)), ("hsplit", (4,)), ("vsplit", (4, 2)), ("dsplit", (2, 1, 4))):
        call(f"{name}.int", v.tensor(shape), 2)
        call(f"{name}.array", v.tensor(shape), (1, 3))
    call("unbind.int", x, 1)
    for offset in (-1, 0, 2):
        call("diagonal", x, offset, 1, 2)
        call("diagonal", x, offset, -1, 0)
        call("diag", v.tensor((3, 4)), offset)
        call("diag", v.tensor((3,)), offset)
        call("diagflat", v.tensor((2, 2)), offset)
        call("diag_embed", v.tensor((2, 3)), offset)
        call("diag_embed", v.tensor((2, 3)), offset, 0, 2)
        call("diag_embed", v.tensor((2, 3)), offset, -1, 0)
        call("diagonal_scatter", v.tensor((4, 4)), v.tensor((4 - abs(offset),)), offset)
    call("diagonal_scatter", x, v.tensor((3, 2)), 0, 2, 0)
    call("as_strided", x, (3, 2), (4, 2), 1)
    call("as_strided_scatter", x, v.tensor((3, 2)), (3, 2), (4, 2), 1)
    call("unfold", x, 2, 2, 1)
    call("unfold", v.tensor((7,)), 0, 3, 2)
    for diagonal in (-1, 0, 1, 5):
        call("triu", v.tensor((3, 4)), diagonal)
        call("triu", v.tensor((2, 3, 3), I64), diagonal)
    call("triu", torch.full((2, 2), float("nan")), 0)
    pieces = [v.tensor(s) for s in ((2, 3), (1, 3), (2, 3))]
    for name in ("concat", "concatenate"):
        call(name, pieces, 0)
        call(name, [v.tensor((2, 3)), v.tensor((2, 2), F64)], -1)
    for name in ("hstack", "vstack", "dstack", "column_stack", "row_stack"):
        call(name, [v.tensor((2, 3)), v.tensor((2, 3))])
        call(name, [v.tensor((3,)), v.tensor((3,))])
        call(name, [v.tensor(()), v.tensor(())])
    for name in ("atleast_1d", "atleast_2d", "atleast_3d"):
        for shape in ((), (3,), (2, 3), (2, 1, 3)):
            call(name, v.tensor(shape))
        call(f"{name}.Sequence", [v.tensor(()), v.tensor((3,)), v.tensor((2, 2))])
    call("meshgrid", [v.tensor((2,)), v.tensor((3,))])
    for indexing in ("ij", "xy"):
        call("meshgrid.indexing", [v.tensor((2,)), v.tensor((3,)), v.tensor(())], indexing=indexing)
    call("cartesian_prod", [v.tensor((2,)), v.tensor((3,)), v.tensor((2,))])
    call("block_diag", [v.tensor((2, 3)), v.tensor((1,)), v.tensor(()), v.tensor((3, 1))])
    call("tile", x, (2,))
    call("tile", v.tensor((2,)), (2, 3))
    for dim in (None, 0, -1):
        call("repeat_interleave.self_int", x, 2, dim)
    call("repeat_interleave.self_Tensor", x, torch.tensor([1, 0, 2]), 1, output_size=3)
    for k in (-1, 0, 1, 2, 3, 5):
        call("rot90", x, k, (0, 1))
        call("rot90", x, k, (2, 0))
    for mode in ("constant", "reflect", "replicate", "circular"):
        call("pad", v.tensor((1, 2, 5)), (2, 1), mode)
        call("pad", v.tensor((1, 2, 4, 5)), (2, 1, 1, 2), mode)
        call("pad", v.tensor((1, 2, 3, 4, 5)), (2, 1, 1, 2, 0, 1), mode)
    call("pad", v.tensor((2, 3)), (1, -1), "constant", 7.5)
    call("pad", v.tensor((2, 3), I64), (1, 1, 2, 0), "constant", 3)
    call("_pad_circular", v.tensor((1, 2, 4)), (1, -1))
    call("_pad_enum", v.tensor((1, 2, 4)), (1, 2), 1)


def indexing(v, call):
    x = v.tensor((3, 4, 5))
    index = torch.tensor([2, 0])
    call("_unsafe_index.Tensor", x, [None, index])
    call("_unsafe_index.Tensor", x, [index, None, index])
    call("_unsafe_index_put", x, [None, index], v.tensor((3, 2, 5)))
    call("_unsafe_index_put", x, [index], v.tensor((5,)), True)
    mask = torch.tensor([True, False, True])
    far = torch.tensor([-2, 1, 9])
    call("_unsafe_masked_index", v.tensor((4,)), torch.tensor([False, True, False]), [far], 0.5)
    call("_unsafe_masked_index_put_accumulate", v.tensor((4,)), torch.tensor([False, True, False]), [far], v.tensor((3,)))
    call("index_add", x, 1, index, v.tensor((3, 2, 5)), alpha=2)
    call("index_add", v.tensor(()), 0, torch.tensor(0), v.tensor(()))
    call("index_add", v.tensor((4,), I64), -1, index, v.tensor((2,), I64))
    call("index_copy", x, -1, index, v.tensor((3, 4, 2)))
    call("index_copy", v.tensor((1, 2, 6, 2)), 2, torch.tensor([4]), v.tensor((1, 2, 1, 2)))
    call("index_fill.int_Scalar", x, 0, index, 1.5)
    call("index_fill.int_Tensor", x, 2, index, torch.tensor(3))
    for reduce in ("prod", "mean", "amax", "amin"):
        for include in (True, False):
            call("index_reduce", x, 1, torch.tensor([1, 1, 0]), v.tensor((3, 3, 5)), reduce, include_self=include)
    call("scatter.reduce", v.tensor((3, 4)), 1, torch.tensor([[0, 1], [2, 2]]), v.tensor((2, 2)), reduce="add")
    call("scatter.reduce", v.tensor((3, 4)), 0, torch.tensor([[0, 1], [2, 2]]), v.tensor((2, 2)), reduce="multiply")
    call("scatter.value_reduce", v.tensor((3, 4)), 0, torch.tensor([[0, 1], [2, 2]]), 2.5, reduce="multiply")
    call("masked_fill.Tensor", v.tensor((2, 3)), mask, torch.tensor(2))
    call("masked_fill.Tensor", v.tensor((3,), I64), mask, torch.tensor(True))
    call("take", x, torch.tensor([[0, 59], [-1, 3]]))
    call("put", v.tensor((2, 3)), torch.tensor([[0, 5]]), v.tensor((2,)))
    call("put", v.tensor((2, 3)), torch.tensor([0, 0, -1]), v.tensor((3,)), True)
    call("take_along_dim", x, torch.tensor([[[3]], [[1]], [[0]]]), 1)
    call("take_along_dim", x, torch.tensor([7, 3]))
    call("one_hot", torch.tensor([[1, 0], [3, 2]]), 5)
    edges = torch.tensor([1.0, 2.0, 2.0, 4.0])
    points = torch.tensor([[0.5, 1.0, 2.0], [3.0, 9.0, float("nan")]])
    for right in (False, True):
        call("bucketize.Tensor", points, edges, right=right, out_int32=right)
        call("bucketize.Scalar", 2.0, edges, right=right)
        call("searchsorted.Tensor", edges, points, right=right)
        call("searchsorted.Scalar", edges, 2.0, right=right)
    rows = torch.tensor([[1, 3, 5], [2, 4, 6]])
    call("searchsorted.Tensor", rows, torch.tensor([[3, 6], [3, 1]]), side="right")
    table = v.tensor((6, 3))
    ids, offsets = torch.tensor([1, 2, 4, 5, 0]), torch.tensor([0, 2, 2])
    for mode in (0, 1, 2):
        for name in ("embedding_bag", "_embedding_bag_forward_only"):
            call(name, table, ids, offsets, False, mode, _unspecified=BAGS)
    call("embedding_bag.padding_idx", table, ids, offsets, False, 1, False, None, False, 2, _unspecified=BAGS)
    call("argwhere", torch.tensor([[1, 0], [0, 2]]))
    call("nonzero_numpy", torch.tensor([[1, 0], [0, 2]]))
    call("where", torch.tensor([[True, False], [True, True]]))


def products(v, call):
    shapes = [((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 4)), ((2, 3), (3, 4)), ((5, 2, 3), (3, 4)), ((5, 2, 3), (3,)), ((2, 3), (5, 3, 4))]
    shapes += [((3,), (5, 3, 4)), ((5, 2, 3), (5, 3, 4)), ((2, 1, 2, 3), (5, 3, 4)), ((1, 2, 3), (5, 3, 4)), ((0, 2, 3), (3, 4)), ((2, 0), (0, 3))]
    for a, b in shapes:
        for name in ("matmul", "linalg_matmul"):
            call(name, v.tensor(a), v.tensor(b))
    call("matmul", v.tensor((2, 3), I64), v.tensor((3, 2), I64))
    for a, b in (((2, 3), (3, 4)), ((3,), (3, 4)), ((5, 2, 3), (3, 4)), ((5, 2, 3), (5, 3, 4))):
        call("matmul", v.tensor(a, C64), v.tensor(b, C64))
    call("linear", v.tensor((2, 3), C64), v.tensor((4, 3), C64), v.tensor((4,), C64))
    call("einsum", "...ij,...jk,...ni->...nk", [v.tensor((2, 3, 4), C64), v.tensor((4, 4), C64), v.tensor((3, 3), C64)])
    for dtype in (F32, F64, F16, BF16):
        call("linear", v.tensor((2, 5, 3), dtype), v.tensor((4, 3), dtype), v.tensor((4,), dtype))
        call("linear", v.tensor((3,), dtype), v.tensor((4, 3), dtype))
    call("linear", v.tensor((2, 3)), v.tensor((3,)))
    call("mv", v.tensor((2, 3)), v.tensor((3,)))
    call("dot", v.tensor((5,)), v.tensor((5,)))
    call("vdot", v.tensor((5,)), v.tensor((5,)))
    call("_int_mm", v.tensor((17, 8), I8), v.tensor((8, 16), I8))
    for factors in ({}, {"beta": 0.5, "alpha": 2.0}, {"beta": 0}):
        call("baddbmm", v.tensor((2, 3, 5)), v.tensor((2, 3, 4)), v.tensor((2, 4, 5)), **factors)
        call("baddbmm", v.tensor((5,)), v.tensor((2, 3, 4)), v.tensor((2, 4, 5)), **factors)
        call("addbmm", v.tensor((3, 5)), v.tensor((2, 3, 4)), v.tensor((2, 4, 5)), **factors)
        call("addmv", v.tensor((3,)), v.tensor((3, 4)), v.tensor((4,)), **factors)
        call("addr", v.tensor((3, 4)), v.tensor((3,)), v.tensor((4,)), **factors)
    call("outer", v.tensor((3,)), v.tensor((4,)))
    call("ger", v.tensor((3,)), v.tensor((4,)))
    call("inner", v.tensor((2, 3)), v.tensor((4, 5, 3)))
    call("inner", v.tensor(()), v.tensor((3,)))
    call("linalg_vecdot", v.tensor((2, 3)), v.tensor((2, 3)))
    call("chain_matmul", [v.tensor((2, 3)), v.tensor((3, 4)), v.tensor((4, 1))])
    call("linalg_multi_dot", [v.tensor((3,)), v.tensor((3, 4)), v.tensor((4,))])
    for power in (1, 2, 5):
        call("matrix_power", v.tensor((2, 3, 3), low=-1, high=1), power)
        call("linalg_matrix_power", v.tensor((3, 3), low=-1, high=1), power)
    call("kron", v.tensor((2, 3)), v.tensor((4,)))
    call("linalg_cross", v.tensor((2, 3)), v.tensor((1, 3)))
    call("cross", v.tensor((3, 2)), v.tensor((3, 2)))
    equations = [("ij,jk->ik", (2, 3), (3, 4)), ("bij,bjk", (2, 3, 4), (2, 4, 5)), ("ii->i", (3, 3)), ("ii", (3, 3)), ("ij->ji", (2, 3))]
    equations += [("bhqd,bhkd->bhqk", (2, 2, 3, 4), (2, 2, 5, 4)), ("...ij,...jk->...ik", (2, 3, 4), (5, 1, 4, 2)), ("i,j->ij", (3,), (4,))]
    equations += [("ijk,jil->kl", (2, 3, 4), (3, 2, 5)), ("bn,anm,bm->ba", (2, 3), (4, 3, 5), (2, 5)), ("i...->...", (2, 3, 4)), ("ij,ij->", (2, 3), (2, 3))]
    equations += [("ab,bc,cd->ad", (2, 3), (3, 4), (4, 2)), ("bij,bj->bi", (2, 1, 4), (1, 4)), ("...a,...a->...", (2, 3, 4), (3, 4)), ("a b, b -> a", (2, 3), (3,))]
    for equation, *shapes in equations:
        call("einsum", equation, [v.tensor(s) for s in shapes])
    call("tensordot", v.tensor((2, 3, 4)), v.tensor((4, 3, 5)), (1, 2), (1, 0))
    call("tensordot", v.tensor((2, 3)), v.tensor((4,)), (), ())
    call("bilinear", v.tensor((5, 2)), v.tensor((5, 3)), v.tensor((4, 2, 3)), v.tensor((4,)))
    call("bilinear", v.tensor((2, 5, 2)), v.tensor((2, 5, 3)), v.tensor((4, 2, 3)))
    call("_trilinear", v.tensor((5, 2)), v.tensor((4, 2, 3)), v.tensor((5, 3)), (1, 3), (0,), (1, 2), (2, 3))


def attention(v, call):
    def heads(*shape):
        return v.tensor(shape, low=-1, high=1)

    q, k, w = heads(2, 3, 4, 8), heads(2, 3, 5, 8), heads(2, 3, 5, 6)
    masks = {"bool": v.tensor((4, 5), BOOL), "float": v.tensor((2, 1, 4, 5)), "none": None}
    masks["dead"] = torch.tensor([[True] * 5, [False] * 5, [True, False, True, False, True], [True] * 5])
    masks["infinite"] = masks["float"].masked_fill(~masks["dead"], float("-inf"))
    for label, mask in masks.items():
        call("scaled_dot_product_attention", q, k, w, mask, _name=label)
        call("_scaled_dot_product_flash_attention_for_cpu", q, k, heads(2, 3, 5, 8), attn_mask=mask if mask is None or mask.dtype != BOOL else None)
    call("scaled_dot_product_attention", q, k, w, is_causal=True, scale=0.3)
    call("scaled_dot_product_attention", heads(3, 4, 8), heads(3, 4, 8), heads(3, 4, 8), is_causal=True)
    call("scaled_dot_product_attention", heads(1, 6, 4, 8), heads(1, 2, 5, 8), heads(1, 2, 5, 8), enable_gqa=True)
    call("_scaled_dot_product_attention_math", q, k, w, masks["float"])
    call("_safe_softmax", masks["infinite"], -1)
    call("_safe_softmax", v.tensor((2, 3), I64), 0, F32)
    weights = [heads(24, 8), heads(24), heads(8, 8), heads(8)]
    x = heads(2, 5, 8)
    for need in (True, False):
        call("_native_multi_head_attention", x, x, x, 8, 2, *weights, None, True, need)
    norm = [heads(8), heads(8)]
    feed = [heads(16, 8), heads(16), heads(8, 16), heads(8)]
    for gelu in (True, False):
        for first in (True, False):
            call("_transformer_encoder_layer_fwd", x, 8, 2, *weights, gelu, first, 1e-5, *norm, *norm, *feed)


def convolutions(v, call):
    for dims in (1, 2, 3):
        space = (7, 6, 5)[:dims]
        kernel = (3, 2, 2)[:dims]
        x, weight, bias = v.tensor((2, 4, *space)), v.tensor((6, 2, *kernel)), v.tensor((6,))
        one = lambda n: [n] * dims
        call(f"conv{dims}d", x, weight, bias, one(2), one(1), one(1), 2)
        call(f"conv{dims}d", x[0], weight, None, one(1), one(0), one(2) if dims < 3 else one(1), 2)
        for padding in ("same", "valid"):
            call(f"conv{dims}d.padding", x, weight, bias, one(1), padding, one(1), 2)
            call("_convolution_mode", x, weight, None, one(1), padding, one(1), 2)
        turned = v.tensor((4, 3, *kernel))
        name = "conv_transpose1d" if dims == 1 else f"conv_transpose{dims}d.input"
        call(name, x, turned, v.tensor((6,)), one(2), one(1), one(1), 2, one(1))
        call(name, x[0], turned)
        call("_convolution", x, weight, bias, one(1), one(1), one(1), False, one(0), 2, False, False, True, True)
        call("_convolution.deprecated", x, turned, None, one(2), one(0), one(1), True, one(0), 1, False, False, True)
    call("conv_tbc", v.tensor((5, 2, 3)), v.tensor((3, 3, 4)), v.tensor((4,)), 1)
    call("slow_conv3d", v.tensor((1, 2, 3, 4, 4)), v.tensor((3, 2, 2, 2, 2)), (2, 2, 2), v.tensor((3,)), (1, 1, 1), (0, 1, 1))
    call("slow_conv_dilated2d", v.tensor((1, 2, 5, 5)), v.tensor((3, 2, 2, 2)), (2, 2), v.tensor((3,)), (1, 1), (1, 1), (2, 2))
    call("slow_conv_transpose2d", v.tensor((1, 2, 3, 3)), v.tensor((2, 3, 2, 2)), (2, 2), v.tensor((3,)), (2, 2), (0, 0), (1, 1))
    call("thnn_conv2d", v.tensor((1, 2, 5, 5)), v.tensor((3, 2, 2, 2)), (2, 2), v.tensor((3,)), (1, 1), (1, 1))


def pooling(v, call):
    line, picture, volume = v.tensor((2, 3, 9)), v.tensor((2, 3, 7, 9)), v.tensor((1, 2, 5, 6, 7))
    for ceil in (False, True):
        for name in ("max_pool1d", "max_pool1d_with_indices"):
            call(name, line, (3,), (2,), (1,), (1,), ceil)
            call(name, line[0], (2,), (), (0,), (2,), ceil)
        call("max_pool2d", picture, (3, 2), (2, 2), (1, 0), (1, 2), ceil)
        call("max_pool3d", volume, (2, 3, 2), (2, 2, 2), (1, 1, 0), (1, 1, 1), ceil)
        for pad in (False, True):
            call("avg_pool1d", line, (3,), (2,), (1,), ceil, pad)
    for size in (1, 4, 9, 12):
        call("adaptive_avg_pool1d", line, (size,))
        call("adaptive_max_pool1d", line, (size,))
    for size in ((1, 1), (3, 4), (7, 3)):
        call("adaptive_avg_pool2d", picture, size)
        call("adaptive_max_pool2d", picture, size)
        call("adaptive_max_pool2d", picture[0], size)
    for size in ((1, 1, 1), (2, 3, 4), (5, 2, 7)):
        call("adaptive_avg_pool3d", volume, size)
        call("adaptive_max_pool3d", volume, size)
    values, indices = torch.ops.aten.max_pool2d_with_indices(picture, (2, 2))
    call("max_unpool2d", values, indices, (7, 9))
    values, indices = torch.ops.aten.max_pool3d_with_indices(volume, (2, 2, 2))
    call("max_unpool3d", values, indices, (5, 6, 7), (2, 2, 2), (0, 0, 0))


def resizing(v, call):
    line, picture, volume = v.tensor((1, 2, 5)), v.tensor((1, 2, 4, 5)), v.tensor((1, 2, 3, 4, 5))
    sizes = {1: ((3,), (8,)), 2: ((3, 8), (7, 5)), 3: ((2, 5, 7), (6, 4, 3))}
    factors = {1: ((2.0,), (0.6,)), 2: ((2.0, 2.0), (0.5, 1.6)), 3: ((2.0, 1.5, 0.5),)}
    for dims, x in ((1, line), (2, picture), (3, volume)):
        linear = {1: "upsample_linear1d", 2: "upsample_bilinear2d", 3: "upsample_trilinear3d"}[dims]
        for exact in ("upsample_nearest", "_upsample_nearest_exact"):
            for size in sizes[dims]:
                call(f"{exact}{dims}d", x, size)
                call(f"{exact}{dims}d.vec", x, size, None)
            for scale in factors[dims]:
                call(f"{exact}{dims}d.vec", x, None, scale)
                call(f"{exact}{dims}d", x, [int(n * s) for n, s in zip(x.shape[2:], scale)], *scale)
        for corners in (False, True):
            for size in sizes[dims]:
                call(linear, x, size, corners)
                call(f"{linear}.vec", x, size, corners, None)
            for scale in factors[dims]:
                call(f"{linear}.vec", x, None, corners, scale)
    for corners in (False, True):
        for name in ("upsample_bicubic2d", "_upsample_bicubic2d_aa", "_upsample_lanczos2d_aa", "_upsample_bilinear2d_aa"):
            for size in sizes[2] + ((2, 2), (9, 10)):
                if name != "_upsample_bilinear2d_aa":
                    call(name, picture, size, corners)
                call(f"{name}.vec", picture, size, corners, None)
            for scale in factors[2]:
                call(f"{name}.vec", picture, None, corners, scale)
        theta = v.tensor((2, 2, 3), low=-1, high=1)
        call("affine_grid_generator", theta, (2, 3, 4, 5), corners)
        call("affine_grid_generator", v.tensor((1, 3, 4), low=-1, high=1), (1, 1, 2, 3, 1), corners)
        call("grid_sampler", picture, v.tensor((1, 3, 3, 2), low=-1.2, high=1.2), 0, 1, corners)
    call("channel_shuffle", v.tensor((1, 6, 2, 2)), 3)
    call("native_channel_shuffle", v.tensor((1, 6, 2, 2)), 2)
    call("im2col", picture, (2, 3), (1, 1), (1, 1), (2, 1))
    call("im2col", picture[0], (2, 2), (2, 1), (0, 1), (1, 1))


def recurrent(v, call):
    def small(*shape):
        return v.tensor(shape, low=-1, high=1)

    def layers(gates, inputs, hidden, layers, directions, bias, projection=0):
        out = projection or hidden
        params = []
        for layer in range(layers):
            for _ in range(directions):
                width = inputs if layer == 0 else out * directions
                params += [small(gates * hidden, width), small(gates * hidden, out)]
                params += [small(gates * hidden), small(gates * hidden)] if bias else []
                params += [small(projection, hidden)] if projection else []
        return params

    for length, batch_first, count, directions, bias in ((4, False, 1, 1, True), (3, True, 2, 2, True), (3, False, 2, 1, False), (40, True, 1, 2, True)):
        x = small(2, length, 3) if batch_first else small(length, 2, 3)
        state = small(count * directions, 2, 4)
        rest = (bias, count, 0.0, False, directions == 2, batch_first)
        call("lstm.input", x, [state, small(*state.shape)], layers(4, 3, 4, count, directions, bias), *rest)
        call("gru.input", x, state, layers(3, 3, 4, count, directions, bias), *rest)
        call("rnn_tanh.input", x, state, layers(1, 3, 4, count, directions, bias), *rest)
        call("rnn_relu.input", x, state, layers(1, 3, 4, count, directions, bias), *rest)
    projected = layers(4, 3, 4, 2, 1, True, projection=2)
    call("lstm.input", small(4, 2, 3), [small(2, 2, 2), small(2, 2, 4)], projected, True, 2, 0.0, False, False, False)
    for name, gates in (("gru_cell", 3), ("rnn_tanh_cell", 1), ("rnn_relu_cell", 1)):
        call(name, small(2, 3), small(2, 4), *layers(gates, 3, 4, 1, 1, True))
        call(name, small(2, 3), small(2, 4), *layers(gates, 3, 4, 1, 1, False))
    call("lstm_cell", small(2, 3), [small(2, 4), small(2, 4)], *layers(4, 3, 4, 1, 1, True))
