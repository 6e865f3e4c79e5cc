"""Makes models for the demo page, with the list of them that the page reads.

    python models.py digits OUT     small ones, trained on scikit-learn's handwritten digits in a minute
    python models.py large OUT      MobileNetV3, LR-ASPP, MiniLM and a small chat model, whose weights are downloaded

OUT is the folder `models` of the page.
"""

import argparse
import json
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


def scenes(count, images, labels, random):
    """Images of several digits of different sizes, and the label of each pixel."""
    pixels = torch.zeros(count, 1, SCENE, SCENE)
    target = torch.full((count, SCENE, SCENE), 10)
    for at in range(count):
        for _ in range(int(torch.randint(1, 6, (), generator=random))):
            which = int(torch.randint(len(images), (), generator=random))
            size = int(torch.randint(20, 34, (), generator=random))
            top, left = torch.randint(0, SCENE - size + 1, (2,), generator=random).tolist()
            digit = functional.interpolate(images[which][None, None], size=(size, size), mode="bilinear")[0, 0]
            ink = digit > 0.3
            window = (slice(top, top + size), slice(left, left + size))
            if (target[at][window] < 10).any():
                continue
            pixels[at, 0][window] = torch.maximum(pixels[at, 0][window], (digit * 1.6).clamp(0, 1))
            target[at][window][ink] = int(labels[which])
    pixels += 0.05 * torch.randn(pixels.shape, generator=random)
    return pixels, target


def train_scene(steps=900):
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


def digits(folder):
    save(train_scene(), (torch.zeros(1, 1, SCENE, SCENE),), folder / "scene.pte")
    names = [str(digit) for digit in range(10)]
    return [
        {
            "task": "segment",
            "name": "Digits in a scene",
            "file": "scene.pte",
            "labels": [*names, "background"],
            "background": 10,
            "image": {"size": [SCENE, SCENE], "channels": 1},
            "isInk": True,
        }
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", choices=["digits", "large"])
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    made = digits(arguments.folder)
    (arguments.folder / "models.json").write_text(json.dumps(made, indent=1) + "\n")
