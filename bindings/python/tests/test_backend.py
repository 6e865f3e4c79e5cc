"""Backends in Python, from the offer to the results: what they take computes what the whole model does."""

import inspect
import json

import numpy as np
import pytest
import rushlight
import torch
from torch import nn

torch.manual_seed(0)

FUNCTIONS = {
    "aten::add.Scalar": lambda self, other, alpha: self + alpha * other,
    "aten::add.Tensor": lambda self, other, alpha: self + alpha * other,
    "aten::addmm": lambda self, mat1, mat2, beta, alpha: beta * self + alpha * (mat1 @ mat2),
    "aten::mul.Scalar": lambda self, other: self * other,
    "aten::mul.Tensor": lambda self, other: self * other,
    "aten::relu": lambda self: np.maximum(self, 0),
    "aten::split_with_sizes_copy": lambda self, split_sizes, dim: np.split(self, np.cumsum(split_sizes)[:-1], dim),
}


class Numpy:
    """Both halves of a backend: the payload is a part as JSON, its constants are blobs, and NumPy computes it."""

    def __init__(self, name, operators=tuple(FUNCTIONS)):
        self.name = name
        self.operators = operators
        self.offered = []
        self.parts = []

    def partition(self, node):
        self.offered.append(node)
        if node.op not in self.operators:
            return f"{node.op} is not one of {', '.join(self.operators)}"
        return all(value.dtype == "float32" for value in node.inputs + node.outputs)

    def preprocess(self, part):
        self.parts.append(part)

        def plain(arg):
            return {"value": arg.id} if isinstance(arg, rushlight.Value) else arg

        blobs = {f"{self.name}.{part.method}.{value.id}": value for value in part.constants}
        program = {
            "inputs": [value.id for value in part.inputs],
            "constants": {key: (value.id, value.shape) for key, value in blobs.items()},
            "nodes": [
                (node.op, {name: plain(arg) for name, arg in node.args.items()}, [value.id for value in node.outputs])
                for node in part.nodes
            ],
            "outputs": [value.id for value in part.outputs],
        }
        constants = {key: memoryview(part.constants[value]) for key, value in blobs.items()}
        return rushlight.Payload(json.dumps(program).encode(), {"method": part.method.encode()}, constants)

    def init(self, payload):
        assert payload.compile_specs == {"method": b"forward"}
        return NumpyDelegate(json.loads(payload.data), payload.named_data)


class NumpyDelegate:
    def __init__(self, program, blobs):
        self.program = program
        self.num_outputs = len(program["outputs"])
        self.constants = {
            id: np.frombuffer(blobs[key], np.float32).reshape(shape)
            for key, (id, shape) in program["constants"].items()
        }

    def execute(self, inputs):
        values = dict(self.constants)
        values.update(zip(self.program["inputs"], map(np.asarray, inputs), strict=True))
        for op, args, outputs in self.program["nodes"]:
            args = {name: values[arg["value"]] if isinstance(arg, dict) else arg for name, arg in args.items()}
            result = FUNCTIONS[op](**args)
            results = result if isinstance(result, list) else [result]
            values.update(zip(outputs, (np.asarray(r, np.float32) for r in results), strict=True))
        return [values[id] for id in self.program["outputs"]]


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(6, 8), nn.Linear(8, 6)

    def forward(self, x):
        y = self.down(torch.relu(self.up(x)))
        left, right = (x + y * 2).split([2, 4], -1)
        return torch.exp(left), torch.relu(right) + 1


@pytest.fixture(scope="module")
def mlp():
    model, x = Mlp().eval(), torch.randn(3, 6)
    return model, x, rushlight.export(model, (x,))


def close(got, want):
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)


def test_a_part_runs_as_a_delegate(mlp):
    model, x, plain = mlp
    backend = Numpy("Whole")
    rushlight.register_backend(backend)
    program = rushlight.export(model, (x,), backend=backend)
    close(program(x), plain(x))
    close(program(x), model(x))
    meta = rushlight.load(program.buffer).meta()
    assert "Whole" in meta.backends
    report = program.report
    assert report.backends == {"Whole": len(report.nodes) - 1, "portable": 1}
    (left,) = [node for node in report.nodes if node.backend == "portable"]
    assert left.op == "aten::exp" and left.reasons["Whole"].startswith("aten::exp is not one of")
    assert f"{__file__}:" in left.source
    up = next(node for node in report.nodes if node.op == "aten::addmm")
    assert up.module == "up" and up.backend == "Whole" and not up.reasons
    assert "Whole: " in str(report) and "aten::exp is not one of" in repr(report)


