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
