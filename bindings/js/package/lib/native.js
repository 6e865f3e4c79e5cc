// Programs that the native library runs, in Node.js.

import { interruptible } from './abort.js';
import { nameOf, typeOf } from './dtype.js';
import { isNode, isShared } from './environment.js';
import { failure } from './errors.js';
import { withFiles } from './files.js';
import { Library } from './library.js';
import { divided, named } from './options.js';
import { Tensor } from './tensor.js';
import { Turns } from './turns.js';

/** The native library, for one program or language model. */
export class NativeLibrary extends Library {
  variant = 'native';

  /** Fields of the error for a panic; null for another error. */
  defectOf(error) {
    return error?.defect === undefined ? null : { got: error.defect, hint: 'report it as a defect' };
  }

  free(object) {
    object?.free?.();
  }

  /** Opens a source. A file is mapped instead of read. */
  async read(opened, progress) {
    const { path, size } = opened;
    if (path === undefined) {
      return super.read(opened, progress);
    }
    progress?.({ loaded: size, total: size });
    return this.call(api => api.Bytes.map(path));
  }

  put(bytes, size, part, at) {
    bytes.write(part, at);
  }

  /** The inputs of a call. The library copies them before it returns, unless it owns them. */
  values(encoded) {
    return encoded.map(value => given(value, isShared));
  }

  /** Does nothing: there is no instance to release. */
  release() {}
}

/** Programs with calls on other threads. Node.js would wait for these calls at its exit. */
const running = new Set();
if (isNode) {
  process.once('exit', () => running.forEach(program => program.dispose()));
}

export class NativeProgram {
  #library;
  #module;
  #threads;
  #turns = new Turns();

  static async load(addon, source, { data = [], threads, ...options }) {
    const library = new NativeLibrary(addon);
    const [reading, others] = divided(options);
    const module = await withFiles(library, [source, ...data], reading, ([program, ...files]) =>
      library.call(api => api.Module.load(program, files, ...named({ ...others, threads }))),
    );
    const program = new NativeProgram();
    program.#library = library;
    program.#module = module;
    program.#threads = threads;
    return program;
  }

  describe() {
    const methods = this.#library.call(() => this.#module.describe());
    return { methods, variant: this.#library.variant, threads: this.#threads };
  }

  /** Runs a method on the current values. A quick call reads them in place, and returns its result instead of a promise. */
  run(method, values, names, { isTransferred, signal }) {
    const run = (inputs, interrupt) => this.#module.run(method, inputs, names ?? undefined, interrupt);
    const outputs = this.#call(values, isTransferred, signal, run);
    return outputs instanceof Promise ? outputs.then(results) : results(outputs);
  }

  profile(method, values, names, { runs, signal }) {
    const profile = (inputs, interrupt) => this.#module.profile(method, inputs, names ?? undefined, runs, interrupt);
    return this.#call(values, false, signal, profile);
  }

  /** Calls `act` with the inputs and an interrupt, which the signal sets. */
  #call(values, isTransferred, signal, act) {
    // The inputs of a call that waits are copied now.
    const isCopied = this.#turns.isFree ? isShared : () => true;
    const inputs = isTransferred ? transferred(values) : values.map(value => given(value, isCopied));
    const turn = interrupt => this.#turns.take(() => {
      this.#loaded();
      return this.#library.call(() => act(inputs, interrupt));
    });
    const result = interruptible(this.#library.api, signal, turn);
    if (!(result instanceof Promise)) {
      return result;
    }
    running.add(this);
    return result.catch(error => {
      // The error of a call that `dispose` ended.
      this.#loaded();
      throw error;
    }).finally(() => {
      if (this.#turns.isFree) {
        running.delete(this);
      }
    });
  }

  #loaded() {
    if (!this.#module) {
      throw failure('InvalidState', 'the module is used after `dispose`');
    }
  }

  dispose() {
    this.#library.free(this.#module);
    this.#module = null;
  }
}

function results(outputs) {
  return outputs.map(output => {
    if (!output?.buffer) {
      return output;
    }
    const dtype = nameOf(output.dtype);
    return new Tensor(dtype, new (typeOf(dtype).ArrayType)(output.buffer), output.shape);
  });
}

/** A value for the library. If the library owns the buffer of a tensor, it may read that during the whole call. */
function given({ kind, value }, isCopied) {
  if (kind !== 'tensor') {
    return kind === 'none' ? null : value;
  }
  const isOwn = value.isNative || isCopied(value.data.buffer);
  return tensor(value, isOwn ? value.copy() : value.data, isOwn);
}

function tensor({ dtype, shape }, { buffer, byteOffset, byteLength }, isOwn) {
  return { dtype: typeOf(dtype).code, shape: [...shape], data: new Uint8Array(buffer, byteOffset, byteLength), isOwn };
}

/** Values whose buffers are transferred from their arrays. The arrays are detached. */
function transferred(values) {
  const inputs = values.map(value => given(value, isShared));
  const lent = inputs.filter(input => input?.isOwn === false);
  const places = lent.map(({ data: { buffer, byteOffset, byteLength } }) => [buffer, byteOffset, byteLength]);
  const taken = new Map();
  places.forEach(([buffer, ...place], at) => {
    if (!taken.has(buffer)) {
      taken.set(buffer, takenFrom(buffer));
    }
    Object.assign(lent[at], { data: new Uint8Array(taken.get(buffer), ...place), isOwn: true });
  });
  return inputs;
}

/** Detaches a buffer and returns its memory. Copies a buffer that Node.js does not detach, such as a large result. */
function takenFrom(buffer) {
  try {
    return structuredClone(buffer, { transfer: [buffer] });
  } catch {
    return buffer.slice();
  }
}
