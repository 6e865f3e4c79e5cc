"""Benchmark programs for compilers: real architectures at their usual size, and chains of growing length.

    python tools/models/large.py OUT                     exports what is missing
    python tools/models/large.py OUT --only resnet50     some of it
    python tools/models/large.py --measure FILE          times the wheel's compiler

`OUT/<name>.pt2` is straight from torch.export.export and `OUT/<name>.core.pt2` after run_decompositions(); weights are
random. The last line that a measurement prints is an object with what the executorch wheel's `to_edge` and
`to_executorch` took on the program as torch.export.load returns it; `tools/models/wheel.py` says what the figures are:

    {"load_seconds": 0.9, "planned_bytes": {"forward": [9633792]}, "seconds": 9.1, "cpu_seconds": 9.0,
     "peak_bytes": 1200000000, "before_bytes": 700000000, "program_bytes": 102400000}
"""

import argparse
import json
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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, nargs="?", default=Path("target/models-large"))
    parser.add_argument("--only", type=lambda names: names.split(","), help="names, separated by commas")
    parser.add_argument("--force", action="store_true", help="make again what is there")
    parser.add_argument("--measure", type=Path, metavar="FILE", help="time the wheel's compiler instead")
    args = parser.parse_args()
    if args.measure:
        print(json.dumps(measure(args.measure)))
        return
    if unknown := set(args.only or ()) - set(MODELS):
        parser.error(f"no such model: {', '.join(sorted(unknown))}")
    args.out.mkdir(parents=True, exist_ok=True)
    for name in args.only or MODELS:
        if args.force or not all((args.out / (name + suffix)).exists() for suffix in FORMS.values()):
            start = time.perf_counter()
            export(name, args.out)
            print(f"{name}: exported in {time.perf_counter() - start:.1f} s", flush=True)


if __name__ == "__main__":
    main()
