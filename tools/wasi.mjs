#!/usr/bin/env -S node --no-warnings
// Runs a program for wasm32-wasip1: `wasi.mjs program.wasm arguments`. It sees the environment and, under their own names,
// the files of this machine.

import { readFile } from 'node:fs/promises';
import { setFlagsFromString } from 'node:v8';
import { WASI } from 'node:wasi';

// Calls of WASI that V8 made fast crash: https://github.com/nodejs/node/issues/53087.
setFlagsFromString('--no-turbo-fast-api-calls');

const args = process.argv.slice(2);
const bytes = await readFile(args[0]);
if (!WebAssembly.validate(bytes)) {
  // Node.js 20 has relaxed SIMD, but not by default. If the reason is another, compiling says it.
  setFlagsFromString('--experimental-wasm-relaxed-simd');
}
const wasi = new WASI({ version: 'preview1', args, env: process.env, preopens: { '/': '/' } });
const instance = await WebAssembly.instantiate(await WebAssembly.compile(bytes), wasi.getImportObject());
process.exitCode = wasi.start(instance);
