// The native library in Node.js: how it is found, and features that WebAssembly lacks.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { copyFileSync, cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { Worker } from 'node:worker_threads';
import { pathToFileURL } from 'node:url';

import { languageModel, matrices, packageFolder, refusal, root, rushlight } from './support.js';

const { compile, LanguageModel, Module, Tensor, Tokenizer } = rushlight;
const DIGITS = join(root, 'examples/cortex-m/digits.pte');
const MATMUL = join(root, 'bindings/js/tests/matmul.pt2');
const native = { engine: 'native' };
const program = await compile(MATMUL, { ...native, backend: 'cpu' });
const { x, y, product } = matrices();

/** Starts Node.js with a package, and returns what a program prints, with its warnings. */
function printed(folder, text, variables = {}) {
  const url = JSON.stringify(pathToFileURL(join(folder, 'index.js')).href);
  const code = `const { Module } = await import(${url}); const DIGITS = ${JSON.stringify(DIGITS)}; ${text}`;
  const env = { ...process.env, ...variables };
  return execFileSync('sh', ['-c', '"$0" --input-type=module -e "$1" 2>&1', process.execPath, code], { env, encoding: 'utf8' });
}

/** A copy of the package without its addon, and the addon's name and path. */
function withoutAddon(t) {
  const folder = mkdtempSync(join(tmpdir(), 'rushlight-'));
  t.after(() => rmSync(folder, { recursive: true }));
  const copy = join(folder, 'rushlight');
  const [addons, modules] = ['native', 'wasm'].map(name => join(packageFolder, name));
  cpSync(packageFolder, copy, { recursive: true, filter: path => path !== addons && path !== modules });
  symlinkSync(modules, join(copy, 'wasm'));
  const file = readdirSync(addons).find(name => name.endsWith('.node'));
  return { folder, copy, name: file.slice(0, -'.node'.length), addon: join(addons, file) };
}

const SHOW = 'console.log((await Module.load(DIGITS)).variant)';
const AUTO = { RUSHLIGHT_ENGINE: 'auto' };

test('the environment and an option choose the engine', () => {
  assert.equal(printed(packageFolder, SHOW, AUTO), 'native\n');
  assert.equal(printed(packageFolder, SHOW, { RUSHLIGHT_ENGINE: '' }), 'native\n');
  assert.match(printed(packageFolder, SHOW, { RUSHLIGHT_ENGINE: 'wasm' }), /^(simd|relaxed)\n$/);
  const option = "console.log((await Module.load(DIGITS, { engine: 'wasm' })).variant)";
  assert.match(printed(packageFolder, option, { RUSHLIGHT_ENGINE: 'native' }), /^(simd|relaxed)\n$/);
  const unknown = 'await Module.load(DIGITS).catch(error => console.log(error.expected, error.got))';
  assert.equal(printed(packageFolder, unknown, { RUSHLIGHT_ENGINE: 'gpu' }), 'auto, native, wasm gpu\n');
});

test('without an addon WebAssembly runs, and silently', t => {
  const { copy } = withoutAddon(t);
  assert.match(printed(copy, SHOW, AUTO), /^(simd|relaxed)\n$/);
  const asked = "await Module.load(DIGITS, { engine: 'native' }).catch(error => console.log(error.message))";
  assert.match(printed(copy, asked), /^\[NotFound 0x20\] there is no native library[^]*the package rushlight-/);
});

test('an addon may be a package of its own', t => {
  const { folder, copy, name, addon } = withoutAddon(t);
  const own = join(folder, 'node_modules', name);
  mkdirSync(own, { recursive: true });
  copyFileSync(addon, join(own, 'rushlight.node'));
  writeFileSync(join(own, 'package.json'), JSON.stringify({ name, main: 'rushlight.node' }));
  assert.equal(printed(copy, SHOW, AUTO), 'native\n');
});

test('an addon that does not fit is a warning, and an error where it is asked for', t => {
  const { folder, copy, name } = withoutAddon(t);
  const own = join(folder, 'node_modules', name);
  mkdirSync(own, { recursive: true });
  const asked = "await Module.load(DIGITS, { engine: 'native' }).catch(error => console.log(error.message))";
  const addons = [
    ["exports.version = () => '0.0.9';", /is of another version\n {2}expected {2}\d+\.\d+\.\d+\n {2}got {7}0\.0\.9\n {2}help {6}install/],
    ["throw new Error('no such symbol');", /cannot load the native library[^]*no such symbol/],
  ];
  for (const [text, expected] of addons) {
    writeFileSync(join(own, 'package.json'), JSON.stringify({ name, main: 'addon.cjs' }));
    writeFileSync(join(own, 'addon.cjs'), text);
    const twice = 'for (const { variant } of await Promise.all([1, 2].map(() => Module.load(DIGITS)))) { console.log(variant); }';
    const lines = printed(copy, twice, AUTO);
    assert.match(lines, expected);
    assert.equal(lines.match(/RushlightWarning/g).length, 1, lines);
    assert.equal(lines.match(/^(simd|relaxed)$/gm).length, 2, lines);
    assert.match(printed(copy, asked), expected);
  }
});

