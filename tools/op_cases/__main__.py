"""Writes the case files and the manifest: `python -m op_cases [family ...]`."""

import gzip
import importlib
import json
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("ATEN_CPU_CAPABILITY", "default")
os.environ.setdefault("MKL_CBWR", "COMPATIBLE")

import torch  # noqa: E402

from .cases import Cases  # noqa: E402
from .families import FAMILIES, SKIPPED  # noqa: E402

DIRECTORY = Path(__file__).resolve().parents[2] / "crates" / "testing" / "cases"


def write(family, cases):
    lines = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in cases.lines)
    with open(DIRECTORY / f"{family}.jsonl.gz", "wb") as raw:
        # No time stamp and no file name: the same cases give the same bytes.
        with gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=9, mtime=0) as file:
            file.write(lines.encode())


def read_manifest():
    path = DIRECTORY / "manifest.json"
    return json.loads(path.read_text()) if path.exists() else {"operators": {}, "skipped": {}}


def main(wanted):
    torch.set_num_threads(1)
    torch.backends.mkldnn.enabled = False
    torch.set_grad_enabled(False)
    manifest = read_manifest()
    operators = manifest["operators"]
    for family in wanted or FAMILIES:
        start = time.time()
        module = importlib.import_module(f"op_cases.{family}")
        cases = Cases(per_op=getattr(module, "PER_OPERATOR", 150), max_numel=getattr(module, "MAX_NUMEL", 2000))
        module.generate(cases)
        write(family, cases)
        if getattr(module, "COMPOSITES", False):
            # The manifest lists the operators that programs name.
            print(f"{family}: {len(cases.lines)} cases, {len(cases.count)} operators, {time.time() - start:.0f} s")
            if os.environ.get("OP_CASES_REJECTED"):
                for message, n in cases.rejected.most_common(60):
                    print(f"  rejected {n}x {message}")
            continue
        operators = {name: row for name, row in operators.items() if row["family"] != family}
        for name in cases.count:
            operators[name] = {
                "family": family,
                "cases": cases.count[name],
                "dtypes": sorted(cases.dtypes[name]),
                "source": "+".join(sorted(cases.sources[name])) or "edge",
            }
        size = (DIRECTORY / f"{family}.jsonl.gz").stat().st_size
        print(f"{family}: {len(cases.lines)} cases, {len(cases.count)} operators, {size // 1024} KiB, {time.time() - start:.0f} s")
        if os.environ.get("OP_CASES_REJECTED"):
            for message, n in cases.rejected.most_common(60):
                print(f"  rejected {n}x {message}")
    manifest = {"operators": dict(sorted(operators.items())), "skipped": SKIPPED}
    (DIRECTORY / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    print(f"total: {sum(r['cases'] for r in operators.values())} cases of {len(operators)} operators")


if __name__ == "__main__":
    main(sys.argv[1:])
