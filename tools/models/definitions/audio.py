"""Speech models from transformers, on short signals and spectrograms."""

import transformers
from huggingface import FUSED, SMALL, Outputs
from registry import Model, model, tokens, uniform

CONVOLUTIONS = {
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "conv_dim": [16, 16, 16],
    "conv_stride": [5, 4, 2],
    "conv_kernel": [10, 8, 4],
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
    "num_feat_extract_layers": 3,
    "vocab_size": 32,
}


def listener(network, fields=("last_hidden_state",)):
    """A network over a signal."""
    return Model(Outputs(network, ("input_values",), fields), [(uniform(1, 1600),), (uniform(1, 1600),)])


@model
def wav2vec2():
    config = transformers.Wav2Vec2Config(**CONVOLUTIONS, **SMALL)
    return listener(transformers.Wav2Vec2ForCTC(config), ("logits",))


@model
def hubert():
    config = transformers.HubertConfig(**CONVOLUTIONS, feat_extract_norm="layer", do_stable_layer_norm=True, **FUSED)
    return listener(transformers.HubertModel(config))


@model
def conformer():
    """Convolution and attention with relative positions in every layer."""
    config = transformers.Wav2Vec2ConformerConfig(
        **CONVOLUTIONS, position_embeddings_type="relative", conv_depthwise_kernel_size=7, max_source_positions=64,
        initializer_range=0.2,
    )
    return listener(transformers.Wav2Vec2ConformerModel(config))


@model
def wavlm():
    """Gated relative positions, by buckets."""
    config = transformers.WavLMConfig(**CONVOLUTIONS, num_buckets=16, max_bucket_distance=32, initializer_range=0.2)
    return listener(transformers.WavLMModel(config))


@model
def sew():
    """A squeezed sequence: pooled before the transformer, spread again after it."""
    config = transformers.SEWConfig(**CONVOLUTIONS, squeeze_factor=2, **SMALL)
    return listener(transformers.SEWModel(config))


@model
def audio_spectrogram():
    """Patches of a spectrogram."""
    config = transformers.ASTConfig(
        hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=64, patch_size=8,
        frequency_stride=6, time_stride=6, max_length=64, num_mel_bins=32, **FUSED,
    )
    network = Outputs(transformers.ASTForAudioClassification(config), ("input_values",), ("logits",))
    return Model(network, [(uniform(1, 64, 32),), (uniform(1, 64, 32),)])


def whisper_config(attention="sdpa"):
    return transformers.WhisperConfig(
        vocab_size=200, d_model=32, encoder_layers=1, encoder_attention_heads=4, encoder_ffn_dim=64, decoder_layers=1,
        decoder_attention_heads=4, decoder_ffn_dim=64, num_mel_bins=20, max_source_positions=25,
        max_target_positions=16, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1, init_std=0.2,
        use_cache=False, attn_implementation=attention,
    )


@model
def whisper():
    """From the spectrogram and the words so far to the logits of the next."""
    inputs = ("input_features", "decoder_input_ids")
    network = Outputs(transformers.WhisperForConditionalGeneration(whisper_config()), inputs, ("logits",))
    return Model(network, [(uniform(1, 20, 50), tokens(200, 1, 6)) for _ in range(2)])


@model
def whisper_decoder():
    """The decoder on the encoder's result."""
    decoder = transformers.WhisperModel(whisper_config("eager")).decoder
    network = Outputs(decoder, ("input_ids", "encoder_hidden_states"), ("last_hidden_state",))
    return Model(network, [(tokens(200, 1, 6), uniform(1, 25, 32)) for _ in range(2)])
