"""Models of images and clips from transformers, at a fiftieth of their size."""

import torch
import transformers
from huggingface import mask
from registry import image, tokens
from zoo import VOCABULARY, register

SIZES = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "image_size": 32,
    "patch_size": 8,
}
RATIO = {key: size for key, size in SIZES.items() if key != "intermediate_size"} | {"mlp_ratio": 2}
STAGES = {"hidden_sizes": [16, 32, 48, 64], "depths": [1, 1, 2, 1]}
WINDOWS = {"image_size": 40, "patch_size": 4, "embed_dim": 32, "depths": [2, 1], "num_heads": [2, 4], "window_size": 4}
MOBILE = {
    "image_size": 64, "neck_hidden_sizes": [8, 8, 16, 16, 32, 48, 64], "hidden_sizes": [16, 32, 48], "num_attention_heads": 4,
}  # fmt: skip
PYRAMID = {
    "hidden_sizes": [16, 32, 48, 64], "depths": [1, 1, 1, 1], "num_attention_heads": [1, 2, 4, 4], "mlp_ratios": [2, 2, 2, 2],
}  # fmt: skip
BACKBONE = {
    "out_features": ["stage1", "stage2", "stage3", "stage4"], "num_hidden_layers": 4, "reshape_hidden_states": False,
}  # fmt: skip
TOWER = {
    "vocab_size": VOCABULARY, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96,
    "max_position_embeddings": 16, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
QUERIES = {
    "d_model": 64, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "encoder_ffn_dim": 96, "decoder_ffn_dim": 96, "num_queries": 6, "use_timm_backbone": False,
    "use_pretrained_backbone": False,
}  # fmt: skip
CLIP = {key: size for key, size in SIZES.items() if key != "patch_size"} | {"num_frames": 4}


def resnet():
    return transformers.ResNetConfig(
        embedding_size=16, hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 1, 1], layer_type="basic",
        out_features=["stage2", "stage3", "stage4"],
    )  # fmt: skip


def convnext():
    return transformers.ConvNextConfig(**STAGES, out_features=["stage1", "stage2", "stage3", "stage4"])


def dinov2():
    return transformers.Dinov2Config(**(RATIO | BACKBONE | {"image_size": 28, "patch_size": 7}))


# Enough that the noise of a quantized classifier is no matter of luck.
CLASSES = 16

