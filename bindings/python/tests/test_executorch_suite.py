"""ExecuTorch's own tests of its Python bindings and runtime, on `rushlight.compat`: their imports are replaced, nothing else."""

import importlib.metadata
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
# The sentence of the page with the counts, which this test writes with UPDATE_DOCS and compares otherwise.
PAGE = HERE.parents[2] / "docs/how-to/from-executorch.md"
SENTENCE = re.compile(r"of \d+ tests of\s+executorch\s+\S+,\s+\d+\s+pass,\s+\d+\s+is\s+skipped,\s+and\s+\d+\s+cannot\s+pass")


# Two minutes of a core.
@pytest.mark.slow
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
    assert set(counts) == {"passed", "skipped", "deselected"} and counts["deselected"] == len(LEFT_OUT), done.stdout[-2000:]
    version = importlib.metadata.version("executorch")
    passed, skipped, left_out = (counts[what] for what in ("passed", "skipped", "deselected"))
    sentence = f"of {sum(counts.values())} tests of executorch {version}, {passed} pass, {skipped} is skipped, and {left_out} cannot pass"
    text = PAGE.read_text()
    if "UPDATE_DOCS" in os.environ:
        text = SENTENCE.sub(sentence, text)
        PAGE.write_text(text)
    found = SENTENCE.search(text)
    assert found and " ".join(found[0].split()) == sentence, f"{PAGE} is out of date: run this test with UPDATE_DOCS=1"
