// The demo page in Chromium: each part is used and photographed, and used again without the server.

import assert from 'node:assert/strict';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';

import { CHROMIUM, launch, servePage } from './browser.js';
import { languageModel, root } from './support.js';

/** The page with the package, as it is published. */
const FOLDER = process.env.RUSHLIGHT_DEMO;
const PHOTOGRAPHS = join(root, 'target/photographs');

/** Draws lines between points, which are parts of the canvas. */
async function draw(page, panel, lines) {
  const { x, y, width, height } = await page.locator(`#${panel} .draw`).boundingBox();
  for (const [first, ...rest] of lines) {
    await page.mouse.move(x + first[0] * width, y + first[1] * height);
    await page.mouse.down();
    for (const [right, down] of rest) {
      await page.mouse.move(x + right * width, y + down * height, { steps: 4 });
    }
    await page.mouse.up();
  }
}

const SEVEN = (x, y, size) => [[[x, y], [x + 0.6 * size, y], [x + 0.2 * size, y + size]]];
const ONE = (x, y, size) => [[[x, y + 0.2 * size], [x + 0.2 * size, y], [x + 0.2 * size, y + size]]];
const ZERO = (x, y, size) => [
  [...Array(17).keys()].map(at => [x + 0.3 * size * (1 + Math.cos((at * Math.PI) / 8)), y + 0.5 * size * (1 + Math.sin((at * Math.PI) / 8))]),
];

