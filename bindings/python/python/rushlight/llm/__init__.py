"""Language models: compiling them from their files, exporting them with PyTorch, and running them without it.

    program = rushlight.llm.compile("SmolLM2-135M/", quantize="8da4w", embeddings=4)
    program.save("smollm2.pte")         # with its tokenizer inside

    llm = rushlight.llm.LLM("smollm2.pte")
    print(llm.generate("Once upon a time", max_new_tokens=64).text)
    for piece in llm.chat([{"role": "user", "content": "What is a quark?"}], stream=True):
        print(piece, end="", flush=True)

`compile` reads a Hugging Face folder or a .gguf file of a known family, without PyTorch. `export` is for all other decoders
that transformers can export; it takes longer and more memory. From a shell: `rushlight compile SmolLM2-135M/`, and
`python -m rushlight.llm SmolLM2-135M/ -o smollm2.pte`.
"""

from .._rushlight import Adapter
from ._answer import AsyncStream, Completion, Stream, TokenLogprob, Usage
from ._compile import compile
from ._export import export, main
from ._model import LLM, Session
from ._tokenizer import Tokenizer

__all__ = [
    "LLM",
    "Adapter",
    "AsyncStream",
    "Completion",
    "Session",
    "Stream",
    "TokenLogprob",
    "Tokenizer",
    "Usage",
    "compile",
    "export",
    "main",
]
