"""What a caller may ask for is checked before anything happens: limits on memory and time, threads, precisions, operators."""

import array
import pathlib
import time

import pytest
import rushlight

ROOT = pathlib.Path(__file__).resolve().parents[3]
DIGITS = ROOT / "examples" / "cortex-m" / "digits.pte"
MLP = ROOT / "tests" / "corpus" / "pt2" / "torch_2.8.pt2"
CUSTOM = ROOT / "tests" / "corpus" / "pt2" / "custom_operator.pt2"
IMAGE = memoryview(array.array("f", [0.5] * 64)).cast("B").cast("f", [1, 1, 8, 8])
X = array.array("f", [1, 2, 3, 4])


def double(x):
    return array.array("f", [2 * v for v in x.tolist()])


@pytest.mark.parametrize("lower", ["off", "auto", "cpu"])
def test_memory_can_be_limited(lower):
    expected = rushlight.load(DIGITS)(IMAGE).tolist()
    module = rushlight.load(DIGITS, lower=lower, memory_limit=100)
    with pytest.raises(rushlight.Error) as caught:
        module(IMAGE)
    assert caught.value.code_name == "MemoryAllocationFailed", caught.value
    (row,) = rushlight.load(DIGITS, lower=lower, memory_limit=1 << 24)(IMAGE).tolist()
    assert row == pytest.approx(expected[0], abs=1e-4)


def slow(x):
    time.sleep(0.3)
    return double(x)


def test_time_can_be_limited():
    rushlight.register_op("example::twice", slow)
    program = rushlight.compile(CUSTOM).buffer
    module = rushlight.load(program, time_limit=0.1)
    for _ in range(2):
        with pytest.raises(rushlight.Error) as caught:
            module(X)
        assert caught.value.code_name == "OutOfResources" and "time limit" in str(caught.value), caught.value
    # A call that was stopped leaves nothing behind.
    rushlight.register_op("example::twice", double)
    assert module(X).tolist() == [3, 5, 7, 9]
    rushlight.register_op("example::twice", slow)
    for limit in (None, 20, 20.5, 1e9):
        assert rushlight.load(program, time_limit=limit)(X).tolist() == [3, 5, 7, 9]


REFUSED = {
    "memory_limit": [0, -1, True, 1.5, "1", 1 << 80],
    "time_limit": [0, -1.0, True, "1", float("nan"), float("inf"), 1e300],
    "threads": [0, -1, True, False, 1.5, "2", 1 << 40, 10**30],
    "lower": ["portable", None],
}


@pytest.mark.parametrize("option, value", [(option, value) for option in REFUSED for value in REFUSED[option]])
def test_limits_that_cannot_be_meant_are_refused(option, value):
    with pytest.raises(ValueError) as caught:
        rushlight.load(DIGITS, **{option: value})
    assert option in str(caught.value) and repr(value) in str(caught.value), caught.value


def test_integers_of_other_libraries_are_integers():
    numpy = pytest.importorskip("numpy")
    limits = {"threads": numpy.int64(2), "memory_limit": numpy.int32(1 << 24), "time_limit": numpy.float32(20)}
    assert rushlight.load(DIGITS, **limits)(IMAGE).shape == (1, 10)


class Takes:
    """A backend that takes everything."""

    name = "Takes"

    def partition(self, node):
        return True

    def preprocess(self, part):
        return b""


@pytest.mark.parametrize("backend", [Takes(), [Takes(), "cpu"], ["cpu", Takes()], [Takes(), "portable"]])
def test_precisions_that_a_backend_does_not_know_are_refused(backend):
    for precision in ("bf16", "f16"):
        with pytest.raises(ValueError) as caught:
            rushlight.compile(MLP, backend=backend, precision=precision)
        assert "`Takes`" in str(caught.value) and precision in str(caught.value), caught.value
    assert rushlight.compile(MLP, backend=backend, precision="f32").buffer


def test_backends_may_know_precisions():
    class Knows(Takes):
        name = "Knows"
        precisions = ("f32", "bf16")

    assert rushlight.compile(MLP, backend=[Knows(), "cpu"], precision="bf16").buffer
    with pytest.raises(ValueError):
        rushlight.compile(MLP, backend=[Knows(), "cpu"], precision="f16")


@pytest.mark.parametrize("precision", ["int8", "BF16", "", None, 16])
@pytest.mark.parametrize("backend", [None, "cpu", "portable", ["cpu", "portable"]])
def test_precisions_that_nobody_knows_are_refused(backend, precision):
    with pytest.raises(rushlight.Error) as caught:
        rushlight.compile(MLP, backend=backend, precision=precision)
    assert "precision" in str(caught.value) and caught.value.got == f"`{precision}`", caught.value


@pytest.mark.parametrize("backend", [None, "portable", [], ["portable"]])
def test_precisions_need_the_cpu(backend):
    with pytest.raises((ValueError, rushlight.Error)) as caught:
        rushlight.compile(MLP, backend=backend, precision="bf16")
    assert "cpu" in str(caught.value), caught.value


def renamed(name):
    """The program of the custom operator, which calls another of as long a name."""
    program = rushlight.compile(CUSTOM).buffer
    assert len(name) == len("twice") and b"example::twice" in program
    return program.replace(b"example::twice", b"example::" + name.encode())


@pytest.mark.parametrize("lower", ["off", "auto", "cpu"])
def test_an_operator_can_be_registered_after_it_was_missing(lower):
    name = {"off": "later", "auto": "late2", "cpu": "late3"}[lower]
    module = rushlight.load(renamed(name), lower=lower)
    for _ in range(2):
        with pytest.raises(rushlight.Error) as caught:
            module(X)
        assert caught.value.missing_operators == [f"example::{name}.out"]
        assert f'rushlight.register_op("example::{name}", function)' in str(caught.value)
    assert not module.report.lowered or lower != "off"
    rushlight.register_op(f"example::{name}", double)
    assert module(X).tolist() == [3, 5, 7, 9]
    # The same for a module that said before how it runs.
    assert module.report.lowered == (lower == "cpu"), module.report.reason


def test_an_operator_can_be_registered_after_compiling():
    from rushlight.compat import portable_lib

    program = portable_lib._load_program_from_buffer(renamed("late4"))
    with pytest.raises(rushlight.Error):
        program.load_method("forward")
    rushlight.register_op("example::late4", double)
    assert program.load_method("forward").call([X])[0].tolist() == [3, 5, 7, 9]


def test_a_backend_can_be_registered_after_it_was_missing():
    class Late(Takes):
        name = "Late"
        num_outputs = 1

        def init(self, payload):
            return self

        def execute(self, inputs):
            return memoryview(array.array("f", [7, 8])).cast("B").cast("f", [1, 2])

    program = rushlight.compile(MLP, backend=Late())
    x = memoryview(array.array("f", [0.5, -2.0])).cast("B").cast("f", [1, 2])
    module = rushlight.load(program.buffer)
    for call in (program, module):
        with pytest.raises(rushlight.Error) as caught:
            call(x)
        assert "register_backend" in str(caught.value)
    rushlight.register_backend(Late())
    for call in (program, module):
        assert call(x).tolist() == [[7, 8]]
