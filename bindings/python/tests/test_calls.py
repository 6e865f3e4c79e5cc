"""Calls that write to given arrays, bound calls, calls at the same time, and calls in coroutines."""

import array
import asyncio
import os
import pathlib
import subprocess
import sys
import threading

import pytest
import rushlight

np = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")
ROOT = pathlib.Path(__file__).resolve().parents[3]
DIGITS = ROOT / "examples" / "cortex-m" / "digits.pte"


class Containers(torch.nn.Module):
    def forward(self, x):
        return {"sum": x.sum(1), "parts": (x * 2, [x.to(torch.int64), x + 1])}


class Counter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x):
        self.count.add_(1)
        return x + self.count


class Named(torch.nn.Module):
    def forward(self, x, out):
        return x - out


def module_of(model, *inputs, lower="cpu", **options):
    return rushlight.load(rushlight.export(model, inputs, **options).buffer, lower=lower)


@pytest.fixture(scope="module")
def linear():
    torch.manual_seed(0)
    batch = torch.export.Dim("batch", max=8)
    return module_of(torch.nn.Linear(4, 3), torch.randn(2, 4), dynamic_shapes=({0: batch},))


@pytest.fixture
def digits():
    return rushlight.load(DIGITS, lower="cpu")


IMAGE = np.linspace(0, 1, 64, dtype=np.float32).reshape(1, 1, 8, 8)


@pytest.mark.parametrize("lower", ["cpu", "off"])
@pytest.mark.parametrize(
    "make",
    [
        lambda: np.zeros((1, 10), np.float32),
        lambda: np.zeros((3, 1, 10), np.float32)[1],
        lambda: np.zeros((10, 1), np.float32).T,
        lambda: torch.zeros(1, 10),
        lambda: torch.zeros(2, 3, 10)[1, 2:],
        lambda: memoryview(array.array("f", [0] * 10)).cast("B").cast("f", [1, 10]),
    ],
)
def test_outputs_are_written_in_place(lower, make):
    module = rushlight.load(DIGITS, lower=lower)
    expected, out = module(IMAGE), make()
    assert module(IMAGE, out=out) is out
    assert np.array_equal(np.asarray(out), expected)
    # As in a call without names.
    assert module.run("forward", torch.from_numpy(IMAGE), out=out) is out


def test_channels_last_memory_is_written_in_its_order():
    conv = module_of(torch.nn.Conv2d(3, 4, 1), torch.randn(1, 3, 5, 6))
    x = torch.randn(1, 3, 5, 6)
    for out in (torch.zeros(1, 4, 5, 6).to(memory_format=torch.channels_last), torch.zeros(4, 1, 6, 5).permute(1, 0, 3, 2)):
        assert torch.equal(conv(x, out=out), conv(x))


def test_outputs_in_containers():
    x = torch.arange(6.0).reshape(2, 3)
    module = module_of(Containers(), x)
    expected = module(x)
    out = {"sum": torch.zeros(2), "parts": (None, [torch.zeros(2, 3, dtype=torch.int64), torch.zeros(2, 3)])}
    assert module(x, out=out) is out
    assert torch.equal(out["sum"], expected["sum"]) and out["parts"][0] is None
    assert all(torch.equal(*pair) for pair in zip(out["parts"][1], expected["parts"][1]))
    for wrong, text in [
        ({"sum": torch.zeros(2)}, r"argument `out` lacks `parts`"),
        ([torch.zeros(2)], r"argument `out`: expected a dict of `sum`, `parts`, got list"),
        ({**out, "parts": (None, [None])}, r"argument `out.parts.1`: expected a list of 2, got 1"),
    ]:
        with pytest.raises(TypeError, match=text):
            module(x, out=wrong)


def test_a_program_without_names_takes_the_outputs_in_order():
    module = rushlight.load(ROOT / "tests" / "corpus" / "1.5.1" / "lstm.pte")
    meta = module.meta()
    inputs = [torch.randn(info.sizes) for info in meta.inputs]
    expected = module(*inputs)
    out = tuple(torch.zeros_like(value) for value in expected)
    assert module(*inputs, out=out) is out
    assert all(torch.equal(*pair) for pair in zip(out, expected))


