"""Bars of long commands in a pseudo-terminal, silence in a pipe, and Ctrl-C."""

import subprocess

import numpy
import pytest
import torch
from terminal import CTRL_C, ROOT, RUSHLIGHT, Terminal

DIGITS = ROOT / "examples/cortex-m/digits.pt2"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("progress")
    images = numpy.random.default_rng(0).random((60_000, 1, 8, 8), dtype=numpy.float32)
    numpy.save(folder / "images.npy", images)
    layers = [torch.nn.Linear(2048, 2048) for _ in range(16)]
    exported = torch.export.export(torch.nn.Sequential(*layers), (torch.zeros(64, 2048),))
    torch.export.save(exported, folder / "large.pt2")
    compile = [RUSHLIGHT, "compile", folder / "large.pt2", "--backend", "portable", "-o", folder / "large.pte"]
    subprocess.run(compile, check=True, capture_output=True)
    return folder


@pytest.fixture
def commands(folder, tmp_path):
    """Long commands: their arguments, and what their bars say."""
    out = tmp_path / "out.pte"
    return {
        "quantize": (["quantize", DIGITS, "--calibrate", folder / "images.npy", "-o", out], "calibrating"),
        "compile": (["compile", folder / "large.pt2", "--quantize", "8da4w", "--backend", "cpu", "-o", out], "rounding weights"),
        "bench": (["bench", folder / "large.pte", "--lower", "off", "-n", "10"], "loads and runs"),
        "compare": (["compare", folder / "large.pt2", folder / "large.pte"], "running"),
    }


@pytest.mark.parametrize("name", ["quantize", "compile", "bench", "compare"])
def test_a_person_sees_a_bar_and_a_pipe_nothing(commands, name):
    arguments, stage = commands[name]
    terminal = Terminal(RUSHLIGHT, *arguments)
    terminal.wait_for(stage)
    terminal.wait_for("left")
    assert terminal.ends() == 0
    piped = subprocess.run([RUSHLIGHT, *arguments], capture_output=True, text=True, check=True)
    # Random weights of 4 bits may cause a warning.
    assert all(line.startswith(("note: ", "warning: ")) for line in piped.stderr.splitlines()), piped.stderr


@pytest.mark.parametrize("name", ["quantize", "compile"])
def test_quiet_and_verbose(commands, name):
    arguments, stage = commands[name]
    quiet = Terminal(RUSHLIGHT, *arguments, "--quiet")
    assert quiet.ends() == 0
    assert quiet.raw == ""
    verbose = subprocess.run([RUSHLIGHT, *arguments, "-v"], capture_output=True, text=True, check=True)
    assert any(line.startswith(stage) and line.endswith("s") for line in verbose.stderr.splitlines()), verbose.stderr
    assert "out.pte" in verbose.stdout


@pytest.mark.parametrize("name", ["quantize", "compile", "compare"])
def test_ctrl_c_leaves_what_was_there(commands, tmp_path, name):
    arguments, stage = commands[name]
    (tmp_path / "out.pte").write_bytes(b"before")
    terminal = Terminal(RUSHLIGHT, *arguments)
    terminal.wait_for(stage)
    terminal.type(CTRL_C)
    terminal.wait_for("cancelled")
    assert terminal.ends() == 130
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == {"out.pte": b"before"}
