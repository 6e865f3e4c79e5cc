// A compilation on this thread; in WebAssembly with a module of its own.

import { interruptible } from './abort.js';
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
    const compile = interrupt => instance.call(api => api.compile(bytes, method, ...named(options), inputs, interrupt));
    // WebAssembly blocks this thread, so no signal arrives while it compiles.
    return await interruptible(instance.api, instance.variant === 'native' ? signal : undefined, compile);
  } finally {
    await opened?.close?.();
    instance.release();
  }
}
