// Exported models to programs, with a WebAssembly module of its own.

import { isPage } from './environment.js';
import { Instance } from './instance.js';
import { push } from './program.js';
import { loadRemote, plain } from './remote.js';
import { encodeSample } from './signature.js';
import { open } from './source.js';

/** Compiles the `.pt2` file of an exported model to the bytes of a `.pte` file. */
export async function compile(source, { worker = isPage, progress, calibration = [], ...options } = {}) {
  const samples = calibration.map(sample => encodeSample(sample).map(plain));
  if (!worker) {
    return compileHere(source, { ...options, samples, progress });
  }
  const { remote, description: program } = await loadRemote('compile', source, { ...options, samples, progress });
  remote.terminate();
  return program;
}

export async function compileHere(source, { method = 'forward', backend, quantize, samples, progress, cache, signal }) {
  const instance = await Instance.acquire('compile');
  let opened;
  try {
    opened = await open(source, { cache, signal });
    const bytes = await instance.read(opened, progress);
    return instance.call(api => {
      const inputs = samples.map(sample => {
        const values = new api.Values();
        sample.forEach(value => push(instance, values, value));
        return values;
      });
      return api.compile(bytes, method, backend, quantize, inputs);
    });
  } finally {
    await opened?.close?.();
    instance.release();
  }
}
