// Transcribes recordings: `node main.js samples/dialed.wav`.

import { readFile } from 'node:fs/promises';
import { Module, Tensor } from 'rushlight';
import { labels } from './labels.js';

/** Samples a second that the model expects. */
const RATE = {{rate}};

const paths = process.argv.slice(2);
if (paths.length === 0) {
  console.error('usage: node main.js RECORDING.wav...');
  process.exit(2);
}
const module = await Module.load('model.pte');
const tokens = await labels('labels.txt');
for (const path of paths) {
  const samples = await read(path);
  const outputs = await module.forward([new Tensor('float32', samples, [1, samples.length])]);
  const [logits] = [outputs].flat();
  console.log(`${path}: ${textOf(logits.toFloat32())}`);
}
module.dispose();

/** The samples of a WAV file of 16 bits from -1 to 1, the mean of its channels. */
async function read(path) {
  const bytes = await readFile(path);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const name = at => bytes.toString('latin1', at, at + 4);
  let channels = 0;
  for (let at = 12; name(0) === 'RIFF' && at + 8 <= bytes.length; at += 8 + view.getUint32(at + 4, true) + (view.getUint32(at + 4, true) % 2)) {
    if (name(at) === 'fmt ') {
      const isExpected = view.getUint32(at + 12, true) === RATE && view.getUint16(at + 22, true) === 16;
      channels = isExpected ? view.getUint16(at + 10, true) : 0;
    } else if (name(at) === 'data' && channels > 0) {
      const size = Math.min(view.getUint32(at + 4, true), bytes.length - at - 8);
      return Float32Array.from({ length: Math.floor(size / 2 / channels) }, (_, frame) => {
        let sum = 0;
        for (let channel = 0; channel < channels; channel += 1) {
          sum += view.getInt16(at + 8 + 2 * (frame * channels + channel), true);
        }
        return sum / channels / 32768;
      });
    }
  }
  throw new Error(`${path}: expected a WAV file of 16 bits at ${RATE} Hz`);
}

/** Decodes CTC greedily: repeated tokens count once, and token 0, the blank, is removed. */
function textOf(logits) {
  let [text, last] = ['', 0];
  for (let at = 0; at < logits.length; at += tokens.length) {
    const row = logits.subarray(at, at + tokens.length);
    const best = row.indexOf(Math.max(...row));
    text += best === 0 || best === last ? '' : tokens[best];
    last = best;
  }
  return text.replaceAll('|', ' ');
}
