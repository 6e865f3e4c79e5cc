// Operators, one program each: the bits that this machine's own library gives, which agree with PyTorch.

import assert from 'node:assert/strict';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';

import { checkOperators, MIN_OPERATORS, OPERATORS } from './support.js';

// All of them take minutes where the package is not optimized.
const STEP = process.env.RUSHLIGHT_WHOLE ? 1 : 23;

let count = 0;
for (const family of await readdir(OPERATORS)) {
  test(family, async () => {
    const cases = JSON.parse(await readFile(join(OPERATORS, family), 'utf8'));
    const ran = await checkOperators(cases, STEP);
    console.log(`${ran} of ${cases.length} cases`);
    count += ran;
  });
}

test('there were enough cases', () => assert.ok(count >= MIN_OPERATORS / STEP, `${count} cases`));
