"""Segmentation networks and the convolutional part of detectors, by torchvision."""

import torchvision.models as architectures
from registry import Model, image, model
from torch import nn
from torchvision.models import detection, segmentation
from torchvision.models._utils import IntermediateLayerGetter
from torchvision.models.detection import ssdlite
from torchvision.models.detection.backbone_utils import BackboneWithFPN
from vision import Dense, settle


def backbone(**layers):
    """A quarter-width MobileNetV2 that returns the outputs of the named layers: 8, 16 and 24 channels."""
    features = architectures.mobilenet_v2(width_mult=0.25).features[:14]
    return IntermediateLayerGetter(features, return_layers={layer[1:]: name for layer, name in layers.items()})


def maps(network, side=64):
    return Model(settle(network, image(side, 4)), [(image(side),), (image(side),)])


@model
def deeplabv3():
    head = segmentation.deeplabv3.DeepLabHead(24, 5, atrous_rates=(2, 4, 6))
    return maps(Dense(segmentation.DeepLabV3(backbone(_13="out"), head)))


@model
def fcn():
    """With the auxiliary classifier, whose result comes out as well."""
    head, auxiliary = segmentation.fcn.FCNHead(24, 5), segmentation.fcn.FCNHead(16, 5)
    return maps(Dense(segmentation.FCN(backbone(_10="aux", _13="out"), head, auxiliary)))


def pyramid():
    """ResNet with a feature pyramid over three stages."""
    network = architectures.ResNet(architectures.resnet.BasicBlock, [1, 1, 1, 1])
    network.layer4 = nn.Identity()
    stages = {"layer1": "0", "layer2": "1", "layer3": "2"}
    return BackboneWithFPN(network, stages, [64, 128, 256], 32)


@model
def fpn():
    return maps(Dense(pyramid()))


@model
def retinanet():
    """The heads over a feature pyramid: logits and boxes of every anchor, without the selection."""

    class RetinaNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.backbone = pyramid()
            self.head = detection.retinanet.RetinaNetHead(32, num_anchors=3, num_classes=4)

        def forward(self, picture):
            return self.head(list(self.backbone(picture).values()))

    return maps(RetinaNet())


@model
def ssdlite_heads():
    class SsdLite(nn.Module):
        def __init__(self):
            super().__init__()
            self.backbone = backbone(_10="first", _13="second")
            norm = nn.BatchNorm2d
            self.head = ssdlite.SSDLiteHead([16, 24], [6, 6], num_classes=4, norm_layer=norm)

        def forward(self, picture):
            return self.head(list(self.backbone(picture).values()))

    return maps(SsdLite())
