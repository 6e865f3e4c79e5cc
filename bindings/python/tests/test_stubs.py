"""The stubs are those of the package: names, arguments and defaults, as mypy's stubtest compares them."""

import os
import pathlib
import subprocess
import sys

import rushlight

FOLDER = pathlib.Path(__file__).parent
ALLOWED, SETTINGS = FOLDER / "stubs_allowed.txt", FOLDER / "stubs.ini"


def test_the_stubs_are_those_of_the_package():
    options = ["--allowlist", str(ALLOWED), "--mypy-config-file", str(SETTINGS), "--ignore-unused-allowlist"]
    command = [sys.executable, "-m", "mypy.stubtest", "rushlight", "--concise", *options]
    packages = pathlib.Path(rushlight.__file__).parent.parent
    # mypy finds what is installed by itself, and nothing in PYTHONPATH.
    environment = dict(os.environ) if packages.name == "site-packages" else {**os.environ, "MYPYPATH": str(packages)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
