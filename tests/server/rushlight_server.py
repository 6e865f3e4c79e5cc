"""Starts `rushlight llm serve` with a tiny Llama that transformers knows."""

import contextlib
import json
import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ADAPTERS = ROOT / "tests/adapters"
MODEL = ROOT / "tests/decoders/llama"
RUSHLIGHT = os.environ.get("RUSHLIGHT", str(ROOT / "target/checked/rushlight"))
GREEDY = json.loads((MODEL / "text.json").read_text())
KEY = "a key"


def compiled(folder, *options, model=MODEL, context=80, tokenizer=MODEL):
    """The program `tiny.pte` in a folder, with a tokenizer, that of the tiny Llama by default."""
    program = Path(folder) / "tiny.pte"
    compile = [RUSHLIGHT, "compile", model, "--tokenizer", tokenizer, "--backend", "cpu", "--max-context-len", str(context)]
    subprocess.run([*compile, *options, "-o", program], check=True, capture_output=True)
    return program


@contextlib.contextmanager
def serving(program, *options):
    """The process of a server, and its address. It must end well."""
    command = [RUSHLIGHT, "llm", "serve", program, "--port", "0", "--temperature", "0", "--api-key", KEY, *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            line = process.stderr.readline()
            yield process, re.search(r"http://[\d.:]+", line)[0]
        finally:
            process.terminate()
        assert process.wait(60) == 0
