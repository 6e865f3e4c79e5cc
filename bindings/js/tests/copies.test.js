// Calls do not copy tensors that are in WebAssembly's memory.

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { pathToFileURL } from 'node:url';

import { matrices, packageFolder, root, rushlight } from './support.js';

const { compile, Module, Tensor } = rushlight;

test('arrays are copied once, results are in place and inputs again as they are', async () => {
  const { Instance } = await import(pathToFileURL(join(packageFolder, 'lib/instance.js')).href);
  const program = await compile(join(root, 'bindings/js/tests/matmul.pt2'), { backend: 'cpu' });
  // The next module gets this instance.
  const instance = await Instance.acquire('run');
  const { Tensor: Native, Values } = instance.api;
  let made = 0;
  const pushed = [];
  instance.api.Tensor = class extends Native {
    constructor(...shape) {
      super(...shape);
      made += 1;
    }
  };
  instance.api.Values = class extends Values {
    pushTensor(tensor) {
      pushed.push(tensor.address);
      super.pushTensor(tensor);
    }
  };
  instance.release();
  const module = await Module.load(program);
  const { x, y, product } = matrices();
  const result = await module.forward([x, y]);
  assert.equal(made, 2);
  assert.ok(result instanceof Tensor);
  assert.equal(result.data.buffer, instance.memory.buffer);
  assert.deepEqual(result.data.slice(), product);
  const again = await module.forward([result, y]);
  assert.equal(made, 3);
  assert.equal(pushed[2], result.data.byteOffset);
  assert.equal(again.data.buffer, instance.memory.buffer);
  module.dispose();
});
