"""Runs ExecuTorch's own tests of XNNPACK's operators, each program on both runtimes: ExecuTorch's and Rushlight's.

    cargo xtask test xnnpack-tests                                            all 264, for an hour on one core
    PYTHONPATH=target/wheel/package python tools/xnnpack_tests.py -k softmax  as pytest selects

The tests are those in ExecuTorch's wheel. Both results are compared with eager PyTorch's, in the test's own tolerances. A
test that runs no program passes for both: most check what the partitioner leaves out. The exit code is 1 if Rushlight
passes fewer tests than ExecuTorch. Run with the Python of `tools/requirements.txt`.
"""

import importlib.util
import sys
from pathlib import Path

import executorch.kernels.quantized  # noqa: F401  registers operators of the programs
import pytest
import rushlight.compat.portable_lib as rushlight_lib
import torch
from executorch.backends.test.harness.stages.serialize import Serialize
from executorch.backends.test.harness.tester import Tester
from torch.utils._pytree import tree_flatten

TESTS = Path(importlib.util.find_spec("executorch.backends.xnnpack").submodule_search_locations[0]) / "test" / "ops"
RUNTIMES = ("Rushlight", "ExecuTorch")
#: Differences between the runtimes to print, the largest first.
DIFFERENCES = 20


def attempt(function, *args):
    """A function's result or its error."""
    try:
        return function(*args), None
    except Exception as error:
        return None, f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"


def run_here(program, inputs):
    return rushlight_lib._load_for_executorch_from_buffer(program).run_method("forward", tuple(tree_flatten(inputs)[0]))


def difference(outputs, others):
    """The largest difference of floating-point outputs, relative to the largest element."""
    largest = 0.0
    for output, other in zip(outputs, others, strict=True):
        if torch.is_tensor(output) and output.is_floating_point() and output.numel():
            output, other = output.double(), other.double()
            largest = max(largest, ((output - other).abs().max() / other.abs().max().clamp(min=1e-30)).item())
    return largest


class BothRuntimes:
    """A plugin of pytest: the tests go on after a wrong result, and failures are counted by runtime."""

    def __init__(self):
        self.failures = {runtime: {} for runtime in RUNTIMES}
        self.passed, self.differences, self.test, self.results = set(), {}, None, None
        run_there, compare = Serialize.run_artifact, Tester._compare_outputs

        def run_artifact(stage, inputs):
            self.results = (attempt(run_here, stage.buffer, inputs), attempt(run_there, stage, inputs))
            return self.results[1][0]

        def compare_outputs(reference, outputs, *args):
            if self.results is None:
                return compare(reference, outputs, *args)
            results, self.results = self.results, None
            (here, _), (there, _) = results
            for runtime, (result, error) in zip(RUNTIMES, results, strict=True):
                error = error or attempt(compare, reference, result, *args)[1]
                if error:
                    self.failures[runtime].setdefault(self.test, error)
            if here is not None and there is not None:
                self.differences[self.test] = max(self.differences.get(self.test, 0.0), difference(here, there))

        Serialize.run_artifact, Tester._compare_outputs = run_artifact, staticmethod(compare_outputs)

    def pytest_runtest_setup(self, item):
        self.test, self.results = item.nodeid.split("/")[-1], None
        torch.manual_seed(51)

    def pytest_runtest_logreport(self, report):
        test = report.nodeid.split("/")[-1]
        if report.when == "call" and report.passed:
            self.passed.add(test)
        if report.failed:
            for failures in self.failures.values():
                failures.setdefault(test, "the test itself fails")

    def passes(self, runtime):
        return len(self.passed - set(self.failures[runtime]))

    def pytest_terminal_summary(self):
        for runtime, failures in self.failures.items():
            print(f"\n{runtime}: {self.passes(runtime)} pass, {len(failures)} fail")
            for test, error in sorted(failures.items()):
                print(f"  {test}: {error}")
        print("\nlargest differences between the runtimes, relative to the largest element:")
        for test, largest in sorted(self.differences.items(), key=lambda item: -item[1])[:DIFFERENCES]:
            print(f"  {largest:.1e} {test}")


if __name__ == "__main__":
    both = BothRuntimes()
    options = ["-q", "--tb=line", "--show-capture=no", "--import-mode=importlib", "-p", "no:cacheprovider", *sys.argv[1:]]
    code = pytest.main([str(TESTS), *options], plugins=[both])
    sys.exit(code or both.passes("Rushlight") < both.passes("ExecuTorch"))
