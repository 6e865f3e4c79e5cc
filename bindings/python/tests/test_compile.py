"""Exporting and compiling beside torch: what comes out computes what eager PyTorch computes."""

import copy
import inspect
import math
import re

import numpy as np
import pytest
import rushlight
import torch
from torch import nn

torch.manual_seed(0)


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 4, 3)
        )
        self.head = nn.Linear(4, 5)

    def forward(self, x):
        return torch.softmax(self.head(self.features(x).mean((2, 3))), -1)


class Batched(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 3)

    def forward(self, x):
        return torch.relu(self.linear(x)).sum(0)


class OfDict(nn.Module):
    def forward(self, inputs, scale):
        return {"sum": (inputs["a"] + inputs["b"]) * scale, "a": inputs["a"].exp()}


class Cache(nn.Module):
    """Two methods are made of this: they share the buffer by its name."""

    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(4))


class Add(Cache):
    def forward(self, x):
        self.total.add_(x)
        return self.total * 1.0


class Get(Cache):
    def forward(self, x):
        return self.total + x


def close(got, want):
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)


@pytest.fixture(scope="module")
def cnn():
    model, x = Cnn().eval(), torch.randn(2, 3, 12, 12)
    return model, x, rushlight.export(model, (x,))


def test_a_cnn_computes_what_eager_does(cnn, tmp_path):
    model, x, program = cnn
    close(program(x), model(x))
    assert isinstance(program(x.numpy()), np.ndarray)
    path = tmp_path / "cnn.pte"
    assert program.save(path) == path.stat().st_size == len(program.buffer) == program.report.nbytes
    assert path.read_bytes() == program.buffer
    close(rushlight.load(path)(x), model(x))


def test_executorch_runs_the_file(cnn):
    from executorch.extension.pybindings import portable_lib

    model, x, program = cnn
    (result,) = portable_lib._load_for_executorch_from_buffer(program.buffer)([x])
    close(result, model(x))


def test_reports_say_what_runs(cnn):
    _, _, program = cnn
    report = program.report
    (method,) = report.methods
    calls = dict(report.operators)
    assert method.name == "forward" and report.instructions == method.instructions >= sum(calls.values())
    assert calls["aten::convolution.out"] == 2 and report.planned_bytes > 2 * 3 * 12 * 12 * 4
    assert "aten::convolution.out" in str(report) and "forward" in str(report)


def test_every_kind_of_source_gives_the_same_file(cnn, tmp_path):
    model, x, program = cnn
    exported = torch.export.export(copy.deepcopy(model), (x,))
    path = tmp_path / "cnn.pt2"
    torch.export.save(exported, path)
    files = [
        rushlight.compile(source).buffer
        for source in (path, str(path), path.read_bytes(), memoryview(path.read_bytes()), exported, {"forward": path})
    ]
    assert all(file == files[0] for file in files)
    close(rushlight.load(files[0])(x), program(x))


def test_weights_in_files_of_their_own(cnn, tmp_path):
    model, x, inside = cnn
    expected = inside(x)
    program = rushlight.compile(torch.export.export(model, (x,)), external_weights=True)
    close(program(x), expected)
    assert list(program.external_data) == ["model.ptd"] and len(program.buffer) < len(inside.buffer)
    program.save(tmp_path / "net.pte")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["net.ptd", "net.pte"]
    assert (tmp_path / "net.ptd").read_bytes() == program.external_data["model.ptd"]
    close(rushlight.load(tmp_path / "net.pte", data=tmp_path / "net.ptd")(x), expected)
    with pytest.raises(rushlight.Error, match="a data file"):
        rushlight.load(tmp_path / "net.pte")(x)

    from executorch.extension.pybindings import portable_lib

    module = portable_lib._load_for_executorch(str(tmp_path / "net.pte"), str(tmp_path / "net.ptd"))
    close(module.forward((x,))[0], expected)

    files = {"head.*": "head.ptd", "*": True}
    by_name = rushlight.export(model, (x,), external_weights=files, external_weights_max_bytes=1200)
    names = list(by_name.external_data)
    parts = len(names) - 1
    assert "head.ptd" in names and parts > 1 and f"model-{parts:05}-of-{parts:05}.ptd" in names
    close(by_name(x), expected)
    with pytest.raises(rushlight.Error, match="cannot be the name"):
        rushlight.export(model, (x,), external_weights="../head.ptd")
    with pytest.raises(TypeError, match="has to be a str or True"):
        rushlight.export(model, (x,), external_weights={"*": 7})
    with pytest.raises(ValueError, match="there are none"):
        rushlight.export(model, (x,), external_weights_max_bytes=7)