test('the demo page', { skip: !CHROMIUM && 'NOT RUN: there is no Chromium' }, async t => {
  const server = await servePage(join(FOLDER, 'index.html'), { '': FOLDER });
  const browser = await launch(['--use-fake-ui-for-media-stream', '--use-fake-device-for-media-stream']);
  t.after(async () => {
    await browser.close();
    server.close();
  });
  mkdirSync(PHOTOGRAPHS, { recursive: true });
  const context = await browser.newContext({ viewport: { width: 1000, height: 900 }, permissions: ['camera'] });
  const page = await context.newPage();
  const problems = [];
  page.on('pageerror', error => problems.push(error.stack ?? String(error)));
  await page.goto(server.url);
  const photograph = name => page.screenshot({ path: join(PHOTOGRAPHS, `${name}.png`), fullPage: true });
  const loaded = panel => page.waitForFunction(name => {
    const text = document.querySelector(`#${name} .about`)?.textContent ?? '';
    return text && !text.startsWith('Loading');
  }, panel);

  const classify = async () => {
    await loaded('classify');
    await draw(page, 'classify', SEVEN(0.3, 0.2, 0.6));
    await page.locator('#classify .results li:not(.hint)').first().waitFor();
    await page.waitForFunction(() => /ms/.test(document.querySelector('#classify .time').textContent));
    return page.locator('#classify .results li').first().innerText();
  };

  await t.test('classifies what is drawn', async () => {
    assert.match(await classify(), /7\s+\d/);
    await photograph('classify');
  });

  await t.test('tells the time of each layer', async () => {
    await page.locator('#classify summary').click();
    await page.waitForFunction(() => /steps: the mean of/.test(document.querySelector('#classify .layers .time').textContent));
    assert.ok((await page.locator('#classify .layers li').count()) >= 3);
    await photograph('layers');
    await page.locator('#classify summary').click();
  });

  await t.test('classifies what is opened, and the camera', async () => {
    await page.locator('#classify .picture input[type=file]').setInputFiles(join(root, 'examples/cortex-m/images/3.png'));
    await page.waitForFunction(() => /^(Most likely: )?3/.test(document.querySelector('#classify .results li')?.textContent.trim()));
    await page.locator('#classify').getByText('Camera').click();
    await page.waitForFunction(() => document.querySelector('#classify .picture button').textContent === 'Stop');
    await page.waitForTimeout(500);
    await photograph('camera');
    await page.locator('#classify').getByText('Stop').click();
  });

  await t.test('segments', async () => {
    await page.locator('#tab-segment').click();
    await loaded('segment');
    await draw(page, 'segment', [...SEVEN(0.1, 0.1, 0.38), ...ZERO(0.58, 0.55, 0.38), ...ONE(0.7, 0.08, 0.36)]);
    await page.waitForFunction(() => /ms/.test(document.querySelector('#segment .time').textContent));
    await page.locator('#segment .legend i').first().waitFor();
    const legend = await page.locator('#segment .legend').innerText();
    assert.match(legend, /7/);
    assert.match(legend, /0 ·/);
    // The result of the last stroke.
    await page.waitForTimeout(1000);
    await photograph('segment');
  });

  await t.test('a model that is missing is said', async () => {
    await page.locator('#tab-embed').click();
    await loaded('embed');
    assert.match(await page.locator('#embed .about').innerText(), /no model for this/);
    await page.locator('#tab-classify').click();
    const wrong = { name: 'wrong.pte', mimeType: 'application/octet-stream', buffer: Buffer.alloc(100) };
    await page.locator('#classify .model input').setInputFiles(wrong);
    await page.locator('#classify .problem', { hasText: 'InvalidProgram' }).waitFor();
    await photograph('problem');
  });

  const encoder = process.env.RUSHLIGHT_ENCODER;
  await t.test('finds sentences', { skip: !encoder && 'NOT RUN: RUSHLIGHT_ENCODER names no folder of an encoder' }, async () => {
    await page.locator('#tab-embed').click();
    const files = ['encoder.pte', 'tokenizer.json'].map(name => join(encoder, name));
    await page.locator('#embed .model input').setInputFiles(files);
    await page.waitForFunction(() => /texts in/.test(document.querySelector('#embed .time').textContent), null, { timeout: 300_000 });
    assert.match(await page.locator('#embed .results li').first().innerText(), /Quantization|Pruning|Distillation/);
    await photograph('embed');
  });

  await t.test('chats', async () => {
    await page.locator('#tab-chat').click();
    await loaded('chat');
    await page.locator('#chat .model input').setInputFiles(languageModel());
    await page.waitForFunction(() => /positions/.test(document.querySelector('#chat .about').textContent));
    await page.locator('#chat .tokens').fill('24');
    await page.locator('#message').fill('Hi');
    await page.keyboard.press('Enter');
    await page.waitForFunction(() => /^Read/.test(document.querySelector('#chat .time').textContent));
    assert.ok((await page.locator('#chat .assistant').innerText()).length > 1);
    await photograph('chat');
  });

  await t.test('a new conversation forgets the answer that it interrupts', async () => {
    const said = await page.locator('#chat .time').innerText();
    await page.locator('#chat .tokens').fill('100');
    await page.locator('#message').fill('Hi');
    await page.keyboard.press('Enter');
    await page.locator('#chat form button', { hasText: 'Stop' }).waitFor();
    await page.locator('#chat .clear').click();
    // The answer would have ended by then.
    await page.waitForTimeout(500);
    assert.equal(await page.locator('#chat .assistant').count(), 0);
    await page.locator('#chat .tokens').fill('24');
    await page.locator('#message').fill('Hi');
    await page.keyboard.press('Enter');
    await page.waitForFunction(() => /^Read/.test(document.querySelector('#chat .time').textContent));
    const read = text => /Read \d+ tokens/.exec(text)[0];
    assert.equal(read(await page.locator('#chat .time').innerText()), read(said));
  });

  await t.test('in the dark on a phone', async () => {
    await page.emulateMedia({ colorScheme: 'dark' });
    await page.setViewportSize({ width: 390, height: 844 });
    await photograph('phone-chat');
    await page.locator('#tab-segment').click();
    await photograph('phone-segment');
    const width = await page.evaluate(() => document.documentElement.scrollWidth);
    assert.ok(width <= 390, `${width} pixels`);
    await page.setViewportSize({ width: 1000, height: 900 });
  });

  await t.test('works offline after the first load', async () => {
    server.close();
    await page.goto('about:blank');
    await page.goto(server.url);
    assert.match(await classify(), /7\s+\d/);
    await photograph('offline');
  });

  assert.deepEqual(problems, []);
});
