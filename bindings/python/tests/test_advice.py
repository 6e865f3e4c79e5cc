"""Errors of Python with advice, each followed: a wrong call, the advice in its error, and the call that the advice names."""

import os
import pathlib
import shutil

import pytest
import rushlight
from rushlight import llm

np = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")
from torch.utils.data import DataLoader, TensorDataset

ROOT = pathlib.Path(__file__).resolve().parents[3]
DIGITS = ROOT / "examples" / "cortex-m" / "digits.pt2"
PROGRAM = DIGITS.with_suffix(".pte")
LLAMA = ROOT / "tests" / "decoders" / "llama"
IMAGES = torch.rand(6, 1, 8, 8)
LABELS = torch.arange(6)
PAIRS = [(image[None], label) for image, label in zip(IMAGES, LABELS)]
DATASET = TensorDataset(IMAGES, LABELS)
pytestmark = pytest.mark.filterwarnings("ignore::rushlight.QuantizationWarning")


def int8(calibration, **options):
    return rushlight.compile(DIGITS, quantize=rushlight.Quantization("int8", **options), calibration=calibration)


def calibrated(program):
    assert program.quantization.calibrated_on == "calibration" and program.quantization.samples > 0


# A wrong call, a part of its error, and the call that the error names.
COMPILING = {
    "a flag for a scheme": (
        lambda: rushlight.compile(DIGITS, quantize=True),
        'write quantize="int8"',
        lambda: rushlight.compile(DIGITS, quantize="int8"),
    ),
    "an unknown scheme": (
        lambda: rushlight.compile(DIGITS, quantize="int3"),
        "choose one of int8, int8-dynamic",
        lambda: rushlight.compile(DIGITS, quantize="int8-dynamic"),
    ),
    "a calibration without a scheme": (
        lambda: rushlight.compile(DIGITS, calibration=[IMAGES[:1]]),
        'add quantize="int8"',
        lambda: rushlight.compile(DIGITS, quantize="int8", calibration=[IMAGES[:1]]),
    ),
    "samples with labels": (
        lambda: int8(PAIRS),
        "[x for x, label in samples]",
        lambda: calibrated(int8([x for x, label in PAIRS])),
    ),
    "samples with labels, as a loader": (
        lambda: int8(PAIRS),
        "a torch.utils.data.DataLoader, whose labels are ignored",
        lambda: calibrated(int8(DataLoader(DATASET, batch_size=2))),
    ),
    "a dataset": (
        lambda: int8(DATASET),
        "torch.utils.data.DataLoader(samples)",
        lambda: calibrated(int8(DataLoader(DATASET))),
    ),
    "samples without a batch": (
        lambda: int8(IMAGES),
        "[x[None] for x in samples]",
        lambda: calibrated(int8([x[None] for x in IMAGES])),
    ),
    "the name of a file": (
        lambda: int8("images.npy"),
        "read the file first, such as with numpy.load",
        lambda: calibrated(int8([x[None] for x in np.load(DIGITS.parent / "images" / "images.npz")["arg_0"].reshape(-1, 1, 8, 8)])),
    ),
    "one input": (
        lambda: int8(5),
        "for one input, give a list of it",
        lambda: calibrated(int8([IMAGES[:1]])),
    ),
    "keys that are no inputs": (
        lambda: int8([{"picture": IMAGES[:1], "label": 3}]),
        "it has `image`",
        lambda: calibrated(int8([{"image": IMAGES[:1]}])),
    ),
    "a name to keep": (
        lambda: int8([IMAGES[:1]], keep="conv1"),
        "write keep=('conv1',)",
        lambda: int8([IMAGES[:1]], keep=("conv1",)),
    ),
    "an unknown name to keep": (
        lambda: int8([IMAGES[:1]], keep=("conv9",)),
        "a name such as `conv1`",
        lambda: int8([IMAGES[:1]], keep=("conv1",)),
    ),
    "an unknown observer": (
        lambda: int8([IMAGES[:1]], observer="eyes"),
        "`minmax`",
        lambda: int8([IMAGES[:1]], observer="minmax"),
    ),
    "a backend of ExecuTorch": (
        lambda: rushlight.compile(DIGITS, backend="xnnpack"),
        "choose `cpu` for the processor, also in place of XNNPACK",
        lambda: rushlight.compile(DIGITS, backend="cpu"),
    ),
    "an option of a backend": (
        lambda: rushlight.compile(DIGITS, precision="bf16"),
        'backend="cpu:precision=bf16"',
        lambda: rushlight.compile(DIGITS, backend="cpu:precision=bf16"),
    ),
    "a cache that there is not": (
        lambda: rushlight.compile(DIGITS, kv_cache="int8"),
        "leave out the type of caches",
        lambda: rushlight.compile(DIGITS),
    ),
    "an alignment": (
        lambda: rushlight.compile(DIGITS, alignment=24),
        "a power of two from 1",
        lambda: rushlight.compile(DIGITS, alignment=32),
    ),
    "calibrations of several methods": (
        lambda: rushlight.compile({"a": DIGITS, "b": DIGITS}, quantize="int8", calibration=[IMAGES[:1]]),
        "calibration={'a': batches",
        lambda: rushlight.compile({"a": DIGITS, "b": DIGITS}, quantize="int8", calibration={"a": [IMAGES[:1]]}),
    ),
    "a module": (
        lambda: rushlight.compile(torch.nn.Linear(2, 2)),
        "rushlight.export takes a module",
        lambda: rushlight.export(torch.nn.Linear(2, 2), (torch.ones(1, 2),)),
    ),
    "a compiled program": (
        lambda: rushlight.compile(PROGRAM),
        "it is compiled already",
        lambda: rushlight.load(PROGRAM)(IMAGES[:1]),
    ),
    "an exported program": (
        lambda: rushlight.load(DIGITS),
        "compile it first",
        lambda: rushlight.load(rushlight.compile(DIGITS).buffer)(IMAGES[:1]),
    ),
    "a static scheme of a language model": (
        lambda: llm.compile(LLAMA, quantize="int8"),
        "choose a scheme without a calibration: int8-dynamic",
        lambda: llm.compile(LLAMA, quantize="int8-dynamic"),
    ),
    "a static scheme with settings": (
        lambda: llm.compile(LLAMA, quantize=rushlight.Quantization("int8"), embeddings=8),
        "choose a scheme without a calibration: int8-dynamic",
        lambda: llm.compile(LLAMA, quantize=rushlight.Quantization("int8-dynamic"), embeddings=8),
    ),
    "a folder around language models": (
        lambda: llm.compile(LLAMA.parent),
        "name the folder or the .gguf file of the model itself",
        lambda: llm.compile(LLAMA),
    ),
}
DIGITS_MODULE = lambda: rushlight.load(rushlight.compile(DIGITS).buffer)
CALLING = {
    "doubles": (lambda run: run(np.zeros((1, 1, 8, 8))), 'x.astype("float32")', lambda run: run(np.zeros((1, 1, 8, 8)).astype("float32"))),
    "doubles of PyTorch": (
        lambda run: run(IMAGES[:1].double()),
        "x.to(torch.float32)",
        lambda run: run(IMAGES[:1].double().to(torch.float32)),
    ),
    "an unknown name": (lambda run: run(images=IMAGES[:1]), "Did you mean `image`?", lambda run: run(image=IMAGES[:1])),
    "negative strides": (
        lambda run: run(memoryview(np.zeros((1, 1, 8, 8), np.complex64)[..., ::-1])),
        "expected  f32",
        lambda run: run(np.zeros((1, 1, 8, 8), np.float32)[..., ::-1]),
    ),
    "a sparse tensor": (lambda run: run(IMAGES[:1].to_sparse()), "call to_dense()", lambda run: run(IMAGES[:1].to_sparse().to_dense())),
    "a list": (lambda run: run(IMAGES[:1].tolist()), "expected a tensor, an array", lambda run: run(np.array(IMAGES[:1].tolist(), np.float32))),
    "a read-only output": (
        lambda run: run(IMAGES[:1], out=bytes(40)),
        "give an array that may be written, such as a copy",
        lambda run: run(IMAGES[:1], out=np.frombuffer(bytes(40), np.float32).reshape(1, 10).copy()),
    ),
    "an output that records gradients": (
        lambda run: run(IMAGES[:1], out=torch.zeros(1, 10, requires_grad=True)),
        "call detach()",
        lambda run: run(IMAGES[:1], out=torch.zeros(1, 10, requires_grad=True).detach()),
    ),
    "an output with gaps": (
        lambda run: run(IMAGES[:1], out=torch.zeros(1, 20)[:, ::2]),
        "give a new array of this shape",
        lambda run: run(IMAGES[:1], out=torch.zeros(1, 10)),
    ),
    "an output of doubles": (
        lambda run: run(IMAGES[:1], out=np.zeros((1, 10))),
        "the program computes float32",
        lambda run: run(IMAGES[:1], out=np.zeros((1, 10), np.float32)),
    ),
    "outputs of a buffer": (
        lambda run: run.bind(memoryview(IMAGES[:1].numpy())),
        "give arrays for others as out=",
        lambda run: run.bind(memoryview(IMAGES[:1].numpy()), out=np.zeros((1, 10), np.float32))(),
    ),
    "threads": (
        lambda run: rushlight.load(PROGRAM, threads=0),
        "an int from 1 to 1024",
        lambda run: rushlight.load(PROGRAM, threads=1),
    ),
    "a backend to lower to": (
        lambda run: rushlight.load(PROGRAM, lower="xnnpack"),
        "`auto`, `off`, `cpu`",
        lambda run: rushlight.load(PROGRAM, lower="cpu"),
    ),
}


