"""Measures a server or a balancer: tokens a second of all answers together, and how long clients wait for the first one.

    python measure.py http://127.0.0.1:8080 prompts/ --clients 8

Each client sends the prompts in turn, one after the other, as streams. Needs nothing but Python.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import statistics
import time
import urllib.request


def answer(address, prompt, tokens):
    """Seconds to the first piece of an answer, and its number of tokens."""
    body = {
        "prompt": prompt,
        "max_tokens": tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    headers = {"Content-Type": "application/json"}
    if key := os.environ.get("RUSHLIGHT_API_KEY"):
        headers["Authorization"] = f"Bearer {key}"
    request = urllib.request.Request(f"{address}/v1/completions", json.dumps(body).encode(), headers)
    start, first, usage = time.monotonic(), None, None
    with urllib.request.urlopen(request) as response:
        for line in response:
            if not line.startswith(b"data: {"):
                continue
            chunk = json.loads(line[6:])
            if "error" in chunk:
                raise RuntimeError(chunk["error"])
            if first is None and any(choice["text"] for choice in chunk["choices"]):
                first = time.monotonic() - start
            usage = chunk.get("usage") or usage
    return first, usage["completion_tokens"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("address")
    parser.add_argument("prompts", type=pathlib.Path, help="a folder of files of JSON lines with `prompt`")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--max-tokens", type=int, default=64)
    arguments = parser.parse_args()
    files = sorted(arguments.prompts.glob("*.jsonl"))
    prompts = [json.loads(line)["prompt"] for file in files for line in file.read_text().splitlines()]
    start = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(arguments.clients) as pool:
        answers = list(pool.map(lambda prompt: answer(arguments.address, prompt, arguments.max_tokens), prompts))
    seconds = time.monotonic() - start
    tokens = sum(count for _, count in answers)
    waits = [first for first, _ in answers if first is not None]
    print(
        f"{len(answers)} answers, {tokens} tokens in {seconds:.1f} s: {tokens / seconds:.0f} tokens a second; first token "
        f"after {statistics.median(waits):.2f} s in the median, {max(waits):.2f} s at most"
    )


if __name__ == "__main__":
    main()
