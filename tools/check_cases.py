"""Runs recorded calls through the executorch wheel's own runtime and compares with what eager PyTorch answered.

    python tools/check_cases.py DIR...        every cases file (tools/cases.py) below the directories
    python tools/check_cases.py --allow FILE DIR...

FILE names recordings that ExecuTorch's runtime cannot run, each with the reason; one that it runs after all is a fault.

This judges the recordings, not Rushlight: a call that differs here is one where ExecuTorch's compiler or kernels
disagree with eager PyTorch, and is listed with the largest difference relative to the output's scale.
"""

import argparse
import base64
import json
import multiprocessing
import sys
from pathlib import Path

import numpy as np
import torch


def leaf(value, folder):
    """The Python object that a VALUE describes."""
    if value["kind"] != "tensor":
        return value.get("value")
    dtype = getattr(torch, value["dtype"])
    stored = np.dtype("uint16" if dtype == torch.bfloat16 else value["dtype"])
    if "base64" in value:
        elements = np.frombuffer(base64.b64decode(value["base64"]), stored).reshape(value["shape"])
    else:
        elements = np.load(folder / value["file"])[value["array"]]
    if dtype == torch.bfloat16:
        return torch.from_numpy(elements.view(np.int16).copy()).view(dtype)
    tensor = torch.from_numpy(np.array(elements))
    return tensor.to(memory_format=torch.channels_last) if "dim_order" in value else tensor


def difference(want, got):
    """The largest |got - want| relative to the scale of `want`, as tools/cases.py defines it; infinite on a mismatch."""
    if not isinstance(want, torch.Tensor):
        return 0.0 if type(want) is type(got) and want == got else float("inf")
    if not isinstance(got, torch.Tensor) or want.shape != got.shape or want.dtype != got.dtype:
        return float("inf")
    want, got = want.double(), got.double()
    finite = want.isfinite()
    if not torch.equal(want[~finite].nan_to_num(nan=7.0), got[~finite].nan_to_num(nan=7.0)):
        return float("inf")
    want, got = want[finite], got[finite]
    scale = want.abs().max().item() if want.numel() else 0.0
    worst = (got - want).abs().max().item() if want.numel() else 0.0
    return worst / (scale or 1.0) if worst == worst else float("inf")


def load(description, folder, program):
    """The wheel's module; a bundled one reads from `program`, the file's bytes, as long as it lives."""
    from executorch.extension.pybindings import portable_lib

    import executorch.kernels.quantized  # noqa: F401  registers the operators of quantized models

    if description.get("bundled"):
        return portable_lib._load_for_executorch_from_bundled_program(
            portable_lib._load_bundled_program_from_buffer(program)
        )
    data = description.get("data", [])
    if len(data) > 1:
        raise NotImplementedError("the wheel's bindings take one .ptd file")
    return portable_lib._load_for_executorch(
        str(folder / description["program"]), str(folder / data[0]) if data else None
    )


def check(path):
    """(calls that agree, lines that say which do not)."""
    description = json.loads(path.read_text())
    program = (path.parent / description["program"]).read_bytes()
    module = load(description, path.parent, program)
    agree, faults = 0, []
    for number, call in enumerate(description["calls"]):
        inputs = tuple(leaf(value, path.parent) for value in call["inputs"])
        want = [leaf(value, path.parent) for value in call["outputs"]]
        try:
            got = module.run_method(call["method"], inputs)
        except Exception as error:
            faults.append(f"call {number} of {call['method']}: {str(error).splitlines()[0]}")
            continue
        worst = max([difference(*pair) for pair in zip(want, got)] + [0.0 if len(want) == len(got) else float("inf")])
        if worst <= call["tolerance"]:
            agree += 1
        else:
            faults.append(f"call {number} of {call['method']}: differs by {worst:.2e}, allowed {call['tolerance']:.0e}")
    return agree, faults


def results(paths):
    """(path, calls that agree, faults) of each path, from a process of its own: the wheel's runtime aborts on some
    inputs, and then another process goes on with the next path."""

    def run(connection, paths):
        for path in paths:
            try:
                connection.send(check(path))
            except Exception as error:
                connection.send((0, [f"does not load: {type(error).__name__}: {str(error).splitlines()[0]}"]))

    fork = multiprocessing.get_context("fork")
    while paths:
        receiver, sender = fork.Pipe(duplex=False)
        process = fork.Process(target=run, args=(sender, paths))
        process.start()
        sender.close()
        try:
            while paths:
                answer = receiver.recv()
                yield paths.pop(0), *answer
        except EOFError:
            yield paths.pop(0), 0, ["the runtime aborted the process"]
        process.join()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--allow", type=Path, help="JSON: name of a recording, or of its folder, to the reason why it cannot run")
    torch.set_num_threads(1)
    arguments = parser.parse_args()
    allowed = json.loads(arguments.allow.read_text()) if arguments.allow else {}
    found = sorted(path for folder in arguments.folders for path in folder.rglob("*.json"))
    bad = 0
    for path, agree, faults in results([path for path in found if "calls" in json.loads(path.read_text())]):
        reason = allowed.get(json.loads(path.read_text())["name"]) or allowed.get(path.parent.name)
        if reason and faults:
            print(f"{path}: left out, {reason}", flush=True)
            continue
        if reason:
            faults = ["runs, and is listed as one that does not"]
        bad += bool(faults)
        print(f"{path}: {agree} calls agree", *faults, sep="\n    ", flush=True)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