class Claims:
    """The ahead-of-time half of a backend that takes additions, and the other half if it has `init`."""

    def __init__(self, name="Advised", **members):
        self.name = name
        for member, value in members.items():
            setattr(self, member, value)


class Add(Claims):
    def partition(self, node):
        return node.op == "aten::add.Tensor"

    def preprocess(self, part):
        return b""


class Optional(Add):
    options = (rushlight.OptionSpec("mode", "fast", "the mode", ("fast", "exact")),)


class Settable(Optional):
    def set_option(self, name, value):
        self.mode = value


class Delegate:
    num_outputs = 1

    def execute(self, inputs):
        return np.asarray(inputs[0]) + np.asarray(inputs[1])


class Sum(torch.nn.Module):
    def forward(self, x, y):
        return x + y


PAIR = torch.ones(2), torch.full((2,), 2.0)


def add(backend):
    return rushlight.export(Sum(), PAIR, backend=backend)


def run_with(backend):
    program = add(Add(backend.name))
    rushlight.register_backend(backend)
    return program(*PAIR)


# A wrong backend, a part of its error, and the backend that the error names.
BACKENDS = {
    "a class": (lambda: add(Add), "make an object of it", lambda: add(Add())),
    "a number": (lambda: add(3), "expected the name of a backend, or an object with `name`", lambda: add(Add())),
    "no name": (lambda: add(Add(None)), "whose name is None", lambda: add(Add())),
    "no half": (lambda: add(Claims()), "`partition(node)` and `preprocess(part)`", lambda: add(Add())),
    "no function for parts": (
        lambda: add(Claims(partition=lambda node: False)),
        "has no method `preprocess`",
        lambda: add(Claims(partition=lambda node: False, preprocess=lambda part: b"")),
    ),
    "options that nobody sets": (lambda: add(Optional()), "no method `set_option(name, value)`", lambda: add(Settable())),
    "options that are no specs": (
        lambda: add(Settable(options=["mode"])),
        "must be OptionSpecs",
        lambda: add(Settable(options=[rushlight.OptionSpec("mode", "a", "")])),
    ),
    "an option twice": (
        lambda: add(Settable(options=[rushlight.OptionSpec("mode", "a", "")] * 2)),
        "declares the option `mode` twice",
        lambda: add(Settable(options=[rushlight.OptionSpec("mode", "a", "")])),
    ),
    "a default that is no choice": (
        lambda: add(Settable(options=[rushlight.OptionSpec("mode", "slow", "", ("fast",))])),
        "must be one of fast",
        lambda: add(Settable(options=[rushlight.OptionSpec("mode", "fast", "", ("fast",))])),
    ),
    "an unknown option": (lambda: add((Settable(), {"mod": "exact"})), "`mode`", lambda: add((Settable(), {"mode": "exact"}))),
    "a value that is no choice": (
        lambda: add((Settable(), {"mode": "slow"})),
        "fast or exact",
        lambda: add((Settable(), {"mode": "exact"})),
    ),
    "an answer that is none": (
        lambda: add(Add(partition=lambda node: 1)),
        "expected True, False or a str with the reason why not",
        lambda: add(Add(partition=lambda node: "not now")),
    ),
    "a payload that is text": (
        lambda: add(Add(preprocess=lambda part: "text")),
        "data must be bytes",
        lambda: add(Add(preprocess=lambda part: b"text")),
    ),
    "blobs that are a list": (
        lambda: add(Add(preprocess=lambda part: rushlight.Payload(b"", {}, [b""]))),
        "must be a dict of strs to bytes",
        lambda: add(Add(preprocess=lambda part: rushlight.Payload(b"", {}, {"blob": b""}))),
    ),
    "nothing to run": (
        lambda: rushlight.register_backend(Add()),
        "no method init(payload)",
        lambda: run_with(Add("Runs", init=lambda payload: Delegate())),
    ),
    "a delegate that is none": (
        lambda: run_with(Add("NoDelegate", init=lambda payload: object())),
        "an object with `num_outputs` and `execute(inputs)`",
        lambda: run_with(Add("NoDelegate", init=lambda payload: Delegate())),
    ),
    "a program without its backend": (
        lambda: add(Add("Unregistered"))(*PAIR),
        "needs the backend `Unregistered`",
        lambda: run_with(Add("Unregistered", init=lambda payload: Delegate())),
    ),
}
GENERATING = {
    "max_tokens": (3, "max_new_tokens"),
    "max_length": (3, "max_new_tokens"),
    "n_predict": (3, "max_new_tokens"),
    "num_predict": (3, "max_new_tokens"),
    "n": (3, "max_new_tokens"),
    "temp": (0.5, "temperature"),
    "repeat_penalty": (1.1, "repetition_penalty"),
    "stop_token": ("x", "stop"),
}


