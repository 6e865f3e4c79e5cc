"""Operators that the exporter leaves whole, and that have to be taken apart before there is a kernel for them."""

import torch
from registry import Model, Module, model, uniform
from torch import nn
from torch.nn import functional


@model
def attention_variants():
    """scaled_dot_product_attention plain, causal, with masks of numbers and of truth values, grouped and scaled."""

    def attend(q, k, v, bias, allowed, narrow_k, narrow_v):
        attention = functional.scaled_dot_product_attention
        return (
            attention(q, k, v), attention(q, q, q, is_causal=True), attention(q, k, v, attn_mask=bias, scale=0.3),
            attention(q, k, v, attn_mask=allowed), attention(q, narrow_k, narrow_v, enable_gqa=True),
        )

    def call():
        allowed = torch.rand(5, 7) > 0.3
        allowed[:, 0] = True
        wide = uniform(2, 4, 7, 8), uniform(2, 4, 7, 8)
        return uniform(2, 4, 5, 8), *wide, uniform(2, 1, 5, 7), allowed, uniform(2, 2, 7, 8), uniform(2, 2, 7, 8)

    return Model(Module(attend), [call(), call()])


@model
def contractions():
    """einsum in several forms, tensordot, and products of two and of several matrices."""

    def contract(a, b, c):
        return (
            torch.einsum("bij,bjk->bik", a, b), torch.einsum("bij->bji", a), torch.einsum("bii->bi", b),
            torch.einsum("bij,bij->b", a, a), torch.einsum("bij,bjk,kl->bil", a, b, c[:4]),
            torch.einsum("...ij,jk", a, c[:4]),
            torch.tensordot(a, b, dims=([2], [1])), torch.linalg.multi_dot([a[0], b[0], c[:4]]), a @ c[:4, 0],
            torch.baddbmm(a, a, b, beta=0.5, alpha=2.0), torch.addmm(a[0], a[0], b[0]), torch.kron(a[0], c[:2, :2]),
            torch.inner(a[0], b[0]),
            torch.dot(a[0, 0], a[0, 1]),
        )

    return Model(Module(contract), [(uniform(2, 4, 4), uniform(2, 4, 4), uniform(5, 5)) for _ in range(2)])


@model
def interpolations():
    """Every mode of interpolate that has a fixed size or factor."""

    def resize(line, picture, volume):
        resize = functional.interpolate
        return (
            resize(line, scale_factor=2, mode="nearest"), resize(line, size=11, mode="linear"),
            resize(picture, size=(9, 5), mode="nearest"), resize(picture, scale_factor=1.5, mode="nearest-exact"),
            resize(picture, size=(9, 11), mode="bilinear"), resize(picture, scale_factor=2, mode="bicubic"),
            resize(picture, size=(3, 4), mode="area"),
            resize(picture, size=(7, 9), mode="bilinear", align_corners=True),
            resize(volume, size=(4, 6, 5), mode="trilinear"), resize(volume, scale_factor=2, mode="nearest"),
        )

    return Model(Module(resize), [(uniform(1, 2, 7), uniform(1, 2, 6, 8), uniform(1, 2, 3, 4, 4)) for _ in range(2)])


@model
def patches():
    """Unfolding, folding and the shuffles between channels and pixels."""

    def unfold(x):
        columns = functional.unfold(x, kernel_size=(2, 3), stride=2, padding=1)
        return (
            columns, functional.fold(columns, output_size=(6, 8), kernel_size=(2, 3), stride=2, padding=1),
            x.unfold(2, 3, 2).unfold(3, 2, 1), functional.pixel_shuffle(x, 2), functional.pixel_unshuffle(x, 2),
            functional.channel_shuffle(x, 2),
        )

    return Model(Module(unfold), [(uniform(2, 4, 6, 8),), (uniform(2, 4, 6, 8),)], beyond_core=True)


