"""Transformers with small random configurations: Hugging Face's classes, torch's own, and a hand-written Llama."""

import math

import torch
import transformers
from huggingface import SMALL, Outputs, mask
from registry import Model, model, tokens, uniform
from torch import nn
from torch.export import Dim


@model
def bert():
    config = transformers.BertConfig(
        vocab_size=200, hidden_size=48, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96,
        max_position_embeddings=32, **SMALL,
    )
    network = Outputs(
        transformers.BertModel(config), ("input_ids", "attention_mask"), ("last_hidden_state", "pooler_output")
    )
    return Model(network, [(tokens(200, 2, 12), mask(12, 7, width=12)), (tokens(200, 2, 12), mask(1, 12, width=12))])


@model
def distilbert():
    config = transformers.DistilBertConfig(
        vocab_size=200, dim=48, n_layers=2, n_heads=4, hidden_dim=96, max_position_embeddings=32, **SMALL
    )
    network = Outputs(
        transformers.DistilBertForSequenceClassification(config), ("input_ids", "attention_mask"), ("logits",)
    )
    return Model(network, [(tokens(200, 2, 12), mask(12, 7, width=12)), (tokens(200, 2, 12), mask(1, 12, width=12))])


@model
def gpt2():
    config = transformers.GPT2Config(
        vocab_size=200, n_embd=48, n_layer=2, n_head=4, n_positions=32, use_cache=False, **SMALL
    )
    network = Outputs(transformers.GPT2LMHeadModel(config), ("input_ids",), ("logits",))
    return Model(network, [(tokens(200, 1, 16),), (tokens(200, 1, 16),)])


@model
def llama_hf():
    config = transformers.LlamaConfig(
        vocab_size=200, hidden_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=96, max_position_embeddings=32, use_cache=False, **SMALL,
    )
    network = Outputs(transformers.LlamaForCausalLM(config), ("input_ids",), ("logits",))
    return Model(network, [(tokens(200, 1, 12),), (tokens(200, 1, 12),)])


@model
def t5_encoder():
    config = transformers.T5Config(
        vocab_size=200, d_model=48, d_kv=12, d_ff=96, num_layers=2, num_heads=4, dropout_rate=0.0,
        feed_forward_proj="gated-gelu", use_cache=False,
    )
    network = Outputs(
        transformers.T5EncoderModel(config), ("input_ids", "attention_mask"), ("last_hidden_state",)
    )
    return Model(network, [(tokens(200, 2, 12), mask(12, 7, width=12)), (tokens(200, 2, 12), mask(1, 12, width=12))])


@model
def whisper_encoder():
    config = transformers.WhisperConfig(
        vocab_size=200, d_model=48, encoder_layers=2, encoder_attention_heads=4, encoder_ffn_dim=96,
        decoder_layers=1, decoder_attention_heads=4, decoder_ffn_dim=96, num_mel_bins=20, max_source_positions=50,
        pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1, init_std=0.2,
        attn_implementation="eager",
    )
    network = Outputs(transformers.WhisperModel(config).encoder, ("input_features",), ("last_hidden_state",))
    return Model(network, [(uniform(1, 20, 100),), (uniform(1, 20, 100),)])


@model
def vit_hf():
    config = transformers.ViTConfig(
        hidden_size=48, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96, image_size=32, patch_size=8,
        **SMALL,
    )
    network = Outputs(
        transformers.ViTModel(config), ("pixel_values",), ("last_hidden_state", "pooler_output")
    )
    return Model(network, [(uniform(1, 3, 32, 32),), (uniform(1, 3, 32, 32),)])


@model
def torch_transformer():
    """torch.nn.Transformer, encoder and decoder, with a causal mask."""

    class Translate(nn.Module):
        def __init__(self):
            super().__init__()
            self.transformer = nn.Transformer(
                32, nhead=4, num_encoder_layers=2, num_decoder_layers=2, dim_feedforward=64, dropout=0.0,
                batch_first=True, activation="gelu",
            )
            self.register_buffer("causal", nn.Transformer.generate_square_subsequent_mask(6))

        def forward(self, source, target):
            return self.transformer(source, target, tgt_mask=self.causal, tgt_is_causal=False)

    return Model(Translate(), [(uniform(2, 9, 32), uniform(2, 6, 32)) for _ in range(2)])


class RmsNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5))


def rotate(x, angles):
    """Rotary position embedding of pairs of neighbouring elements; x is [batch, time, heads, width]."""
    even, odd = x[..., 0::2], x[..., 1::2]
    cosine, sine = angles.cos()[:, None], angles.sin()[:, None]
    return torch.stack([even * cosine - odd * sine, even * sine + odd * cosine], dim=-1).flatten(-2)


