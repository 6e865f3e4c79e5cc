"""All classifiers, segmentation networks and classifiers of clips that torchvision registers, as its builders make them.

Images have the smallest side that a network takes, or 64. Variants that differ from a smaller one in depth and width have
fewer blocks in each stage, the widest also a fourth of the channels; what is fully connected in VGG and AlexNet, most of
their weights, is narrow.
"""

import contextlib
from unittest import mock

import torch
from registry import Model, image, model
from torch import nn
from torchvision import models
from torchvision.models import convnext, densenet, efficientnet, maxvit, regnet, resnet, segmentation, swin_transformer, video
from torchvision.models import vision_transformer as vit
from torchvision.models.video import mvit as multiscale
from torchvision.models.video import swin_transformer as windows
from vision import Dense
from zoo import enliven, settle

CLASSES = 100
SIDES = {"vgg": 32, "inception": 75, "vit_h_14": 28}
# Those of full depth, of families with deeper ones.
WHOLE = (
    "resnet18", "resnet34", "resnet50", "resnext50_32x4d", "wide_resnet50_2", "densenet121", "efficientnet_b0",
    "efficientnet_v2_s", "convnext_tiny", "regnet_x_400mf", "regnet_y_400mf", "swin_t", "swin_v2_t", "swin3d_t", "vit_b_16",
    "vit_b_32", "deeplabv3_resnet50", "fcn_resnet50",
)  # fmt: skip
WIDEST = ("regnet_x_16gf", "regnet_x_32gf", "regnet_y_16gf", "regnet_y_32gf", "regnet_y_128gf")


def capped(numbers, limit):
    return [min(number, limit) for number in numbers]


def shallow(settings):
    """At most two blocks of every kind."""
    for setting in settings:
        setting.num_layers = min(setting.num_layers, 2)
    return settings


def shorter_regnet(parameters, narrow):
    parameters.depths = capped(parameters.depths, 2)
    if narrow:
        parameters.widths = [width // 4 for width in parameters.widths]
        parameters.group_widths = [width // 4 for width in parameters.group_widths]
    return parameters


def shorter(name):
    """Replaces what builders call by the same with fewer blocks."""
    change = contextlib.ExitStack()

    def replace(owner, name, make):
        change.enter_context(mock.patch.object(owner, name, make))

    if name not in WHOLE:
        residual, dense, efficient, regular = resnet.ResNet, densenet.DenseNet, efficientnet.EfficientNet, regnet.RegNet
        following, swin, swin3d, transformer = convnext.ConvNeXt, swin_transformer.SwinTransformer, windows.SwinTransformer3d, vit.VisionTransformer
        replace(resnet, "ResNet", lambda block, layers, **o: residual(block, capped(layers, 4), **o))
        replace(densenet, "DenseNet", lambda growth, blocks, stem, **o: dense(growth, capped(blocks, 6), stem, **o))
        replace(efficientnet, "EfficientNet", lambda settings, dropout, **o: efficient(shallow(settings), dropout, **o))
        replace(regnet, "RegNet", lambda blocks, **o: regular(shorter_regnet(blocks, name in WIDEST), **o))
        replace(convnext, "ConvNeXt", lambda settings, **o: following(shallow(settings), **o))
        replace(swin_transformer, "SwinTransformer", lambda **o: swin(**o | {"depths": capped(o["depths"], 2)}))
        replace(windows, "SwinTransformer3d", lambda **o: swin3d(**o | {"depths": capped(o["depths"], 2)}))
        replace(vit, "VisionTransformer", lambda **o: transformer(**o | {"num_layers": min(o["num_layers"], 3)}))
    attention, clips = maxvit.MaxVit, multiscale.MViT
    replace(maxvit, "MaxVit", lambda **o: attention(**o | {"input_size": (64, 64), "partition_size": 2}))
    replace(multiscale, "MViT", lambda **o: clips(**o | {"spatial_size": (64, 64), "temporal_size": 8}))
    return change


def built(name, **options):
    with shorter(name):
        return models.get_model(name, weights=None, num_classes=CLASSES, **options)


def side_of(name):
    return next((side for prefix, side in SIDES.items() if name.startswith(prefix)), 64)


def classifier(name):
    side = side_of(name)
    network = built(name, **({"image_size": side} if name.startswith("vit") else {}))
    if name.startswith(("vgg", "alexnet")):
        first = next(part for part in network.classifier if isinstance(part, nn.Linear))
        network.classifier = nn.Sequential(
            nn.Linear(first.in_features, 128), nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(128, CLASSES)
        )
    network = settle(enliven(network), image(side, 4))
    return Model(network, [(image(side),) for _ in range(2)], beyond_core=True, beyond_wheel=True)


def segmenter(name):
    """With the auxiliary classifier where there is one, whose result comes out as well."""
    options = {} if name.startswith("lraspp") else {"aux_loss": True}
    network = Dense(built(name, weights_backbone=None, **options))
    network = settle(enliven(network), image(64, 4))
    return Model(network, [(image(64),) for _ in range(2)], beyond_core=True, beyond_wheel=True)


def clip(frames, side, batch=1):
    return torch.randn(batch, 3, frames, side, side)


def watcher(name):
    network = built(name)
    frames, side = {"s3d": (16, 64), "mvit_v1_b": (8, 64), "mvit_v2_s": (8, 64)}.get(name, (4, 32))
    if name == "s3d":
        network.avgpool = nn.AvgPool3d(kernel_size=2, stride=1)
    network = settle(enliven(network), clip(frames, side, 2))
    return Model(network, [(clip(frames, side),) for _ in range(2)], beyond_core=True, beyond_wheel=True)


for kind, module, make in (
    ("classification", models, classifier),
    ("segmentation", segmentation, segmenter),
    ("video", video, watcher),
):
    for name in models.list_models(module=module):
        model(lambda make=make, name=name: make(name), name=f"torchvision.{name}", family=f"torchvision {kind}")
