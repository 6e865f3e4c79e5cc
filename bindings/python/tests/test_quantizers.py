"""Models that the CPU backend's quantizer annotates, against the quantized graphs in eager PyTorch. Needs torch, torchao."""

import copy

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchao")

import rushlight
from rushlight.quantizers import CpuQuantizer, Int8
from torch import nn
from torchao.quantization import Int8DynamicActivationIntxWeightConfig, IntxWeightOnlyConfig, MappingType, quantize_
from torchao.quantization.granularity import PerAxis, PerGroup
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e, prepare_qat_pt2e
from torchao.quantization.pt2e.quantizer import ComposableQuantizer


class Block(nn.Module):
    """An inverted residual with a gate, and a classifier."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16), nn.Hardswish())
        self.expand = nn.Sequential(nn.Conv2d(16, 48, 1), nn.BatchNorm2d(48), nn.ReLU6())
        self.depthwise = nn.Sequential(nn.Conv2d(48, 48, 3, padding=1, groups=48), nn.BatchNorm2d(48), nn.ReLU())
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(48, 48, 1), nn.Hardsigmoid())
        self.project = nn.Conv2d(48, 16, 1)
        self.classifier = nn.Linear(16, 10)

    def forward(self, x):
        x = self.stem(x)
        y = self.depthwise(self.expand(x))
        x = x + self.project(y * self.gate(y))
        x = torch.cat([x, nn.functional.max_pool2d(x, 3, 1, 1)], 1)[:, ::2]
        return self.classifier(x.mean((2, 3)))


def batches(count=4):
    generator = torch.Generator().manual_seed(3)
    return [(torch.randn(1, 3, 24, 24, generator=generator),) for _ in range(count)]


def block():
    torch.manual_seed(0)
    model = Block()
    for (batch,) in batches():
        model(torch.cat([batch, batch + 0.1]))
    return model.eval()


def quantized(model, quantizer, calibration, prepare=prepare_pt2e):
    args = calibration[0]
    prepared = prepare(torch.export.export(model, args).module(check_guards=False), quantizer)
    for batch in calibration:
        prepared(*batch)
    return torch.export.export(convert_pt2e(prepared), args)


def integers(program):
    return sum("quantize_per_tensor" in str(node.target) for node in program.graph.nodes)


def agree(program, args, tolerance):
    compiled = rushlight.compile(program, backend="cpu")
    with torch.no_grad():
        expected = program.module(check_guards=False)(*args)
    got = compiled(*args)
    assert (got - expected).abs().max() <= tolerance * expected.abs().max()
    return compiled, expected


def test_static_models_agree_with_their_graph_and_stay_near_the_model():
    model, calibration = block(), batches()
    program = quantized(model, CpuQuantizer(), calibration)
    compiled, _ = agree(program, calibration[0], 0.05)
    with torch.no_grad():
        floats = model(*calibration[0])
    assert (compiled(*calibration[0]) - floats).abs().max() <= 0.12 * floats.abs().max()
    # What follows a product is rounded with it: one pair for each product, sum, product of tensors, join and pool.
    assert integers(program) < 40
    small = len(compiled.buffer)
    whole = len(rushlight.compile(torch.export.export(model, calibration[0]), backend="cpu").buffer)
    assert small < whole


def test_export_does_all_of_it():
    model, calibration = block(), batches()
    program = rushlight.export(model, calibration[0], quantize=CpuQuantizer(), calibration=calibration, backend="cpu")
    with torch.no_grad():
        floats = model(*calibration[0])
    assert (program(*calibration[0]) - floats).abs().max() <= 0.12 * floats.abs().max()
    with pytest.raises(ValueError, match="no inputs"):
        rushlight.export(model, calibration[0], quantize=CpuQuantizer(), calibration=[])
    with pytest.raises(ValueError, match="histogram or minmax"):
        Int8(observer="mean")


def test_dynamic_linear_layers():
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 16)).eval()
    args = (torch.randn(4, 7, 32),)
    program = rushlight.export(model, args, quantize=CpuQuantizer(Int8(dynamic=True)), backend="cpu")
    with torch.no_grad():
        floats = model(*args)
    assert (program(*args) - floats).abs().max() <= 0.03 * floats.abs().max()
    agree(quantized(model, CpuQuantizer(Int8(dynamic=True)), [args]), args, 0.01)


class Decoder(nn.Module):
    """A picture that becomes larger in three ways, and a class for each of its pixels."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 24, 3, padding=1)
        self.transposed = nn.Sequential(nn.ConvTranspose2d(24, 12, 3, stride=2, padding=1, output_padding=1, groups=2), nn.ReLU())
        self.classes = nn.Conv2d(12, 5, 1)

    def forward(self, x):
        x = nn.functional.interpolate(self.first(x), scale_factor=2)
        x = nn.functional.interpolate(self.second(x).relu(), scale_factor=2, mode="bilinear")
        return self.classes(self.transposed(x)).softmax(1)


