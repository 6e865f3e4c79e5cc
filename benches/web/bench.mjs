// Times of the npm package beside onnxruntime-web, in a page, and of both beside onnxruntime-node. Prints JSON.
//
//     node bench.mjs PACKAGE MODELS [rounds]

import { readdir, readFile, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { brotliCompressSync, constants, gzipSync } from 'node:zlib';

import * as onnxruntimeNode from 'onnxruntime-node';
import { chromium } from 'playwright-core';

import { CHROMIUM, servePage } from '../../bindings/js/tests/browser.js';
import { difference, interleaved, ofOnnxRuntime, ofRushlight } from './sides.js';

const [packageFolder, models, rounds = '15'] = process.argv.slice(2);
const here = dirname(fileURLToPath(import.meta.url));
const onnxruntime = join(here, 'node_modules/onnxruntime-web/dist');

/** The values of a model's only input: `input_1x3x224x224.bin`. */
async function values(model) {
  const file = (await readdir(join(models, model))).find(name => name.startsWith('input_'));
  const shape = file.slice('input_'.length, -'.bin'.length).split('x').map(Number);
  const count = shape.reduce((product, size) => product * size, 1);
  const { size } = await stat(join(models, model, file));
  return { file: `${model}/${file}`, dtype: size === 8 * count ? 'int64' : 'float32', shape };
}

const server = await servePage(join(here, 'page.html'), { rushlight: packageFolder, onnxruntime, models, web: here }, { isIsolated: true });
const browser = await chromium.launch({ executablePath: CHROMIUM, args: ['--no-sandbox'] });

/** Times a model in a page of its own: onnxruntime-web starts its threads once. */
async function inPage(model, options) {
  const page = await browser.newPage();
  await page.goto(server.url);
  await page.waitForFunction(() => globalThis.isReady);
  const files = { pte: `${model}/model.pte`, onnx: `${model}/model.onnx`, values: await values(model) };
  const times = await page.evaluate(all => globalThis.compare(all), { ...files, ...options, rounds: Number(rounds) });
  await page.close();
  console.error(model, JSON.stringify(times));
  return { model, ...times };
}

async function inNode(model, engine) {
  const { file, dtype, shape } = await values(model);
  const bytes = Uint8Array.from(await readFile(join(models, file)));
  const given = { dtype, shape, data: new { float32: Float32Array, int64: BigInt64Array }[dtype](bytes.buffer) };
  const rushlight = await import(pathToFileURL(join(packageFolder, 'index.js')).href);
  const ours = await ofRushlight(rushlight, join(models, model, 'model.pte'), given, { engine });
  const theirs = await ofOnnxRuntime(onnxruntimeNode, join(models, model, 'model.onnx'), given);
  const error = difference(await ours.answer(), await theirs.answer());
  const [oursTime, theirsTime] = await interleaved([ours.call, theirs.call], Number(rounds));
  ours.dispose();
  return { error, ours: oursTime, theirs: theirsTime };
}

/** Bytes of a file as it is, and as it is downloaded. */
async function sizes(file) {
  const bytes = await readFile(file);
  const quality = { params: { [constants.BROTLI_PARAM_QUALITY]: 11 } };
  return { raw: bytes.length, gzip: gzipSync(bytes, { level: 9 }).length, brotli: brotliCompressSync(bytes, quality).length };
}

const latency = [];
for (const model of ['mobilenet_v2', 'minilm']) {
  for (const [threads, variant] of [[1, 'simd'], [1, 'relaxed'], [2, 'threads']]) {
    latency.push(await inPage(model, { threads, variant }));
  }
}
const overhead = {
  page: await inPage('smallest', { threads: 1, worker: false }),
  worker: await inPage('smallest', { threads: 1 }),
  node: await inNode('smallest', 'wasm'),
  native: await inNode('smallest', 'native'),
};
const chromiumVersion = browser.version();
await browser.close();
server.close();
const files = [...['simd', 'relaxed', 'threads'].map(name => join(packageFolder, 'wasm', `run-${name}.wasm`)),
  join(packageFolder, 'wasm/compile-simd.wasm'), join(onnxruntime, 'ort-wasm-simd-threaded.wasm')];
const downloads = [];
for (const file of files) {
  downloads.push({ file: file.slice(dirname(file).length + 1), ...(await sizes(file)) });
}
console.log(JSON.stringify({ chromium: chromiumVersion, latency, overhead, downloads }));
process.exit(0);
