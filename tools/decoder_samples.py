"""Writes tests/decoders: tiny random decoders of each family that `rushlight compile` builds from a folder, and what
transformers computes.

For each family: the folder that `save_pretrained` writes, with weights in bf16, and `expected.json` in it with a prompt, the
logits after it and after the greedy tokens, and these, in f32. `caches.json` has for each type of KV cache logits after the
prompt and after the first of the greedy tokens: in f32, where attention sees keys and values as such a cache keeps them, and
how much these may be off:

- `error`: six standard deviations of the logit that is off most, if each element of keys and values is rounded by a step
  at most, uniformly and independently: `6 sqrt(sum((dlogit/dx * step)^2 / 12))`, from PyTorch's derivatives.
- `element`: the most that one element makes of a difference of one step, which it has where two computations of the same
  number lie on different sides of a half.

A step is that of a row's or a group's quantization, or the distance of the 16-bit floats around a number.

`long.json`, of two models with windows, has the logits after every 500th of 10,000 tokens, or of 2,000 where some layers have
no window. Token `i` is `3 + (i * i + i // 3) % 61`.
"""

import argparse
import copy
import json
import pathlib

import torch
import transformers

PROMPT, GREEDY = 7, 64
# Tokens after which caches are compared. Where a model goes on to repeat itself, rounding is not independent any more.
BEFORE_REPETITION = 24
SIZES = dict(
    vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=4, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=128, bos_token_id=1, eos_token_id=2, pad_token_id=0,
)


def rope(kind, **parameters):
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 10000.0, **parameters}}


LLAMA3 = rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32)
YARN = rope("yarn", factor=4.0, original_max_position_embeddings=32)
LONG = rope(
    "longrope", short_factor=[1.0 + 0.1 * i for i in range(3)], long_factor=[1.5 + 0.2 * i for i in range(3)],
    partial_rotary_factor=0.75,
)
GEMMA3_ROPE = {
    "rope_parameters": {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    }
}

DELTA_NET = dict(
    linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8, linear_value_head_dim=12,
    linear_conv_kernel_dim=4,
)

VISION = dict(
    depth=1, hidden_size=16, intermediate_size=16, num_heads=2, out_hidden_size=SIZES["hidden_size"],
    num_position_embeddings=16, patch_size=4,
)

# Models with long.json, by number of tokens, and the positions of their context.
LONG_SESSIONS, LONG_CONTEXT = {"gemma3": 2_000, "mistral-window": 10_000}, 16_384

# A name, the configuration's class, and settings.
MODELS = [
    ("llama", "LlamaConfig", {}),
    ("llama-3.2", "LlamaConfig", dict(tie_word_embeddings=True, head_dim=16, **LLAMA3)),
    ("llama-biases", "LlamaConfig", dict(attention_bias=True, mlp_bias=True, **rope("linear", factor=2.0))),
    ("mistral", "MistralConfig", dict(sliding_window=None, head_dim=12)),
    ("mistral-window", "MistralConfig", dict(sliding_window=5)),
    ("qwen2", "Qwen2Config", dict(tie_word_embeddings=True)),
    ("qwen2-window", "Qwen2Config", dict(use_sliding_window=True, sliding_window=6, max_window_layers=2)),
    ("qwen3", "Qwen3Config", dict(head_dim=16, **YARN)),
    ("phi3", "Phi3Config", dict(sliding_window=9)),
    ("phi4-mini", "Phi3Config", dict(tie_word_embeddings=True, original_max_position_embeddings=128,
                                     **{**LONG, "max_position_embeddings": 512})),
    ("gemma2", "Gemma2Config", dict(head_dim=8, query_pre_attn_scalar=8, sliding_window=6)),
    ("gemma3", "Gemma3TextConfig", dict(head_dim=8, query_pre_attn_scalar=24, sliding_window=6,
                                        layer_types=["sliding_attention"] * 2 + ["full_attention", "sliding_attention"],
                                        **GEMMA3_ROPE)),
    ("smollm2", "LlamaConfig", dict(tie_word_embeddings=True, num_attention_heads=8, num_key_value_heads=4)),
    ("smollm3", "SmolLM3Config", dict(no_rope_layer_interval=2)),
    ("olmo2", "Olmo2Config", {}),
    ("granite", "GraniteConfig", dict(embedding_multiplier=3.0, residual_multiplier=0.3, attention_multiplier=0.2,
                                      logits_scaling=4.0)),
    ("lfm2", "Lfm2Config", dict(layer_types=["conv", "full_attention", "conv", "full_attention"],
                                block_auto_adjust_ff_dim=False)),
    # Rows of two groups of an int4 cache.
    ("llama-wide", "LlamaConfig", dict(head_dim=64)),
    ("mixtral", "MixtralConfig", dict(num_local_experts=4, sliding_window=None)),
    ("qwen2-moe", "Qwen2MoeConfig", dict(num_experts=6, num_experts_per_tok=3, moe_intermediate_size=16,
                                         shared_expert_intermediate_size=24, decoder_sparse_step=2)),
    ("qwen3-moe", "Qwen3MoeConfig", dict(head_dim=16, num_experts=8, num_experts_per_tok=2, moe_intermediate_size=16,
                                         norm_topk_prob=True, mlp_only_layers=[1])),
    ("olmoe", "OlmoeConfig", dict(num_experts=4, num_experts_per_tok=2)),
    ("qwen3.5", "Qwen3_5TextConfig", dict(head_dim=16, tie_word_embeddings=True, **DELTA_NET)),
    # With images, whose part of the weights is left out.
    ("qwen3.5-images", "Qwen3_5Config", dict(text_config=dict(head_dim=16, **DELTA_NET), vision_config=VISION)),
    ("seed-oss", "SeedOssConfig", dict(attention_bias=True, head_dim=12)),
]


