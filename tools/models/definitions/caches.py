"""Language models from transformers as their default configuration exports them: with caches that begin empty and are returned."""

import transformers
from huggingface import SMALL, Outputs
from registry import Model, model, tokens
from torch import nn

SIZES = {"vocab_size": 200, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 32}
GROUPED = {**SIZES, "num_key_value_heads": 2, "intermediate_size": 64}
EXPERTS = {**GROUPED, "num_experts_per_tok": 2, **SMALL}


class Causal(nn.Module):
    """Logits alone: the cache is made, written and read inside."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, ids):
        return self.network(input_ids=ids).logits


def cached(network, time=9):
    return Model(Causal(network), [(tokens(200, 1, time),) for _ in range(2)], beyond_wheel=True)


@model
def llama_cache():
    return cached(transformers.LlamaForCausalLM(transformers.LlamaConfig(**GROUPED, **SMALL)))


@model
def gpt2_cache():
    config = transformers.GPT2Config(vocab_size=200, n_embd=32, n_layer=2, n_head=4, n_positions=32, **SMALL)
    return cached(transformers.GPT2LMHeadModel(config))


@model
def falcon_cache():
    return cached(transformers.FalconForCausalLM(transformers.FalconConfig(**SIZES, **SMALL)))


@model
def opt_cache():
    config = transformers.OPTConfig(
        vocab_size=200, hidden_size=32, ffn_dim=64, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=32,
        word_embed_proj_dim=32, init_std=0.2,
    )
    return cached(transformers.OPTForCausalLM(config))


@model
def bart_cache():
    """A cache of the decoder's own keys, and one of those of the encoder."""
    config = transformers.BartConfig(
        vocab_size=200, d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=4, decoder_attention_heads=4,
        encoder_ffn_dim=64, decoder_ffn_dim=64, max_position_embeddings=32, init_std=0.2,
    )
    inputs = ("input_ids", "decoder_input_ids")
    network = Outputs(transformers.BartForConditionalGeneration(config), inputs, ("logits",))
    return Model(network, [(tokens(200, 1, 9), tokens(200, 1, 6)) for _ in range(2)], beyond_wheel=True)


@model
def mixtral():
    """Experts that are chosen for each token: grouped matrix products over sorted rows."""
    config = transformers.MixtralConfig(**EXPERTS, num_local_experts=4)
    return cached(transformers.MixtralForCausalLM(config))


@model
def qwen2_moe():
    """Experts beside one that all tokens see."""
    config = transformers.Qwen2MoeConfig(
        **EXPERTS, num_experts=4, moe_intermediate_size=16, shared_expert_intermediate_size=32, decoder_sparse_step=1
    )
    return cached(transformers.Qwen2MoeForCausalLM(config))


@model
def qwen3_moe():
    config = transformers.Qwen3MoeConfig(**EXPERTS, head_dim=8, num_experts=8, moe_intermediate_size=16)
    return cached(transformers.Qwen3MoeForCausalLM(config))


@model
def olmoe():
    config = transformers.OlmoeConfig(**EXPERTS, num_experts=4)
    return cached(transformers.OlmoeForCausalLM(config))


@model
def gpt_oss():
    """Experts with biases and bounded gates, and attention with sinks."""
    config = transformers.GptOssConfig(**EXPERTS, head_dim=8, num_local_experts=4, sliding_window=4)
    return cached(transformers.GptOssForCausalLM(config))


@model
def deepseek_v3():
    """Latent attention, and experts that are chosen in groups."""
    config = transformers.DeepseekV3Config(
        vocab_size=200, hidden_size=32, intermediate_size=64, moe_intermediate_size=16, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=4, n_routed_experts=8, n_group=2, topk_group=1, num_experts_per_tok=2, first_k_dense_replace=1,
        kv_lora_rank=16, q_lora_rank=24, qk_rope_head_dim=8, qk_nope_head_dim=8, v_head_dim=8, max_position_embeddings=32, **SMALL,
    )  # fmt: skip
    return cached(transformers.DeepseekV3ForCausalLM(config))
