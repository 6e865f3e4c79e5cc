"""Classifies images: `python main.py samples/7.pgm`."""

import pathlib
import sys

import image
import numpy
import rushlight

HERE = pathlib.Path(__file__).parent
TOP = 3


def main():
    if len(sys.argv) < 2:
        raise SystemExit("usage: python main.py IMAGE...")
    module = rushlight.load(HERE / "model.pte")
    shape = module.meta().inputs[0].sizes
    labels = HERE / "labels.txt"
    names = labels.read_text().splitlines() if labels.exists() else None
    for path in sys.argv[1:]:
        logits = numpy.asarray(module(image.read(path, shape))).ravel()
        shares = numpy.exp(logits - logits.max())
        shares /= shares.sum()
        best = shares.argsort()[::-1][:TOP]
        print(path + ":", ", ".join(f"{names[index] if names else index} {100 * shares[index]:.1f} %" for index in best))


if __name__ == "__main__":
    main()
