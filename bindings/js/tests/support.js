// What the tests share: the package under test, and recorded calls.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

export const root = join(dirname(fileURLToPath(import.meta.url)), '../../..');
export const packageFolder = process.env.RUSHLIGHT_PACKAGE;
export const rushlight = await import(pathToFileURL(join(packageFolder, 'index.js')).href);

const { RushlightError, Tensor } = rushlight;

/** The error that a promise fails with. */
export async function refusal(promise) {
  const error = await promise.then(() => assert.fail('it did not fail'), error => error);
  assert.ok(error instanceof RushlightError, String(error?.stack));
  return error;
}

/** Fails unless each number is near the expected one, relative to its size. */
export function near(got, expected, tolerance = 1e-3) {
  assert.equal(got.length, expected.length);
  expected.forEach((want, at) => assert.ok(Math.abs(got[at] - want) <= tolerance * (1 + Math.abs(want)), `${got[at]}, not ${want}`));
}

/** The path of a small language model with its tokenizer, which `RUSHLIGHT` compiles. */
export function languageModel() {
  const folder = mkdtempSync(join(tmpdir(), 'rushlight-'));
  process.on('exit', () => rmSync(folder, { recursive: true }));
  const path = join(folder, 'llama.pte');
  execFileSync(process.env.RUSHLIGHT, ['compile', join(root, 'tests/decoders/llama'), '--backend', 'cpu', '-o', path], { stdio: 'pipe' });
  return path;
}

const ARRAYS = {
  bool: Uint8Array,
  float32: Float32Array,
  int64: BigInt64Array,
  float16: globalThis.Float16Array ?? Uint16Array,
  bfloat16: Uint16Array,
};

/** The value of a record of `tests/corpus`. */
export function value(record) {
  if (record.kind !== 'tensor') {
    return record.kind === 'int' ? BigInt(record.value) : record.value;
  }
  const bytes = Buffer.from(record.base64, 'base64');
  const { buffer } = Uint8Array.from(bytes);
  return new Tensor(record.dtype, new ARRAYS[record.dtype](buffer), record.shape);
}

/** Recorded calls: of each program the path of its record. */
export async function records() {
  const folder = join(root, 'tests/corpus');
  const found = [];
  for (const generation of (await readdir(folder)).sort()) {
    for (const name of (await readdir(join(folder, generation))).sort()) {
      if (name.endsWith('.json')) {
        found.push(join(folder, generation, name));
      }
    }
  }
  return found;
}

export async function record(path) {
  const read = JSON.parse(await readFile(path, 'utf8'));
  const file = name => join(dirname(path), name);
  return { ...read, program: file(read.program), data: (read.data ?? []).map(file) };
}

/** Throws unless an output is the recorded one. */
export function checkNear(got, record, tolerance, where) {
  const expected = value(record);
  if (!(expected instanceof Tensor)) {
    if (got !== expected) {
      throw new Error(`${where}: ${got}, not ${expected}`);
    }
    return;
  }
  if (got.dtype !== expected.dtype || String(got.shape) !== String(expected.shape)) {
    throw new Error(`${where}: ${got.dtype} [${got.shape}], not ${expected.dtype} [${expected.shape}]`);
  }
  const [numbers, wanted] = [got.toFloat32(), expected.toFloat32()];
  wanted.forEach((want, at) => {
    const isNear = Math.abs(numbers[at] - want) <= tolerance * (1 + Math.abs(want));
    if (!isNear && !Object.is(numbers[at], want)) {
      throw new Error(`${where}, element ${at}: ${numbers[at]}, not ${want}`);
    }
  });
}
