"""Claims of backends in Python on whole methods: patterns, copied constants, tags, options, metadata and states."""

import json
import pathlib
import struct

import numpy as np
import pytest
import rushlight
import rushlight.llm
import torch
import torch.ao.quantization.fx._decomposed  # noqa: F401  its operators
from torch import nn

torch.manual_seed(0)

FUNCTIONS = {
    "aten::add.Tensor": lambda self, other, alpha: self + alpha * other,
    "aten::addmm": lambda self, mat1, mat2, beta, alpha: beta * self + alpha * (mat1 @ mat2),
    "aten::linear": lambda input, weight, bias: input @ weight.T + bias,
    "aten::mm": lambda self, mat2: self @ mat2,
    "aten::mul.Tensor": lambda self, other: self * other,
    "aten::neg": lambda self: -self,
    "aten::relu": lambda self: np.maximum(self, 0),
    "quantized_decomposed::dequantize_per_tensor": lambda input, scale, zero_point, **_: (
        (input.astype(np.float32) - zero_point) * scale
    ),
    "aten::sum.dim_IntList": lambda self, dim, keepdim, dtype: self.sum(tuple(dim) or None, keepdims=keepdim),
}


class Pattern:
    """A backend of whole patterns: claims by `claim`, and keeps what it was shown."""

    name = "Pattern"
    reads_metadata = True

    def __init__(self, name=None):
        self.name = name or type(self).__name__
        self.methods, self.parts, self.claims = [], [], []

    def claim(self, method, claims):
        self.methods.append(method)
        self.choose(method, claims)

    def choose(self, method, claims):
        claims.take(node for node in method.nodes if node.op in FUNCTIONS)

    def compile(self, part):
        self.parts.append(part)

        def plain(arg):
            return {"value": arg.id} if isinstance(arg, rushlight.Value) else arg

        blobs = {f"{self.name}.{len(self.parts)}.{value.id}": value for value in part.constants}
        program = {
            "inputs": [value.id for value in part.inputs],
            "constants": {key: (value.id, value.dtype, value.shape) for key, value in blobs.items()},
            "states": [
                (state.name, state.shape, state.value and state.value.id, state.update and state.update.id)
                for state in part.states
            ],
            "nodes": [
                (node.op, {name: plain(arg) for name, arg in node.args.items()}, [value.id for value in node.outputs])
                for node in part.nodes
            ],
            "outputs": [value.id for value in part.outputs],
            "initial": {state.name: state.initial.tobytes().hex() for state in part.states},
        }
        constants = {key: memoryview(part.constants[value]) for key, value in blobs.items()}
        return rushlight.Payload(json.dumps(program).encode(), {"tag": part.tag.encode()}, constants)

    def init(self, payload):
        return Delegate(json.loads(payload.data), payload.named_data)


class Delegate:
    """Runs the nodes of a part with NumPy. Its states are float32."""

    def __init__(self, program, blobs):
        self.program = program
        self.num_outputs = len(program["outputs"])
        self.states = {name: bytes.fromhex(data) for name, data in program["initial"].items()}
        self.constants = {
            id: np.frombuffer(blobs[key], dtype).reshape(shape)
            for key, (id, dtype, shape) in program["constants"].items()
        }

    def execute(self, inputs, states=None):
        values = dict(self.constants)
        values.update(zip(self.program["inputs"], map(np.asarray, inputs), strict=True))
        arrays = {}
        for name, shape, value, _ in self.program["states"]:
            arrays[name] = np.frombuffer(states[name], np.float32).reshape(shape)
            values[value] = arrays[name].copy()
        for op, args, outputs in self.program["nodes"]:
            args = {name: values[arg["value"]] if isinstance(arg, dict) else arg for name, arg in args.items()}
            values[outputs[0]] = np.asarray(FUNCTIONS[op](**args), np.float32)
        for name, _, _, update in self.program["states"]:
            if update is not None:
                arrays[name][...] = values[update]
        return [values[id] for id in self.program["outputs"]]


def close(got, want):
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)


class Accumulator(nn.Module):
    """Accumulates the sums of projected batches, which may have any size."""

    def __init__(self):
        super().__init__()
        self.up = nn.Linear(4, 6)
        self.register_buffer("scale", torch.tensor([5, -7, 9, 11, 13, 15], dtype=torch.int8))
        self.register_buffer("total", torch.full((6,), 2.0))

    def forward(self, x):
        scale = torch.ops.quantized_decomposed.dequantize_per_tensor(self.scale, 0.1, 1, -128, 127, torch.int8)
        y = torch.relu(self.up(x) * scale)
        self.total.add_(y.sum([0]))
        return -(y + self.total), torch.exp(scale)


