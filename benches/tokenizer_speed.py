"""Encodes and decodes long texts with Rushlight and the packages that the tokenizers come from, in turns, in one process with one
thread. Prints JSON: for each tokenizer the seconds of the processor that each side takes.

    PYTHONPATH=FOLDER python benches/tokenizer_speed.py [NAME]
"""

import json
import os
import pathlib
import statistics
import sys
import time

os.environ |= {"TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1"}
ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "tests/tokenizers"))

import texts  # noqa: E402
from samples import SAMPLES  # noqa: E402

from rushlight.llm import Tokenizer  # noqa: E402

NAMES = [
    "gpt2_json", "qwen_json", "deepseek", "claude", "clip", "gemma", "llama2", "bert", "t5", "r50k_base", "cl100k_base", "o200k_base",
    "tekken_240911", "mistral_v3", "jurassic2", "sp_unigram",
]  # fmt: skip
RUNS = 5


def long_text():
    """Prose and code of the repository, and words of many scripts."""
    names = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("crates/llm/src/**/*.rs")]
    written = "\n".join(path.read_text() for path in sorted(names))
    return written[: 1 << 19] + "\n".join(texts.SHORT * 8)


def seconds(run):
    start = time.process_time()
    result = run()
    return time.process_time() - start, result


def measure(sample, text):
    original, tokenizer = sample.original(), Tokenizer.load(sample.path())
    text = original.comparable(text)
    sides = {
        "ours": (lambda: tokenizer.encode(text, add_special_tokens=False), tokenizer.decode),
        "theirs": (lambda: original.encode_plain(text), original.decode),
    }
    times = {side: ([], []) for side in sides}
    for _ in range(RUNS):
        for side, (encode, decode) in sides.items():
            taken, tokens = seconds(encode)
            times[side][0].append(taken)
            times[side][1].append(seconds(lambda decode=decode, tokens=tokens: decode(tokens))[0])
    row = {"name": sample.name, "package": original.package, "bytes": len(text.encode()), "tokens": len(tokens)}
    return row | {side: [statistics.median(part) for part in parts] for side, parts in times.items()}


def main():
    wanted = sys.argv[1:] or NAMES
    text = long_text()
    print(json.dumps([measure(sample, text) for sample in SAMPLES if sample.name in wanted]))


if __name__ == "__main__":
    main()
