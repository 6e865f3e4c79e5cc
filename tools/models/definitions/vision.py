"""Vision models: torchvision's architectures with random weights at small image sizes, and a UNet."""

import torch
import torchvision.models as architectures
from registry import Model, image, model, uniform
from torch import nn


def settle(network, sample):
    """Makes a randomly initialised network's activations well scaled.

    The running statistics of batch normalisation come from a pass over `sample`, a batch of noise, and heads that start
    at zero get small weights; otherwise the outputs of a deep network vanish and say nothing.
    """
    norms = [part for part in network.modules() if isinstance(part, nn.modules.batchnorm._BatchNorm)]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None
    if norms:
        network.train()
        network(sample)
    for norm in norms:
        norm.weight.copy_(0.8 + 0.4 * torch.rand_like(norm.weight))
        norm.bias.copy_(0.1 * torch.randn_like(norm.bias))
    for part in network.modules():
        if isinstance(part, nn.Linear) and not part.weight.any():
            part.weight.copy_(0.02 * torch.randn_like(part.weight))
    return network.eval()


def classifier(name, side, **options):
    network = settle(getattr(architectures, name)(weights=None, num_classes=100, **options), image(side, 4))
    return Model(network, [(image(side),), (image(side),)])


@model
def mobilenet_v2():
    return classifier("mobilenet_v2", 96)


@model
def mobilenet_v3_small():
    return classifier("mobilenet_v3_small", 96)


@model
def mobilenet_v3_small_224():
    return Model(settle(architectures.mobilenet_v3_small(weights=None), image(224, 4)), [(image(224),)])


@model
def resnet18():
    return classifier("resnet18", 64)


@model
def shufflenet():
    return classifier("shufflenet_v2_x0_5", 64)


@model
def squeezenet():
    return classifier("squeezenet1_1", 64)


@model
def efficientnet_b0():
    return classifier("efficientnet_b0", 64)


@model
def mnasnet():
    return classifier("mnasnet0_5", 64)


@model
def densenet():
    network = architectures.DenseNet(growth_rate=8, block_config=(3, 6, 6), num_init_features=16, num_classes=100)
    return Model(settle(network, image(64, 4)), [(image(64),), (image(64),)])


@model
def googlenet():
    return classifier("googlenet", 64, aux_logits=False, init_weights=False, transform_input=True)


@model
def regnet():
    return classifier("regnet_y_400mf", 64)


@model
def convnext():
    network = architectures.ConvNeXt(
        [architectures.convnext.CNBlockConfig(*block) for block in ((16, 32, 2), (32, 64, 2), (64, None, 2))],
        num_classes=100,
        layer_scale=0.5,
    )
    return Model(network, [(image(64),), (image(64),)])


@model
def vision_transformer():
    network = architectures.VisionTransformer(
        image_size=64, patch_size=16, num_layers=3, num_heads=3, hidden_dim=96, mlp_dim=192, num_classes=100
    )
    return Model(settle(network, image(64, 4)), [(image(64),), (image(64),)])


@model
def swin():
    network = architectures.SwinTransformer(
        patch_size=[4, 4], embed_dim=24, depths=[2, 2], num_heads=[2, 4], window_size=[4, 4], num_classes=100
    )
    return Model(network, [(image(64),), (image(64),)])


class Dense(nn.Module):
    """The dictionary of a segmentation network as it is, with its keys."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, picture):
        return dict(self.network(picture))


@model
def lraspp():
    """Segmentation on MobileNetV3 with bilinear upsampling to the picture's size."""
    network = architectures.segmentation.lraspp_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=5)
    return Model(Dense(settle(network, image(96, 4))), [(image(96),), (image(96),)])


class Block(nn.Sequential):
    def __init__(self, inputs, outputs):
        super().__init__(
            nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.LeakyReLU(0.1),
            nn.Conv2d(outputs, outputs, 3, padding=1),
            nn.GroupNorm(4, outputs),
            nn.SiLU(),
        )


class UNet(nn.Module):
    """Transposed convolutions on one level, bilinear and nearest upsampling on the others, skips by concatenation."""

    def __init__(self):
        super().__init__()
        self.down = nn.ModuleList([Block(3, 8), Block(8, 16), Block(16, 32)])
        self.bottom = Block(32, 64)
        self.raise_ = nn.ModuleList([
            nn.ConvTranspose2d(64, 32, 2, stride=2),
            nn.Sequential(nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True), nn.Conv2d(32, 16, 1)),
            nn.Sequential(nn.Upsample(scale_factor=2, mode="nearest"), nn.Conv2d(16, 8, 1)),
        ])
        self.up = nn.ModuleList([Block(64, 32), Block(32, 16), Block(16, 8)])
        self.head = nn.Conv2d(8, 2, 1)

    def forward(self, x):
        skips = []
        for block in self.down:
            x = block(x)
            skips.append(x)
            x = nn.functional.max_pool2d(x, 2)
        x = self.bottom(x)
        for raise_, block in zip(self.raise_, self.up):
            x = block(torch.cat([raise_(x), skips.pop()], dim=1))
        return self.head(x)


@model
def unet():
    return Model(settle(UNet(), image(64, 4)), [(image(64),), (image(64),)])


@model
def super_resolution():
    """Residual convolutions and a pixel shuffle."""

    class Upscale(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Conv2d(3, 16, 3, padding=1)
            self.body = nn.ModuleList([nn.Conv2d(16, 16, 3, padding=1, padding_mode="reflect") for _ in range(3)])
            self.tail = nn.Conv2d(16, 12, 3, padding=1)

        def forward(self, x):
            x = self.head(x)
            for conv in self.body:
                x = x + 0.5 * torch.relu(conv(x))
            return nn.functional.pixel_shuffle(self.tail(x), 2).clamp(0, 1)

    return Model(Upscale(), [(torch.rand(1, 3, 24, 32),)])


@model
def channels_last():
    """Weights and pictures with the channels innermost, into a network whose output is as well."""
    network = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU6(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3)
    )
    return innermost_channels(network)


@model
def channels_last_depthwise():
    """Two things that ExecuTorch's own kernels refuse: a depthwise weight, to which its exporter gives the dim order
    (0, 2, 1, 3), and batch normalisation of channels-last activations."""
    depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8)
    return innermost_channels(settle(nn.Sequential(nn.Conv2d(3, 8, 1), depthwise, nn.BatchNorm2d(8)), image(32, 4)))


def innermost_channels(network):
    network = network.to(memory_format=torch.channels_last)
    return Model(network, [(image(32).to(memory_format=torch.channels_last),) for _ in range(2)])


@model
def grid_sampler():
    """A spatial transformer: an affine grid, bilinear and nearest sampling."""

    class Transformer(nn.Module):
        def forward(self, x, theta):
            grid = nn.functional.affine_grid(theta, [1, 2, 12, 12], align_corners=False)
            smooth = nn.functional.grid_sample(x, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
            near = nn.functional.grid_sample(x, grid, mode="nearest", padding_mode="border", align_corners=True)
            return smooth, near

    theta = torch.tensor([[[0.8731, 0.3127, 0.1093], [-0.2939, 0.9177, 0.0511]]])
    return Model(Transformer(), [(uniform(1, 2, 12, 12), theta), (uniform(1, 2, 12, 12), 1.5 * theta)])
