"""The projects of `rushlight new` are built and run as their users do it, with the packages that `cargo xtask test book` builds."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
RUSHLIGHT = os.environ.get("RUSHLIGHT", str(TARGET / "checked/rushlight"))
LANGUAGES = ["python", "rust", "c", "cpp", "js"]
# The pinned one, which has the targets of firmware.
TOOLCHAIN = re.search(r'channel = "(.+)"', (ROOT / "rust-toolchain.toml").read_text())[1]
CARGO = {"CARGO_TARGET_DIR": str(TARGET / "new"), "RUSTUP_TOOLCHAIN": TOOLCHAIN}
TOOLS = {"python": [], "rust": ["cargo"], "c": ["cmake", "cc"], "cpp": ["cmake", "c++"], "js": ["node"]}


def run(command, folder, text="", **environment):
    done = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        input=text,
        capture_output=True,
        text=True,
        timeout=1500,
        env=os.environ | environment,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def new(folder, template, language, *options):
    """Writes a project, which takes its packages from this repository, and returns what the command prints."""
    for tool in TOOLS[language]:
        if not shutil.which(tool):
            pytest.skip(f"there is no {tool}")
    command = [RUSHLIGHT, "new", folder, "--template", template, "--lang", language, "--source", ROOT, *options]
    printed = run(command, folder.parent)
    for path in folder.rglob("*"):
        if path.is_file() and path.suffix not in {".pte", ".bin", ".wav", ".pgm"}:
            assert not re.search(r"\{\{[a-z-]+\}\}", path.read_text()), path
    return printed


def start(folder, language, *arguments, text=""):
    """Builds a project, runs it, and returns what it prints."""
    if language == "python":
        return run([sys.executable, "main.py", *arguments], folder, text)
    if language == "rust":
        # All projects share what cargo compiles.
        return run(["cargo", "run", "--offline", "--quiet", "--", *arguments], folder, text, **CARGO)
    if language == "js":
        (folder / "node_modules").mkdir(exist_ok=True)
        (folder / "node_modules/rushlight").symlink_to(TARGET / "npm-test")
        return run(["node", "main.js", *arguments], folder, text)
    package = TARGET / "c-test/package"
    run(["cmake", "-S", ".", "-B", "build", f"-DCMAKE_PREFIX_PATH={package}"], folder)
    run(["cmake", "--build", "build"], folder)
    return run([folder / "build" / folder.name, *arguments], folder, text)


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_classifier(language, tmp_path):
    folder = tmp_path / "digits"
    printed = new(folder, "classify", language)
    assert "cd " in printed and "samples/7.pgm" in printed
    samples = [f"samples/{digit}.pgm" for digit in range(10)]
    lines = start(folder, language, *samples).splitlines()
    assert [line.split(": ")[0] for line in lines] == samples
    for digit, line in enumerate(lines):
        best, share = re.match(r"\S+: (\d) ([\d.]+) %, \d [\d.]+ %, \d [\d.]+ %$", line).groups()
        assert int(best) == digit and float(share) > 50, line


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_detector(language, tmp_path):
    folder = tmp_path / "finder"
    new(folder, "detect", language)
    found = start(folder, language, "samples/shapes.pgm").splitlines()
    assert found[0] == "samples/shapes.pgm" and len(found) == 4, found
    # `tools/template_models.py` prints where it placed the shapes.
    placed = {"circle": (15, 2, 31, 18), "square": (42, 18, 55, 32), "triangle": (15, 42, 32, 58)}
    for line in found[1:]:
        kind, score, *box = re.fullmatch(r"  (\w+) (\d+) % at (-?\d+) (-?\d+) (-?\d+) (-?\d+)", line).groups()
        expected = placed.pop(kind)
        assert int(score) > 50 and all(abs(int(side) - place) <= 3 for side, place in zip(box, expected)), found


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_transcriber(language, tmp_path):
    folder = tmp_path / "ears"
    new(folder, "transcribe", language)
    assert start(folder, language, "samples/dialed.wav") == "samples/dialed.wav: 5550199\n"


@pytest.fixture(scope="session")
def llama(tmp_path_factory):
    """A small model of random weights, which speaks until it is stopped."""
    folder = tmp_path_factory.mktemp("llama")
    sizes = ["--vocabulary", "1024", "--hidden", "192", "--layers", "2"]
    run([sys.executable, ROOT / "tools/small_llama.py", folder / "llama", *sizes], folder)
    run([RUSHLIGHT, "compile", folder / "llama", "--backend", "cpu", "-o", folder / "llama.pte"], folder)
    return folder / "llama.pte"


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_chat(language, tmp_path, llama):
    if language == "rust" and not os.environ.get("RUSHLIGHT_WHOLE"):
        pytest.skip("its crates take a minute to compile; `cargo xtask test projects` runs it")
    folder = tmp_path / "talk"
    new(folder, "chat", language, "--model", llama)
    printed = start(folder, language, text="Hi\nYes\n\n")
    answers = [answer for answer in printed.split("> ") if answer.strip()]
    # The model is of random weights.
    assert len(answers) == 2 and all(len(answer) > 20 for answer in answers), printed


def test_a_firmware(tmp_path):
    folder = tmp_path / "sensor"
    if not shutil.which("qemu-system-arm"):
        pytest.skip("there is no qemu-system-arm")
    new(folder, "firmware", "rust")
    command = ["cargo", "run", "--offline", "--quiet", "--release"]
    lines = run(command, folder, **CARGO).splitlines()
    for digit in range(10):
        assert lines[digit].startswith(f"input {digit}: largest at {digit} of "), lines
    assert re.fullmatch(r"RAM of the model \d+ bytes, stack \d+ bytes", lines[10]), lines


def test_a_firmware_of_another_model(tmp_path):
    """The memory and the operators of `src/model.rs` are those of the model."""
    if not shutil.which("qemu-system-arm"):
        pytest.skip("there is no qemu-system-arm")
    model = tmp_path / "finder.pte"
    folder = tmp_path / "finder"
    shutil.copy(ROOT / "tests/corpus/1.5.1/mlp.pte", model)
    new(folder, "firmware", "rust", "--model", model)
    lines = run(["cargo", "run", "--offline", "--quiet", "--release"], folder, **CARGO).splitlines()
    assert lines[0].startswith("input 0: largest at "), lines