def model_of(kind, settings):
    """A model of numbers that bf16 holds. Norms and biases are random, too: those that are all ones would hide mistakes."""
    settings = copy.deepcopy(settings)
    if "text_config" in settings:
        config = getattr(transformers, kind)(**{**settings, "text_config": {**SIZES, **settings["text_config"]}})
    else:
        config = getattr(transformers, kind)(**{**SIZES, **settings})
    config._attn_implementation = "eager"
    of_config = transformers.AutoModelForImageTextToText if "text_config" in settings else transformers.AutoModelForCausalLM
    model = of_config.from_config(config).eval().float()
    with torch.no_grad():
        for parameter in model.parameters():
            numbers = torch.randn_like(parameter)
            if parameter.dim() == 1:
                numbers = parameter + 0.2 * numbers
            elif parameter.shape[0] == SIZES["vocab_size"]:
                numbers = 0.5 * numbers
            else:
                numbers = numbers * 0.6 / parameter.shape[-1] ** 0.5
            parameter.copy_(numbers.bfloat16())
    return model


def expected(model):
    tokens = torch.randint(3, SIZES["vocab_size"], (1, PROMPT))
    prompt = tokens.tolist()[0]
    with torch.no_grad():
        logits = [model(tokens).logits[0, -1].tolist()]
        greedy = []
        for _ in range(GREEDY):
            last = model(tokens).logits[0, -1]
            greedy.append(int(last.argmax()))
            tokens = torch.cat([tokens, last.argmax().reshape(1, 1)], 1)
        logits.append(model(tokens).logits[0, -1].tolist())
    return {"prompt": prompt, "logits": rounded(logits[0]), "greedy": greedy, "last": rounded(logits[1])}


# The record of each call of the attention below: differences to add to keys and values, and their steps.
TRACE = []


def int8_rows(x):
    """Rows as an int8 cache of ExecuTorch keeps them, and their steps."""
    ops = torch.ops.quantized_decomposed
    scales, zeros = ops.choose_qparams_per_token_asymmetric(x, torch.int8)
    quantized = ops.quantize_per_token(x, scales, zeros, -128, 127, torch.int8)
    return ops.dequantize_per_token(quantized, scales, zeros, -128, 127, torch.int8, torch.float32), scales.float()


def int4_rows(x):
    """Rows of 4 bits, with torchao's scale and zero point for each group of 32, or each row of another width; and their steps."""
    from torchao.quantization import quant_primitives as ops

    group = 32 if x.shape[-1] % 32 == 0 else x.shape[-1]
    blocks, kind = (1, 1, 1, group), dict(quant_min=0, quant_max=15)
    scales, zeros = ops.choose_qparams_affine(
        x, ops.MappingType.ASYMMETRIC, blocks, torch.uint8, zero_point_dtype=torch.int8, **kind
    )
    quantized = ops.quantize_affine(x, blocks, scales, zeros, torch.uint8, **kind)
    kept = ops.dequantize_affine(quantized, blocks, scales, zeros, torch.uint8, **kind)
    return kept, scales.reshape(*x.shape[:-1], -1).repeat_interleave(group, -1)


def rounded_rows(dtype):
    """Rows as floats of another type, and the distances of its numbers around each."""

    def rows(x):
        kept = x.to(dtype).float()
        # Subnormal numbers are as far apart as the smallest normal ones.
        exponents = torch.frexp(kept.abs().clamp(min=torch.finfo(dtype).tiny)).exponent
        return kept, torch.exp2(exponents.float()) * torch.finfo(dtype).eps / 2

    return rows


CACHES = {
    "f16": rounded_rows(torch.float16), "bf16": rounded_rows(torch.bfloat16), "int8": int8_rows, "int4": int4_rows,
}  # fmt: skip