class LlamaBlock(nn.Module):
    """Grouped-query attention with rotary positions, then a gated feed-forward layer.

    With `cache`, keys and values of up to that many positions are kept in buffers, and a call adds those of its own
    positions, which `start` begins.
    """

    def __init__(self, width, heads, groups, cache=None):
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.query = nn.Linear(width, width, bias=False)
        self.key_value = nn.Linear(width, 2 * groups * self.size, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, 2 * width, bias=False), nn.Linear(width, 2 * width, bias=False)
        self.down = nn.Linear(2 * width, width, bias=False)
        self.attention_norm, self.ffn_norm = RmsNorm(width), RmsNorm(width)
        self.cached = cache is not None
        if self.cached:
            self.register_buffer("keys", torch.zeros(1, cache, groups, self.size))
            self.register_buffer("values", torch.zeros(1, cache, groups, self.size))

    def attend(self, x, positions, angles):
        batch, time, width = x.shape
        query = rotate(self.query(x).view(batch, time, self.heads, self.size), angles)
        key, value = self.key_value(x).view(batch, time, 2 * self.groups, self.size).chunk(2, dim=2)
        key = rotate(key, angles)
        seen = positions
        if self.cached:
            self.keys.index_copy_(1, positions, key)
            self.values.index_copy_(1, positions, value)
            key, value = self.keys, self.values
            seen = torch.arange(key.shape[1])
        key, value = (part.repeat_interleave(self.heads // self.groups, dim=2).transpose(1, 2) for part in (key, value))
        scores = query.transpose(1, 2) @ key.transpose(2, 3) / math.sqrt(self.size)
        scores = scores.masked_fill(seen[None] > positions[:, None], float("-inf"))
        return self.out((scores.softmax(-1) @ value).transpose(1, 2).reshape(batch, time, width))

    def forward(self, x, positions, angles):
        x = x + self.attend(self.attention_norm(x), positions, angles)
        normed = self.ffn_norm(x)
        return x + self.down(nn.functional.silu(self.gate(normed)) * self.up(normed))


class Llama(nn.Module):
    """A decoder over token ids [1, time]; with `cache`, `start` [1] is the position of the first of them."""

    def __init__(self, vocabulary=120, width=32, heads=4, groups=2, layers=2, cache=None):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList([LlamaBlock(width, heads, groups, cache) for _ in range(layers)])
        self.norm, self.head = RmsNorm(width), nn.Linear(width, vocabulary, bias=False)
        half = width // heads // 2
        self.register_buffer("frequencies", 10000.0 ** (-torch.arange(half) / half))

    def forward(self, ids, start=None):
        positions = torch.arange(ids.shape[1]) if start is None else start + torch.arange(ids.shape[1])
        angles = positions[:, None] * self.frequencies
        x = self.embedding(ids)
        for block in self.blocks:
            x = block(x, positions, angles)
        return self.head(self.norm(x))


@model
def llama_dynamic():
    """A sequence of dynamic length without a cache."""
    time = Dim("time", min=2, max=24)
    return Model(Llama(), [(tokens(120, 1, length),) for length in (7, 24, 2)], dynamic=({1: time},))


@model
def llama_kv_cache():
    """One token a call into a mutable key-value cache, and the usual constant methods."""
    constants = {"get_max_seq_len": 16, "get_vocab_size": 120, "use_kv_cache": True, "get_eos_ids": 2}
    calls = [(tokens(120, 1, 1), torch.tensor([step])) for step in range(6)]
    return Model(Llama(cache=16), calls, constants=constants)


@model
def llama_prefill():
    """A prompt of dynamic length into the cache, then single tokens, with one method."""
    time = Dim("time", min=1, max=8)
    calls = [(tokens(120, 1, length), torch.tensor([start])) for length, start in ((5, 0), (1, 5), (1, 6), (8, 7))]
    return Model(Llama(cache=16), calls, dynamic=({1: time}, None))


@model
def cross_attention():
    """Embeddings of two vocabularies attending to each other through nn.MultiheadAttention with a padding mask."""

    class Cross(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.labels = nn.Embedding(60, 24), nn.Embedding(9, 24)
            self.attention = nn.MultiheadAttention(24, 3, batch_first=True)

        def forward(self, words, labels, padding):
            keys = self.words(words)
            result, weights = self.attention(self.labels(labels), keys, keys, key_padding_mask=padding)
            return {"result": result, "weights": weights}

    padding = torch.tensor([[False] * 8, [False] * 5 + [True] * 3])
    return Model(Cross(), [(tokens(60, 2, 8), tokens(9, 2, 4), padding), (tokens(60, 2, 8), tokens(9, 2, 4), ~padding)])
