"""Finds the lines of a text that are nearest in meaning to a question, with an encoder of transformers.

    python text_embeddings.py export MODEL encoder/ --quantize int8-dynamic
    python text_embeddings.py search encoder/ notes.txt "how are models made smaller?"

MODEL is a folder or a name on Hugging Face's hub of an encoder such as sentence-transformers/all-MiniLM-L6-v2. `export` needs torch
and transformers, `search` numpy and transformers' tokenizers.
"""

import argparse
import pathlib

import numpy
import rushlight

BATCH, LENGTH = 16, 128


def export(arguments):
    import torch
    import transformers

    class Embedding(torch.nn.Module):
        """The mean of the tokens' states, of length one."""

        def __init__(self, encoder):
            super().__init__()
            self.encoder = encoder

        def forward(self, tokens, mask):
            states = self.encoder(input_ids=tokens, attention_mask=mask).last_hidden_state
            weights = mask[..., None].to(states.dtype)
            return torch.nn.functional.normalize((states * weights).sum(1) / weights.sum(1), dim=-1)

    tokenizer = transformers.AutoTokenizer.from_pretrained(arguments.model)
    model = Embedding(transformers.AutoModel.from_pretrained(arguments.model, attn_implementation="sdpa")).eval()
    batch, length = torch.export.Dim("batch", max=BATCH), torch.export.Dim("length", max=LENGTH)
    sizes = {0: batch, 1: length}
    example = (torch.ones(2, 16, dtype=torch.int64), torch.ones(2, 16, dtype=torch.int64))
    quantize = rushlight.Quantization(arguments.quantize, embeddings=8) if arguments.quantize else None
    program = rushlight.export(model, example, dynamic_shapes=(sizes, sizes), quantize=quantize, backend="cpu")
    arguments.folder.mkdir(parents=True, exist_ok=True)
    size = program.save(arguments.folder / "encoder.pte")
    tokenizer.save_pretrained(arguments.folder)
    print(f"{arguments.folder / 'encoder.pte'}: {size / 1e6:.1f} MB")


class Encoder:
    """Texts to rows of numbers, of which the product says how near they are."""

    def __init__(self, folder):
        import transformers

        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        self.module = rushlight.load(pathlib.Path(folder) / "encoder.pte")

    def __call__(self, texts):
        found = []
        for start in range(0, len(texts), BATCH):
            options = {"padding": True, "truncation": True, "max_length": LENGTH, "return_tensors": "np"}
            rows = self.tokenizer(texts[start : start + BATCH], **options)
            found.append(self.module(rows["input_ids"].astype("int64"), rows["attention_mask"].astype("int64")))
        return numpy.concatenate(found)


def search(arguments):
    encoder = Encoder(arguments.folder)
    lines = [line.strip() for line in arguments.text.read_text().splitlines() if line.strip()]
    nearness = encoder(lines) @ encoder([arguments.question])[0]
    for index in nearness.argsort()[::-1][: arguments.top]:
        print(f"{nearness[index]:.2f}  {lines[index]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    make = commands.add_parser("export")
    make.add_argument("model")
    make.add_argument("folder", type=pathlib.Path)
    make.add_argument("--quantize", metavar="SCHEME")
    make.set_defaults(function=export)
    find = commands.add_parser("search")
    find.add_argument("folder", type=pathlib.Path)
    find.add_argument("text", type=pathlib.Path, help="a file, of which each line is a text")
    find.add_argument("question")
    find.add_argument("--top", type=int, default=3)
    find.set_defaults(function=search)
    arguments = parser.parse_args()
    arguments.function(arguments)


if __name__ == "__main__":
    main()
