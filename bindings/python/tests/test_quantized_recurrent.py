"""Recurrent layers in int8, against the same arithmetic in eager PyTorch and against `quantize_dynamic`. Needs torch."""

import pytest

torch = pytest.importorskip("torch")

import rushlight
from torch import nn
from torch.ao.quantization.fx import _decomposed  # noqa: F401, defines the operators of quantized tensors

_OPS = torch.ops.quantized_decomposed
# With the nearest integers, weights are rounded like those of PyTorch's observers.
NEAREST = rushlight.Quantization("int8-dynamic", weights="nearest")


def rows(x):
    """Rounds each row to int8, with a scale and a zero point of its own."""
    scale, zero = _OPS.choose_qparams_per_token_asymmetric(x, torch.int8)
    integers = _OPS.quantize_per_token(x, scale, zero, -128, 127, torch.int8)
    return _OPS.dequantize_per_token(integers, scale, zero, -128, 127, torch.int8, torch.float32)


def weights(w):
    """Rounds a weight to int8, with a scale for each output channel."""
    scales = w.abs().amax(1).clamp(min=torch.finfo(torch.float32).eps * 127) / 127
    zeros = torch.zeros(len(scales), dtype=torch.int64)
    integers = _OPS.quantize_per_channel(w, scales, zeros, 0, -127, 127, torch.int8)
    return _OPS.dequantize_per_channel(integers, scales, zeros, 0, -127, 127, torch.int8)


def layers(module, x, cell):
    """The outputs of a recurrent module with rounded weights and rounded inputs of its linear layers; states are floats."""
    for layer in range(module.num_layers):
        outputs = []
        for direction in range(2 if module.bidirectional else 1):
            suffix = f"l{layer}" + ("_reverse" if direction else "")
            of = lambda name: getattr(module, f"{name}_{suffix}")
            inputs = nn.functional.linear(rows(x), weights(of("weight_ih")), of("bias_ih"))
            hidden = torch.zeros(x.shape[1], module.hidden_size)
            state, steps = torch.zeros_like(hidden), []
            for at in reversed(range(len(x))) if direction else range(len(x)):
                recurrent = nn.functional.linear(rows(hidden), weights(of("weight_hh")), of("bias_hh"))
                hidden, state = cell(inputs[at], recurrent, hidden, state)
                steps.append(hidden)
            outputs.append(torch.stack(steps[::-1] if direction else steps))
        x = torch.cat(outputs, 2)
    return x


def lstm_cell(inputs, recurrent, hidden, state):
    i, f, g, o = (inputs + recurrent).chunk(4, 1)
    state = f.sigmoid() * state + i.sigmoid() * g.tanh()
    return o.sigmoid() * state.tanh(), state


def gru_cell(inputs, recurrent, hidden, state):
    (r, z, n), (hidden_r, hidden_z, hidden_n) = inputs.chunk(3, 1), recurrent.chunk(3, 1)
    update, new = (z + hidden_z).sigmoid(), (n + (r + hidden_r).sigmoid() * hidden_n).tanh()
    return (hidden - new) * update + new, state


def loss(floats, got):
    """Signal-to-noise in dB."""
    return (10 * torch.log10(floats.square().sum() / (floats - got).square().sum())).item()


MODULES = {
    "lstm": (nn.LSTM(24, 32, num_layers=2, bidirectional=True), lstm_cell),
    "gru": (nn.GRU(24, 32, num_layers=2), gru_cell),
}


# Short sequences are unrolled when they are compiled, long ones are loops.
@pytest.mark.parametrize("length", [9, 50])
@pytest.mark.parametrize("name", MODULES)
def test_layers_have_the_arithmetic_of_pytorch(name, length):
    torch.manual_seed(3)
    module, cell = MODULES[name]
    module.eval()
    x = torch.randn(length, 2, 24)
    with torch.no_grad():
        floats, expected = module(x)[0], layers(module, x, cell)
    program = rushlight.compile(torch.export.export(module, (x,)), quantize=NEAREST, backend="cpu")
    got = program(x)[0]
    # Both sides round the same numbers, unless one of them lies between two integers.
    assert loss(expected, got) >= loss(floats, expected) + 20, (loss(expected, got), loss(floats, expected))
    assert loss(floats, got) >= 40
    # Each parameter is one layer, however many steps use it.
    weights = [name for name, _ in module.named_parameters() if "weight" in name]
    quantized = program.quantization.layers
    assert sorted(layer.name for layer in quantized) == sorted(weights)
    assert all(layer.kept is None and layer.bytes_after < 0.3 * layer.bytes_before for layer in quantized)
    products = [entry for entry in program.report.nodes if entry.precision and "int8" in entry.precision]
    assert len(products) >= len(weights)
    assert all(entry.backend == "RushlightCpu" for entry in program.report.nodes if entry.op in ("aten::addmm", "aten::mm"))


