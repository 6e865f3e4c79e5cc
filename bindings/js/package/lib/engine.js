// Where the library runs: natively in Node.js, if it is installed, or in WebAssembly.

import { addonFor } from './addon.js';
import { Instance } from './instance.js';
import { NativeLibrary } from './native.js';

/** What compiles, or runs language models, on this thread. */
export async function acquire(kind, { engine } = {}) {
  const addon = await addonFor(engine);
  return addon ? new NativeLibrary(addon) : Instance.acquire(kind);
}
