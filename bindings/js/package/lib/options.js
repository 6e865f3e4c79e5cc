// Options for reading files, and options from the tables of the library.

import { failure } from './errors.js';

/** Maximum threads of the engine. */
const MAX_THREADS = 1024;

/** Options of each function that reads files. */
const READING = ['engine', 'cache', 'progress', 'signal'];

/** Refuses unknown options, such as misspelled ones: all but those for reading files. */
export function checkNames(options) {
  const other = Object.keys(options).find(name => !READING.includes(name));
  if (other !== undefined) {
    throw failure('InvalidArgument', `there is no option \`${other}\``, { expected: `one of: ${READING.join(', ')}`, got: other });
  }
}

/** Divides options into those for reading files and the others, which the library knows. */
export function divided(options) {
  const entries = Object.entries(options);
  const isReading = ([name]) => READING.includes(name);
  return [entries.filter(isReading), entries.filter(entry => !isReading(entry))].map(Object.fromEntries);
}

/** Names of options, each with a value as text. A list has several values of one name. */
export function named(options) {
  const pairs = Object.entries(options).flatMap(([name, value]) => {
    const values = Array.isArray(value) ? value : [value];
    return values.filter(one => one !== undefined && one !== null).map(one => [name, textOf(name, one)]);
  });
  return [pairs.map(([name]) => name), pairs.map(([, text]) => text)];
}

function textOf(name, value) {
  if (typeof value !== 'object') {
    return String(value);
  }
  // A schema is JSON, and numbers by token are pairs.
  return name === 'jsonSchema' ? JSON.stringify(value) : Object.entries(value).map(pair => pair.join('=')).join(',');
}

export function checkThreads(threads) {
  if (!Number.isInteger(threads) || threads < 1 || threads > MAX_THREADS) {
    const expected = `an integer from 1 to ${MAX_THREADS}`;
    throw failure('InvalidArgument', 'not a number of threads', { expected, got: String(threads) });
  }
}
