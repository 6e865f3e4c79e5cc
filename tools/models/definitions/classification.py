"""The families of torchvision's classifiers that `vision` leaves out, with few and narrow layers."""

import torchvision.models as architectures
from registry import Model, image, model
from torch import nn
from torchvision.models import efficientnet, inception, resnet, swin_transformer, vgg
from vision import settle


def pictures(network, side):
    return Model(settle(network, image(side, 4)), [(image(side),), (image(side),)])


@model
def alexnet():
    network = architectures.AlexNet(num_classes=100)
    network.avgpool = nn.AdaptiveAvgPool2d(2)
    network.classifier = nn.Sequential(nn.Dropout(), nn.Linear(1024, 128), nn.ReLU(inplace=True), nn.Linear(128, 100))
    return pictures(network, 96)


@model
def vgg_bn():
    network = architectures.VGG(vgg.make_layers([16, "M", 32, "M", 64, 64, "M"], batch_norm=True), num_classes=100)
    network.avgpool = nn.AdaptiveAvgPool2d(2)
    network.classifier = nn.Sequential(nn.Linear(256, 64), nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(64, 100))
    return pictures(network, 48)


@model
def inception_v3():
    """One block of each kind before the last, whose thousands of channels are those of the others again."""
    network = nn.Sequential(
        inception.BasicConv2d(3, 16, kernel_size=3, stride=2),
        nn.MaxPool2d(3, stride=2),
        inception.InceptionA(16, pool_features=8),
        inception.InceptionB(232),
        inception.InceptionC(712, channels_7x7=16),
        inception.InceptionD(768),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(1280, 100),
    )
    return pictures(network, 64)


def residual(layers=(1, 1, 1, 1), **options):
    """Bottleneck blocks without the last stage, which has most of the weights."""
    network = architectures.ResNet(resnet.Bottleneck, list(layers), num_classes=100, **options)
    network.layer4, network.fc = nn.Identity(), nn.Linear(1024, 100)
    return pictures(network, 64)


@model
def resnet50_short():
    return residual((2, 2, 2, 1))


@model
def resnext():
    return residual(groups=8, width_per_group=8)


@model
def wide_resnet():
    return residual(width_per_group=96)


@model
def efficientnet_v2():
    stages = [
        efficientnet.FusedMBConvConfig(1, 3, 1, 8, 8, 1),
        efficientnet.FusedMBConvConfig(4, 3, 2, 8, 16, 2),
        efficientnet.MBConvConfig(4, 3, 2, 16, 24, 2),
        efficientnet.MBConvConfig(6, 3, 2, 24, 32, 1),
    ]
    return pictures(architectures.EfficientNet(stages, dropout=0.2, last_channel=128, num_classes=100), 64)


@model
def maxvit():
    network = architectures.MaxVit(
        input_size=(64, 64), stem_channels=16, partition_size=2, block_channels=[16, 32], block_layers=[1, 1],
        head_dim=8, stochastic_depth_prob=0.0, num_classes=100,
    )
    return pictures(network, 64)


@model
def swin_v2():
    network = architectures.SwinTransformer(
        patch_size=[4, 4], embed_dim=24, depths=[2, 2], num_heads=[2, 4], window_size=[4, 4], num_classes=100,
        block=swin_transformer.SwinTransformerBlockV2, downsample_layer=swin_transformer.PatchMergingV2,
    )
    return pictures(network, 64)


@model
def resnet_gradients():
    """Exported with weights that require gradients."""
    network = architectures.ResNet(resnet.BasicBlock, [1, 1, 1, 1], num_classes=10)
    network.layer3, network.layer4, network.fc = nn.Identity(), nn.Identity(), nn.Linear(128, 10)
    program = pictures(network, 32)
    program.gradients = True
    return program
