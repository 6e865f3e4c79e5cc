"""The wheel where neither torch nor numpy is installed. Run as a script: it needs no test framework."""

import array
import importlib.util
import json
import pathlib
import struct
import sys
import tempfile

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


def test_logits_are_bit_identical_in_every_binding():
    module = rushlight.load(DIGITS / "digits.pte", lower="off")
    logits = b"".join(module(image).tobytes() for image in images())
    assert logits == (ROOT / "tests" / "same_numbers" / "digits.bin").read_bytes()
    expected = [logit for row in json.loads((DIGITS / "expected.json").read_text())["logits"] for logit in row]
    assert all(abs(got - want) < 1e-4 for got, want in zip(struct.unpack("<100f", logits), expected))


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


def test_a_wrong_rank_says_how_many_dimensions():
    module = rushlight.load(DIGITS / "digits.pte")
    image = images()[0].cast("B").cast("f", [1, 8, 8])
    try:
        module(image)
    except rushlight.Error as error:
        assert "input 0 of `forward` has the wrong rank" in str(error)
        assert error.hint == "the rank was fixed at export: give 4 dimensions; one for the batch may be missing"
    else:
        raise AssertionError("an input of the wrong rank was accepted")


def test_an_export_without_torch_says_what_needs_none():
    try:
        rushlight.export(None, ())
    except ModuleNotFoundError as error:
        assert error.name == "torch" and "`rushlight.compile` takes a .pt2 file without it" in str(error)
    else:
        raise AssertionError("exported without PyTorch")


def test_results_show_their_elements():
    module = rushlight.load(DIGITS / "digits.pte")
    logits = module(images()[0])
    text = repr(logits)
    assert text.startswith("rushlight.Tensor([[") and text.endswith("]], shape=[1, 10], dtype=float32)")
    shown = [float(number) for number in text[len("rushlight.Tensor([[") : text.index("]]")].split(", ")]
    assert struct.pack("10f", *shown) == logits.tobytes()


def test_metadata():
    meta = rushlight.load(DIGITS / "digits.pte").meta()
    assert meta.inputs[0].sizes == (1, 1, 8, 8) and meta.inputs[0].dtype == "float32"
    assert meta.outputs[0].sizes == (1, 10)
    assert sum(op.calls for op in meta.operators) > 0


def close(got, want):
    return len(got) == len(want) and all(abs(a - b) < 1e-6 for a, b in zip(got, want))


def test_exported_programs_compile_and_run():
    path = EXPORTED / "torch_2.8.pt2"
    program = rushlight.compile(path)
    x = memoryview(array.array("f", [0.5, -2.0])).cast("B").cast("f", [1, 2])
    (row,) = program(x).tolist()
    # What PyTorch computes of it.
    assert close(row, [-0.03363800048828125, 1.9394004344940186])
    assert program.report.instructions == sum(use.calls for use in program.report.operators) > 0
    assert rushlight.compile(path.read_bytes()).buffer == rushlight.compile({"forward": path}).buffer == program.buffer


def test_operators_can_be_python_functions():
    program = rushlight.compile(EXPORTED / "custom_operator.pt2")
    rushlight.register_op("example::twice", lambda x: array.array("f", [2 * v for v in x.tolist()]))
    assert program(array.array("f", [1, 2, 3, 4])).tolist() == [3, 5, 7, 9]


class Adder:
    """Both halves of a backend that adds constants, without NumPy."""

    name = "Adder"
    num_outputs = 1

    def partition(self, node):
        if node.op != "aten::add.Tensor":
            return f"{node.op} is no addition"
        return node.args["other"].is_constant and node.args["alpha"] == 1

    def preprocess(self, part):
        assert len(part.inputs) == len(part.outputs) == len(part.nodes) == 1
        (constant,) = part.constants.values()
        assert constant.tobytes() == bytes(memoryview(constant).cast("B"))
        return constant.tobytes()

    def init(self, payload):
        self.constant = memoryview(payload.data).cast("f").tolist()
        return self

    def execute(self, inputs):
        (x,) = inputs
        (row,) = x.tolist()
        sums = array.array("f", [a + b for a, b in zip(row, self.constant)])
        return memoryview(sums).cast("B").cast("f", x.shape)


def test_backends_can_be_python_objects():
    path = EXPORTED / "torch_2.8.pt2"
    x = memoryview(array.array("f", [0.5, -2.0])).cast("B").cast("f", [1, 2])
    rushlight.register_backend(Adder())
    for backend in (Adder(), [Adder(), "portable"]):
        program = rushlight.compile(path, backend=backend)
        assert program.report.backends == {"Adder": 1, "portable": 1}
        assert program(x).tolist() == rushlight.compile(path, backend="portable")(x).tolist()
        assert rushlight.compare(path, program, x).first_difference() is None


def test_lowered_programs_are_kept_in_a_folder():
    small = (ROOT / "tests" / "corpus" / "1.5.1" / "mlp.pte").read_bytes()
    program = small + bytes(1 << 20)
    x = memoryview(array.array("f", range(16))).cast("B").cast("f", [2, 8])
    with tempfile.TemporaryDirectory() as folder:
        kept = pathlib.Path(folder) / "kept"
        results = []
        too_long = kept / ("x" * 300)
        uses = [(None, None), (kept, "written to"), (str(kept), "loaded from"), (too_long, "not written")]
        for cache, said in uses:
            module = rushlight.load(program, lower="cpu", cache=cache)
            report = module.report
            assert report.lowered
            assert report.cache is None if said is None else report.cache.startswith(said), report.cache
            results.append(module(x).tolist())
        assert all(result == results[0] for result in results)


def test_texts_become_tokens():
    import rushlight.llm

    folder = ROOT / "tests" / "decoders" / "llama"
    text, expected = (json.loads((folder / name).read_text()) for name in ("text.json", "expected.json"))
    tokenizer = rushlight.llm.Tokenizer.load(folder)
    assert tokenizer.encode(text["prompt"]) == expected["prompt"]
    assert tokenizer.decode(expected["greedy"]) == text["greedy"]
    try:
        rushlight.llm.LLM(DIGITS / "digits.pte", tokenizer)
    except ValueError as error:
        assert "no language model" in str(error)
    else:
        raise AssertionError("a classifier was accepted as a language model")


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
