// Differences between browsers and Node.js.

export const isNode = globalThis.process?.versions?.node !== undefined && globalThis.window === undefined;

/** True on the thread of a page, which must stay free. */
export const isPage = globalThis.window !== undefined && globalThis.document !== undefined;

/** True where instances can share memory: in Node.js, and in pages that are isolated from other origins. */
export const hasThreads = typeof SharedArrayBuffer !== 'undefined' && (isNode || globalThis.crossOriginIsolated === true);

/** True for memory that other JavaScript threads may write. */
export function isShared(buffer) {
  return typeof SharedArrayBuffer !== 'undefined' && buffer instanceof SharedArrayBuffer;
}

/** The number of processors. */
export async function availableThreads() {
  if (isNode) {
    const { availableParallelism } = await import('node:os');
    return availableParallelism();
  }
  return globalThis.navigator?.hardwareConcurrency ?? 1;
}

/**
 * Starts a worker. `make` gets the class of workers and returns one. Calls `receive` with its messages, and `fail` with each error that it
 * does not catch.
 */
export async function startWorker(make, receive, fail) {
  if (isNode) {
    const { Worker } = await import('node:worker_threads');
    const worker = make(Worker);
    worker.on('message', receive);
    worker.on('error', fail);
    worker.unref();
    return worker;
  }
  const worker = make(globalThis.Worker);
  worker.onmessage = ({ data }) => receive(data);
  worker.onerror = event => {
    event.preventDefault?.();
    fail(event.error ?? new Error(event.message ?? 'the worker cannot be started'));
  };
  return worker;
}

/** In a worker: exchanges messages with the thread that started it. */
export async function parent() {
  if (isNode) {
    const { parentPort } = await import('node:worker_threads');
    return { post: (message, transfer) => parentPort.postMessage(message, transfer), receive: act => parentPort.on('message', act) };
  }
  const receive = act => {
    globalThis.onmessage = ({ data }) => act(data);
  };
  return { post: (message, transfer) => globalThis.postMessage(message, transfer), receive };
}