@model
def spectrogram():
    """A short-time Fourier transform and its power."""

    class Spectrogram(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("window", torch.hann_window(32))

        def forward(self, signal):
            parts = torch.stft(signal, 32, hop_length=16, window=self.window, return_complex=True)
            return torch.view_as_real(parts).square().sum(-1)

    return Model(Spectrogram(), [(uniform(2, 160),), (uniform(2, 160),)], beyond_core=True)


@model
def linear_algebra():
    """Norms of vectors and matrices, similarities and distances."""

    def measure(a, b):
        norm = torch.linalg.vector_norm
        return (
            norm(a), norm(a, ord=1, dim=1), norm(a, ord=float("inf"), dim=(0, 1)), norm(a, ord=0, dim=-1),
            norm(a, 3, dim=0),
            torch.linalg.matrix_norm(a), torch.linalg.matrix_norm(a, ord=1), torch.linalg.norm(a, dim=1, keepdim=True),
            functional.cosine_similarity(a, b, dim=1), functional.pairwise_distance(a, b),
            torch.cdist(a, b, p=1.0), torch.cdist(a, b), functional.normalize(a, p=1.0, dim=0), a.logsumexp((0, 1)),
            torch.diagonal(a).sum(), torch.diag(a[0]), torch.diag_embed(a), a.tril(-1), b.triu(1),
        )

    calls = [(uniform(4, 5), uniform(4, 5)), (uniform(4, 5), uniform(4, 5))]
    return Model(Module(measure), calls, beyond_core=True)


@model
def losses():
    """Loss functions with their reductions, as an on-device measure of error."""

    def measure(x, y, classes):
        probabilities = x.sigmoid()
        return (
            functional.cross_entropy(x, classes), functional.cross_entropy(x, classes, label_smoothing=0.1),
            functional.nll_loss(x.log_softmax(1), classes, reduction="sum"), functional.mse_loss(x, y),
            functional.l1_loss(x, y, reduction="none"), functional.smooth_l1_loss(x, y, beta=0.5),
            functional.huber_loss(x, y, delta=0.5),
            functional.kl_div(x.log_softmax(1), y.softmax(1), reduction="batchmean"),
            functional.binary_cross_entropy(probabilities, y.abs()), functional.soft_margin_loss(x, y.sign()),
            functional.binary_cross_entropy_with_logits(x, y.abs()),
            functional.poisson_nll_loss(x, y.abs()),
            functional.margin_ranking_loss(x, y, y.sign()), functional.triplet_margin_loss(x, y, y.flip(0)),
        )

    calls = [(uniform(4, 6), uniform(4, 6), torch.randint(0, 6, (4,))) for _ in range(2)]
    return Model(Module(measure), calls, beyond_core=True)


@model
def convolutions():
    """One to three dimensions, groups, dilation, padding by name and by mode, and transposed ones."""

    class Convolve(nn.Module):
        def __init__(self):
            super().__init__()
            self.line = nn.ModuleList([
                nn.Conv1d(4, 6, 3, padding="same", dilation=2), nn.Conv1d(6, 6, 4, padding="same", groups=3),
                nn.ConvTranspose1d(6, 4, 4, stride=3, output_padding=1),
                nn.Conv1d(4, 2, 3, padding=1, padding_mode="circular"),
            ])
            self.plane = nn.ModuleList([
                nn.Conv2d(4, 8, (3, 5), stride=(1, 2), padding=(1, 2), groups=2, bias=False),
                nn.Conv2d(8, 8, 3, padding="valid"), nn.Conv2d(8, 4, 3, padding=2, padding_mode="replicate"),
                nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2, dilation=1),
            ])
            self.space = nn.ModuleList([nn.Conv3d(2, 4, (1, 3, 3), padding=1), nn.ConvTranspose3d(4, 2, 2, stride=2)])

        def forward(self, line, plane, space):
            for layer in self.line:
                line = layer(line)
            for layer in self.plane:
                plane = layer(plane)
            for layer in self.space:
                space = layer(space)
            return line, plane, space

    calls = [(uniform(2, 4, 9), uniform(1, 4, 8, 9), uniform(1, 2, 3, 4, 4)) for _ in range(2)]
    return Model(Convolve(), calls)