def test_dynamic_shapes():
    model = Batched().eval()
    shapes = {"x": {0: torch.export.Dim("batch", min=1, max=16)}}
    program = rushlight.export(model, (torch.randn(4, 6),), dynamic_shapes=shapes)
    for batch in (1, 5, 16):
        x = torch.randn(batch, 6)
        close(program(x), model(x))
    with pytest.raises(rushlight.Error) as caught:
        program(torch.randn(17, 6))
    assert caught.value.expected and caught.value.got


def test_dicts_are_also_taken_leaf_by_leaf():
    inputs = {"a": torch.randn(3), "b": torch.randn(3)}
    scale = torch.tensor(2.0)
    model = OfDict()
    program = rushlight.export(model, (inputs,), {"scale": scale})
    want = model(inputs, scale)
    for got in (program(*inputs.values(), scale), program(inputs, scale=scale)):
        assert list(got) == list(want)
        for name, tensor in want.items():
            close(got[name], tensor)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
@pytest.mark.parametrize("lower", ["auto", "off", "cpu"])
def test_what_one_method_writes_the_others_see(lower, dtype):
    class Counter(nn.Module):
        def __init__(self, step):
            super().__init__()
            self.step = step
            self.register_buffer("n", torch.zeros(1, dtype=dtype))

        def forward(self, x):
            self.n += self.step
            return x + self.n

    inputs = (torch.zeros(1, dtype=dtype),)
    methods = {name: torch.export.export(Counter(step), inputs) for name, step in (("encode", 1), ("decode", 10))}
    for is_shared, expected in ((True, [1, 11, 12]), (False, [1, 10, 2])):
        module = rushlight.load(rushlight.compile(methods, share_state=is_shared).buffer, lower=lower)
        got = [module.run(name, *inputs).item() for name in ("encode", "decode", "encode")]
        assert got == expected, (is_shared, got)


def test_methods_share_state():
    x = torch.arange(4.0)
    models, args = {"add": Add(), "get": Get()}, {"add": (x,), "get": (x,)}
    program = rushlight.export(models, args, share_state=True, constant_methods={"limit": 7, "sizes": [1, 2]})
    assert sorted(rushlight.load(program.buffer).method_names) == ["add", "get", "limit", "sizes"]
    close(program.run("add", x), x)
    close(program.run("add", x), 2 * x)
    close(program.run("get", x), 3 * x)
    assert program.run("limit") == 7 and program.run("sizes") == (1, 2)
    apart = rushlight.export(models, args)
    apart.run("add", x)
    close(apart.run("get", x), x)


def test_constant_methods_return_tensors(cnn):
    model, x, _ = cnn
    table = torch.arange(6, dtype=torch.int64).reshape(2, 3)
    constants = {
        "table": table.T,
        "both": [np.float32([1.5, 2.5]), "text"],
        "flag": True,
        "none": None,
        "half": torch.ones(2, dtype=torch.bfloat16),
        "ratio": 0.5,
    }
    program = rushlight.export(model, (x,), constant_methods=constants)
    torch.testing.assert_close(torch.from_dlpack(program.run("table")), table.T.contiguous())
    array, text = program.run("both")
    assert np.asarray(array).tolist() == [1.5, 2.5] and text == "text"
    assert program.run("flag") is True and program.run("none") is None and program.run("ratio") == 0.5
    assert program.run("half").dtype == "bfloat16" and program.run("half").tolist() == [1.0, 1.0]
    close(program(x), model(x))


