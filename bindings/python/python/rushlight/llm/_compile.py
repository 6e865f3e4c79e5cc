"""Compiles published language models, without PyTorch."""

import os

from .._backend import adapted
from .._compile import compiled
from .._progress import Progress
from .._quantization import request
from ._export import quantization


def compile(
    path,
    *,
    max_context_len=None,
    max_seq_len=None,
    full_logits=False,
    hidden_states=False,
    lora_rank=None,
    quantize=None,
    embeddings=None,
    kv_cache="f32",
    backend="cpu",
    constant_methods=None,
    tokenizer=None,
    progress=None,
):
    """Builds the program of a language model from its files and compiles it, as `rushlight compile` does. Needs no torch.

    The program is that of `export`. Its weights are read from the files while it is saved.

    `path`: a Hugging Face folder, with config.json and .safetensors files, or a .gguf file, of one of the families that Rushlight
    knows.
    `hidden_states`: return the hidden states of all tokens after the last norm, f32[1, T, hidden], without the head.
    `lora_rank`: add a second method for LoRA adapters up to this rank: see `LLM.adapter`.
    The other arguments are those of `export`.

    Raises rushlight.Error for files that are damaged, missing or of another family, and for lengths that the model does not have.
    """
    output = "hidden_states" if hidden_states else "all_logits" if full_logits else "last_logits"
    return compiled(
        [],
        quantize=request(quantization(quantize, embeddings), None, []),
        backends=adapted(backend),
        kv_cache=kv_cache,
        constant_methods=constant_methods,
        tokenizer=tokenizer,
        progress=Progress(progress),
        language_model={
            "path": os.fspath(path),
            "max_context_len": max_context_len,
            "max_seq_len": max_seq_len,
            "output": output,
            "lora_rank": lora_rank,
        },
    )
