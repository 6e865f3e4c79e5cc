// A page in Chromium.

import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { extname, join, normalize } from 'node:path';
import { test } from 'node:test';

import { near, packageFolder, root } from './support.js';

const CHROMIUM = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find(existsSync);
const TYPES = { '.html': 'text/html', '.js': 'text/javascript', '.wasm': 'application/wasm', '.json': 'application/json' };

/** Serves the package at `/rushlight/`, the tests' page at `/`, and the repository at `/files/`. */
async function serve() {
  const counts = new Map();
  const server = createServer(async (request, response) => {
    const path = normalize(new URL(request.url, 'http://page').pathname);
    counts.set(path, (counts.get(path) ?? 0) + 1);
    const [, folder, ...rest] = path.split('/');
    const of = { rushlight: packageFolder, files: root };
    const name = path === '/' ? join(root, 'bindings/js/tests/page.html') : of[folder] && join(of[folder], ...rest);
    try {
      const bytes = await readFile(name);
      response.setHeader('content-type', TYPES[extname(name)] ?? 'application/octet-stream');
      response.setHeader('content-length', bytes.length);
      response.end(bytes);
    } catch {
      response.statusCode = 404;
      response.end();
    }
  });
  await new Promise(resolve => server.listen(0, '127.0.0.1', resolve));
  const close = () => {
    server.closeAllConnections();
    server.close();
  };
  return { url: `http://127.0.0.1:${server.address().port}/`, counts, close };
}

if (!CHROMIUM) {
  console.log('NOT RUN: the package in a browser, as there is no Chromium');
}

test('in Chromium', { skip: !CHROMIUM && 'NOT RUN: there is no Chromium' }, async t => {
  const { chromium } = await import('playwright-core');
  const server = await serve();
  const browser = await chromium.launch({ executablePath: CHROMIUM, args: ['--no-sandbox'] });
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
