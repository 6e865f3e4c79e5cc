"""Vision and picture-text models from transformers."""

import transformers
from huggingface import FUSED, SMALL, Outputs, mask
from registry import Model, image, model, tokens

SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "image_size": 32,
    "patch_size": 8,
}


def viewer(network, fields, side=32):
    """A network over pictures."""
    return Model(Outputs(network, ("pixel_values",), fields), [(image(side),), (image(side),)])


@model
def deit():
    config = transformers.DeiTConfig(**SIZES, **FUSED)
    return viewer(transformers.DeiTForImageClassificationWithTeacher(config), ("logits", "distillation_logits"))


@model
def dinov2():
    """Positions that are interpolated from another size of picture."""
    config = transformers.Dinov2Config(
        hidden_size=32, num_hidden_layers=1, num_attention_heads=4, mlp_ratio=2, image_size=48, patch_size=8, **FUSED
    )
    return viewer(transformers.Dinov2Model(config), ("last_hidden_state", "pooler_output"))


@model
def beit():
    """Relative positions of patches."""
    config = transformers.BeitConfig(**SIZES, use_relative_position_bias=True, **SMALL)
    return viewer(transformers.BeitModel(config), ("last_hidden_state", "pooler_output"))


@model
def swin_hf():
    """Windows that are shifted, and padded where they do not fit."""
    config = transformers.SwinConfig(
        image_size=40, patch_size=4, embed_dim=16, depths=[2, 1], num_heads=[2, 4], window_size=4, **SMALL
    )
    return viewer(transformers.SwinForImageClassification(config), ("logits",), 40)


@model
def convnext_v2():
    """Global response normalisation."""
    config = transformers.ConvNextV2Config(hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 2, 1], initializer_range=0.2)
    return viewer(transformers.ConvNextV2Model(config), ("last_hidden_state", "pooler_output"), 64)


@model
def segformer():
    """Segmentation by features of four scales, brought to one."""
    config = transformers.SegformerConfig(
        hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1], num_attention_heads=[1, 2, 3, 4], decoder_hidden_size=16,
        initializer_range=0.2, num_labels=5,
    )
    return viewer(transformers.SegformerForSemanticSegmentation(config), ("logits",), 64)


@model
def mobilevit():
    """Convolutions and transformers over unfolded patches."""
    config = transformers.MobileViTConfig(
        image_size=64, hidden_sizes=[16, 24, 32], neck_hidden_sizes=[8, 8, 16, 16, 24, 32, 64], num_attention_heads=4,
        initializer_range=0.2,
    )
    return viewer(transformers.MobileViTForImageClassification(config), ("logits",), 64)


@model
def poolformer():
    config = transformers.PoolFormerConfig(
        hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1], use_layer_scale=False, initializer_range=0.2
    )
    return viewer(transformers.PoolFormerForImageClassification(config), ("logits",), 64)


@model
def depth_anything():
    """Depth of every pixel: a Dinov2 backbone, reassembled features and their fusion."""
    backbone = transformers.Dinov2Config(
        hidden_size=32, num_hidden_layers=4, num_attention_heads=4, mlp_ratio=2, image_size=28, patch_size=7,
        out_features=["stage1", "stage2", "stage3", "stage4"], reshape_hidden_states=False, **FUSED,
    )
    config = transformers.DepthAnythingConfig(
        backbone_config=backbone, patch_size=7, reassemble_hidden_size=32, neck_hidden_sizes=[8, 8, 16, 16],
        fusion_hidden_size=16, head_hidden_size=8, initializer_range=0.2,
    )
    network = transformers.DepthAnythingForDepthEstimation(config)
    # What is negative before the last rectifier would be a depth of zero.
    network.head.conv3.weight.data.abs_()
    return viewer(network, ("predicted_depth",), 28)


def text_tower():
    return {
        "vocab_size": 200, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4,
        "intermediate_size": 64, "max_position_embeddings": 16, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    }  # fmt: skip


@model
def clip():
    """Both towers and the similarity of every picture with every text."""
    config = transformers.CLIPConfig(text_config=text_tower(), vision_config=dict(SIZES), projection_dim=16)
    config._attn_implementation = "sdpa"
    network = Outputs(
        transformers.CLIPModel(config), ("input_ids", "pixel_values", "attention_mask"),
        ("logits_per_image", "text_embeds", "image_embeds"),
    )  # fmt: skip
    return Model(network, [(tokens(200, 3, 8), image(32, 2), mask(8, 5, 3, width=8)) for _ in range(2)])


@model
def siglip():
    config = transformers.SiglipConfig(text_config=text_tower(), vision_config=dict(SIZES))
    fields = ("logits_per_image", "text_embeds", "image_embeds")
    network = Outputs(transformers.SiglipModel(config), ("input_ids", "pixel_values"), fields)
    return Model(network, [(tokens(200, 3, 16), image(32, 2)) for _ in range(2)])
