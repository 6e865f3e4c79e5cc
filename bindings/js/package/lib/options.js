// Checks of options that are counts.

import { failure } from './errors.js';

/** The threads that the engine has at most. */
const MAX_THREADS = 1024;

export function checkThreads(threads) {
  if (!Number.isInteger(threads) || threads < 1 || threads > MAX_THREADS) {
    const expected = `an integer from 1 to ${MAX_THREADS}`;
    throw failure('InvalidArgument', 'the number of threads is at least 1', { expected, got: String(threads) });
  }
}

export function checkMemoryLimit(bytes) {
  if (bytes !== undefined && !(Number.isSafeInteger(bytes) && bytes >= 0)) {
    throw failure('InvalidArgument', 'no limit of memory', { expected: 'a count of bytes', got: String(bytes) });
  }
}
