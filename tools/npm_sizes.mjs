#!/usr/bin/env node
// Prints the sizes of files: as they are, and as they are downloaded.

import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { brotliCompressSync, constants, gzipSync } from 'node:zlib';

const folder = process.argv[2];
const row = cells => cells.map((cell, at) => (at ? cell.padStart(12) : cell.padEnd(24))).join('');
console.log(row(['bytes', 'raw', 'gzip -9', 'brotli 11']));
for (const name of (await readdir(folder)).filter(name => name.endsWith('.wasm')).sort()) {
  const bytes = await readFile(join(folder, name));
  const quality = { params: { [constants.BROTLI_PARAM_QUALITY]: 11 } };
  const sizes = [bytes, gzipSync(bytes, { level: 9 }), brotliCompressSync(bytes, quality)];
  console.log(row([name, ...sizes.map(({ length }) => length.toLocaleString('en-US'))]));
}
