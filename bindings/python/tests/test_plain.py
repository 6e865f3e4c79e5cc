"""The wheel where neither torch nor numpy is installed. Run as a script: it needs no test framework."""

import array
import importlib.util
import json
import pathlib
import struct
import sys

import rushlight

ROOT = pathlib.Path(__file__).resolve().parents[3]
DIGITS = ROOT / "examples" / "cortex-m"
EXPORTED = ROOT / "tests" / "corpus" / "pt2"


def test_neither_torch_nor_numpy_is_there():
    assert importlib.util.find_spec("torch") is None
    assert importlib.util.find_spec("numpy") is None


def images():
    data = (DIGITS / "images" / "images.bin").read_bytes()
    floats = array.array("f", struct.unpack(f"<{len(data) // 4}f", data))
    return [memoryview(floats[i : i + 64]).cast("B").cast("f", [1, 1, 8, 8]) for i in range(0, len(floats), 64)]


def test_digits_run_on_plain_buffers():
    module = rushlight.load(DIGITS / "digits.pte")
    expected = json.loads((DIGITS / "expected.json").read_text())
    assert module.method_names == ["forward"]
    for digit, image in enumerate(images()):
        logits = module(image)
        assert logits.shape == (1, 10) and logits.dtype == "float32"
        (row,) = logits.tolist()
        assert max(range(10), key=row.__getitem__) == digit
        assert all(abs(got - want) < 1e-3 for got, want in zip(row, expected["logits"][digit]))
        assert memoryview(logits).tolist() == [row]


def test_results_go_in_again():
    module = rushlight.load((DIGITS / "digits.pte").read_bytes())
    first = module(images()[0])
    assert module.run("forward", images()[0]).tolist() == first.tolist()
    try:
        module(first)
    except rushlight.Error as error:
        assert error.code == 0x12 and "input 0" in str(error) and error.expected and error.got
    else:
        raise AssertionError("an input of the wrong shape was accepted")


def test_metadata():
    meta = rushlight.load(DIGITS / "digits.pte").meta()
    assert meta.inputs[0].sizes == (1, 1, 8, 8) and meta.inputs[0].dtype == "float32"
    assert meta.outputs[0].sizes == (1, 10)
    assert sum(op.calls for op in meta.operators) > 0


def floats(count, *shape):
    return memoryview(array.array("f", [i / count for i in range(count)])).cast("B").cast("f", list(shape))


def test_exported_programs_compile_and_run():
    program = rushlight.compile(EXPORTED / "torch_2.8.pt2")
    inputs = []
    for info in rushlight.load(program.buffer).meta().inputs:
        assert info.dtype == "float32"
        count = 1
        for size in info.sizes:
            count *= size
        inputs.append(floats(count, *info.sizes))
    result = program(*inputs)
    result = result[0] if isinstance(result, tuple) else result
    assert result.tolist() == rushlight.load(program.buffer)(*inputs).tolist()
    assert program.report.instructions > 0 and "forward" in str(program.report)
    again = rushlight.compile((EXPORTED / "torch_2.8.pt2").read_bytes())
    assert again.buffer == program.buffer
    assert "torch" not in sys.modules


def test_bad_files_are_errors():
    for source in ["no/such/file.pte", b"", b"not a program" * 100, 3]:
        try:
            rushlight.load(source)
        except (rushlight.Error, TypeError) as error:
            assert str(error)
        else:
            raise AssertionError(f"{source!r} was accepted")


if __name__ == "__main__":
    tests = [test for name, test in sorted(globals().items()) if name.startswith("test_")]
    for test in tests:
        test()
        print(f"{test.__name__} ok")
    print(f"{len(tests)} passed, 0 failed")
    sys.exit(0)