class Whole(Pattern):
    """Claims the accumulator as one part. The dequantized scale is copied, and nodes that only its own nodes use are inner."""

    def choose(self, method, claims):
        for node in method.nodes:
            if node.op not in FUNCTIONS:
                claims.refuse(node, f"no function for {node.op}")
            elif method.is_constant(node):
                claims.copy(node)
            elif all(user in FUNCTIONS for user in [method.node(user).op for user in node.users]) and not node.has_other_uses:
                claims.inner(node)
            else:
                claims.take(node)

    def owns_state(self, state):
        self.claims.append(state)
        return state.name == "total"


def test_patterns_with_copies_over_a_dynamic_method_with_state():
    model, backend = Accumulator(), Whole("Accumulates")
    rushlight.register_backend(backend)
    shapes = {"x": {0: torch.export.Dim("batch", min=1, max=8)}}
    eager = Accumulator()
    eager.load_state_dict(model.state_dict())
    program = rushlight.export(model, (torch.randn(3, 4),), dynamic_shapes=shapes, backend=backend)
    (part,) = backend.parts
    (state,) = part.states
    assert state.name == "total" and state.shape == (6,) and state.update is not None
    assert np.array_equal(np.asarray(state.initial), np.full(6, 2, np.float32))
    assert state.value.state == "total" and state.value not in part.inputs and len(part.inputs) == 1
    (batch,) = part.symbols
    assert (batch.min, batch.max) == (1, 8) and part.inputs[0].shape == (batch, 4)
    # The dequantized scale is in the part, and stays for its other user.
    method = backend.methods[-1]
    copied = [node.id for node in part.nodes if node.debug_handle is None]
    assert [method.node(id).op for id in copied] == ["quantized_decomposed::dequantize_per_tensor"]
    assert copied == [node.id for node in method.nodes if method.is_constant(node) and node.op in FUNCTIONS]
    assert program.report.backends == {"Accumulates": len(method.nodes) - 2, "portable": 2}
    handles = [node.debug_handle for node in part.nodes if node.debug_handle is not None]
    assert handles == list(range(len(part.nodes) - 1))
    loaded = rushlight.load(program.buffer)
    for size in (3, 1, 8, 5):
        x = torch.randn(size, 4)
        close(loaded(x), eager(x))


def test_states_stay_the_programs_if_the_backend_owns_none():
    model, backend = Accumulator(), Pattern("Stateless")
    rushlight.register_backend(backend)
    eager = Accumulator()
    eager.load_state_dict(model.state_dict())
    program = rushlight.export(model, (torch.randn(3, 4),), backend=backend)
    assert not any(part.states for part in backend.parts)
    assert [state.name for state in backend.methods[-1].states] == ["total"]
    loaded = rushlight.load(program.buffer)
    for _ in range(3):
        x = torch.randn(3, 4)
        close(loaded(x), eager(x))