@pytest.mark.parametrize("case", COMPILING)
def test_advice_about_compiling(case):
    wrong, advice, right = COMPILING[case]
    with pytest.raises((rushlight.Error, TypeError, ValueError)) as caught:
        wrong()
    assert advice in str(caught.value), caught.value
    right()


@pytest.mark.parametrize("case", CALLING)
def test_advice_about_calls(case):
    wrong, advice, right = CALLING[case]
    module = DIGITS_MODULE()
    with pytest.raises((rushlight.Error, TypeError, ValueError)) as caught:
        wrong(module)
    assert advice in str(caught.value), caught.value
    right(module)


@pytest.mark.parametrize("case", BACKENDS)
def test_advice_about_backends(case):
    wrong, advice, right = BACKENDS[case]
    with pytest.raises((rushlight.Error, TypeError, ValueError)) as caught:
        wrong()
    causes = f"{caught.value} {caught.value.__cause__}"
    assert advice in causes, causes
    right()


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    file = tmp_path_factory.mktemp("advice") / "llama.pte"
    llm.compile(LLAMA, max_context_len=64).save(file)
    return llm.LLM(file)


@pytest.mark.parametrize("name", GENERATING)
def test_advice_about_generation(model, name):
    value, own = GENERATING[name]
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}': did you mean '{own}'"):
        model.generate("a", **{name: value})
    model.generate("a", **{"max_new_tokens": 2, own: value})


