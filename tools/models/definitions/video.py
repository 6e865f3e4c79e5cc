"""torchvision's video classifiers, short and narrow, on clips of 8 frames."""

import torch
from registry import Model, model
from torch import nn
from torchvision.models import video
from torchvision.models.video import mvit as multiscale
from torchvision.models.video import resnet, swin_transformer
from vision import settle


def clip(frames, side, batch=1):
    return torch.randn(batch, 3, frames, side, side)


def clips(network, frames=8, side=32):
    network = settle(network, clip(frames, side, 2))
    return Model(network, [(clip(frames, side),), (clip(frames, side),)])


def residual(convolutions, stem=resnet.BasicStem):
    """A block a stage, without the two last stages, which have most of the weights."""
    network = resnet.VideoResNet(resnet.BasicBlock, convolutions, [1, 1, 1, 1], stem, num_classes=50)
    network.layer3, network.layer4, network.fc = nn.Identity(), nn.Identity(), nn.Linear(128, 50)
    return clips(network)


@model
def r3d():
    return residual([resnet.Conv3DSimple] * 4)


@model
def mc3():
    return residual([resnet.Conv3DSimple] + [resnet.Conv3DNoTemporal] * 3)


@model
def r2plus1d():
    return residual([resnet.Conv2Plus1D] * 4, resnet.R2Plus1dStem)


@model
def s3d():
    """Up to the second of the inception blocks."""
    network = video.s3d(num_classes=50)
    network.features = network.features[:7]
    network.avgpool = nn.AvgPool3d(kernel_size=(2, 2, 2), stride=1)
    network.classifier[1] = nn.Conv3d(480, 50, 1)
    return clips(network)


@model
def mvit():
    blocks = [
        multiscale.MSBlockConfig(1, 16, 32, [3, 3, 3], [3, 3, 3], [1, 1, 1], [1, 2, 2]),
        multiscale.MSBlockConfig(2, 32, 32, [3, 3, 3], [3, 3, 3], [1, 2, 2], [1, 1, 1]),
    ]
    network = multiscale.MViT(
        spatial_size=(32, 32), temporal_size=8, block_setting=blocks, residual_pool=True, residual_with_cls_embed=False,
        rel_pos_embed=True, proj_after_attn=True, num_classes=50,
    )
    return clips(network)


@model
def swin3d():
    network = swin_transformer.SwinTransformer3d(
        patch_size=[2, 4, 4], embed_dim=24, depths=[2, 1], num_heads=[2, 4], window_size=[2, 4, 4], num_classes=50
    )
    return clips(network)
