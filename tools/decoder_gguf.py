"""Writes `model.gguf` beside the checkpoints of tests/decoders, with the names, metadata and order of rows that llama.cpp's
converter gives them. Needs gguf==0.19.0, and no PyTorch. With --blocks it prints blocks of each format with their values."""

import argparse
import json
import pathlib
import struct
import sys

import gguf
import numpy

NAMES = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "model.embedding_norm": "token_embd_norm",
    "lm_head": "output", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.qkv_proj": "attn_qkv", "self_attn.o_proj": "attn_output", "self_attn.out_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "self_attn.q_layernorm": "attn_q_norm",
    "self_attn.k_layernorm": "attn_k_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.gate_up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "feed_forward.w1": "ffn_gate",
    "feed_forward.w3": "ffn_up", "feed_forward.w2": "ffn_down", "input_layernorm": "attn_norm",
    "operator_norm": "attn_norm", "ffn_norm": "ffn_norm", "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm", "conv.conv": "shortconv.conv", "conv.in_proj": "shortconv.in_proj",
    "conv.out_proj": "shortconv.out_proj", "block_sparse_moe.gate": "ffn_gate_inp", "mlp.gate": "ffn_gate_inp",
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp", "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp", "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    "block_sparse_moe.experts.w1": "ffn_gate_exps", "block_sparse_moe.experts.w3": "ffn_up_exps",
    "block_sparse_moe.experts.w2": "ffn_down_exps", "mlp.experts.gate_proj": "ffn_gate_exps",
    "mlp.experts.up_proj": "ffn_up_exps", "mlp.experts.down_proj": "ffn_down_exps",
}
ARCHITECTURES = {
    "mistral": "llama", "gemma3_text": "gemma3", "mixtral": "llama", "qwen2_moe": "qwen2moe", "qwen3_moe": "qwen3moe",
}
PAIRED = {"llama", "granite", "smollm3"}
# Models whose settings the files cannot say, or llama.cpp reads otherwise.
LEFT_OUT = {"mistral-window", "qwen2-window", "smollm3", "gemma3"}


def tensors_of(path):
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    for name, info in header.items():
        if name == "__metadata__":
            continue
        start, end = (8 + length + offset for offset in info["data_offsets"])
        assert info["dtype"] == "BF16"
        raw = numpy.frombuffer(data[start:end], numpy.uint16).astype(numpy.uint32) << 16
        yield name, raw.view(numpy.float32).reshape(info["shape"])


def with_stacked_experts(tensors):
    """Tensors with the matrices of all experts as one of three dimensions, in the order of their numbers."""
    stacks = {}
    for name, weight in tensors:
        head, is_expert, tail = name.partition(".experts.")
        if is_expert:
            number, layer = tail.split(".", 1)
            stacks.setdefault(f"{head}.experts.{layer}", {})[int(number)] = weight
        else:
            yield name, weight
    for name, parts in stacks.items():
        yield name, numpy.stack([parts[number] for number in range(len(parts))])


