"""`rushlight llm chat` in a pseudo-terminal: the editor of lines, Ctrl-C and Ctrl-D.

    RUSHLIGHT=target/checked/rushlight .venv/bin/python -m pytest tests/terminal
"""

import contextlib
import json
import os
import re
import select
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

pty = pytest.importorskip("pty")

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "tests/decoders/llama"
RUSHLIGHT = os.environ.get("RUSHLIGHT", str(ROOT / "target/checked/rushlight"))
CTRL_C, CTRL_D, UP = "\x03", "\x04", "\x1b[A"
# Of the editor and of colours.
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


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


class Chat:
    def __init__(self, *command, **environment):
        others = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(command[0], list(map(str, command)), {**others, "TERM": "xterm", **environment})
        # All that came, and what was not waited for, without escapes.
        self.raw = self.unread = ""

    def type(self, keys):
        os.write(self.fd, keys.encode())

    def wait_for(self, what, seconds=60):
        """Waits until a text comes after what was waited for last. Returns what is before it."""
        end = time.monotonic() + seconds
        while what not in self.unread:
            ready, _, _ = select.select([self.fd], [], [], max(0, end - time.monotonic()))
            assert ready, f"{what!r} did not come: {self.unread!r}"
            with contextlib.suppress(OSError):
                piece = os.read(self.fd, 4096).decode(errors="replace")
                self.raw += piece
                self.unread = ESCAPES.sub("", self.unread + piece)
        before, self.unread = self.unread.split(what, 1)
        return before

    def ends(self):
        """Waits for the end. Returns the exit code."""
        with contextlib.suppress(OSError):
            while select.select([self.fd], [], [], 60)[0] and os.read(self.fd, 4096):
                pass
        pid, self.pid = self.pid, None
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.fixture
def chat(program):
    started = []

    def start(*options, **environment):
        started.append(Chat(RUSHLIGHT, "llm", "chat", program, *options, **environment))
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