# The side of the images, the architecture, its results and its configuration.
VIEWERS = {
    "beit": (32, "BeitForImageClassification", "logits", SIZES | {"use_relative_position_bias": True}),
    "bit": (32, "BitForImageClassification", "logits", STAGES | {"embedding_size": 16, "num_groups": 8}),
    "convnext": (64, "ConvNextForImageClassification", "logits", STAGES),
    "convnextv2": (64, "ConvNextV2ForImageClassification", "logits", STAGES),
    "cvt": (64, "CvtForImageClassification", "logits", {
        "embed_dim": [16, 32, 64], "num_heads": [1, 2, 4], "depth": [1, 2, 3]}),
    "data2vec_vision": (32, "Data2VecVisionForImageClassification", "logits", SIZES),
    "deit": (32, "DeiTForImageClassification", "logits", SIZES),
    "depth_anything": (28, "DepthAnythingForDepthEstimation", "predicted_depth", {
        "backbone_config": dinov2, "patch_size": 7, "reassemble_hidden_size": 64, "neck_hidden_sizes": [8, 16, 16, 32],
        "fusion_hidden_size": 16, "head_hidden_size": 8}),
    "detr": (64, "DetrForObjectDetection", "logits pred_boxes", QUERIES | {"backbone_config": resnet}),
    "dinov2": (32, "Dinov2ForImageClassification", "logits", RATIO | {"image_size": 48}),
    "dinov2_with_registers": (32, "Dinov2WithRegistersForImageClassification", "logits", RATIO),
    "dinov3_vit": (32, "DINOv3ViTModel", "last_hidden_state", SIZES),
    "dpt": (32, "DPTForDepthEstimation", "predicted_depth", SIZES | {
        "num_hidden_layers": 4, "backbone_out_indices": [0, 1, 2, 3], "neck_hidden_sizes": [8, 16, 16, 32],
        "fusion_hidden_size": 16, "is_hybrid": False}),
    "efficientnet": (64, "EfficientNetForImageClassification", "logits", {
        "width_coefficient": 0.5, "depth_coefficient": 0.5, "hidden_dim": 640, "image_size": 64}),
    "focalnet": (64, "FocalNetForImageClassification", "logits", {
        "image_size": 64, "embed_dim": 32, "depths": [1, 1, 2], "focal_levels": [2, 2, 2], "focal_windows": [3, 3, 3],
        "hidden_sizes": [32, 64, 128]}),
    "glpn": (64, "GLPNForDepthEstimation", "predicted_depth", PYRAMID | {"decoder_hidden_size": 16}),
    "hiera": (32, "HieraForImageClassification", "logits", {
        "image_size": [32, 32], "patch_size": [7, 7], "patch_stride": [4, 4], "patch_padding": [3, 3], "embed_dim": 32,
        "depths": [1, 1, 1], "num_heads": [1, 2, 4], "masked_unit_size": [8, 8],
        "masked_unit_attention": [True, False, False],
        "query_stride": [2, 2], "num_query_pool": 2}),
    "ijepa": (32, "IJepaModel", "last_hidden_state", SIZES),
    "levit": (64, "LevitForImageClassification", "logits", {
        "image_size": 64, "hidden_sizes": [32, 48, 64], "num_attention_heads": [2, 3, 4], "depths": [1, 1, 1],
        "key_dim": [8, 8, 8]}),
    "mobilenet_v1": (64, "MobileNetV1ForImageClassification", "logits", {"depth_multiplier": 0.25, "image_size": 64}),
    "mobilenet_v2": (64, "MobileNetV2ForImageClassification", "logits", {"depth_multiplier": 0.35, "image_size": 64}),
    "mobilevit": (64, "MobileViTForImageClassification", "logits", MOBILE),
    "mobilevitv2": (64, "MobileViTV2ForImageClassification", "logits", {
        "image_size": 64, "width_multiplier": 0.25, "n_attn_blocks": [1, 1, 1], "base_attn_unit_dims": [64, 96, 128]}),
    "poolformer": (64, "PoolFormerForImageClassification", "logits", STAGES),
    "pvt": (64, "PvtForImageClassification", "logits", PYRAMID | {"image_size": 64, "depths": [1, 1, 1, 1]}),
    "pvt_v2": (64, "PvtV2ForImageClassification", "logits", PYRAMID | {"image_size": 64}),
    "regnet": (32, "RegNetForImageClassification", "logits", STAGES | {
        "embedding_size": 16, "groups_width": 8, "layer_type": "y"}),
    "resnet": (32, "ResNetForImageClassification", "logits", STAGES | {"embedding_size": 16}),
    "rt_detr": (64, "RTDetrForObjectDetection", "logits pred_boxes", {
        "backbone_config": None, "encoder_hidden_dim": 32, "d_model": 32, "num_queries": 6, "decoder_layers": 1,
        "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64,
        "decoder_in_channels": [32, 32, 32]}),
    "segformer": (64, "SegformerForSemanticSegmentation", "logits", PYRAMID | {
        "decoder_hidden_size": 32, "num_labels": 5}),
    "swiftformer": (64, "SwiftFormerForImageClassification", "logits", {
        "image_size": 64, "depths": [1, 1, 1, 1], "embed_dims": [16, 32, 48, 64], "mlp_ratio": 2}),
    "swin": (40, "SwinForImageClassification", "logits", WINDOWS),
    "swinv2": (40, "Swinv2ForImageClassification", "logits", WINDOWS),
    "textnet": (64, "TextNetForImageClassification", "logits", {"image_size": [64, 64]}),
    "upernet": (64, "UperNetForSemanticSegmentation", "logits", {
        "backbone_config": convnext,
        "hidden_size": 32, "auxiliary_in_channels": 48, "auxiliary_channels": 16, "num_labels": 5}),
    "vit": (32, "ViTForImageClassification", "logits", SIZES),
    "vit_msn": (32, "ViTMSNModel", "last_hidden_state", SIZES),
    "yolos": (32, "YolosForObjectDetection", "logits pred_boxes", SIZES | {
        "image_size": [32, 32], "num_detection_tokens": 6}),
}  # fmt: skip

for name, (side, architecture, fields, options) in VIEWERS.items():
    classes = {"num_labels": CLASSES} if architecture.endswith("ForImageClassification") else {}
    register(
        "vision", f"transformers.{name}", architecture, ("pixel_values",), tuple(fields.split()),
        lambda side=side: (image(side),), options | classes,
    )  # fmt: skip

for name, architecture, options in (
    ("timesformer", "TimesformerModel", CLIP | {"patch_size": 8}),
    ("videomae", "VideoMAEModel", CLIP | {"patch_size": 8}),
    ("vivit", "VivitModel", CLIP | {"tubelet_size": [2, 8, 8]}),
):
    register(
        "vision", f"transformers.{name}", architecture, ("pixel_values",), ("last_hidden_state",),
        lambda: (torch.randn(1, 4, 3, 32, 32),), options,
    )  # fmt: skip

register(
    "vision", "transformers.clip", "CLIPModel", ("input_ids", "pixel_values", "attention_mask"),
    ("logits_per_image", "text_embeds", "image_embeds"),
    lambda: (tokens(VOCABULARY, 3, 8), image(32, 2), mask(8, 5, 3, width=8)),
    {"text_config": TOWER, "vision_config": SIZES, "projection_dim": 32},
)  # fmt: skip
register(
    "vision", "transformers.siglip", "SiglipModel", ("input_ids", "pixel_values"),
    ("logits_per_image", "text_embeds", "image_embeds"),
    lambda: (tokens(VOCABULARY, 3, 16), image(32, 2)), {"text_config": TOWER, "vision_config": SIZES},
)  # fmt: skip
register(
    "vision", "transformers.blip_vision", "BlipVisionModel", ("pixel_values",), ("last_hidden_state", "pooler_output"),
    lambda: (image(32),), SIZES,
)  # fmt: skip
