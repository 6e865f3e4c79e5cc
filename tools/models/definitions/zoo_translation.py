"""Encoder-decoders of text from transformers, at a fiftieth of their size."""

from huggingface import mask
from registry import tokens
from zoo import VOCABULARY, register

SIZES = {
    "vocab_size": VOCABULARY,
    "d_model": 64,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 96,
    "decoder_ffn_dim": 96,
    "max_position_embeddings": 40,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
    "use_cache": False,
}
RELATIVE = {
    "vocab_size": VOCABULARY, "d_model": 64, "d_kv": 16, "d_ff": 96, "num_layers": 2, "num_heads": 4, "use_cache": False,
    "decoder_start_token_id": 0,
}  # fmt: skip

TRANSLATORS = {
    "bart": ("BartForConditionalGeneration", SIZES),
    "blenderbot": ("BlenderbotForConditionalGeneration", SIZES),
    "blenderbot_small": ("BlenderbotSmallForConditionalGeneration", SIZES),
    "fsmt": ("FSMTForConditionalGeneration", {
        **SIZES, "langs": ["en", "de"], "src_vocab_size": VOCABULARY, "tgt_vocab_size": VOCABULARY}),
    "led": ("LEDForConditionalGeneration", SIZES | {
        "attention_window": [4, 4], "max_encoder_position_embeddings": 40, "max_decoder_position_embeddings": 40}),
    "longt5": ("LongT5ForConditionalGeneration", RELATIVE | {"local_radius": 3}),
    "m2m_100": ("M2M100ForConditionalGeneration", SIZES),
    "marian": ("MarianMTModel", SIZES),
    "mbart": ("MBartForConditionalGeneration", SIZES),
    "mt5": ("MT5ForConditionalGeneration", RELATIVE),
    "mvp": ("MvpForConditionalGeneration", SIZES),
    "pegasus": ("PegasusForConditionalGeneration", SIZES),
    "plbart": ("PLBartForConditionalGeneration", SIZES),
    "prophetnet": ("ProphetNetForConditionalGeneration", {
        "vocab_size": VOCABULARY, "hidden_size": 64, "encoder_ffn_dim": 96, "num_encoder_layers": 2,
        "num_encoder_attention_heads": 4, "decoder_ffn_dim": 96, "num_decoder_layers": 2, "num_decoder_attention_heads": 4,
        "max_position_embeddings": 40, "use_cache": False, "num_buckets": 8, "relative_max_distance": 16}),
    "switch_transformers": ("SwitchTransformersForConditionalGeneration", RELATIVE | {
        "num_experts": 2, "num_sparse_encoder_layers": 1, "num_sparse_decoder_layers": 1}),
    "t5": ("T5ForConditionalGeneration", RELATIVE),
    "umt5": ("UMT5ForConditionalGeneration", RELATIVE),
}  # fmt: skip


def pair():
    """Two sources, the second of them shorter, and the beginnings of their translations."""
    return tokens(VOCABULARY, 2, 12), mask(12, 7, width=12), tokens(VOCABULARY, 2, 6)


for name, (architecture, options) in TRANSLATORS.items():
    register(
        "encoder-decoder", f"transformers.{name}", architecture, ("input_ids", "attention_mask", "decoder_input_ids"),
        ("logits",), pair, options,
    )  # fmt: skip
