// Loads and disposals without end.

import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';

import { root, rushlight } from './support.js';

test('a thousand loads take no more memory than a hundred', async () => {
  const bytes = await readFile(join(root, 'examples/cortex-m/digits.pte'));
  const load = async count => {
    for (let at = 0; at < count; at += 1) {
      const module = await rushlight.Module.load(bytes);
      const outputs = [await module.forward([new Float32Array(64)])].flat();
      outputs.forEach(output => output.dispose());
      module.dispose();
    }
    globalThis.gc();
    const { rss, external } = process.memoryUsage();
    return { rss, external };
  };
  const before = await load(100);
  const after = await load(1000);
  const growth = (after.rss - before.rss) / 2 ** 20;
  console.log(`1,000 loads: ${growth.toFixed(1)} MiB more, of ${(before.rss / 2 ** 20).toFixed(0)} MiB`);
  assert.ok(after.external <= before.external + (1 << 20));
  assert.ok(growth < 16, `${growth} MiB`);
});