def test_comparisons_find_the_line_where_numbers_part(tmp_path):
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x):
            x = torch.relu(self.first(x))
            return torch.tanh(self.second(x))

    model, x = Two(), torch.randn(2, 4)
    exported = torch.export.export(model, (x,))
    path = tmp_path / "two.pt2"
    torch.export.save(exported, path)
    good = rushlight.compile(path)
    wrong = copy.deepcopy(model)
    with torch.no_grad():
        wrong.second.bias += 0.5
    wrong = rushlight.export(wrong, (x,))

    comparison = rushlight.compare(path, wrong, (x,))
    first = comparison.first_difference()
    assert (first.op, first.module, first.node) == ("aten::addmm", "second", "linear_1")
    assert math.isclose(first.max_abs, 0.5, rel_tol=1e-5) and first.shapes is None
    line = inspect.getsourcelines(Two.forward)[1] + 2
    assert first.source == f"{__file__}:{line} in forward: return torch.tanh(self.second(x))"
    assert [row.result for row in comparison.worst(2)][0] in ("linear_1", "tanh") and len(comparison.worst(2)) == 2
    assert "and linear_1 (" in repr(comparison) and "aten::addmm" in repr(comparison.worst(2))

    wrong.save(tmp_path / "wrong.pte")
    same = rushlight.compare(exported, tmp_path / "wrong.pte", x)
    assert same.rows == comparison.rows
    for candidate in (good, good.buffer):
        equal = rushlight.compare(path.read_bytes(), candidate)
        assert len(equal.rows) >= 4 and equal.first_difference(0) is None and "no result differs" in repr(equal)
    with pytest.raises(rushlight.Error, match="input 0"):
        rushlight.compare(path, good, (torch.randn(3),))
    with pytest.raises(rushlight.Error, match="no_such"):
        rushlight.compare(path, good, method="no_such")


def test_compare_takes_the_inputs_of_the_export():
    class Times(nn.Module):
        def __init__(self, factor):
            super().__init__()
            self.factor = factor

        def forward(self, x):
            return x * self.factor

    def difference(x, **options):
        """The largest element of the input."""
        (output,) = rushlight.compare(torch.export.export(Times(1.0), (x,)), rushlight.export(Times(2.0), (x,)), **options).outputs
        return output.max_abs

    example = torch.tensor([3.0, -7.0])
    assert difference(example) == 7
    assert difference(example, inputs=(torch.ones(2),)) == 1
    # Random numbers are below 1. Zeros would show no difference.
    for given in (difference(example, seed=0), difference(torch.zeros(2))):
        assert 0 < given < 1


def test_unsupported_operators_name_the_python_line():
    class Unsupported(nn.Module):
        def forward(self, x):
            return torch.linalg.ldl_factor(x)[0]

    line = inspect.getsourcelines(Unsupported.forward)[1] + 1
    with pytest.raises(rushlight.Error) as caught:
        rushlight.export(Unsupported(), (torch.randn(3, 3),))
    error = caught.value
    assert error.code_name == "OperatorMissing" and error.hint
    assert "ldl_factor" in str(error) and f"{__file__}:{line}" in error.site


def test_what_is_no_program_is_refused(tmp_path):
    with pytest.raises(TypeError, match="rushlight.export takes a module"):
        rushlight.compile(Cnn())
    with pytest.raises(TypeError, match="constant method `limit`"):
        rushlight.compile(b"", constant_methods={"limit": object()})
    for source in (b"", b"PK" * 100, tmp_path / "missing.pt2", {}):
        with pytest.raises(rushlight.Error) as caught:
            rushlight.compile(source)
        assert str(caught.value)


class Autocast(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16):
            return self.linear(x)


class TimesJ(nn.Module):
    def forward(self, x):
        return torch.view_as_real(x * 1j)


class OneQueryForAll(nn.Module):
    def forward(self, q, k):
        return nn.functional.scaled_dot_product_attention(q, k, k)


