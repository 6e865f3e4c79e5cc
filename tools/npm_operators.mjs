#!/usr/bin/env node
// Writes where the operators are in each module of the npm package: `run-simd.operators.json` beside `run-simd.wasm`.

import { readdir, readFile, writeFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { setFlagsFromString } from 'node:v8';

// Node.js 20 has relaxed instructions behind a flag.
setFlagsFromString('--experimental-wasm-relaxed-simd');

const folder = resolve(process.argv[2]);
for (const name of (await readdir(folder)).filter(name => /^run-.*\.wasm$/.test(name))) {
  const path = join(folder, name.slice(0, -'.wasm'.length));
  const { bind } = await import(pathToFileURL(`${path}.js`).href);
  const api = bind();
  await api.init({ module_or_path: await WebAssembly.compile(await readFile(join(folder, name))) });
  await writeFile(`${path}.operators.json`, JSON.stringify(api.operators()));
}
