"""Clients that misbehave in every way we know, beside one that does not.

    RUSHLIGHT=target/checked/rushlight .venv/bin/python tests/server/misbehave.py --seconds 600

Starts a server with a Llama of 19 million random weights, or with the program that `--program` names. A token of a smaller model would take
no longer than a pause of the machine. One client streams answers: alone, and then beside 32 others, in several rounds. The others leave,
stall, hold connections, send the largest and the worst bodies, pretend to be web pages, and so on. Fails if

- a token of the one client takes more than twice as long as its slowest token alone,
- one of its answers is refused or cut off,
- the server's memory grows beyond a bound,
- another thread of the server ends, or
- Ctrl-C does not end the server within two seconds in the middle of all this.

Run nothing else on the machine: the times of tokens depend on its whole load.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

from rushlight_server import KEY, MODEL, compiled, serving

OTHER_KEY = "another key"
# What a response is to include for scores of its tokens.
SCORES = "message.output_text.logprobs"
CONTEXT = 4000
TOKENS = 200
MIB = 1 << 20
# The largest body, and what the server may take for all that these clients send.
BODY, MEMORY = 4 * MIB, 640 * MIB


def configured(folder, name, **fields):
    """A copy of the tiny Llama with positions for long answers and with these fields, and its configuration."""
    source = Path(folder) / name
    shutil.copytree(MODEL, source)
    config = json.loads((source / "config.json").read_text()) | {"max_position_embeddings": CONTEXT} | fields
    (source / "config.json").write_text(json.dumps(config))
    return source, config


def long_model(folder):
    """The tiny Llama with positions for long answers."""
    source, _ = configured(folder, "long")
    return compiled(folder, model=source, context=CONTEXT)


def wide_model(folder):
    """As above, with more and larger layers of random weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 384, "intermediate_size": 1024, "head_dim": 32}
    counts = {"num_hidden_layers": 12, "num_attention_heads": 12, "num_key_value_heads": 4}
    source, config = configured(folder, "wide", **sizes, **counts)
    LlamaForCausalLM(LlamaConfig(**config)).save_pretrained(source)
    return compiled(folder, model=source, context=CONTEXT)


