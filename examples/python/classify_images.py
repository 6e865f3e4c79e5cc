"""Classifies the images of a folder with a model of torchvision that runs without PyTorch.

    python classify_images.py export mobilenet_v3_small classifier.pte --weights DEFAULT --calibrate photos/
    python classify_images.py run classifier.pte photos/ --top 3

`export` needs torch and torchvision. `--weights` are torchvision's name of weights, which it downloads, or a file that
`torch.save(model.state_dict())` wrote; without, they are random, to try out the rest. With `--calibrate` the model becomes integers.
`run` needs numpy and pillow.
"""

import argparse
import json
import pathlib

import numpy
import PIL.Image
import rushlight

# What torchvision's classifiers expect.
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
ENDINGS = {".jpg", ".jpeg", ".png"}
BATCH = 8


def images_of(folder):
    return sorted(path for path in pathlib.Path(folder).iterdir() if path.suffix.lower() in ENDINGS)


def pixels(path, size):
    """An image as the model takes it: its shorter side scaled, its middle cut out, its colours normalized."""
    with PIL.Image.open(path) as image:
        image = image.convert("RGB")
        scale = size / min(image.size)
        image = image.resize([max(size, round(side * scale)) for side in image.size], PIL.Image.Resampling.BILINEAR)
        left, top = (image.width - size) // 2, (image.height - size) // 2
        values = numpy.asarray(image.crop((left, top, left + size, top + size)), numpy.float32) / 255
    return ((values - numpy.float32(MEAN)) / numpy.float32(DEVIATION)).transpose(2, 0, 1)


def batches(paths, size):
    for start in range(0, len(paths), BATCH):
        part = paths[start : start + BATCH]
        yield part, numpy.stack([pixels(path, size) for path in part])


def export(arguments):
    import torch
    import torchvision

    torch.manual_seed(0)
    known = [weights.name for weights in torchvision.models.get_model_weights(arguments.model)]
    named = arguments.weights in [*known, "DEFAULT"]
    model = torchvision.models.get_model(arguments.model, weights=arguments.weights if named else None).eval()
    categories = None
    if named:
        categories = torchvision.models.get_model_weights(arguments.model)[arguments.weights].meta["categories"]
    elif arguments.weights:
        model.load_state_dict(torch.load(arguments.weights, weights_only=True))
    example = torch.zeros(2, 3, arguments.size, arguments.size)
    options = {}
    if arguments.calibrate:
        samples = [torch.from_numpy(batch) for _, batch in batches(images_of(arguments.calibrate), arguments.size)]
        options = {"quantize": "int8", "calibration": samples}
    batch = torch.export.Dim("batch", max=BATCH)
    program = rushlight.export(model, (example,), dynamic_shapes=({0: batch},), backend="cpu", **options)
    program.save(arguments.program)
    print(program.report if program.quantization is None else program.quantization)
    if categories:
        arguments.program.with_suffix(".json").write_text(json.dumps(categories))


def run(arguments):
    module = rushlight.load(arguments.program)
    size = module.meta().inputs[0].sizes[-1]
    labels = arguments.program.with_suffix(".json")
    categories = json.loads(labels.read_text()) if labels.exists() else None
    paths = images_of(arguments.folder)
    if not paths:
        raise SystemExit(f"{arguments.folder} has no images ({', '.join(sorted(ENDINGS))})")
    for names, batch in batches(paths, size):
        logits = module(batch)
        shares = numpy.exp(logits - logits.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        for path, share in zip(names, shares):
            best = share.argsort()[::-1][: arguments.top]
            found = (f"{categories[index] if categories else f'class {index}'} {100 * share[index]:.1f} %" for index in best)
            print(f"{path.name}: {', '.join(found)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    make = commands.add_parser("export")
    make.add_argument("model", help="torchvision's name, such as mobilenet_v3_small or resnet50")
    make.add_argument("program", type=pathlib.Path)
    make.add_argument("--weights")
    make.add_argument("--size", type=int, default=224)
    make.add_argument("--calibrate", metavar="FOLDER", help="images that show what numbers are like inside of the model")
    make.set_defaults(function=export)
    classify = commands.add_parser("run")
    classify.add_argument("program", type=pathlib.Path)
    classify.add_argument("folder")
    classify.add_argument("--top", type=int, default=3)
    classify.set_defaults(function=run)
    arguments = parser.parse_args()
    arguments.function(arguments)


if __name__ == "__main__":
    main()
