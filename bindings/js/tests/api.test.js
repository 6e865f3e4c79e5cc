// The public interface in Node.js.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { createReadStream, openAsBlob } from 'node:fs';
import { cp, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { inspect, promisify } from 'node:util';

import { near, packageFolder, recordedBits, refusal, root, rushlight } from './support.js';

const { compile, LanguageModel, Module, RushlightError, Tensor, Tokenizer } = rushlight;
const file = name => join(root, name);
const DIGITS = file('examples/cortex-m/digits.pte');
const KEYWORDS = file('tests/corpus/pt2/keywords.pt2');

/** The images of `examples/cortex-m`, as its firmware has them: 10 of 8 x 8 floats. */
async function digits() {
  const bytes = await readFile(file('examples/cortex-m/images/images.bin'));
  const { logits } = JSON.parse(await readFile(file('examples/cortex-m/expected.json'), 'utf8'));
  const floats = new Float32Array(Uint8Array.from(bytes).buffer);
  return logits.map((expected, at) => ({ image: floats.slice(64 * at, 64 * at + 64), expected }));
}

test('logits are bit-identical in every binding', async () => {
  const module = await Module.load(DIGITS, { lower: 'off' });
  const bits = [];
  for (const { image } of await digits()) {
    const output = [await module.forward([image])].flat()[0];
    bits.push(...new Uint32Array(output.copy().buffer));
  }
  module.dispose();
  assert.deepEqual(bits, await recordedBits());
});

for (const worker of [false, true]) {
  test(`classifies digits as PyTorch does, worker: ${worker}`, async () => {
    const module = await Module.load(DIGITS, { worker });
    assert.deepEqual(module.methods, ['forward']);
    assert.deepEqual(module.meta().inputs[0].shape, [1, 1, 8, 8]);
    for (const { image, expected } of await digits()) {
      const result = await module.forward(image);
      const logits = result instanceof Tensor ? result : result[0];
      assert.deepEqual([...logits.shape], [1, 10]);
      near(logits.data, expected);
    }
    module.dispose();
  });

  test(`names and nesting of the exported function, worker: ${worker}`, async () => {
    const module = await Module.load(await compile(KEYWORDS, { worker }), { worker });
    assert.deepEqual(
      module.meta().inputs.map(({ name }) => name),
      ['image', 'batch.mask', 'batch.boxes.0', 'batch.boxes.1', 'scale'],
    );
    assert.equal(
      module.meta().signature,
      '(image, batch: {mask, boxes: [_, _]}, scale) -> {logits, stats: {mean, parts: (_, [_])}}',
    );
    const image = Float32Array.of(0.5, -1, 2, 4);
    const mask = new Tensor('bool', Uint8Array.of(0, 0), [2]);
    const boxes = [Float32Array.of(1, 2, 3, 4), Float32Array.of(2, -2, 4, 0.5)];
    // The values are eager PyTorch's.
    for (const inputs of [{ image, batch: { mask, boxes } }, { batch: { boxes, mask }, image, scale: 0.5 }, [image, { mask, boxes }]]) {
      const { logits, stats } = await module.forward(inputs);
      assert.deepEqual([...logits.data], [1.5, -3, 8, 5]);
      assert.deepEqual([...stats.mean.data], [2.875]);
      assert.deepEqual([...stats.parts[0].data], [1, 1]);
      assert.deepEqual([...stats.parts[1][0].data], [1.5, 3, 8, 5]);
    }
    const error = await refusal(module.forward({ image, batch: { masks: mask, boxes } }));
    assert.equal(error.codeName, 'InvalidArgument');
    assert.match(error.hint, /did you mean `batch.mask`/);
    module.dispose();
  });
}

test('errors have fields', async () => {
  const module = await Module.load(DIGITS);
  const error = await refusal(module.forward([new Tensor('float32', new Float32Array(64), [1, 1, 4, 16])]));
  assert.equal(error.code, 18);
  assert.equal(error.codeName, 'InvalidArgument');
  assert.match(error.message, /wrong shape/);
  assert.match(error.expected, /f32 \[1, 1, 8, 8\]/);
  assert.match(error.got, /4, 16/);
  assert.equal((await refusal(module.run('backward'))).codeName, 'InvalidArgument');
  for (const runs of [0, -1, 2.5, 2 ** 32, NaN]) {
    assert.equal((await refusal(module.profile('forward', [new Float32Array(64)], { runs }))).got, String(runs));
  }
  assert.equal((await refusal(module.forward([new Float32Array(3)]))).codeName, 'InvalidArgument');
  module.dispose();
  assert.equal((await refusal(module.forward([]))).codeName, 'InvalidState');
  assert.throws(() => module.meta(), RushlightError);
  module.dispose();

  const missing = await refusal(Module.load('no/such/file.pte'));
  assert.equal(missing.codeName, 'AccessFailed');
  assert.match(missing.message, /no\/such\/file\.pte/);
  assert.equal((await refusal(Module.load(new Uint8Array(100)))).codeName, 'InvalidProgram');
  assert.equal((await refusal(Module.load(42))).codeName, 'InvalidArgument');
  assert.equal((await refusal(Module.load(DIGITS, { memoryLimit: 16 }).then(limited => limited.forward([new Float32Array(64)])))).codeName, 'MemoryAllocationFailed');
});

test('options that are no counts are refused', async () => {
  for (const options of [{ threads: -1 }, { threads: 1.5 }, { threads: 2 ** 32 }, { threads: '2' }, { memoryLimit: 'much' }, { memoryLimit: -1 }, { timeLimit: 0 }]) {
    for (const load of [Module.load, LanguageModel.load]) {
      const error = await refusal(load(DIGITS, { worker: false, ...options }));
      assert.equal(error.codeName, 'InvalidArgument', JSON.stringify(options));
      assert.equal(error.got, String(Object.values(options)[0]));
    }
  }
});

test('options that do not exist are refused', async () => {
  for (const make of [Module.load, LanguageModel.load, Tokenizer.load, compile]) {
    const error = await refusal(make(DIGITS, { thread: 2 }));
    assert.equal(error.codeName, 'InvalidArgument');
    assert.match(error.message, /`thread`/);
    assert.equal(error.got, 'thread');
    assert.match(error.expected, /^one of: /);
  }
});

test('streams of Node.js are read, and what is no stream of bytes is refused', async () => {
  const bytes = await readFile(DIGITS);
  const stream = start => new ReadableStream({ start });
  const sources = {
    InvalidArgument: [
      () => stream(controller => (controller.enqueue('text'), controller.close())),
      async () => {
        const response = new Response(bytes);
        await response.arrayBuffer();
        return response;
      },
    ],
    AccessFailed: [() => stream(controller => controller.error(new Error('boom'))), () => new Response('', { status: 404 })],
  };
  for (const worker of [false, true]) {
    for (const source of [createReadStream(DIGITS), await openAsBlob(DIGITS)]) {
      const module = await Module.load(source, { worker });
      assert.deepEqual(module.methods, ['forward']);
      module.dispose();
    }
    for (const [codeName, kinds] of Object.entries(sources)) {
      for (const source of kinds) {
        assert.equal((await refusal(Module.load(await source(), { worker }))).codeName, codeName);
      }
    }
    const mine = new Error('mine');
    const progress = () => {
      throw mine;
    };
    await assert.rejects(Module.load(new Response(bytes), { worker, progress }), error => error === mine);
  }
});

test('there are no more threads of WebAssembly than the machine runs', async () => {
  const module = await Module.load(DIGITS, { engine: 'wasm', threads: 1000 });
  assert.equal(module.threads, availableParallelism());
  module.dispose();
});

test('Node.js shows tensors', () => {
  const tensor = Tensor.from([1, 2], [1, 2]);
  assert.equal(inspect([tensor]), '[ Tensor float32[1, 2] Float32Array(2) [ 1, 2 ] ]');
  tensor.dispose();
  assert.equal(inspect(tensor), 'Tensor float32[1, 2] (disposed)');
});

test('programs come from paths, URLs, bytes, streams and servers', async () => {
  const bytes = await readFile(DIGITS);
  const server = createServer((request, response) => {
    if (request.url === '/digits.pte') {
      response.setHeader('content-length', bytes.length);
      response.end(bytes);
    } else {
      response.statusCode = 404;
      response.end();
    }
  });
  await new Promise(resolve => server.listen(0, '127.0.0.1', resolve));
  const url = `http://127.0.0.1:${server.address().port}/digits.pte`;
  const copy = Uint8Array.from(bytes);
  const sources = [DIGITS, pathToFileURL(DIGITS), pathToFileURL(DIGITS).href, bytes, copy.buffer, new Blob([bytes]), url];
  // Node.js cancels the body of a response that nobody holds.
  const response = await fetch(url);
  sources.push(await fetch(url), response.body);
  const [{ image, expected }] = await digits();
  for (const source of sources) {
    const seen = [];
    const module = await Module.load(source, { progress: progress => seen.push(progress) });
    assert.equal(seen.at(-1).loaded, bytes.length);
    const outputs = await module.forward([image]);
    near([outputs].flat()[0].data, expected);
    module.dispose();
  }
  assert.ok(response.bodyUsed);
  const absent = await refusal(Module.load(`${url}x`));
  assert.match(absent.got, /404/);
  server.closeAllConnections();
  server.close();
});

test('results stay in place while memory grows, and until they are disposed', async () => {
  const module = await Module.load(DIGITS);
  const [{ image, expected }] = await digits();
  const first = [await module.forward([image])].flat()[0];
  const view = first.data;
  // Some of these need more memory, which detaches views.
  const others = [];
  for (let at = 0; at < 3000 && view.length > 0; at += 1) {
    others.push(await module.forward([image]));
  }
  module.dispose();
  near(first.data, expected);
  first.dispose();
  assert.throws(() => first.data, error => error.codeName === 'InvalidState');
});

test('types that JavaScript has no arrays for are converted', () => {
  // numpy's: float16 of these, and bfloat16 as torch rounds.
  const numbers = [0, -0, 1, 65504, 65520, 6e-8, 2.98e-8, -2.0009765625, 0.333251953125, Infinity];
  const half = Tensor.from(numbers, [10], 'float16');
  const bits = new Uint16Array(half.data.buffer);
  assert.deepEqual([...bits], [0, 0x8000, 0x3c00, 0x7bff, 0x7c00, 1, 0, 0xc000, 0x3555, 0x7c00]);
  // Bits are taken in every engine, and floats where it has an array for them.
  const ofBits = new Tensor('float16', Uint16Array.of(0x3c00, 0xc100), [2]);
  near(ofBits.toFloat32(), [1, -2.5], 0);
  if (globalThis.Float16Array) {
    near(new Tensor('float16', Float16Array.of(1, -2.5), [2]).toFloat32(), [1, -2.5], 0);
    assert.throws(() => new Tensor('bfloat16', Float16Array.of(1), [1]), { name: 'RushlightError' });
  }
  const brain = Tensor.from([1, 3.1415927, -2.5, 1.00390625, 1.01171875, NaN], [6], 'bfloat16');
  assert.deepEqual([...brain.data], [0x3f80, 0x4049, 0xc020, 0x3f80, 0x3f82, 0x7fc0]);
  assert.deepEqual([...Tensor.from([1, -2], [2], 'int64').data], [1n, -2n]);
  assert.throws(() => new Tensor('float32', new Float32Array(3), [2]), RushlightError);
  assert.throws(() => new Tensor('float33', new Float32Array(3), [3]), RushlightError);
  assert.throws(() => new Tensor('int64', new Float32Array(3), [3]), RushlightError);
});

test('images become tensors', () => {
  const data = Uint8ClampedArray.of(255, 0, 0, 255, 0, 51, 102, 255);
  const image = { data, width: 2, height: 1 };
  const chw = Tensor.fromImage(image);
  assert.deepEqual([...chw.shape], [1, 3, 1, 2]);
  near(chw.data, [1, 0, 0, 0.2, 0, 0.4], 1e-6);
  // torchvision's Normalize with ImageNet's mean and deviation of 1 and 0, 0.2 and 0, 0.4 and 0.
  const normalized = Tensor.fromImage(image, { normalize: 'imagenet' });
  near(normalized.data, [2.2489083, -2.117904, -2.0357141, -1.142857, -1.8044444, -0.0266667], 1e-4);
  assert.deepEqual([...Tensor.fromImage(image, { dtype: 'uint8', layout: 'nhwc' }).data], [255, 0, 0, 0, 51, 102]);
  const grey = Tensor.fromImage(image, { channels: 1 });
  assert.deepEqual([...grey.shape], [1, 1, 1, 2]);
  // Pillow's L of the two pixels.
  near(grey.data, [76 / 255, 42 / 255], 1e-6);
});

test('compiles for the CPU, and quantizes', async () => {
  const exported = file('examples/cortex-m/digits.pt2');
  const images = await digits();
  const calibration = images.map(({ image }) => [new Tensor('float32', image, [1, 1, 8, 8])]);
  const plain = await compile(exported, { backend: 'cpu' });
  const small = await compile(exported, { backend: 'cpu', quantize: 'int8', calibration });
  assert.ok(small.length < plain.length, `${small.length} bytes, not less than ${plain.length}`);
  const [exact, rough] = [await Module.load(plain), await Module.load(small)];
  for (const { image, expected } of images) {
    near((await exact.forward([image])).data, expected);
    const logits = (await rough.forward([image])).data;
    assert.equal(logits.indexOf(Math.max(...logits)), expected.indexOf(Math.max(...expected)));
  }
  const error = await refusal(compile(exported, { quantize: 'int9' }));
  assert.match(error.expected, /int8/);
  assert.ok((await refusal(compile(new Uint8Array(10)))).message);
});

test('a load and a compilation can be aborted', async () => {
  for (const worker of [false, true]) {
    const before = AbortSignal.abort();
    const controller = new AbortController();
    const calls = [before, controller.signal].flatMap(signal => [
      refusal(Module.load(DIGITS, { worker, signal })),
      refusal(compile(KEYWORDS, { worker, signal })),
    ]);
    controller.abort();
    for (const error of await Promise.all(calls)) {
      assert.equal(error.codeName, 'InvalidState');
      assert.match(error.message, /was aborted/);
    }
    const module = await Module.load(DIGITS, { worker, signal: new AbortController().signal });
    module.dispose();
  }
});

for (const worker of [false, true]) {
  test(`a call and a profile can be aborted, worker: ${worker}`, async () => {
    const module = await Module.load(DIGITS, { worker });
    const [{ image }] = await digits();
    const controller = new AbortController();
    for (const signal of [AbortSignal.abort(), controller.signal]) {
      const calls = [refusal(module.forward([image], { signal })), refusal(module.profile('forward', [image], { signal, runs: 2 }))];
      if (worker || module.variant === 'native' || signal.aborted) {
        controller.abort('enough');
        for (const error of await Promise.all(calls)) {
          assert.match(error.message, /was aborted/);
        }
      }
      // WebAssembly on this thread is done before anybody could abort it.
      await Promise.allSettled(calls);
      if (!worker && module.variant !== 'native') {
        break;
      }
    }
    // The module can be used again.
    const again = await module.forward([image], { signal: new AbortController().signal });
    assert.equal([again].flat()[0].data.length, 10);
    module.dispose();
  });
}

test('narrower integers are converted for inputs of int64', async () => {
  const module = await Module.load(file('tests/corpus/1.5.1/embedding.pte'));
  const [{ dtype, shape }] = module.meta().inputs;
  assert.equal(dtype, 'int64');
  const count = shape.reduce((a, b) => a * b, 1);
  const tokens = Array.from({ length: count }, (_, at) => at % 3);
  const [expected] = [await module.forward([BigInt64Array.from(tokens, BigInt)])].flat();
  for (const type of [Uint32Array, Int32Array, Uint8Array]) {
    const [output] = [await module.forward([type.from(tokens)])].flat();
    assert.deepEqual([...output.data], [...expected.data]);
  }
  module.dispose();
});

test('an array has the shape of an input with one dynamic size', async () => {
  const { flatten } = await import(new URL('../package/lib/signature.js', import.meta.url).href);
  const shapeOf = (shape, ranges, length) => {
    const info = { kind: 'tensor', dtype: 'int64', shape, ranges, isDynamic: true };
    const { values } = flatten({ name: 'forward', inputs: [info] }, [new Uint32Array(length)]);
    return [...values[0].value.shape];
  };
  assert.deepEqual(shapeOf([1, 64], ['1', '1..=64'], 7), [1, 7]);
  assert.deepEqual(shapeOf([8, 4], ['1..=8', '4'], 12), [3, 4]);
  // Two dynamic sizes, a length that does not fit, and a program without ranges.
  assert.deepEqual(shapeOf([8, 64], ['1..=8', '1..=64'], 7), [7]);
  assert.deepEqual(shapeOf([8, 4], ['1..=8', '4'], 7), [7]);
  assert.deepEqual(shapeOf([8, 4], [], 8), [8]);
});

test('the WebAssembly modules may be elsewhere', async () => {
  const { configure } = rushlight;
  const folder = await mkdtemp(join(tmpdir(), 'rushlight-wasm-'));
  try {
    await cp(join(packageFolder, 'wasm'), folder, { recursive: true });
    // A thread of its own: modules that this one has compiled are kept.
    const run = async settings => {
      const script = `
        const { configure, Module } = await import(${JSON.stringify(pathToFileURL(join(packageFolder, 'index.js')).href)});
        const { readFile } = await import('node:fs/promises');
        const bytes = async name => readFile(${JSON.stringify(folder)} + '/' + name);
        configure(${settings});
        for (const worker of [false, true]) {
          const module = await Module.load(${JSON.stringify(DIGITS)}, { engine: 'wasm', worker }).catch(error => error);
          console.log(module instanceof Error ? module.message : module.methods.join());
          module.dispose?.();
        }`;
      const path = join(folder, 'script.mjs');
      await writeFile(path, script);
      const { stdout } = await promisify(execFile)(process.execPath, [path]);
      return stdout.trim().split('\n');
    };
    const url = JSON.stringify(pathToFileURL(folder).href);
    assert.deepEqual(await run(`{ wasmPaths: ${url} }`), ['forward', 'forward']);
    const names = (await readdir(folder)).filter(name => /^run-.*\.wasm$/.test(name));
    const binaries = names.map(name => `${JSON.stringify(name)}: await bytes(${JSON.stringify(name)})`);
    const missing = JSON.stringify(`${pathToFileURL(folder).href}/none`);
    assert.deepEqual(await run(`{ wasmPaths: ${missing}, wasmBinary: { ${binaries.join()} } }`), ['forward', 'forward']);
    for (const message of (await run(`{ wasmPaths: ${missing} }`)).filter(line => line.includes('cannot load'))) {
      assert.match(message, /none\/run-.*\.wasm/);
    }
    for (const settings of [{ wasmPaths: 7 }, { wasmBinary: { 'run-simd.wasm': 'bytes' } }, { wasmPath: '/' }]) {
      assert.throws(() => configure(settings), error => error instanceof RushlightError && error.expected !== null);
    }
  } finally {
    await rm(folder, { recursive: true });
  }
});
