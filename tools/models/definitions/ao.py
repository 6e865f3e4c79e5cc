"""Linear layers that torchao quantized before the export: weights as tensor subclasses, and the same taken apart."""

import torch
from registry import Model, model, uniform
from torch import nn
from torchao.quantization import Int8DynamicActivationIntxWeightConfig, IntxWeightOnlyConfig, MappingType, quantize_
from torchao.quantization.granularity import PerGroup
from torchao.utils import unwrap_tensor_subclass


def perceptron(config):
    network = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 32)).eval()
    quantize_(network, config)
    return network


def model_of(network):
    return Model(network, [(uniform(3, 64),), (uniform(3, 64),)], tolerance=1e-2, beyond_wheel=True)


def four_bits(**options):
    return Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int4, weight_granularity=PerGroup(32), **options)


@model
def ao_8da4w():
    """Four-bit weights and activations of eight, chosen in the program; the file holds pickled weights."""
    return model_of(perceptron(four_bits()))


@model
def ao_8da4w_unwrapped():
    return model_of(unwrap_tensor_subclass(perceptron(four_bits())))


@model
def ao_8da4w_zero_points():
    """Groups whose zero points are not 0."""
    config = four_bits(weight_mapping_type=MappingType.ASYMMETRIC)
    return model_of(unwrap_tensor_subclass(perceptron(config)))


@model
def ao_weight_only():
    config = IntxWeightOnlyConfig(weight_dtype=torch.int8, granularity=PerGroup(32))
    return model_of(unwrap_tensor_subclass(perceptron(config)))
