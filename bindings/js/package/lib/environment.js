// What differs between browsers and Node.js.

export const isNode = globalThis.process?.versions?.node !== undefined && globalThis.window === undefined;

/** True on the thread of a page, which must stay free. */
export const isPage = globalThis.window !== undefined && globalThis.document !== undefined;

/** Starts `worker.js`: posts messages, and calls `receive` with what comes back, and `fail` once if the thread ends by itself. */
export async function startWorker(receive, fail) {
  if (isNode) {
    const { Worker } = await import('node:worker_threads');
    const worker = new Worker(new URL('./worker.js', import.meta.url));
    worker.unref();
    worker.on('message', receive);
    worker.on('error', fail);
    return worker;
  }
  const worker = new Worker(new URL('./worker.js', import.meta.url), { type: 'module' });
  worker.onmessage = ({ data }) => receive(data);
  worker.onerror = event => {
    event.preventDefault?.();
    fail(event.error ?? new Error(event.message ?? 'the worker cannot be started'));
  };
  return worker;
}
