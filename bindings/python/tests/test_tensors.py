"""What enters as a tensor is read as its library means it, or refused with a reason: lazily negated and conjugated views,
storages without memory, and all that is not dense memory of the CPU."""

import copy
import ctypes
import gc
import math
import pathlib
import pickle

import numpy as np
import pytest
import rushlight
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

EXPORTED = pathlib.Path(__file__).resolve().parents[3] / "tests" / "corpus" / "pt2"
COMPLEX = torch.tensor([1 + 2j, -3 - 4j, 5.5 + 0.25j, 0 - 1j])
REFUSED = (TypeError, ValueError, BufferError, rushlight.Error)


class PlusOne(torch.nn.Module):
    def forward(self, x):
        return x + 1


@pytest.fixture(scope="module")
def plus_one():
    """A program that takes up to 64 floats."""
    shapes = {"x": {0: torch.export.Dim("n", min=1, max=64)}}
    return rushlight.export(PlusOne(), (torch.ones(4),), dynamic_shapes=shapes)


@pytest.fixture(scope="module")
def fixed():
    """A program that takes four floats."""
    return rushlight.export(PlusOne(), (torch.ones(4),))


def constant(value):
    """What a tensor is read as, whatever its type."""
    program = rushlight.compile(EXPORTED / "torch_2.8.pt2", constant_methods={"value": value})
    return torch.from_dlpack(program.run("value"))


def lazily_negated():
    """Views whose elements are those in memory with the other sign."""
    imaginary = COMPLEX.conj().imag
    return {
        "imag": imaginary,
        "slice": imaginary[1:],
        "parameter": torch.nn.Parameter(torch._neg_view(torch.arange(4.0)), requires_grad=False),
        "contiguous": torch._neg_view(torch.arange(4.0)),
        "one": torch._neg_view(torch.ones(1)),
        "requires_grad": torch._neg_view(torch.arange(4.0).requires_grad_()),
    }


@pytest.mark.parametrize("name", lazily_negated())
def test_negative_bits_are_resolved(plus_one, name):
    x = lazily_negated()[name]
    assert x.is_neg()
    expected = x.detach().clone() + 1
    torch.testing.assert_close(plus_one(x), expected, rtol=0, atol=0)
    torch.testing.assert_close(constant(x), x.detach().clone(), rtol=0, atol=0)


@pytest.mark.parametrize(
    "z", [COMPLEX.conj(), COMPLEX.conj()[1:], torch._neg_view(COMPLEX.conj()), COMPLEX.to(torch.complex128).conj()]
)
def test_conjugate_bits_are_resolved(z):
    assert z.is_conj()
    torch.testing.assert_close(constant(z), z.resolve_conj().resolve_neg().clone(), rtol=0, atol=0)
    torch.testing.assert_close(constant(z.resolve_conj().resolve_neg()), z.clone(), rtol=0, atol=0)


def test_results_of_operators_are_resolved():
    program = rushlight.compile(EXPORTED / "custom_operator.pt2")
    rushlight.register_op("example::twice", lambda x: COMPLEX.conj().imag)
    result = program(torch.ones(4))
    torch.testing.assert_close(result, COMPLEX.conj().imag.clone() + 1, rtol=0, atol=0)


def test_results_of_backends_are_resolved(fixed):
    class Lazy:
        name = "Lazy"
        num_outputs = 1

        def partition(self, node):
            return True

        def preprocess(self, part):
            return b""

        def init(self, payload):
            return self

        def execute(self, inputs):
            return COMPLEX.conj().imag

    rushlight.register_backend(Lazy())
    program = rushlight.export(PlusOne(), (torch.ones(4),), backend=Lazy())
    torch.testing.assert_close(program(torch.ones(4)), COMPLEX.conj().imag.clone(), rtol=0, atol=0)


def test_calibration_resolves():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4)).eval()
    x = torch.rand(8, 16)
    exported = torch.export.export(model, (x,))

    def quantized(batch):
        return rushlight.compile(exported, quantize="int8", calibration=[(batch,)]).buffer

    lazy = torch._neg_view(-x)
    assert torch.equal(lazy, x)
    assert quantized(lazy) == quantized(x) != quantized(-x)


