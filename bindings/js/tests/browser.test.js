// A page in Chromium.

import assert from 'node:assert/strict';
import { cp, mkdtemp, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { test } from 'node:test';

import { CHROMIUM, launch, servePage } from './browser.js';
import { matrices, MIN_OPERATORS, near, OPERATORS, packageFolder, record, recordedBits, recordPaths, root } from './support.js';

/**
 * The package at `/rushlight/`, the tests' page at `/`, cases of operators at `/operators/`, and the repository at `/files/`; isolated from
 * other origins or not.
 */
const serve = options =>
  servePage(join(root, 'bindings/js/tests/page.html'), { rushlight: packageFolder, operators: OPERATORS, files: root }, options);

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
  const problems = [];
  const opened = async url => {
    const page = await browser.newPage();
    page.on('pageerror', error => problems.push(String(error)));
    await page.goto(url);
    await page.waitForFunction(() => globalThis.isReady);
    return page;
  };
  const page = await opened(server.url);
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
    const { longest, whole } = await page.evaluate(() => globalThis.gapWhileCompiling());
    console.log(`${longest.toFixed(0)} ms without a task of the page, of ${whole.toFixed(0)} ms`);
    assert.ok(longest < Math.max(250, whole / 4), `${longest} ms of ${whole} ms`);
  });

  await t.test('compiles from URLs, responses and streams, and is aborted', async () => {
    const { programs, aborted } = await page.evaluate(() => globalThis.compileSources());
    assert.ok(programs[0] > 0);
    assert.deepEqual(programs, Array(4).fill(programs[0]));
    assert.match(aborted, /aborted/);
  });

  await t.test('a hostile file is an error, and the tab goes on', async () => {
    const errors = await page.evaluate(() => globalThis.hostile());
    errors.forEach(error => assert.match(error, /^RushlightError:(InvalidProgram|MemoryAllocationFailed|AccessFailed)/));
    const { logits } = await page.evaluate(() => globalThis.classify(true));
    assert.equal(logits.length, 10);
  });

  await t.test('damaged files are refused or run, and the tab goes on', async () => {
    const count = process.env.RUSHLIGHT_WHOLE ? 500 : 40;
    const seen = await page.evaluate(options => globalThis.damaged(options), { url: '/files/examples/cortex-m/digits.pte', count });
    console.log('damaged files', seen);
    assert.equal(Object.values(seen).reduce((sum, number) => sum + number), count);
    assert.ok(!('Internal' in seen) && Object.keys(seen).every(name => /^\w+$/.test(name)), JSON.stringify(seen));
    assert.equal((await page.evaluate(() => globalThis.classify(true))).logits.length, 10);
  });

  // Each worker compiles the module, which is large where it is not optimized.
  const isWhole = Boolean(process.env.RUSHLIGHT_WHOLE);
  for (const [lower, worker] of [['auto', isWhole], ['off', false]]) {
    await t.test(`recorded calls, lowering ${lower}`, async () => {
      const programs = [];
      for (const path of await recordPaths()) {
        const { program, data, bundled, backends, calls } = await record(path);
        // As in corpus.test.js.
        if (!bundled && !(backends && lower === 'off')) {
          const url = file => `/files/${relative(root, file)}`;
          programs.push({ program: url(program), data: data.map(url), calls });
        }
      }
      const count = await page.evaluate(options => globalThis.replay(options), { programs, lower, worker });
      assert.ok(count > 20, `${count} calls`);
    });
  }

  await t.test('operators', async () => {
    // The tests in Node.js run the same code.
    const step = isWhole ? 1 : 101;
    let count = 0;
    for (const family of await readdir(OPERATORS)) {
      count += await page.evaluate(asked => globalThis.operators(asked), { url: `/operators/${family}`, step });
    }
    console.log(`${count} cases`);
    assert.ok(count >= MIN_OPERATORS / step, `${count} cases`);
  });

  await t.test('logits are bit-identical in every binding', async () => {
    assert.deepEqual(await page.evaluate(() => globalThis.digitBits()), await recordedBits());
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

  await t.test('threads are used where the page is isolated', async () => {
    const isolated = await serve({ isIsolated: true });
    t.after(() => isolated.close());
    for (const [url, worker, threads] of [[server.url, true, 1], [isolated.url, true, 2], [isolated.url, false, 1]]) {
      const where = await opened(url);
      const { product, ...seen } = await where.evaluate(asked => globalThis.multiply(asked), { worker, threads: 2, ...matrices() });
      assert.deepEqual(seen, { isIsolated: url === isolated.url, threads, variant: threads > 1 ? 'threads' : 'relaxed' });
      assert.deepEqual(product, [...matrices().product]);
      await where.close();
    }
  });

  await t.test('a thread that cannot start is an error', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'rushlight-'));
    t.after(() => rm(folder, { recursive: true }));
    await cp(packageFolder, folder, { recursive: true });
    await rename(join(folder, 'wasm/run-threads.js'), join(folder, 'wasm/whole.js'));
    await writeFile(join(folder, 'wasm/run-threads.js'), `
import { bind as whole } from './whole.js';
class LentThread {
  constructor() {
    throw new Error('no memory for it');
  }
}
export const bind = () => ({ ...whole(), LentThread });
`);
    const isolated = await servePage(join(root, 'bindings/js/tests/page.html'), { rushlight: folder, files: root }, { isIsolated: true });
    t.after(() => isolated.close());
    const where = await opened(isolated.url);
    const asked = { worker: true, threads: 3, ...matrices() };
    const error = await where.evaluate(given => globalThis.multiply(given).catch(({ message }) => message), asked);
    assert.match(error, /a thread cannot be started\n +got +Error: no memory for it/);
    await where.close();
  });

  await t.test('memory returns after `dispose`', async () => {
    const loads = process.env.RUSHLIGHT_WHOLE ? 1000 : 10;
    // It goes on compiling in the background what the tests before have loaded.
    await page.close();
    const isolated = await serve({ isIsolated: true });
    t.after(() => isolated.close());
    const where = await opened(isolated.url);
    for (const options of [{ worker: true }, { worker: false }, { worker: true, threads: 2 }]) {
      await where.evaluate(asked => globalThis.loads(asked), { count: Math.max(4, loads / 10), ...options });
      const before = await memory(where);
      await where.evaluate(asked => globalThis.loads(asked), { count: loads, ...options });
      let after = await memory(where);
      // Workers that were ended give theirs back when the browser comes to it.
      for (let waits = 0; after - before >= 16 << 20 && waits < 40; waits += 1) {
        await new Promise(resolve => setTimeout(resolve, 500));
        after = await memory(where);
      }
      console.log(`${loads} loads, ${JSON.stringify(options)}: ${mebibytes(before)}, then ${mebibytes(after)} MiB of all pages`);
      assert.ok(after - before < 16 << 20, `${mebibytes(after - before)} MiB more`);
    }
  });

  assert.deepEqual(problems, []);
});

/** Bytes of the processes of all pages, after a garbage collection. */
async function memory(page) {
  const session = await page.context().newCDPSession(page);
  await session.send('HeapProfiler.collectGarbage');
  const devtools = await page.context().browser().newBrowserCDPSession();
  const { processInfo } = await devtools.send('SystemInfo.getProcessInfo');
  let bytes = 0;
  for (const { id } of processInfo.filter(({ type }) => type === 'renderer')) {
    const [, kibibytes] = /^VmRSS:\s+(\d+) kB$/m.exec(await readFile(`/proc/${id}/status`, 'utf8'));
    bytes += 1024 * kibibytes;
  }
  await Promise.all([session.detach(), devtools.detach()]);
  return bytes;
}

const mebibytes = bytes => (bytes / 2 ** 20).toFixed(1);
