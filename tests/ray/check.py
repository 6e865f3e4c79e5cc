"""`examples/ray` with a tiny Llama that transformers knows: batches on two actors, and two servers behind HAProxy. And
`examples/python/batch_inference.py` with images on two actors.

    PYTHONPATH=target/wheel/package RUSHLIGHT=target/checked/rushlight .venv-ray/bin/python tests/ray/check.py
"""

import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import pyarrow.dataset

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLE, MODEL = ROOT / "examples/ray", ROOT / "tests/decoders/llama"
RUSHLIGHT = os.environ.get("RUSHLIGHT", str(ROOT / "target/checked/rushlight"))
TEXT = json.loads((MODEL / "text.json").read_text())
TOKENS = len(json.loads((MODEL / "expected.json").read_text())["greedy"])
FILES, PROMPTS_OF_FILE = 4, 8
# How long whatever is started may take.
PATIENCE = 300


def compiled(folder):
    program = folder / "tiny.pte"
    options = ["--backend", "cpu", "--max-context-len", "80", "-o", program]
    subprocess.run([RUSHLIGHT, "compile", MODEL, *options], check=True, stdout=subprocess.DEVNULL)
    return program


def batches(folder, program):
    """All prompts are answered once, as transformers does, by both actors; and again what an interrupted run left."""
    prompts, answers = folder / "prompts", folder / "answers"
    prompts.mkdir()
    for file in range(FILES):
        rows = ({"id": PROMPTS_OF_FILE * file + row, "prompt": TEXT["prompt"]} for row in range(PROMPTS_OF_FILE))
        (prompts / f"{file}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = ["--actors", "2", "--max-new-tokens", str(TOKENS), "--ignore-eos"]
    command = [sys.executable, EXAMPLE / "batch.py", program, prompts, answers, *options]

    def run():
        subprocess.run(command, check=True, timeout=PATIENCE)
        rows = pyarrow.dataset.dataset(answers / "data").to_table().to_pylist()
        assert sorted(row["id"] for row in rows) == list(range(FILES * PROMPTS_OF_FILE))
        assert {row["answer"] for row in rows} == {TEXT["greedy"]}
        return {row["id"]: row["answered_by"] for row in rows}

    first = run()
    # As if the run had ended before some were written.
    done = sorted((answers / "done").glob("*.parquet"))
    assert len(done) == FILES, done
    lost = set()
    for file in done[:2]:
        data = answers / "data" / f"{file.stem}-0.parquet"
        lost |= set(pyarrow.dataset.dataset(data).to_table().column("id").to_pylist())
        file.unlink()
        data.unlink()
    second = run()
    assert {id for id in first if first[id] != second[id]} == lost


def images(folder):
    """All copies of ten images are classified, by both actors."""
    digits, copies = ROOT / "examples/cortex-m", folder / "images"
    copies.mkdir()
    for index in range(80):
        shutil.copy(digits / f"images/{index % 10}.png", copies / f"{index}.png")
    command = [sys.executable, ROOT / "examples/python/batch_inference.py", digits / "digits.pte", copies, folder / "predictions"]
    subprocess.run([*command, "--actors", "2", "--batch", "5"], check=True, timeout=PATIENCE)
    rows = pyarrow.dataset.dataset(folder / "predictions").to_table().to_pylist()
    predictions = json.loads((digits / "expected.json").read_text())["predictions"]
    found = {int(pathlib.Path(row["path"]).stem): row["class"] for row in rows}
    assert len(rows) == 80 and found == {index: predictions[index % 10] for index in range(80)}, rows
    assert len({row["process"] for row in rows}) == 2, rows


def free_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


def completion(address):
    """The pieces of a streamed answer."""
    body = {"prompt": TEXT["prompt"], "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True, "stream": True}
    headers = {"Content-Type": "application/json", "Authorization": "Bearer a key"}
    request = urllib.request.Request(f"{address}/v1/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=PATIENCE) as response:
        chunks = [json.loads(line[6:]) for line in response if line.startswith(b"data: {")]
    return [choice["text"] for chunk in chunks for choice in chunk["choices"]]


def metric(server, name):
    request = urllib.request.Request(f"http://{server}/metrics", headers={"Authorization": "Bearer a key"})
    with urllib.request.urlopen(request, timeout=PATIENCE) as response:
        return float(re.search(rf"^{name} (\S+)", response.read().decode(), re.MULTILINE)[1])


def pid_of(port):
    """The process that listens on a port of this machine."""
    inodes = set()
    for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if int(fields[1].split(":")[1], 16) == port and fields[3] == "0A":
            inodes.add(f"socket:[{fields[9]}]")
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if any(os.readlink(file) in inodes for file in (process / "fd").iterdir()):
                return int(process.name)
        except OSError:
            continue
    raise RuntimeError(f"no process listens on port {port}")


def servers(program):
    """Both servers answer; without one that is killed the other does, and then one that takes its place."""
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    options = ["--servers", "2", "--rushlight", RUSHLIGHT, "--port", str(port)]
    environment = {**os.environ, "RUSHLIGHT_API_KEY": "a key"}
    command = [sys.executable, EXAMPLE / "serve.py", program, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            found = known(process)
            assert len(found) == 2, found
            healthy(address)
            answers_are_whole(address, 40)
            counts = [metric(server, "rushlight_requests_total") for server in found]
            assert all(count > 0 for count in counts), counts
            os.kill(pid_of(int(found[0].rpartition(":")[2])), signal.SIGKILL)
            # Whoever is sent to the dead one is sent on.
            answers_are_whole(address, 16)
            again = known(process)
            assert len(again) == 2 and found[1] in again and found[0] not in again, (found, again)
            healthy(address)
            answers_are_whole(address, 40)
            assert all(metric(server, "rushlight_requests_total") > 0 for server in again)
        finally:
            process.terminate()
        process.wait(PATIENCE)


def known(process):
    """The servers that the balancer has now."""
    for line in process.stdout:
        if " has " in line:
            return line.split(" has ")[1].strip().split(", ")
    raise RuntimeError("serve.py has ended")


def healthy(address):
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return urllib.request.urlopen(f"{address}/health", timeout=PATIENCE).close()
        except (urllib.error.URLError, ConnectionError):
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


def answers_are_whole(address, count):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for pieces in pool.map(completion, [address] * count):
            assert "".join(pieces) == TEXT["greedy"] and len(pieces) > 8, pieces


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        program = compiled(folder)
        batches(folder, program)
        images(folder)
        if shutil.which("haproxy"):
            servers(program)
        else:
            print("NOT RUN: servers behind a balancer, which need haproxy")


if __name__ == "__main__":
    main()
