"""Packs folders into archives whose bytes depend on nothing but their content.

    python tools/pack.py archive FOLDER FILE SECONDS     FILE ends with .tar.gz or .zip; SECONDS is the time of all entries
    python tools/pack.py checksums FOLDER                writes FOLDER/SHA256SUMS and prints sizes and checksums
"""

import gzip
import hashlib
import os
import pathlib
import sys
import tarfile
import time
import zipfile

SUMS = "SHA256SUMS"


def files(folder):
    return sorted((path for path in folder.rglob("*") if path.is_file()), key=lambda path: path.as_posix())


def mode(path):
    """Permissions without those that depend on the umask."""
    return 0o755 if os.access(path, os.X_OK) else 0o644


def write_tar(folder, file, seconds):
    with file.open("wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as packed, tarfile.open(fileobj=packed, mode="w") as tar:
        for path in files(folder):
            entry = tarfile.TarInfo(path.relative_to(folder.parent).as_posix())
            entry.mtime, entry.mode = seconds, mode(path)
            if path.is_symlink():
                entry.type, entry.linkname = tarfile.SYMTYPE, os.readlink(path)
                tar.addfile(entry)
                continue
            entry.size = path.stat().st_size
            with path.open("rb") as content:
                tar.addfile(entry, content)


def write_zip(folder, file, seconds):
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path in files(folder):
            entry = zipfile.ZipInfo(path.relative_to(folder.parent).as_posix(), time.gmtime(seconds)[:6])
            entry.compress_type, entry.create_system, entry.external_attr = zipfile.ZIP_DEFLATED, 3, mode(path) << 16
            archive.writestr(entry, path.read_bytes())


def write_checksums(folder):
    lines = []
    for path in files(folder):
        if path.name != SUMS:
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            lines.append(f"{digest}  {path.relative_to(folder).as_posix()}\n")
            print(f"{path.stat().st_size:>12}  {path.name}  {digest}")
    (folder / SUMS).write_text("".join(lines))


def main():
    match sys.argv[1:]:
        case ["archive", folder, file, seconds]:
            write = write_zip if file.endswith(".zip") else write_tar
            write(pathlib.Path(folder), pathlib.Path(file), int(seconds))
        case ["checksums", folder]:
            write_checksums(pathlib.Path(folder))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
