"""Language models: exported by PyTorch, and talked to without it.

    program = rushlight.llm.export("SmolLM2-135M/", quantize="8da4w", embeddings=4)
    program.save("smollm2.pte")         # with its tokenizer inside

    llm = rushlight.llm.LLM("smollm2.pte")
    print(llm.generate("Once upon a time", max_new_tokens=64).text)
    for piece in llm.chat([{"role": "user", "content": "What is a quark?"}], stream=True):
        print(piece, end="", flush=True)

`export` is for a decoder that transformers can export. `rushlight compile FOLDER` makes the same program of the families that it
knows without PyTorch, in a fraction of the time and memory. From a shell: `python -m rushlight.llm SmolLM2-135M/ -o smollm2.pte`.
"""

from ._answer import AsyncStream, Completion, Stream, TokenLogprob, Usage
from ._export import export, main
from ._model import LLM, Session
from ._tokenizer import Tokenizer

__all__ = [
    "LLM",
    "AsyncStream",
    "Completion",
    "Session",
    "Stream",
    "TokenLogprob",
    "Tokenizer",
    "Usage",
    "export",
    "main",
]
