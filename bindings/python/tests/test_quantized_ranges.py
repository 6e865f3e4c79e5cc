"""Signal-to-noise of quantized models whose activations or weights are small, against the same models in eager PyTorch; and
what a program says whose outputs are mostly noise. Needs torch and torchao."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchao")

import rushlight
from rushlight._rushlight import SCHEMES
from rushlight.quantizers import CpuQuantizer
from torch import nn


class Small(nn.Module):
    """Two convolutions, of which the first gives activations of any size: the second makes up for it."""

    def __init__(self, exponent):
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.second = nn.Conv2d(16, 16, 3, padding=1, bias=False)
        self.classifier = nn.Linear(16, 10, bias=False)
        with torch.no_grad():
            self.first.weight.mul_(2.0**exponent)
            self.classifier.weight.mul_(2.0**-exponent)

    def forward(self, x):
        x = torch.relu(self.second(torch.relu(self.first(x))))
        return self.classifier(x.mean((2, 3)))


def batches(count=8):
    generator = torch.Generator().manual_seed(1)
    return [(torch.randn(1, 3, 16, 16, generator=generator),) for _ in range(count)]


def ratio(model, program, inputs):
    """Signal-to-noise of a program's outputs in dB."""
    signal = noise = 0.0
    with torch.no_grad():
        for args in inputs:
            expected = model(*args)
            signal += expected.square().sum().item()
            noise += (program(*args) - expected).square().sum().item()
    return 10 * torch.log10(torch.tensor(signal / noise)).item()


@pytest.mark.parametrize("quantize", ["int8", CpuQuantizer], ids=["rushlight", "pt2e"])
def test_static_int8_does_not_depend_on_how_large_activations_are(quantize):
    inputs, ratios = batches(), {}
    for exponent in (0, -4, -8, -12):
        model = Small(exponent).eval()
        how = quantize if isinstance(quantize, str) else quantize()
        program = rushlight.export(model, inputs[0], quantize=how, calibration=inputs, backend="cpu")
        ratios[exponent] = ratio(model, program, inputs)
    assert min(ratios.values()) >= ratios[0] - 1, ratios


class Drowned(nn.Module):
    """What remains of a large number when almost as much is taken away."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(32, 32), nn.Linear(32, 32)

    def forward(self, x):
        x = self.first(x)
        return self.second(x) - self.second(x + 1e-3)


@pytest.mark.parametrize("quantize", ["int8-dynamic", "8da4w"])
def test_outputs_that_are_mostly_noise_are_warned_of(quantize):
    args = (torch.randn(4, 32),)
    with pytest.warns(rushlight.QuantizationWarning, match="below 10 dB") as warned:
        program = rushlight.export(Drowned().eval(), args, quantize=quantize)
    assert warned[0].filename == __file__
    report = program.quantization
    assert report.compared_on == "example" and report.outputs[0].snr < 10
    assert report.warnings and report.warnings[0] in str(report)
    kept = rushlight.Quantization(quantize, min_snr=20)
    better = rushlight.export(Drowned().eval(), args, quantize=kept, calibration=[args])
    assert not better.quantization.warnings and better.quantization.compared_on == "calibration"


def test_modules_of_pt2e_that_are_mostly_noise_are_warned_of():
    args = (torch.randn(4, 32),)
    with pytest.warns(rushlight.QuantizationWarning, match="below 10 dB") as warned:
        rushlight.export(Drowned().eval(), args, quantize=CpuQuantizer(), calibration=[args])
    assert warned[0].filename == __file__


def test_names_that_no_module_has_are_errors():
    model, args = Small(0).eval(), batches(1)[0]
    with pytest.raises(rushlight.Error, match="classifier"):
        rushlight.export(model, args, quantize=rushlight.Quantization("int8-dynamic", keep=["clasifier"]))


class Repeated(nn.Module):
    """One layer that is called several times."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(32, 32)

    def forward(self, x):
        for _ in range(5):
            x = torch.tanh(self.layer(x))
        return x


class Product(nn.Module):
    """A layer as GPT-2 has it."""

    def __init__(self):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(64, 96) * 0.1), nn.Parameter(torch.randn(96))

    def forward(self, x):
        return torch.addmm(self.bias, x.view(-1, 64), self.weight)


