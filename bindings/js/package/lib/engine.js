// Where the library runs: natively in Node.js, if it is installed, or in WebAssembly.

import { addonFor } from './addon.js';
import { Instance } from './instance.js';
import { NativeLibrary } from './native.js';

/** Returns the library of an engine, for compilations and language models on this thread. */
export async function acquire(kind, { engine } = {}) {
  const addon = await addonFor(engine);
  return addon ? new NativeLibrary(addon) : Instance.acquire(kind);
}

/** True if a thread is to be started for WebAssembly: the native library has its own. */
export async function needsWorker(worker, engine) {
  return worker && !(await addonFor(engine));
}
