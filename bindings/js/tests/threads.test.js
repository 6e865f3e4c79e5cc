// Modules with several threads, in Node.js.

import assert from 'node:assert/strict';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { pathToFileURL } from 'node:url';

import { matrices, packageFolder, root, rushlight } from './support.js';

const { compile, Module } = rushlight;
const MATMUL = join(root, 'bindings/js/tests/matmul.pt2');

for (const worker of [false, true]) {
  test(`two threads compute what one does, worker: ${worker}`, async () => {
    const program = await compile(MATMUL, { backend: 'cpu' });
    const { x, y, product } = matrices();
    for (const threads of [2, 3, 1]) {
      const module = await Module.load(program, { worker, threads });
      assert.equal(module.threads, Math.min(threads, availableParallelism()));
      assert.equal(module.variant === 'threads', threads > 1);
      for (let call = 0; call < 3; call += 1) {
        assert.deepEqual((await module.forward([x, y])).data.slice(), product);
      }
      module.dispose();
    }
  });
}

test('results of a local module are inputs of one in a worker', async () => {
  const program = await compile(MATMUL, { backend: 'cpu' });
  const { x, y, product } = matrices();
  const remote = await Module.load(program, { worker: true });
  const identity = Float32Array.from({ length: x.length }, (_, at) => (at % 97 === 0 ? 1 : 0));
  for (const threads of [1, 2]) {
    const local = await Module.load(program, { threads });
    for (const transfer of [false, true]) {
      const result = await local.forward([x, y]);
      const next = remote.forward([result, identity.slice()], { transfer });
      // It is read as it was when it was given.
      result.data.fill(0);
      assert.deepEqual((await next).data, product);
      assert.equal(result.data.length, product.length);
      result.dispose();
    }
    local.dispose();
  }
  remote.dispose();
});

test('a thread that ends by a trap breaks its own module alone', async () => {
  const { Instance } = await import(pathToFileURL(join(packageFolder, 'lib/instance.js')).href);
  const { Program } = await import(pathToFileURL(join(packageFolder, 'lib/program.js')).href);
  const bytes = await compile(MATMUL, { backend: 'cpu' });
  const { x, y, product } = matrices();
  const other = await Module.load(bytes, { threads: 2 });
  // The next module gets this instance, as if one of its threads had trapped.
  const instance = await Instance.acquire('run', { threads: 2 });
  instance.api.loseThread();
  instance.release();
  const broken = await Program.load(bytes, { threads: 2 });
  const values = [x, y].map(data => ({ kind: 'tensor', value: new rushlight.Tensor('float32', data, [96, 96]) }));
  // It shows when a call waits for the thread, which none may do for a while.
  const calls = () => {
    for (const end = performance.now() + 60_000; performance.now() < end; ) {
      broken.run('forward', values).forEach(output => output.dispose());
    }
  };
  assert.throws(calls, error => error.codeName === 'Internal' && /a thread of the pool ended/.test(error.got));
  assert.throws(() => broken.run('forward', values), error => error.codeName === 'InvalidState');
  broken.dispose();
  assert.deepEqual((await other.forward([x, y])).data.slice(), product);
  other.dispose();
  const next = await Module.load(bytes, { threads: 2 });
  assert.deepEqual((await next.forward([x, y])).data.slice(), product);
  next.dispose();
});
