"""Encoders of text from transformers, at a fiftieth of their size."""

from huggingface import mask
from registry import tokens
from zoo import VOCABULARY, register

SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "max_position_embeddings": 40,
}
EMBEDDED = {**SIZES, "embedding_size": 32}
ROTARY = {**EMBEDDED, "rotary_value": False}
SHARED = {**SIZES, "pad_token_id": 1}
STREAMS = {"vocab_size": VOCABULARY, "d_model": 64, "n_layer": 2, "n_head": 4, "d_inner": 96}
LANGUAGES = {"vocab_size": VOCABULARY, "emb_dim": 64, "n_layers": 2, "n_heads": 4, "max_position_embeddings": 40}
CONSTANT = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 3, "sep_token_id": 4}
RELATIVE = {"relative_attention": True, "position_biased_input": False, "pos_att_type": ["p2c", "c2p"]}

ENCODERS = {
    "albert": ("AlbertModel", EMBEDDED),
    "bert": ("BertModel", SIZES),
    "bert_generation": ("BertGenerationEncoder", SIZES),
    "big_bird": ("BigBirdModel", SIZES | {"attention_type": "original_full"}),
    "big_bird_sparse": ("BigBirdModel", SIZES | {"attention_type": "block_sparse", "block_size": 2, "num_random_blocks": 1}),
    "camembert": ("CamembertModel", SHARED),
    "canine": ("CanineModel", {key: size for key, size in SIZES.items() if key != "vocab_size"} | {
        "num_hash_buckets": 97, "local_transformer_stride": 8, "max_position_embeddings": 64}),
    "convbert": ("ConvBertModel", EMBEDDED | {"head_ratio": 2}),
    "data2vec_text": ("Data2VecTextModel", SHARED),
    "deberta": ("DebertaModel", SIZES | RELATIVE),
    "deberta_v2": ("DebertaV2Model", SIZES | RELATIVE | {
        "position_buckets": 8, "share_att_key": True, "norm_rel_ebd": "layer_norm"}),
    "distilbert": ("DistilBertModel", {
        "vocab_size": VOCABULARY, "dim": 64, "n_layers": 2, "n_heads": 4, "hidden_dim": 96, "max_position_embeddings": 40}),
    "electra": ("ElectraModel", EMBEDDED),
    "ernie": ("ErnieModel", SIZES),
    "esm": ("EsmModel", SIZES | {"pad_token_id": 1, "mask_token_id": 5, "position_embedding_type": "rotary"}),
    "flaubert": ("FlaubertModel", LANGUAGES),
    "fnet": ("FNetModel", {key: size for key, size in SIZES.items() if key != "num_attention_heads"}),
    "funnel": ("FunnelModel", {
        "vocab_size": VOCABULARY, "d_model": 64, "n_head": 4, "d_head": 16, "d_inner": 96, "block_sizes": [1, 1, 1],
        "num_decoder_layers": 1}),
    "ibert": ("IBertModel", SHARED),
    "layoutlm": ("LayoutLMModel", SIZES | {"max_2d_position_embeddings": 32}),
    "lilt": ("LiltModel", SHARED | {"hidden_size": 96, "channel_shrink_ratio": 2, "max_2d_position_embeddings": 32}),
    "longformer": ("LongformerModel", SHARED | {"attention_window": [4, 4]}),
    "luke": ("LukeModel", SHARED | {"entity_vocab_size": 50, "entity_emb_size": 16}),
    "megatron_bert": ("MegatronBertModel", SIZES),
    "mobilebert": ("MobileBertModel", SIZES | {
        "embedding_size": 16, "intra_bottleneck_size": 32, "num_feedforward_networks": 2}),
    "modernbert": ("ModernBertModel", SIZES | CONSTANT | {
        "num_hidden_layers": 3, "global_attn_every_n_layers": 2, "local_attention": 8}),
    "mpnet": ("MPNetModel", SHARED),
    "mra": ("MraModel", SIZES),
    "rembert": ("RemBertModel", SIZES | {"input_embedding_size": 32, "output_embedding_size": 48}),
    "roberta": ("RobertaModel", SHARED),
    "roberta_prelayernorm": ("RobertaPreLayerNormModel", SHARED),
    "roformer": ("RoFormerModel", ROTARY),
    "splinter": ("SplinterModel", SIZES),
    "squeezebert": ("SqueezeBertModel", SIZES | {"embedding_size": 64}),
    "xlm": ("XLMModel", LANGUAGES),
    "xlm_roberta": ("XLMRobertaModel", SHARED),
    "xlm_roberta_xl": ("XLMRobertaXLModel", SHARED),
    "xlnet": ("XLNetModel", STREAMS),
    "xmod": ("XmodModel", SHARED | {"languages": ["en_XX"], "default_language": "en_XX", "adapter_reduction_factor": 2}),
    "yoso": ("YosoModel", SIZES | {"use_expectation": True}),
}  # fmt: skip


def sentences():
    """Two of them, the second of them shorter."""
    return tokens(VOCABULARY, 2, 16), mask(16, 9, width=16)


for name, (architecture, options) in ENCODERS.items():
    register(
        "encoder", f"transformers.{name}", architecture, ("input_ids", "attention_mask"), ("last_hidden_state",),
        sentences, options,
    )  # fmt: skip

# It has no mask where there are fewer landmarks than words.
register(
    "encoder", "transformers.nystromformer", "NystromformerModel", ("input_ids",), ("last_hidden_state",),
    lambda: (tokens(VOCABULARY, 2, 16),), SIZES | {"num_landmarks": 4, "segment_means_seq_len": 16},
)  # fmt: skip