def filled(begin, piece, end, size=BODY):
    return begin + piece * ((size - len(begin) - len(end)) // len(piece)) + end


def request(path, body, *headers, key=OTHER_KEY, length=None, method="POST"):
    body = body.encode() if isinstance(body, str) else body
    lines = [f"{method} {path} HTTP/1.1", f"Authorization: Bearer {key}"]
    lines += headers if any(line.lower().startswith("host:") for line in headers) else ["Host: localhost", *headers]
    lines += [f"Content-Length: {len(body) if length is None else length}", "", ""]
    return "\r\n".join(lines).encode() + body


class Misbehaving:
    """One client. Each of its ways is a method; all are used, in a random order."""

    def __init__(self, number, host, port):
        self.choose = random.Random(number)
        self.host, self.port = host, port
        self.done = {}

    async def open(self):
        # Some come from another address.
        local = (self.choose.choice(["127.0.0.1", "127.0.0.2"]), 0)
        async with asyncio.timeout(5):
            return await asyncio.open_connection(self.host, self.port, local_addr=local)

    async def send(self, data, read=200, wait=5.0):
        reader, writer = await self.open()
        try:
            async with asyncio.timeout(wait):
                writer.write(data)
                await writer.drain()
                return await reader.read(read)
        finally:
            writer.transport.abort()

    def stream(self, tokens=3000, has_scores=False, **fields):
        """A request for a long answer, with the scores of twenty tokens for each of it or without."""
        chat = [{"role": "user", "content": "abc"}]
        path, ask, scores = self.choose.choice(
            [
                ("/v1/completions", {"prompt": "abc", "max_tokens": tokens}, {"logprobs": 20}),
                ("/v1/chat/completions", {"messages": chat, "max_tokens": tokens}, {"logprobs": True, "top_logprobs": 20}),
                ("/v1/responses", {"input": chat, "max_output_tokens": tokens}, {"include": [SCORES], "top_logprobs": 20}),
            ]
        )
        ask |= {"stream": True, "ignore_eos": True, **(scores if has_scores else {}), **fields}
        return request(path, json.dumps(ask))

    async def leaves_in_an_answer(self):
        await self.send(self.stream())

    async def leaves_before_an_answer(self):
        _, writer = await self.open()
        writer.write(self.stream())
        writer.transport.abort()

    async def reads_nothing(self):
        _, writer = await self.open()
        writer.write(self.stream(has_scores=True))
        await asyncio.sleep(self.choose.uniform(1, 5))
        writer.transport.abort()

    async def closes_its_half(self):
        """Of work that takes long, so that it goes on when nobody waits for it."""
        bodies = [
            ("/tokenize", filled('{"content": "', "ab cd ", '"}')),
            ("/v1/chat/completions", filled('{"messages": [{"role": "user", "content": "', "x", '"}]}')),
            ("/v1/completions", json.dumps({"prompt": "a", "guided_regex": "(a|b|c)*d" * 5000})),
        ]
        _, writer = await self.open()
        writer.write(request(*self.choose.choice(bodies)))
        await writer.drain()
        writer.write_eof()
        await asyncio.sleep(0.1)
        writer.transport.abort()

    async def sends_the_largest(self):
        bodies = [
            ("/detokenize", filled('{"tokens": [7', ",63", "]}")),
            ("/tokenize", filled('{"content": "', "a", '"}')),
            ("/tokenize", filled('{"content": "', "\\u4f60", '"}')),
            ("/v1/completions", filled('{"prompt": "', "word ", '"}')),
            ("/v1/completions", filled('{"prompt": "a", "x": [', "{},", "0]}")),
            ("/v1/chat/completions", filled('{"messages": [', '{"role":"user","content":""},', "{}]}")),
            ("/v1/responses", filled('{"input": [', '{"role":"user","content":""},', "{}]}")),
            ("/v1/embeddings", filled('{"input": ["', '","', '"]}')),
        ]
        await self.send(request(*self.choose.choice(bodies)), read=1 << 20, wait=20)

    async def says_a_length_that_never_comes(self):
        length = self.choose.choice([1 << 62, 1 << 63, BODY, 50])
        await self.send(request("/tokenize", "{", length=length))

    async def drips(self):
        _, writer = await self.open()
        for byte in b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{":
            if writer.transport.is_closing():
                break
            writer.write(bytes([byte]))
            await asyncio.sleep(0.02)
        writer.transport.abort()

    async def holds_connections(self):
        held = []
        for _ in range(self.choose.randrange(1, 40)):
            _, writer = await self.open()
            writer.write(self.choose.choice([b"", b"POST /tokenize HTTP/1.1\r\n", request("/tokenize", "{", length=50)]))
            held.append(writer)
        await asyncio.sleep(self.choose.uniform(0, 3))
        for writer in held:
            writer.transport.abort()

    async def is_a_web_page(self):
        headers = [
            ["Origin: http://evil.example"],
            ["Origin: null"],
            ["Sec-Fetch-Site: cross-site"],
            ["Host: localhost", "Host: evil.example"],
            ["Host: localh\u00f6st"],
            ["Origin: http://localhost", "Origin: http://localhost"],
        ]
        answer = await self.send(request("/v1/completions", '{"prompt": "a"}', *self.choose.choice(headers)))
        assert not answer or answer.startswith(b"HTTP/1.1 4"), answer

    async def has_no_key(self):
        answer = await self.send(request("/v1/completions", '{"prompt": "a"}', key="guess"))
        assert not answer or answer.startswith(b"HTTP/1.1 401"), answer

    async def guesses_prompts(self):
        guesses = [f"the well-behaved client says {number}" for number in range(20)]
        await self.send(request("/v1/completions", json.dumps({"prompt": guesses, "max_tokens": 0})), wait=10)

    async def asks_for_long_prompts(self):
        ask = {"prompt": [self.choose.randrange(3, 60) for _ in range(CONTEXT - 10)], "max_tokens": 1, "stream": True}
        await self.send(request("/v1/completions", json.dumps(ask)), wait=self.choose.uniform(0.1, 3))

    async def asks_for_hard_forms(self):
        forms = [
            {"guided_json": {"type": "object"}},
            {"guided_regex": "(a|b|c)*d" * 2000},
            {"guided_grammar": 'start: (A | B)+\nA: /[a-z]+/\nB: /[a-z ]+/'},
            {"guided_regex": "("},
        ]
        await self.send(self.stream(tokens=50, temperature=1.0, **self.choose.choice(forms)))

    async def speaks_no_http(self):
        await self.send(self.choose.choice([b"\0" * 1000, b"GET\r\n\r\n", b"a" * 100_000, b"\x16\x03\x01"]))

    async def asks_for_what_is_not(self):
        asks = [("/v1/nothing", "{}"), ("/v1/completions", "{"), ("/v1/completions", '{"prompt": "a", "n": 1000}')]
        await self.send(request(*self.choose.choice(asks)))

    async def run(self, until):
        ways = [name for name in vars(Misbehaving) if name not in ("open", "send", "stream", "run") and name[0] != "_"]
        while time.monotonic() < until:
            self.choose.shuffle(ways)
            for way in ways:
                if time.monotonic() >= until:
                    break
                try:
                    await getattr(self, way)()
                except (OSError, TimeoutError, asyncio.IncompleteReadError):
                    pass  # What the server does with them is its own business.
                self.done[way] = self.done.get(way, 0) + 1
        return self.done


def misbehave(host, port, clients, seconds, results):
    """A process of its own, which yields to the server and to the client that is measured."""
    os.nice(19)

    async def all_clients():
        until = time.monotonic() + seconds
        tasks = [Misbehaving(number, host, port).run(until) for number in range(clients)]
        return await asyncio.gather(*tasks, return_exceptions=True)

    total = {}
    for done in asyncio.run(all_clients()):
        if isinstance(done, BaseException):
            total["FAILED"] = f"{type(done).__name__}: {done}"
        else:
            for way, count in done.items():
                total[way] = total.get(way, 0) + count
    results.put(total)


class WellBehaved:
    def __init__(self, host, port):
        self.host, self.port = host, port
        self.problems = []
        self.busy = 0

    async def answer(self, number):
        """Seconds to the first token, and between tokens; `None` if the server is busy."""
        ask = {"prompt": f"the well-behaved client says {number}", "max_tokens": TOKENS, "ignore_eos": True, "stream": True}
        reader, writer = await asyncio.open_connection(self.host, self.port)
        begin, gaps, text = time.perf_counter(), [], b""
        writer.write(request("/v1/completions", json.dumps(ask), "Connection: close", key=KEY))
        last = begin
        try:
            async with asyncio.timeout(120):
                while line := await reader.readline():
                    if not text and not line.startswith(b"HTTP/1.1 200"):
                        self.busy += line.startswith((b"HTTP/1.1 429", b"HTTP/1.1 503"))
                        if not line.startswith((b"HTTP/1.1 429", b"HTTP/1.1 503")):
                            self.problems.append(f"refused: {line}")
                        return None
                    text += line
                    if line.startswith(b"data: {"):
                        now = time.perf_counter()
                        gaps.append(now - last)
                        last = now
                    if line.startswith(b"data: [DONE]"):
                        return gaps[0], gaps[1:]
        finally:
            writer.transport.abort()
        self.problems.append(f"cut off after {len(gaps)} tokens")
        return None

    async def run(self, seconds):
        firsts, gaps, number = [], [], 0
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            number += 1
            try:
                measured = await self.answer(number)
            except (OSError, TimeoutError) as error:
                self.problems.append(f"{type(error).__name__}: {error}")
                measured = None
            if measured is None:
                await asyncio.sleep(0.2)
                continue
            firsts.append(measured[0])
            gaps += measured[1]
        return sorted(firsts), sorted(gaps)


def memory(process, name):
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith(name)).split()[1]) << 10


