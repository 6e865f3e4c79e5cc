// Checks of options.

import { failure } from './errors.js';

/** The threads that the engine has at most. */
const MAX_THREADS = 1024;

/** Options of each function that reads files. */
const READING = ['engine', 'cache', 'progress', 'signal'];

/** Refuses unknown options, such as misspelled ones: all but `known` and those for reading files. */
export function checkNames(options, known) {
  const all = [...READING, ...known];
  const other = Object.keys(options).find(name => !all.includes(name));
  if (other !== undefined) {
    throw failure('InvalidArgument', `there is no option \`${other}\``, { expected: `one of: ${all.join(', ')}` });
  }
}

export function checkThreads(threads) {
  if (!Number.isInteger(threads) || threads < 1 || threads > MAX_THREADS) {
    const expected = `an integer from 1 to ${MAX_THREADS}`;
    throw failure('InvalidArgument', 'not a number of threads', { expected, got: String(threads) });
  }
}

export function checkMemoryLimit(bytes) {
  if (bytes !== undefined && !(Number.isSafeInteger(bytes) && bytes >= 0)) {
    throw failure('InvalidArgument', 'no limit of memory', { expected: 'a count of bytes', got: String(bytes) });
  }
}
