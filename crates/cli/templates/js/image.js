// Reads an image as the input of a model.

import { readFile } from 'node:fs/promises';
import { Tensor } from 'rushlight';

/**
 * A tensor `[1, channels, height, width]` of a file in binary PGM or PPM, which `magick cat.jpg cat.ppm` writes. An image of another size
 * is resized. In a page, `Tensor.fromImage` takes any image, canvas or video.
 */
export async function read(path, [, channels, height, width]) {
  const bytes = await readFile(path);
  const head = /^P([56])\s+(?:#[^\n]*\s+)*(\d+)\s+(\d+)\s+255\s/.exec(bytes.subarray(0, 200).toString('latin1'));
  if (!head) {
    throw new Error(`${path}: expected a binary PGM or PPM file of 8 bits`);
  }
  const [has, columns, rows] = [head[1] === '5' ? 1 : 3, Number(head[2]), Number(head[3])];
  const pixels = bytes.subarray(head[0].length);
  if (columns !== width || rows !== height) {
    console.log(`${path} is resized from ${columns} x ${rows} to ${width} x ${height}`);
  }
  const data = new Uint8ClampedArray(4 * width * height);
  for (let y = 0; y < height; y += 1) {
    for (let x = 0; x < width; x += 1) {
      for (let channel = 0; channel < 3; channel += 1) {
        data[4 * (y * width + x) + channel] = sample(pixels, { has, columns, rows }, channel, ((y + 0.5) * rows) / height, ((x + 0.5) * columns) / width);
      }
    }
  }
  // The normalization of torchvision's models, which take colours. A model of grey images gets numbers from 0 to 1.
  return Tensor.fromImage({ data, width, height }, { channels, normalize: channels === 3 ? 'imagenet' : 'none' });
}

/** Interpolates linearly between the centres of pixels. */
function sample(pixels, { has, columns, rows }, channel, y, x) {
  const row = Math.min(Math.max(y - 0.5, 0), rows - 1);
  const column = Math.min(Math.max(x - 0.5, 0), columns - 1);
  const [top, left] = [Math.floor(row), Math.floor(column)];
  const [bottom, right] = [Math.min(top + 1, rows - 1), Math.min(left + 1, columns - 1)];
  const byte = (y, x) => pixels[has * (y * columns + x) + (has === 3 ? channel : 0)];
  const between = (a, b, share) => a * (1 - share) + b * share;
  const above = between(byte(top, left), byte(top, right), column - left);
  return between(above, between(byte(bottom, left), byte(bottom, right), column - left), row - top);
}