def test_compare_resolves():
    class Rectified(torch.nn.Module):
        def forward(self, x):
            return torch.relu(x) + 1

    class Absolute(torch.nn.Module):
        def forward(self, x):
            return torch.abs(x) + 1

    # The last results have one name in both, and are the same if inputs are positive.
    x = torch.arange(1.0, 5.0)
    reference = torch.export.export(Rectified(), (x,))
    candidate = rushlight.export(Absolute(), (x,))
    assert rushlight.compare(reference, candidate, (x,)).first_difference() is None
    assert rushlight.compare(reference, candidate, (-x,)).first_difference() is not None
    assert rushlight.compare(reference, candidate, (torch._neg_view(-x),)).first_difference() is None


def resized(storage_bytes, of=4, view=slice(None)):
    x = torch.arange(float(of))
    view = x[view]
    x.untyped_storage().resize_(storage_bytes)
    return view


def fake(make):
    with FakeTensorMode():
        return make()


class Wrapper(torch.Tensor):
    """A tensor that has no memory of its own, as quantized and distributed tensors are."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        raise NotImplementedError(str(function))


def functional(view=slice(None)):
    return torch._to_functional_tensor(torch.ones(64))[view]


def python_functional():
    from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode

    with FunctionalTensorMode():
        return FunctionalTensor.to_functional(torch.ones(4))


WITHOUT_MEMORY = {
    "freed": lambda: resized(0),
    "freed, with an offset": lambda: resized(0, 64, slice(60, 64)),
    "freed, with a large offset": lambda: resized(0, 1 << 20, slice((1 << 20) - 4, 1 << 20)),
    "freed parameter": lambda: torch.nn.Parameter(resized(0)),
    "fake": lambda: fake(lambda: torch.ones(4)),
    "fake, with an offset": lambda: fake(lambda: torch.ones(64)[60:]),
    "functional": lambda: functional(slice(0, 4)),
    "functional, with an offset": lambda: functional(slice(60, 64)),
    "functional of Python": python_functional,
    "wrapper": lambda: Wrapper(torch.ones(4)),
    "meta": lambda: torch.ones(4, device="meta"),
    "meta, with an offset": lambda: torch.ones(64, device="meta")[60:],
    "sparse coo": lambda: torch.ones(4).to_sparse(),
    "sparse csr": lambda: torch.ones(2, 2).to_sparse_csr(),
    "nested": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(2)]),
    "jagged": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
    "quantized": lambda: torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.qint8),
    "float8": lambda: torch.ones(4).to(torch.float8_e4m3fn),
}
if torch.backends.mkldnn.is_available():
    WITHOUT_MEMORY["mkldnn"] = lambda: torch.ones(4).to_mkldnn()


def refused(call):
    """The text of the error that a call raises, which a person can read."""
    with pytest.raises(REFUSED) as caught:
        call()
    text = str(caught.value)
    cause, texts = caught.value, []
    while cause is not None:
        texts.append(str(cause))
        cause = cause.__cause__ or cause.__context__
    whole = "\n".join(texts)
    assert "frame #" not in whole and "Exception raised from" not in whole, whole
    assert whole.count("\n") < 8, whole
    return text


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", WITHOUT_MEMORY)
def test_tensors_without_memory_are_refused(fixed, kind):
    tensor = WITHOUT_MEMORY[kind]()
    text = refused(lambda: fixed(tensor))
    assert "input 0" in text and type(tensor).__name__ in text, text
    word = {"sparse": "to_dense", "mkldnn": "to_dense", "meta": "meta", "fake": "memory", "quantized": "dequantize"}
    for start, expected in word.items():
        assert not kind.startswith(start) or expected in text, text
    refused(lambda: rushlight.compile(EXPORTED / "torch_2.8.pt2", constant_methods={"value": tensor}))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["freed", "fake", "meta", "sparse coo", "functional, with an offset"])
def test_results_without_memory_are_refused(kind):
    program = rushlight.compile(EXPORTED / "custom_operator.pt2")
    rushlight.register_op("example::twice", lambda x: WITHOUT_MEMORY[kind]())
    with pytest.raises(rushlight.Error) as caught:
        program(torch.ones(4))
    assert "Tensor" in str(caught.value.__cause__), caught.value.__cause__


def test_transformed_tensors_are_refused(fixed):
    def inside(x):
        return fixed(x)

    for transform in (torch.vmap(inside), torch.func.grad(lambda x: inside(x).sum())):
        refused(lambda: transform(torch.ones(2, 4)))


class Sum(torch.nn.Module):
    def forward(self, x, y):
        return x + y


class Acting:
    """Ones that run a function while they are read."""

    def __init__(self, count, act):
        self.count, self.act = count, act

    def __dlpack__(self, **options):
        self.act()
        gc.collect()
        return torch.ones(self.count).__dlpack__()

    def __dlpack_device__(self):
        return torch.ones(1).__dlpack_device__()


# Number of elements: freed memory of this size is returned to the system.
MANY = 1 << 22
REPLACED = {
    "set": lambda x: x.set_(torch.zeros(MANY)),
    "data": lambda x: setattr(x, "data", torch.zeros(MANY)),
    "grown": lambda x: x.resize_(2 * MANY),
    "freed": lambda x: x.untyped_storage().resize_(0),
    "shrunk": lambda x: x.untyped_storage().resize_(4),
}


@pytest.mark.parametrize("kind", REPLACED)
def test_memory_that_is_replaced_while_inputs_are_read_is_refused(kind):
    program = rushlight.export(Sum(), (torch.ones(MANY), torch.ones(MANY)))
    x = torch.ones(MANY)
    text = refused(lambda: program(x, Acting(MANY, lambda: REPLACED[kind](x))))
    assert "input 0" in text and "replaced" in text, text
    x, y = torch.ones(MANY), Acting(MANY, lambda: REPLACED[kind](x))
    comparison = rushlight.compare(torch.export.export(Sum(), (torch.ones(MANY), torch.ones(MANY))), program, (x, y))
    assert comparison.first_difference() is None


@torch.library.custom_op("rushlight_tensors::replacing", mutates_args=())
def replacing(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


@replacing.register_fake
def _(x):
    return torch.empty_like(x)


class Replacing(torch.nn.Module):
    def forward(self, x):
        return replacing(x) + x


def test_memory_that_is_replaced_during_a_call_is_kept():
    x = torch.ones(MANY)
    # Without a plan for them, inputs are read where they are.
    program = rushlight.export(Replacing(), (x,), plan_inputs=False)

    def kernel(given):
        x.set_(torch.zeros(MANY))
        gc.collect()
        return given

    rushlight.register_op("rushlight_tensors::replacing", kernel)
    assert torch.equal(program(x), torch.full((MANY,), 2.0))
    assert torch.equal(x, torch.zeros(MANY))


class Plain(torch.Tensor):
    """A subclass with memory of its own."""


USABLE = {
    "parameter": lambda: torch.nn.Parameter(torch.ones(4)),
    "requires_grad": lambda: torch.ones(4, requires_grad=True),
    "not a leaf": lambda: torch.ones(4, requires_grad=True) * 1,
    "subclass": lambda: torch.ones(4).as_subclass(Plain),
    "expanded": lambda: torch.ones(1).expand(4),
    "strided": lambda: torch.ones(8)[::2],
    "with an offset": lambda: torch.ones(64)[60:],
    "inference": lambda: torch.inference_mode()(torch.ones)(4),
    "shared": lambda: torch.ones(4).share_memory_(),
}


@pytest.mark.parametrize("kind", USABLE)
def test_tensors_with_memory_are_read(fixed, kind):
    result = fixed(USABLE[kind]())
    torch.testing.assert_close(torch.as_tensor(result), torch.full((4,), 2.0), rtol=0, atol=0)


@pytest.mark.parametrize("shape", [(0,), (0, 4), (3, 0)])
def test_empty_tensors_are_read(shape):
    for value in (torch.empty(shape), np.empty(shape, np.float32), resized(0, view=slice(0, 0)).reshape(shape)):
        assert constant(value).shape == shape
    assert constant(torch.tensor(3.5)).item() == constant(np.float32(3.5)).item() == 3.5


def unaligned():
    whole = np.zeros(4 * 4 + 1, np.uint8)
    x = whole[1:].view(np.float32)
    x[:] = [1, 2, 3, 4]
    return x


def read_only():
    x = np.arange(1, 5, dtype=np.float32)
    x.flags.writeable = False
    return x


def half_elements():
    pairs = np.zeros(4, [("a", "f4"), ("b", "u1")])
    pairs["a"] = np.arange(1, 5)
    return pairs["a"]


class Measured(np.ndarray):
    """A subclass of another module."""


NUMPY = {
    "subclass": lambda: np.arange(1, 5, dtype=np.float32).view(Measured),
    "subclass, negative strides": lambda: np.arange(4, 0, -1, dtype=np.float32)[::-1].view(Measured),
    "big-endian subclass": lambda: np.arange(1, 5, dtype=">f4").view(Measured),
    "negative strides": lambda: np.arange(4, 0, -1, dtype=np.float32)[::-1],
    "strides of parts of elements": half_elements,
    "plain": lambda: np.arange(1, 5, dtype=np.float32),
    "read-only": read_only,
    "unaligned": unaligned,
    "strided": lambda: np.arange(1, 5, 0.5, dtype=np.float32)[::2],
    "field": lambda: np.array([(i, i) for i in range(1, 5)], dtype=[("a", "f4"), ("b", "f4")])["b"],
    "little-endian": lambda: np.arange(1, 5, dtype="<f4"),
    "big-endian": lambda: np.arange(1, 5, dtype=">f4"),
    "big-endian, negative strides": lambda: np.arange(4, 0, -1, dtype=">f4")[::-1],
}


@pytest.mark.parametrize("kind", NUMPY)
def test_arrays_are_read(fixed, kind):
    x = NUMPY[kind]()
    result = fixed(x)
    assert type(result) is np.ndarray
    np.testing.assert_array_equal(result, np.arange(2, 6, dtype=np.float32))
    np.testing.assert_array_equal(constant(x).numpy(), np.arange(1, 5, dtype=np.float32))


BUFFERS = {
    "ctypes": lambda: (ctypes.c_float * 4)(1, 2, 3, 4),
    "ctypes of rank 2": lambda: (ctypes.c_float * 2 * 3)((1, 2), (3, 4), (5, 6)),
    "ctypes of rank 3": lambda: (ctypes.c_int16 * 2 * 1 * 2)(((1, 2),), ((3, 4),)),
    "big-endian ctypes": lambda: (ctypes.c_float.__ctype_be__ * 2)(1, 2),
    "negative strides": lambda: memoryview(np.arange(12, dtype=np.float32).reshape(3, 4))[::-1],
    "negative strides of rank 2": lambda: memoryview(np.arange(12, dtype=np.int64).reshape(3, 4)[::-1, ::-2]),
    "big-endian": lambda: memoryview(np.arange(6, dtype=">f8").reshape(2, 3)),
    "big-endian, negative strides": lambda: memoryview(np.arange(6, dtype=">i2").reshape(2, 3)[:, ::-1]),
    "big-endian complex": lambda: memoryview(np.array([1 + 2j, 3 - 4j], ">c8")),
    "strides of parts of elements": lambda: memoryview(half_elements()),
}


@pytest.mark.parametrize("kind", BUFFERS)
def test_buffers_are_read(kind):
    x = BUFFERS[kind]()
    expected = np.asarray(x)
    got = constant(x).numpy()
    assert got.dtype == expected.dtype.newbyteorder("=")
    np.testing.assert_array_equal(got, expected)


UNREADABLE = {
    "objects": lambda: np.array([1.0, 2.0, 3.0, 4.0], dtype=object),
    "dates": lambda: np.zeros(4, "datetime64[s]"),
    "text": lambda: np.array(["a", "b", "c", "d"]),
    "bytes": lambda: np.array([b"a", b"b", b"c", b"d"]),
    "structured": lambda: np.zeros(4, [("a", "f4")]),
    "long double": lambda: np.zeros(4, np.longdouble),
    "masked": lambda: np.ma.masked_array(np.ones(4, np.float32), mask=[0, 1, 0, 1]),
}


@pytest.mark.parametrize("thing", [np.add, np.dtype("f4"), np.random.default_rng(0)])
def test_other_things_of_numpy_are_no_arrays(fixed, thing):
    assert "expected a tensor, an array" in refused(lambda: fixed(thing))


CASTS = {"objects": "float32", "dates": "int64", "long double": "float64"}


@pytest.mark.parametrize("kind", UNREADABLE)
def test_arrays_that_cannot_be_read_are_refused(fixed, kind):
    text = refused(lambda: fixed(UNREADABLE[kind]()))
    assert "input 0" in text
    if kind != "masked":
        assert f"elements of type {UNREADABLE[kind]().dtype} are not supported; convert the array first" in text
    if kind in CASTS:
        assert f'x.astype("{CASTS[kind]}")' in text
        fixed(np.ones(4).astype(UNREADABLE[kind]().dtype).astype(CASTS[kind]).astype(np.float32))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "bool", "complex64", "float16"])
@pytest.mark.parametrize("shape", [(), (0, 2), (2, 3)])
def test_tensors_are_pickled(dtype, shape):
    elements = torch.arange(6.0)[: math.prod(shape)].reshape(shape).to(getattr(torch, dtype))
    tensor = rushlight.compile(EXPORTED / "torch_2.8.pt2", constant_methods={"value": elements}).run("value")
    assert type(tensor) is rushlight.Tensor
    for copied in (pickle.loads(pickle.dumps(tensor)), copy.deepcopy(tensor)):
        assert type(copied) is rushlight.Tensor and (copied.dtype, copied.shape) == (dtype, shape)
        assert copied.tobytes() == tensor.tobytes()
        assert torch.equal(torch.from_dlpack(copied), elements)


def test_pickles_of_tensors_are_checked():
    restore = rushlight.Tensor._of_parts
    with pytest.raises(ValueError, match="no element type has the code 200"):
        restore(200, [2], b"")
    with pytest.raises(rushlight.Error, match="takes 8 bytes, got 3"):
        restore(6, [2], b"abc")
    with pytest.raises(rushlight.Error):
        restore(6, [1 << 40, 1 << 40], b"")


class DlTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class Managed(ctypes.Structure):
    _fields_ = [("tensor", DlTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class ManagedVersioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", DlTensor),
    ]


class Exporter:
    """An object whose DLPack capsule says what the test wants."""

    def __init__(self, versioned=True, major=1, **fields):
        self.memory = (ctypes.c_float * 4)(1, 2, 3, 4)
        self.shape = (ctypes.c_int64 * 1)(4)
        self.strides = (ctypes.c_int64 * 1)(1)
        tensor = DlTensor(
            ctypes.addressof(self.memory), 1, 0, 1, 2, 32, 1, self.shape, self.strides, fields.pop("byte_offset", 0)
        )
        shape, strides = fields.pop("shape", None), fields.pop("strides", None)
        if shape is not None:
            self.shape = (ctypes.c_int64 * max(len(shape), 1))(*shape)
            tensor.shape = self.shape
        if strides is not None:
            self.strides = (ctypes.c_int64 * max(len(strides), 1))(*strides)
            tensor.strides = self.strides
        for name, value in fields.items():
            setattr(tensor, name, value)
        self.deleted = 0
        structure = ManagedVersioned if versioned else Managed

        @ctypes.CFUNCTYPE(None, ctypes.c_void_p)
        def deleter(_):
            self.deleted += 1

        self.deleter = deleter
        self.managed = structure(tensor=tensor, deleter=ctypes.cast(deleter, ctypes.c_void_p))
        if versioned:
            self.managed.major, self.managed.minor = major, 0
        self.name = b"dltensor_versioned" if versioned else b"dltensor"
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        self.capsule = new(ctypes.addressof(self.managed), self.name, None)

    def __dlpack__(self, **options):
        return self.capsule

    def __dlpack_device__(self):
        return (1, 0)


@pytest.mark.parametrize("versioned", [False, True])
def test_capsules_are_read_once_and_deleted(fixed, versioned):
    exporter = Exporter(versioned)
    assert fixed(exporter).tolist() == [2, 3, 4, 5]
    gc.collect()
    assert exporter.deleted == 1
    assert "input 0" in refused(lambda: fixed(exporter)), "the capsule is used"
    assert exporter.deleted == 1


NULL = ctypes.POINTER(ctypes.c_int64)()
LIES = {
    "negative size": {"shape": [-4]},
    "huge size": {"shape": [1 << 62]},
    "sizes that overflow": {"ndim": 3, "shape": [1 << 40, 1 << 40, 1 << 40], "strides": [1, 1, 1]},
    "huge stride": {"strides": [(1 << 63) - 1]},
    "negative stride": {"strides": [-1]},
    "negative rank": {"ndim": -1},
    "huge rank": {"ndim": (1 << 31) - 1},
    "no data": {"data": 0},
    "no data, with an offset": {"data": 0, "byte_offset": 64},
    "huge offset": {"byte_offset": (1 << 64) - 1},
    "no shape": {"shape_pointer": NULL},
    "other device": {"device_type": 2},
    "unknown type": {"code": 77},
    "lanes": {"lanes": 4},
    "odd bits": {"bits": 17},
}


@pytest.mark.parametrize("versioned", [False, True])
@pytest.mark.parametrize("lie", LIES)
def test_capsules_that_lie_are_refused(fixed, lie, versioned):
    fields = dict(LIES[lie])
    pointer = fields.pop("shape_pointer", None)
    exporter = Exporter(versioned, **fields)
    if pointer is not None:
        exporter.managed.tensor.shape = pointer
    assert "input 0" in refused(lambda: fixed(exporter))
    gc.collect()
    assert exporter.deleted == 1


def test_capsules_of_other_versions_are_refused(fixed):
    exporter = Exporter(major=2, data=1)
    assert "version" in refused(lambda: fixed(exporter))
    assert exporter.deleted == 1


def test_strides_may_be_left_out(fixed):
    exporter = Exporter()
    exporter.managed.tensor.strides = NULL
    assert fixed(exporter).tolist() == [2, 3, 4, 5]


def test_no_capsule(fixed):
    class No:
        def __dlpack__(self, **options):
            return 3

    assert "input 0" in refused(lambda: fixed(No()))


def test_errors_name_the_argument():
    class Add(torch.nn.Module):
        def forward(self, x, y):
            return x + y

    program = rushlight.export(Add(), (torch.ones(4), torch.ones(4)))
    assert "input 1" in refused(lambda: program(torch.ones(4), resized(0)))
    assert "input 1" in refused(lambda: program(torch.ones(4), object()))


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (4,), (2, 3), (2, 1, 2), (1001,), (40, 30), (8, 9, 20), (2000, 0)])
def test_elements_are_shown_as_those_of_arrays(shape):
    array = np.arange(np.prod(shape, dtype=int), dtype=np.int32).reshape(shape) - 1
    tensor = rushlight.Tensor._of_parts(3, shape, array.tobytes())
    head, tail = "rushlight.Tensor(", f", shape={list(shape)}, dtype=int32)"
    text = repr(tensor)
    assert text.startswith(head) and text.endswith(tail)
    shown = text[len(head) : -len(tail)]
    if array.size:
        assert shown.split() == np.array2string(array, separator=", ", formatter={"int": str}).split()
        rows = [line for line in shown.splitlines() if line]
        assert all(row.startswith(" " * len(head)) for row in rows[1:])
    else:
        assert shown.replace(" ", "").replace("\n", "").replace("[],", "").strip("[].,") == ""


def test_special_numbers_are_shown_as_python_writes_them():
    numbers = np.array([0.1, -0.0, 1e-30, np.inf, -np.inf, np.nan], np.float32)
    assert "([0.1, -0.0, 1e-30, inf, -inf, nan], " in repr(rushlight.Tensor._of_parts(6, (6,), numbers.tobytes()))
    assert "([True, False], " in repr(rushlight.Tensor._of_parts(11, (2,), b"\1\0"))
