// Compiles exported models to programs, on this thread or in a worker.

import { abortable } from './abort.js';
import { compileHere } from './compilation.js';
import { needsWorker } from './engine.js';
import { isPage } from './environment.js';
import { loadRemote, plain } from './remote.js';
import { encodeSample } from './signature.js';

/** Compiles the `.pt2` file of an exported model to the bytes of a `.pte` file. */
export async function compile(source, { worker = isPage, engine, progress, calibration = [], ...options } = {}) {
  const samples = calibration.map(sample => encodeSample(sample).map(plain));
  if (!(await needsWorker(worker, engine))) {
    return abortable(options.signal, () => compileHere(source, { ...options, engine, samples, progress }), undefined, 'compiling');
  }
  const given = { ...options, engine: 'wasm', samples, progress };
  const { remote, description: program } = await loadRemote('compile', source, given);
  remote.terminate();
  return program;
}
