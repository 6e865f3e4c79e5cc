// Instances of the WebAssembly modules.

import { typeOf } from './dtype.js';
import { availableThreads, hasThreads, isNode, isPage, startWorker } from './environment.js';
import { failure } from './errors.js';
import { Library } from './library.js';
import { Tensor } from './tensor.js';
import { placeOf } from './wasm.js';

/** Maximum number of instances that are kept for later programs, and their maximum memory, because memory never shrinks. */
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

/** The variant of the module: for the instructions of this engine, or with threads. */
export function variant(threads = 1) {
  if (threads > 1 && canThread()) {
    return 'threads';
  }
  if (WebAssembly.validate(new Uint8Array(RELAXED_SIMD))) {
    return 'relaxed';
  }
  return WebAssembly.validate(new Uint8Array(SIMD)) ? 'simd' : 'baseline';
}

/** True if several threads can compute. The thread of a page cannot, because it must not wait for others. */
function canThread() {
  return hasThreads && !isPage && WebAssembly.validate(new Uint8Array(SIMD));
}

// Compiled modules, by kind and variant, which all instances share.
const compiled = new Map();
const idle = { run: [], compile: [], llm: [] };

async function load([glue, url], name) {
  const place = placeOf(`${name}.wasm`, url());
  const compiling = place.bytes ? WebAssembly.compile(place.bytes) : compileFile(place.url);
  const [{ bind }, module] = await Promise.all([glue(), compiling]);
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
    const hint = 'name its place with `configure({ wasmPaths })`';
    throw failure('AccessFailed', `cannot load the WebAssembly module \`${url}\``, { got: cause.message, hint, cause });
  }
}

/** A WebAssembly instance with its memory, used by one program at a time. A trap breaks it. */
export class Instance extends Library {
  #kind;
  #workers;

  /** An instance for a program or a compilation. Only the variant `threads` has more than one thread. */
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
      compiled.set(key, load(files[chosen], key));
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

  /** Frees an object. Objects of a broken instance may still be in use, and are freed with the instance. */
  free(object) {
    if (this.isBroken) {
      object?.__destroy_into_raw();
    } else {
      object?.free();
    }
  }

  /** Copies a part to the memory of the library. */
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

  /** Releases the instance for other programs. It must not hold objects of this one. */
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

/** Starts threads, which wait in the instance for work. Starts none if one fails. */
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
    // The threads do not keep a Node.js process alive.
    worker.unref?.();
    return worker;
  });
}