def traced_attention(module, query, key, value, mask, scaling=None, softcap=None, **_):
    """Attention as in eager mode. Keys and values are those of a cache, or floats with differences to derive by."""
    rows = []
    for x in (key, value):
        kept, steps = CACHES[module.config.cache](x.detach())
        difference = torch.zeros_like(x, requires_grad=True)
        TRACE.append((difference, steps))
        rows.append(kept if module.config.is_cached else x + difference)
    key, value = (x.repeat_interleave(query.shape[1] // x.shape[1], 1) for x in rows)
    scores = query @ key.transpose(2, 3) * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    if mask is not None:
        scores = scores + mask[..., : key.shape[2]]
    return (torch.softmax(scores, -1) @ value).transpose(1, 2).contiguous(), None


def caches(model, sample):
    """What each type of cache makes of a sample's logits."""
    import torch.ao.quantization.fx._decomposed  # noqa: F401  the operators
    from transformers.masking_utils import AttentionMaskInterface, eager_mask

    transformers.AttentionInterface.register("traced", traced_attention)
    AttentionMaskInterface.register("traced", eager_mask)
    model.set_attn_implementation("traced")
    model.requires_grad_(False)
    return {cache: [of_cache(model, cache, sample, count) for count in (0, BEFORE_REPETITION)] for cache in CACHES}


def of_cache(model, cache, sample, count):
    """What a type of cache makes of the logits after a sample's prompt and some of the greedy tokens."""
    tokens = torch.tensor([sample["prompt"] + sample["greedy"][:count]])
    config = model.config.get_text_config()
    config.cache, config.is_cached = cache, True
    TRACE.clear()
    quantized = model(tokens, use_cache=False).logits[0, -1]
    config.is_cached = False
    TRACE.clear()
    logits = model(tokens, use_cache=False).logits[0, -1]
    if count == 0 and (off := (logits - torch.tensor(sample["logits"])).abs().max() / logits.abs().max()) > 1e-5:
        raise RuntimeError(f"traced attention is another one: {off}")
    differences, steps = [trace[0] for trace in TRACE], [trace[1] for trace in TRACE]
    errors, elements = [], []
    for logit in logits:
        slopes = torch.autograd.grad(logit, differences, retain_graph=True)
        moved = torch.cat([(slope * step).flatten() for slope, step in zip(slopes, steps)])
        errors.append(6 * (moved.square().sum() / 12).sqrt().item())
        elements.append(moved.abs().max().item())
    return {
        "greedy": count, "floats": rounded(logits.tolist()), "values": rounded(quantized.tolist()),
        "error": rounded([max(errors)])[0], "element": rounded([max(elements)])[0],
    }  # fmt: skip


def long_session(folder, count):
    """Logits after every 500th of `count` tokens."""
    config = transformers.AutoConfig.from_pretrained(folder)
    config.max_position_embeddings = LONG_CONTEXT
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, config=config, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    tokens = torch.tensor([[3 + (i * i + i // 3) % 61 for i in range(count)]])
    after = list(range(500, count + 1, 500))
    with torch.no_grad():
        logits = model(tokens, use_cache=False).logits[0]
    logits = [rounded(logits[number - 1].tolist()) for number in after]
    return {"tokens": count, "context": LONG_CONTEXT, "after": after, "logits": logits}


def rounded(numbers):
    return [round(number, 6) for number in numbers]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path(__file__).parent.parent / "tests/decoders")
    parser.add_argument("--caches", action="store_true", help="write caches.json alone, of the models that are there")
    parser.add_argument("--long", action="store_true", help="write long.json alone, of the models that are there")
    parser.add_argument("--only", nargs="*", help="names of models")
    arguments = parser.parse_args()
    for seed, (name, kind, settings) in enumerate(MODELS):
        if arguments.only and name not in arguments.only:
            continue
        folder = arguments.folder / name
        if arguments.long:
            if name in LONG_SESSIONS:
                (folder / "long.json").write_text(json.dumps(long_session(folder, LONG_SESSIONS[name])) + "\n")
            continue
        if arguments.caches:
            model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
            sample = json.loads((folder / "expected.json").read_text())
            (folder / "caches.json").write_text(json.dumps(caches(model, sample)) + "\n")
            continue
        torch.manual_seed(seed)
        model = model_of(kind, settings)
        # Buffers, such as RoPE's frequencies, stay floats.
        model.save_pretrained(folder, state_dict={key: value.bfloat16() for key, value in model.state_dict().items()})
        sample = expected(model)
        (folder / "expected.json").write_text(json.dumps(sample) + "\n")
        (folder / "caches.json").write_text(json.dumps(caches(model, sample)) + "\n")
        if name in LONG_SESSIONS:
            (folder / "long.json").write_text(json.dumps(long_session(folder, LONG_SESSIONS[name])) + "\n")


if __name__ == "__main__":
    main()