def test_pictures_become_larger_in_integers():
    torch.manual_seed(5)
    model, calibration = Decoder().eval(), [(torch.randn(1, 3, 9, 7),) for _ in range(3)]
    program = quantized(model, CpuQuantizer(), calibration)
    compiled, expected = agree(program, calibration[0], 0.05)
    with torch.no_grad():
        floats = model(*calibration[0])
    assert (compiled(*calibration[0]) - floats).abs().max() <= 0.05 * floats.abs().max()
    # What is resized, multiplied or shared out is integers on both sides.
    of_integers = {"upsample_nearest2d", "upsample_bilinear2d", "conv_transpose2d", "softmax"}
    seen = set()
    for node in program.graph.nodes:
        name = str(node.target).split(".")[1] if node.op == "call_function" else None
        if name in of_integers:
            seen.add(name)
            (user,) = node.users
            user = next(iter(user.users)) if "relu" in str(user.target) else user
            assert "dequantize" in str(node.args[0].target) and "quantize_per_tensor" in str(user.target), node
    assert seen == of_integers


def test_pictures_become_larger_in_integers_without_torchao():
    torch.manual_seed(6)
    model, calibration = Decoder().eval(), [(torch.randn(1, 3, 9, 7),) for _ in range(3)]
    with torch.no_grad():
        floats = model(*calibration[0])
    for scheme in ("int8", "int8-dynamic"):
        program = rushlight.export(model, calibration[0], quantize=scheme, calibration=calibration, backend="cpu")
        layers = program.quantization.layers
        assert len(layers) == 4 and all(layer.kept is None and layer.weight_snr > 30 for layer in layers), scheme
        assert (program(*calibration[0]) - floats).abs().max() <= 0.05 * floats.abs().max(), scheme


def test_dynamic_convolutions():
    model, calibration = block(), batches()
    program = quantized(model, CpuQuantizer(Int8(dynamic=True)), calibration)
    chosen = sum("choose_qparams" in str(node.target) for node in program.graph.nodes)
    products = sum(isinstance(module, (nn.Conv2d, nn.Linear)) for module in model.modules())
    assert chosen == products
    compiled, _ = agree(program, calibration[0], 0.02)
    with torch.no_grad():
        floats = model(*calibration[0])
    assert (compiled(*calibration[0]) - floats).abs().max() <= 0.05 * floats.abs().max()


