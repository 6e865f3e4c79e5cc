"""Builds the Python wheel and tests it: in a clean environment without torch and numpy, then beside both.

    python tools/test_wheel.py            with the Python of .venv, which `cargo xtask setup python` makes
    python tools/test_wheel.py --build    only builds it
"""

import pathlib
import shutil
import subprocess
import sys
import venv

ROOT = pathlib.Path(__file__).resolve().parent.parent
BINDINGS = ROOT / "bindings" / "python"
TARGET = ROOT / "target" / "wheel"
# Of 8 MB that language models may take it to.
SIZE_LIMIT = 5_500_000


def run(*command):
    print("$", *command, flush=True)
    subprocess.run([str(part) for part in command], check=True, cwd=ROOT)


def build():
    shutil.rmtree(TARGET / "dist", ignore_errors=True)
    manifest = BINDINGS / "Cargo.toml"
    maturin = [sys.executable, "-m", "maturin", "build", "--release", "--locked", "--quiet"]
    maturin += ["--compression-level", "9"]
    run(*maturin, "--manifest-path", manifest, "--target-dir", TARGET, "--out", TARGET / "dist")
    (wheel,) = (TARGET / "dist").glob("*.whl")
    size = wheel.stat().st_size
    print(f"{wheel.name}: {size / 1e6:.2f} MB")
    if size > SIZE_LIMIT:
        sys.exit(f"the wheel has {size} bytes, more than {SIZE_LIMIT}")
    return wheel


def test_in_clean_environment(wheel):
    place = TARGET / "clean"
    shutil.rmtree(place, ignore_errors=True)
    venv.create(place, with_pip=True)
    python = place / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", wheel)
    run(python, "-I", BINDINGS / "tests" / "test_plain.py")


def test_beside_torch(wheel):
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    run(*pip, "--force-reinstall", wheel)
    tests = sorted(path for path in (BINDINGS / "tests").glob("test_*.py") if path.name != "test_plain.py")
    run(sys.executable, "-m", "pytest", "--quiet", "--numprocesses", "2", *tests)


if __name__ == "__main__":
    built = build()
    if "--build" in sys.argv[1:]:
        sys.exit()
    test_in_clean_environment(built)
    test_beside_torch(built)
