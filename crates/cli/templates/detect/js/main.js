// Finds objects in images: `node main.js samples/shapes.pgm`.

import { Module } from 'rushlight';
import { read } from './image.js';
import { labels } from './labels.js';

const MIN_SCORE = 0.5;
const MAX_OVERLAP = 0.5;

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
  // Boxes are left, top, right and bottom in pixels of the model's input.
  const [boxes, scores] = Object.values(outputs);
  console.log(path);
  for (const { kind, score, box } of detections(boxes.toFloat32(), scores.toFloat32())) {
    console.log(`  ${names[kind] ?? kind} ${(100 * score).toFixed(0)} % at ${Array.from(box, Math.round).join(' ')}`);
  }
}
module.dispose();

/** The detections, the best first. Of boxes of one class that overlap, the best one stays. */
function detections(boxes, scores) {
  const count = boxes.length / 4;
  const classes = scores.length / count;
  const candidates = Array.from({ length: count }, (_, index) => {
    const row = scores.subarray(index * classes, (index + 1) * classes);
    const score = Math.max(...row);
    return { kind: row.indexOf(score), score, box: boxes.subarray(4 * index, 4 * index + 4) };
  });
  const found = [];
  for (const candidate of candidates.filter(({ score }) => score >= MIN_SCORE).sort((a, b) => b.score - a.score)) {
    if (found.every(other => other.kind !== candidate.kind || overlap(other.box, candidate.box) <= MAX_OVERLAP)) {
      found.push(candidate);
    }
  }
  return found;
}

/** The intersection over union of two boxes. */
function overlap(a, b) {
  const width = Math.max(Math.min(a[2], b[2]) - Math.max(a[0], b[0]), 0);
  const height = Math.max(Math.min(a[3], b[3]) - Math.max(a[1], b[1]), 0);
  const area = box => (box[2] - box[0]) * (box[3] - box[1]);
  return (width * height) / (area(a) + area(b) - width * height);
}
