// Classifies images: `node main.js samples/7.pgm`.

import { Module } from 'rushlight';
import { read } from './image.js';
import { labels } from './labels.js';

const TOP = 3;

const paths = process.argv.slice(2);
if (paths.length === 0) {
  console.error('usage: node main.js IMAGE.pgm|IMAGE.ppm...');
  process.exit(2);
}
const module = await Module.load('model.pte');
const [{ shape }] = module.meta().inputs;
const names = await labels('labels.txt');
for (const path of paths) {
  const outputs = await module.forward([await read(path, shape)]);
  const [logits] = [outputs].flat();
  const scores = logits.toFloat32();
  const max = Math.max(...scores);
  const sum = scores.reduce((sum, score) => sum + Math.exp(score - max), 0);
  const order = [...scores.keys()].sort((a, b) => scores[b] - scores[a]).slice(0, TOP);
  const best = order.map(index => `${names[index] ?? index} ${((100 * Math.exp(scores[index] - max)) / sum).toFixed(1)} %`);
  console.log(`${path}: ${best.join(', ')}`);
}
module.dispose();
