"""Trains the digits classifier of `examples/cortex-m` and writes every file that is made from it.

    python tools/train_digits.py [--out examples/cortex-m]

The data is scikit-learn's copy of the UCI optical digits: 1,797 grey images of 8x8 pixels with 17 levels. Pixels are
scaled to 0..1 by dividing by 16, which is also what a PNG of ours holds (grey level = round(pixel * 255 / 16)), so that
a reader of the PNG recovers the input exactly by `round(level * 16 / 255) / 16`.

Files written:
  digits.pt2          the exported program, by torch.export.save
  digits.pte          the same in ExecuTorch's portable form: float32 [1, 1, 8, 8] -> float32 [1, 10] logits
  images/0.png..9.png one image of the test split for each digit, 8x8, 8-bit grey
  images/images.bin   the ten inputs, 10 x 64 float32, little-endian, row-major, in the order of the digits
  images/images.npz   the same as arrays `arg_0` of shape [10, 1, 8, 8]
  expected.json       {"accuracy", "parameters", "logits": 10 x 10, "predictions": 10}, from eager PyTorch
"""

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from executorch.exir import to_edge
from PIL import Image
from sklearn.datasets import load_digits
from torch import nn

SEED = 7
TEST_SHARE = 5  # the last of every five images is held out


class Digits(nn.Module):
    """Two 3x3 convolutions, two poolings, one linear layer."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 16, 3, padding=1)
        self.pool = nn.MaxPool2d(2)
        self.classifier = nn.Linear(16 * 2 * 2, 10)

    def forward(self, image):
        x = self.pool(torch.relu(self.conv1(image)))
        x = self.pool(torch.relu(self.conv2(x)))
        return self.classifier(x.flatten(1))


def splits():
    """(train images, train labels, test images, test labels); images are [N, 1, 8, 8] float32 in 0..1."""
    data = load_digits()
    images = torch.from_numpy(data.images.astype(np.float32) / 16.0)[:, None]
    labels = torch.from_numpy(data.target).long()
    held_out = torch.arange(len(labels)) % TEST_SHARE == TEST_SHARE - 1
    return images[~held_out], labels[~held_out], images[held_out], labels[held_out]


def train(images, labels, epochs=60, batch=64):
    torch.manual_seed(SEED)
    model = Digits()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    for _ in range(epochs):
        for index in torch.randperm(len(labels)).split(batch):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images[index]), labels[index]).backward()
            optimizer.step()
        schedule.step()
    return model.eval()


def one_a_digit(images, labels):
    """The first held-out image of each digit, in the order of the digits."""
    return torch.stack([images[(labels == digit).nonzero()[0, 0]] for digit in range(10)])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = Path(__file__).resolve().parent.parent / "examples" / "cortex-m"
    parser.add_argument("--out", type=Path, default=default)
    out = parser.parse_args().out
    (out / "images").mkdir(parents=True, exist_ok=True)

    train_images, train_labels, test_images, test_labels = splits()
    model = train(train_images, train_labels)
    with torch.no_grad():
        accuracy = (model(test_images).argmax(1) == test_labels).float().mean().item()
        parameters = sum(p.numel() for p in model.parameters())
        print(f"{parameters} parameters, {accuracy:.2%} of {len(test_labels)} held-out images right")
        if accuracy < 0.97:
            raise SystemExit("the classifier is below 97 %: nothing was written")
        images = one_a_digit(test_images, test_labels)
        logits = torch.cat([model(image[None]) for image in images])

    program = torch.export.export(model, (images[:1],))
    # The places in this script say nothing about the model, and differ from checkout to checkout.
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)
    torch.export.save(program, out / "digits.pt2")
    (out / "digits.pte").write_bytes(to_edge(program).to_executorch().buffer)

    images.numpy().astype("<f4").tofile(out / "images" / "images.bin")
    np.savez(out / "images" / "images.npz", arg_0=images.numpy())
    for digit, image in enumerate(images):
        level = (image[0] * 255).round().to(torch.uint8).numpy()
        Image.fromarray(level).save(out / "images" / f"{digit}.png")
    expected = {
        "accuracy": round(accuracy, 4),
        "parameters": parameters,
        "logits": logits.tolist(),
        "predictions": logits.argmax(1).tolist(),
    }
    lines = (f'  {json.dumps(key)}: {json.dumps(value)}' for key, value in expected.items())
    (out / "expected.json").write_text("{\n" + ",\n".join(lines).replace("], [", "],\n    [") + "\n}\n")
    print("predictions", expected["predictions"])


if __name__ == "__main__":
    main()
