// Programs that the native library runs, in Node.js.

import { nameOf, typeOf } from './dtype.js';
import { isNode, isShared } from './environment.js';
import { failure } from './errors.js';
import { withFiles } from './files.js';
import { Library } from './library.js';
import { divided, named } from './options.js';
import { Tensor } from './tensor.js';
import { Turns } from './turns.js';

/** The native library, as one program or language model calls it. */
export class NativeLibrary extends Library {
  variant = 'native';

  /** Fields of the error for a panic; null for another error. */
  defectOf(error) {
    return error?.defect === undefined ? null : { got: error.defect, hint: 'report it as a defect' };
  }

  free(object) {
    object?.free?.();
  }

  /** A file is mapped rather than read. */
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

  /** The inputs of a call, which the library copies before it returns unless they are its own. */
  values(encoded) {
    return encoded.map(value => given(value, isShared));
  }

  /** There is nothing to be given back. */
  release() {}
}

/** Programs with calls on other threads, which Node.js would wait for when it exits. */
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

  /** Runs a method on values as they are now. Those of quick calls are read where they are, and their results are no promise. */
  run(method, values, names, isTransferred) {
    const outputs = this.#call(values, isTransferred, inputs => this.#module.run(method, inputs, names ?? undefined));
    return outputs instanceof Promise ? outputs.then(results) : results(outputs);
  }

  profile(method, values, names, runs) {
    return this.#call(values, false, inputs => this.#module.profile(method, inputs, names ?? undefined, runs));
  }

  #call(values, isTransferred, act) {
    // What waits for its turn is copied now.
    const isCopied = this.#turns.isFree ? isShared : () => true;
    const inputs = isTransferred ? transferred(values) : values.map(value => given(value, isCopied));
    const result = this.#turns.take(() => {
      this.#loaded();
      return this.#library.call(() => act(inputs));
    });
    if (!(result instanceof Promise)) {
      return result;
    }
    running.add(this);
    return result.catch(error => {
      // A call that `dispose` has ended says so.
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

/** A value as the library takes it. It may read a tensor for as long as a call takes if the buffer is its own. */
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

/** Values whose buffers are taken from their arrays, which are detached. */
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

/** The memory of a buffer, which is detached; a copy of what Node.js lets nobody detach, such as large results. */
function takenFrom(buffer) {
  try {
    return structuredClone(buffer, { transfer: [buffer] });
  } catch {
    return buffer.slice();
  }
}
