"""Generates the whole models of the tests: exported programs with recorded calls.

    python tools/models/generate.py [OUT]                 everything that is missing or out of date
    python tools/models/generate.py --only lstm,resnet18  some of it
    python tools/models/generate.py --list                what there is
    python tools/models/generate.py --part 0/3            a third of it: the part 0, 1 or 2
    python tools/models/generate.py --programs-of 4       ExecuTorch's programs for a quarter of the models alone
    python tools/models/generate.py --bench               the programs for timing as well
    python tools/models/generate.py --zoo                 the zoo instead: architectures by the hundred (OUT is `target/zoo`)

Every model has random weights from a fixed seed, is exported by torch.export and compiled by the executorch wheel in
portable form (no partitioner), and is run by eager PyTorch. `OUT/<name>/` (OUT is `target/models` by default) gets

    METHOD.pt2         each method straight from torch.export.export
    METHOD.core.pt2    the same after run_decompositions()
    model.pte          the program, if it was asked for and the wheel can make one that runs
    *.ptd              external constants, for a model that has them
    wheel.json         what the wheel's compiler planned, took and needed (tools/models/wheel.py), or its "error"
    cases.json         the calls, in the form that tools/cases.py documents
    inputs_K.npz       the tensors of call K
    expected_K.npz     what eager PyTorch answered

and `OUT/models.json` lists the names of the models that are there, those of them without a program, and, by name, why
the others could not be made.
A model of the zoo gets the exports and the calls, then what PyTorch's own flows make of it (tools/models/flows.py):

    model.pte, xnnpack.pte   programs of the wheel, and lowered.json, which says what became of them
    quantized.json           the signal-to-noise that PyTorch's quantizers reach, by scheme

One that torch.export refuses leaves `OUT/refused/<name>.json` with its reason, and the exit status is 0.
A model is generated again when the source of its definition, of this generator or the wheel's version changed. The exit
status is 1 when a model failed, after all the others were made.
"""

import argparse
import copy
import gc
import hashlib
import importlib.metadata
import json
import multiprocessing
import os
import re
import shutil
import sys
import time
import traceback
import warnings
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
DEFINITIONS = HERE / "definitions"
sys.path[:0] = [str(HERE), str(HERE.parent), str(DEFINITIONS)]

SEED = 20
# What PyTorch's flows make of a model of the zoo, and the file that is there afterwards.
STAGES = {"lower": "lowered.json", "quantize": "quantized.json"}


def registered():
    """All models; importing the definitions takes seconds, so it is put off until it is needed."""
    for definitions in sorted(DEFINITIONS.glob("*.py")):
        __import__(definitions.stem)
    from registry import MODELS

    return MODELS


def fingerprint(entry):
    """A hash of everything that the generated files depend on."""
    digest = hashlib.sha256(importlib.metadata.version("executorch").encode())
    imported = re.findall(r"^from (\w+) import", entry.source.read_text(), re.MULTILINE)
    shared = [path for name in imported if (path := DEFINITIONS / f"{name}.py").exists()]
    generator = [Path(__file__), HERE / "registry.py", HERE / "wheel.py", HERE.parent / "cases.py"]
    own = entry.row.encode() if entry.row else entry.source.read_bytes()
    for source in (own, *(path.read_bytes() for path in (*generator, *shared))):
        digest.update(source)
    return digest.hexdigest()[:16]


def has_program(name, programs_of):
    """Whether the wheel compiles a model: one in `programs_of`, chosen by a hash of its name."""
    return int(hashlib.sha256(name.encode()).hexdigest(), 16) % programs_of == 0


def part(text):
    """`K/N` as a slice of all models."""
    index, parts = map(int, text.split("/"))
    if not 0 <= index < parts:
        raise ValueError
    return slice(index, None, parts)


def is_current(entry, folder, stages=(), with_program=False):
    recorded = folder / "cases.json"
    if not recorded.exists() or json.loads(recorded.read_text()).get("source") != fingerprint(entry):
        return False
    if with_program and not (folder / "wheel.json").exists():
        return False
    return not entry.family or all((folder / STAGES[stage]).exists() for stage in stages)


def export(model):
    """The exported programs of a model, and the modules that eager PyTorch runs for it, by method."""
    import torch

    modules = model.methods
    for name, module in modules.items():
        module.eval().requires_grad_(model.gradients)
        if model.quantize:
            calls = [args for method, args in model.calls if method == name]
            modules[name] = model.quantize(torch.export.export(module, calls[0], strict=True).module(), calls)
    # One copy of all, so that methods go on sharing what they share.
    untouched = copy.deepcopy(modules)
    exported = {}
    for name, module in modules.items():
        example = next(args for method, args in model.calls if method == name)
        shapes = model.dynamic.get(name)
        with torch.set_grad_enabled(model.gradients):
            exported[name] = torch.export.export(module, example, dynamic_shapes=shapes, strict=model.strict)
    return exported, untouched