test('both engines give the same bits', async () => {
  // Sums of these are rounded, in another way where they are added in another order.
  const rounded = x.map((value, at) => value + Math.sin(at));
  for (const [backend, first] of [['cpu', x], [undefined, x], [undefined, rounded]]) {
    const results = [];
    for (const engine of ['native', 'wasm']) {
      const bytes = await compile(MATMUL, { engine, backend });
      const module = await Module.load(bytes, { engine, lower: 'off' });
      results.push([bytes, (await module.forward([first, y])).copy()]);
      module.dispose();
    }
    assert.deepEqual(results[0], results[1]);
    assert.equal(results[0][1].every((value, at) => value === product[at]), first === x);
  }
});

test('threads compute what one does', async () => {
  for (const threads of [1, 2, 3]) {
    const module = await Module.load(program, { ...native, threads });
    assert.equal(module.threads, threads);
    assert.deepEqual((await module.forward([x, y])).data, product);
    module.dispose();
  }
});

const NO_MAPS = process.platform !== 'linux' && 'NOT RUN: there is no /proc';

test('files of paths are mapped, and no longer than their modules live', { skip: NO_MAPS }, async () => {
  const isMapped = () => readFileSync('/proc/self/maps', 'utf8').includes(DIGITS);
  const module = await Module.load(DIGITS, native);
  assert.ok(isMapped());
  module.dispose();
  assert.ok(!isMapped());
  const copied = await Module.load(readFileSync(DIGITS), native);
  assert.ok(!isMapped());
  copied.dispose();
});

test('inputs are those of the moment of the call, and stay where they are', async () => {
  const module = await Module.load(program, native);
  // The first calls run on another thread, later ones may run on this one.
  for (let call = 0; call < 6; call += 1) {
    const [first, second] = [x.slice(), y.slice()];
    const calls = [0, 1, 2].map(() => module.forward([first, second]));
    first.fill(0);
    structuredClone(second.buffer, { transfer: [second.buffer] });
    for (const result of await Promise.all(calls)) {
      assert.deepEqual(result.data, product);
    }
  }
  const shared = new Float32Array(new SharedArrayBuffer(4 * x.length));
  shared.set(x);
  assert.deepEqual((await module.forward([shared, y])).data, product);
  module.dispose();
});

test('a buffer that is handed over is detached, and used where it is', async () => {
  const module = await Module.load(program, native);
  for (let call = 0; call < 3; call += 1) {
    const both = new Float32Array(2 * x.length);
    both.set(x);
    both.set(y, x.length);
    const inputs = [both.subarray(0, x.length), both.subarray(x.length)];
    const result = await module.forward(inputs, { transfer: true });
    assert.deepEqual(result.data, product);
    assert.equal(both.length, 0);
    // A result can be handed over, too.
    const again = await module.forward([result, new Float32Array(y)], { transfer: true });
    assert.equal(again.data.length, product.length);
    assert.throws(() => result.data, /handed over/);
    assert.equal((await refusal(module.forward([result, y]))).codeName, 'InvalidState');
  }
  module.dispose();
});

test('the event loop goes on during a call', async () => {
  const module = await Module.load(DIGITS, native);
  let [ticks, isOver] = [0, false];
  const beat = () => {
    ticks += 1;
    if (!isOver) {
      setImmediate(beat);
    }
  };
  // A profile is one long call.
  const call = module.profile('forward', [new Float32Array(64)], { runs: 5000 });
  setImmediate(beat);
  await call;
  isOver = true;
  assert.ok(ticks > 20, `${ticks} ticks`);
  module.dispose();
});

test('calls of one module take turns, and `dispose` ends those that run', async () => {
  const module = await Module.load(program, native);
  const many = await Promise.all(Array.from({ length: 50 }, () => module.forward([x, y])));
  many.forEach(result => assert.deepEqual(result.data, product));
  const long = refusal(module.profile('forward', [x, y], { runs: 1_000_000 }));
  const waiting = refusal(module.forward([x, y]));
  await new Promise(resolve => setTimeout(resolve, 10));
  module.dispose();
  for (const error of await Promise.all([long, waiting])) {
    assert.equal(error.codeName, 'InvalidState');
    assert.match(error.message, /after `dispose`/);
  }
});

test('a signal ends a running call and a waiting one', async () => {
  const exported = join(root, 'bindings/jvm/tests/programs/loop.pt2');
  const module = await Module.load(await compile(exported, native), native);
  const count = number => [new Tensor('int64', BigInt64Array.of(number), [])];
  const begun = performance.now();
  const calls = [
    signal => module.forward(count(1n << 40n), { signal }),
    signal => module.profile('forward', count(1n << 40n), { runs: 1, signal }),
    signal => module.profile('forward', count(1n), { runs: 2 ** 31, signal }),
  ];
  for (const call of calls) {
    const signal = AbortSignal.timeout(50);
    const waiting = [call(signal), module.forward(count(1n << 40n), { signal })].map(refusal);
    for (const error of await Promise.all(waiting)) {
      assert.match(error.message, /was aborted/);
    }
    // Calls take turns: this one would wait for the calls before it.
    assert.deepEqual((await module.forward(count(5n))).data, BigInt64Array.of(5n));
  }
  module.dispose();
  assert.ok(performance.now() - begun < 20_000);
});

