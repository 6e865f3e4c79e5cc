"""Recurrent models and models of one-dimensional signals."""

import torch
from registry import Model, Module, model, tokens, uniform
from torch import nn
from torch.export import Dim


@model
def lstm():
    """Two layers; the states come in and go out."""
    network = nn.LSTM(12, 16, num_layers=2, batch_first=True)

    def state():
        return uniform(2, 3, 16), uniform(2, 3, 16)

    return Model(network, [(uniform(3, 7, 12), state()), (uniform(3, 7, 12), state())])


@model
def lstm_bidirectional():
    return Model(nn.LSTM(12, 8, bidirectional=True), [(uniform(6, 2, 12),), (uniform(6, 2, 12),)])


@model
def gru():
    return Model(nn.GRU(12, 16, num_layers=2, batch_first=True), [(uniform(3, 7, 12),), (uniform(3, 7, 12),)])


@model
def elman():
    """A plain recurrent layer with tanh, and its classifier."""

    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(50, 12, padding_idx=0)
            self.recurrent = nn.RNN(12, 16, batch_first=True)
            self.classifier = nn.Linear(16, 5)

        def forward(self, words):
            states, _ = self.recurrent(self.embedding(words))
            return torch.log_softmax(self.classifier(states), dim=-1)

    return Model(Tagger(), [(tokens(50, 2, 6),), (tokens(50, 2, 6),)])


@model
def wav2letter():
    """One-dimensional convolutions over a signal of dynamic length."""
    network = nn.Sequential(
        nn.Conv1d(1, 16, 31, stride=8, padding=15),
        nn.ReLU(),
        nn.Conv1d(16, 32, 9, padding=4, groups=2),
        nn.BatchNorm1d(32),
        nn.Hardswish(),
        nn.Conv1d(32, 32, 5, dilation=2, padding=4),
        nn.PReLU(32),
        nn.AvgPool1d(2),
        nn.Conv1d(32, 29, 1),
        nn.LogSoftmax(dim=1),
    )
    length = Dim("length", min=4, max=60)
    calls = [(uniform(1, 1, 16 * n),) for n in (20, 4, 60)]
    return Model(network, calls, dynamic=({2: 16 * length},))


@model
def volume():
    """Three-dimensional convolution and pooling."""
    network = nn.Sequential(
        nn.Conv3d(2, 4, 3, padding=1), nn.ELU(), nn.AvgPool3d(2), nn.Conv3d(4, 6, 3, stride=2, padding=1), nn.Softplus()
    )
    return Model(network, [(uniform(1, 2, 6, 8, 8),)])


@model
def spectrum():
    """A mel-like front end: frames, a window, a power spectrum by matrix products, logarithm, normalisation."""
    angle = 2 * torch.pi * torch.arange(33)[:, None] * torch.arange(64)[None] / 64
    window = torch.hann_window(64)
    filters = torch.rand(33, 10)
    frame = 32 * torch.arange(15)[:, None] + torch.arange(64)

    def front_end(signal):
        frames = signal[:, frame] * window
        power = (frames @ angle.cos().T).square() + (frames @ angle.sin().T).square()
        mel = torch.log(torch.clamp(power @ filters, min=1e-5))
        return (mel - mel.mean(dim=1, keepdim=True)) / (mel.std(dim=1, keepdim=True) + 1e-3)

    return Model(Module(front_end), [(uniform(2, 512),), (uniform(2, 512),)])