def test_advice_about_files(tmp_path):
    with pytest.raises(FileNotFoundError, match="cannot open"):
        rushlight.load(tmp_path / "none.pte")
    program = rushlight.compile(DIGITS)
    with pytest.raises(FileNotFoundError, match="make the folder first"):
        program.save(tmp_path / "new" / "model.pte")
    os.mkdir(tmp_path / "new")
    program.save(tmp_path / "new" / "model.pte")
    (tmp_path / "short.pte").write_bytes(program.buffer[:1000])
    with pytest.raises(rushlight.Error, match="copy, download or export it again"):
        rushlight.load(tmp_path / "short.pte")
    shutil.copy(tmp_path / "new" / "model.pte", tmp_path / "short.pte")
    rushlight.load(tmp_path / "short.pte")


def test_advice_about_missing_operators():
    program = rushlight.compile(ROOT / "tests" / "corpus" / "pt2" / "custom_operator.pt2")
    x = np.array([1, 2, 3, 4], np.float32)
    module = rushlight.load(program.buffer)
    try:
        module(x)
    except rushlight.Error as error:
        # Other tests of the process may have registered it.
        assert 'rushlight.register_op("example::twice", function)' in str(error)
    rushlight.register_op("example::twice", lambda x: 2 * np.asarray(x))
    assert module(x).tolist() == [3, 5, 7, 9]


class Boxes(torch.nn.Module):
    def forward(self, boxes, scores):
        keep = torch.ops.torchvision.nms(boxes, scores, 0.5)
        return boxes[keep], scores[keep]


def nms(boxes, scores, limit):
    """Non-maximum suppression, as torchvision defines it."""
    boxes, scores = np.asarray(boxes), np.asarray(scores)
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    order, kept = np.argsort(-scores, kind="stable"), []
    while order.size:
        first, order = order[0], order[1:]
        kept.append(first)
        low, high = np.maximum(boxes[first, :2], boxes[order, :2]), np.minimum(boxes[first, 2:], boxes[order, 2:])
        inside = np.clip(high - low, 0, None).prod(axis=1)
        order = order[inside / (area[first] + area[order] - inside) <= limit]
    return np.array(kept, np.int64)


def test_operators_of_torchvision_are_registered():
    pytest.importorskip("torchvision")
    torch.manual_seed(0)
    corners = torch.rand(30, 2) * 10
    inputs = torch.cat([corners, corners + 1 + torch.rand(30, 2) * 4], 1), torch.rand(30)
    # The number of boxes that are kept depends on data.
    module = rushlight.load(rushlight.export(Boxes(), inputs).buffer)
    try:
        module(*inputs)
    except rushlight.Error as error:
        assert error.code_name == "OperatorMissing" and 'register_op("torchvision::nms", function)' in str(error)
    rushlight.register_op("torchvision::nms", nms)
    assert all(torch.equal(*pair) for pair in zip(module(*inputs), Boxes()(*inputs)))
