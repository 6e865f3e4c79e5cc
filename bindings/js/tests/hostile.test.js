// Damaged files: each is refused, or runs.

import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { test } from 'node:test';

import { record, recordPaths, rushlight, value } from './support.js';

const { Module, RushlightError } = rushlight;
const EXTREMES = [0, 1, 2, 0x7f, 0xff, 0x7fffffff, 0x80000000, 0xffffffff, 0xfffffff0, 0x10000];
const MUTATIONS_OF_EACH = 12;

/** xorshift32 (Marsaglia, 2003). */
function random(seed) {
  let state = seed;
  return limit => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) % limit;
  };
}

function mutate(bytes, below) {
  const limit = below(8) === 0 ? bytes.length : Math.min(bytes.length, 4096);
  const view = new DataView(bytes.buffer);
  for (let count = 0; count <= below(4); count += 1) {
    const at = below(limit - 4);
    if (below(2) === 0) {
      bytes[at] ^= 1 << below(8);
    } else {
      view.setUint32(at & ~3, EXTREMES[below(EXTREMES.length)], true);
    }
  }
}

test('damaged programs are refused or run', async () => {
  const below = random(20);
  const seen = { refused: 0, ran: 0 };
  for (const path of await recordPaths()) {
    const { program, calls, name } = await record(path);
    const whole = await readFile(program);
    // A damaged loop may have no end, and there is no clock here.
    const isRun = !/cond|map|while/.test(name);
    for (let at = 0; at < MUTATIONS_OF_EACH; at += 1) {
      const bytes = Uint8Array.from(at === 0 ? whole.subarray(0, whole.length / 2) : whole);
      mutate(bytes, below);
      let module;
      try {
        module = await Module.load(bytes, { memoryLimit: 64 << 20, lower: at % 2 ? 'auto' : 'off' });
        if (isRun) {
          await module.run(calls[0].method, calls[0].inputs.map(value));
        }
        seen.ran += 1;
      } catch (error) {
        assert.ok(error instanceof RushlightError, `${name}, ${at}: ${error.stack}`);
        assert.notEqual(error.codeName, 'Internal', `${name}, ${at}: ${error.stack}`);
        seen.refused += 1;
      }
      module?.dispose();
    }
  }
  console.log(`${seen.refused} refused, ${seen.ran} ran`);
  assert.ok(seen.refused > 100 && seen.ran > 50);
});
