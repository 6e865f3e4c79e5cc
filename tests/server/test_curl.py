"""curl asks `rushlight llm serve`, as the documentation shows it."""

import json
import shutil
import subprocess

import pytest
from rushlight_server import GREEDY, KEY

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="NOT RUN: there is no curl")

ASK = {"prompt": GREEDY["prompt"], "max_tokens": 12, "ignore_eos": True}


def curl(url, *options):
    command = ["curl", "--silent", "--show-error", "--max-time", "60", "--write-out", "\n%{http_code}", *options, url]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    body, _, status = output.rpartition("\n")
    return int(status), body


def with_key(url, body, *options):
    return curl(url, "--header", f"Authorization: Bearer {KEY}", "--data", json.dumps(body), *options)


def test_a_whole_answer(address):
    status, body = with_key(address + "/completions", ASK)
    assert status == 200 and json.loads(body)["choices"][0]["text"] == GREEDY["greedy"][:12]


def test_a_streamed_answer(address):
    status, body = with_key(address + "/completions", {**ASK, "stream": True}, "--no-buffer")
    *events, end = [event for event in body.split("\n\n") if event]
    assert status == 200 and end == "data: [DONE]"
    pieces = [json.loads(event.removeprefix("data: "))["choices"][0]["text"] for event in events]
    assert len(pieces) > 3 and "".join(pieces) == GREEDY["greedy"][:12]


def test_the_key_is_needed(address):
    for header in ("Accept: */*", "Authorization: Bearer another", f"Authorization: Basic {KEY}"):
        status, body = curl(address + "/models", "--header", header)
        assert status == 401 and json.loads(body)["error"]["type"] == "authentication_error"
    assert curl(address + "/models", "--header", f"Authorization: Bearer {KEY}")[0] == 200


def test_requests_of_one_connection(address):
    body = json.dumps({**ASK, "max_tokens": 1})
    key = f"Authorization: Bearer {KEY}"
    status, body = curl(address + "/completions", "--header", key, "--data", body, *[address + "/completions"] * 4)
    assert status == 200 and body.count('"finish_reason":"length"') == 5


def test_large_requests_are_refused_before_they_are_sent(address):
    """curl asks by `Expect: 100-continue`."""
    status, body = with_key(address + "/completions", {"prompt": "a" * (100 << 10)}, "--max-time", "60")
    assert status == 400 and "tokens" in json.loads(body)["error"]["message"]
