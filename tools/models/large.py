"""Benchmark programs for compilers: real architectures at their usual size, and chains of growing length.

    python tools/models/large.py OUT                     exports what is missing, then times the wheel's compiler
    python tools/models/large.py OUT --only resnet50     some of it
    python tools/models/large.py OUT --no-wheel          exports only

`OUT/<name>.pt2` is straight from torch.export.export and `OUT/<name>.core.pt2` after run_decompositions(); weights are
random. `OUT/wheel.json` has one object a model and form with what the executorch wheel's `to_edge` and `to_executorch`
took on the program as torch.export.load returns it, in a process of its own:

    {"name": "resnet50", "form": "straight", "tool": "executorch", "version": "1.5.1", "file_bytes": 102539264,
     "load_seconds": 0.9, "planned_bytes": {"forward": [9633792]}, "seconds": 9.1, "cpu_seconds": 9.0,
     "peak_bytes": 1200000000, "before_bytes": 700000000, "program_bytes": 102400000}

`tools/models/wheel.py` says what the figures are. A compilation that does not end within the time limit has "timeout",
its limit in seconds, in the place of the results.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

FORMS = {"straight": ".pt2", "core": ".core.pt2"}
CHAINS = (10, 100, 1_000, 10_000)


def chain(length):
    """A module of `length` operators, additions and products of one-element tensors, and its arguments."""
    import torch
    from registry import Module

    def run(x, y):
        for step in range(length):
            x = x + y if step % 2 == 0 else x * y
        return x

    return Module(run), (torch.ones(1), torch.full((1,), 0.5))


def classifier(name):
    import torch
    import torchvision.models as architectures

    return getattr(architectures, name)(weights=None), (torch.randn(1, 3, 224, 224),)


MODELS = {name: (classifier, name) for name in ("mobilenet_v3_small", "resnet50", "vit_b_16", "swin_t")}
MODELS |= {f"chain{length}": (chain, length) for length in CHAINS}


def export(name, out):
    import torch

    build, argument = MODELS[name]
    torch.manual_seed(20)
    with torch.no_grad():
        module, args = build(argument)
        program = torch.export.export(module.eval().requires_grad_(False), args)
        torch.export.save(program, out / (name + FORMS["straight"]))
        torch.export.save(program.run_decompositions(), out / (name + FORMS["core"]))


def measure(path):
    """What the wheel's compiler takes for one file; to be called in a fresh process."""
    import torch
    import wheel
    from executorch.exir import ExecutorchBackendConfig

    start = time.perf_counter()
    program = torch.export.load(path)
    loaded = time.perf_counter() - start
    with torch.no_grad():
        compiled, taken = wheel.compile({"forward": program}, ExecutorchBackendConfig())
    return {"load_seconds": loaded, **taken, "program_bytes": len(compiled.buffer)}


def record(name, form, out, limit):
    path = out / (name + FORMS[form])
    entry = {"name": name, "form": form, "tool": "executorch", "version": importlib.metadata.version("executorch")}
    entry |= {"torch": importlib.metadata.version("torch"), "file_bytes": path.stat().st_size}
    try:
        command = [sys.executable, __file__, "--measure", str(path), str(out)]
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=limit)
        return entry | json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        return entry | {"timeout": limit}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", type=lambda names: names.split(","), help="names, separated by commas")
    parser.add_argument("--no-wheel", action="store_true", help="export without timing the wheel's compiler")
    parser.add_argument("--limit", type=float, default=900, help="seconds that one compilation may take (900)")
    parser.add_argument("--force", action="store_true", help="make again what is there")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        print(json.dumps(measure(args.measure)))
        return
    if unknown := set(args.only or ()) - set(MODELS):
        parser.error(f"no such model: {', '.join(sorted(unknown))}")
    args.out.mkdir(parents=True, exist_ok=True)
    wanted = args.only or list(MODELS)
    for name in wanted:
        if args.force or not all((args.out / (name + suffix)).exists() for suffix in FORMS.values()):
            start = time.perf_counter()
            export(name, args.out)
            print(f"{name}: exported in {time.perf_counter() - start:.1f} s", flush=True)
    if args.no_wheel:
        return
    path = args.out / "wheel.json"
    recorded = json.loads(path.read_text())["compilations"] if path.exists() else []
    known = {(entry["name"], entry["form"]): entry for entry in recorded}
    for name in wanted:
        for form in FORMS:
            if args.force or (name, form) not in known:
                known[name, form] = entry = record(name, form, args.out, args.limit)
                taken = f"{entry['seconds']:.2f} s" if "seconds" in entry else f"more than {args.limit:.0f} s"
                print(f"{name} ({form}): the wheel took {taken}", flush=True)
                machine = {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count()}
                path.write_text(json.dumps({"machine": machine, "compilations": list(known.values())}, indent=1) + "\n")


if __name__ == "__main__":
    main()
