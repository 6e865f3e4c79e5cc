"""What the models from Hugging Face's transformers share: small weights, named inputs and results."""

import torch
from registry import Model, tokens
from torch import nn

# The usual initial weights (0.02) make attention so even and activations so small that errors in them would not show.
# The eager attention is plain matrix products and a softmax; the other is one scaled_dot_product_attention.
SMALL = {"attn_implementation": "eager", "initializer_range": 0.2}
FUSED = {"attn_implementation": "sdpa", "initializer_range": 0.2}


class Outputs(nn.Module):
    """Calls a Hugging Face model by keyword and returns the named fields of its result as a tuple."""

    def __init__(self, network, inputs, fields):
        super().__init__()
        self.network, self.inputs, self.fields = network, inputs, fields

    def forward(self, *values):
        results = self.network(**dict(zip(self.inputs, values)), return_dict=True)
        return tuple(getattr(results, name) for name in self.fields)


def mask(*lengths, width):
    """An attention mask of ones up to each length."""
    return (torch.arange(width)[None] < torch.tensor(lengths)[:, None]).long()


def encoder(network, fields=("last_hidden_state",), vocabulary=200):
    """A network over token ids and a mask, called with two batches of sentences of several lengths."""
    calls = [(tokens(vocabulary, 2, 12), mask(*lengths, width=12)) for lengths in ((12, 7), (1, 12))]
    return Model(Outputs(network, ("input_ids", "attention_mask"), fields), calls)


def decoder(network, vocabulary=200, time=12):
    """A causal language network over token ids, without a cache."""
    calls = [(tokens(vocabulary, 1, time),) for _ in range(2)]
    return Model(Outputs(network, ("input_ids",), ("logits",)), calls)
