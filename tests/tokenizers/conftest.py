import os

import pytest
from originals import HuggingFace, SentencePiece
from samples import SAMPLES

from rushlight.llm import Tokenizer

# RUSHLIGHT_PART chooses a third of the tokenizers. RUSHLIGHT_WHOLE=1 takes all.
COMPARED = SAMPLES if os.environ.get("RUSHLIGHT_WHOLE") else SAMPLES[int(os.environ.get("RUSHLIGHT_PART", 0)) % 3 :: 3]


class Pair:
    """A tokenizer as Rushlight reads it, beside the original."""

    def __init__(self, sample):
        self.name = sample.name
        self.index = COMPARED.index(sample)
        self.original = sample.original()
        self.tokenizer = Tokenizer.load(sample.path())

    def check(self, text):
        """The tokens of a text, and the text that they become."""
        self.check_decode(self.check_encode(text))

    def check_encode(self, text):
        text = self.original.comparable(text)
        expected, got = self.original.encode_plain(text), self.tokenizer.encode(text, add_special_tokens=False)
        assert got == expected, difference(self.name, text, expected, got)
        if isinstance(self.original, HuggingFace):
            expected, got = self.original.encode(text), self.tokenizer.encode(text)
            assert got == expected, difference(self.name, text, expected, got)
        return got

    def check_decode(self, tokens):
        # To SentencePiece, control pieces have no text.
        skips = isinstance(self.original, SentencePiece)
        expected, got = self.original.decode(tokens), self.tokenizer.decode(tokens, skip_special_tokens=skips)
        assert got == expected, difference(self.name, tokens, expected, got)


def difference(name, given, expected, got):
    """The place where two results part, as either may have millions of elements."""
    at = next((at for at, pair in enumerate(zip(expected, got)) if pair[0] != pair[1]), min(len(expected), len(got)))
    shown = slice(max(at - 5, 0), at + 10)
    return (
        f"{name}: of {given[:200]!r} ({len(given)}), from {shown.start} of {len(expected)}\n"
        f"  expected  {expected[shown]!r}\n  got       {got[shown]!r} of {len(got)}"
    )


@pytest.fixture(scope="module", params=COMPARED, ids=lambda sample: sample.name)
def pair(request):
    return Pair(request.param)
