"""Calls with the names and containers of the exported function, beside torch, whose results are expected."""

import collections
import dataclasses
import pathlib
import pickle
import subprocess
import sys
from typing import Optional

import numpy as np
import pytest
import rushlight
import rushlight.quantizers
import torch
from rushlight._signature import Signature
from torch import nn

Pair = collections.namedtuple("Pair", ["first", "second"])
torch.utils._pytree._register_namedtuple(Pair, serialized_type_name="test_names.Pair")


@dataclasses.dataclass
class State:
    hidden: torch.Tensor
    cell: torch.Tensor
    extra: Optional[torch.Tensor] = None


torch.export.register_dataclass(State, serialized_type_name="test_names.State")


class Detector(nn.Module):
    """Takes nested keyword arguments and returns dictionaries."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 2)

    def forward(self, image, *, batch, scale=1.0):
        first, second = batch["boxes"]
        total = image + first * second * scale
        return {"logits": self.head(total), "stats": {"mean": total.mean(), "parts": (~batch["mask"], [total.abs()])}}


def detector_inputs(seed):
    generator = torch.Generator().manual_seed(seed)
    image, first, second = (torch.randn(3, 4, generator=generator) for _ in range(3))
    return image, {"mask": torch.randn(2, generator=generator) > 0, "boxes": [first, second]}


@pytest.fixture(scope="module")
def detector():
    torch.manual_seed(0)
    model = Detector().eval()
    image, batch = detector_inputs(0)
    return model, rushlight.export(model, (image,), {"batch": batch, "scale": 0.5})


def same(got, expected):
    """Whether two structures have the same types and values."""
    assert type(got) is type(expected), (type(got), type(expected))
    if isinstance(expected, dict):
        assert list(got) == list(expected)
        for key, value in expected.items():
            same(got[key], value)
    elif isinstance(expected, (tuple, list)):
        assert len(got) == len(expected)
        for one, other in zip(got, expected):
            same(one, other)
    elif isinstance(expected, torch.Tensor):
        torch.testing.assert_close(got, expected)
    else:
        assert got == expected


def test_structure_comes_back(detector):
    model, program = detector
    image, batch = detector_inputs(1)
    with torch.no_grad():
        expected = model(image, batch=batch, scale=0.5)
    module = rushlight.load(program.buffer)
    same(module(image, batch=batch, scale=0.5), expected)
    same(program(image, batch=batch, scale=0.5), expected)
    # In any order, without what was fixed, and by position.
    same(module(batch=dict(reversed(batch.items())), image=image), expected)
    same(module(image, batch), expected)
    same(module.run("forward", image, {**batch, "boxes": tuple(batch["boxes"])}, 0.5), expected)
    # What is in the containers, as before programs had names.
    same(module(image, batch["mask"], *batch["boxes"], 0.5), expected)


def test_other_arrays(detector):
    model, program = detector
    image, batch = detector_inputs(2)
    arrays = {"mask": batch["mask"].numpy(), "boxes": [box.numpy() for box in batch["boxes"]]}
    result = program(image.numpy(), batch=arrays)
    with torch.no_grad():
        expected = model(image, batch=batch, scale=0.5)
    assert isinstance(result["logits"], np.ndarray)
    np.testing.assert_allclose(result["logits"], expected["logits"].numpy(), rtol=1e-5, atol=1e-6)
    assert np.array_equal(result["stats"]["parts"][0], expected["stats"]["parts"][0].numpy())


def test_executorch_runs_the_file(detector):
    from executorch.extension.pybindings import portable_lib

    _, program = detector
    image, batch = detector_inputs(3)
    ours = program(image, batch=batch)
    leaves = portable_lib._load_for_executorch_from_buffer(program.buffer)([image, batch["mask"], *batch["boxes"], 0.5])
    same(leaves, [ours["logits"], ours["stats"]["mean"], ours["stats"]["parts"][0], ours["stats"]["parts"][1][0]])


def test_metadata(detector):
    meta = rushlight.load(detector[1].buffer).meta()
    assert meta.input_names == ["image", "batch.mask", "batch.boxes.0", "batch.boxes.1", "scale"]
    assert meta.output_names == ["logits", "stats.mean", "stats.parts.0", "stats.parts.1.0"]
    assert meta.signature.startswith("(image, batch: {mask, boxes: [_, _]}, scale) -> {logits,")
    assert [info.name for info in meta.inputs[:4]] == meta.input_names[:4]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda m, x, b: m(x, bach=b), "no input `bach`. Did you mean `batch`?"),
        (lambda m, x, b: m(x, b, image=x), "input `image` of `forward` is given twice"),
        (lambda m, x, b: m(x, b, 0.5, x), "takes 3 inputs (`image`, `batch`, `scale`), got 4"),
        (lambda m, x, b: m(batch=b), "`forward` lacks 1 input: `image`"),
        (lambda m, x, b: m(x, batch={**b, "masks": x}), "input `batch` has no key 'masks'. Did you mean `mask`?"),
        (lambda m, x, b: m(x, batch={"mask": x}), "input `batch` lacks `boxes`"),
        (lambda m, x, b: m(x, batch=x), "input `batch`: expected a dict of `mask`, `boxes`, got Tensor"),
        (lambda m, x, b: m(x, batch={**b, "boxes": [x]}), "input `batch.boxes`: expected a list of 2, got 1"),
        (lambda m, x, b: m(x, batch={**b, "boxes": {}}), "input `batch.boxes`: expected a list of 2, got dict"),
        (lambda m, x, b: m(object(), batch=b), "input 0 (image): cannot read this object"),
        (lambda m, x, b: m(x, batch={**b, "boxes": [x, "x"]}), "input 3 (batch.boxes.1)"),
        (lambda m, x, b: m(x[:1], batch=b), "input 0 (image) of `forward` has the wrong shape"),
        (lambda m, x, b: m(x), "`forward` lacks 1 input: `batch`"),
    ],
)
def test_errors_name_inputs(detector, call, text):
    module = rushlight.load(detector[1].buffer)
    with pytest.raises((TypeError, rushlight.Error)) as raised:
        call(module, *detector_inputs(4))
    assert text in str(raised.value)


def test_classes(tmp_path):
    class Model(nn.Module):
        def forward(self, pair, state):
            return Pair(pair.first + state.hidden, [pair.second * 2]), State(state.hidden + 1, state.cell - 1), None

    x = torch.arange(3.0)
    inputs = Pair(x, x + 1), State(x + 2, x + 3)
    program = rushlight.export(Model(), inputs)
    expected = Model()(*inputs)
    pair, state, nothing = program(*inputs)
    assert type(pair).__name__ == "Pair" and pair._fields == ("first", "second") and nothing is None
    same(tuple(pair), tuple(expected[0]))
    # Other classes than named tuples come back as dicts, and may be given as such.
    same(state, {"hidden": expected[1].hidden, "cell": expected[1].cell})
    same(program(tuple(inputs[0]), {"hidden": x + 2, "cell": x + 3})[1], state)
    with pytest.raises(TypeError, match="input `state` lacks `cell`"):
        program(inputs[0], {"hidden": x})
    with pytest.raises(TypeError, match="input `state`: expected a dict or an object with `hidden`, `cell`, got float"):
        program(inputs[0], 1.0)


def test_named_tuples_of_any_name():
    # A class may be called as a keyword in another module than that which makes it.
    Keyword = collections.namedtuple("Keyword", ["first", "second"])
    Keyword.__name__ = Keyword.__qualname__ = "class"
    torch.utils._pytree._register_namedtuple(Keyword, serialized_type_name="test_names.class")

    class Model(nn.Module):
        def forward(self, x):
            return Keyword(x * 2, x + 1)

    x = torch.arange(3.0)
    program = rushlight.export(Model(), (x,))
    for result in (program(x), program(x=x)):
        assert result._fields == ("first", "second")
        same(tuple(result), (x * 2, x + 1))
        assert pickle.loads(pickle.dumps(result))._fields == result._fields


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_named_tuples_are_pickled(protocol):
    class Model(nn.Module):
        def forward(self, x):
            return Pair(x * 2, Pair([x + 1], x))

    x = np.arange(3, dtype=np.float32)
    result = rushlight.export(Model(), (torch.from_numpy(x),))(x)
    copied = pickle.loads(pickle.dumps(result, protocol))
    assert type(copied) is type(result) and type(copied.second) is type(result.second)
    np.testing.assert_array_equal(copied.first, x * 2)
    np.testing.assert_array_equal(copied.second.first[0], x + 1)
    script = "import pickle, sys; result = pickle.load(sys.stdin.buffer); print(type(result).__name__, *result._fields)"
    done = subprocess.run([sys.executable, "-c", script], input=pickle.dumps(result, protocol), capture_output=True)
    assert done.stdout.split() == [b"Pair", b"first", b"second"], done.stderr


def test_tuples_as_keys():
    class Model(nn.Module):
        def forward(self, d):
            return {(1, 2): d[(1, 2)] * 2, ("a", (3, None)): d["k"] + 1, 2.5: d["k"] * 3, None: d["k"] - 1}

    x = torch.arange(3.0)
    inputs = {(1, 2): x, "k": x + 1}
    program = rushlight.export(Model(), (inputs,))
    same(program(inputs), Model()(inputs))
    same(program(d=inputs), Model()(inputs))
    with pytest.raises(TypeError, match=r"input `d` has no key \(1, 3\). Did you mean `\(1, 2\)`"):
        program({(1, 3): x, "k": x})


def test_keys_that_are_one_in_python():
    leaf = ("leaf",)
    entries = [(("int", 1), leaf), (("other", "true"), leaf)]
    meta = {"name": "forward", "inputs": [], "signature": ([], ("dict", entries))}
    with pytest.raises(rushlight.Error, match="(?s)the keys 1 and True, which are one key in Python.*help"):
        Signature(meta)


@pytest.mark.parametrize("make", [lambda x: x * 2, lambda x: (x * 2,), lambda x: [x * 2, x], lambda x: {"y": x, 3: x + 1}])
def test_outputs_are_as_exported(make):
    class Model(nn.Module):
        def forward(self, x):
            return make(x)

    x = torch.arange(3.0)
    same(rushlight.export(Model(), (x,))(x), make(x))


def test_transformers():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = transformers.BertModel(transformers.BertConfig(vocab_size=30, **sizes)).eval()
    inputs = {"input_ids": torch.randint(0, 30, (1, 6)), "attention_mask": torch.ones(1, 6, dtype=torch.int64)}
    program = rushlight.export(model, (), inputs)
    with torch.no_grad():
        expected = model(**inputs)
    got = program(**inputs)
    assert list(got) == ["last_hidden_state", "pooler_output"]
    torch.testing.assert_close(got["last_hidden_state"], expected.last_hidden_state, rtol=1e-4, atol=1e-5)
    with pytest.raises(TypeError, match="Did you mean `attention_mask`"):
        program(input_ids=inputs["input_ids"], attentionmask=inputs["attention_mask"])


def test_methods_have_signatures_of_their_own():
    class Add(nn.Module):
        def forward(self, left, right):
            return {"sum": left + right}

    class Double(nn.Module):
        def forward(self, x):
            return [x * 2]

    x = torch.ones(2)
    program = rushlight.export({"add": Add(), "double": Double()}, {"add": (x, x), "double": (x,)})
    same(program.run("add", right=x, left=x), {"sum": x + x})
    same(program.run("double", x=x), [x * 2])


def test_programs_of_executorch_are_called_as_before():
    corpus = pathlib.Path(__file__).parents[3] / "tests" / "corpus" / "1.5.1"
    module = rushlight.load(corpus / "add.pte")
    meta = module.meta()
    assert meta.signature is None and meta.input_names == []
    with pytest.raises(TypeError, match="the program does not record names"):
        module(x=torch.ones(1))


def test_programs_are_compared_by_name(detector):
    model, program = detector
    image, batch = detector_inputs(1)
    exported = torch.export.export(model, (image,), {"batch": batch, "scale": 0.5})
    comparison = rushlight.compare(exported, program, {"batch": batch, "image": image})
    names = ["logits", "stats.mean", "stats.parts.0", "stats.parts.1.0"]
    assert [output.name for output in comparison.outputs] == names == list(program._module().meta().output_names)
    assert comparison.outputs == rushlight.compare(exported, program, (image, batch)).outputs
    assert all(output.relative <= 1e-6 for output in comparison.outputs)
    assert "stats.parts.1.0" in str(comparison)
    with pytest.raises(TypeError, match="`forward` has no input `boxes`"):
        rushlight.compare(exported, program, {"image": image, "boxes": batch["boxes"]})
    # An output is compared also where no instruction of both computes it.
    delegated = rushlight.compile(exported, backend="cpu")
    torch.nn.init.zeros_(model.head.weight)
    other = torch.export.export(model, (image,), {"batch": batch, "scale": 0.5})
    outputs = rushlight.compare(other, delegated, {"batch": batch, "image": image}).outputs
    assert outputs[0].relative > 0.1 and outputs[1].relative <= 1e-6


def test_a_calibration_is_by_name():
    torch.manual_seed(0)
    model = Detector().eval()
    calls = [dict(zip(("image", "batch"), detector_inputs(seed))) for seed in range(4)]
    image, batch = detector_inputs(0)
    exported = torch.export.export(model, (image,), {"batch": batch, "scale": 0.5})
    by_name = rushlight.compile(exported, quantize="int8", calibration=calls)
    by_position = rushlight.compile(exported, quantize="int8", calibration=[tuple(call.values()) for call in calls])
    flat = [(call["image"], call["batch"]["mask"], *call["batch"]["boxes"], 0.5) for call in calls]
    by_leaf = rushlight.compile(exported, quantize="int8", calibration=flat)
    assert by_name.quantization.samples == 4
    assert by_name.buffer == by_position.buffer == by_leaf.buffer
    # The exporter's quantizer sees them, too.
    observed = rushlight.export(
        model,
        (image,),
        {"batch": batch, "scale": 0.5},
        quantize=rushlight.quantizers.CpuQuantizer(),
        calibration=[{**call, "scale": 0.5} for call in calls],
    )
    got, expected = observed(image, batch=batch)["logits"].numpy(), model(image, batch=batch, scale=0.5)["logits"]
    np.testing.assert_allclose(got, expected.detach().numpy(), atol=0.1)
    with pytest.raises(TypeError, match="`forward` has no input `images`"):
        rushlight.compile(exported, quantize="int8", calibration=[{"images": image}])


def test_errors_of_a_calibration_name_inputs(detector):
    model, _ = detector
    image, batch = detector_inputs(0)
    exported = torch.export.export(model, (image,), {"batch": batch, "scale": 0.5})
    good = {"image": image, "batch": batch}
    shape = {"image": image, "batch": {**batch, "mask": batch["mask"][:1]}}
    dtype = {"image": image.double(), "batch": batch}
    for wrong, what, help in (
        (shape, r"input 1 \(batch.mask\) of `forward` has the wrong shape", "dimension 0 dynamic"),
        (dtype, r"input 0 \(image\) of `forward` has the wrong element type", r"x\.to\(torch\.float32\)"),
    ):
        with pytest.raises(rushlight.Error, match=f"(?s){what}.*at +input 1 of the calibration.*help.*{help}"):
            rushlight.compile(exported, quantize="int8", calibration=[good, wrong])


@pytest.mark.parametrize("largest", [1, 3, 64])
def test_calibration_takes_what_a_loader_gives(largest):
    """Labels behind the inputs are left out, and batches are divided into as many rows as the model takes."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4)).eval()
    rows, labels = torch.randn(12, 8), torch.arange(12)
    varying = None if largest == 1 else ({0: torch.export.Dim("batch", max=largest)},)
    exported = torch.export.export(model, (rows[: min(largest, 2)],), dynamic_shapes=varying)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(rows, labels), batch_size=4)
    of_loader = rushlight.compile(exported, quantize="int8", calibration=loader)
    calls = [(chunk,) for batch in rows.split(4) for chunk in batch.split(largest)]
    assert of_loader.buffer == rushlight.compile(exported, quantize="int8", calibration=calls).buffer
    named = [{"input": batch, "labels": labels[:4]} for batch in rows.split(4)]
    named = torch.utils.data.DataLoader(named, batch_size=None)
    assert rushlight.compile(exported, quantize="int8", calibration=named).buffer == of_loader.buffer
    # Without a loader, nothing is guessed.
    with pytest.raises(TypeError, match="expected 1 input .*, got 2; give the inputs alone.*DataLoader"):
        rushlight.compile(exported, quantize="int8", calibration=[(rows[:1], labels[:1])])
