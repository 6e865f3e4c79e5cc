"""`rushlight llm chat` in a pseudo-terminal: the editor of lines, Ctrl-C and Ctrl-D.

    RUSHLIGHT=target/checked/rushlight .venv/bin/python -m pytest tests/terminal
"""

import json
import os
import shutil
import signal
import subprocess
import time

import pytest
from terminal import CTRL_C, CTRL_D, ROOT, RUSHLIGHT, UP, Terminal

MODEL = ROOT / "tests/decoders/llama"


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    folder = tmp_path_factory.mktemp("chat")
    shutil.copytree(MODEL, folder, dirs_exist_ok=True)
    # So long that Ctrl-C comes before the end of an answer.
    config = json.loads((MODEL / "config.json").read_text()) | {"max_position_embeddings": 100_000}
    (folder / "config.json").write_text(json.dumps(config))
    program = folder / "tiny.pte"
    compile = [RUSHLIGHT, "compile", folder, "--backend", "cpu", "--max-context-len", "100000", "-o", program]
    subprocess.run(compile, check=True, capture_output=True)
    return program


@pytest.fixture
def chat(program):
    started = []

    def start(*options, **environment):
        started.append(Terminal(RUSHLIGHT, "llm", "chat", program, *options, **environment))
        return started[-1]

    yield start
    for one in started:
        if one.pid is not None:
            os.kill(one.pid, signal.SIGKILL)
            os.waitpid(one.pid, 0)
        os.close(one.fd)


def test_ctrl_c_stops_the_answer_alone(chat):
    one = chat("--temperature", "0", "--ignore-eos")
    one.wait_for("> ")
    one.type("Hi\r")
    time.sleep(1)
    one.type(CTRL_C)
    assert "^C" in one.wait_for("; answer ")
    one.wait_for("> ")
    # The next message is answered, too.
    one.type("And\r")
    time.sleep(0.5)
    one.type(CTRL_C)
    assert "^C" in one.wait_for("; answer ")
    one.wait_for("> ")
    # At the prompt it gives the line up.
    one.type("/exi" + CTRL_C)
    one.wait_for("> ")
    one.type("/exit\r")
    assert one.ends() == 0


def test_lines_are_edited_and_come_again(chat):
    one = chat("-n", "3", "--ignore-eos")
    one.wait_for("> ")
    one.type("Hi\r")
    one.wait_for("; answer ")
    one.wait_for("> ")
    # A line that goes on, and one that is corrected.
    one.type("a \\\rb\r")
    one.wait_for("; answer ")
    one.wait_for("> ")
    one.type("/savX\x7fe /dev/stderr\r")
    saved = one.wait_for("]")
    assert '"content": "Hi"' in saved and '"content": "a \\nb"' in saved, saved
    one.wait_for("> ")
    one.type(UP + UP + "\r")
    one.wait_for("; answer ")
    one.wait_for("> ")
    one.type(CTRL_D)
    assert one.ends() == 0


@pytest.mark.parametrize("no_color", ["", "1"])
def test_colours_are_for_terminals_that_want_them(chat, no_color):
    one = chat("-n", "3", "--ignore-eos", NO_COLOR=no_color)
    one.wait_for("> ")
    one.type("Hi\r")
    one.wait_for("; answer ")
    one.wait_for("> ")
    assert ("\x1b[2m" in one.raw) == (not no_color)
