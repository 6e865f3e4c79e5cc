// A loaded program on this thread.

import { fieldsOf } from './errors.js';
import { withFiles } from './files.js';
import { Instance } from './instance.js';
import { divided, named } from './options.js';
import { Tensor } from './tensor.js';

export class Program {
  #instance;
  #module;

  static async load(source, { data = [], lower = 'auto', variant, threads, ...options } = {}) {
    const instance = await Instance.acquire('run', { threads, variant });
    const [reading, others] = divided(options);
    const load = ([program, ...rest]) =>
      instance.call(api => api.Module.load(program, rest, ...named(others), instance.threads));
    try {
      const module = await withFiles(instance, [source, ...data], reading, async handles => {
        const files = handles.map(handle => instance.call(() => ({ address: handle.address, size: handle.size })));
        const portable = load(handles);
        let lowered;
        try {
          lowered = await lowerHere(instance, portable, files, lower, others);
        } catch (error) {
          instance.free(portable);
          throw error;
        }
        if (!lowered) {
          return portable;
        }
        instance.free(portable);
        return load([instance.write(lowered)]);
      });
      return new Program(instance, module);
    } catch (error) {
      instance.release();
      throw error;
    }
  }

  constructor(instance, module) {
    this.#instance = instance;
    this.#module = module;
  }

  /** Metadata of the methods; an error in place of damaged metadata. */
  describe() {
    const methods = this.#instance.call(() => this.#module.methods).map(name => {
      try {
        return { name, meta: this.#instance.call(() => this.#module.meta(name)) };
      } catch (error) {
        return { name, error: fieldsOf(error) };
      }
    });
    const { variant, threads } = this.#instance;
    return { methods, variant, threads };
  }

  /** Runs a method on encoded values, and returns tensors of the instance and other values. */
  run(method, values, names) {
    const instance = this.#instance;
    let outputs;
    try {
      return this.#withInputs(values, names, inputs => {
        outputs = this.#module.run(method, inputs);
        return Array.from({ length: outputs.length }, (_, at) => {
          const tensor = outputs.tensor(at);
          return tensor ? Tensor.ofNative(instance, tensor) : outputs.other(at);
        });
      });
    } finally {
      instance.free(outputs);
    }
  }

  /** The time of each step of a method, over several calls. */
  profile(method, values, names, { runs }) {
    return this.#withInputs(values, names, inputs => this.#module.profile(method, inputs, runs));
  }

  #withInputs(values, names, act) {
    const instance = this.#instance;
    const inputs = instance.values(values, names);
    try {
      return instance.call(() => act(inputs));
    } finally {
      instance.free(inputs);
    }
  }

  dispose() {
    this.#instance.free(this.#module);
    this.#instance.release();
  }
}

/** Lowers a portable program with the compiler module, if that saves time. Null if it runs as it is. */
async function lowerHere(instance, program, files, lower, others) {
  const { portability } = program;
  const isAsked = lower !== 'auto' && lower !== 'off';
  if (lower === 'off' || portability === 'compiled' || (portability === 'small' && !isAsked)) {
    return null;
  }
  const compiler = await Instance.acquire('compile');
  try {
    const [source, ...data] = files.map(({ address, size }) =>
      compiler.write(new Uint8Array(instance.memory.buffer, address, size)),
    );
    return compiler.call(api => api.lower(source, data, ...named({ ...others, lower })));
  } catch (error) {
    // Most programs that cannot be lowered run as they are. Programs for other backends do not.
    const isMistake = isAsked && ['NotFound', 'InvalidArgument'].includes(error.codeName);
    if (portability === 'foreign' || isMistake || error.codeName === 'Internal') {
      throw error;
    }
    return null;
  } finally {
    compiler.release();
  }
}
