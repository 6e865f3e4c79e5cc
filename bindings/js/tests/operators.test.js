// Operators, one program each: the bits that this machine's own library gives, which agree with PyTorch.

import assert from 'node:assert/strict';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';

import { bytes, isKnown } from './records.js';
import { checkSame, rushlight, value } from './support.js';

const FOLDER = process.env.RUSHLIGHT_OPERATORS;
// All of them take minutes where the package is not optimized.
const STEP = process.env.RUSHLIGHT_WHOLE ? 1 : 23;

/** Of nearly 24,000 that there are, most are written and known. */
const MIN_CASES = 8000 / STEP;

let count = 0;
for (const family of await readdir(FOLDER)) {
  test(family, async () => {
    const cases = JSON.parse(await readFile(join(FOLDER, family), 'utf8'));
    const taken = cases.filter((_, at) => at % STEP === 0).filter(({ inputs, outputs }) => [...inputs, ...outputs].every(isKnown));
    for (const { name, program, inputs, outputs } of taken) {
      const module = await rushlight.Module.load(bytes(program), { lower: 'off' });
      const got = await module.forward(inputs.map(value));
      assert.equal(got.length, outputs.length, name);
      outputs.forEach((output, at) => checkSame(got[at], output, `${name}, output ${at}`));
      module.dispose();
      count += 1;
    }
    console.log(`${taken.length} of ${cases.length} cases`);
  });
}

test('there were enough cases', () => assert.ok(count >= MIN_CASES, `${count} cases`));
