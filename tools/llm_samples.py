"""Writes tests/llm: tokenizers, chat templates and samplings, with what Hugging Face's packages make of them.

- `tokenizers/NAME/tokenizer.json`, trained on the repository's own documents, and `expected.json` in it: texts with their tokens, and
  the text that the tokens become again.
- the same for the files of SentencePiece, tiktoken, Tekken and llama2.c, with what `sentencepiece` and `tiktoken` make of them, and
  `ranks/NAME/expected.json`: tokens of the same ranks with the words of other encodings.
- `templates.json`: chat templates with messages, tools, and the text that `apply_chat_template` renders, or its error.
- `sampling.json`: logits with settings, and the probabilities that the logits processors of transformers leave.
- `vocabularies.json`: what samplers leave of the tokens of a large vocabulary.
- `samplers.json`: what DRY, mirostat 2 and ExecuTorch's sampler make of logits, by their definitions.
- `perplexity.json`: log-likelihoods of a text by transformers.
- `tests/decoders/llama/tokenizer.json` and `tokenizer_config.json`, for its 64 tokens.
"""

import base64
import ctypes
import ctypes.util
import functools
import io
import json
import math
import pathlib
import random
import unicodedata

import numpy as np
import sentencepiece
import tiktoken
import tiktoken_ext.openai_public as tiktoken_openai
import tokenizers
import torch
import transformers
from pytorch_tokenizers.llama2c import Llama2cTokenizer
from pytorch_tokenizers.tiktoken import TiktokenTokenizer
from tiktoken._educational import bpe_train
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers.generation import logits_process

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "tests/llm"
VOCABULARY = 512

TEXTS = [
    "", " ", "\n\n", "hello", " hello", "Hello, world!", "The quick brown fox  jumps over 13 lazy dogs.", "a\tb\r\nc\u00a0d",
    "don't you'll WE'RE I'm", "3.14159 1000000 ½ ²", "naïve café Ångström", "Grüße aus Köln", "Привет, мир", "שלום עולם",
    "مرحبا بالعالم", "नमस्ते दुनिया", "สวัสดีชาวโลก", "你好，世界", "こんにちは世界", "안녕하세요", "👍🏽 👩‍👩‍👧 🇩🇪", "\u0000\u0001\u007f", "e\u0301 é",
    "ﬁ ﬂ Ⅷ ①", "x" * 300, "fn main() { println!(\"{}\", 1 << 4); }", "<s> </s> <|im_start|>user", "zero\u200bwidth\u200djoiner", "\ufeffmark",
    "tail   ", "   head", "line one\n  line two\n\n\nline five",
]  # fmt: skip
SPECIAL = ["<pad>", "<s>", "</s>", "<unk>", "<|im_start|>", "<|im_end|>"]
# The pre-tokenizers of GPT-4 and Llama 3.
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def byte_level(split):
    tokenizer = tokenizers.Tokenizer(models.BPE())
    if split:
        parts = [pre_tokenizers.Split(tokenizers.Regex(SPLIT), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)]
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(parts)
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    return tokenizer, trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=SPECIAL, initial_alphabet=alphabet)


def sentencepiece_bpe():
    tokenizer = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    special = SPECIAL + [f"<0x{byte:02X}>" for byte in range(256)]
    return tokenizer, trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=special)


