"""Finds objects in images: `python main.py samples/shapes.pgm`."""

import pathlib
import sys

import image
import numpy
import rushlight

HERE = pathlib.Path(__file__).parent
MIN_SCORE, MAX_OVERLAP = 0.5, 0.5


def overlap(a, b):
    """Returns the intersection over union of two boxes."""
    width, height = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    shared = max(width, 0) * max(height, 0)
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (a, b)]
    return shared / (areas[0] + areas[1] - shared)


def detections(boxes, scores):
    """Returns (class, score, box), the best first. Of boxes of one class that overlap, the best one stays."""
    found = []
    for index in scores.max(axis=1).argsort()[::-1]:
        kind = scores[index].argmax()
        if scores[index, kind] < MIN_SCORE:
            break
        if all(kind != other or overlap(boxes[index], box) <= MAX_OVERLAP for other, _, box in found):
            found.append((kind, scores[index, kind], boxes[index]))
    return found


def main():
    if len(sys.argv) < 2:
        raise SystemExit("usage: python main.py IMAGE...")
    module = rushlight.load(HERE / "model.pte")
    shape = module.meta().inputs[0].sizes
    labels = HERE / "labels.txt"
    names = labels.read_text().splitlines() if labels.exists() else None
    for path in sys.argv[1:]:
        outputs = module(image.read(path, shape))
        # Boxes are left, top, right and bottom in pixels of the model's input.
        boxes, scores = outputs.values() if isinstance(outputs, dict) else outputs
        print(path)
        for kind, score, box in detections(numpy.asarray(boxes), numpy.asarray(scores)):
            print(f"  {names[kind] if names else kind} {100 * score:.0f} % at", *(round(float(side)) for side in box))


if __name__ == "__main__":
    main()
