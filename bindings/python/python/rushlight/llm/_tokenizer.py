"""Text to tokens and back."""

import json

from .._rushlight import Tokenizer as _Core


class Tokenizer:
    """A tokenizer, with its special tokens and its chat template."""

    __slots__ = ("_core",)

    def __init__(self, core):
        self._core = core

    @classmethod
    def load(cls, path):
        """Opens a tokenizer by the content of its file, or that of a folder.

        A `tokenizer.json` of Hugging Face, whose special tokens and chat template are in files beside, which are read too; a
        model of SentencePiece; ranks of tiktoken; Mistral's `tekken.json`; a file of llama2.c; a `.gguf`; or a `.pte` that carries
        one of these.

        Raises OSError if a file cannot be read, ValueError if it is damaged or of an unknown kind and for a program without a
        tokenizer, and rushlight.Error for one that is damaged.
        """
        return cls(_Core(path))

    @classmethod
    def beside(cls, model):
        """Opens the tokenizer in the folder of a model; None if there is none.

        For `llama.pte` it is `llama.tokenizer.json`, or `tokenizer.json`, `tekken.json`, `tokenizer.model` or `tokenizer.bin`.
        """
        path = _Core.beside(model)
        return None if path is None else cls.load(path)

    def encode(self, text, add_special_tokens=True):
        """The tokens of a text, with those that the tokenizer puts around it, such as BOS.

        Special tokens that the text spells are recognized either way.
        """
        return self._core.encode(text, add_special_tokens)

    def decode(self, ids, skip_special_tokens=True):
        """The text of tokens. Bytes that are no character become U+FFFD, and tokens that do not exist nothing."""
        return self._core.decode(list(ids), skip_special_tokens)

    def apply_chat_template(self, messages, tools=None, add_generation_prompt=True, tokenize=True, **variables):
        """The tokens of a conversation in the form that the model was trained on, or its text without `tokenize`.

        `messages` are dictionaries with `role` and `content`, as in OpenAI's requests, `tools` the schemas of functions, and
        `variables` what else the template reads, such as `enable_thinking`. With `add_generation_prompt` the beginning of an
        answer follows.

        Raises ValueError where there is no template, or where it refuses the messages.
        """
        arguments = (json.dumps(value, allow_nan=False) for value in (messages, tools, variables))
        text = self._core.render(*arguments, add_generation_prompt)
        # The template has the special tokens.
        return self._core.encode(text, False) if tokenize else text

    def id_to_token(self, id):
        """The token as the tokenizer's file spells it; None if there is none."""
        return self._core.id_to_token(id)

    def token_to_id(self, token):
        """The token that is spelled like this; None if there is none."""
        return self._core.token_to_id(token)

    @property
    def vocab_size(self):
        """Number of tokens, special ones among them."""
        return self._core.vocab_size

    @property
    def bos_id(self):
        """The token that a text begins with, or None."""
        return self._core.bos_id

    @property
    def eos_ids(self):
        """Tokens that end an answer."""
        return self._core.eos_ids

    def __len__(self):
        return self._core.vocab_size

    def __repr__(self):
        return f"rushlight.llm.Tokenizer(vocab_size={self.vocab_size})"
