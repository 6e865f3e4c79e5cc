"""Sizes of which some are known only in a call, in operators that broadcast, reshape and exchange dimensions."""

import torch
from registry import Model, Module, model, uniform
from torch import nn
from torch.export import Dim
from torch.nn import functional

TIME = Dim("time", min=3, max=20)


def sequences(*shape):
    """Three calls, `None` in the shape standing for the length."""
    return [(uniform(*(length if size is None else size for size in shape)),) for length in (8, 3, 20)]


@model
def transposed_linear():
    """A fixed size is not in front, and the decomposed linear layer expands what may be one row or as many as there are."""

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.mix, self.own = nn.Linear(5, 7), nn.Linear(2, 3, bias=False)

        def forward(self, x):
            mixed = self.mix(x.transpose(0, 1))
            return mixed, self.own(x.permute(1, 2, 0)), mixed.transpose(0, 1).softmax(-1)

    return Model(Network(), sequences(2, None, 5), dynamic=({1: TIME},))


@model
def self_attention():
    """`nn.MultiheadAttention` over sequences of any length, with the mask of a decoder."""

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(24, 4, batch_first=True)

        def forward(self, x):
            mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
            mixed, weights = self.attention(x, x, x, attn_mask=mask)
            return mixed, weights

    return Model(Network(), sequences(2, None, 24), dynamic=({1: TIME},))


@model
def expanded():
    """Expansions to sizes that the tensor has already, as far as one can tell when compiling."""
    weights = uniform(2, 5, 6)

    def run(x):
        t = x.shape[1]
        wide = x.expand(2, t, 5)
        return (
            wide * x,
            wide.softmax(0),
            wide.transpose(1, 2).exp(),
            torch.bmm(wide, weights),
            torch.cat([wide, x], 2),
            torch.matmul(x[:, None], weights[None]),
            x[:, None].expand(2, 3, t, 5).sum(1),
        )

    return Model(Module(run), sequences(2, None, 5), dynamic=(({1: TIME},),))


@model
def differences():
    """Neighbours along a dimension of any length."""
    return Model(Module(lambda x: (x.diff(dim=1), functional.linear(x, torch.ones(3, 5)).diff(dim=1))), sequences(2, None, 5), dynamic=(({1: TIME},),))