def shown(name, firsts, gaps):
    at = lambda values, share: 1e3 * values[min(len(values) - 1, int(share * len(values)))]  # noqa: E731
    print(
        f"{name}: {len(gaps)} tokens of {len(firsts)} answers; a token takes {at(gaps, 0.5):.2f} ms (median), "
        f"{at(gaps, 0.99):.2f} (99 %), {at(gaps, 0.999):.2f} (99.9 %), {1e3 * gaps[-1]:.2f} (slowest); "
        f"the first {at(firsts, 0.5):.1f} (median), {1e3 * firsts[-1]:.1f} (slowest)",
        flush=True,
    )


def add(all, measured):
    for values, more in zip(all, measured, strict=True):
        values += more
        values.sort()


def measure(process, address, arguments):
    """Alone and beside the others in turn, so that both see the same noise of the machine."""
    host, port = urlsplit(address).hostname, urlsplit(address).port
    client = WellBehaved(host, port)
    results = multiprocessing.Queue()
    alone, beside, total = ([], []), ([], []), {}
    before = None
    for _ in range(arguments.rounds):
        add(alone, asyncio.run(client.run(arguments.alone / arguments.rounds)))
        before = before or memory(process, "VmRSS")
        seconds = arguments.seconds / arguments.rounds
        others = multiprocessing.Process(target=misbehave, args=(host, port, arguments.clients, seconds, results))
        others.start()
        add(beside, asyncio.run(client.run(seconds)))
        for way, count in results.get(timeout=120).items():
            total[way] = total.get(way, 0) + count if isinstance(count, int) else count
        others.join()
    done = total
    problems = client.problems[:10]
    if not alone[1] or not beside[1]:
        return [*problems, "the client got no answer"]
    shown("alone", *alone)
    shown(f"beside {arguments.clients}", *beside)
    ratio = beside[1][-1] / alone[1][-1]
    peak = memory(process, "VmHWM")
    median = beside[1][len(beside[1]) // 2] / alone[1][len(alone[1]) // 2]
    print(f"slowest to slowest alone: {ratio:.2f}, median to median {median:.2f}; told to come again {client.busy} times")
    print(f"memory in MiB: {before / MIB:.0f} before, {peak / MIB:.0f} at most")
    print("what they did:", ", ".join(f"{way} {count}" for way, count in sorted(done.items())))
    if "FAILED" in done:
        problems.append(done["FAILED"])
    if ratio > arguments.ratio:
        problems.append(f"a token took {ratio:.2f} times the slowest alone")
    if peak > before + MEMORY:
        problems.append(f"the server took {(peak - before) / MIB:.0f} MiB more")
    return problems


def interrupted(program, arguments):
    """Ctrl-C in the middle of all this."""
    slowest = 0.0
    for _ in range(arguments.interrupts):
        with serving(program, "--api-key", OTHER_KEY, "--sessions", "4") as (process, address):
            host, port = urlsplit(address).hostname, urlsplit(address).port
            results = multiprocessing.Queue()
            others = multiprocessing.Process(target=misbehave, args=(host, port, arguments.clients, 3, results))
            others.start()
            time.sleep(random.uniform(0.5, 2.5))
            start = time.monotonic()
            process.send_signal(signal.SIGINT)
            process.wait(30)
            slowest = max(slowest, time.monotonic() - start)
            results.get(timeout=60)
            others.join()
    print(f"Ctrl-C ends the server within {slowest:.2f} s")
    return [f"Ctrl-C took {slowest:.2f} s"] if slowest > 2 else []


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--alone", type=float, default=300, help="seconds in which the client is alone")
    parser.add_argument("--rounds", type=int, default=10, help="parts of both times, which alternate")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--ratio", type=float, default=2.0, help="of the slowest token to the slowest alone")
    parser.add_argument("--interrupts", type=int, default=5)
    parser.add_argument("--program", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        program = arguments.program or wide_model(folder)
        with serving(program, "--api-key", OTHER_KEY, "--sessions", "4", "--client-timeout", "10") as (process, address):
            problems = measure(process, address, arguments)
        problems += interrupted(program, arguments)
    for problem in problems:
        print("FAILED:", problem)
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
