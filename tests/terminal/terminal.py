"""The command in a pseudo-terminal."""

import contextlib
import os
import re
import select
import time
from pathlib import Path

import pytest

pty = pytest.importorskip("pty")

ROOT = Path(__file__).resolve().parents[2]
RUSHLIGHT = os.environ.get("RUSHLIGHT", str(ROOT / "target/checked/rushlight"))
CTRL_C, CTRL_D, UP = "\x03", "\x04", "\x1b[A"
# Of the editor and of colours.
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


class Terminal:
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
            try:
                piece = os.read(self.fd, 4096).decode(errors="replace")
            except OSError:
                raise AssertionError(f"it ended before {what!r} came: {self.raw!r}") from None
            self.raw += piece
            self.unread = ESCAPES.sub("", self.unread + piece)
        before, self.unread = self.unread.split(what, 1)
        return before

    def ends(self):
        """Waits for the end. Returns the exit code."""
        with contextlib.suppress(OSError):
            while select.select([self.fd], [], [], 60)[0] and (piece := os.read(self.fd, 4096)):
                self.raw += piece.decode(errors="replace")
        pid, self.pid = self.pid, None
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
