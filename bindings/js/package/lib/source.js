// Bytes of files: from memory, the network, the file system, and the browser's cache.

import { isNode, isShared } from './environment.js';
import { failure } from './errors.js';

const CACHE = 'rushlight';

/** Looks up what a source is: its `size` and `path`, if they are known, and a function that calls `write` with its parts in order. */
export async function open(source, { cache = false, signal } = {}) {
  const bytes = bytesOf(source);
  if (bytes) {
    return { size: bytes.length, read: async write => write(bytes) };
  }
  if (typeof Blob !== 'undefined' && source instanceof Blob) {
    return { size: source.size, read: write => readStream(source.stream(), write) };
  }
  if (typeof ReadableStream !== 'undefined' && source instanceof ReadableStream) {
    return { size: undefined, read: write => readStream(source, write) };
  }
  if (typeof Response !== 'undefined' && source instanceof Response) {
    return ofResponse(source, source.url || 'the response');
  }
  if (typeof source === 'string' || source instanceof URL) {
    return isNode && !/^(https?|data|blob):/.test(String(source)) ? ofFile(source) : ofUrl(source, cache, signal);
  }
  const expected = 'a URL, a path (in Node.js), an ArrayBuffer, a typed array, a Blob, a Response or a ReadableStream';
  throw failure('InvalidArgument', 'nothing can be read from this', { expected, got: source?.constructor?.name ?? String(source) });
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
      async read(write) {
        try {
          for await (const part of file.createReadStream({ highWaterMark: 1 << 20 })) {
            write(part);
          }
        } catch (cause) {
          throw failure('AccessFailed', `cannot read \`${path}\``, { got: cause.message, cause });
        }
      },
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
  if (known) {
    return { ...ofResponse(known, url), forget: () => store.delete(url) };
  }
  let response;
  try {
    response = await fetch(url, { signal });
  } catch (cause) {
    throw failure('AccessFailed', `cannot fetch \`${url}\``, { got: cause.message, cause });
  }
  const opened = ofResponse(response, url);
  if (!store) {
    return opened;
  }
  // The browser's storage may be full: the model is used all the same.
  const kept = store.put(url, response.clone()).catch(() => {});
  const read = async write => {
    await opened.read(write);
    await kept;
  };
  return { ...opened, read, forget: () => store.delete(url) };
}

/** The response, unless the server refused. */
export function checkedResponse(response, name) {
  if (!response.ok) {
    throw failure('AccessFailed', `cannot fetch \`${name}\``, { got: `${response.status} ${response.statusText}`.trim() });
  }
  return response;
}

function ofResponse(response, name) {
  checkedResponse(response, name);
  // The length of a compressed transfer is not that of the file.
  const isPlain = !response.headers.get('content-encoding');
  const length = Number(response.headers.get('content-length'));
  const read = async write => {
    try {
      await readStream(response.body, write);
    } catch (cause) {
      throw failure('AccessFailed', `cannot fetch \`${name}\``, { got: cause.message, cause });
    }
  };
  return { size: isPlain && length > 0 ? length : undefined, read };
}

async function readStream(stream, write) {
  const reader = stream.getReader();
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    write(part.value);
  }
}