def test_backends_are_asked_in_order(mlp):
    model, x, plain = mlp
    backends = Numpy("Everything"), Numpy("Additions", ["aten::add.Tensor"])
    for backend in backends:
        rushlight.register_backend(backend)
    for order in (backends, backends[::-1]):
        program = rushlight.compile(torch.export.export(model, (x,)), backend=list(order))
        taken = {node.op: node.backend for node in program.report.nodes}
        assert taken["aten::add.Tensor"] == order[0].name
        assert taken["aten::addmm"] == taken["aten::relu"] == "Everything"
        close(program(x), plain(x))
    everything = rushlight.compile(torch.export.export(model, (x,)), backend=["portable"])
    assert everything.report.backends == {"portable": len(everything.report.nodes)}


def test_dynamic_shapes_reach_delegates():
    class Batched(nn.Module):
        def forward(self, x):
            return torch.relu(x + 1) * 2

    backend = Numpy("Dynamic", ["aten::relu"])
    rushlight.register_backend(backend)
    shapes = {"x": {0: torch.export.Dim("batch", min=2, max=8)}}
    program = rushlight.export(Batched(), (torch.randn(4, 3),), dynamic_shapes=shapes, backend=backend)
    (relu,) = backend.parts[0].nodes
    (batch, width) = relu.outputs[0].shape
    assert (batch.min, batch.max, width) == (2, 8, 3) and str(batch) == batch.expr
    assert not relu.outputs[0].is_static
    for size in (2, 5, 8):
        x = torch.randn(size, 3)
        close(program(x), Batched()(x))


def test_nodes_and_parts_show_the_graph(mlp):
    model, x, _ = mlp
    backend = Numpy("Shown")
    rushlight.export(model, (x,), backend=backend)
    nodes = {node.op: node for node in backend.offered}
    add = nodes["aten::addmm"]
    assert list(add.args) == ["self", "mat1", "mat2", "beta", "alpha"] and add.args["alpha"] == 1
    assert add.inputs == [add.args["self"], add.args["mat1"], add.args["mat2"]]
    assert add.args["self"].is_constant and not add.args["mat1"].is_constant
    assert (add.outputs[0].dtype, add.outputs[0].shape, add.outputs[0].is_static) == ("float32", (3, 6), True)
    line = inspect.getsourcelines(Mlp.forward)[1] + 1
    assert nodes["aten::addmm"].source.startswith(f"{__file__}:{line} in forward: y = self.down")
    assert nodes["aten::split_with_sizes_copy"].args["split_sizes"] == [2, 4]
    assert str(nodes["aten::relu"]) == "aten::relu(getitem_1: float32[3, 4]) -> relu_1: float32[3, 4]"
    part = backend.parts[0]
    assert part.method == "forward" and "aten::addmm" in part.text and str(part) == part.text
    assert set(part.inputs).isdisjoint(part.constants)
    weights = [np.asarray(tensor) for tensor in part.constants.values()]
    assert any(np.array_equal(weight, model.up.weight.detach().T) for weight in weights)
    bias = next(value for value in part.constants if value.shape == (8,))
    assert torch.equal(torch.from_dlpack(part.constants[bias]), model.up.bias)


def test_composites_are_offered_whole_first():
    class Attention(nn.Module):
        def forward(self, q):
            return nn.functional.scaled_dot_product_attention(q, q, q)

    x = torch.randn(1, 2, 4, 8)
    backend = Numpy("Attention", ["aten::scaled_dot_product_attention"])
    program = rushlight.export(Attention(), (x,), backend=backend)
    assert [node.op for node in backend.parts[0].nodes] == ["aten::scaled_dot_product_attention"]
    assert program.report.backends == {"Attention": 1}


class Broken(Numpy):
    """Fails where it is told to."""

    def __init__(self, where, error):
        super().__init__("Broken")
        self.where, self.error = where, error

    def fail(self, where, otherwise, *args):
        if self.where != where:
            return otherwise(*args)
        if isinstance(self.error, BaseException):
            raise self.error
        return self.error

    def partition(self, node):
        return self.fail("partition", super().partition, node)

    def preprocess(self, part):
        return self.fail("preprocess", super().preprocess, part)

    def init(self, payload):
        delegate = self.fail("init", super().init, payload)
        if self.where == "execute":
            delegate.execute = lambda inputs: self.fail("execute", None)
        return delegate


