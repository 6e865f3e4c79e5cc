// A loaded program on this thread.

import { typeOf } from './dtype.js';
import { fieldsOf } from './errors.js';
import { Instance } from './instance.js';
import { open } from './source.js';
import { Tensor } from './tensor.js';

export class Program {
  #instance;
  #module;

  static async load(source, { data = [], lower, memoryLimit, progress, cache, signal, variant } = {}) {
    const instance = await Instance.acquire('run', variant);
    const opened = [];
    const handles = [];
    try {
      for (const file of [source, ...data]) {
        const one = await open(file, { cache, signal });
        opened.push(one);
        handles.push(await instance.read(one, progress));
      }
      const [program, ...rest] = handles.splice(0);
      return new Program(instance, instance.call(api => api.Module.load(program, rest, lower, memoryLimit)));
    } catch (error) {
      handles.forEach(handle => instance.free(handle));
      // What is damaged is fetched again the next time.
      await Promise.all(opened.map(one => one.forget?.()));
      instance.release();
      throw error;
    } finally {
      await Promise.all(opened.map(one => one.close?.()));
    }
  }

  constructor(instance, module) {
    this.#instance = instance;
    this.#module = module;
  }

  /** What the program says of its methods: of one that is damaged, the error. */
  describe() {
    const methods = this.#instance.call(() => this.#module.methods).map(name => {
      try {
        return { name, meta: this.#instance.call(() => this.#module.meta(name)) };
      } catch (error) {
        return { name, error: fieldsOf(error) };
      }
    });
    return { methods, variant: this.#instance.variant };
  }

  /** Runs a method on encoded values, and returns tensors of the instance and other values. */
  run(method, values, names) {
    const instance = this.#instance;
    const inputs = instance.call(api => new api.Values());
    let outputs;
    try {
      return instance.call(() => {
        values.forEach((value, at) => {
          if (names) {
            inputs.pushName(names[at]);
          }
          push(instance, inputs, value);
        });
        outputs = this.#module.run(method, inputs);
        return Array.from({ length: outputs.length }, (_, at) => {
          const tensor = outputs.tensor(at);
          return tensor ? Tensor.ofNative(instance, tensor) : outputs.other(at);
        });
      });
    } finally {
      instance.free(outputs);
      instance.free(inputs);
    }
  }

  dispose() {
    this.#instance.free(this.#module);
    this.#instance.release();
  }
}

/** Adds a value to the inputs of a call. The elements of a tensor are copied once, to the memory of the instance. */
export function push(instance, inputs, { kind, value }) {
  if (kind !== 'tensor') {
    const add = { int: 'pushInt', double: 'pushDouble', bool: 'pushBool', string: 'pushString', none: 'pushNone' };
    inputs[add[kind]](value);
    return;
  }
  const known = value instanceof Tensor ? value.nativeIn(instance) : null;
  if (known) {
    inputs.pushTensor(known);
    return;
  }
  const { code, ArrayType } = typeOf(value.dtype);
  const { data } = value;
  const tensor = new instance.api.Tensor(code, Uint32Array.from(value.shape));
  if (data.length > 0) {
    new ArrayType(instance.memory.buffer, tensor.address, data.length).set(data);
  }
  inputs.pushTensor(tensor);
  tensor.free();
}
