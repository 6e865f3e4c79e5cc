// The choice of the engine: the native library in Node.js, if it is installed, or WebAssembly.

import { addonFor } from './addon.js';
import { Instance } from './instance.js';
import { NativeLibrary } from './native.js';

/** Returns the library of an engine, for compilations and language models on this thread. */
export async function acquire(kind, { engine } = {}) {
  const addon = await addonFor(engine);
  return addon ? new NativeLibrary(addon) : Instance.acquire(kind);
}

/** True if WebAssembly runs in a worker. The native library has its own threads. */
export async function needsWorker(worker, engine) {
  return worker && !(await addonFor(engine));
}
