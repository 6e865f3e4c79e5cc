"""Makes models for the demo page, and lists them in its folder `models`.

    python models.py models scene                      what the page comes with, trained on scikit-learn's digits
    python models.py models classify segment           MobileNetV3 and LR-ASPP, with torchvision's weights
    python models.py models embed chat                 MiniLM, and SmolLM2 with 135 million parameters
    python models.py models embed --encoder FOLDER     an encoder of transformers from a folder

Weights that are not there are downloaded by torchvision and huggingface_hub.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import rushlight
import torch
from torch import nn
from torch.nn import functional

SCENE = 64


class Scene(nn.Module):
    """Says of each pixel of a grey image which digit it belongs to: 10 is the background."""

    def __init__(self):
        super().__init__()
        self.down1 = nn.Sequential(nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(), nn.Conv2d(12, 16, 3, 2, 1), nn.ReLU())
        self.down2 = nn.Sequential(nn.Conv2d(16, 24, 3, 2, 1), nn.ReLU(), nn.Conv2d(24, 32, 3, 2, 1), nn.ReLU())
        self.middle = nn.Sequential(nn.Conv2d(32, 40, 3, padding=1), nn.ReLU(), nn.Conv2d(40, 24, 3, padding=1), nn.ReLU())
        self.side = nn.Conv2d(16, 24, 1)
        self.head = nn.Sequential(nn.Conv2d(24, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 11, 1))

    def forward(self, image):
        near = self.down1(image)
        far = self.middle(self.down2(near))
        joined = functional.relu(self.side(near) + functional.interpolate(far, scale_factor=4, mode="nearest"))
        return functional.interpolate(self.head(joined), scale_factor=2, mode="nearest")


def distorted(image, size, random):
    """A digit in another size, slanted, turned and stretched a little, as hands do."""
    turn, slant, across, along = (torch.rand(4, generator=random) * 2 - 1).tolist()
    matrix = torch.tensor([[1 + 0.2 * across, 0.4 * slant + 0.2 * turn, 0], [-0.2 * turn, 1 + 0.2 * along, 0]])
    grid = functional.affine_grid(matrix[None], (1, 1, size, size), align_corners=False)
    digit = functional.grid_sample(functional.pad(image[None, None], (1, 1, 1, 1)), grid, align_corners=False)[0, 0]
    # Between the grey of a scan and the edges of a pen.
    sharpness = 1.2 + 3 * float(torch.rand((), generator=random))
    return ((digit - 0.35) * sharpness + 0.4).clamp(0, 1) * (digit > 0.1)


def scenes(count, images, labels, random):
    """Images of several digits of different sizes, and the label of each pixel."""
    pixels = torch.zeros(count, 1, SCENE, SCENE)
    target = torch.full((count, SCENE, SCENE), 10)
    for at in range(count):
        for _ in range(int(torch.randint(1, 6, (), generator=random))):
            which = int(torch.randint(len(images), (), generator=random))
            size = int(torch.randint(20, 38, (), generator=random))
            top, left = torch.randint(0, SCENE - size + 1, (2,), generator=random).tolist()
            digit = distorted(images[which], size, random)
            ink = digit > 0.35
            window = (slice(top, top + size), slice(left, left + size))
            if (target[at][window] < 10).any():
                continue
            pixels[at, 0][window] = torch.maximum(pixels[at, 0][window], digit)
            target[at][window][ink] = int(labels[which])
    pixels += 0.05 * torch.randn(pixels.shape, generator=random)
    return pixels, target


def train_scene(steps=1500):
    from sklearn.datasets import load_digits

    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32) / 16
    labels = torch.tensor(data.target)
    torch.manual_seed(0)
    random = torch.Generator().manual_seed(0)
    model = Scene()
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 8e-3, total_steps=steps)
    # Most pixels are background.
    weight = torch.tensor([1.0] * 10 + [0.15])
    for step in range(steps):
        pixels, target = scenes(24, images[:1500], labels[:1500], random)
        loss = functional.cross_entropy(model(pixels), target, weight)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 100 == 99:
            print(f"scene: step {step + 1}, loss {loss.item():.3f}", flush=True)
    pixels, target = scenes(100, images[1500:], labels[1500:], random)
    model.eval()
    with torch.no_grad():
        found = model(pixels).argmax(1)
    ink = target < 10
    print(f"scene: {(found == target)[ink].float().mean():.1%} of the ink of other digits is right")
    return model


def save(model, inputs, path, **options):
    size = rushlight.export(model.eval(), inputs, backend="cpu", **options).save(path)
    print(f"{path}: {size / 1e6:.2f} MB")


def scene(folder, _):
    save(train_scene(), (torch.zeros(1, 1, SCENE, SCENE),), folder / "scene.pte")
    names = [str(digit) for digit in range(10)]
    image = {"size": [SCENE, SCENE], "channels": 1}
    return {"labels": [*names, "background"], "background": 10, "image": image, "isInk": True}


def classify(folder, _):
    from torchvision.models import MobileNet_V3_Large_Weights as Weights, mobilenet_v3_large

    weights = Weights.DEFAULT
    save(mobilenet_v3_large(weights=weights), (torch.zeros(1, 3, 224, 224),), folder / "mobilenet_v3.pte")
    return {"labels": weights.meta["categories"], "image": {"size": [224, 224], "channels": 3, "normalize": "imagenet"}}


def segment(folder, _):
    from torchvision.models.segmentation import LRASPP_MobileNet_V3_Large_Weights as Weights, lraspp_mobilenet_v3_large

    weights = Weights.DEFAULT
    save(lraspp_mobilenet_v3_large(weights=weights), (torch.zeros(1, 3, 320, 320),), folder / "lraspp.pte")
    image = {"size": [320, 320], "channels": 3, "normalize": "imagenet"}
    return {"labels": weights.meta["categories"], "background": 0, "image": image}


def embed(folder, arguments):
    script = Path(__file__).parent.parent / "python/text_embeddings.py"
    made = folder / "minilm"
    command = [sys.executable, script, "export", arguments.encoder, made, "--quantize", "int8-dynamic"]
    subprocess.run(command, check=True)
    return {"tokenizer": "minilm/tokenizer.json"}


def chat(folder, arguments):
    from huggingface_hub import snapshot_download

    model = arguments.chat if Path(arguments.chat).is_dir() else snapshot_download(arguments.chat)
    subprocess.run(["rushlight", "compile", model, "--backend", "cpu", "--quantize", "8da4w", "-o", folder / "chat.pte"], check=True)
    return {}


# The task of each, what the page calls it, and its file.
MODELS = {
    scene: ("segment", "Digits in a scene", "scene.pte"),
    classify: ("classify", "MobileNetV3 (1,000 things)", "mobilenet_v3.pte"),
    segment: ("segment", "LR-ASPP (20 things)", "lraspp.pte"),
    embed: ("embed", "MiniLM", "minilm/encoder.pte"),
    chat: ("chat", "SmolLM2 135M", "chat.pte"),
}


def main():
    by_name = {make.__name__: make for make in MODELS}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("models", nargs="+", choices=by_name)
    parser.add_argument("--encoder", default="sentence-transformers/all-MiniLM-L6-v2")
    parser.add_argument("--chat", default="HuggingFaceTB/SmolLM2-135M-Instruct")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    path = arguments.folder / "models.json"
    listed = json.loads(path.read_text()) if path.exists() else []
    for name in arguments.models:
        make = by_name[name]
        task, title, file = MODELS[make]
        entry = {"task": task, "name": title, "file": file, **make(arguments.folder, arguments)}
        # What was made last comes first.
        listed = [entry, *(other for other in listed if other["file"] != file)]
        path.write_text(json.dumps(listed, indent=1) + "\n")


if __name__ == "__main__":
    main()
