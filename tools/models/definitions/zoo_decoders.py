"""Causal language models from transformers, at a fiftieth of their size."""

from registry import tokens
from zoo import VOCABULARY, register

SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 40,
    "use_cache": False,
}
WIDE = {**SIZES, "intermediate_size": 96}
GROUPED = {**WIDE, "num_key_value_heads": 2}
TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
GPT = {"vocab_size": VOCABULARY, "n_positions": 40, "n_embd": 64, "n_layer": 2, "n_head": 4, "use_cache": False}
EXPERTS = {**GROUPED, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48}
STATES = {"vocab_size": VOCABULARY, "hidden_size": 32, "state_size": 8, "num_hidden_layers": 2, "use_cache": False}
LATENT = {
    **WIDE, "num_key_value_heads": 4, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48,
    "first_k_dense_replace": 1, "n_group": 2, "topk_group": 1, "kv_lora_rank": 16, "q_lora_rank": 24, "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8, "v_head_dim": 16,
}  # fmt: skip

DECODERS = {
    "arcee": ("ArceeForCausalLM", GROUPED),
    "biogpt": ("BioGptForCausalLM", WIDE),
    "bloom": ("BloomForCausalLM", {
        "vocab_size": VOCABULARY, "hidden_size": 64, "n_layer": 2, "n_head": 4, "use_cache": False}),
    "codegen": ("CodeGenForCausalLM", GPT | {"n_ctx": 40, "rotary_dim": 8}),
    "cohere": ("CohereForCausalLM", GROUPED | TOKENS),
    "cohere2": ("Cohere2ForCausalLM", GROUPED | TOKENS | {"sliding_window": 6}),
    "ctrl": ("CTRLLMHeadModel", GPT | {"dff": 96}),
    "deepseek_v3": ("DeepseekV3ForCausalLM", LATENT | TOKENS),
    "falcon": ("FalconForCausalLM", SIZES),
    "gemma": ("GemmaForCausalLM", GROUPED | {"head_dim": 16}),
    "gemma2": ("Gemma2ForCausalLM", GROUPED | {"head_dim": 16, "sliding_window": 6}),
    "gemma3": ("Gemma3ForCausalLM", GROUPED | {
        "head_dim": 16, "sliding_window": 6, "layer_types": ["sliding_attention", "full_attention"]}),
    "glm": ("GlmForCausalLM", GROUPED | TOKENS | {"head_dim": 16}),
    "glm4": ("Glm4ForCausalLM", GROUPED | TOKENS | {"head_dim": 16}),
    "gpt2": ("GPT2LMHeadModel", GPT),
    "gpt_bigcode": ("GPTBigCodeForCausalLM", GPT),
    "gpt_neo": ("GPTNeoForCausalLM", {
        "vocab_size": VOCABULARY, "hidden_size": 64, "num_layers": 2, "num_heads": 4,
        "attention_types": [[["global", "local"], 1]], "max_position_embeddings": 40, "window_size": 6, "use_cache": False}),
    "gpt_neox": ("GPTNeoXForCausalLM", WIDE),
    "gptj": ("GPTJForCausalLM", GPT | {"rotary_dim": 8}),
    "granite": ("GraniteForCausalLM", GROUPED),
    "lfm2": ("Lfm2ForCausalLM", GROUPED | {"layer_types": ["conv", "full_attention"]}),
    "llama": ("LlamaForCausalLM", GROUPED),
    "mamba": ("MambaForCausalLM", STATES | {"time_step_rank": 8}),
    "mamba2": ("Mamba2ForCausalLM", STATES | {"num_heads": 4, "head_dim": 16, "n_groups": 2, "chunk_size": 8}),
    "mistral": ("MistralForCausalLM", GROUPED | {"sliding_window": 6}),
    "mixtral": ("MixtralForCausalLM", GROUPED | {"num_local_experts": 4}),
    "mpt": ("MptForCausalLM", {
        "vocab_size": VOCABULARY, "d_model": 64, "n_layers": 2, "n_heads": 4, "max_seq_len": 40, "use_cache": False}),
    "nemotron": ("NemotronForCausalLM", GROUPED),
    "olmo": ("OlmoForCausalLM", GROUPED),
    "olmo2": ("Olmo2ForCausalLM", GROUPED),
    "olmoe": ("OlmoeForCausalLM", GROUPED | {"num_experts": 4, "num_experts_per_tok": 2}),
    "openai_gpt": ("OpenAIGPTLMHeadModel", {key: size for key, size in GPT.items() if key != "use_cache"}),
    "opt": ("OPTForCausalLM", SIZES | {"ffn_dim": 96, "word_embed_proj_dim": 32}),
    "persimmon": ("PersimmonForCausalLM", WIDE),
    "phi": ("PhiForCausalLM", WIDE),
    "phi3": ("Phi3ForCausalLM", GROUPED | TOKENS),
    "qwen2": ("Qwen2ForCausalLM", GROUPED),
    "qwen2_moe": ("Qwen2MoeForCausalLM", EXPERTS | {"shared_expert_intermediate_size": 96}),
    "qwen3": ("Qwen3ForCausalLM", GROUPED | {"head_dim": 16}),
    "qwen3_moe": ("Qwen3MoeForCausalLM", EXPERTS | {"head_dim": 16}),
    "recurrent_gemma": ("RecurrentGemmaForCausalLM", GROUPED | {
        "num_hidden_layers": 3, "lru_width": 64, "attention_window_size": 8}),
    "rwkv": ("RwkvForCausalLM", {
        "vocab_size": VOCABULARY, "hidden_size": 64, "num_hidden_layers": 2, "attention_hidden_size": 64,
        "intermediate_size": 96, "context_length": 40, "use_cache": False, "rescale_every": 0}),
    "smollm3": ("SmolLM3ForCausalLM", GROUPED | TOKENS | {"no_rope_layer_interval": 2}),
    "stablelm": ("StableLmForCausalLM", GROUPED),
    "starcoder2": ("Starcoder2ForCausalLM", GROUPED),
    "xglm": ("XGLMForCausalLM", {
        "vocab_size": VOCABULARY, "d_model": 64, "ffn_dim": 96, "num_layers": 2, "attention_heads": 4,
        "max_position_embeddings": 40, "use_cache": False}),
}  # fmt: skip


for name, (architecture, options) in DECODERS.items():
    register(
        "decoder", f"transformers.{name}", architecture, ("input_ids",), ("logits",),
        lambda: (tokens(VOCABULARY, 1, 16),), options,
    )  # fmt: skip
