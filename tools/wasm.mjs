#!/usr/bin/env node
// Runs recorded calls of the corpus in the WebAssembly module of examples/wasm, which has no system interface:
// `wasm.mjs module.wasm calls.json …`. Each program is lowered, which must not trap.

import { readFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';

const [file, ...records] = process.argv.slice(2);
const module = await WebAssembly.compile(await readFile(file));
const { exports } = await WebAssembly.instantiate(module, {});

function message() {
  const bytes = [];
  for (let byte = exports.message(0); byte >= 0; byte = exports.message(bytes.length)) {
    bytes.push(byte);
  }
  return Buffer.from(bytes).toString();
}

function check(condition, text) {
  if (!condition) {
    throw new Error(text);
  }
}

const floats = ({ base64 }) => {
  const bytes = Buffer.from(base64, 'base64');
  return Array.from({ length: bytes.length / 4 }, (_, at) => bytes.readFloatLE(4 * at));
};

let calls = 0;
for (const path of records) {
  const record = JSON.parse(await readFile(path, 'utf8'));
  const program = await readFile(join(dirname(path), record.program));
  const load = (lower, millis) => {
    program.forEach(byte => exports.program(byte));
    return exports.load(lower, millis);
  };
  check(load(1, 1000) === 0 && message().includes('no clock'), `${path}: a time limit without a clock`);
  for (const lower of [0, 1]) {
    check(load(lower, 0) === 1, `${path}: ${message()}`);
    for (const call of record.calls) {
      call.inputs.flatMap(floats).forEach(number => exports.input(number));
      const expected = call.outputs.flatMap(floats);
      check(exports.run() === expected.length, `${path}: ${message()}`);
      expected.forEach((want, at) => {
        const got = exports.output(at);
        const isNear = Math.abs(got - want) <= record.calls[0].tolerance * (1 + Math.abs(want));
        check(isNear || Object.is(got, want), `${path}: ${got}, not ${want}`);
      });
      calls += 1;
    }
  }
  // An error is one, too.
  exports.input(1);
  check(exports.run() === -1 && message().includes('expected'), `${path}: an input that does not fit`);
}
console.log(`${records.length} programs, ${calls} calls, as they are and lowered`);