SMALL_LAYERS = {
    "few inputs": (nn.Linear(2, 64), (4, 2)),
    "one output": (nn.Linear(64, 1), (4, 64)),
    "points": (nn.Conv2d(1, 64, 1), (1, 1, 8, 8)),
    "depthwise points": (nn.Conv2d(64, 64, 1, groups=64), (1, 64, 8, 8)),
    "depthwise": (nn.Conv2d(64, 64, 3, groups=64), (1, 64, 8, 8)),
    "depthwise lines": (nn.Conv1d(64, 64, 4, groups=64), (1, 64, 32)),
    "large windows": (nn.Conv2d(3, 16, 32, 32), (1, 3, 64, 64)),
    "wide depthwise": (nn.Conv2d(32, 32, 17, groups=32, padding=8), (1, 32, 8, 8)),
    "dilated": (nn.Conv1d(32, 32, 7, dilation=27), (1, 32, 200)),
    "groups": (nn.Conv2d(64, 64, 3, groups=32), (1, 64, 8, 8)),
    "volumes": (nn.Conv3d(16, 32, 3), (1, 16, 4, 6, 6)),
    "depthwise volumes": (nn.Conv3d(32, 32, 3, groups=32), (1, 32, 4, 6, 6)),
    "transposed": (nn.ConvTranspose2d(32, 32, 4, stride=2), (1, 32, 8, 8)),
    "transposed depthwise": (nn.ConvTranspose2d(32, 32, 4, stride=2, groups=32), (1, 32, 8, 8)),
    "repeated": (Repeated(), (4, 32)),
    "product": (Product(), (4, 64)),
}


def size(program):
    """Bytes before the debug map, which is no part of what runs and says more of a quantized program: it has more nodes."""
    before = bytes(program.buffer).find(b'{"strings":')
    assert before > 0
    return before


# Bytes that the steps of a program which quantizes may take besides its weights, and those of each further call of a layer.
STEPS, CALL = 512, 256


@pytest.mark.parametrize("scheme", SCHEMES)
def test_small_layers_in_every_scheme(scheme):
    for name, (model, shape) in SMALL_LAYERS.items():
        args = (torch.randn(shape),)
        floats = size(rushlight.export(model.eval(), args, backend="cpu"))
        try:
            calibration = [args] if SCHEMES[scheme] else None
            program = rushlight.export(model, args, quantize=scheme, calibration=calibration)
        except rushlight.Error as error:
            assert "nothing in this model becomes" in str(error), (name, error)
            continue
        calls = 5 if name == "repeated" else 1
        # Static layers take integers for the sake of what lies between them, whatever their weights save.
        if not SCHEMES[scheme]:
            assert size(program) <= floats + STEPS + CALL * (calls - 1), (name, size(program), floats)
        assert program.quantization.layers_in_integers > 0
        with torch.no_grad():
            assert ratio(model, program, [args]) >= (15 if scheme in ("8da4w", "int4") else 30), name


def test_products_by_constants_are_layers():
    args = (torch.randn(4, 64),)
    program = rushlight.export(Product(), args, quantize="int8-dynamic")
    assert [layer.op for layer in program.quantization.layers] == ["aten::linear"]


def test_what_is_quantized_goes_to_the_cpu_unless_another_backend_is_asked_for():
    model, args = torch.nn.Sequential(torch.nn.Linear(64, 64)).eval(), (torch.randn(4, 64),)
    program = rushlight.export(model, args, quantize="int8-dynamic")
    assert "RushlightCpu" in program.report.backends
    portable = rushlight.export(model, args, quantize="int8-dynamic", backend="portable")
    assert list(portable.report.backends) == ["portable"]


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (nn.ConvTranspose3d(4, 4, 3), "transposed convolutions of three dimensions"),
        (nn.Conv3d(4, 4, 3, padding=2, groups=4), "neither smaller nor faster"),
    ],
    ids=["transposed", "depthwise"],
)
def test_layers_that_gain_nothing_are_counted(layer, reason):
    """Such a convolution over volumes stays in float. The report has it, with the reason."""
    model = torch.nn.Sequential(layer, torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(256, 3)).eval()
    inputs = [(torch.randn(1, 4, 2, 2, 2),) for _ in range(4)]
    exported = torch.export.export(model, inputs[0])
    for quantize in ("int8", "int8-dynamic"):
        program = rushlight.compile(exported, quantize=quantize, calibration=inputs)
        layers = {layer.name: layer.kept for layer in program.quantization.layers}
        assert set(layers) == {"0", "3"} and layers["3"] is None
        assert reason in layers["0"]
