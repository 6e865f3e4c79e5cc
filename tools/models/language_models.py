"""The language models of `cargo xtask bench llm`, in the form of each engine that it compares.

    python tools/models/language_models.py OUT                  what is missing
    python tools/models/language_models.py OUT --only tiny-4    some of it; others of a shape are made, too: qwen3_0_6b-2

A name ends with the number of layers, which may be another one than the published model has. `OUT/<name>/` gets

    config.json, model.safetensors   as Hugging Face publishes models: random weights in bf16 from a fixed seed
    input_COUNT@POSITION.bin         POSITION + COUNT tokens of one text, int64
    output_COUNT@POSITION.bin        the logits after the last of them, of eager PyTorch with these weights in float32
    executorch.pte                   8da4w in groups of 32 for XNNPACK, by ExecuTorch's `export_llama`
    q4_0.gguf                        Q4_0 for llama.cpp, with all matrices in this type

Groups of 32 weights are nearly what four bits hold, so that the answers of all engines can be compared with PyTorch's: integers from
-7 to 7 times a scale, but for one weight of 7.5 or -7.5 times the scale. Quantizers by the largest magnitude, whose scale is a 7.5th
of it, find this scale, and the weight becomes 7 or -8 times the scale.

Each form is made in a process of its own. One that cannot be made leaves `<file>.failed` with the reason, and the benchmark
shows it as missing.
"""

import argparse
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from attempt import attempt  # noqa: E402

SEED = 20
# Positions of the caches, and tokens of a call, of which ExecuTorch's programs take one less.
CONTEXT, LONGEST_CALL = 2176, 1024
# Tokens that are read at a position.
CALLS = ((128, 0), (512, 0), (1, 0), (1, 1), (1, 100), (1, 128), (1, 512), (1, 2048))

# transformers' configuration of each shape.
SHAPES = {
    "llama_3_2_1b": ("LlamaConfig", dict(
        vocab_size=128256, hidden_size=2048, intermediate_size=8192, num_attention_heads=32, num_key_value_heads=8,
        head_dim=64, rms_norm_eps=1e-5, rope_parameters={"rope_type": "default", "rope_theta": 500000.0},
    )),
    "qwen3_0_6b": ("Qwen3Config", dict(
        vocab_size=151936, hidden_size=1024, intermediate_size=3072, num_attention_heads=16, num_key_value_heads=8,
        head_dim=128, rms_norm_eps=1e-6, rope_parameters={"rope_type": "default", "rope_theta": 1000000.0},
    )),
    "phi_4_mini": ("Phi3Config", dict(
        vocab_size=200064, hidden_size=3072, intermediate_size=8192, num_attention_heads=24, num_key_value_heads=8,
        rms_norm_eps=1e-5, pad_token_id=None,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.75},
    )),
    "tiny": ("LlamaConfig", dict(
        vocab_size=1024, hidden_size=256, intermediate_size=768, num_attention_heads=4, num_key_value_heads=2, head_dim=64,
        rms_norm_eps=1e-5, rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    )),
}  # fmt: skip
# Weights that have a scale.
GROUP = 32
# Those of the benchmark.
NAMES = ("llama_3_2_1b-16", "qwen3_0_6b-28", "phi_4_mini-4", "tiny-4")
FILES = {"checkpoint": "model.safetensors", "executorch": "executorch.pte", "gguf": "q4_0.gguf"}


