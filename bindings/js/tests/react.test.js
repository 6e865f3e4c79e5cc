// The example with React: Vite builds it, and its page classifies a picture.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { test } from 'node:test';

import { CHROMIUM, launch, servePage } from './browser.js';
import { root } from './support.js';

const reason = process.env.RUSHLIGHT_WHOLE ? !CHROMIUM && 'there is no Chromium' : '`cargo xtask test js-whole` takes it';

test('React and Vite', { skip: reason && `NOT RUN: ${reason}` }, async t => {
  const folder = join(root, 'examples/react');
  const npm = (...args) => execFileSync('npm', args, { cwd: folder, stdio: 'pipe' });
  npm('ci', '--silent', '--no-audit', '--no-fund');
  npm('run', 'build');
  const dist = join(folder, 'dist');
  const server = await servePage(join(dist, 'index.html'), { '': dist });
  const browser = await launch();
  t.after(async () => {
    await browser.close();
    server.close();
  });
  const page = await browser.newPage();
  await page.goto(server.url);
  for (const digit of [3, 8]) {
    await page.locator('input').setInputFiles(join(root, `examples/cortex-m/images/${digit}.png`));
    await page.locator('output', { hasText: String(digit) }).waitFor();
  }
  assert.equal(await page.locator('[role=alert]').count(), 0);
});
