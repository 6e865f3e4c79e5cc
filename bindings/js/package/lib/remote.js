// A loaded program in its own worker. Ending the worker frees its memory.

import { aborted } from './abort.js';
import { isNode, isShared, startWorker } from './environment.js';
import { failure, RushlightError } from './errors.js';
import { streamOf } from './source.js';
import { Tensor } from './tensor.js';
import { settings } from './wasm.js';

// Bundlers find the file by these expressions.
const makeWorker = isNode
  ? Worker => new Worker(new URL('./worker.js', import.meta.url))
  : () => new Worker(new URL('./worker.js', import.meta.url), { type: 'module' });

/** A worker that handles one request after the other. */
export class Remote {
  #worker;
  #calls = new Map();
  #next = 0;
  #end = null;

  static async start() {
    const remote = new Remote();
    remote.#worker = await startWorker(
      makeWorker,
      message => remote.#receive(message),
      error => remote.terminate(failure('Internal', 'the worker ended', { got: error.message, cause: error })),
    );
    return remote;
  }

  ask(what, parameters, { transfer = [], progress } = {}) {
    if (this.#end) {
      return Promise.reject(this.#end);
    }
    return new Promise((resolve, reject) => {
      const id = this.#next++;
      this.#calls.set(id, { resolve, reject, progress });
      try {
        this.#worker.ref?.();
        this.#worker.postMessage({ id, what, parameters }, transfer);
      } catch (error) {
        this.#finish(id)?.reject(error);
      }
    });
  }

  #receive({ id, progress, result, error }) {
    if (progress) {
      try {
        this.#calls.get(id)?.progress?.(progress);
      } catch (thrown) {
        this.terminate(thrown);
      }
    } else if (error) {
      this.#finish(id)?.reject(new RushlightError(error));
    } else {
      this.#finish(id)?.resolve(result);
    }
  }

  #finish(id) {
    const call = this.#calls.get(id);
    this.#calls.delete(id);
    if (this.#calls.size === 0) {
      this.#worker.unref?.();
    }
    return call;
  }

  /** Ends the worker. Calls that wait fail. */
  terminate(error = failure('InvalidState', 'the module is used after `dispose`')) {
    this.#end ??= error;
    this.#worker.terminate();
    [...this.#calls.keys()].forEach(id => this.#finish(id).reject(this.#end));
  }
}

/** Starts a worker, which loads or compiles a program, by `what`. */
export async function loadRemote(what, source, { progress, signal, ...options }) {
  const remote = await Remote.start();
  const stop = () => remote.terminate(aborted(signal));
  signal?.addEventListener('abort', stop, { once: true });
  try {
    if (signal?.aborted) {
      stop();
    }
    const data = await Promise.all((options.data ?? []).map(sent));
    const tokenizer = await sent(options.tokenizer);
    const parameters = { source: await sent(source), options: { ...options, data, tokenizer }, settings: settings() };
    const files = [parameters.source, tokenizer, ...data];
    const transfer = files.filter(one => globalThis.ReadableStream && one instanceof ReadableStream);
    const description = await remote.ask(what, parameters, { transfer, progress });
    return { remote, description };
  } catch (error) {
    remote.terminate();
    throw error;
  } finally {
    signal?.removeEventListener('abort', stop);
  }
}

export class RemoteProgram {
  #remote;
  #description;

  static async load(source, options) {
    const program = new RemoteProgram();
    const { remote, description } = await loadRemote('load', source, options);
    program.#remote = remote;
    program.#description = description;
    return program;
  }

  describe() {
    return this.#description;
  }

  async run(method, values, names, { isTransferred }) {
    const encoded = values.map(plain);
    const buffers = encoded.filter(({ kind }) => kind === 'tensor').map(({ value }) => value.data.buffer);
    const transfer = isTransferred ? [...new Set(buffers)] : [];
    const outputs = await this.#remote.ask('run', { method, values: encoded, names }, { transfer });
    return outputs.map(({ kind, value }) => (kind === 'tensor' ? new Tensor(value.dtype, value.data, value.shape) : value));
  }

  profile(method, values, names, { runs }) {
    return this.#remote.ask('profile', { method, values: values.map(plain), names, runs });
  }

  dispose() {
    this.#remote.terminate();
  }
}

/** A value for a message. Copies views of an instance's memory, which would be posted whole, and shared memory, which could change. */
export function plain({ kind, value }) {
  if (kind !== 'tensor') {
    return { kind, value };
  }
  const data = value.isNative || isShared(value.data.buffer) ? value.copy() : value.data;
  return { kind, value: { dtype: value.dtype, shape: [...value.shape], data } };
}

/** A source for a worker, with absolute URLs: those of a worker are not relative to the page. */
async function sent(source) {
  if (source instanceof URL) {
    return source.href;
  }
  if (typeof source === 'string' && globalThis.location) {
    return new URL(source, globalThis.document?.baseURI ?? globalThis.location.href).href;
  }
  return streamOf(source) ?? source;
}
