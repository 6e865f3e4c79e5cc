// A compilation on this thread; in WebAssembly with a module of its own.

import { acquire } from './engine.js';
import { named } from './options.js';
import { open } from './source.js';

/** Like `compile`, with encoded `samples`. */
export async function compileHere(source, { method = 'forward', engine, samples, progress, cache, signal, ...options }) {
  const instance = await acquire('compile', { engine });
  let opened;
  try {
    opened = await open(source, { cache, signal });
    const bytes = await instance.read(opened, progress);
    const inputs = samples.map(sample => instance.values(sample));
    return await instance.call(api => api.compile(bytes, method, ...named(options), inputs));
  } finally {
    await opened?.close?.();
    instance.release();
  }
}