@pytest.mark.parametrize("where", ["partition", "preprocess"])
def test_what_a_backend_raises_is_the_cause(mlp, where):
    model, x, _ = mlp
    with pytest.raises(rushlight.Error, match=f"`{where}` of the backend `Broken` failed: no luck") as caught:
        rushlight.export(model, (x,), backend=Broken(where, ZeroDivisionError("no luck")))
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    if where == "partition":
        line = inspect.getsourcelines(Mlp.forward)[1] + 1
        assert f"node `linear` (aten::linear), from {__file__}:{line} in forward" in caught.value.site
    with pytest.raises(KeyboardInterrupt):
        rushlight.export(model, (x,), backend=Broken(where, KeyboardInterrupt()))


@pytest.mark.parametrize(
    ("where", "answer", "message"),
    [
        ("partition", 1, "expected True, False or a str with the reason why not, got an int"),
        ("preprocess", "text", "data must be bytes, got a str"),
        ("preprocess", rushlight.Payload(b"", {"a": 1}), "compile_specs\\['a'\\] must be bytes, got an int"),
        ("preprocess", rushlight.Payload(b"", {}, [b""]), "named_data must be a dict of strs to bytes, got a list"),
    ],
)
def test_what_a_backend_answers_is_checked(mlp, where, answer, message):
    model, x, _ = mlp
    with pytest.raises(rushlight.Error, match=message):
        rushlight.export(model, (x,), backend=Broken(where, answer))


@pytest.mark.parametrize(
    ("where", "answer", "cause"),
    [
        ("init", ZeroDivisionError("no luck"), ZeroDivisionError),
        ("init", object(), TypeError),
        ("execute", ZeroDivisionError("no luck"), ZeroDivisionError),
        ("execute", [], ValueError),
        ("execute", ["text", None], TypeError),
        ("execute", [np.zeros((3, 2)), np.zeros((3, 4))], type(None)),
        ("execute", [np.zeros((9, 9), np.float32), np.zeros((3, 4), np.float32)], type(None)),
    ],
)
def test_what_a_delegate_does_wrong_is_an_error(mlp, where, answer, cause):
    model, x, _ = mlp
    backend = Broken(where, answer)
    program = rushlight.export(model, (x,), backend=backend)
    rushlight.register_backend(backend)
    assert len(backend.parts[0].outputs) == 2
    with pytest.raises(rushlight.Error) as caught:
        program(x)
    assert type(caught.value.__cause__) is cause
    assert "backend `Broken`" in caught.value.site


def test_backends_that_are_none_are_refused(mlp):
    model, x, _ = mlp
    exported = torch.export.export(model, (x,))
    with pytest.raises(rushlight.Error, match="`portable`") as caught:
        rushlight.compile(exported, backend="npu")
    assert caught.value.code_name == "NotFound" and caught.value.got == "`npu`"
    assert [backend.name for backend in rushlight.backends()] == ["cpu", "cortex-m", "portable"]
    with pytest.raises(rushlight.Error, match="twice"):
        rushlight.compile(exported, backend=[Numpy("Same"), Numpy("Same")])
    with pytest.raises(rushlight.Error, match="put `portable` last"):
        rushlight.compile(exported, backend=["portable", Numpy("Late")])

    class Nameless:
        pass

    class Half:
        name = "Half"

    for wrong, message in {3: "got an int", Nameless(): "a Nameless whose name is None", Numpy: "class Numpy"}.items():
        with pytest.raises(TypeError, match=message):
            rushlight.compile(exported, backend=wrong)
    with pytest.raises(TypeError, match="`Half` .* has no method `partition`"):
        rushlight.compile(exported, backend=Half())
    with pytest.raises(TypeError, match="no method init"):
        rushlight.register_backend(Half())


def test_a_program_without_its_backend_says_so(mlp):
    model, x, _ = mlp
    program = rushlight.export(model, (x,), backend=Numpy("Elsewhere"))
    with pytest.raises(rushlight.Error, match="needs the backend `Elsewhere`"):
        program(x)