FIXED = np.zeros((1, 10), np.float32)
FIXED.flags.writeable = False


@pytest.mark.parametrize(
    ("out", "kind", "text"),
    [
        (np.zeros((1, 10)), rushlight.Error, r"(?s)output 0.*`forward` does not fit.*expected +f32 \[1, 10\].*got +f64.*float32"),
        (np.zeros(10, np.float32), rushlight.Error, r"(?s)expected +f32 \[1, 10\].*got +f32 \[10\].*nothing is broadcast"),
        (np.zeros((2, 10), np.float32), rushlight.Error, r"got +f32 \[2, 10\]"),
        (np.zeros((1, 20), np.float32)[:, ::2], rushlight.Error, r"(?s)without gaps.*got +\[\d+, 2\].*not a slice"),
        (np.broadcast_to(np.float32(0), (1, 10)).copy()[:, ::-1], ValueError, "not written to negative strides.*a new array"),
        (FIXED, ValueError, "out: cannot read this ndarray: it is read-only; give an array that may be written"),
        (bytes(40), ValueError, "it is read-only"),
        (np.zeros((1, 10), ">f4"), ValueError, "swapped bytes"),
        (torch.zeros(1).expand(1, 10), rushlight.Error, "(?s)no elements overlap.*expanded view"),
        (torch.zeros(1, 10, requires_grad=True), ValueError, r"call detach\(\)"),
        (torch.zeros(1, 10, device="meta"), ValueError, "on the device meta"),
        ([0.0] * 10, TypeError, "expected an array of NumPy, a tensor of PyTorch, or another object with a writable buffer"),
        ((np.zeros((1, 10), np.float32),), TypeError, "expected an array of NumPy"),
        (5, TypeError, "writable buffer"),
    ],
)
def test_outputs_that_do_not_fit_are_refused(digits, out, kind, text):
    with pytest.raises(kind, match=text):
        digits(IMAGE, out=out)
    assert digits(IMAGE).shape == (1, 10)


def test_results_of_the_library_are_read_only(digits):
    result = digits(memoryview(IMAGE))
    assert isinstance(result, rushlight.Tensor)
    with pytest.raises(TypeError, match="results are read-only; give an array of NumPy"):
        digits(IMAGE, out=result)


def test_a_refused_output_changes_no_state():
    module = module_of(Counter(), torch.zeros(1))
    assert module(torch.zeros(1)).item() == 1
    with pytest.raises(rushlight.Error):
        module(torch.zeros(1), out=torch.zeros(2))
    assert module(torch.zeros(1), out=torch.zeros(1)).item() == 2


def test_memory_is_not_shared(digits):
    x = np.zeros((1, 1, 8, 8), np.float32)
    with pytest.raises(ValueError, match=r"out: it shares memory with input 0; give an array of its own"):
        digits(x, out=x.reshape(-1)[5:15].reshape(1, 10))
    x = torch.arange(6.0).reshape(2, 3)
    module, twice = module_of(Containers(), x), torch.zeros(2, 3)
    with pytest.raises(ValueError, match="out 3: it shares memory with another output"):
        module(x, out={"sum": None, "parts": (twice, [None, twice])})


def test_shapes_that_depend_on_the_inputs(linear):
    for rows in (1, 5, 8):
        x, out = torch.randn(rows, 4), torch.zeros(rows, 3)
        assert torch.equal(linear(x, out=out), linear(x))
    with pytest.raises(rushlight.Error, match=r"(?s)expected +f32 \[5, 3\].*got +f32 \[4, 3\].*depends on the inputs"):
        linear(torch.randn(5, 4), out=torch.zeros(4, 3))
    with pytest.raises(rushlight.Error, match=r"got +f32 \[9, 3\]"):
        linear(torch.randn(5, 4), out=torch.zeros(9, 3))