def generate(name, out, with_program=True):
    """Writes the folder of a model, and ExecuTorch's program of one that is not of the zoo; its size in bytes."""
    import cases
    import torch

    entry = registered()[name]
    torch.manual_seed(SEED)
    with torch.no_grad():
        model = entry.build()
        exported, modules = export(model)
    final = out / name
    folder = out / f".{name}.new"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    description = {"name": name, "exported": {}}
    written = {}
    for method, program in exported.items():
        files = description["exported"][method] = [f"{method}.pt2", f"{method}.core.pt2"]
        with torch.set_grad_enabled(model.gradients):
            core = program.run_decompositions()
        for file, form in zip(files, (program, core)):
            torch.export.save(form, folder / file)
        signature = core.graph_signature
        written[method] = [signature.user_inputs.index(name) for name in signature.user_inputs_to_mutate.values()]
    if model.unsupported:
        description["unsupported"] = model.unsupported
    if entry.family:
        description["family"] = entry.family
    elif with_program:
        compile_with_wheel(model, exported, description, folder)

    calls, says_something = [], bool(model.constants)
    for number, (method, args) in enumerate(model.calls):
        results = cases.eager(modules[method], args, written[method])
        says_something = says_something or cases.say_something(cases.leaves(results))
        calls.append({
            "method": method,
            "inputs": cases.filed(cases.leaves(args), "arg", folder / f"inputs_{number}.npz"),
            "outputs": cases.filed(cases.leaves(results), "out", folder / f"expected_{number}.npz"),
            "tolerance": model.tolerance,
        })
    if not says_something:
        raise RuntimeError("all results of all calls are zero")
    for method, constant in model.constants.items():
        expected = folder / f"expected_{len(calls)}.npz"
        outputs = cases.filed(cases.leaves(constant), "out", expected)
        calls.append({"method": method, "inputs": [], "outputs": outputs, "tolerance": 0})
    versions = {package: importlib.metadata.version(package) for package in ("executorch", "torch")}
    description |= {"source": fingerprint(entry), "made_with": versions, "calls": calls}
    cases.dump(description, folder / "cases.json")
    shutil.rmtree(final, ignore_errors=True)
    folder.rename(final)
    return sum(path.stat().st_size for path in final.iterdir())


def compile_with_wheel(model, exported, description, folder):
    """Writes the wheel's program and what it took; the description names the files."""
    import flows
    import torch
    import wheel

    try:
        with torch.no_grad():
            beyond_core = bool(model.quantize or model.beyond_core or model.beyond_wheel)
            program, made = wheel.compile(
                exported, model.config(), constant_methods=model.constants, beyond_core=beyond_core
            )
        if not model.beyond_wheel:
            (folder / "model.pte").write_bytes(program.buffer)
            description["program"] = "model.pte"
        if program._tensor_data:
            program.write_tensor_data_to_file(str(folder))
            description["data"] = sorted(path.name for path in folder.glob("*.ptd"))
    except Exception as error:
        if not model.beyond_wheel:
            raise
        made = {"error": flows.first_line(error)}
    (folder / "wheel.json").write_text(json.dumps(made, indent=1) + "\n")


def follow(name, out, stages):
    """What PyTorch's flows make of a model of the zoo, where it is missing."""
    import flows
    import torch

    folder = out / name
    if "lower" in stages and not (folder / "lowered.json").exists():
        flows.lower(folder)
    if "quantize" in stages and not (folder / "quantized.json").exists():
        torch.manual_seed(SEED)
        with torch.no_grad():
            model = registered()[name].build()
        module = model.methods["forward"].eval().requires_grad_(False)
        calls = [args for _, args in model.calls]
        try:
            flows.rounding(folder, module, calls)
        except Exception as error:
            print(f"{name} in f64: {flows.first_line(error)}")
        flows.quantize(folder, module, calls)


def refuse(entry, out, error):
    """Keeps why an architecture of the zoo cannot be exported, and does not try again."""
    (out / "refused").mkdir(exist_ok=True)
    kept = {"name": entry.name, "family": entry.family, "refused": error, "source": fingerprint(entry)}
    refused(entry, out).write_text(json.dumps(kept, indent=1) + "\n")


