"""Builds the Python wheel and tests it: in a clean environment without torch and numpy, then beside both.

    python tools/test_wheel.py                    with the Python of .venv, which `cargo xtask setup python` makes
    python tools/test_wheel.py --library FILE     the package with this library, without slow tests
    python tools/test_wheel.py --library FILE --assemble FOLDER     only puts that package into a folder
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import venv

ROOT = pathlib.Path(__file__).resolve().parent.parent
BINDINGS = ROOT / "bindings" / "python"
TARGET = ROOT / "target" / "wheel"
# Of 9 MB. Reference operators and kernels of the CPU backend are 45 % of it.
SIZE_LIMIT = 8_200_000
PIP_INSTALL = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]


def run(*command, **options):
    print("$", *command, flush=True)
    subprocess.run([str(part) for part in command], check=True, cwd=ROOT, **options)


def build():
    shutil.rmtree(TARGET / "dist", ignore_errors=True)
    maturin = [sys.executable, "-m", "maturin", "build", "--locked", "--quiet", "--compression-level", "9"]
    manifest = BINDINGS / "Cargo.toml"
    run(*maturin, "--manifest-path", manifest, "--target-dir", TARGET, "--out", TARGET / "dist")
    (wheel,) = (TARGET / "dist").glob("*.whl")
    size = wheel.stat().st_size
    print(f"{wheel.name}: {size / 1e6:.2f} MB")
    if size > SIZE_LIMIT:
        sys.exit(f"the wheel has {size} bytes, more than {SIZE_LIMIT}")
    return wheel


def assemble(library, packages):
    """Puts the package with a library into a folder of packages."""
    package = packages / "rushlight"
    shutil.rmtree(package, ignore_errors=True)
    shutil.copytree(BINDINGS / "python" / "rushlight", package, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    shutil.copy2(library, package / "_rushlight.abi3.so")


def make_clean_environment():
    """An environment without other packages; returns its Python and its folder of packages."""
    place = TARGET / "clean"
    shutil.rmtree(place, ignore_errors=True)
    venv.create(place, with_pip=True)
    packages = sysconfig.get_path("purelib", "venv", {"base": place, "platbase": place})
    return place / "bin" / "python", pathlib.Path(packages)


def test_plain(python):
    run(python, "-I", BINDINGS / "tests" / "test_plain.py")


def test_beside_torch(*arguments, **variables):
    tests = sorted(path for path in (BINDINGS / "tests").glob("test_*.py") if path.name != "test_plain.py")
    # Two processes with as many threads each wait for each other.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    run(sys.executable, "-m", "pytest", "--quiet", "--durations=20", "--numprocesses", "2", *arguments, *tests, env=environment)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", type=pathlib.Path)
    parser.add_argument("--assemble", type=pathlib.Path, metavar="FOLDER")
    arguments = parser.parse_args()
    library = arguments.library
    if arguments.assemble:
        if not library:
            parser.error("--assemble needs --library")
        assemble(library, arguments.assemble)
    elif library:
        python, packages = make_clean_environment()
        assemble(library, packages)
        test_plain(python)
        assemble(library, TARGET / "package")
        print("NOT RUN without a wheel: tests that are marked as slow", flush=True)
        test_beside_torch("-m", "not slow", PYTHONPATH=str(TARGET / "package"))
    else:
        wheel = build()
        python, _ = make_clean_environment()
        run(python, *PIP_INSTALL, wheel)
        test_plain(python)
        run(sys.executable, *PIP_INSTALL, "--force-reinstall", wheel)
        test_beside_torch()


if __name__ == "__main__":
    main()