def test_an_input_named_out_is_an_input():
    x = torch.tensor([3.0])
    module = module_of(Named(), x, torch.tensor([2.0]))
    assert module(x, out=torch.tensor([1.0])).item() == 2
    bound = module.bind(x, torch.tensor([1.0]), out=torch.zeros(1))
    assert bound().item() == 2


def test_bound_calls_read_and_write_the_same_arrays(digits):
    x = IMAGE.copy()
    bound = digits.bind(x)
    assert isinstance(bound.out, np.ndarray) and bound.out.shape == (1, 10)
    first = bound().copy()
    x[:] = 1 - x
    assert bound() is bound.out and np.array_equal(bound.out, digits(x)) and not np.array_equal(first, bound.out)
    x = torch.from_numpy(IMAGE)
    assert torch.equal(digits.bind(x)(), digits(x))
    out = torch.zeros(1, 10)
    assert digits.bind(x, out=out)() is out
    assert "Binding" in repr(bound)


def test_bound_outputs_need_a_shape_and_a_library(linear, digits):
    with pytest.raises(ValueError, match="output 0 has no fixed shape; give an array"):
        linear.bind(torch.randn(2, 4))
    x, out = torch.randn(2, 4), torch.zeros(2, 3)
    assert torch.equal(linear.bind(x, out=out)(), linear(x))
    with pytest.raises(TypeError, match="give arrays for others as out="):
        digits.bind(memoryview(IMAGE))


