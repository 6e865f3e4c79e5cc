"""Records the transcript of a first hour: the Python code of `docs/start/python.md`, the command line, and typical errors.

    RUSHLIGHT=PROGRAM python tools/transcript.py            runs the commands, and compares their outputs with the page
    RUSHLIGHT=PROGRAM python tools/transcript.py --write    writes the page
    RUSHLIGHT=PROGRAM python tools/transcript.py --write --wheel FILE     records the installation in a new environment, too

Each command is followed by its exit code and its time. Numbers with a fraction, numbers before a unit, and lines about the machine are not
compared.
"""

import argparse
import difflib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time

import book

PAGE = book.DOCS / "start/transcript.md"
SOURCE = book.DOCS / "start/python.md"
INSTALL = [
    "python3 -m venv hour",
    "hour/bin/pip install -q --no-index {wheel}",
    'hour/bin/python -c "import rushlight; print(rushlight.__version__)"',
]
# Commands that make files for the errors below. The page does not show them.
PREPARED = {"rushlight run half.pte": "head -c 5000 digits.pte > half.pte"}
COMMANDS = [
    "rushlight demo",
    "rushlight doctor",
    "python -W ignore hour.py",
    "python predict.py",
    "rushlight compile digits.pt2 -o digits.pte",
    "rushlight quantize digits.pt2 --calibrate images.npy -o digits-int8.pte",
    "rushlight inspect digits.pte",
    "rushlight run digits.pte -i images.npy --top 1",
    "rushlight bench digits.pte",
    "rushlight compare digits.pt2 digits-int8.pte -i images.npy",
    "rushlight run nothing.pte",
    "rushlight run half.pte",
    "rushlight run digits.pte -i nothing.npy",
    "rushlight run digits.pte --method backward",
    "rushlight compile digits.pte -o x.pte",
    "rushlight compile digits.pt2 --backend npu -o x.pte",
    "python -c \"import rushlight; rushlight.load('half.pte')\"",
    "python -c \"import rushlight, numpy; rushlight.load('digits.pte')(numpy.zeros((1,1,8,8)))\"",
    "python -c \"import rushlight, numpy; rushlight.load('digits.pte')(pixels=numpy.zeros((1,1,8,8),'f'))\"",
]
# Lines about the machine, and results of a training, which differ between machines.
VARYING = re.compile(
    r"^ *(system|processors?|features|operators|backends|python) .*|^ +\d+ +\d+ +\S+ +\S+ %$|^ (open|load|execute).*", re.MULTILINE
)
NUMBER = re.compile(r"[-+]?\d+\.\d+(?:e[-+]?\d+)?|[-+]?\d(?:\.\d+)?e[-+]?\d+|\b\d+ (?:B|bytes)")
FENCE = re.compile(r"(?<=^```text\n).*(?=^```$)", re.DOTALL | re.MULTILINE)


def hour():
    """The Python blocks of the page as one script, which prints the time of each, and the content of the page's files."""
    script, files, number = "import time\n\nbegun = time.perf_counter()\n", {}, 0
    for block in book.blocks(SOURCE):
        if block.language != "python":
            continue
        name = book.directive(block, "file:")
        if name:
            files[name] = block.text
            continue
        first, code = block.text.strip().splitlines()[0], block.text
        if book.directive(block, "raises") is not None:
            code = f"try:\n{textwrap.indent(code, '    ')}except rushlight.Error as error:\n    print('Error', error)\n"
        script += f"print({f'>>> step {number}: {first}'!r}, flush=True)\nstart = time.perf_counter()\n{code}"
        script += 'print(f"    ({time.perf_counter() - start:.2f} s)", flush=True)\n\n'
        number += 1
    return files | {"hour.py": script + 'print(f"all: {time.perf_counter() - begun:.1f} s")\n'}


def shortened(command, text):
    """An output as the page shows it: without the frames of a traceback, and without the images of the demo."""
    lines = text.rstrip().splitlines()
    if command == "rushlight demo":
        lines = [lines[0], "…", lines[-1]]
    if "Traceback (most recent call last):" in lines:
        start = lines.index("Traceback (most recent call last):")
        error = next(at for at in range(start + 1, len(lines)) if not lines[at].startswith(" "))
        lines[:error] = ["…"]
    return "".join(line.rstrip() + "\n" for line in lines)


def recorded(commands, folder, environment):
    """The commands with their outputs, exit codes and times."""
    text = ""
    for command in commands:
        if command in PREPARED:
            subprocess.run(["bash", "-c", PREPARED[command]], cwd=folder, check=True)
        start = time.perf_counter()
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=4 * book.PATIENCE,
        )
        took = time.perf_counter() - start
        text += f"$ {command}\n{shortened(command, done.stdout)}  [exit {done.returncode}, {took:.2f} s]\n\n"
    return text.rstrip() + "\n"


def comparable(text):
    """The lines of a transcript without numbers that vary."""
    text = NUMBER.sub("#", book.NUMBER.sub("#", VARYING.sub("", text)))
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the page")
    parser.add_argument("--wheel", type=pathlib.Path, help="a wheel to install in a new environment")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hour-") as scratch:
        folder, tools = pathlib.Path(scratch) / "hour", pathlib.Path(scratch) / "bin"
        folder.mkdir()
        tools.mkdir()
        rushlight = pathlib.Path(os.environ.get("RUSHLIGHT", book.ROOT / "target/checked/rushlight")).resolve()
        (tools / "rushlight").symlink_to(rushlight)
        for name, text in hour().items():
            (folder / name).write_text(text)
        places = [str(tools), str(pathlib.Path(sys.executable).parent), os.environ["PATH"]]
        environment = os.environ | {"PATH": os.pathsep.join(places), "COLUMNS": "160", "PYTHONDONTWRITEBYTECODE": "1"}
        install = []
        if options.wheel:
            shutil.copy(options.wheel, folder)
            install = [command.format(wheel=options.wheel.name) for command in INSTALL]
        text = recorded([*install, *COMMANDS], folder, environment)
    page = PAGE.read_text()
    if options.write:
        PAGE.write_text(FENCE.sub(lambda _: text, page))
        return
    # The page also shows the installation, which a check does not run.
    shown = FENCE.search(page)[0]
    shown = shown[shown.index(f"$ {COMMANDS[0]}\n") :]
    difference = list(difflib.unified_diff(comparable(shown), comparable(text), "the page", "now", lineterm=""))
    if difference:
        sys.exit("\n".join([*difference, f"{book.name_of(PAGE)} is out of date: run `python tools/transcript.py --write`"]))
    print(f"{book.name_of(PAGE)}: {len(COMMANDS)} commands print what it shows")


if __name__ == "__main__":
    main()
