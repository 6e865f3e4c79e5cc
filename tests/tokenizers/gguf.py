"""Writes vocabularies as llama.cpp's converter does: GGUF files without tensors."""

import json
import struct

TEXT, LIST, BOOL, INT32, FLOAT32, UINT8 = 8, 9, 7, 5, 6, 0
FORMATS = {BOOL: "?", INT32: "i", FLOAT32: "f", UINT8: "B", 4: "I"}
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)


def text(value):
    encoded = value.encode()
    return struct.pack("<Q", len(encoded)) + encoded


def value(kind, content):
    if isinstance(content, list):
        elements = (value(kind, element)[4:] for element in content)
        return struct.pack("<IIQ", LIST, kind, len(content)) + b"".join(elements)
    return struct.pack("<I", kind) + (text(content) if kind == TEXT else struct.pack("<" + FORMATS[kind], content))


def file(**entries):
    """A file with these entries below `tokenizer.ggml`, each a kind and its content."""
    metadata = b"".join(text(f"tokenizer.ggml.{key}") + value(*entry) for key, entry in entries.items())
    return b"GGUF" + struct.pack("<IQQ", 3, 0, len(entries)) + metadata


def tokens_of(path):
    """The `tokenizer.json`, its tokens by their number, and their kinds."""
    settings = json.loads(path.read_text())
    model = settings["model"]
    ids = model["vocab"] if isinstance(model["vocab"], dict) else {entry[0]: at for at, entry in enumerate(model["vocab"])}
    added = {token["id"]: token for token in settings["added_tokens"]}
    tokens = {id: token for token, id in ids.items()} | {id: token["content"] for id, token in added.items()}

    def kind(id):
        if tokens[id] == model.get("unk_token"):
            return UNKNOWN
        if id in added:
            return CONTROL if added[id]["special"] else USER_DEFINED
        return BYTE if tokens[id].startswith("<0x") else NORMAL

    return settings, [tokens[id] for id in range(len(tokens))], [kind(id) for id in range(len(tokens))]


def of_bpe(path, model, pre=None, bos=None):
    settings, tokens, kinds = tokens_of(path)
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in settings["model"]["merges"]]
    around = {"bos_token_id": (4, tokens.index(bos)), "add_bos_token": (BOOL, True)} if bos else {"add_bos_token": (BOOL, False)}
    pre = {"pre": (TEXT, pre)} if pre else {}
    return file(
        model=(TEXT, model), tokens=(TEXT, tokens), token_type=(INT32, kinds), merges=(TEXT, merges), **pre, **around
    )  # fmt: skip


def of_word_piece(path, lowercase):
    """Tokens within words are spelled as they are, and those that begin words with the character for a space."""
    settings, tokens, kinds = tokens_of(path)

    def spelled(token):
        if token.startswith("[") and token.endswith("]"):
            return token
        return token[2:] if token.startswith("##") else "▁" + token

    return file(
        model=(TEXT, "bert"), tokens=(TEXT, [spelled(token) for token in tokens]), token_type=(INT32, kinds),
        unknown_token_id=(4, tokens.index("[UNK]")), cls_token_id=(4, tokens.index("[CLS]")),
        seperator_token_id=(4, tokens.index("[SEP]")),
        **{"normalizer.lowercase": (BOOL, lowercase), "normalizer.strip_accents": (BOOL, lowercase)},
    )  # fmt: skip


def of_unigram(model, charsmap, adds_prefix, removes_extra):
    """A model of SentencePiece, opened, and what its normalizer has."""
    size = model.vocab_size()

    def kind(id):
        if model.is_unknown(id):
            return UNKNOWN
        if model.is_control(id):
            return CONTROL
        return BYTE if model.is_byte(id) else UNUSED if model.is_unused(id) else NORMAL

    return file(
        model=(TEXT, "t5"), tokens=(TEXT, [model.id_to_piece(id) for id in range(size)]),
        scores=(FLOAT32, [model.get_score(id) for id in range(size)]), token_type=(INT32, [kind(id) for id in range(size)]),
        precompiled_charsmap=(UINT8, list(charsmap)), add_space_prefix=(BOOL, adds_prefix),
        remove_extra_whitespaces=(BOOL, removes_extra), add_eos_token=(BOOL, False),
    )  # fmt: skip
