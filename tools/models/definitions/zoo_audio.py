"""Models of speech and sound from transformers, at a fiftieth of their size."""

from registry import tokens, uniform
from zoo import VOCABULARY, register

SIZES = {
    "vocab_size": 32,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 96,
}
CONVOLUTIONS = {
    **SIZES, "conv_dim": [32, 32, 32], "conv_stride": [5, 4, 2], "conv_kernel": [10, 8, 4], "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4, "num_feat_extract_layers": 3,
}  # fmt: skip
STABLE = CONVOLUTIONS | {"feat_extract_norm": "layer", "do_stable_layer_norm": True}
SEQUENCES = {
    "vocab_size": VOCABULARY, "d_model": 64, "encoder_layers": 2, "encoder_attention_heads": 4, "encoder_ffn_dim": 96,
    "decoder_layers": 2, "decoder_attention_heads": 4, "decoder_ffn_dim": 96, "use_cache": False, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1, "max_target_positions": 16,
}  # fmt: skip

# Networks over a signal.
LISTENERS = {
    "data2vec_audio": ("Data2VecAudioForCTC", CONVOLUTIONS | {"conv_pos_kernel_size": 7}),
    "hubert": ("HubertForCTC", STABLE),
    "sew": ("SEWForCTC", CONVOLUTIONS | {"squeeze_factor": 2}),
    "sew_d": ("SEWDForCTC", CONVOLUTIONS | {
        "squeeze_factor": 2, "position_buckets": 16, "max_position_embeddings": 32}),
    "unispeech": ("UniSpeechForCTC", CONVOLUTIONS | {"num_ctc_classes": 32}),
    "unispeech_sat": ("UniSpeechSatForCTC", CONVOLUTIONS),
    "wav2vec2": ("Wav2Vec2ForCTC", CONVOLUTIONS),
    "wav2vec2_conformer": ("Wav2Vec2ConformerForCTC", CONVOLUTIONS | {
        "position_embeddings_type": "relative", "conv_depthwise_kernel_size": 7, "max_source_positions": 64}),
    "wavlm": ("WavLMForCTC", CONVOLUTIONS | {"num_buckets": 16, "max_bucket_distance": 32}),
}  # fmt: skip

for name, (architecture, options) in LISTENERS.items():
    register(
        "audio", f"transformers.{name}", architecture, ("input_values",), ("logits",), lambda: (uniform(1, 1600),), options
    )

register(
    "audio", "transformers.wav2vec2_bert", "Wav2Vec2BertForCTC", ("input_features",), ("logits",),
    lambda: (uniform(1, 24, 32),),
    SIZES | {"feature_projection_input_dim": 32, "conv_depthwise_kernel_size": 7, "left_max_position_embeddings": 8},
)  # fmt: skip
register(
    "audio", "transformers.ast", "ASTForAudioClassification", ("input_values",), ("logits",), lambda: (uniform(1, 64, 32),),
    {key: size for key, size in SIZES.items() if key != "vocab_size"} | {
        "patch_size": 8, "frequency_stride": 6, "time_stride": 6, "max_length": 64, "num_mel_bins": 32},
)  # fmt: skip
register(
    "audio", "transformers.whisper", "WhisperForConditionalGeneration", ("input_features", "decoder_input_ids"), ("logits",),
    lambda: (uniform(1, 20, 50), tokens(VOCABULARY, 1, 6)), SEQUENCES | {"num_mel_bins": 20, "max_source_positions": 25},
)  # fmt: skip
register(
    "audio", "transformers.speech_to_text", "Speech2TextForConditionalGeneration", ("input_features", "decoder_input_ids"),
    ("logits",), lambda: (uniform(1, 48, 20), tokens(VOCABULARY, 1, 6)),
    SEQUENCES | {"input_feat_per_channel": 20, "conv_channels": 32, "max_source_positions": 48},
)  # fmt: skip
register(
    "audio", "transformers.moonshine", "MoonshineForConditionalGeneration", ("input_values", "decoder_input_ids"),
    ("logits",), lambda: (uniform(1, 4000), tokens(VOCABULARY, 1, 6)),
    {
        "vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 96, "encoder_num_hidden_layers": 2,
        "decoder_num_hidden_layers": 2, "encoder_num_attention_heads": 4, "decoder_num_attention_heads": 4, "use_cache": False,
    },
)  # fmt: skip
register(
    "audio", "transformers.speecht5", "SpeechT5ForSpeechToText", ("input_values", "decoder_input_ids"), ("logits",),
    lambda: (uniform(1, 1600), tokens(VOCABULARY, 1, 6)),
    {key: size for key, size in CONVOLUTIONS.items() if key == "hidden_size" or key not in SIZES} | {
        "vocab_size": VOCABULARY, "encoder_layers": 2, "encoder_attention_heads": 4, "encoder_ffn_dim": 96,
        "decoder_layers": 2, "decoder_attention_heads": 4, "decoder_ffn_dim": 96, "positional_dropout": 0.0,
        "use_cache": False, "max_speech_positions": 64, "max_text_positions": 32, "encoder_max_relative_position": 16},
)  # fmt: skip
register(
    "audio", "transformers.encodec", "EncodecModel", ("input_values",), ("audio_values",), lambda: (uniform(1, 1, 640),),
    {"num_filters": 8, "upsampling_ratios": [4, 2], "hidden_size": 32, "codebook_size": 64, "codebook_dim": 32,
     "num_lstm_layers": 1, "target_bandwidths": [24.0], "use_causal_conv": True},
)  # fmt: skip
register(
    "audio", "transformers.mimi", "MimiModel", ("input_values",), ("audio_values",), lambda: (uniform(1, 1, 1920),),
    SIZES | {"num_filters": 8, "upsampling_ratios": [4, 2], "codebook_size": 64, "codebook_dim": 32, "num_quantizers": 4,
             "vector_quantization_hidden_dimension": 32, "upsample_groups": 64, "num_key_value_heads": 4, "head_dim": 16,
             "use_cache": False},
)  # fmt: skip
register(
    "audio", "transformers.dac", "DacModel", ("input_values",), ("audio_values",), lambda: (uniform(1, 1, 512),),
    {"encoder_hidden_size": 16, "downsampling_ratios": [2, 4], "decoder_hidden_size": 64, "n_codebooks": 3,
     "codebook_size": 64, "codebook_dim": 8},
)  # fmt: skip
# Without noise, as eager PyTorch draws other numbers.
register(
    "audio", "transformers.vits", "VitsModel", ("input_ids",), ("waveform",), lambda: (tokens(38, 1, 12),),
    SIZES | {"vocab_size": 38, "ffn_dim": 96, "flow_size": 32, "spectrogram_bins": 33, "upsample_initial_channel": 32,
             "noise_scale": 0.0, "noise_scale_duration": 0.0},
)  # fmt: skip
register(
    "audio", "transformers.clap_audio", "ClapAudioModel", ("input_features",), ("last_hidden_state", "pooler_output"),
    lambda: (uniform(1, 1, 64, 16),),
    {"spec_size": 64, "patch_size": 4, "patch_stride": [4, 4], "num_mel_bins": 16, "window_size": 4, "depths": [1, 1],
     "num_attention_heads": [2, 4], "hidden_size": 64, "patch_embeds_hidden_size": 32, "enable_fusion": False},
)  # fmt: skip