class SymbolicBooleans(nn.Module):
    def forward(self, x, count):
        rows = count.item()
        torch._check(rows >= 1)
        torch._check((rows > 5) | (rows < 9))
        torch._check((rows > 0) & (rows <= 8))
        return x.new_ones(rows) * 2 + x.sum()


class Mapped(nn.Module):
    def forward(self, x):
        return torch.vmap(lambda row: row.softmax(0) * row.sum())(x)


@pytest.mark.parametrize("backend", [None, "cpu"])
def test_contexts_and_numbers_of_pytorch_compile(backend):
    x = torch.randn(3, 4)
    models = [
        (Autocast(), (x,)),
        (TimesJ(), (x,)),
        (OneQueryForAll(), (torch.randn(1, 2, 3, 8), torch.randn(4, 2, 5, 8))),
        (SymbolicBooleans(), (x, torch.tensor(3))),
    ]
    for model, args in models:
        model.eval().requires_grad_(False)
        close(rushlight.compile(torch.export.export(model, args), backend=backend)(*args), model(*args))
    # `torch.vmap` needs one more step. The error names it.
    exported = torch.export.export(Mapped(), (x,))
    with pytest.raises(rushlight.Error, match=r"run_decompositions\(\{\}\)"):
        rushlight.compile(exported, backend=backend)
    close(rushlight.compile(exported.run_decompositions({}), backend=backend)(x), Mapped()(x))


@torch.library.custom_op("rushlight_test::scaled_sin", mutates_args=())
def scaled_sin(x: torch.Tensor, scale: float, powers: list[int]) -> torch.Tensor:
    return sum(torch.sin(x) ** power for power in powers) * scale


@scaled_sin.register_fake
def _(x, scale, powers):
    return torch.empty_like(x)


class UsesCustom(nn.Module):
    def forward(self, x):
        y = scaled_sin(x + 1, 2.5, [1, 3])
        return y.sum(-1)


def test_custom_operators_run_python_kernels():
    model, x = UsesCustom(), torch.randn(3, 4)
    unregistered = rushlight.export(model, (x,)).buffer
    exported = torch.export.export(model, (x,))
    with pytest.raises(rushlight.Error) as caught:
        rushlight.compile(exported, stack_traces=True)(x)
    line = inspect.getsourcelines(UsesCustom.forward)[1] + 1
    assert caught.value.missing_operators == ["rushlight_test::scaled_sin.out"]
    assert f"{__file__}:{line}" in str(caught.value)
    assert 'register it: rushlight.register_op("rushlight_test::scaled_sin", function)' in str(caught.value)

    seen = []

    def kernel(x, scale, powers):
        seen.append((x.shape, scale, powers))
        return sum(np.sin(np.asarray(x)) ** power for power in powers).astype(np.float32) * np.float32(scale)

    rushlight.register_op("rushlight_test::scaled_sin", kernel)
    module = rushlight.load(unregistered)
    close(module(x), model(x))
    assert seen == [((3, 4), 2.5, [1, 3])]

    replacements = {
        "torch": lambda x, scale, powers: scaled_sin(torch.from_dlpack(x), scale, powers),
        "plain": lambda x, scale, powers: x,
    }
    rushlight.register_op("rushlight_test::scaled_sin", replacements["torch"])
    close(module(x), model(x))
    rushlight.register_op("rushlight_test::scaled_sin", replacements["plain"])
    close(module(x), (x + 1).sum(-1))

    # With other parameters it is another operator; of those the last is taken.
    for _ in range(2):
        rushlight.register_op("rushlight_test::scaled_sin", lambda x, scale: x)
        with pytest.raises(rushlight.Error, match="scaled_sin"):
            rushlight.load(unregistered)(x)
        rushlight.register_op("rushlight_test::scaled_sin", kernel)
        close(rushlight.load(unregistered)(x), model(x))


