"""Writes tests/images: small images of each EXIF orientation and kind of pixels, and `expected.json`, what Pillow makes of them."""

import json
import pathlib
import random

from PIL import Image, ImageOps

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests/images"


def main():
    random.seed(7)
    OUT.mkdir(exist_ok=True)
    rows = []
    for orientation in range(10):
        exif = Image.Exif()
        exif[0x112] = orientation
        noise = Image.new("RGB", (6, 4))
        noise.putdata([tuple(random.randrange(256) for _ in range(3)) for _ in range(24)])
        # Blocks of one colour, which all decoders of JPEG give alike.
        blocks = Image.new("RGB", (2, 3))
        blocks.putdata([tuple(random.randrange(256) for _ in range(3)) for _ in range(6)])
        blocks = blocks.resize((16, 24), Image.NEAREST)
        noise.save(OUT / f"{orientation}.png", exif=exif)
        blocks.save(OUT / f"{orientation}.jpg", exif=exif, quality=100, subsampling=0)
        for name in (f"{orientation}.png", f"{orientation}.jpg"):
            rows.append(expected(name))
    alpha = noise.convert("RGBA")
    alpha.putalpha(Image.linear_gradient("L").resize((6, 4)))
    for name, image in [("alpha.png", alpha), ("grey.png", noise.convert("L")), ("grey-alpha.png", alpha.convert("LA")), ("palette.png", noise.convert("P"))]:
        image.save(OUT / name)
        rows.append(expected(name))
    (OUT / "expected.json").write_text("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n")


def expected(name):
    image = ImageOps.exif_transpose(Image.open(OUT / name))
    rgb = image.convert("RGB")
    # An image of a palette is grey by its colours.
    grey = (rgb if image.mode in ("RGBA", "P") else image).convert("L")
    return {"file": name, "width": image.width, "height": image.height, "rgb": list(rgb.tobytes()), "grey": list(grey.tobytes())}


if __name__ == "__main__":
    main()