class Clip(nn.Module):
    """A residual network over a short clip, whose windows are parted in space and time, and whole."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv3d(3, 16, (3, 7, 7), stride=(1, 2, 2), padding=(1, 3, 3)), nn.BatchNorm3d(16), nn.ReLU())
        self.space = nn.Sequential(nn.Conv3d(16, 24, (1, 3, 3), padding=(0, 1, 1), bias=False), nn.BatchNorm3d(24), nn.ReLU())
        self.time = nn.Sequential(nn.Conv3d(24, 16, (3, 1, 1), padding=(1, 0, 0), bias=False), nn.BatchNorm3d(16))
        self.whole = nn.Sequential(nn.Conv3d(16, 16, 3, stride=2, padding=1, groups=2), nn.ReLU())
        self.signal = nn.Sequential(nn.Conv1d(16, 8, 3, padding=1), nn.ReLU(), nn.ConvTranspose1d(8, 16, 4, stride=2, padding=1), nn.ReLU())
        self.classifier = nn.Linear(16, 5)

    def forward(self, x):
        x = self.stem(x)
        x = self.whole((x + self.time(self.space(x))).relu())
        x = nn.functional.adaptive_avg_pool3d(x, 1).flatten(1) + self.signal(x.flatten(2)).mean(2)
        return self.classifier(x)


def clip():
    torch.manual_seed(11)
    model, calibration = Clip(), [(torch.randn(1, 3, 4, 18, 20),) for _ in range(4)]
    for (batch,) in calibration:
        model(torch.cat([batch, batch * 0.5 + 0.1]))
    return model.eval(), calibration


def loss(floats, got):
    """Signal-to-noise in dB."""
    return (10 * torch.log10(floats.square().sum() / (floats - got).square().sum())).item()


@pytest.mark.parametrize("dynamic", [False, True])
def test_clips_and_signals_are_convolved_in_integers(dynamic):
    model, calibration = clip()
    program = quantized(model, CpuQuantizer(Int8(dynamic=dynamic)), calibration)
    compiled, expected = agree(program, calibration[0], 0.05)
    precisions = [entry.precision for entry in compiled.report.nodes if "convolution" in entry.op]
    assert len(precisions) == 6 and all(precision.startswith("int8") for precision in precisions), precisions
    with torch.no_grad():
        floats = model(*calibration[0])
    # As near to the float model as PyTorch's own execution of the quantized graph, but for what a few roundings do.
    assert loss(floats, compiled(*calibration[0])) >= loss(floats, expected) - 3


@pytest.mark.parametrize("scheme", ["int8", "int8-dynamic"])
def test_clips_and_signals_are_quantized_without_torchao(scheme):
    model, calibration = clip()
    program = rushlight.export(model, calibration[0], quantize=scheme, calibration=calibration, backend="cpu")
    layers = program.quantization.layers
    assert len(layers) == 7 and all(layer.kept is None and layer.snr > 25 for layer in layers), layers
    with torch.no_grad():
        assert loss(model(*calibration[0]), program(*calibration[0])) >= 25


def test_weights_alone_stay_integers():
    torch.manual_seed(2)
    floats = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 128)).eval()
    whole = len(rushlight.export(floats, (torch.randn(1, 256),), backend="cpu").buffer)
    for dtype, granularity, mapping, share in (
        (torch.int4, PerGroup(32), MappingType.ASYMMETRIC, 0.19),
        (torch.int4, PerGroup(64), MappingType.SYMMETRIC, 0.16),
        (torch.int8, PerAxis(0), MappingType.SYMMETRIC, 0.28),
        (torch.int8, PerGroup(32), MappingType.ASYMMETRIC, 0.32),
    ):
        model = copy.deepcopy(floats)
        config = IntxWeightOnlyConfig(weight_dtype=dtype, granularity=granularity, mapping_type=mapping)
        quantize_(model, config)
        # One row, and more: their products are different loops.
        for rows in (1, 3, 40):
            args = (torch.randn(rows, 256),)
            program = torch.export.export(model, args)
            compiled = rushlight.compile(program, backend="cpu")
            with torch.no_grad():
                expected = model(*args)
            # Rows are rounded to 16 bits where these are multiplied faster: elements to 2^-16 of the largest of 256, in two layers.
            assert (compiled(*args) - expected).abs().max() <= 1e-4 * expected.abs().max()
            assert len(compiled.buffer) <= share * whole, (dtype, granularity, len(compiled.buffer) / whole)


def test_rows_rounded_when_they_come_and_weights_in_groups():
    torch.manual_seed(5)
    # A single layer: where rounding is a close call, another order of additions would round the next layer's inputs otherwise.
    floats = nn.Sequential(nn.Linear(256, 200), nn.ReLU()).eval()
    whole = len(rushlight.export(floats, (torch.randn(1, 256),), backend="cpu").buffer)
    for dtype, granularity, mapping, share in (
        (torch.int4, PerGroup(32), MappingType.ASYMMETRIC, 0.22),
        (torch.int8, PerGroup(32), MappingType.SYMMETRIC, 0.32),
        (torch.int8, PerGroup(64), MappingType.ASYMMETRIC, 0.33),
        (torch.int8, PerAxis(0), MappingType.ASYMMETRIC, 0.33),
    ):
        model = copy.deepcopy(floats)
        config = Int8DynamicActivationIntxWeightConfig(
            weight_dtype=dtype, weight_granularity=granularity, weight_mapping_type=mapping
        )
        quantize_(model, config)
        for rows in (1, 3, 40):
            args = (torch.randn(rows, 256) * torch.linspace(0.1, 3, rows)[:, None],)
            compiled = rushlight.compile(torch.export.export(model, args), backend="cpu")
            bits = 4 if dtype == torch.int4 else 8
            precisions = [node.precision for node in compiled.report.nodes if node.precision]
            assert sum(f"int8 rows, weights of {bits} bits" in precision for precision in precisions) == 1, precisions
            with torch.no_grad():
                expected = model(*args)
            error = (compiled(*args) - expected).abs().max() / expected.abs().max()
            # Scales of groups of four bits are kept in 16.
            assert error <= (1e-3 if bits == 4 else 1e-5), (dtype, granularity, mapping, rows, error)
            assert len(compiled.buffer) <= share * whole, (dtype, granularity, len(compiled.buffer) / whole)


def test_tables_of_embeddings_stay_integers():
    torch.manual_seed(4)
    floats = nn.Sequential(nn.Embedding(2000, 64), nn.Linear(64, 8)).eval()
    args = (torch.randint(0, 2000, (2, 9)),)
    whole = len(rushlight.export(floats, args, backend="cpu").buffer)
    for dtype, granularity, share in (
        (torch.int8, PerAxis(0), 0.3),
        (torch.int8, PerGroup(32), 0.32),
        (torch.int4, PerGroup(32), 0.2),
        (torch.int2, PerGroup(32), 0.2),
    ):
        model = copy.deepcopy(floats)
        config = IntxWeightOnlyConfig(weight_dtype=dtype, granularity=granularity)
        quantize_(model, config, lambda module, name: isinstance(module, nn.Embedding))
        compiled = rushlight.compile(torch.export.export(model, args), backend="cpu")
        with torch.no_grad():
            expected = model(*args)
        assert (compiled(*args) - expected).abs().max() <= 1e-5 * expected.abs().max()
        assert len(compiled.buffer) <= share * whole, (dtype, granularity, len(compiled.buffer) / whole)


# torchao exports 114 patterns: a minute.
@pytest.mark.slow
def test_training_with_fake_quantization_folds_batch_norms():
    model, calibration = block().train(), batches()
    args = (torch.cat([calibration[0][0], calibration[1][0]]),)
    prepared = prepare_qat_pt2e(torch.export.export(model, args).module(check_guards=False), CpuQuantizer(Int8(qat=True)))
    optimizer = torch.optim.SGD(prepared.parameters(), lr=1e-3)
    for _ in range(3):
        prepared(*args).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    torch_ao_eval = __import__("torchao.quantization.pt2e", fromlist=["move_exported_model_to_eval"])
    torch_ao_eval.move_exported_model_to_eval(prepared)
    program = torch.export.export(convert_pt2e(prepared), args)
    assert not any("batch_norm" in str(node.target) for node in program.graph.nodes)
    agree(program, args, 0.05)


def test_scopes():
    model, calibration = block(), batches()
    whole = integers(quantized(model, CpuQuantizer(), calibration))
    named = CpuQuantizer().set_module_name("gate", None).set_module_name("classifier", None)
    without_gate = quantized(model, named, calibration)
    assert integers(without_gate) < whole
    agree(without_gate, calibration[0], 0.05)
    typed = CpuQuantizer().set_module_type(nn.Conv2d, None).set_operator_type(torch.ops.aten.linear.default, None)
    # Nothing is a product any more, and what follows floats stays floats.
    assert integers(quantized(model, typed, calibration)) == 0
    only = CpuQuantizer(None).set_module_name("project", Int8(per_channel=False, observer="minmax"))
    agree(quantized(model, only, calibration), calibration[0], 0.05)


def test_rules_for_what_a_model_does_not_have():
    model, calibration = block(), batches()
    with pytest.raises(ValueError, match="'gat'.*gate"):
        quantized(model, CpuQuantizer().set_module_name("gat", None), calibration)
    with pytest.warns(UserWarning, match="no LSTM"):
        quantized(model, CpuQuantizer().set_module_type(nn.LSTM, None), calibration)
    with pytest.warns(UserWarning, match="does not call aten.bmm"):
        quantized(model, CpuQuantizer().set_operator_type(torch.ops.aten.bmm.default, None), calibration)


def test_quantizers_compose():
    model, calibration = block(), batches()
    static = CpuQuantizer().set_module_name("classifier", None)
    dynamic = CpuQuantizer(None).set_module_name("classifier", Int8(dynamic=True))
    program = quantized(model, ComposableQuantizer([static, dynamic]), calibration)
    assert any("choose_qparams" in str(node.target) for node in program.graph.nodes)
    agree(program, calibration[0], 0.05)


def test_parameters_that_make_no_sense():
    class Rounded(nn.Module):
        def __init__(self, scale, zero_point):
            super().__init__()
            self.parameters_of_int8 = scale, zero_point, -128, 127, torch.int8

        def forward(self, x):
            integers = torch.ops.quantized_decomposed.quantize_per_tensor(x, *self.parameters_of_int8)
            return torch.ops.quantized_decomposed.dequantize_per_tensor(integers, *self.parameters_of_int8)

    args = (torch.randn(2, 3),)
    agree(torch.export.export(Rounded(0.1, -3), args), args, 0.0)
    for scale, zero_point in ((0.0, 0), (float("nan"), 0), (float("inf"), 0), (0.1, 128)):
        program = torch.export.export(Rounded(scale, zero_point), args)
        with pytest.raises(rushlight.Error, match="a scale|a zero point") as raised:
            rushlight.compile(program)
        assert "quantize_per_tensor" in str(raised.value)


def test_observers_that_saw_nothing():
    model, calibration = block(), batches()
    prepared = prepare_pt2e(torch.export.export(model, calibration[0]).module(check_guards=False), CpuQuantizer())
    with pytest.raises(rushlight.Error, match="calibrate"):
        rushlight.compile(torch.export.export(convert_pt2e(prepared), calibration[0]))


@pytest.mark.parametrize("calibration", [5, 0])
def test_a_calibration_that_is_no_iterable(calibration):
    with pytest.raises(TypeError, match="calibration: expected an iterable of inputs, got int"):
        rushlight.export(nn.Linear(2, 2), (torch.ones(1, 2),), quantize=CpuQuantizer(), calibration=calibration)


class Outliers(torch.nn.Module):
    """Layers of which one has an input with outliers, whose scale leaves the others no integers."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(64, 64) for _ in range(9))
        self.wild = torch.nn.Linear(64, 64)
        scale = torch.ones(64)
        scale[3] = 3000.0
        self.register_buffer("scale", scale)
        with torch.no_grad():
            self.wild.weight[:, 3] /= 3000.0

    def forward(self, x):
        wild = self.wild(x * self.scale)
        for layer in self.layers:
            x = x + torch.relu(layer(x)) * 0.1
        return x * 0.1 + wild


