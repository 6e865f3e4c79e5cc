"""Causal language models from transformers: one whole sequence, and single steps with a static cache."""

import torch
import transformers
from huggingface import FUSED, SMALL, decoder
from registry import Model, model, tokens
from torch import nn
from transformers.integrations.executorch import TorchExportableModuleWithStaticCache

SIZES = {
    "vocab_size": 200,
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "max_position_embeddings": 32,
    "use_cache": False,
}
GROUPED = {**SIZES, "num_key_value_heads": 2, "intermediate_size": 64}
ALTERNATING = {**GROUPED, "num_hidden_layers": 2}


@model
def qwen2():
    return decoder(transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**GROUPED, **FUSED)))


@model
def qwen2_gradients():
    """Rotary positions that are computed without gradients, among weights that have them."""
    network = decoder(transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**GROUPED, **SMALL)))
    network.gradients = True
    return network


@model
def qwen3():
    """Normalised queries and keys, and a tied head."""
    config = transformers.Qwen3Config(**GROUPED, head_dim=8, tie_word_embeddings=True, **SMALL)
    return decoder(transformers.Qwen3ForCausalLM(config))


@model
def gemma():
    config = transformers.GemmaConfig(**GROUPED, head_dim=8, **FUSED)
    return decoder(transformers.GemmaForCausalLM(config))


@model
def gemma2():
    """Capped logits, and a sliding window in every other layer."""
    config = transformers.Gemma2Config(**ALTERNATING, head_dim=8, sliding_window=4, **SMALL)
    return decoder(transformers.Gemma2ForCausalLM(config))


@model
def gemma3():
    config = transformers.Gemma3TextConfig(
        **ALTERNATING, head_dim=8, sliding_window=4, layer_types=["sliding_attention", "full_attention"], **FUSED
    )
    return decoder(transformers.Gemma3ForCausalLM(config))


@model
def phi():
    config = transformers.PhiConfig(**SIZES, intermediate_size=64, **FUSED)
    return decoder(transformers.PhiForCausalLM(config))


@model
def phi3():
    config = transformers.Phi3Config(**GROUPED, pad_token_id=0, bos_token_id=1, eos_token_id=2, **SMALL)
    return decoder(transformers.Phi3ForCausalLM(config))


@model
def opt():
    config = transformers.OPTConfig(
        **SIZES, ffn_dim=64, word_embed_proj_dim=16, init_std=0.2, pad_token_id=1, attn_implementation="eager"
    )
    return decoder(transformers.OPTForCausalLM(config))


@model
def mistral():
    config = transformers.MistralConfig(**GROUPED, sliding_window=5, **FUSED)
    return decoder(transformers.MistralForCausalLM(config))


@model
def gpt_neox():
    config = transformers.GPTNeoXConfig(**SIZES, intermediate_size=64, **SMALL)
    return decoder(transformers.GPTNeoXForCausalLM(config))


@model
def gptj():
    config = transformers.GPTJConfig(
        vocab_size=200, n_positions=32, n_embd=32, n_layer=1, n_head=4, rotary_dim=4, use_cache=False, **SMALL
    )
    return decoder(transformers.GPTJForCausalLM(config))


@model
def bloom():
    """Positions by a slope on the scores."""
    config = transformers.BloomConfig(
        vocab_size=200, hidden_size=32, n_layer=2, n_head=4, use_cache=False, initializer_range=0.2
    )
    return decoder(transformers.BloomForCausalLM(config))


@model
def falcon():
    config = transformers.FalconConfig(
        vocab_size=200, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, use_cache=False, **SMALL
    )
    return decoder(transformers.FalconForCausalLM(config))


@model
def olmo2():
    return decoder(transformers.Olmo2ForCausalLM(transformers.Olmo2Config(**GROUPED, **FUSED)))


@model
def cohere():
    return decoder(transformers.CohereForCausalLM(transformers.CohereConfig(**GROUPED, **SMALL)))


@model
def mamba():
    """A selective state space, scanned by a loop over time."""
    config = transformers.MambaConfig(
        vocab_size=200, hidden_size=16, state_size=4, num_hidden_layers=1, expand=2, conv_kernel=4, time_step_rank=4,
        use_cache=False, initializer_range=0.2,
    )
    return decoder(transformers.MambaForCausalLM(config), time=5)


class Step(nn.Module):
    """One token a call into a static key-value cache; `position` is its place."""

    def __init__(self, network, length):
        super().__init__()
        self.network = TorchExportableModuleWithStaticCache(network, batch_size=1, max_cache_len=length)

    def forward(self, ids, position):
        return self.network(input_ids=ids, cache_position=position)


def stepping(architecture, config, length=16):
    config.use_cache = True
    cache = {"batch_size": 1, "max_cache_len": length}
    network = architecture(config)
    network.generation_config = transformers.GenerationConfig(
        use_cache=True, cache_implementation="static", max_length=length, cache_config=cache
    )
    calls = [(tokens(200, 1, 1), torch.tensor([step])) for step in range(5)]
    return Model(Step(network, length), calls, strict=True)


@model
def llama_static_cache():
    return stepping(transformers.LlamaForCausalLM, transformers.LlamaConfig(**GROUPED, **FUSED))


@model
def qwen3_static_cache():
    return stepping(transformers.Qwen3ForCausalLM, transformers.Qwen3Config(**GROUPED, head_dim=8, **FUSED))


@model
def smollm3_static_cache():
    """No positions at all in every other layer."""
    config = transformers.SmolLM3Config(**ALTERNATING, no_rope_layer_interval=2, pad_token_id=0, **SMALL)
    return stepping(transformers.SmolLM3ForCausalLM, config)
