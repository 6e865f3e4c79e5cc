// Images, canvases and frames of videos as tensors.

import { failure } from './errors.js';

const NORMALIZATIONS = {
  none: { mean: [0, 0, 0], std: [1, 1, 1] },
  imagenet: { mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225] },
  // To -1 to 1.
  symmetric: { mean: [0.5, 0.5, 0.5], std: [0.5, 0.5, 0.5] },
};

/** Luma weights of ITU-R BT.601 in units of 1/65536, as in Pillow's mode `L`. */
const LUMA = [19595, 38470, 7471];

/** The elements of an image, 0 to 1 before they are normalized. */
export function pixels(source, { size, channels = 3, layout = 'nchw', normalize = 'none', dtype = 'float32' } = {}) {
  const { mean, std } = typeof normalize === 'string' ? normalization(normalize) : normalize;
  if (channels !== 1 && channels !== 3) {
    throw failure('InvalidArgument', 'an image has 1 or 3 channels', { got: String(channels) });
  }
  if (layout !== 'nchw' && layout !== 'nhwc') {
    throw failure('InvalidArgument', 'no layout has this name', { expected: 'nchw, nhwc', got: String(layout) });
  }
  if (dtype !== 'float32' && dtype !== 'uint8') {
    throw failure('InvalidArgument', 'an image becomes another type', { expected: 'float32, uint8', got: String(dtype) });
  }
  const { data, width, height } = rgba(source, size);
  const count = width * height;
  const elements = dtype === 'uint8' ? new Uint8ClampedArray(count * channels) : new Float32Array(count * channels);
  for (let at = 0; at < count; at += 1) {
    for (let channel = 0; channel < channels; channel += 1) {
      const byte = channels === 3 ? data[4 * at + channel] : luma(data, 4 * at);
      const to = layout === 'nchw' ? channel * count + at : at * channels + channel;
      elements[to] = dtype === 'uint8' ? byte : (byte / 255 - mean[channel]) / std[channel];
    }
  }
  const shape = layout === 'nchw' ? [1, channels, height, width] : [1, height, width, channels];
  return { dtype, data: elements, shape };
}

function luma(data, at) {
  return (LUMA[0] * data[at] + LUMA[1] * data[at + 1] + LUMA[2] * data[at + 2] + 0x8000) >> 16;
}

function normalization(name) {
  if (!Object.hasOwn(NORMALIZATIONS, name)) {
    const expected = Object.keys(NORMALIZATIONS).join(', ');
    throw failure('InvalidArgument', 'no normalization has this name', { expected, got: name });
  }
  return NORMALIZATIONS[name];
}

/** The pixels of an image, resized to `[height, width]` if that is given. */
function rgba(source, size) {
  const width = source.videoWidth ?? source.displayWidth ?? source.naturalWidth ?? source.width;
  const height = source.videoHeight ?? source.displayHeight ?? source.naturalHeight ?? source.height;
  const [rows, columns] = size ?? [height, width];
  if (!(rows > 0 && columns > 0)) {
    throw failure('InvalidArgument', 'the image has no size', { got: `${height} x ${width}` });
  }
  const isData = source.data !== undefined;
  if (isData && rows === height && columns === width) {
    return source;
  }
  if (!globalThis.OffscreenCanvas) {
    const hint = 'resize it first, and give `{ data, width, height }` with RGBA bytes';
    throw failure('NotSupported', 'there is no canvas here, which images are resized with', { hint });
  }
  if (isData) {
    const whole = new OffscreenCanvas(width, height);
    whole.getContext('2d').putImageData(new ImageData(new Uint8ClampedArray(source.data), width, height), 0, 0);
    source = whole;
  }
  const context = new OffscreenCanvas(columns, rows).getContext('2d', { willReadFrequently: true });
  context.imageSmoothingQuality = 'high';
  context.drawImage(source, 0, 0, columns, rows);
  return context.getImageData(0, 0, columns, rows);
}
