// Ends loading early.

import { failure } from './errors.js';

export function aborted(signal) {
  return failure('InvalidState', 'loading was aborted', { cause: signal.reason });
}

/** Returns the result of `load`, or fails when the signal aborts. `drop` gets a result that comes later. */
export function abortable(signal, load, drop = () => {}) {
  if (!signal) {
    return load();
  }
  if (signal.aborted) {
    return Promise.reject(aborted(signal));
  }
  return new Promise((resolve, reject) => {
    const stop = () => reject(aborted(signal));
    signal.addEventListener('abort', stop, { once: true });
    const settle = result => (signal.aborted ? drop(result) : resolve(result));
    load().then(settle, reject).finally(() => signal.removeEventListener('abort', stop));
  });
}