def test_instances_run_at_the_same_time():
    module = rushlight.load(rushlight.compile(ROOT / "tests" / "corpus" / "pt2" / "custom_operator.pt2").buffer)
    # Ends only if two calls are inside.
    barrier = threading.Barrier(2, timeout=30)

    def twice(x):
        barrier.wait()
        return array.array("f", [2 * value for value in x.tolist()])

    rushlight.register_op("example::twice", twice)
    instances = module.instances(2)
    assert len(instances) == 2 and repr(instances) == "rushlight.Instances(2 of 'forward')"
    results = []
    x = np.array([1, 2, 3, 4], np.float32)
    threads = [threading.Thread(target=lambda: results.append(instances(x).tolist())) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == [[3, 5, 7, 9]] * 6


def test_instances_give_the_results_of_the_module(digits):
    instances = digits.instances(3)
    images = [np.roll(IMAGE, shift) for shift in range(24)]
    expected = [digits(image) for image in images]
    got = [None] * len(images)

    def work(start):
        out = np.zeros((1, 10), np.float32)
        for at in range(start, len(images), 6):
            got[at] = instances(images[at], out=out).copy()

    threads = [threading.Thread(target=work, args=(start,)) for start in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(*pair) for pair in zip(got, expected))


def test_instances_of_a_method_with_state_are_refused():
    for lower in ("cpu", "off"):
        module = module_of(Counter(), torch.zeros(1), lower=lower)
        with pytest.raises(rushlight.Error, match="(?s)`forward` keeps state between calls.*load a module for each user") as caught:
            module.instances(2)
        assert caught.value.code_name == "NotSupported"


def test_wrong_numbers_of_instances(digits):
    for count in (0, -1, 1.5, "2", True, 1025):
        with pytest.raises(ValueError, match="count must be an int from 1 to 1024"):
            digits.instances(count)
    with pytest.raises(rushlight.Error, match="no_such"):
        digits.instances(1, "no_such")
    with pytest.raises(rushlight.Error, match="input 0"):
        digits.instances(1)(np.zeros(3, np.float32))


CIRCLE = """
import array, threading, rushlight
module = rushlight.load(rushlight.compile(sys.argv[1]).buffer)
x = array.array("f", [1, 2, 3, 4])
inside, told = threading.Barrier(2, timeout=20), []

def twice(value):
    inside.wait()
    try:
        instances(x)
    except RuntimeError as error:
        told.append(str(error))
    return array.array("f", [2 * number for number in value.tolist()])

rushlight.register_op("example::twice", twice)
instances = module.instances(2)
threads = [threading.Thread(target=instances, args=(x,)) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join(40)
assert len(told) >= 1 and "in use" in told[0], told
print("done")
"""


def test_instances_that_wait_for_each_other_are_told():
    script = "import sys, faulthandler; faulthandler.dump_traceback_later(60, exit=True)\n" + CIRCLE
    file = ROOT / "tests" / "corpus" / "pt2" / "custom_operator.pt2"
    done = subprocess.run([sys.executable, "-c", script, str(file)], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_uses_the_instances_that_were_free():
    module = rushlight.load(rushlight.compile(ROOT / "tests" / "corpus" / "pt2" / "custom_operator.pt2").buffer)
    inside, go = threading.Event(), threading.Event()
    main, x = threading.current_thread(), np.array([1, 2, 3, 4], np.float32)

    def twice(value):
        if threading.current_thread() is not main:
            inside.set()
            go.wait(30)
        return array.array("f", [2 * number for number in value.tolist()])

    rushlight.register_op("example::twice", twice)
    instances = module.instances(2)
    other = threading.Thread(target=instances, args=(x,))
    other.start()
    assert inside.wait(30)
    pid = os.fork()
    if pid == 0:
        right = all(instances(x).tolist() == [3, 5, 7, 9] for _ in range(3))
        os._exit(0 if right else 1)
    _, status = os.waitpid(pid, 0)
    go.set()
    other.join()
    assert os.waitstatus_to_exitcode(status) == 0


def test_calls_in_coroutines(digits):
    async def main():
        instances, out = digits.instances(2), np.zeros((1, 10), np.float32)
        results = await asyncio.gather(
            digits.call_async(IMAGE), digits.call_async(IMAGE, out=out), instances.call_async(IMAGE), instances.call_async(IMAGE)
        )
        assert results[1] is out
        with pytest.raises(rushlight.Error, match="input 0"):
            await digits.call_async(np.zeros(3, np.float32))
        with pytest.raises(TypeError, match="no input `y`"):
            await digits.call_async(y=IMAGE)
        return results

    expected = digits(IMAGE)
    assert all(np.array_equal(result, expected) for result in asyncio.run(main()))


def test_a_cancelled_task_ends_the_call():
    class Long(torch.nn.Module):
        def forward(self, x):
            for _ in range(200):
                x = torch.ops.example.nap(x)
            return x

    with torch.library._scoped_library("example", "FRAGMENT") as library:
        library.define("nap(Tensor x) -> Tensor")
        library.impl("nap", torch.clone, "CompositeExplicitAutograd")
        program = rushlight.export(Long(), (torch.zeros(1),))
    naps, started = [], threading.Event()

    def nap(x):
        naps.append(x)
        started.set()
        threading.Event().wait(0.05)
        return x

    rushlight.register_op("example::nap", nap)
    module = rushlight.load(program.buffer)

    async def main():
        task = asyncio.ensure_future(module.call_async(torch.zeros(1)))
        await asyncio.to_thread(started.wait, 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        count = len(naps)
        await asyncio.sleep(0.3)
        assert len(naps) == count < 100, "the call has ended when the task has"

    asyncio.run(main())
    rushlight.register_op("example::nap", lambda x: x)
    assert module(torch.ones(1)).item() == 1


def test_a_trace_has_the_parts_of_a_run(digits, tmp_path):
    trace = digits.trace(IMAGE, runs=2)
    runs = [event for event in trace.events if event.kind == "execution"]
    assert len(runs) == 2 and runs[0].start == 0 and trace.events[0] is runs[0]
    steps = [event for event in trace.events if event.kind == "step"]
    assert steps and all(event.details["backend"] == "RushlightCpu" for event in steps)
    assert all(0 <= event.start and event.seconds >= 0 for event in trace.events)
    assert [event.start for event in trace.events] == sorted(event.start for event in trace.events)
    trace.save(tmp_path / "trace.json")
    assert '"traceEvents"' in (tmp_path / "trace.json").read_text()
    assert "forward" in repr(trace) and "<table>" in trace._repr_html_()
    with pytest.raises(ValueError, match="runs must be an int from 1"):
        digits.trace(IMAGE, runs=0)
