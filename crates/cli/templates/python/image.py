"""Reads an image as the input of a model."""

import numpy
import PIL.Image

# The normalization of torchvision's models, which take colours. A model of grey images gets numbers from 0 to 1.
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def read(path, shape):
    """Returns the image as f32 `shape`, which is `[1, channels, height, width]`. An image of another size is resized."""
    _, channels, height, width = shape
    with PIL.Image.open(path) as image:
        image = image.convert("RGB" if channels == 3 else "L")
        if image.size != (width, height):
            print(f"{path} is resized from {image.width} x {image.height} to {width} x {height}")
            image = image.resize((width, height), PIL.Image.Resampling.BILINEAR)
        pixels = numpy.asarray(image, numpy.float32).reshape(height, width, channels) / 255
    if channels == 3:
        pixels = (pixels - numpy.float32(MEAN)) / numpy.float32(STD)
    return numpy.ascontiguousarray(pixels.transpose(2, 0, 1)[None])
