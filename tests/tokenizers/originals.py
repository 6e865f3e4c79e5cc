"""The packages that tokenizers come from, with one interface."""

import base64
import json
import re
import unicodedata

import sentencepiece
import tiktoken
import tokenizers


class HuggingFace:
    """A `tokenizer.json`, by `tokenizers`."""

    package = "tokenizers"

    def __init__(self, path):
        self.tokenizer = tokenizers.Tokenizer.from_file(str(path))
        self.vocab_size = self.tokenizer.get_vocab_size()

    def encode(self, text):
        return self.tokenizer.encode(text).ids

    def encode_plain(self, text):
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, tokens):
        return self.tokenizer.decode(tokens, skip_special_tokens=False)

    def comparable(self, text):
        """The text without what Rushlight takes for special tokens, and the original for text."""
        return text


class Tiktoken:
    """Ranks, by `tiktoken`; `special` are its special tokens, and `first` is the number of the first rank."""

    package = "tiktoken"
    SPECIAL = re.compile(r"<\|\w+\|>|</?(?:s|unk|pad)>|\[/?[A-Z_]+\]")

    def __init__(self, ranks, pattern, special, first=0, normal_form=None):
        self.encoding = tiktoken.Encoding("sample", pat_str=pattern, mergeable_ranks=ranks, special_tokens=special)
        self.first = first
        self.normal_form = normal_form
        self.vocab_size = len(ranks)

    def encode_plain(self, text):
        text = unicodedata.normalize(self.normal_form, text) if self.normal_form else text
        tokens = self.encoding.encode(text, allowed_special="all")
        return [token + self.first for token in tokens] if self.first else tokens

    def decode(self, tokens):
        return self.encoding.decode([token - self.first for token in tokens])

    def comparable(self, text):
        if self.normal_form:
            # Rushlight's tables are of a later version of Unicode than Python's.
            text = "".join(character for character in text if unicodedata.category(character) != "Cn")
        known = self.encoding.special_tokens_set
        return self.SPECIAL.sub(lambda found: found[0] if found[0] in known else "", text)


class SentencePiece:
    """A model of SentencePiece, by `sentencepiece`. It takes control pieces for text."""

    package = "sentencepiece"

    def __init__(self, path):
        self.processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
        self.vocab_size = self.processor.vocab_size()
        self.control = [
            self.processor.id_to_piece(token) for token in range(self.vocab_size) if self.processor.is_control(token)
        ]

    def encode_plain(self, text):
        return self.processor.encode(text)

    def decode(self, tokens):
        return self.processor.decode(tokens)

    def comparable(self, text):
        # Some models have thousands of them.
        present = set(text)
        for piece in self.control:
            if piece[0] in present and piece in text:
                text = text.replace(piece, "")
        return text


def read_ranks(path):
    lines = (line.split() for line in path.read_bytes().splitlines())
    return {base64.b64decode(line[0]): int(line[1]) for line in lines if len(line) == 2 and line[0] != b"="}


def read_tekken(path):
    """The ranks of a `tekken.json`, its pattern, and the number of its special tokens."""
    file = json.loads(path.read_text())
    config = file["config"]
    special = config["default_num_special_tokens"]
    count = config["default_vocab_size"] - special
    ranks = {base64.b64decode(entry["token_bytes"]): entry["rank"] for entry in file["vocab"][:count]}
    return ranks, config["pattern"], special