test('a program may exit during a call', () => {
  const text = `const module = await Module.load(DIGITS, { engine: 'native' });
    module.profile('forward', [new Float32Array(64)], { runs: 2 ** 31 }).catch(() => {});
    setTimeout(() => process.exit(), 20);`;
  const start = performance.now();
  assert.equal(printed(packageFolder, text), '');
  assert.ok(performance.now() - start < 20_000);
});

test('workers of Node.js have the library each', async () => {
  const url = JSON.stringify(pathToFileURL(join(packageFolder, 'index.js')).href);
  const code = `
    const { parentPort, workerData } = require('node:worker_threads');
    import(${url}).then(async ({ Module }) => {
      const module = await Module.load(workerData.path, { engine: 'native' });
      const outputs = [];
      for (let call = 0; call < 20; call += 1) {
        outputs.push([await module.forward([new Float32Array(64)])].flat()[0].data.slice());
      }
      parentPort.postMessage(outputs);
    });`;
  const answers = await Promise.all(Array.from({ length: 3 }, () => new Promise((resolve, reject) => {
    const worker = new Worker(code, { eval: true, workerData: { path: DIGITS } });
    worker.on('message', message => worker.terminate().then(() => resolve(message)));
    worker.on('error', reject);
  })));
  answers.flat().forEach(logits => assert.deepEqual(logits, answers[0][0]));
  // One that ends during a call does no harm.
  const busy = new Worker(`${code.replace('20;', '1e9;')}`, { eval: true, workerData: { path: DIGITS } });
  await new Promise(resolve => setTimeout(resolve, 200));
  await busy.terminate();
});

test('a panic of the addon is an error, wherever it comes', async () => {
  const file = readdirSync(join(packageFolder, 'native')).find(name => name.endsWith('.node'));
  const addon = createRequire(import.meta.url)(join(packageFolder, 'native', file));
  assert.throws(() => addon.panicForTests('call'), { defect: 'on purpose' });
  await assert.rejects(addon.panicForTests('pool'), { defect: 'on purpose' });
  assert.throws(() => addon.panicForTests('wrapper'), /on purpose/);
});

test('every export of the addon catches panics', () => {
  const sources = join(root, 'bindings/node/src');
  const exports = readdirSync(sources).flatMap(name => {
    const lines = readFileSync(join(sources, name), 'utf8').split('\n').map(line => line.trim());
    return lines.flatMap((line, at) => (line.startsWith('pub fn ') && lines[at - 1].startsWith('#[napi') ? [lines[at - 1]] : []));
  });
  assert.ok(exports.length > 30, `${exports.length} exports`);
  assert.deepEqual(exports.filter(attribute => !attribute.includes('catch_unwind')), []);
});

test('a defect breaks its own program alone', async () => {
  const { NativeLibrary } = await import(pathToFileURL(join(packageFolder, 'lib/native.js')).href);
  const library = new NativeLibrary({});
  // The report of a panic by the addon.
  const panic = () => Object.assign(new Error(), { defect: 'index out of bounds' });
  await assert.rejects(library.call(() => Promise.reject(panic())), { codeName: 'Internal', got: 'index out of bounds' });
  assert.throws(() => library.call(() => 1), { codeName: 'InvalidState' });
  assert.equal(new NativeLibrary({}).call(() => 1), 1);
});

test('values that do not fit are errors', async () => {
  const module = await Module.load(program, native);
  for (const value of [3n, 0.5, true, 'text', null]) {
    assert.equal((await refusal(module.forward([x, value]))).codeName, 'InvalidType');
  }
  assert.match((await refusal(module.forward([x, 2n ** 64n]))).message, /64 bits/);
  assert.equal((await refusal(module.forward([x, new Tensor('float32', y, [96 * 96])]))).codeName, 'InvalidArgument');
  module.dispose();
});

test('sessions of a language model answer at the same time', async () => {
  const llm = await LanguageModel.load(languageModel(), native);
  assert.equal(llm.variant, 'native');
  const options = { temperature: 0, maxNewTokens: 12, ignoreEos: true };
  const alone = await (await llm.session()).generate('lN,,LlI', options).text();
  const sessions = await Promise.all([llm.session(), llm.session(), llm.session()]);
  const texts = await Promise.all(sessions.map(session => session.generate('lN,,LlI', options).text()));
  texts.forEach(text => assert.equal(text, alone));
  const waiting = refusal(sessions[0].generate([], options).text());
  llm.dispose();
  assert.equal((await waiting).codeName, 'InvalidState');
  const tokenizer = await Tokenizer.load(join(root, 'tests/decoders/llama/tokenizer.json'), native);
  assert.equal(tokenizer.decode(tokenizer.encode('lN,,LlI')), 'lN,,LlI');
  tokenizer.dispose();
});