def make_checkpoint(name, folder):
    """Writes the folder as Hugging Face has it, and what eager PyTorch answers."""
    import torch
    import transformers

    shape, layers = name.rsplit("-", 1)
    kind, sizes = SHAPES[shape]
    config = getattr(transformers, kind)(
        num_hidden_layers=int(layers), max_position_embeddings=CONTEXT, tie_word_embeddings=True, bos_token_id=1,
        eos_token_id=2, **sizes,
    )  # fmt: skip
    torch.manual_seed(SEED)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
    matrices = [parameter for parameter in model.parameters() if parameter.dim() == 2]
    for matrix in matrices:
        integers = torch.randint(-7, 8, (matrix.numel() // GROUP, GROUP), dtype=torch.int8).bfloat16()
        largest = torch.randint(2, (len(integers), 1)).bfloat16() * 15 - 7.5
        integers.scatter_(1, torch.randint(GROUP, (len(integers), 1)), largest)
        matrix.copy_((integers * torch.randint(2, 4, (len(integers), 1)) * 2.0**-9).reshape(matrix.shape))
    text = torch.randint(3, config.vocab_size, (1, max(map(sum, CALLS))))
    last = torch.tensor([count + position - 1 for count, position in CALLS])
    model.save_pretrained(folder / "new", max_shard_size="100GB")
    logits = model.float()(text, use_cache=False, logits_to_keep=last).logits[0]
    for (count, position), answer in zip(CALLS, logits):
        text[0, : position + count].numpy().tofile(folder / f"input_{count}@{position}.bin")
        answer.numpy().tofile(folder / f"output_{count}@{position}.bin")
    for file in ("config.json", FILES["checkpoint"]):
        (folder / "new" / file).rename(folder / file)
    shutil.rmtree(folder / "new")


def make_gguf(name, folder):
    import decoder_gguf
    import gguf
    import numpy

    def blocks(weight):
        """Q4_0 with the scales of the weights; gguf's own quantizer has an eighth of the largest magnitude."""
        groups = weight.reshape(-1, GROUP)
        scales = numpy.abs(groups).max(1, keepdims=True) / 7.5
        integers = (numpy.clip(numpy.rint(groups / scales), -8, 7) + 8).astype(numpy.uint8)
        packed = integers[:, : GROUP // 2] | integers[:, GROUP // 2 :] << 4
        rows = numpy.concatenate([scales.astype(numpy.float16).view(numpy.uint8), packed], 1)
        return rows.reshape(len(weight), -1)

    kind = gguf.GGMLQuantizationType.Q4_0
    decoder_gguf.write(folder, folder / "new.gguf", kind, blocks, tokenizer="none")
    (folder / "new.gguf").rename(folder / FILES["gguf"])


def make_executorch(name, folder):
    import torch
    from executorch.examples.models.llama.export_llama_lib import export_llama
    from executorch.kernels import quantized  # noqa: F401  the operators
    from export_llama import CACHED, EXTENDED, GROUPS, Variant, config

    quantization = {**GROUPS, "embedding_quantize": "4,32"}
    variant = Variant(CACHED, EXTENDED, quantization, {"max_seq_length": LONGEST_CALL}, context=CONTEXT)
    with tempfile.TemporaryDirectory(dir=folder) as scratch, torch.no_grad():
        scratch = Path(scratch)
        paths = {"params": scratch / "params.json", "weights": scratch / "weights.pth"}
        of_folder = json.loads((folder / "config.json").read_text())
        paths["params"].write_text(json.dumps(parameters(of_folder)))
        torch.save(weights(folder, of_folder), paths["weights"])
        os.chdir(scratch)
        export_llama(config(variant, paths, scratch))
        (scratch / "model.pte").rename(folder / FILES["executorch"])


def parameters(config):
    """What `params.json` says of a model of Hugging Face's."""
    rope = config["rope_parameters"]
    interleaved = config["model_type"] == "llama"
    return {
        "dim": config["hidden_size"],
        "n_layers": config["num_hidden_layers"],
        "n_heads": config["num_attention_heads"],
        "n_kv_heads": config["num_key_value_heads"],
        "head_dim": config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"],
        "hidden_dim": config["intermediate_size"],
        "vocab_size": config["vocab_size"],
        "norm_eps": config["rms_norm_eps"],
        "rope_theta": rope["rope_theta"],
        "partial_rotary_factor": rope.get("partial_rotary_factor", 1.0),
        "use_scaled_rope": False,
        "use_hf_rope": not interleaved,
        "use_qk_norm": config["model_type"] == "qwen3",
        "qk_norm_before_rope": config["model_type"] == "qwen3",
    }


def weights(folder, config):
    """The checkpoint with the names of Meta's, in which queries and keys of a Llama have the order of its RoPE."""
    import decoder_gguf
    import torch
    from safetensors.torch import load_file

    names = {
        "self_attn.q_proj": "attention.wq", "self_attn.k_proj": "attention.wk", "self_attn.v_proj": "attention.wv",
        "self_attn.o_proj": "attention.wo", "self_attn.q_norm": "attention.q_norm_fn",
        "self_attn.k_norm": "attention.k_norm_fn", "mlp.gate_proj": "feed_forward.w1", "mlp.up_proj": "feed_forward.w3",
        "mlp.down_proj": "feed_forward.w2", "input_layernorm": "attention_norm", "post_attention_layernorm": "ffn_norm",
    }  # fmt: skip
    heads, kv = config["num_attention_heads"], config["num_key_value_heads"]
    checkpoint = {}
    for name, weight in load_file(folder / FILES["checkpoint"]).items():
        module = name.removeprefix("model.").removesuffix(".weight")
        if module == "embed_tokens":
            checkpoint["tok_embeddings.weight"] = checkpoint["output.weight"] = weight
        elif module == "norm":
            checkpoint["norm.weight"] = weight
        elif module.startswith("layers."):
            prefix, layer, module = module.split(".", 2)
            parts = {module: weight}
            if module == "self_attn.qkv_proj":
                head = weight.shape[0] // (heads + 2 * kv)
                query, key, value = weight.split([heads * head, kv * head, kv * head])
                parts = {"self_attn.q_proj": query, "self_attn.k_proj": key, "self_attn.v_proj": value}
            elif module == "mlp.gate_up_proj":
                parts = dict(zip(("mlp.gate_proj", "mlp.up_proj"), weight.chunk(2)))
            for part, tensor in parts.items():
                if config["model_type"] == "llama" and part in ("self_attn.q_proj", "self_attn.k_proj"):
                    tensor = decoder_gguf.paired(tensor, heads if part == "self_attn.q_proj" else kv)
                checkpoint[f"{prefix}.{layer}.{names[part]}.weight"] = tensor.contiguous()
    return checkpoint


def make(name, form, out):
    """Makes a form of a model; runs in a process of its own."""
    attempt(name, form, out / name / FILES[form], globals()[f"make_{form}"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, nargs="?", default=ROOT / "target" / "language-models")
    parser.add_argument("--only", nargs="+", default=NAMES, help="models")
    parser.add_argument("--force", action="store_true", help="make again what is there")
    args = parser.parse_args()
    if unknown := [name for name in args.only if name.rsplit("-", 1)[0] not in SHAPES or not name[-1].isdigit()]:
        parser.error(f"no such models: {', '.join(unknown)}; there are {', '.join(SHAPES)}, as in {NAMES[0]}")
    out, failed = args.out.resolve(), []
    for name in args.only:
        for form, file in FILES.items():
            if args.force or not (out / name / file).exists():
                process = multiprocessing.get_context("spawn").Process(target=make, args=(name, form, out))
                process.start()
                process.join()
                if not (out / name / file).exists():
                    failed.append(out / name / file)
                    if form == "checkpoint":
                        break
    if failed:
        print("failed:", *failed, sep="\n  ")


if __name__ == "__main__":
    main()
