// Shared code of the tests: the package under test, and recorded calls.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

import { records } from './records.js';

export const root = join(dirname(fileURLToPath(import.meta.url)), '../../..');
export const packageFolder = process.env.RUSHLIGHT_PACKAGE;
export const rushlight = await import(pathToFileURL(join(packageFolder, 'index.js')).href);

const { RushlightError } = rushlight;

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

export const { value, checkNear, checkOperators } = records(rushlight);

/** The folder with the operator cases: a file for each family. */
export const OPERATORS = process.env.RUSHLIGHT_OPERATORS;

/** Minimum number of operator cases that run. Some of nearly 24,000 are not written to files, or have types without an array. */
export const MIN_OPERATORS = 8000;

/** Two matrices of small integers for `matmul.pt2`, and their product from a loop. */
export function matrices() {
  const size = 96;
  const matrix = step => Float32Array.from({ length: size * size }, (_, at) => ((at * step) % 13) - 6);
  const [x, y] = [matrix(5), matrix(7)];
  const product = Float32Array.from({ length: size * size }, (_, at) => {
    const [row, column] = [Math.floor(at / size), at % size];
    return Array.from({ length: size }, (_, k) => x[row * size + k] * y[k * size + column]).reduce((a, b) => a + b);
  });
  return { x, y, product };
}

/** The paths of all records of programs. */
export async function recordPaths() {
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

/** The logits of the digits without lowering, as integers of their bits. All bindings compute the same. */
export async function recordedBits() {
  const bytes = Uint8Array.from(await readFile(join(root, 'tests/same_numbers/digits.bin')));
  return [...new Uint32Array(bytes.buffer)];
}
