// Programs against `index.d.ts`: each line with an expected error has to have one.

import { compile, configure, LanguageModel, Module, RushlightError, Tensor, Tokenizer } from 'rushlight';

const module: Module = await Module.load('model.pte', { engine: 'auto', cache: true, progress: ({ loaded }) => loaded.toFixed() });
const image = Tensor.fromImage({ data: new Uint8ClampedArray(4), width: 1, height: 1 }, { normalize: 'imagenet' });
const mask = Tensor.from([true, false], [2], 'bool');
configure({ wasmPaths: '/modules/', wasmBinary: { 'run-simd.wasm': new Uint8Array(8) } });
const { logits } = await module.forward<{ logits: Tensor }>({ image, mask, boxes: [new Float32Array(4)], scale: 0.5, none: null });
const scores: Float32Array = logits.toFloat32();
const program: Uint8Array = await compile(new ArrayBuffer(8), { quantize: 'int8', calibration: [[image], image] });
const shape: number[] | undefined = module.meta('forward').inputs[0]?.shape;
{
  using scoped = await Module.load(program);
  scoped.dispose();
}
try {
  await module.run('forward', [image], { transfer: true, signal: AbortSignal.timeout(1000) });
} catch (error) {
  if (error instanceof RushlightError) {
    const text: string | null = error.hint ?? error.expected;
    console.log(error.code.toFixed(), text, scores, shape);
  }
}

{
  using llm = await LanguageModel.load('llm.pte', { tokenizer: 'tokenizer.json', signal: AbortSignal.timeout(1000) });
  const session = await llm.session();
  const answer = session.chat([{ role: 'user', content: 'Hi' }], { temperature: 0, stop: ['.'], maxNewTokens: 8 });
  for await (const text of answer) {
    console.log(text.length, answer.usage?.decodeMs.toFixed(), answer.tokens.at(-1)?.toFixed());
  }
  const tokens: Uint32Array = (await Tokenizer.load('tokenizer.json')).encode('Hi', { special: false });
  await session.prefill(BigInt64Array.from(tokens, BigInt), { signal: AbortSignal.timeout(1000) });
  console.log(tokens, (await module.profile('forward', [], { signal: AbortSignal.timeout(1000) }))[0]?.milliseconds);
}

// @ts-expect-error: an output may be a number
(await module.forward({ image })).toFloat32();
// @ts-expect-error: no such setting
configure({ wasmPath: '/modules/' });
// @ts-expect-error: no such engine
await Module.load('model.pte', { engine: 'webgpu' });
// @ts-expect-error: no such option
(await (await LanguageModel.load('llm.pte')).session()).generate('Hi', { temprature: 1 });
// @ts-expect-error: no such element type
new Tensor('float33', new Float32Array(1), [1]);
// @ts-expect-error: a source is no number
await Module.load(42);
// @ts-expect-error: an input is no function
await module.forward({ image: () => 1 });
// @ts-expect-error: results do not change
image.dtype = 'int8';
