"""Programs for timing what the runtime costs by itself: chains of additions and products of one-element tensors."""

import torch
from registry import Model, Module, model


def chain(length):
    def run(x, y):
        for step in range(length):
            x = x + y if step % 2 == 0 else x * y
        return x

    # The values stay small, so that a hundred operators neither overflow nor vanish.
    return Model(Module(run), [(torch.ones(1), torch.ones(1)), (torch.full((1,), 0.5), torch.full((1,), -0.75))])


@model(bench=True)
def chain2():
    return chain(2)


@model(bench=True)
def chain100():
    return chain(100)