def test_layers_lose_less_than_those_of_quantize_dynamic():
    if not torch.backends.quantized.supported_engines:
        pytest.skip("this build of torch has no quantized kernels")
    torch.manual_seed(5)
    for name, (module, _) in MODULES.items():
        x = torch.randn(40, 3, 24)
        module.eval()
        theirs = torch.ao.quantization.quantize_dynamic(nn.Sequential(module), {nn.LSTM, nn.GRU}, torch.qint8)
        program = rushlight.export(module, (x,), quantize="int8-dynamic", backend="cpu")
        with torch.no_grad():
            floats, other = module(x)[0], theirs(x)[0]
        assert loss(floats, program(x)[0]) >= max(loss(floats, other), 30), name


class Sounds(nn.Module):
    """Convolutions over a signal, a recurrent layer and a classifier."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv1d(4, 32, 5, padding=2), nn.ReLU(), nn.Conv1d(32, 32, 3, padding=1), nn.ReLU())
        self.recurrent = nn.LSTM(32, 48, batch_first=True)
        self.classifier = nn.Linear(48, 6)

    def forward(self, x):
        x, (_, state) = self.recurrent(self.features(x).transpose(1, 2))
        return self.classifier(x[:, -1]), state


@pytest.mark.parametrize("length", [12, 60])
def test_static_int8_leaves_the_states_of_recurrent_layers_in_floats(length):
    torch.manual_seed(7)
    model, calibration = Sounds().eval(), [(torch.randn(1, 4, length),) for _ in range(6)]
    program = rushlight.export(model, calibration[0], quantize="int8", calibration=calibration, backend="cpu")
    names = {layer.name: layer for layer in program.quantization.layers}
    assert set(names) == {"features.0", "features.2", "recurrent.weight_ih_l0", "recurrent.weight_hh_l0", "classifier"}
    assert all(layer.kept is None for layer in names.values())
    # Only layers whose scales are known when the program is compiled have a range.
    assert {name for name, layer in names.items() if layer.range is None} == {"recurrent.weight_ih_l0", "recurrent.weight_hh_l0"}
    with torch.no_grad():
        for expected, got in zip(model(*calibration[0]), program(*calibration[0])):
            assert loss(expected, got) >= 30


def test_cells_and_plain_layers_are_quantized():
    class Cells(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.third = nn.LSTMCell(16, 32), nn.GRUCell(32, 32), nn.RNN(32, 32)

        def forward(self, x, hidden, state):
            first, state = self.first(x, (hidden, state))
            return self.third(self.second(first, hidden)[None], hidden[None])[0], state

    torch.manual_seed(9)
    model, args = Cells().eval(), (torch.randn(3, 16), torch.randn(3, 32), torch.randn(3, 32))
    for scheme in ("int8-dynamic", "int8", "int8-weight"):
        program = rushlight.export(model, args, quantize=scheme, calibration=[args] if scheme == "int8" else None, backend="cpu")
        assert program.quantization.layers_in_integers == len(program.quantization.layers) == 6, scheme
        with torch.no_grad():
            for expected, got in zip(model(*args), program(*args)):
                assert loss(expected, got) >= 30, scheme


def test_modules_are_kept_in_floats_by_name():
    torch.manual_seed(7)
    model, args = Sounds().eval(), (torch.randn(1, 4, 12),)
    for keep, kept in (("recurrent", 2), ("recurrent.weight_hh_l0", 1)):
        how = rushlight.Quantization("int8-dynamic", keep=[keep])
        program = rushlight.export(model, args, quantize=how, backend="cpu")
        assert sum(layer.kept is not None for layer in program.quantization.layers) == kept
