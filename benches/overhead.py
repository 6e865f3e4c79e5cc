"""The overhead of tiny programs from Python: Rushlight's `portable_lib` against ExecuTorch's, with torch tensors.

    python benches/overhead.py MODELS     the folder that tools/models/generate.py wrote

The last line printed is a JSON list of {"operators", "stage", "theirs", "ours"}, the times in nanoseconds.
"""

import json
import statistics
import sys
import time
from pathlib import Path

import torch
from executorch.extension.pybindings import portable_lib as theirs
from rushlight.compat import portable_lib as ours

LENGTHS = (2, 100)
ROUNDS = 15


def median(call, count):
    samples = []
    for _ in range(count):
        start = time.perf_counter_ns()
        call()
        samples.append(time.perf_counter_ns() - start)
    return statistics.median(samples)


def stages(library, path):
    """Calls to time, with how often in a round."""
    program = library._load_program(path)
    method = program.load_method("forward")
    inputs = [torch.ones(1), torch.ones(1)]
    return {
        "load": (lambda: library._load_program(path), 100),
        "load the method": (lambda: program.load_method("forward"), 60),
        "call": (lambda: method.call(inputs, clone_outputs=False), 1000),
    }


def main():
    theirs._unsafe_reset_threadpool(1)
    measured = []
    for length in LENGTHS:
        path = str(Path(sys.argv[1]) / f"chain{length}" / "model.pte")
        sides = {"theirs": stages(theirs, path), "ours": stages(ours, path)}
        for stage in sides["theirs"]:
            times = {name: [] for name in sides}
            for _ in range(1 + ROUNDS):
                for name, side in sides.items():
                    times[name].append(median(*side[stage]))
            # The first round warms up.
            fastest = {name: min(samples[1:]) for name, samples in times.items()}
            measured.append({"operators": length, "stage": stage, **fastest})
    print(json.dumps(measured))


if __name__ == "__main__":
    main()
