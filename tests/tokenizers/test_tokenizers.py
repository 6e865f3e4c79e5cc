"""Tokens and texts are those of `tokenizers`, `tiktoken` and `sentencepiece`.

    PYTHONPATH=target/wheel/package .venv-tokenizers/bin/python -m pytest tests/tokenizers

With RUSHLIGHT_WHOLE=1 every character and every long text is given to every tokenizer, not some to each.
"""

import os
import random
import time

import texts

WHOLE = bool(os.environ.get("RUSHLIGHT_WHOLE"))
# If not all: the long texts of each tokenizer, and the parts of all characters, of which each has one. Of as many tokenizers one is
# compared on its long texts.
SOME, PARTS = 1, 3
# A tenth is what the slowest takes: time grows no faster than the length.
MAX_SECONDS_PER_MEGABYTE = 30


def test_short_texts_become_the_same_tokens_and_back(pair):
    for text in texts.SHORT + texts.SPECIAL + texts.mixtures():
        pair.check(text)


def test_every_script_and_character(pair):
    every = texts.words_of_blocks() + texts.every_character()
    for text in every if WHOLE else every[pair.index % PARTS :: PARTS]:
        pair.check(text)


def test_documents(pair):
    for text in texts.documents():
        pair.check(text)


def test_tokens_in_any_order_become_the_same_text(pair):
    """All tokens, and some at random; most are not the beginning or the end of a character."""
    size = pair.original.vocab_size
    first = getattr(pair.original, "first", 0)
    generator = random.Random(3)
    lists = [range(start, min(start + 64, size)) for start in range(0, size, 64)]
    lists += [[generator.randrange(size) for _ in range(generator.randrange(1, 12))] for _ in range(1000)]
    for tokens in lists:
        pair.check_decode([token + first for token in tokens])


def test_tokens_of_parts_of_characters_become_the_same_text(pair):
    text = "né 你好 👩‍👩‍👧 한𝕳\u0301 𓀀"
    tokens = pair.original.encode_plain(text)
    for start in range(len(tokens)):
        for end in range(start + 1, len(tokens) + 1):
            pair.check_decode(tokens[start:end])


def long_texts(pair):
    names = list(texts.LONG)
    return names if WHOLE else [names[(pair.index * SOME + at) % len(names)] for at in range(SOME)]


def test_a_megabyte_without_a_place_to_split_at(pair):
    for name in long_texts(pair):
        text = pair.original.comparable(texts.LONG[name]())
        start = time.perf_counter()
        tokens = pair.tokenizer.encode(text, add_special_tokens=False)
        pair.tokenizer.decode(tokens)
        seconds = time.perf_counter() - start
        assert seconds < MAX_SECONDS_PER_MEGABYTE, f"{name}: {seconds} s"
        # The originals take most of the time.
        if WHOLE or pair.index % PARTS == 0:
            pair.check(text)