def paired(weight, heads):
    return weight.reshape(heads, 2, -1, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


def gguf_name(name, architecture):
    module, part = name.rsplit(".", 1)
    prefix = ""
    if module.startswith("model.layers."):
        layer, module = module.removeprefix("model.layers.").split(".", 1)
        prefix = f"blk.{layer}."
        if module == "post_attention_layernorm":
            sandwiched = architecture in ("gemma2", "gemma3", "olmo2")
            return f"{prefix}{'post_attention_norm' if sandwiched else 'ffn_norm'}.{part}"
    return f"{prefix}{NAMES[module]}.{part}"


def bf16(weight):
    return gguf.quants.quantize(weight, gguf.GGMLQuantizationType.BF16)


def described(path, config, architecture):
    """A writer of a file with the metadata of a model."""
    writer = gguf.GGUFWriter(path, architecture)
    heads, kv = config["num_attention_heads"], config["num_key_value_heads"]
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_head_count(heads)
    kinds = config.get("layer_types") or []
    if "conv" in kinds:
        writer.add_head_count_kv([0 if kind == "conv" else kv for kind in kinds])
        writer.add_uint32(f"{architecture}.shortconv.l_cache", config["conv_L_cache"])
    else:
        writer.add_head_count_kv(kv)
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_layer_norm_rms_eps(config.get("rms_norm_eps", config.get("norm_eps")))
    rope = config["rope_parameters"]
    rope = rope.get("full_attention", rope)
    writer.add_rope_freq_base(rope["rope_theta"])
    columns = int(head_dim * rope.get("partial_rotary_factor", 1.0))
    writer.add_rope_dimension_count(columns)
    match rope["rope_type"]:
        case "linear" | "yarn" as kind:
            writer.add_rope_scaling_type(gguf.RopeScalingType(kind))
            writer.add_rope_scaling_factor(rope["factor"])
            if kind == "yarn":
                writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        case "llama3":
            exponents = numpy.arange(0, columns, 2, dtype=numpy.float32) / columns
            waves = 2 * numpy.pi * rope["rope_theta"] ** exponents
            low = rope["original_max_position_embeddings"] / rope["low_freq_factor"]
            high = rope["original_max_position_embeddings"] / rope["high_freq_factor"]
            smooth = (rope["original_max_position_embeddings"] / waves - rope["low_freq_factor"]) / (
                rope["high_freq_factor"] - rope["low_freq_factor"]
            )
            factors = numpy.where(waves < high, 1.0, numpy.where(waves > low, rope["factor"], 1 / ((1 - smooth) / rope["factor"] + smooth)))
            writer.add_tensor("rope_freqs.weight", factors.astype(numpy.float32))
        case "longrope":
            writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
            for kind in ("long", "short"):
                factors = numpy.array(rope[f"{kind}_factor"], numpy.float32)
                writer.add_tensor(f"rope_factors_{kind}.weight", factors)
    if architecture.startswith("gemma") and config.get("sliding_window"):
        writer.add_sliding_window(config["sliding_window"])
    if architecture == "phi3" and config.get("sliding_window"):
        writer.add_sliding_window(config["sliding_window"])
    if experts := config.get("num_local_experts") or config.get("num_experts"):
        writer.add_expert_count(experts)
        writer.add_expert_used_count(config["num_experts_per_tok"])
        if config.get("moe_intermediate_size"):
            writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    for key, add in [
        ("attn_logit_softcapping", writer.add_attn_logit_softcapping),
        ("final_logit_softcapping", writer.add_final_logit_softcapping),
        ("attention_multiplier", writer.add_attention_scale),
        ("embedding_multiplier", writer.add_embedding_scale),
        ("residual_multiplier", writer.add_residual_scale),
        ("logits_scaling", writer.add_logit_scale),
    ]:
        if config.get(key):
            add(config[key])
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_eos_token_id(config["eos_token_id"])
    return writer


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write(folder, path, matrix_type=gguf.GGMLQuantizationType.BF16, blocks=bf16, tokenizer=None):
    """Writes the checkpoint of a folder to `path`, its matrices as the blocks of a type; `tokenizer` is the name of a kind."""
    config = json.loads((folder / "config.json").read_text())
    architecture = ARCHITECTURES.get(config["model_type"], config["model_type"])
    writer = described(path, config, architecture)
    if tokenizer:
        writer.add_tokenizer_model(tokenizer)
    heads, kv = config["num_attention_heads"], config["num_key_value_heads"]
    for name, weight in with_stacked_experts(tensors_of(folder / "model.safetensors")):
        if name == "lm_head.weight" and config.get("tie_word_embeddings"):
            continue
        if architecture in PAIRED and ".self_attn.q_proj." in name:
            weight = paired(weight, heads)
        if architecture in PAIRED and ".self_attn.k_proj." in name:
            weight = paired(weight, kv)
        if architecture.startswith("gemma") and name.endswith("norm.weight"):
            weight = weight + 1
        if name.endswith(".conv.conv.weight"):
            weight = weight.squeeze(1)
        if name.endswith(".shared_expert_gate.weight"):
            weight = weight.squeeze(0)
        if weight.ndim == 1 or "conv.conv" in name:
            writer.add_tensor(gguf_name(name, architecture), weight.astype(numpy.float32))
        else:
            writer.add_tensor(gguf_name(name, architecture), blocks(weight), raw_dtype=matrix_type)
    finish(writer)


def print_blocks():
    """Random blocks of each format, as hexadecimal, and some of the values that they decode to."""
    random = numpy.random.default_rng(0)
    scales = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}
    for name, places in scales.items():
        kind = gguf.GGMLQuantizationType[name]
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        block = random.integers(0, 256, size, numpy.uint8)
        for place in places:
            block[place : place + 2] = numpy.array([0.01 + 0.02 * random.random()], numpy.float16).view(numpy.uint8)
        values = gguf.quants.dequantize(block, kind)
        print(name, block.tobytes().hex(), [float(f"{x:.7g}") for x in values[:: elements // 16 + 1]], f"{values.sum():.5f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path(__file__).parent.parent / "tests/decoders")
    parser.add_argument("--blocks", action="store_true")
    arguments = parser.parse_args()
    if arguments.blocks:
        print_blocks()
        return
    for folder in sorted(arguments.folder.iterdir()):
        if folder.name not in LEFT_OUT and (folder / "config.json").exists():
            write(folder, folder / "model.gguf")


if __name__ == "__main__":
    sys.exit(main())