@pytest.mark.parametrize("namespace", ["torchaudio", "torchvision", "rushlight_unknown", "_c10d"])
def test_operators_without_a_kernel_are_named_when_a_program_is_compiled(namespace, recwarn):
    library = torch.library.Library(namespace, "FRAGMENT")
    library.define("rushlight_doubled(Tensor x) -> Tensor")
    library.impl("rushlight_doubled", lambda x: 2 * x, "CompositeExplicitAutograd")
    name = f"{namespace}::rushlight_doubled"

    class Doubled(nn.Module):
        def forward(self, x):
            return getattr(torch.ops, namespace).rushlight_doubled(x) + 1

    exported = torch.export.export(Doubled(), (torch.ones(3),))
    for backend in (None, "cpu"):
        with pytest.warns(UserWarning, match=f"`{name}.out` has no kernel in Rushlight, from .*test_compile.py:") as warned:
            rushlight.compile(exported, backend=backend)
        assert [w.filename for w in warned] == [__file__]
        assert str(warned[0].message).endswith(f'rushlight.register_op("{name}", function)')
    rushlight.register_op(name, lambda x: 2 * np.asarray(x))
    recwarn.clear()
    close(rushlight.compile(exported)(torch.ones(3)), torch.full((3,), 3.0))
    assert not recwarn.list


