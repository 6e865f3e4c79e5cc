"""Text encoders from transformers beyond those of `text`."""

import transformers
from huggingface import FUSED, SMALL, encoder
from registry import model

SIZES = {
    "vocab_size": 200,
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 32,
}


@model
def roberta():
    config = transformers.RobertaConfig(**SIZES, **FUSED)
    return encoder(transformers.RobertaForSequenceClassification(config), ("logits",))


@model
def albert():
    """One layer's weights used twice."""
    config = transformers.AlbertConfig(**{**SIZES, "num_hidden_layers": 2}, embedding_size=16, **FUSED)
    return encoder(transformers.AlbertModel(config), ("last_hidden_state", "pooler_output"))


@model
def electra():
    config = transformers.ElectraConfig(**SIZES, embedding_size=16, **SMALL)
    return encoder(transformers.ElectraForPreTraining(config), ("logits",))


@model
def mpnet():
    return encoder(transformers.MPNetModel(transformers.MPNetConfig(**SIZES, initializer_range=0.2)))


@model
def deberta():
    """Attention by content and by position, disentangled."""
    config = transformers.DebertaV2Config(
        **SIZES, relative_attention=True, position_buckets=8, pos_att_type=["p2c", "c2p"], initializer_range=0.2
    )
    return encoder(transformers.DebertaV2Model(config))


@model
def mobilebert():
    config = transformers.MobileBertConfig(
        vocab_size=200, hidden_size=32, embedding_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=32, intra_bottleneck_size=16, num_feedforward_networks=2, max_position_embeddings=32, **SMALL,
    )
    return encoder(transformers.MobileBertModel(config))


@model
def modernbert():
    """Rotary positions, and attention to a window in all layers but the first."""
    config = transformers.ModernBertConfig(
        **{**SIZES, "num_hidden_layers": 2}, pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1,
        sep_token_id=2, local_attention=4,
        global_attn_every_n_layers=2, **FUSED,
    )
    return encoder(transformers.ModernBertModel(config))


@model
def squeezebert():
    """Grouped one-dimensional convolutions for the products of the attention."""
    config = transformers.SqueezeBertConfig(**SIZES, embedding_size=32, initializer_range=0.2)
    return encoder(transformers.SqueezeBertModel(config))


@model
def fnet():
    """Fourier transforms in the place of attention, as products with their matrices."""
    config = transformers.FNetConfig(
        vocab_size=200, hidden_size=32, num_hidden_layers=1, intermediate_size=64, max_position_embeddings=32,
        use_tpu_fourier_optimizations=True, tpu_short_seq_length=12, initializer_range=0.2,
    )
    network = encoder(transformers.FNetModel(config))
    network.beyond_core = True
    network.methods["forward"].inputs = ("input_ids",)
    network.calls = [(method, args[:1]) for method, args in network.calls]
    return network


@model
def gpt_bert():
    """A causal encoder: BERT as a decoder, with a language head."""
    config = transformers.BertConfig(**SIZES, is_decoder=True, use_cache=False, **FUSED)
    return encoder(transformers.BertLMHeadModel(config), ("logits",))
