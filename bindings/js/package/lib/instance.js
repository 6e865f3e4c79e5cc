// Instances of the WebAssembly modules.

import { typeOf } from './dtype.js';
import { availableThreads, hasThreads, isNode, isPage, startWorker } from './environment.js';
import { failure } from './errors.js';
import { Library } from './library.js';
import { Tensor } from './tensor.js';

/** Instances that are kept for the next program, and the largest memory that one may have, which never shrinks. */
const MAX_IDLE = 2;
const MAX_IDLE_BYTES = 32 << 20;

// Each is a module whose only function uses an instruction of its kind.
const SIMD = [0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 10, 1, 8, 0, 65, 0, 253, 15, 253, 98, 11];
const RELAXED_SIMD = [
  0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 15, 1, 13, 0, 65, 1, 253, 15, 65, 2, 253, 15, 253,
  128, 2, 11,
];

// Bundlers find the files by these expressions.
const RUN = {
  baseline: [() => import('../wasm/run-baseline.js'), () => new URL('../wasm/run-baseline.wasm', import.meta.url)],
  simd: [() => import('../wasm/run-simd.js'), () => new URL('../wasm/run-simd.wasm', import.meta.url)],
  relaxed: [() => import('../wasm/run-relaxed.js'), () => new URL('../wasm/run-relaxed.wasm', import.meta.url)],
  threads: [() => import('../wasm/run-threads.js'), () => new URL('../wasm/run-threads.wasm', import.meta.url)],
};
const COMPILE = {
  baseline: [() => import('../wasm/compile-baseline.js'), () => new URL('../wasm/compile-baseline.wasm', import.meta.url)],
  simd: [() => import('../wasm/compile-simd.js'), () => new URL('../wasm/compile-simd.wasm', import.meta.url)],
};
const LLM = {
  simd: [() => import('../wasm/llm-simd.js'), () => new URL('../wasm/llm-simd.wasm', import.meta.url)],
  relaxed: [() => import('../wasm/llm-relaxed.js'), () => new URL('../wasm/llm-relaxed.wasm', import.meta.url)],
};
const FILES = { run: RUN, compile: COMPILE, llm: LLM };

/** The module for this engine: the instructions that it has, and threads if there are to be some. */
export function variant(threads = 1) {
  if (threads > 1 && canThread()) {
    return 'threads';
  }
  if (WebAssembly.validate(new Uint8Array(RELAXED_SIMD))) {
    return 'relaxed';
  }
  return WebAssembly.validate(new Uint8Array(SIMD)) ? 'simd' : 'baseline';
}

/** True where several threads can compute: a page must not wait for them. */
function canThread() {
  return hasThreads && !isPage && WebAssembly.validate(new Uint8Array(SIMD));
}

// What is compiled once for all instances, by kind and variant.
const compiled = new Map();
const idle = { run: [], compile: [], llm: [] };

async function load([glue, url]) {
  const [{ bind }, module] = await Promise.all([glue(), compileFile(url())]);
  return { bind, module };
}

async function compileFile(url) {
  try {
    if (isNode && url.protocol === 'file:') {
      const { readFile } = await import('node:fs/promises');
      return await WebAssembly.compile(await readFile(url));
    }
    const response = await fetch(url);
    if (!response.ok) {
      throw new Error(`${response.status} ${response.statusText}`);
    }
    const isTyped = response.headers.get('content-type')?.startsWith('application/wasm');
    return isTyped ? await WebAssembly.compileStreaming(response) : await WebAssembly.compile(await response.arrayBuffer());
  } catch (cause) {
    throw failure('AccessFailed', `cannot load the WebAssembly module \`${url}\``, { got: cause.message, cause });
  }
}

/** A WebAssembly instance with its memory, used by one program at a time. A trap breaks it. */
export class Instance extends Library {
  #kind;
  #workers;