def unigram():
    tokenizer = tokenizers.Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(tokenizers.Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer, trainers.UnigramTrainer(vocab_size=VOCABULARY, special_tokens=SPECIAL, unk_token="<unk>")


def word_piece():
    tokenizer = tokenizers.Tokenizer(models.WordPiece(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer, trainers.WordPieceTrainer(vocab_size=VOCABULARY, special_tokens=SPECIAL)


TOKENIZERS = {
    "byte_level": lambda: byte_level(False),
    "byte_level_split": lambda: byte_level(True),
    "sentencepiece_bpe": sentencepiece_bpe,
    "unigram": unigram,
    "word_piece": word_piece,
}


def write_tokenizers():
    corpus = [(ROOT / name).read_text() for name in ("README.md", "SECURITY.md", "CONTRIBUTING.md")] + TEXTS[9:12]
    for name, make in TOKENIZERS.items():
        tokenizer, trainer = make()
        tokenizer.train_from_iterator(corpus, trainer)
        bos = tokenizer.token_to_id("<s>")
        tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", bos)])
        folder = OUT / "tokenizers" / name
        folder.mkdir(parents=True, exist_ok=True)
        file = json.loads(tokenizer.to_str())
        # Bytes are given to the trainer as special tokens, and are none.
        file["added_tokens"] = [token for token in file["added_tokens"] if not token["content"].startswith("<0x")]
        (folder / "tokenizer.json").write_text(json.dumps(file, ensure_ascii=False) + "\n")
        tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        rows = []
        for text in TEXTS:
            tokens = tokenizer.encode(text).ids
            plain = tokenizer.encode(text, add_special_tokens=False).ids
            rows.append({"text": text, "tokens": tokens, "plain": plain, "decoded": tokenizer.decode(tokens)})
        (folder / "expected.json").write_text(json.dumps(rows, ensure_ascii=False) + "\n")


def write_rows(folder, texts, encode, decode, begin=(), end=()):
    """Expected tokens, with those that the tokenizer puts around a text and without."""
    rows = []
    for text in texts:
        plain = encode(text)
        tokens = [*begin, *plain, *end]
        rows.append({"text": text, "tokens": tokens, "plain": plain, "decoded": decode(tokens)})
    (folder / "expected.json").write_text(json.dumps(rows, ensure_ascii=False) + "\n")


# Without those that spell special tokens: SentencePiece and tiktoken take them for text where nothing else is asked for.
PLAIN_TEXTS = [text for text in TEXTS if "<s>" not in text]
USER_DEFINED = ["<|im_start|>", "<|im_end|>"]
SENTENCEPIECES = {
    # NFKC and the rules for spaces of most unigram models.
    "model_unigram": {"model_type": "unigram", "user_defined_symbols": USER_DEFINED},
    # As Llama 2 and Gemma have it.
    "model_bpe": {
        "model_type": "bpe", "byte_fallback": True, "normalization_rule_name": "identity", "remove_extra_whitespaces": False,
        "split_digits": True, "user_defined_symbols": USER_DEFINED,
    },
    # No token begins a text; it is lower case, and spaces end words.
    "model_suffix": {
        "model_type": "unigram", "bos_id": -1, "pad_id": 0, "unk_id": 1, "eos_id": 2, "byte_fallback": True,
        "normalization_rule_name": "nmt_nfkc_cf", "treat_whitespace_as_suffix": True,
    },
}  # fmt: skip


def write_sentencepieces():
    lines = [line for name in ("README.md", "SECURITY.md", "CONTRIBUTING.md") for line in (ROOT / name).read_text().splitlines()]
    for name, options in SENTENCEPIECES.items():
        folder = OUT / "tokenizers" / name
        folder.mkdir(parents=True, exist_ok=True)
        file = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines + TEXTS[9:12]), model_writer=file, vocab_size=VOCABULARY, minloglevel=2,
            hard_vocab_limit=False, **options,
        )  # fmt: skip
        (folder / "tokenizer.model").write_bytes(file.getvalue())
        processor = sentencepiece.SentencePieceProcessor(model_proto=file.getvalue())
        texts = PLAIN_TEXTS + ["<|im_start|>user", "a <|im_start|> b<|im_end|>", "  two  spaces  "]
        around = ([processor.bos_id()], []) if processor.bos_id() >= 0 else ([], [processor.eos_id()])
        write_rows(folder, texts, processor.encode, processor.decode, *around)
    # The same pieces as ExecuTorch writes them.
    folder = OUT / "tokenizers" / "llama2c"
    folder.mkdir(parents=True, exist_ok=True)
    llama2c = Llama2cTokenizer(str(OUT / "tokenizers/model_bpe/tokenizer.model"))
    llama2c.export(str(folder / "tokenizer.bin"))
    write_rows(folder, PLAIN_TEXTS, lambda text: llama2c.encode(text, False, False), llama2c.decode, [llama2c.bos_id])


# As OpenAI and Mistral publish them, for the encodings o200k_base, cl100k_base and Tekken.
O200K = "|".join([
    r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
    r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
    r"""\p{N}{1,3}""", r""" ?[^\s\p{L}\p{N}]+[\r\n/]*""", r"""\s*[\r\n]+""", r"""\s+(?!\S)""", r"""\s+""",
])  # fmt: skip
CL100K = (
    r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"""
)
TEKKEN = O200K.replace(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?", "").replace(r"\p{N}{1,3}", r"\p{N}")
# The patterns of each number of ranks, up to which the tests add ranks that no text has.
TIKTOKENS = {
    "tiktoken_gpt2": (50256, tiktoken_openai.r50k_pat_str),
    "tiktoken_cl100k": (100256, CL100K),
    "tiktoken_o200k": (199998, O200K),
    "tiktoken_qwen": (151643, SPLIT.replace(r"\p{N}{1,3}", r"\p{N}")),
}


def write_tiktokens():
    corpus = " ".join((ROOT / name).read_text() for name in ("README.md", "SECURITY.md")) + " ".join(TEXTS[9:12])
    ranks = bpe_train(corpus[:100_000], VOCABULARY, SPLIT, visualise=None)
    folder = OUT / "tokenizers" / "tiktoken_llama3"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "tokenizer.model"
    file.write_text("".join(f"{base64.b64encode(token).decode()} {rank}\n" for token, rank in ranks.items()))
    llama = TiktokenTokenizer(str(file))
    encode = functools.partial(llama.encode, bos=False, eos=False, allowed_special="all")
    # Special tokens are left out when text is decoded.
    decode = lambda tokens: llama.decode([token for token in tokens if token < len(ranks)])  # noqa: E731
    texts = TEXTS + ["<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nhi<|eot_id|>", "<|reserved_special_token_246|>"]
    write_rows(folder, texts, encode, decode, [llama.bos_id])
    for name, (_, pattern) in TIKTOKENS.items():
        encoding = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
        folder = OUT / "ranks" / name
        folder.mkdir(parents=True, exist_ok=True)
        # Qwen's tokenizer normalizes first.
        normalize = (lambda text: unicodedata.normalize("NFC", text)) if name == "tiktoken_qwen" else str
        write_rows(folder, TEXTS, lambda text, normalize=normalize: encoding.encode(normalize(text)), encoding.decode)
    encoding = tiktoken.Encoding("tekken", pat_str=TEKKEN, mergeable_ranks=ranks, special_tokens={})
    special = 20
    folder = OUT / "tokenizers" / "tekken"
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = [
        {"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": None} for token, rank in ranks.items()
    ]
    config = {
        "pattern": TEKKEN, "num_vocab_tokens": len(ranks), "default_vocab_size": len(ranks) + special,
        "default_num_special_tokens": special, "version": "v3",
    }  # fmt: skip
    (folder / "tekken.json").write_text(json.dumps({"config": config, "vocab": vocabulary}) + "\n")
    write_rows(
        folder, PLAIN_TEXTS, lambda text: [token + special for token in encoding.encode(text)],
        lambda tokens: encoding.decode([token - special for token in tokens if token >= special]), [1],
    )  # fmt: skip


CHATML = """{%- for message in messages %}
    {%- if loop.first and message.role != 'system' %}
        {{- '<|im_start|>system\\nYou help.<|im_end|>\\n' }}
    {%- endif %}
    {{- '<|im_start|>' + message['role'] + '\\n' + message['content'] | trim + '<|im_end|>' + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
ALTERNATING = """{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set system = messages[0]['content'] %}{% set messages = messages[1:] %}
{% endif %}
{% for message in messages %}
{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
{{ raise_exception('Roles must alternate user/assistant/user/assistant/...') }}
{% endif %}
{% if message['role'] == 'user' %}
{{ '[INST] ' + (system + '\\n\\n' if system is defined and loop.first else '') + message['content'] + ' [/INST]' }}
{% else %}{{ message['content'] + eos_token }}{% endif %}
{% endfor %}
"""
TOOLS = """{%- set ns = namespace(last=-1) %}
{%- if tools %}
    {{- 'Tools:\\n' }}
    {%- for tool in tools %}{{ tool | tojson }}{{ '\\n' }}{%- endfor %}
    {{- tools | tojson(indent=2) }}
{%- endif %}
{%- for message in messages[::-1] %}
    {%- set index = (messages | length - 1) - loop.index0 %}
    {%- if ns.last < 0 and message.role == 'user' %}{%- set ns.last = index %}{%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.tool_calls is defined and message.tool_calls %}
        {%- for call in message.tool_calls %}
            {{- '<tool_call>' + call.function.name + ' ' + (call.function.arguments | tojson) + '</tool_call>' }}
        {%- endfor %}
    {%- elif message.role == 'tool' %}{{ '<tool>' ~ message.content ~ '</tool>' }}
    {%- else %}
        {%- if loop.index0 == ns.last %}{{ '*' }}{% endif %}
        {{- message.role.upper() ~ ': ' ~ message.content.strip().replace('\\n', ' ') ~ '\\n' }}
        {%- if message.content.startswith('stop') %}{%- break %}{%- endif %}
    {%- endif %}
{%- endfor %}
"""
METHODS = """{%- macro part(text, upper=false) -%}{{ text.upper() if upper else text.title() }}{%- endmacro -%}
{%- set words = messages[0].content.split(' ') -%}
{{ words | join('|') }} {{ words[-1] }} {{ words[:2] }} {{ part(words[0]) }} {{ part(text=words[0], upper=true) }}
{%- for key, value in messages[0].items() %} {{ key }}={{ value | length }}{% endfor %}
{{ messages | selectattr('role', 'equalto', 'user') | list | length }} {{ messages | map(attribute='role') | unique | join(',') }}
{% generation %}{{ 'x' if messages[0].content is string and 'a' in messages[0].content else none }}{% endgeneration %}
{%- if not missing is defined %} {{ messages[0].get('name', 'nobody') }}{% endif %} {{ 7 // 2 }} {{ -7 % 3 }} {{ 1.0 }} {{ true }} {{ none }}
{{ 'a' ~ 1 }} {{ "%s-%d" | format('b', 2) }} {{ messages[0].content | capitalize }} {{ '  c '.lstrip() }}| {{ [3, 1] | sort | first }}
"""
GREETING = [{"role": "user", "content": "  Hello there\nand again  "}]
TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What is 1 < 2 & 'three'?"},
    {"role": "assistant", "content": "True — naïve, 你好."},
    {"role": "user", "content": "Why?"},
]
CALLS = TALK[:2] + [
    {"role": "assistant", "content": "", "tool_calls": [
        {"type": "function", "function": {"name": "add", "arguments": {"b": 1.5, "a": [1, None, True], "c": "ä \"<&>\""}}}
    ]},
    {"role": "tool", "content": "2.5"},
    {"role": "user", "content": "stop here"},
    {"role": "user", "content": "never"},
]  # fmt: skip
TOOL_LIST = [{"type": "function", "function": {
    "name": "add", "description": "Adds <numbers> & more.",
    "parameters": {"type": "object", "properties": {"a": {"type": "array"}, "b": {"type": "number"}}, "required": ["a"]},
}}]  # fmt: skip


def write_templates():
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(OUT / "tokenizers/byte_level/tokenizer.json"), bos_token="<s>", eos_token="</s>"
    )
    rows = []
    for template in (CHATML, ALTERNATING, TOOLS, METHODS):
        for messages in (GREETING, TALK, CALLS):
            for tools, prompt in ((None, True), (TOOL_LIST, False)):
                row = {"template": template, "messages": messages, "tools": tools, "add_generation_prompt": prompt}
                try:
                    row["text"] = tokenizer.apply_chat_template(
                        messages, tools=tools, chat_template=template, add_generation_prompt=prompt, tokenize=False
                    )
                except Exception as error:
                    row["error"] = str(error)
                rows.append(row)
    (OUT / "templates.json").write_text(json.dumps(rows, ensure_ascii=False, indent=1) + "\n")


SAMPLINGS = [
    {"temperature": 0.7}, {"temperature": 1.3, "top_k": 5}, {"temperature": 1.0, "top_p": 0.8}, {"temperature": 1.0, "min_p": 0.1},
    {"temperature": 1.0, "typical_p": 0.6}, {"temperature": 0.5, "top_k": 20, "top_p": 0.9, "min_p": 0.02, "typical_p": 0.95},
    {"temperature": 1.0, "repetition_penalty": 1.5, "prompt": [0, 3, 3, 17]},
    {"temperature": 0.9, "repetition_penalty": 0.8, "top_p": 0.5, "prompt": [1, 2]}, {"temperature": 1e-3}, {"temperature": 1.0, "top_k": 1},
]  # fmt: skip


def processed(scores, settings, prompt=None):
    """Logits after the processors of transformers."""
    steps = []
    if "repetition_penalty" in settings:
        steps.append(logits_process.RepetitionPenaltyLogitsProcessor(settings["repetition_penalty"]))
    steps.append(logits_process.TemperatureLogitsWarper(settings["temperature"]))
    for name, kind in (
        ("top_k", logits_process.TopKLogitsWarper), ("top_p", logits_process.TopPLogitsWarper),
        ("min_p", logits_process.MinPLogitsWarper), ("typical_p", logits_process.TypicalLogitsWarper),
    ):  # fmt: skip
        if name in settings:
            steps.append(kind(settings[name]))
    for step in steps:
        scores = step(prompt, scores)
    return scores


def whole_vocabulary(squarings, scale):
    """Logits of 100,003 tokens: few stand out after many squarings of their uniform numbers."""
    numbers = np.arange(100_003, dtype=np.uint64) * np.uint64(2_654_435_761) % np.uint64(2**32) >> np.uint64(8)
    logits = numbers.astype(np.float32) / np.float32(2**24)
    for _ in range(squarings):
        logits = logits * logits
    return logits * np.float32(scale)


def write_whole_vocabularies():
    """What is left of them, as a count and a sum of tokens, with the probability of the most likely one. In double precision, as
    sums of 100,000 numbers are not exact to one token in single precision."""
    rows = []
    for squarings, scale in ((0, 3), (4, 20), (7, 30)):
        logits = torch.from_numpy(whole_vocabulary(squarings, scale))
        for settings in (
            {"top_k": 40}, {"top_k": 5000, "top_p": 0.9}, {"top_p": 0.95}, {"top_p": 0.5, "min_p": 0.1}, {"min_p": 0.05}, {"typical_p": 0.9},
            {"top_k": 40, "top_p": 0.95, "min_p": 0.05}, {},
        ):  # fmt: skip
            settings = settings | {"temperature": 0.8}
            scores = processed(logits[None].double(), settings)[0]
            left = torch.nonzero(scores > -torch.inf)[:, 0]
            row = {"squarings": squarings, "scale": scale, "settings": settings, "count": len(left), "sum": int(left.sum())}
            rows.append(row | {"most": torch.softmax(scores, -1).max().item()})
    (OUT / "vocabularies.json").write_text(json.dumps(rows) + "\n")


def write_samplings():
    generator = torch.Generator().manual_seed(20)
    rows = []
    for index, settings in enumerate(SAMPLINGS):
        logits = torch.randn(40, generator=generator) * 3
        if index % 3 == 0:
            # Equals, and tokens that cannot be.
            logits[5] = logits[9] = logits[11]
            logits[7] = -torch.inf
        scores, prompt = logits[None].clone(), torch.tensor([settings.get("prompt", [])], dtype=torch.long)
        probabilities = torch.softmax(processed(scores, settings, prompt)[0].double(), -1).tolist()
        logits = ["-inf" if logit == -torch.inf else logit for logit in logits.tolist()]
        rows.append({"settings": settings, "logits": logits, "probabilities": probabilities})
    (OUT / "sampling.json").write_text(json.dumps(rows) + "\n")


def dry_penalties(tokens, multiplier, base, allowed_length, last=None, breakers=()):
    """The definition, token by token: how long is what the text ends with, and stood before an earlier token?"""
    tokens = tokens[-last:] if last else tokens
    longest = {}
    for at in range(1, len(tokens)):
        length = 0
        while length < at and tokens[at - 1 - length] == tokens[-1 - length] and tokens[at - 1 - length] not in breakers:
            length += 1
        if length >= allowed_length and tokens[at] not in breakers:
            longest[tokens[at]] = max(length, longest.get(tokens[at], 0))
    return {token: multiplier * base ** (length - allowed_length) for token, length in longest.items()}


class SplitMix64:
    """The generator of Rushlight's sampler."""

    def __init__(self, seed):
        self.state = seed

    def next(self):
        mask = 2**64 - 1
        self.state = (self.state + 0x9E3779B97F4A7C15) & mask
        mixed = self.state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & mask
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & mask
        return ((mixed ^ (mixed >> 31)) >> 11) / 2**53


def mirostat(rows, tau, eta, temperature, seed):
    """Algorithm 2 of Basu et al., with the surprisal among the tokens that are left, as llama.cpp has it."""
    generator, bound, tokens = SplitMix64(seed), 2 * tau, []
    for logits in rows:
        scaled = [logit / temperature for logit in logits]
        weights = [math.exp(logit - max(scaled)) for logit in scaled]
        likely = [token for token, weight in enumerate(weights) if -math.log2(weight / sum(weights)) <= bound]
        left = likely or [weights.index(max(weights))]
        probabilities = [weights[token] / sum(weights[token] for token in left) for token in left]
        coin = generator.next()
        index = next((index for index in range(len(left)) if coin < sum(probabilities[: index + 1])), len(left) - 1)
        bound -= eta * (-math.log2(probabilities[index]) - tau)
        tokens.append(left[index])
    return tokens, bound


def executorch_sampler(rows, temperature, seed):
    """`extension/llm/sampler/sampler.cpp` in float32, with top-p 0.9 and the C library's `expf`."""
    library = ctypes.CDLL(ctypes.util.find_library("m"))
    library.expf.restype, library.expf.argtypes = ctypes.c_float, [ctypes.c_float]
    f32, mask, state, tokens = np.float32, 2**64 - 1, seed, []
    for logits in rows:
        values = [f32(logit) * (f32(1) / f32(temperature)) for logit in logits]
        values = [f32(library.expf(value - max(values))) for value in values]
        total = f32(0)
        for value in values:
            total += value
        values = [value / total for value in values]
        state ^= state >> 12
        state = (state ^ (state << 25)) & mask
        state ^= state >> 27
        coin = f32((((state * 0x2545F4914F6CDD1D) & mask) >> 32) >> 8) / f32(16777216)
        cutoff = (f32(1) - f32(0.9)) / f32(len(values) - 1)
        order = sorted((token for token, value in enumerate(values) if value >= cutoff), key=lambda token: -values[token])
        total, last = f32(0), len(order) - 1
        for index, token in enumerate(order):
            total += values[token]
            if total > f32(0.9):
                last = index
                break
        left, total, chosen = coin * total, f32(0), order[last]
        for token in order[: last + 1]:
            total += values[token]
            if left < total:
                chosen = token
                break
        tokens.append(chosen)
    return tokens


DRY = [
    {"multiplier": 0.8, "base": 1.75, "allowed_length": 2}, {"multiplier": 1.5, "base": 1.0, "allowed_length": 1},
    {"multiplier": 0.5, "base": 2.0, "allowed_length": 3, "breakers": [0]},
    {"multiplier": 0.8, "base": 1.5, "allowed_length": 1, "last": 12, "breakers": [1, 2]},
]  # fmt: skip


def write_samplers():
    generator, numbers = torch.Generator().manual_seed(30), random.Random(31)
    normal = lambda *shape: torch.randn(*shape, generator=generator)  # noqa: E731
    dry = []
    for index in range(24):
        # Few tokens, some of which the text repeats.
        tokens = [numbers.randrange(4) for _ in range(numbers.randrange(40))]
        tokens += tokens[-numbers.randrange(1, 9) :] if index % 2 else [3, 1] * numbers.randrange(5)
        logits = normal(6)
        penalties = dry_penalties(tokens, **DRY[index % len(DRY)])
        penalized = [logit - penalties.get(token, 0) for token, logit in enumerate(logits.tolist())]
        probabilities = torch.softmax(torch.tensor(penalized, dtype=torch.float64), -1).tolist()
        settings = DRY[index % len(DRY)]
        dry.append({"settings": settings, "tokens": tokens, "logits": logits.tolist(), "probabilities": probabilities})
    surprises = []
    for settings in ({"tau": 5.0, "eta": 0.1}, {"tau": 2.0, "eta": 0.5}, {"tau": 0.5, "eta": 0.2}, {"tau": 3.0, "eta": 0.0}):
        rows, temperature, seed = (normal(16, 30) * 2).tolist(), numbers.choice([0.7, 1.0, 1.2]), numbers.randrange(1000)
        temperature = float(np.float32(temperature))
        exact = {name: float(np.float32(value)) for name, value in settings.items()}
        tokens, bound = mirostat(rows, **exact, temperature=temperature, seed=seed)
        row = {"settings": settings, "temperature": temperature, "seed": seed, "logits": rows, "tokens": tokens, "bound": bound}
        surprises.append(row)
    samples = []
    for temperature, scale in ((0.8, 1), (1.0, 3), (0.5, 4), (1.5, 2)):
        rows, seed = (normal(24, 40) * scale).tolist(), numbers.randrange(1, 2**48)
        tokens = executorch_sampler(rows, temperature, seed)
        samples.append({"temperature": temperature, "seed": seed, "logits": rows, "tokens": tokens})
    (OUT / "samplers.json").write_text(json.dumps({"dry": dry, "mirostat": surprises, "executorch": samples}) + "\n")


def write_perplexities():
    """Rolling log-likelihoods of a text by the tiny Llama, in windows as lm-eval makes them."""
    folder = ROOT / "tests/decoders/llama"
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    text = "It is a truth universally acknowledged, that a model must be tested on a text that it has not seen. " * 2
    tokens, bos = tokenizer.encode(text, add_special_tokens=False).ids, 1
    rows = []
    for window in (1, 7, 30, 80):
        total = 0.0
        for begin in range(0, len(tokens), window):
            end = min(begin + window, len(tokens))
            # The last window is filled with the text before it.
            known = ([bos] + tokens)[max(0, end - window) : end]
            with torch.no_grad():
                scores = torch.log_softmax(model(torch.tensor([known])).logits[0].double(), -1)
            total += sum(scores[at - end][tokens[at]].item() for at in range(begin, end))
        rows.append({"window": window, "log_likelihood": total, "tokens": len(tokens)})
    (OUT / "perplexity.json").write_text(json.dumps({"text": text, "bos": bos, "rows": rows}) + "\n")


def write_decoder_tokenizer():
    """Tokens 3 to 63 are characters of their own, and a space begins each word."""
    characters = "▁abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.,!?:;-'"
    vocabulary = {"<pad>": 0, "<s>": 1, "</s>": 2} | {char: 3 + index for index, char in enumerate(characters[:61])}
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse()])
    tokenizer.add_special_tokens(["<pad>", "<s>", "</s>"])
    folder = ROOT / "tests/decoders/llama"
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    template = "{% for message in messages %}{{ message.role }}: {{ message.content }}. {% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"
    settings = {"bos_token": "<s>", "eos_token": "</s>", "chat_template": template}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings) + "\n")
    expected = json.loads((folder / "expected.json").read_text())
    text = {key: tokenizer.decode(expected[key]) for key in ("prompt", "greedy")}
    (folder / "text.json").write_text(json.dumps(text, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    OUT.mkdir(exist_ok=True)
    write_tokenizers()
    write_sentencepieces()
    write_tiktokens()
    write_templates()
    write_samplings()
    write_whole_vocabularies()
    write_samplers()
    write_decoder_tokenizer()
    write_perplexities()
