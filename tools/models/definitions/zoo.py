"""Shared code of the zoo's models: architectures as their libraries build them, with weights of a useful scale."""

import inspect

import torch
import transformers
from huggingface import Outputs
from registry import Model, model
from torch import nn
from transformers.pytorch_utils import Conv1D

VOCABULARY = 999


def enliven(network):
    """Gives the weights of layers the scale that keeps activations as they are, and every vector some noise.

    With the usual initial weights of a fiftieth, attention is even and errors in it would not show.
    """
    network.eval().requires_grad_(False)
    with torch.no_grad():
        for part in network.modules():
            weight = getattr(part, "weight", None)
            if not isinstance(weight, nn.Parameter):
                continue
            if isinstance(part, nn.Embedding):
                weight.normal_(std=0.5)
            elif isinstance(part, Conv1D):
                weight.normal_(std=weight.shape[0] ** -0.5)
            elif isinstance(part, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d) and "parametrizations" not in part._modules:
                weight.normal_(std=(weight[0].numel()) ** -0.5)
        for name, parameter in network.named_parameters():
            if parameter.dim() == 1 and parameter.is_floating_point():
                parameter.add_(0.05 * torch.randn_like(parameter))
            if "layer_scale" in name or name.endswith("lambda1") or name.endswith((".gamma_1", ".gamma_2")):
                parameter.fill_(0.5)
    return network


def settle(network, *sample):
    """Gives batch norms the statistics of random inputs: with the initial ones, activations of deep models vanish."""
    norms = [part for part in network.modules() if isinstance(part, nn.modules.batchnorm._BatchNorm)]
    network.eval().requires_grad_(False)
    with torch.no_grad():
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None
            # Before the run, since the layers behind are to see what this one gives.
            if norm.affine:
                norm.weight.copy_(0.8 + 0.4 * torch.rand_like(norm.weight))
                norm.bias.copy_(0.1 * torch.randn_like(norm.bias))
            norm.train()
        if norms:
            network(*sample)
        for norm in norms:
            norm.eval()
    return network


def configured(architecture, **options):
    """A network of transformers with this configuration, and batch norms that have seen nothing yet."""
    network = getattr(transformers, architecture)
    options = {key: option() if callable(option) else option for key, option in options.items()}
    return enliven(network(network.config_class(**options)))


def register(family, name, architecture, inputs, fields, example, options):
    """Registers an architecture of transformers: `example()` makes the arguments of a call.

    Configurations of parts are functions among the options, as each network needs one of its own.
    """

    def build():
        network = Outputs(configured(architecture, **options), inputs, fields)
        calls = [example() for _ in range(2)]
        batches = (torch.cat(parts) for parts in zip(*(example() for _ in range(4))))
        return Model(settle(network, *batches), calls, beyond_core=True, beyond_wheel=True)

    sources = [inspect.getsource(part) for part in (example, *options.values()) if callable(part)]
    plain = {key: option for key, option in options.items() if not callable(option)}
    model(build, name=name, family=family, row=repr((architecture, inputs, fields, plain, sources)))