@torch.library.custom_op("rushlight_test::moments", mutates_args=())
def moments(x: torch.Tensor, order: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return x.mean(-1), (x**order).mean(-1), x.argmax(-1)


@moments.register_fake
def _(x, order):
    return x.new_empty(x.shape[:-1]), x.new_empty(x.shape[:-1]), x.new_empty(x.shape[:-1], dtype=torch.int64)


@torch.library.custom_op("rushlight_test::halves", mutates_args=())
def halves(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x[:, :3].clone(), x[:, 3:].clone()


@halves.register_fake
def _(x):
    return x.new_empty(x.shape[0], 3), x.new_empty(x.shape[0], x.shape[1] - 3)


class Several(nn.Module):
    """Calls operators with two and three results, of which it leaves some."""

    def forward(self, x):
        first, rest = halves(x + 1)
        mean, square, place = moments(rest, 2)
        return first * 2, square - mean**2, place, moments(first, 3)[1]


@pytest.mark.parametrize("backend", [None, "cpu"])
def test_custom_operators_have_several_results(backend):
    model = Several()
    sizes = {0: torch.export.Dim("rows", min=2, max=9)}
    exported = torch.export.export(model, (torch.randn(5, 8),), dynamic_shapes=(sizes,))
    calls = []

    def kernel(x, order):
        calls.append(order)
        return moments(torch.from_dlpack(x), order)

    rushlight.register_op("rushlight_test::moments", kernel, outputs=3)
    rushlight.register_op("rushlight_test::halves", lambda x: list(halves(torch.from_dlpack(x))), outputs=2)
    module = rushlight.compile(exported, backend=backend)
    for rows in (5, 2, 9):
        x = torch.randn(rows, 8)
        for got, expected in zip(module(x), model(x), strict=True):
            close(got, expected)
            assert got.dtype == expected.dtype
    assert calls == [2, 3] * 3

    x, x_numpy = torch.randn(4, 8), np.zeros((4, 3), np.float32)
    failures = {
        (lambda x: x): "tuple of 2 tensors or arrays, got a Tensor",
        (lambda x: (x_numpy,)): "tuple of 2 tensors or arrays, got 1 results",
        (lambda x: (x_numpy, x_numpy, x_numpy)): "tuple of 2 tensors or arrays, got 3 results",
        (lambda x: (x_numpy, 3.0)): "tensor or an array",
        (lambda x: (x_numpy, x_numpy.astype(np.float64))): "float64|double|f64",
    }
    for function, text in failures.items():
        rushlight.register_op("rushlight_test::halves", function, outputs=2)
        with pytest.raises(rushlight.Error, match="halves") as caught:
            module(x)
        assert re.search(text, f"{caught.value} {caught.value.__cause__}"), caught.value

    # With another number of results it is another operator, which the program does not call.
    rushlight.register_op("rushlight_test::halves", lambda x: x)
    with pytest.raises(rushlight.Error, match="(?s)arguments.*halves"):
        rushlight.compile(exported, backend=backend)(x)


def test_failures_of_python_kernels_are_errors():
    def raises(x, scale, powers):
        raise ZeroDivisionError("in the kernel")

    x = torch.randn(3, 4)
    program = rushlight.export(UsesCustom(), (x,))
    failures = {
        raises: ZeroDivisionError,
        (lambda x, scale, powers: math.pi): TypeError,
        (lambda x, scale, powers: np.zeros((3, 4))): None,
        (lambda x, scale, powers: np.zeros((300, 4), np.float32)): None,
        (lambda x, scale, powers: program(torch.randn(3, 4))): RuntimeError,
    }
    for kernel, cause in failures.items():
        rushlight.register_op("rushlight_test::scaled_sin", kernel)
        with pytest.raises(rushlight.Error) as caught:
            program(x)
        assert "scaled_sin" in str(caught.value)
        assert type(caught.value.__cause__) is (cause or type(None))


def test_names_and_signatures_of_operators_are_checked():
    with pytest.raises(ValueError, match="namespace::name"):
        rushlight.register_op("no_namespace", lambda x: x)
    with pytest.raises(TypeError, match="callable"):
        rushlight.register_op("rushlight_test::a", 3)
    with pytest.raises(TypeError, match="inputs="):
        rushlight.register_op("rushlight_test::a", lambda *args: args[0])
    for counts in ({"inputs": 32}, {"inputs": 30, "outputs": 3}, {"inputs": 0, "outputs": 33}):
        with pytest.raises(ValueError, match="32 arguments"):
            rushlight.register_op("rushlight_test::a", lambda *args: args[0], **counts)
    for counts in ({"inputs": -1}, {"outputs": 0}, {"outputs": 1.5}, {"outputs": True}):
        with pytest.raises(ValueError, match="inputs|outputs?"):
            rushlight.register_op("rushlight_test::a", lambda x: x, **counts)


def test_classes_that_there_are_not_are_errors():
    class Network(torch.nn.Module):
        def forward(self, x):
            return torch.nn.functional.one_hot(x, 4)

    for backend in ("portable", "cpu"):
        exported = torch.export.export(Network(), (torch.tensor([0, 1]),))
        program = rushlight.compile(exported, backend=backend)
        assert program(torch.tensor([3, 0])).tolist() == [[0, 0, 0, 1], [1, 0, 0, 0]]
        for index in (4, -1):
            with pytest.raises(rushlight.Error, match=str(index)):
                program(torch.tensor([0, index]))


def test_numbers_that_may_be_any_are_refused():
    class Network(torch.nn.Module):
        def forward(self, x, n):
            return x * n

    sizes = {"x": None, "n": torch.export.Dim.DYNAMIC}
    exported = torch.export.export(Network(), (torch.randn(3), 3), dynamic_shapes=sizes)
    with pytest.raises(rushlight.Error, match="`n` is a number that was exported as dynamic"):
        rushlight.compile(exported)


@pytest.mark.parametrize("transposed", [False, True])
def test_a_folded_convolution_is_compared_with_the_normalization(transposed):
    """The folded convolution computes the value of the batch norm, so that is the result that it is compared with."""
    convolution = (torch.nn.ConvTranspose2d if transposed else torch.nn.Conv2d)(3, 4, 3)
    model = torch.nn.Sequential(convolution, torch.nn.BatchNorm2d(4), torch.nn.SiLU()).eval()
    model[1].running_mean.uniform_(-2, 2)
    exported = torch.export.export(model, (torch.randn(1, 3, 8, 8),))
    for backend in ("portable", "cpu"):
        comparison = rushlight.compare(exported, rushlight.compile(exported, backend=backend))
        assert comparison.first_difference() is None, (backend, comparison)
        assert any(name.startswith("conv") for name in comparison.only_in_reference)
        if backend == "portable":
            assert any("batch_norm" in row.op for row in comparison.rows)
