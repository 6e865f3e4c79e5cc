"""A panic of the library is an error of its own at whatever Python calls."""

import pathlib
import re

import pytest
import rushlight
from rushlight import _rushlight

SOURCES = pathlib.Path(__file__).resolve().parent.parent / "src"


def test_a_panic_is_an_error_that_except_exception_catches(capfd):
    with pytest.raises(rushlight.Error, match="a defect of the library: on purpose") as caught:
        _rushlight.panic_for_tests("on purpose")
    assert isinstance(caught.value, Exception) and caught.value.code_name == "Internal" and caught.value.hint
    # The line where it happened.
    assert "lib.rs" in capfd.readouterr().err


def test_every_entry_is_guarded():
    entries = unguarded = 0
    for path in SOURCES.rglob("*.rs"):
        lines = path.read_text().splitlines()
        for index, line in enumerate(lines):
            if re.fullmatch(r"\s*#\[(pymethods|pyfunction)\]", line):
                entries += 1
                unguarded += lines[index - 1].strip() != "#[guarded]"
    assert entries > 20 and unguarded == 0


def test_every_function_that_c_calls_ends_panics():
    bodies = []
    for path in SOURCES.rglob("*.rs"):
        # Definitions, unlike the types of functions, have a name.
        for function in re.split(r'extern "C" fn \w+', path.read_text())[1:]:
            lines = [line.strip() for line in function.split("{", 1)[1].splitlines()]
            bodies.append(next(line for line in lines if line and not line.startswith("//")))
    assert len(bodies) >= 2 and all(body.startswith("ending_panics(") for body in bodies)


def test_the_module_itself_is_guarded():
    lines = (SOURCES / "lib.rs").read_text().splitlines()
    (init,) = [index for index, line in enumerate(lines) if line.strip() == "#[pymodule_init]"]
    assert lines[init + 2].strip() == "guard::guarded(|| {"
