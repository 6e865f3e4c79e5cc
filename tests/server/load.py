"""Many clients at once, of which a third go away in the middle of an answer.

    RUSHLIGHT=target/checked/rushlight .venv/bin/python tests/server/load.py --seconds 20

Starts a server with a tiny Llama. Greedy answers must be those of a client alone. Fails if a request ends otherwise than its client
wanted, if a session stays taken when all have gone, or if the server's memory grows: the largest RSS of the last third may exceed
that of the second by 10 percent and 8 MiB. Prints throughput beside that of one client.
"""

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from pathlib import Path

import aiohttp
from rushlight_server import KEY, compiled, serving

HEADERS = {"Authorization": f"Bearer {KEY}"}
PROMPTS = ["abc", "Hello there", "the quick fox", "a", "zebra, zoo", "What is it?", "abcabcabc", "No."]
TOKENS = 48
# How long one client alone is measured, and how long an answer may take.
ALONE_SECONDS, PATIENCE = 3, 120


def request(prompt, stream):
    return {"prompt": prompt, "max_tokens": TOKENS, "ignore_eos": True, "stream": stream}


class Load:
    def __init__(self, http, address):
        self.http, self.address = http, address
        self.expected = {}
        self.answers = self.left = self.busy = self.tokens = 0
        self.errors = []

    async def whole(self, prompt):
        async with self.http.post(self.address + "/v1/completions", json=request(prompt, False)) as response:
            if response.status != 200:
                return response.status, None
            answer = await response.json()
            self.tokens += answer["usage"]["completion_tokens"]
            return 200, answer["choices"][0]["text"]

    async def streamed(self, prompt, leave_after=None):
        """The text of a stream; `None` if the client left after `leave_after` pieces."""
        pieces = []
        async with self.http.post(self.address + "/v1/completions", json=request(prompt, True)) as response:
            if response.status != 200:
                return response.status, None
            async for line in response.content:
                if not line.startswith(b"data: "):
                    continue
                if line.strip() == b"data: [DONE]":
                    return 200, "".join(pieces)
                chunk = json.loads(line[6:])
                if "error" in chunk:
                    raise RuntimeError(chunk["error"]["message"])
                pieces.append(chunk["choices"][0]["text"])
                self.tokens += bool(pieces[-1])
                if leave_after is not None and len(pieces) >= leave_after:
                    response.close()
                    return 200, None
        raise RuntimeError("a stream ended without its mark")

    async def client(self, number, until):
        choose = random.Random(number)
        while time.monotonic() < until:
            prompt = choose.choice(PROMPTS)
            leaves = choose.random() < 1 / 3
            try:
                async with asyncio.timeout(PATIENCE):
                    if leaves:
                        status, text = await self.streamed(prompt, choose.randrange(1, TOKENS - 8))
                    else:
                        status, text = await (self.streamed if choose.random() < 0.5 else self.whole)(prompt)
            except Exception as error:  # noqa: BLE001  each is a finding
                self.errors.append(f"{type(error).__name__}: {error}")
                continue
            if status == 429:
                self.busy += 1
                await asyncio.sleep(0.05)
            elif status != 200:
                self.errors.append(f"status {status}")
            elif leaves:
                self.left += 1
            elif text != self.expected[prompt]:
                self.errors.append(f"{prompt!r}: {text!r} rather than {self.expected[prompt]!r}")
            else:
                self.answers += 1

    async def metric(self, name):
        async with self.http.get(self.address + "/metrics") as response:
            text = await response.text()
        return next(float(line.split()[1]) for line in text.splitlines() if line.startswith(f"rushlight_{name} "))

    async def tokens_a_second(self, clients, seconds):
        """Tokens that the server generated a second, for as many clients."""
        before, start = await self.metric("generated_tokens_total"), time.monotonic()
        await asyncio.gather(*[self.client(number, start + seconds) for number in range(clients)])
        return (await self.metric("generated_tokens_total") - before) / (time.monotonic() - start)


def rss(process):
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS:")).split()[1]) << 10


async def sample_memory(process, samples):
    while True:
        samples.append(rss(process))
        await asyncio.sleep(0.25)


async def run(process, address, clients, seconds):
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(headers=HEADERS, connector=connector) as http:
        load = Load(http, address)
        for prompt in PROMPTS:
            load.expected[prompt] = (await load.whole(prompt))[1]
        alone = await load.tokens_a_second(1, ALONE_SECONDS)
        samples = []
        sampling = asyncio.create_task(sample_memory(process, samples))
        together = await load.tokens_a_second(clients, seconds)
        sampling.cancel()
        deadline = time.monotonic() + 30
        while await load.metric("answers_active") or await load.metric("requests_queued"):
            if time.monotonic() > deadline:
                load.errors.append("a session is taken although all clients have gone")
                break
            await asyncio.sleep(0.05)
        cancelled = await load.metric("requests_cancelled_total")
    third = len(samples) // 3
    warm, last = max(samples[third : 2 * third]), max(samples[2 * third :])
    mib = 1 << 20
    print(
        f"{clients} clients, {seconds} s: {load.answers} answers, {load.left} left ({cancelled:.0f} cancelled), "
        f"{load.busy} told to come again, {len(load.errors)} errors\n"
        f"tokens a second: {together:.0f} together, {alone:.0f} alone\n"
        f"RSS in MiB: {samples[0] / mib:.1f} at the start, {warm / mib:.1f} at most in the second third, {last / mib:.1f} in the last"
    )
    problems = load.errors[:10]
    if last > 1.1 * warm + 8 * mib:
        problems.append("memory grows")
    if not load.answers or not load.left:
        problems.append("there was no load")
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--sessions", type=int, default=4)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, serving(compiled(folder), "--sessions", str(arguments.sessions)) as server:
        problems = asyncio.run(run(*server, arguments.clients, arguments.seconds))
    for problem in problems:
        print("FAILED:", problem)
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
