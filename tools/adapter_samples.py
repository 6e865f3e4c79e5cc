"""Writes tests/adapters: random LoRA adapters of decoders of tests/decoders, and what transformers computes with them.

For each adapter the folder that PEFT's `save_pretrained` writes, and `expected.json` in it: the decoder, a prompt, the logits after it
and after the greedy tokens, and these, in f32.
"""

import argparse
import json
import pathlib

import peft
import torch
import transformers
from decoder_samples import expected

ATTENTION, FEED_FORWARD = ["q_proj", "k_proj", "v_proj", "o_proj"], ["gate_proj", "up_proj", "down_proj"]

# A name, the decoder, and settings.
ADAPTERS = [
    ("llama-all", "llama", dict(r=4, lora_alpha=8, target_modules=ATTENTION + FEED_FORWARD)),
    # Ranks and factors of some layers, and a root.
    (
        "llama-patterns",
        "llama",
        dict(
            r=3, lora_alpha=5, use_rslora=True, target_modules=["q_proj", "v_proj"],
            rank_pattern={"model.layers.1.self_attn.q_proj": 6}, alpha_pattern={"layers.2.self_attn.v_proj": 9},
            layers_to_transform=[1, 2],
        ),
    ),
    # Layers with joined outputs, and short convolutions.
    ("phi3-joined", "phi3", dict(r=8, lora_alpha=8, target_modules=["qkv_proj", "o_proj", "gate_up_proj"])),
    ("lfm2-convolutions", "lfm2", dict(r=2, lora_alpha=4, target_modules=["in_proj", "out_proj", "q_proj", "w2"])),
]  # fmt: skip


def main():
    root = pathlib.Path(__file__).parent.parent / "tests"
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=pathlib.Path, default=root / "adapters")
    arguments = parser.parse_args()
    for seed, (name, decoder, settings) in enumerate(ADAPTERS):
        torch.manual_seed(seed)
        model = transformers.AutoModelForCausalLM.from_pretrained(root / "decoders" / decoder, dtype=torch.float32)
        # Otherwise one of each two matrices is zeros.
        config = peft.LoraConfig(task_type="CAUSAL_LM", init_lora_weights=False, **settings)
        model = peft.get_peft_model(model.eval(), config)
        folder = arguments.folder / name
        model.save_pretrained(folder, save_embedding_layers=False)
        (folder / "README.md").unlink()
        # The path of the decoder on the machine that made it.
        path = folder / "adapter_config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"base_model_name_or_path": decoder}, indent=2) + "\n")
        (folder / "expected.json").write_text(json.dumps({"decoder": decoder, **expected(model)}) + "\n")


if __name__ == "__main__":
    main()