class Towers(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        return self.left(x) + torch.relu(self.right(x))


class Tagged(Pattern):
    """Takes each tower by itself: its nodes have the tower's tag."""

    options = [
        rushlight.OptionSpec("precision", "fp32", "the precision", ("fp32", "int8")),
        rushlight.OptionSpec("cores", 2, "how many cores"),
    ]

    def set_option(self, name, value):
        pass

    def choose(self, method, claims):
        for node in method.nodes:
            claims.take(node, tag=node.module)
        claims.set_options({"precision": "int8"}, tag="right")


def test_tags_keep_parts_apart_and_have_options():
    model, x = Towers(), torch.randn(2, 4)
    backend = Tagged("Tagged")
    rushlight.register_backend(backend)
    program = rushlight.export(model, (x,), backend=(backend, {"cores": 4}))
    tags = {part.tag: part for part in backend.parts}
    assert set(tags) == {"left", "right", ""}
    assert len(backend.parts) == 3 and program.report.backends == {"Tagged": 4}
    assert tags["left"].options == {"precision": "fp32", "cores": 4}
    assert tags["right"].options == {"precision": "int8", "cores": 4}
    close(rushlight.load(program.buffer)(x), model(x))
    one = Pattern("Untagged")
    rushlight.export(model, (x,), backend=one)
    assert len(one.parts) == 1 and one.parts[0].tag == "" and one.parts[0].options == {}


def test_methods_show_users_ids_and_metadata():
    model, x = Towers(), torch.randn(2, 4)
    backend = Pattern("Shown")
    exported = torch.export.export(model, (x,))
    relu = next(node for node in exported.graph.nodes if "relu" in node.name)
    relu.meta["custom"] = {"precision": {"bits": 8}, "numeric_debug_handle": 7}
    rushlight.compile(exported, backend=backend)
    method = backend.methods[-1]
    assert method.name == "forward" and "aten::relu" in str(method)
    nodes = {node.name: node for node in method.nodes}
    shown = nodes[relu.name]
    assert method.node(shown.id) is shown and not method.is_claimed(shown) and not method.is_constant(shown)
    (user,) = method.users(shown.outputs[0])
    assert shown.users == [user.id] and not shown.has_other_uses and user.has_other_uses and user.users == []
    assert method.producer(user.args["other"]) is shown and method.producer(method.inputs[0]) is None
    assert shown.metadata.custom == {"precision": {"bits": 8}, "numeric_debug_handle": 7}
    linear = method.producer(shown.inputs[0])
    assert linear.metadata.custom == {}
    assert linear.metadata.nn_module_stack[-1][1:] == ("right", "torch.nn.modules.linear.Linear")
    assert linear.metadata.torch_fn[1].startswith("builtin_function_or_method.linear")
    assert isinstance(linear.metadata.from_node, list)
    # The same nodes come back in the part, by id.
    (part,) = backend.parts
    assert [node.id for node in part.nodes] == [node.id for node in method.nodes]
    assert [method.node(node.id).metadata.custom for node in part.nodes] == [node.metadata.custom for node in part.nodes]
    without = Pattern("Bare")
    without.reads_metadata = False
    rushlight.compile(exported, backend=without)
    assert all(node.metadata is None for node in without.methods[-1].nodes)


def test_metadata_of_functions_is_parsed():
    class Sliced(nn.Module):
        def forward(self, x):
            return torch.relu(x)

    backend = Pattern("Stack")
    program = torch.export.export(Sliced(), (torch.randn(2),), strict=True)
    rushlight.compile(program, backend=backend)
    (node,) = backend.methods[-1].nodes
    source = node.metadata.source_fn_stack
    assert all(len(entry) == 2 for entry in source)
    stack = [node.meta.get("source_fn_stack", []) for node in program.graph.nodes if node.op == "call_function"][0]
    assert [name for name, _ in source] == [str(name) for name, _ in stack]


def test_constants_are_read_without_a_copy():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("weight", torch.arange(12.0).reshape(3, 4))
            self.register_buffer("small", torch.ones(4, dtype=torch.bfloat16))

        def forward(self, x):
            return x * self.weight, self.small * 2

    class Reader(Pattern):
        def choose(self, method, claims):
            super().choose(method, claims)
            value = next(value for value in method.constants if value.shape == (3, 4))
            first, second = np.asarray(method.constants[value]), np.asarray(method.constants[value])
            assert np.array_equal(first, np.arange(12, dtype=np.float32).reshape(3, 4))
            assert np.shares_memory(first, second) and not first.flags.writeable
            small = next(value for value in method.constants if value.dtype == "bfloat16")
            assert torch.equal(torch.from_dlpack(method.constants[small]), torch.full((4,), 2, dtype=torch.bfloat16))
            self.kept = method.constants[value]

    backend = Reader("Reader")
    rushlight.export(Scaled(), (torch.randn(3, 4),), backend=backend)
    assert backend.kept.tolist()[2] == [8.0, 9.0, 10.0, 11.0] and "dtype=float32" in repr(backend.kept)
    assert backend.methods and len(backend.parts) == 1


def test_composites_are_decomposed_on_request():
    class Parts(Pattern):
        def choose(self, method, claims):
            claims.decompose(node for node in method.nodes if node.op == "aten::linear")
            claims.take(node for node in method.nodes if node.op != "aten::linear")

    model, x, backend = Towers(), torch.randn(2, 4), Parts()
    rushlight.register_backend(backend)
    program = rushlight.export(model, (x,), backend=backend)
    first, last = [[node.op for node in method.nodes] for method in backend.methods]
    assert first.count("aten::linear") == 2 and last.count("aten::addmm") == 2 and "aten::linear" not in last
    # Nodes that are offered again keep their ids.
    ids = [{node.id for node in method.nodes if node.op == "aten::relu"} for method in backend.methods]
    assert ids[0] == ids[1] and program.report.backends == {"Parts": 4}
    close(program(x), model(x))


class Faulty(Pattern):
    """Claims nodes by a function."""

    def __init__(self, choose):
        super().__init__("Faulty")
        self.choose = choose


@pytest.mark.parametrize(
    ("choose", "message"),
    [
        (lambda method, claims: claims.take("relu"), "expected a Node or its id, got a str"),
        (lambda method, claims: claims.take(10_000), "has no node with the id 10000"),
        (lambda method, claims: claims.take(method.nodes, tag=3), "a tag must be a str, got an int"),
        (lambda method, claims: claims.refuse(method.nodes, None), "reason of a refusal must be a str"),
        (lambda method, claims: 1 / 0, "`claim` of the backend `Faulty` failed: division by zero"),
        (lambda method, claims: claims.set_options({"depth": 3}, tag="a"), "no option `depth`"),
    ],
)
def test_wrong_claims_are_errors(choose, message):
    with pytest.raises(rushlight.Error, match=message):
        rushlight.export(Towers(), (torch.randn(2, 4),), backend=Faulty(choose))


def test_a_backend_claims_in_one_way():
    class Silent:
        name = "Silent"

        def claim(self, method, claims):
            claims.take(method.nodes)

    with pytest.raises(TypeError, match="`Silent` .* has no method `preprocess` and no `compile`"):
        rushlight.export(Towers(), (torch.randn(2, 4),), backend=Silent())


def test_nodes_of_other_backends_are_marked():
    first, second = Pattern("First"), Pattern("Second")
    first.choose = lambda method, claims: claims.take(node for node in method.nodes if node.op == "aten::relu")
    second.choose = lambda method, claims: claims.take(method.nodes)
    program = rushlight.export(Towers(), (torch.randn(2, 4),), backend=[first, second])
    method = second.methods[-1]
    assert [node.op for node in method.nodes if method.is_claimed(node)] == ["aten::relu"]
    assert program.report.backends == {"Second": 3, "First": 1}
    assert {node.id for part in second.parts for node in part.nodes} == {
        node.id for node in method.nodes if not method.is_claimed(node)
    }


def test_values_of_control_flow_have_other_uses():
    class Branches(nn.Module):
        def forward(self, x):
            y = torch.relu(x)
            return torch.cond(y.sum() > 1, lambda y: -y, lambda y: y * y, (y,))

    backend = Pattern("Branches")
    rushlight.register_backend(backend)
    program = rushlight.export(Branches(), (torch.randn(3),), backend=backend)
    method = backend.methods[-1]
    nodes = {node.op: node for node in method.nodes}
    relu, compared = nodes["aten::relu"], nodes["aten::gt.Scalar"]
    # Nodes in the blocks use the activation. Only the conditional itself uses the comparison.
    users = {method.node(user).op for user in relu.users}
    assert {"aten::neg", "aten::mul.Tensor"} < users and not relu.has_other_uses
    assert compared.users == [] and compared.has_other_uses
    assert nodes["aten::neg"].users == [] and nodes["aten::neg"].has_other_uses
    for x in (torch.ones(3), torch.ones(3) / 9):
        close(program(x), Branches()(x))


class Counting(Pattern):
    """Takes one addition of a decoder, and counts the calls of each session in a state of its own."""

    def __init__(self, name):
        super().__init__(name)
        self.counts = []

    def choose(self, method, claims):
        claims.take([node for node in method.nodes if node.op == "aten::add.Tensor"][-1])

    def init(self, payload):
        delegate = super().init(payload)
        delegate.states = {"calls": bytes(4)}
        run = delegate.execute

        def execute(inputs, states):
            (count,) = struct.unpack("<i", states["calls"])
            states["calls"][:] = struct.pack("<i", count + 1)
            self.counts.append(count + 1)
            return run(inputs)

        delegate.execute = execute
        return delegate


def test_sessions_have_states_of_their_own(tmp_path):
    decoder = pathlib.Path(__file__).resolve().parents[3] / "tests" / "decoders" / "llama"
    expected = json.loads((decoder / "expected.json").read_text())
    backend = Counting("Counting")
    rushlight.register_backend(backend)
    file = tmp_path / "llama.pte"
    rushlight.llm.export(decoder, max_context_len=128, backend=[backend, "cpu"]).save(file)
    llm = rushlight.llm.LLM(file)

    def counts(act, *args, **options):
        backend.counts.clear()
        act(*args, **options)
        return backend.counts[0], backend.counts[-1]

    options = {"temperature": 0, "ignore_eos": True, "max_new_tokens": 2}
    first = llm.session()
    assert counts(first.prefill, expected["prompt"]) == (1, 1)
    fork, saved = first.fork(), first.save()
    # The model does not read the last of the two new tokens.
    assert counts(first.generate, "", **options) == (2, 2)
    assert counts(fork.generate, "", **options) == (2, 2)
    assert counts(first.generate, expected["greedy"][1:2], **options)[0] == 3
    other = llm.session()
    other.restore(saved)
    assert counts(other.generate, "", **options) == (2, 2)
    other.reset()
    assert counts(other.prefill, expected["prompt"]) == (1, 1)


class Resizing(Whole):
    """Changes the size of a state, which the runtime owns."""

    def init(self, payload):
        delegate = super().init(payload)
        delegate.execute = lambda inputs, states: states["total"].extend(b"more") or [np.zeros((3, 6), np.float32)]
        return delegate


def test_states_keep_their_size():
    backend = Resizing("Resizing")
    rushlight.register_backend(backend)
    program = rushlight.export(Accumulator(), (torch.randn(3, 4),), backend=backend)
    with pytest.raises(rushlight.Error) as caught:
        program(torch.randn(3, 4))
    assert "changed the size of its state: expected 24 bytes, got 28" in str(caught.value.__cause__)
