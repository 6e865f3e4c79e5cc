"""Encoder-decoder models from transformers: the whole network, and both halves as methods of one program."""

import transformers
from huggingface import Outputs, mask
from registry import Model, model, tokens, uniform
from torch import nn

SIZES = {
    "vocab_size": 200,
    "d_model": 32,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "max_position_embeddings": 32,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
    "use_cache": False,
    "init_std": 0.2,
}


def translator(network):
    """Called with sources of several lengths, and targets."""
    inputs = ("input_ids", "attention_mask", "decoder_input_ids")
    calls = [(tokens(200, 2, 9), mask(*lengths, width=9), tokens(200, 2, 6)) for lengths in ((9, 5), (2, 9))]
    return Model(Outputs(network, inputs, ("logits",)), calls)


def t5_config():
    return transformers.T5Config(
        vocab_size=200, d_model=32, d_kv=8, d_ff=64, num_layers=1, num_heads=4, dropout_rate=0.0, use_cache=False,
        decoder_start_token_id=0,
    )


@model
def t5():
    return translator(transformers.T5ForConditionalGeneration(t5_config()))


@model
def bart():
    config = transformers.BartConfig(**SIZES, attn_implementation="sdpa")
    return translator(transformers.BartForConditionalGeneration(config))


@model
def marian():
    """Sinusoidal positions, and a bias on the tied head."""
    config = transformers.MarianConfig(**SIZES, attn_implementation="eager")
    return translator(transformers.MarianMTModel(config))


@model
def t5_methods():
    """Encoder and decoder as methods that share the embedding."""

    class Encoder(nn.Module):
        def __init__(self, network):
            super().__init__()
            self.encoder = network.encoder

        def forward(self, ids):
            return self.encoder(input_ids=ids, return_dict=True).last_hidden_state

    class Decoder(nn.Module):
        def __init__(self, network):
            super().__init__()
            self.decoder, self.head = network.decoder, network.lm_head

        def forward(self, ids, states):
            decoded = self.decoder(input_ids=ids, encoder_hidden_states=states, use_cache=False, return_dict=True)
            return self.head(decoded.last_hidden_state)

    network = transformers.T5ForConditionalGeneration(t5_config())
    methods = {"encoder": Encoder(network), "decoder": Decoder(network)}
    calls = [("encoder", (tokens(200, 1, 8),)), ("decoder", (tokens(200, 1, 5), uniform(1, 8, 32)))]
    return Model(methods, 2 * calls)
