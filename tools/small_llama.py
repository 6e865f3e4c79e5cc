"""Writes a Llama of random weights with a tokenizer of its own, for measurements and examples that need no download.

    python tools/small_llama.py target/small-llama

The folder is one of Hugging Face. The tokenizer is a byte-level BPE, trained on this repository's documents. Needs transformers.
"""

import argparse
import json
import pathlib

import tokenizers
import torch
import transformers

ROOT = pathlib.Path(__file__).resolve().parent.parent
SPECIAL = ["<|begin|>", "<|end|>", "<|user|>", "<|assistant|>", "<|system|>"]
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<|{{ message.role }}|>{{ message.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def trained(vocabulary):
    """Trains a tokenizer; its vocabulary has at most the size that is given."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    documents = sorted(str(path) for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
    tokenizer.train(documents, trainer)
    return tokenizer


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--vocabulary", type=int, default=8192)
    parser.add_argument("--hidden", type=int, default=768)
    parser.add_argument("--layers", type=int, default=8)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    tokenizer = trained(arguments.vocabulary)
    config = transformers.LlamaConfig(
        vocab_size=arguments.vocabulary,
        hidden_size=arguments.hidden,
        intermediate_size=8 * arguments.hidden // 3,
        num_hidden_layers=arguments.layers,
        num_attention_heads=arguments.hidden // 64,
        num_key_value_heads=arguments.hidden // 192,
        max_position_embeddings=2048,
        bos_token_id=SPECIAL.index("<|begin|>"),
        eos_token_id=SPECIAL.index("<|end|>"),
        tie_word_embeddings=True,
    )
    transformers.LlamaForCausalLM(config).bfloat16().save_pretrained(arguments.folder)
    tokenizer.save(str(arguments.folder / "tokenizer.json"))
    settings = {"bos_token": SPECIAL[0], "eos_token": SPECIAL[1], "chat_template": TEMPLATE}
    (arguments.folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=1))


if __name__ == "__main__":
    main()
