"""Writes tests/blocks: tiny random decoders in GGUF files of quantized weights, and what transformers computes with the weights that
gguf's own code decodes from them.

`mixed.gguf` has matrices of all types, `q4_0.gguf` and `q4_k.gguf` have one, and the head of the last is the table of embeddings.
`experts.gguf` is a mixture of experts with a shared one, with matrices of all types but its routers, which are floats as llama.cpp keeps
them.
The `.json` beside each has what `expected.json` of tests/decoders has.
"""

import argparse
import json
import pathlib

import gguf
import numpy
import torch
import transformers

import decoder_gguf
import decoder_samples

Kind = gguf.GGMLQuantizationType
SIZES = dict(
    vocab_size=64, hidden_size=256, intermediate_size=256, num_hidden_layers=2, num_attention_heads=8, head_dim=32,
    num_key_value_heads=4, max_position_embeddings=128, bos_token_id=1, eos_token_id=2, pad_token_id=0,
    rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
)
KINDS = [Kind.Q4_0, Kind.Q8_0, Kind.Q5_0, Kind.Q4_1, Kind.Q4_K, Kind.Q5_K, Kind.Q6_K, Kind.Q5_1]
FILES = [
    ("mixed", KINDS, {}),
    ("q4_0", [Kind.Q4_0], {}),
    ("q4_k", [Kind.Q4_K], dict(tie_word_embeddings=True)),
    ("experts", KINDS, dict(kind="Qwen2MoeConfig", num_hidden_layers=1, num_experts=3, num_experts_per_tok=2,
                            moe_intermediate_size=256, shared_expert_intermediate_size=256)),
]
# Bytes at which blocks have f16 scales, and those of the minima.
UNITS = {Kind.Q4_K: (0, 2), Kind.Q5_K: (0, 2), Kind.Q6_K: (208, None)}


def quantized(weight, kind, random):
    """The blocks of a matrix. Of the larger ones, which gguf does not write, they are random."""
    if kind not in UNITS:
        return gguf.quants.quantize(weight, kind)
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = random.integers(0, 256, (weight.shape[0], weight.shape[1] // elements, size), numpy.uint8)
    scale, minimum = UNITS[kind]
    spread = weight.std() / {Kind.Q4_K: 240, Kind.Q5_K: 480, Kind.Q6_K: 1400}[kind]
    middle = {Kind.Q4_K: 7.5, Kind.Q5_K: 15.5}.get(kind)
    for place, typical in [(scale, spread), (minimum, middle and spread * middle)]:
        if place is not None:
            units = typical * random.uniform(0.5, 1.5, blocks.shape[:2])
            blocks[:, :, place : place + 2] = units.astype(numpy.float16)[..., None].view(numpy.uint8)
    return blocks.reshape(weight.shape[0], -1)


def matrices(model):
    """The parameters of a model, with the gates of experts apart from what they multiply."""
    for name, weight in model.named_parameters():
        if name.endswith(".experts.gate_up_proj"):
            gate, up = weight.detach().chunk(2, 1)
            yield name.replace("gate_up_proj", "gate_proj.weight"), gate
            yield name.replace("gate_up_proj", "up_proj.weight"), up
        elif name.endswith(".experts.down_proj"):
            yield f"{name}.weight", weight
        else:
            yield name, weight


def write(folder, name, kinds, seed, kind="LlamaConfig", **settings):
    torch.manual_seed(seed)
    random = numpy.random.default_rng(seed)
    model = decoder_samples.model_of(kind, {**SIZES, **settings})
    config = model.config.to_dict()
    architecture = decoder_gguf.ARCHITECTURES.get(config["model_type"], config["model_type"])
    writer = decoder_gguf.described(folder / f"{name}.gguf", config, architecture)
    for index, (parameter, weight) in enumerate(matrices(model)):
        stored = decoder_gguf.gguf_name(parameter, architecture)
        if weight.dim() == 1 or "_inp" in stored:
            writer.add_tensor(stored, weight.detach().numpy())
            continue
        kind = kinds[index % len(kinds)]
        rows = weight.detach().numpy().reshape(-1, weight.shape[-1])
        blocks = quantized(rows, kind, random)
        with torch.no_grad():
            weight.copy_(torch.from_numpy(gguf.quants.dequantize(blocks, kind)).view(weight.shape))
        heads = {"q_proj": SIZES["num_attention_heads"], "k_proj": SIZES["num_key_value_heads"]}
        heads = heads.get(parameter.split(".")[-2]) if architecture in decoder_gguf.PAIRED else None
        if heads:
            blocks = decoder_gguf.paired(blocks, heads)
        writer.add_tensor(stored, blocks.reshape(*weight.shape[:-1], -1), raw_dtype=kind)
    decoder_gguf.finish(writer)
    (folder / f"{name}.json").write_text(json.dumps(decoder_samples.expected(model)) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path(__file__).parent.parent / "tests/blocks")
    parser.add_argument("--only", nargs="*", help="names of files")
    arguments = parser.parse_args()
    folder = arguments.folder
    folder.mkdir(exist_ok=True)
    for seed, (name, kinds, settings) in enumerate(FILES):
        if not arguments.only or name in arguments.only:
            write(folder, name, kinds, seed, **settings)


if __name__ == "__main__":
    main()