def refused(entry, out):
    return out / "refused" / f"{entry.name}.json"


def is_refused(entry, out):
    path = refused(entry, out)
    return path.exists() and json.loads(path.read_text())["source"] == fingerprint(entry)


def attempt(job):
    """Runs `generate` in a worker process: (name, bytes or None, seconds, error)."""
    import torch
    from flows import first_line

    name, out, stages, with_program = job
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    gc.disable()
    start = time.monotonic()
    entry = registered()[name]
    try:
        size = 0 if entry.family and is_current(entry, out / name) else generate(name, out, with_program)
        if entry.family:
            follow(name, out, stages)
        return name, size, time.monotonic() - start, None
    except Exception as error:
        if not entry.family:
            traceback.print_exc()
        return name, None, time.monotonic() - start, first_line(error)
    finally:
        gc.collect()


def prepare():
    """Imports what workers need, and takes it out of the collector's sight, whose passes over it take a third of the time."""
    import executorch.kernels.quantized  # noqa: F401
    import torchao.quantization.pt2e.quantize_pt2e  # noqa: F401
    from executorch.backends.xnnpack.partition import xnnpack_partitioner  # noqa: F401
    from executorch.backends.xnnpack.quantizer import xnnpack_quantizer  # noqa: F401

    gc.freeze()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--only", type=lambda names: names.split(","), help="names, separated by commas")
    # A process needs about a gigabyte.
    processes = min(8, os.cpu_count() or 1)
    parser.add_argument("--jobs", type=int, default=processes, help=f"processes to use ({processes})")
    parser.add_argument("--bench", action="store_true", help="make the programs for timing too")
    parser.add_argument("--zoo", action="store_true", help="make the zoo instead of the other models")
    parser.add_argument(
        "--stages", type=lambda names: names.split(",") if names else [], default=list(STAGES), help="of the zoo, besides exports: lower,quantize"
    )
    parser.add_argument("--part", type=part, default="0/1", metavar="K/N", help="part K of N: 0/3, 1/3 and 2/3 are all")
    parser.add_argument("--programs-of", type=int, default=1, metavar="N", help="compile one of N models with the wheel too (1: all)")
    parser.add_argument("--force", action="store_true", help="make again what is up to date")
    parser.add_argument("--list", action="store_true", help="print the names and stop")
    args = parser.parse_args()

    args.out = args.out or ROOT / "target" / ("zoo" if args.zoo else "models")
    entries = {name: entry for name, entry in registered().items() if bool(entry.family) == args.zoo}
    entries = {name: entry for name, entry in entries.items() if args.only or args.bench or not entry.bench}
    if unknown := set(args.only or ()) - set(entries):
        parser.error(f"no such model: {', '.join(sorted(unknown))}")
    wanted = (args.only or list(entries))[args.part]
    if args.list:
        print(*wanted, sep="\n")
        return
    args.out.mkdir(parents=True, exist_ok=True)
    compiled = {name for name in wanted if not args.zoo and has_program(name, args.programs_of)}
    missing = [
        name
        for name in wanted
        if args.force or not is_current(entries[name], args.out / name, args.stages, name in compiled)
    ]
    if args.zoo and not args.force:
        missing = [name for name in missing if not is_refused(entries[name], args.out)]
    failed = {}
    if missing:
        prepare()
    # Workers start from this process, which has the imports behind it.
    with multiprocessing.get_context("fork").Pool(args.jobs, maxtasksperchild=8) as pool:
        jobs = [(name, args.out, args.stages, name in compiled) for name in missing]
        for name, size, seconds, error in pool.imap_unordered(attempt, jobs):
            print(f"{name}: {error or f'{size / 1e6:.2f} MB'} in {seconds:.1f} s", flush=True)
            if error:
                failed[name] = error
                shutil.rmtree(args.out / name, ignore_errors=True)
                if args.zoo:
                    refuse(entries[name], args.out, error)
    there = sorted(path.parent.name for path in args.out.glob("*/cases.json"))
    unlowered = [name for name in there if not (args.out / name / "model.pte").exists()]
    listed = {"models": there, "without_program": unlowered, "failed": failed}
    (args.out / "models.json").write_text(json.dumps(listed, indent=1) + "\n")
    print(f"{len(there)} models in {args.out}, {len(missing) - len(failed)} of them new")
    if failed and not args.zoo:
        print("failed:", *(f"{name}: {error}" for name, error in failed.items()), sep="\n  ")
        sys.exit(1)


if __name__ == "__main__":
    main()
