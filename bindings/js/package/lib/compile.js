// Exported models to programs; in WebAssembly with a module of its own.

import { abortable } from './abort.js';
import { acquire, needsWorker } from './engine.js';
import { isPage } from './environment.js';
import { loadRemote, plain } from './remote.js';
import { encodeSample } from './signature.js';
import { open } from './source.js';

/** Compiles the `.pt2` file of an exported model to the bytes of a `.pte` file. */
export async function compile(source, { worker = isPage, engine, progress, calibration = [], ...options } = {}) {
  const samples = calibration.map(sample => encodeSample(sample).map(plain));
  if (!(await needsWorker(worker, engine))) {
    return abortable(options.signal, () => compileHere(source, { ...options, engine, samples, progress }));
  }
  const given = { ...options, engine: 'wasm', samples, progress };
  const { remote, description: program } = await loadRemote('compile', source, given);
  remote.terminate();
  return program;
}

export async function compileHere(source, { method = 'forward', engine, samples, progress, cache, signal, ...options }) {
  const { backend, quantize } = options;
  const instance = await acquire('compile', { engine });
  let opened;
  try {
    opened = await open(source, { cache, signal });
    const bytes = await instance.read(opened, progress);
    const inputs = samples.map(sample => instance.values(sample));
    return await instance.call(api => api.compile(bytes, method, backend, quantize, inputs));
  } finally {
    await opened?.close?.();
    instance.release();
  }
}
