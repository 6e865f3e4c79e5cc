// Bytes of files: from memory, the network, the file system, and the browser's cache.

import { isNode, isShared } from './environment.js';
import { failure } from './errors.js';

const CACHE = 'rushlight';

/** Opens a source: returns its `size` and `path`, if they are known, and a function that calls `write` with its parts in order. */
export async function open(source, { cache = false, signal } = {}) {
  const bytes = bytesOf(source);
  if (bytes) {
    return { size: bytes.length, read: async write => write(bytes) };
  }
  if (typeof Blob !== 'undefined' && source instanceof Blob) {
    return { size: source.size, read: write => readParts(partsOf(source.stream()), 'the blob', write) };
  }
  if (typeof ReadableStream !== 'undefined' && source instanceof ReadableStream) {
    return { size: undefined, read: write => readParts(partsOf(source), 'the stream', write) };
  }
  if (typeof Response !== 'undefined' && source instanceof Response) {
    return ofResponse(source);
  }
  if (typeof source === 'string' || source instanceof URL) {
    return isNode && !/^(https?|data|blob):/.test(String(source)) ? ofFile(source) : ofUrl(source, cache, signal);
  }
  if (isIterable(source)) {
    return { size: undefined, read: write => readParts(source, 'the stream', write) };
  }
  const expected = 'a URL, a path (in Node.js), an ArrayBuffer, a typed array, a Blob, a Response or a stream';
  throw failure('InvalidArgument', 'nothing can be read from this', { expected, got: source?.constructor?.name ?? String(source) });
}

/** True for an async iterable of parts, such as a stream of Node.js. */
function isIterable(source) {
  return typeof source === 'object' && source !== null && Symbol.asyncIterator in source;
}

/** A `ReadableStream` for a message, in place of a source without bytes, URL or path. Null for other sources. */
export function streamOf(source) {
  if (source instanceof ReadableStream) {
    return source;
  }
  if (source instanceof Response) {
    return checkedResponse(source).body;
  }
  // Streams of Node.js's files cannot be posted.
  if (source instanceof Blob) {
    return isNode ? source.stream() : null;
  }
  if (!isIterable(source)) {
    return null;
  }
  // Chromium has no `ReadableStream.from`.
  const parts = source[Symbol.asyncIterator]();
  return new ReadableStream({
    async pull(controller) {
      const { done, value } = await parts.next();
      if (done) {
        controller.close();
      } else {
        controller.enqueue(value);
      }
    },
    cancel: () => parts.return?.(),
  });
}

/** The bytes of an array, without a copy; null for anything else. */
export function bytesOf(source) {
  if (ArrayBuffer.isView(source)) {
    return new Uint8Array(source.buffer, source.byteOffset, source.byteLength);
  }
  return source instanceof ArrayBuffer || isShared(source) ? new Uint8Array(source) : null;
}

async function ofFile(source) {
  const [{ open: openFile }, { fileURLToPath }] = await Promise.all([import('node:fs/promises'), import('node:url')]);
  const path = source instanceof URL || source.startsWith('file:') ? fileURLToPath(source) : source;
  let file;
  try {
    file = await openFile(path);
    const { size } = await file.stat();
    return {
      path,
      size,
      read: write => readParts(file.createReadStream({ highWaterMark: 1 << 20 }), `\`${path}\``, write),
      close: () => file.close().catch(() => {}),
    };
  } catch (cause) {
    await file?.close();
    throw failure('AccessFailed', `cannot open \`${path}\``, { got: cause.message, cause });
  }
}

async function ofUrl(url, isCached, signal) {
  const store = isCached ? await globalThis.caches?.open(CACHE).catch(() => undefined) : undefined;
  const known = await store?.match(url);
  const name = `\`${url}\``;
  if (known) {
    return { ...ofResponse(known, name), forget: () => store.delete(url) };
  }
  let response;
  try {
    response = await fetch(url, { signal });
  } catch (cause) {
    throw failure('AccessFailed', `cannot fetch ${name}`, { got: cause.message, cause });
  }
  const opened = ofResponse(response, name);
  if (!store) {
    return opened;
  }
  // The browser's storage may be full. The model works without the cache.
  const kept = store.put(url, response.clone()).catch(() => {});
  const read = async write => {
    await opened.read(write);
    await kept;
  };
  return { ...opened, read, forget: () => store.delete(url) };
}

/** Returns the response. Throws if its status is an error. */
function checkedResponse(response, name = nameOf(response)) {
  if (!response.ok) {
    throw failure('AccessFailed', `cannot fetch ${name}`, { got: `${response.status} ${response.statusText}`.trim() });
  }
  if (response.bodyUsed || response.body?.locked) {
    throw failure('InvalidArgument', `${name} has been read`, { hint: 'read a `clone()` of it' });
  }
  return response;
}

function nameOf(response) {
  return response.url ? `\`${response.url}\`` : 'the response';
}

function ofResponse(response, name = nameOf(response)) {
  checkedResponse(response, name);
  // The length of a compressed transfer is not that of the file.
  const isPlain = !response.headers.get('content-encoding');
  const length = Number(response.headers.get('content-length'));
  const read = write => readParts(partsOf(response.body), name, write);
  return { size: isPlain && length > 0 ? length : undefined, read };
}

/** The parts of a `ReadableStream`, which is not iterable in all browsers. */
async function* partsOf(stream) {
  const reader = stream.getReader();
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    yield part.value;
  }
}

/** Calls `write` with each part. A read error names `name`. Errors of `write` are rethrown unchanged. */
async function readParts(parts, name, write) {
  for await (const part of named(parts, name)) {
    if (!ArrayBuffer.isView(part)) {
      const got = part?.constructor?.name ?? String(part);
      throw failure('InvalidArgument', `a part of ${name} is not bytes`, { expected: 'Uint8Array', got });
    }
    write(bytesOf(part));
  }
}

async function* named(parts, name) {
  try {
    yield* parts;
  } catch (cause) {
    throw failure('AccessFailed', `cannot read ${name}`, { got: cause?.message ?? String(cause), cause });
  }
}