@model
def pools():
    """Adaptive and averaging pools of one to three dimensions."""

    def pool(line, plane, space):
        return (
            functional.max_pool1d(line, 3, stride=2, padding=1), functional.adaptive_avg_pool1d(line, 4),
            functional.avg_pool1d(line, 2, ceil_mode=True), functional.lp_pool1d(line.abs(), 2.0, 3),
            functional.adaptive_avg_pool2d(plane, (None, 3)), functional.lp_pool2d(plane.abs(), 2.0, 2),
            functional.max_pool2d(plane, (2, 3), ceil_mode=True), functional.max_pool3d(space, 2, stride=1),
            functional.avg_pool3d(space, 2, padding=1), functional.adaptive_avg_pool3d(space, 2),
        )

    calls = [(uniform(2, 3, 9), uniform(1, 3, 7, 8), uniform(1, 2, 4, 5, 6)) for _ in range(2)]
    return Model(Module(pool), calls)


@model
def norm_variants():
    """Normalisations without weights, over other shapes, with parametrised weights, and in training mode."""

    class Normalise(nn.Module):
        def __init__(self):
            super().__init__()
            self.batch = nn.BatchNorm1d(6)
            self.space = nn.BatchNorm3d(6, affine=False)
            self.instance = nn.InstanceNorm1d(6)
            self.root = nn.RMSNorm(5, eps=1e-5)
            self.weighed = nn.utils.parametrizations.weight_norm(nn.Linear(5, 4))
            self.spectral = nn.utils.parametrizations.spectral_norm(nn.Linear(5, 4))

        def forward(self, x):
            batch = functional.batch_norm(x, None, None, training=True)
            return (
                self.batch(x), self.space(x[..., None, None]), self.instance(x), self.root(x), self.weighed(x),
                self.spectral(x), functional.layer_norm(x, (6, 5)), functional.group_norm(x, 3), batch,
            )

    return Model(Normalise(), [(uniform(4, 6, 5),), (3 * uniform(4, 6, 5),)])


@model
def lookups():
    """A padded table, several words at once, and classes as one-hot rows."""

    class Lookups(nn.Module):
        def __init__(self):
            super().__init__()
            self.padded, self.table = nn.Embedding(20, 6, padding_idx=0), nn.Embedding(20, 4)

        def forward(self, words):
            return self.padded(words), functional.one_hot(words[:4], 20), self.table(words.view(3, 3)).mean(1)

    return Model(Lookups(), [(torch.randint(0, 20, (9,)),) for _ in range(2)])


@model
def embedding_bags():
    """Embedding bags by sum, mean and maximum, for which ExecuTorch has no operator and Rushlight has."""

    class Bags(nn.Module):
        def __init__(self):
            super().__init__()
            self.bags = nn.ModuleList([nn.EmbeddingBag(20, 6, mode=mode) for mode in ("sum", "mean", "max")])

        def forward(self, words, starts):
            return [bag(words, starts) for bag in self.bags]

    calls = [(torch.randint(0, 20, (9,)), torch.tensor([0, 3, 4])) for _ in range(2)]
    return Model(Bags(), calls, beyond_wheel=True)


@model
def transformer_layers():
    """nn.TransformerEncoder with a padding mask, and multi-head attention whose keys have another width."""

    class Layers(nn.Module):
        def __init__(self):
            super().__init__()
            options = {"activation": "gelu", "norm_first": True, "batch_first": True}
            layer = nn.TransformerEncoderLayer(24, 4, 48, **options)
            self.encoder = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(24), enable_nested_tensor=False)
            self.attention = nn.MultiheadAttention(24, 4, kdim=10, vdim=12, bias=False, add_zero_attn=True)

        def forward(self, x, padding, keys, values):
            encoded = self.encoder(x, src_key_padding_mask=padding)
            attended, weights = self.attention(encoded.transpose(0, 1), keys, values, average_attn_weights=False)
            return encoded, attended, weights

    padding = torch.tensor([[False] * 6, [False] * 4 + [True] * 2])
    calls = [(uniform(2, 6, 24), padding, uniform(5, 2, 10), uniform(5, 2, 12)) for _ in range(2)]
    return Model(Layers(), calls)
