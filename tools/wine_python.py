"""Puts together a Python for Windows that runs in Wine.

    python tools/wine_python.py VERSION FOLDER     VERSION is 3.11 or 3.14t, for example

Its library and modules are those of python.org, out of a wheel that brings them; the modules in Python are those of this
machine's Python of the same version. Needs the environment of `cargo xtask setup dist`.
"""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import zipfile

import pefile

# Brings what programs need that are made of it.
CARRIER = "panda3d==1.10.16"
CARRIED = "deploy_libs/"

PROGRAM = """
__declspec(dllimport) int Py_Main(int, wchar_t **);
int wmain(int count, wchar_t **arguments) { return Py_Main(count, arguments); }
"""


def zig(*arguments):
    subprocess.run([sys.executable, "-m", "ziglang", *map(str, arguments)], check=True)


def unpack_libraries(version, folder):
    number = version.removesuffix("t")
    download = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    download += ["--only-binary", ":all:", "--platform", "win_amd64", "--python-version", number]
    download += ["--abi", "cp" + version.replace(".", "")]
    with tempfile.TemporaryDirectory() as place:
        subprocess.run([*download, "--dest", place, CARRIER], check=True)
        (wheel,) = pathlib.Path(place).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                # Wine has the C library.
                if name.startswith(CARRIED) and not name.startswith(CARRIED + "api-ms-win"):
                    (folder / name.removeprefix(CARRIED)).write_bytes(archive.read(name))


def copy_modules(version, folder):
    """Copies the part of the standard library that is in Python."""
    number = version.removesuffix("t")
    ask = [f"python{number}", "-c", "import sysconfig; print(sysconfig.get_path('stdlib'))"]
    source = subprocess.run(ask, check=True, capture_output=True, text=True).stdout.strip()
    skipped = ["*.so", "__pycache__", "config-*", "idlelib", "site-packages", "sitecustomize.py", "test", "tests"]
    shutil.copytree(source, folder / "Lib", ignore=shutil.ignore_patterns(*skipped))


def exported(library):
    pe = pefile.PE(library, fast_load=True)
    pe.parse_data_directories([pefile.DIRECTORY_ENTRY["IMAGE_DIRECTORY_ENTRY_EXPORT"]])
    return [symbol.name.decode() for symbol in pe.DIRECTORY_ENTRY_EXPORT.symbols if symbol.name]


def link_stable_abi(library, folder):
    """Makes the library of the stable ABI, which has no code: it names where each function is."""
    with tempfile.TemporaryDirectory() as place:
        place = pathlib.Path(place)
        names = "".join(f"    {name} = {library.stem}.{name}\n" for name in exported(library))
        (place / "python3.def").write_text(f"LIBRARY python3.dll\nEXPORTS\n{names}")
        (place / "empty.c").write_text("")
        zig("cc", "-target", "x86_64-windows-gnu", "-shared", place / "empty.c", place / "python3.def", "-o", folder / "python3.dll")


def link_program(library, folder):
    with tempfile.TemporaryDirectory() as place:
        place = pathlib.Path(place)
        (place / "python.def").write_text(f"LIBRARY {library.name}\nEXPORTS\n    Py_Main\n")
        (place / "python.c").write_text("#include <wchar.h>\n" + PROGRAM)
        zig("dlltool", "-m", "i386:x86-64", "-d", place / "python.def", "-l", place / "python.lib")
        zig("cc", "-target", "x86_64-windows-gnu", "-municode", place / "python.c", place / "python.lib", "-o", folder / "python.exe")


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    version, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    unpack_libraries(version, folder)
    copy_modules(version, folder)
    library = folder / f"python{version.replace('.', '')}.dll"
    if not version.endswith("t"):
        link_stable_abi(library, folder)
    # Last, so that what is there is whole.
    link_program(library, folder)


if __name__ == "__main__":
    main()
