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
    "lower": [None],
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


class Tuned(Takes):
    """With options, whose values it remembers."""

    name = "Tuned"
    options = (
        rushlight.OptionSpec("mode", "fast", "how it rounds", ("fast", "exact")),
        rushlight.OptionSpec("depth", 3, "how deep it looks"),
        rushlight.OptionSpec("trace", False, "whether it traces"),
    )

    def __init__(self):
        self.values = {}

    def set_option(self, name, value):
        if name == "depth" and value < 0:
            raise ValueError("depth is at least 0")
        self.values[name] = value


def test_options_of_backends_are_listed():
    cpu, cortex_m, portable = rushlight.backends()
    assert (cpu.name, portable.name, portable.options) == ("cpu", "portable", [])
    options = {option.name: option for option in cpu.options}
    assert options["precision"].default == "f32" and options["precision"].choices == ("f32", "f16", "bf16")
    assert [option.name for option in cortex_m.options] == ["cpu", "runtime", "io"]
    assert options["threads"].default == 0 and options["threads"].choices == ()
    assert all(option.about for option in cpu.options)


@pytest.mark.parametrize("backend", [Takes(), [Takes(), "cpu"], "portable"])
def test_options_that_a_backend_does_not_have_are_refused(backend):
    first = backend[0] if isinstance(backend, list) else backend
    with pytest.raises(rushlight.Error, match="has no option `precision`") as caught:
        rushlight.compile(MLP, backend=(first, {"precision": "bf16"}))
    assert caught.value.expected == "no options" and caught.value.code_name == "InvalidArgument"
    assert rushlight.compile(MLP, backend=backend).buffer


def test_one_backend_is_written_in_several_ways():
    exact = rushlight.compile(MLP, backend="cpu").buffer
    ways = [
        "cpu:precision=bf16",
        ("cpu", {"precision": "bf16"}),
        ["cpu:precision=bf16", "portable"],
        [("cpu", {"precision": "bf16", "threads": 1}), Takes()],
        ("cpu:threads=1", {"precision": "bf16"}),
    ]
    programs = [rushlight.compile(MLP, backend=way).buffer for way in ways]
    assert len(set(programs)) == 1 and programs[0] != exact
    assert rushlight.compile(MLP, backend=("cpu", {"precision": "f32"})).buffer == exact
    assert rushlight.compile(MLP, backend=("cpu", "portable")).buffer == exact


@pytest.mark.parametrize(
    "options",
    ["precision=int8", "precision=BF16", "precision=", "precison=bf16", "precision", "", "threads=-1", "threads=two"],
)
def test_options_that_do_not_exist_say_which_do(options):
    with pytest.raises(rushlight.Error) as caught:
        rushlight.compile(MLP, backend=f"cpu:{options}")
    assert caught.value.code_name == "InvalidArgument" and caught.value.expected, caught.value
    with pytest.raises(rushlight.Error):
        rushlight.load(DIGITS, lower=f"cpu:{options}")


@pytest.mark.parametrize("given", [{"precision": True}, {"threads": "2"}, {"precision": "f8"}, {"deep": 1}])
def test_values_have_the_types_that_are_declared(given):
    with pytest.raises(rushlight.Error) as caught:
        rushlight.compile(MLP, backend=("cpu", given))
    assert "`precision` (what weights" in str(caught.value), caught.value


@pytest.mark.parametrize("given", [{"precision": None}, {"threads": 1.5}, {3: "bf16"}])
def test_values_that_no_option_has_are_refused(given):
    for backend in ("cpu", Tuned()):
        with pytest.raises(TypeError, match="must be a"):
            rushlight.compile(MLP, backend=(backend, given))
    with pytest.raises(ValueError, match="64 bits"):
        rushlight.compile(MLP, backend=("cpu", {"threads": 1 << 63}))


def test_backends_in_python_have_options():
    tuned = Tuned()
    assert rushlight.compile(MLP, backend=(tuned, {"mode": "exact", "trace": True})).buffer
    assert tuned.values == {"mode": "exact", "depth": 3, "trace": True}
    # Of the next compilation, too, what is not given has its default.
    assert rushlight.compile(MLP, backend=["cpu", (tuned, {"depth": 5})]).buffer
    assert tuned.values == {"mode": "fast", "depth": 5, "trace": False}
    for given, message in [
        ({"mode": "slow"}, "fast or exact"),
        ({"depth": True}, "an int"),
        ({"deep": 1}, "`mode` .how it rounds: fast or exact, by default fast"),
    ]:
        with pytest.raises(rushlight.Error, match=message):
            rushlight.compile(MLP, backend=(tuned, given))
    with pytest.raises(rushlight.Error, match="`set_option` of the backend `Tuned` failed") as caught:
        rushlight.compile(MLP, backend=(tuned, {"depth": -1}))
    assert isinstance(caught.value.__cause__, ValueError)


def test_options_have_to_be_declared_well():
    def declared(*options):
        backend = Tuned()
        backend.options = options
        return backend

    spec = rushlight.OptionSpec
    for options, kind in [
        (["mode"], TypeError),
        ([spec("mode", None, "how")], TypeError),
        ([spec("mode", "fast", "how", ("slow",))], ValueError),
        ([spec("mode", "fast", "how"), spec("mode", "fast", "how")], ValueError),
    ]:
        with pytest.raises(kind, match="option"):
            rushlight.compile(MLP, backend=declared(*options))
    silent = Takes()
    silent.options = [spec("mode", "fast", "how")]
    with pytest.raises(TypeError, match="set_option"):
        rushlight.compile(MLP, backend=silent)


def test_programs_are_lowered_with_options():
    rows = [
        rushlight.load(DIGITS, lower=lower)(IMAGE).tolist()
        for lower in ("cpu", "cpu:precision=bf16", ("cpu", {"precision": "bf16"}), ["cpu:precision=bf16"])
    ]
    assert rows[0] != rows[1] and rows[1] == rows[2] == rows[3]
    for wrong in ("portable", "npu"):
        with pytest.raises(rushlight.Error, match="`auto`, `off`, `cpu`"):
            rushlight.load(DIGITS, lower=wrong)
    with pytest.raises(TypeError, match="for your own"):
        rushlight.load(DIGITS, lower=Takes())


def test_precision_is_said_where_it_is_now():
    with pytest.raises(TypeError, match='backend="cpu:precision=bf16"'):
        rushlight.compile(MLP, backend="cpu", precision="bf16")


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
