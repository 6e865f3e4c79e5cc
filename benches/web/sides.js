// Both sides of the comparison, with the same calls in pages and in Node.js.

/** Calls in a turn are as many as take so long, in milliseconds. */
const TURN = 100;

/** What gives milliseconds for a call of each side; they take turns. A turn counts with its median, a side with its best turn. */
export async function interleaved(sides, rounds) {
  const best = sides.map(() => Infinity);
  for (let round = 0; round < rounds; round += 1) {
    for (const [at, call] of sides.entries()) {
      best[at] = Math.min(best[at], await turn(call));
    }
  }
  return best;
}

/** The median of a turn's batches of calls. The clocks of browsers are coarse: a batch takes at least two milliseconds. */
async function turn(call) {
  const times = [];
  let size = 1;
  for (const start = performance.now(); times.length < 5 || performance.now() - start < TURN; ) {
    const before = performance.now();
    for (let at = 0; at < size; at += 1) {
      await call();
    }
    const time = performance.now() - before;
    if (time < 2) {
      size *= 2;
      times.length = 0;
    } else {
      times.push(time / size);
    }
  }
  return times.sort((a, b) => a - b)[times.length >> 1];
}

/** The largest difference of two answers, relative to the largest number. */
export function difference(ours, theirs) {
  const largest = theirs.reduce((most, x) => Math.max(most, Math.abs(x)), 0);
  return ours.reduce((most, x, at) => Math.max(most, Math.abs(x - theirs[at])), 0) / largest;
}

/** A function that calls a model of Rushlight's, and gives its numbers. */
export async function ofRushlight({ Module, Tensor }, source, { dtype, data, shape }, options) {
  const module = await Module.load(source, options);
  const { threads, variant } = module;
  const call = async () => {
    const output = [await module.forward([new Tensor(dtype, data, shape)])].flat()[0];
    const numbers = output.data;
    return { numbers, output };
  };
  return {
    threads,
    variant,
    call: async () => (await call()).output.dispose(),
    answer: async () => [...(await call()).numbers],
    dispose: () => module.dispose(),
  };
}

/** The same of ONNX Runtime. */
export async function ofOnnxRuntime({ InferenceSession, Tensor }, source, { dtype, data, shape }) {
  const session = await InferenceSession.create(source);
  const [input] = session.inputNames;
  const call = async () => {
    const outputs = await session.run({ [input]: new Tensor(dtype, data, shape) });
    return outputs[session.outputNames[0]].data;
  };
  return { call, answer: async () => [...(await call())], dispose: () => session.release() };
}
