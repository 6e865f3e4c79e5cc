"""Language models: compiled from their files, or exported by PyTorch, and talked to without it.

    program = rushlight.llm.compile("SmolLM2-135M/", quantize="8da4w", embeddings=4)
    program.save("smollm2.pte")         # with its tokenizer inside

    llm = rushlight.llm.LLM("smollm2.pte")
    print(llm.generate("Once upon a time", max_new_tokens=64).text)
    for piece in llm.chat([{"role": "user", "content": "What is a quark?"}], stream=True):
        print(piece, end="", flush=True)

`compile` takes a folder of Hugging Face or a .gguf file of the families that it knows, without PyTorch. `export` is for any other
decoder that transformers can export, and takes longer and more memory. From a shell: `rushlight compile SmolLM2-135M/`, and
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
