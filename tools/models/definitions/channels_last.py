"""Images with the channels innermost, through networks that can keep them so, and that cannot all the way."""

import torch
from registry import Model, image, model
from torch import nn


class Residual(nn.Module):
    """A convolution around which its input goes as well, between pictures of half the size."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.inner = nn.Conv2d(8, 8, 3, padding=1)
        self.last = nn.Conv2d(8, 4, 1)

    def features(self, x):
        x = nn.functional.max_pool2d(torch.relu(self.stem(x)), 2)
        return x + nn.functional.hardtanh(self.inner(x)) * 0.5

    def forward(self, x):
        larger = nn.functional.interpolate(self.features(x), scale_factor=2, mode="nearest")
        return torch.sigmoid(self.last(larger))


class Classifier(Residual):
    """With a head that takes row-major features only: ExecuTorch's mean refuses any others."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        return self.head(self.features(x).mean((2, 3)))


@model
def channels_last_residual():
    return innermost_channels(Residual())


@model
def channels_last_classifier():
    return innermost_channels(Classifier())


def innermost_channels(network):
    pictures = [image(16, 2).to(memory_format=torch.channels_last) for _ in range(2)]
    return Model(network.to(memory_format=torch.channels_last), [(picture,) for picture in pictures])