def test_the_report_proposes_layers_to_keep():
    torch.manual_seed(0)
    batches = [torch.randn(8, 64) for _ in range(8)]
    compiled = lambda **options: rushlight.export(
        Outliers().eval(), (batches[0],), quantize=rushlight.Quantization("int8", **options), calibration=batches
    ).quantization
    torch.manual_seed(0)
    report = compiled()
    assert report.output_snr < 30 and report.proposals, report
    proposal = report.proposals[0]
    assert proposal.keep == ["wild"] and proposal.output_snr > report.output_snr + 1 and proposal.method == "forward"
    # Of ten equal layers.
    assert proposal.nbytes > 2 * 64 * 64 and abs(proposal.multiplications - 0.1) < 1e-6
    assert "keep 1 more layer in floats: outputs" in repr(report) and "10.0 % of the multiplications" in repr(report)
    # The proposal is what it says.
    torch.manual_seed(0)
    kept = compiled(keep=tuple(proposal.keep))
    assert abs(kept.output_snr - proposal.output_snr) < 1.5, (kept, proposal)
    torch.manual_seed(0)
    assert compiled(min_snr=30).proposals == []


def test_a_calibration_is_missed():
    torch.manual_seed(0)
    model, x = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)).eval(), torch.randn(4, 64)
    with pytest.warns(rushlight.QuantizationWarning, match="no calibration: .*example inputs of the export.*calibration="):
        report = rushlight.export(model, (x,), quantize="int8").quantization
    assert (report.calibrated_on, report.samples, report.layers_in_integers) == ("example", 0, 2)
    report = rushlight.export(model, (x,), quantize="int8", calibration=[x]).quantization
    assert (report.calibrated_on, report.samples, report.warnings) == ("calibration", 1, [])
    assert rushlight.export(model, (x,), quantize="int8-dynamic").quantization.calibrated_on is None
