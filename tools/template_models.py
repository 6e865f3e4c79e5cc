"""Writes the models and the samples of the projects of `rushlight new` to `crates/cli/templates`.

    python tools/template_models.py [detect] [transcribe]     both by default

`detect/model.pte` finds circles, squares and triangles, and `detect/shapes.pgm` has one of each. `transcribe/model.pte` reads the keys that a
telephone dials, and `transcribe/dialed.wav` dials some. Training takes a minute on a CPU. It needs torch.
"""

import pathlib
import sys
import wave

import numpy
import rushlight
import torch
from torch import nn
from torch.nn import functional

TEMPLATES = pathlib.Path(__file__).resolve().parent.parent / "crates/cli/templates"

SIDE, CELL = 64, 8
"""Pixels of an image, and of a cell of the detector's grid."""
SHAPES = ("circle", "square", "triangle")


class Detector(nn.Module):
    """Boxes `[cells, 4]` as left, top, right, bottom in pixels, and the probability of each shape, `[cells, 3]`."""

    def __init__(self):
        super().__init__()
        layers = []
        for channels, width, stride in ((1, 8, 2), (8, 16, 2), (16, 24, 2), (24, 24, 1)):
            layers += [nn.Conv2d(channels, width, 3, stride, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
        self.layers = nn.Sequential(*layers)
        self.head = nn.Conv2d(24, len(SHAPES) + 4, 1)
        centre = (torch.arange(SIDE // CELL) + 0.5) * CELL
        self.register_buffer("centres", torch.cartesian_prod(centre, centre).flip(1).repeat(1, 2))

    def forward(self, image):
        logits, offsets = self.grid(image)
        return {"boxes": self.centres + offsets[0], "scores": logits[0].sigmoid()}

    def grid(self, image):
        cells = self.head(self.layers(image)).flatten(2).transpose(1, 2)
        return cells[:, :, : len(SHAPES)], cells[:, :, len(SHAPES) :] * CELL


def scenes(count, generator):
    """Images with a shape, or none, in each quarter; and for each quarter the kind of its shape, -1 for none, and its box."""
    random = lambda *size: torch.rand(size, generator=generator)
    kinds = torch.randint(-1, len(SHAPES), (count, 4), generator=generator)
    radius = 5 + 4 * random(count, 4)
    quarter = torch.tensor([[0, 0], [SIDE // 2, 0], [0, SIDE // 2], [SIDE // 2, SIDE // 2]])
    middle = quarter + radius[..., None] + random(count, 4, 2) * (SIDE // 2 - 2 * radius[..., None])
    at = torch.arange(SIDE) + 0.5
    x = at[None, None, None, :] - middle[..., 0, None, None]
    y = at[None, None, :, None] - middle[..., 1, None, None]
    size = radius[..., None, None]
    inside = torch.stack([x * x + y * y < size * size, (x.abs() < size) & (y.abs() < size), (x.abs() < (y + size) / 2) & (y < size)], -1)
    inside = (inside & (kinds[..., None] == torch.arange(len(SHAPES)))[:, :, None, None]).any(-1)
    level, grey = 0.3 * random(count, 1, 1), 0.5 + 0.5 * random(count, 4, 1, 1)
    images = torch.where(inside.any(1), (inside * grey).amax(1), level)
    noise = 0.1 * random(count, 1, 1) * torch.randn(count, SIDE, SIDE, generator=generator)
    return (images + noise).clamp(0, 1)[:, None], kinds, torch.cat([middle - radius[..., None], middle + radius[..., None]], -1)


def detected(boxes, scores):
    """The kinds of boxes, of which the best stays where two of a kind are near."""
    kept = []
    for cell in scores.max(1).values.argsort(descending=True).tolist():
        kind = scores[cell].argmax().item()
        if scores[cell].max() > 0.5 and all(kind != other or (boxes[cell] - box).abs().max() > 6 for other, box in kept):
            kept.append((kind, boxes[cell]))
    return sorted(kind for kind, _ in kept)


def detector():
    generator = torch.Generator().manual_seed(0)
    model = Detector()
    steps, batch = 500, 64
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for step in range(steps):
        images, kinds, placed = scenes(batch, generator)
        distance = ((placed[..., :2] + placed[..., 2:]) / 2)[:, :, None] - model.centres[:, :2]
        distance = distance.abs().amax(-1).masked_fill(kinds[..., None] < 0, SIDE)
        # A cell near the middle of a shape sees it; one a little further away may or may not.
        nearest, quarter = distance.min(1)
        there, ignored = nearest <= 5, (nearest > 5) & (nearest <= 9)
        classes = functional.one_hot(kinds.gather(1, quarter).clamp(min=0), len(SHAPES)) * there[..., None]
        logits, offsets = model.grid(images)
        weights = (~ignored)[..., None].float()
        loss = functional.binary_cross_entropy_with_logits(logits, classes.float(), weight=weights, reduction="sum") / batch
        wanted = placed.gather(1, quarter[..., None].expand(-1, -1, 4)) - model.centres
        loss = loss + functional.smooth_l1_loss(offsets[there], wanted[there])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 100 == 99:
            print(f"step {step + 1}: loss {loss.item():.2f}", flush=True)
    model.eval()

    images, kinds, _ = scenes(200, generator)
    with torch.no_grad():
        found = [detected(**model(image[None])) for image in images]
    right = sum(one == sorted(kind for kind in placed.tolist() if kind >= 0) for one, placed in zip(found, kinds))
    print(f"detect: all shapes and no others in {right} of {len(images)} images")

    folder = TEMPLATES / "detect"
    folder.mkdir(parents=True, exist_ok=True)
    rushlight.export(model, (torch.zeros(1, 1, SIDE, SIDE),)).save(folder / "model.pte")
    images, kinds, boxes = scenes(200, torch.Generator().manual_seed(5))
    index = next(index for index, kinds in enumerate(kinds) if set(kinds.tolist()) == {-1, 0, 1, 2})
    pixels = (images[index, 0] * 255).round().to(torch.uint8).numpy()
    (folder / "shapes.pgm").write_bytes(b"P5 %d %d 255\n" % (SIDE, SIDE) + pixels.tobytes())
    placed = [(SHAPES[kind], *box.round().int().tolist()) for kind, box in zip(kinds[index], boxes[index]) if kind >= 0]
    print(f"shapes.pgm: {placed}")


RATE, WINDOW, HOP = 8000, 200, 80
"""Samples a second, and those of a window and between windows."""
ROWS, COLUMNS = (697, 770, 852, 941), (1209, 1336, 1477, 1633)
KEYS = "123A456B789C*0#D"


class Keys(nn.Module):
    """The key of each window, `[1, windows, 17]`: 0 is none, the blank of CTC."""

    def __init__(self):
        super().__init__()
        time = torch.arange(WINDOW) / RATE
        waves = [function(2 * torch.pi * tone * time) for tone in ROWS + COLUMNS for function in (torch.sin, torch.cos)]
        self.register_buffer("filters", torch.stack(waves)[:, None] * torch.hann_window(WINDOW) / WINDOW * 4)
        self.register_buffer("pairs", torch.eye(8).repeat_interleave(2, 1)[:, :, None])
        self.layers = nn.Sequential(nn.Conv1d(8, 32, 1), nn.ReLU(), nn.Conv1d(32, len(KEYS) + 1, 1))

    def forward(self, samples):
        waves = functional.conv1d(samples[:, None], self.filters, stride=HOP)
        power = functional.conv1d(waves.square(), self.pairs)
        return self.layers((power + 1e-5).log()).transpose(1, 2)


def tone(key, count):
    row, column = divmod(KEYS.index(key), 4)
    time = numpy.arange(count) / RATE
    return 0.5 * (numpy.sin(2 * numpy.pi * ROWS[row] * time) + numpy.sin(2 * numpy.pi * COLUMNS[column] * time))


def dial(keys, random, loudness):
    """The sound of keys, and the key that each window has most of."""
    samples, labels = [], []
    for key in keys:
        for part, label in ((None, 0), (key, KEYS.index(key) + 1)):
            count = int(random.uniform(0.05, 0.12) * RATE)
            samples.append(numpy.zeros(count) if part is None else loudness * tone(part, count))
            labels.append(numpy.full(count, label))
    samples.append(numpy.zeros(400))
    labels.append(numpy.zeros(400, int))
    samples, labels = numpy.concatenate(samples), numpy.concatenate(labels)
    samples = samples + random.normal(0, 0.004, len(samples))
    middles = labels[WINDOW // 2 :: HOP][: (len(samples) - WINDOW) // HOP + 1]
    return samples.astype(numpy.float32), middles


def text_of(logits):
    best, last, text = logits.argmax(-1).tolist(), 0, ""
    for label in best:
        if label not in (0, last):
            text += KEYS[label - 1]
        last = label
    return text


def keys():
    random = numpy.random.default_rng(0)
    model = Keys()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for step in range(300):
        samples, labels = dial(random.choice(list(KEYS), 40), random, random.uniform(0.1, 0.9))
        loss = functional.cross_entropy(model(torch.from_numpy(samples)[None])[0], torch.from_numpy(labels))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()

    right = 0
    for _ in range(200):
        number = random.choice(list(KEYS), 10)
        with torch.no_grad():
            right += text_of(model(torch.from_numpy(dial(number, random, random.uniform(0.1, 0.9))[0])[None])[0]) == "".join(number)
    print(f"transcribe: {right} of 200 numbers")

    folder = TEMPLATES / "transcribe"
    folder.mkdir(parents=True, exist_ok=True)
    length = torch.export.Dim("samples", min=WINDOW + HOP, max=30 * RATE)
    example = (torch.zeros(1, RATE),)
    rushlight.export(model, example, dynamic_shapes={"samples": {1: length}}).save(folder / "model.pte")
    with wave.open(str(folder / "dialed.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        samples, _ = dial("5550199", random, 0.6)
        file.writeframes((samples * 32767).round().astype("<i2").tobytes())


def main():
    parts = {"detect": detector, "transcribe": keys}
    for name in sys.argv[1:] or parts:
        torch.manual_seed(0)
        parts[name]()


if __name__ == "__main__":
    main()