  /** An instance for a program, or for what compiles it. Only those of the variant `threads` have more than one. */
  static async acquire(kind, { threads: wanted = 1, variant: name = variant(wanted) } = {}) {
    const files = FILES[kind];
    const chosen = files[name] ? name : 'simd';
    const threads = chosen === 'threads' ? Math.min(wanted, await availableThreads()) : 1;
    const known = idle[kind].findIndex(instance => instance.variant === chosen && instance.threads === threads);
    if (known >= 0) {
      return idle[kind].splice(known, 1)[0];
    }
    const key = `${kind}-${chosen}`;
    if (!compiled.has(key)) {
      compiled.set(key, load(files[chosen]));
    }
    try {
      const { bind, module } = await compiled.get(key);
      const api = bind();
      const { memory } = await api.init({ module_or_path: module });
      return new Instance(kind, chosen, api, memory, await startThreads(threads - 1, module, memory));
    } catch (error) {
      compiled.delete(key);
      throw error;
    }
  }

  constructor(kind, name, api, memory, workers) {
    super(api);
    this.#kind = kind;
    this.#workers = workers;
    this.variant = name;
    this.memory = memory;
  }

  /** The threads that a call may use. */
  get threads() {
    return this.#workers.length + 1;
  }

  /** Fields of the error for a trap; null for another error. */
  defectOf(error) {
    if (!(error instanceof WebAssembly.RuntimeError || error instanceof RangeError)) {
      return null;
    }
    const hint = 'the model may need more memory than WebAssembly has; otherwise report it as a defect';
    return { got: this.api.panicMessage() || error.message, hint };
  }

  /** Frees an object. Those of a broken instance may be in use for ever, and go away with it. */
  free(object) {
    if (this.isBroken) {
      object?.__destroy_into_raw();
    } else {
      object?.free();
    }
  }

  /** Copies a part to where the library reads it. */
  put(bytes, size, part, at) {
    new Uint8Array(this.memory.buffer, bytes.address, size).set(part, at);
  }

  /** The inputs of a call, with names or without. The elements of tensors are copied once, to the memory of the instance. */
  values(encoded, names) {
    const values = this.call(api => new api.Values());
    try {
      this.call(() => {
        encoded.forEach((value, at) => {
          if (names) {
            values.pushName(names[at]);
          }
          this.#push(values, value);
        });
      });
    } catch (error) {
      this.free(values);
      throw error;
    }
    return values;
  }

  #push(values, { kind, value }) {
    if (kind !== 'tensor') {
      const add = { int: 'pushInt', double: 'pushDouble', bool: 'pushBool', string: 'pushString', none: 'pushNone' };
      values[add[kind]](value);
      return;
    }
    const known = value instanceof Tensor ? value.nativeIn(this) : null;
    if (known) {
      values.pushTensor(known);
      return;
    }
    const { code, ArrayType } = typeOf(value.dtype);
    const { data } = value;
    const tensor = new this.api.Tensor(code, Uint32Array.from(value.shape));
    if (data.length > 0) {
      new ArrayType(this.memory.buffer, tensor.address, data.length).set(data);
    }
    values.pushTensor(tensor);
    tensor.free();
  }

  /** Gives it back when nothing of the program is left in it. */
  release() {
    const free = idle[this.#kind];
    if (!this.isBroken && free.length < MAX_IDLE && this.memory.buffer.byteLength <= MAX_IDLE_BYTES) {
      free.push(this);
    } else {
      this.#workers.forEach(worker => worker.terminate());
    }
  }
}

// Bundlers find the file by these expressions.
const makeThread = isNode
  ? Worker => new Worker(new URL('./thread.js', import.meta.url))
  : () => new Worker(new URL('./thread.js', import.meta.url), { type: 'module' });

/** Starts threads, which wait in the instance for work; all or none. */
async function startThreads(count, module, memory) {
  const threads = Array.from({ length: count }, () => startThread(module, memory));
  try {
    return await Promise.all(threads);
  } catch (error) {
    threads.forEach(thread => thread.then(worker => worker.terminate(), () => {}));
    throw error;
  }
}

function startThread(module, memory) {
  return new Promise((resolve, reject) => {
    const fail = cause => {
      reject(failure('Internal', 'a thread cannot be started', { got: cause.message, cause }));
      started.then(worker => worker.terminate(), () => {});
    };
    const receive = ({ error }) => (error ? fail(new Error(error)) : resolve(started));
    const started = startWorker(makeThread, receive, fail);
    started.then(worker => {
      worker.ref?.();
      worker.postMessage({ module, memory });
    }, fail);
  }).then(worker => {
    // A program of Node.js ends all the same.
    worker.unref?.();
    return worker;
  });
}
