"""Conversion of text to tokens and back."""

import json

from .._rushlight import Tokenizer as _Core


class Tokenizer:
    """A tokenizer, with its special tokens and its chat template."""

    __slots__ = ("_core",)

    def __init__(self, core):
        self._core = core

    @classmethod
    def load(cls, path):
        """Opens a tokenizer. The type is detected from the content of the file or folder.

        It reads a Hugging Face `tokenizer.json`, with the special tokens and the chat template in files beside it; a SentencePiece
        model; ranks of tiktoken; Mistral's `tekken.json`; a file of llama2.c; a `.gguf`; or a `.pte` that carries one of these.

        Raises OSError if a file cannot be read, ValueError if it is damaged or of an unknown type and for a program without a
        tokenizer, and rushlight.Error for a damaged program.
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
        """Returns the tokens of a text, and those that the tokenizer adds around it, such as BOS.

        Special tokens in the text are always recognized.
        """
        return self._core.encode(text, add_special_tokens)

    def decode(self, ids, skip_special_tokens=True):
        """Returns the text of tokens. Bytes that are not UTF-8 become U+FFFD. Unknown tokens have no text."""
        return self._core.decode(list(ids), skip_special_tokens)

    def apply_chat_template(self, messages, tools=None, add_generation_prompt=True, tokenize=True, **variables):
        """Returns the tokens of a conversation, by the model's chat template; without `tokenize` the text.

        `messages` are dicts with `role` and `content`, as in OpenAI's requests, `tools` are the schemas of functions, and `variables`
        are other variables of the template, such as `enable_thinking`. `add_generation_prompt` adds the beginning of an answer.

        Raises ValueError if there is no template, or if it refuses the messages.
        """
        arguments = (json.dumps(value, allow_nan=False) for value in (messages, tools, variables))
        text = self._core.render(*arguments, add_generation_prompt)
        # The template has the special tokens.
        return self._core.encode(text, False) if tokenize else text

    def id_to_token(self, id):
        """Returns the token in the spelling of the tokenizer's file; None if there is none."""
        return self._core.id_to_token(id)

    def token_to_id(self, token):
        """Returns the id of a token by its spelling; None if there is none."""
        return self._core.token_to_id(token)

    @property
    def vocab_size(self):
        """Number of tokens, including special ones."""
        return self._core.vocab_size

    @property
    def bos_id(self):
        """The token at the beginning of a text, or None."""
        return self._core.bos_id

    @property
    def eos_ids(self):
        """Tokens that end an answer."""
        return self._core.eos_ids

    def __len__(self):
        return self._core.vocab_size

    def __repr__(self):
        return f"rushlight.llm.Tokenizer(vocab_size={self.vocab_size})"
