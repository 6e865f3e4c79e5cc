"""ExecuTorch's own tests of its Python bindings and runtime, on `rushlight.compat`: their imports are replaced, nothing else."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

executorch = pytest.importorskip("executorch.extension.pybindings")

HERE = pathlib.Path(__file__).parent
# Each with the reason why it cannot pass.
LEFT_OUT = {
    "test_etdump_generation": "no ETDump is recorded",
    "test_etdump_params_with_bytes_and_buffer": "no ETDump is recorded",
}
# Of executorch 1.5.1; one needs a device of CUDA.
PASSED, SKIPPED = 55, 1


def test_on_rushlight():
    root = pathlib.Path(executorch.__path__[0]).parents[1]
    files = [*root.glob("extension/pybindings/test/test_*.py"), *root.glob("runtime/test/test_*.py")]
    command = [sys.executable, "-m", "pytest", "--quiet", "--import-mode=importlib", "-p", "executorch_on_rushlight"]
    command += ["-p", "no:cacheprovider", "--show-capture=no", "-k", " and ".join(f"not {name}" for name in LEFT_OUT)]
    path = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
    # Beside another process of tests.
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*command, *map(str, files)], capture_output=True, text=True, env=environment, timeout=900)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    counts = {what: int(count) for count, what in re.findall(r"(\d+) (passed|skipped|deselected|failed)", done.stdout)}
    assert counts == {"passed": PASSED, "skipped": SKIPPED, "deselected": len(LEFT_OUT)}, done.stdout[-2000:]
