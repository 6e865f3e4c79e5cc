"""Files: what is written where, and what is given for another. Needs neither torch nor numpy."""

import array
import base64
import json
import os
import pathlib
import shutil
import stat
import threading

import pytest

import rushlight

ROOT = pathlib.Path(__file__).resolve().parents[3]
DIGITS = ROOT / "examples" / "cortex-m"
CORPUS = ROOT / "tests" / "corpus" / "1.5.1"
X = memoryview(array.array("f", [0] * 12)).cast("B").cast("f", (2, 6))


@pytest.fixture
def model(tmp_path):
    return shutil.copy(DIGITS / "digits.pt2", tmp_path / "digits.pt2")


def test_a_program_is_not_saved_over_its_model(model, tmp_path):
    before = model.read_bytes()
    program = rushlight.compile(model)
    (tmp_path / "link").symlink_to(model)
    os.link(model, tmp_path / "second")
    for path in (model, tmp_path / "link", tmp_path / "second"):
        with pytest.raises(rushlight.Error, match="would replace an input"):
            program.save(path)
    with pytest.raises(rushlight.Error, match="would replace an input"):
        rushlight.compile(model, external_weights="digits.pt2").save(tmp_path / "other.pte")
    assert model.read_bytes() == before and not (tmp_path / "other.pte").exists()


def test_links_modes_and_pipes_stay(model, tmp_path):
    program = rushlight.compile(model)
    target, link, pipe = tmp_path / "target.pte", tmp_path / "link.pte", tmp_path / "pipe"
    target.write_bytes(b"before")
    target.chmod(0o600)
    link.symlink_to(target)
    program.save(link)
    assert link.is_symlink() and target.read_bytes() == program.buffer
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    os.mkfifo(pipe)
    read = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
    reader.start()
    program.save(pipe)
    assert pipe.is_fifo()
    reader.join(60)
    assert read == [program.buffer]


def test_methods_need_different_names(model):
    with pytest.raises(rushlight.Error, match="two methods are called `forward`"):
        rushlight.compile(model, constant_methods={"forward": 3})
    with pytest.raises(rushlight.Error, match="without a name"):
        rushlight.compile({"": model})


def test_errors_name_the_kind_of_a_file(model, tmp_path):
    for source in (model, model.read_bytes()):
        with pytest.raises(rushlight.Error, match="(?s)an exported program.*compile it first.*rushlight.compile") as caught:
            rushlight.load(source)
        assert caught.value.code_name == "InvalidProgram"
    with pytest.raises(rushlight.Error, match="a compiled program"):
        rushlight.compile(DIGITS / "digits.pte")
    with pytest.raises(rushlight.Error, match="(?s)a data file.*data="):
        rushlight.load(CORPUS / "external.ptd")
    short = tmp_path / "short.pte"
    short.write_bytes((DIGITS / "digits.pte").read_bytes()[:-100])
    with pytest.raises(rushlight.Error, match="truncated") as caught:
        rushlight.load(short)
    assert (caught.value.expected, caught.value.got) == ("at least 12328 bytes", "12228 bytes")


BUNDLES = sorted((ROOT / "tests" / "corpus").glob("*/bundle*.bpte"))


def recorded(value):
    return memoryview(base64.b64decode(value["base64"])).cast("f", value["shape"])


@pytest.mark.parametrize("path", BUNDLES, ids=lambda path: path.parent.name)
def test_a_bundled_program_is_the_program_in_it(path, tmp_path):
    description = json.loads(path.with_suffix(".json").read_text())
    renamed = shutil.copy(path, tmp_path / "model.pte")
    for source in (path, str(path), renamed, path.read_bytes(), bytearray(path.read_bytes())):
        module = rushlight.load(source)
        assert module.meta("forward").inputs[0].sizes == tuple(description["calls"][0]["inputs"][0]["shape"])
        for call in description["calls"]:
            (expected,) = map(recorded, call["outputs"])
            result = module.run(call["method"], *map(recorded, call["inputs"]))
            assert result.shape == expected.shape
            scale = max(map(abs, expected.cast("B").cast("f")))
            pairs = zip(memoryview(result).cast("B").cast("f"), expected.cast("B").cast("f"))
            assert all(abs(got - wanted) <= call["tolerance"] * scale for got, wanted in pairs)
    with pytest.raises(rushlight.Error, match="(?s)a bundled program.*compiled"):
        rushlight.compile(path)
    with pytest.raises(rushlight.Error, match="bundled program"):
        rushlight.load(path.read_bytes()[:500])


def test_missing_data_is_named(tmp_path):
    program = shutil.copy(CORPUS / "external.pte", tmp_path / "model.pte")
    with pytest.raises(rushlight.Error, match="(?s)a data file.*model.ptd"):
        rushlight.load(program)(X)
    shutil.copy(CORPUS / "external.ptd", tmp_path / "weights.ptd")
    with pytest.raises(rushlight.Error, match="(?s)weights.ptd.*data="):
        rushlight.load(program)(X)
    rushlight.load(program, data=tmp_path / "weights.ptd")(X)


def test_parting_says_what_was_seen(model):
    comparison = rushlight.compare(model, rushlight.compile(model, backend="cpu:precision=bf16"))
    assert sum(row.unseen for row in comparison.rows) <= len(comparison.only_in_reference)
    assert "results diverge between the inputs and" in repr(comparison)
    assert comparison.parting(tolerance=10) is None
