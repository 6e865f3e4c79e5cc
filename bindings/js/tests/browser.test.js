// A page in Chromium.

import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';

import { CHROMIUM, launch, servePage } from './browser.js';
import { near, packageFolder, root } from './support.js';

/** The package at `/rushlight/`, the tests' page at `/`, and the repository at `/files/`. */
const serve = () => servePage(join(root, 'bindings/js/tests/page.html'), { rushlight: packageFolder, files: root });

if (!CHROMIUM) {
  console.log('NOT RUN: the package in a browser, as there is no Chromium');
}

test('in Chromium', { skip: !CHROMIUM && 'NOT RUN: there is no Chromium' }, async t => {
  const server = await serve();
  const browser = await launch();
  t.after(async () => {
    await browser.close();
    server.close();
  });
  const page = await browser.newPage();
  const problems = [];
  page.on('pageerror', error => problems.push(String(error)));
  await page.goto(server.url);
  await page.waitForFunction(() => globalThis.isReady);
  const { logits: expected } = JSON.parse(await readFile(join(root, 'examples/cortex-m/expected.json'), 'utf8'));

  for (const worker of [true, false]) {
    await t.test(`classifies digits, worker: ${worker}`, async () => {
      const { variant, isIsolated, logits } = await page.evaluate(isWorker => globalThis.classify(isWorker), worker);
      assert.equal(isIsolated, false);
      assert.equal(variant, 'relaxed');
      near(logits.flat(), expected.flat());
    });
  }

  await t.test('a page stays smooth while a model runs', async () => {
    assert.ok((await page.evaluate(() => globalThis.framesWhileCompiling())) > 0);
  });

  await t.test('a hostile file is an error, and the tab goes on', async () => {
    const errors = await page.evaluate(() => globalThis.hostile());
    errors.forEach(error => assert.match(error, /^RushlightError:(InvalidProgram|MemoryAllocationFailed|AccessFailed)/));
    const { logits } = await page.evaluate(() => globalThis.classify(true));
    assert.equal(logits.length, 10);
  });

  await t.test('a file in the browser’s cache is not fetched again', async () => {
    const path = '/files/examples/cortex-m/digits.pte';
    const before = server.counts.get(path);
    await page.evaluate(() => globalThis.loadCached());
    await page.evaluate(() => globalThis.loadCached());
    assert.equal(server.counts.get(path), before + 1);
  });

  await t.test('canvases become tensors', async () => {
    const { shape, data } = await page.evaluate(() => globalThis.canvas());
    assert.deepEqual(shape, [1, 3, 2, 2]);
    assert.deepEqual(data.slice(0, 4), [1, 1, 1, 1]);
    assert.deepEqual(data.slice(4), Array(8).fill(0));
  });

  await t.test('arrays that are transferred are not copied', async () => {
    assert.deepEqual(await page.evaluate(() => globalThis.transfer()), { kept: 64, transferred: 0 });
  });

  assert.deepEqual(problems, []);
});
