// Programs and calls of their methods.

import { abortable } from './abort.js';
import { addonFor } from './addon.js';
import { isPage } from './environment.js';
import { failure, RushlightError } from './errors.js';
import { NativeProgram } from './native.js';
import { checkThreads } from './options.js';
import { Program } from './program.js';
import { RemoteProgram } from './remote.js';
import { flatten, nest } from './signature.js';

export class Module {
  #program;
  #methods;
  #variant;
  #threads;

  /** Loads a `.pte` file. */
  static async load(source, { worker = isPage, engine, threads = 1, data = [], ...options } = {}) {
    checkThreads(threads);
    const given = { ...options, threads, data: Array.isArray(data) ? data : [data] };
    const addon = await addonFor(engine);
    const load = () => (addon ? NativeProgram.load(addon, source, given) : Program.load(source, given));
    const isHere = addon || !worker;
    const program = await (isHere ? abortable(given.signal, load, late => late.dispose()) : RemoteProgram.load(source, given));
    const module = new Module();
    const { methods, variant, threads: started } = program.describe();
    module.#program = program;
    module.#methods = new Map(methods.map(method => [method.name, method]));
    module.#variant = variant;
    module.#threads = started;
    return module;
  }

  /** The names of the methods. */
  get methods() {
    this.#loaded();
    return [...this.#methods.keys()];
  }

  /** The threads that a call uses. */
  get threads() {
    return this.#threads;
  }

  /** The engine: `native`, or the variant of the WebAssembly module: `baseline`, `simd`, `relaxed` or `threads`. */
  get variant() {
    return this.#variant;
  }

  /** The description of a method in the program. */
  meta(name = 'forward') {
    this.#loaded();
    const method = this.#methods.get(name);
    if (!method) {
      const expected = `one of: ${this.methods.join(', ')}`;
      throw failure('InvalidArgument', `the program has no method \`${name}\``, { expected });
    }
    if (method.error) {
      throw new RushlightError(method.error);
    }
    return method.meta;
  }

  forward(inputs = [], options = {}) {
    return this.run('forward', inputs, options);
  }

  /** Runs a method on inputs by name, or in order. */
  async run(method = 'forward', inputs = [], { transfer = false, signal } = {}) {
    const meta = this.meta(method);
    const { values, names } = flatten(meta, inputs);
    const run = () => this.#loaded().run(method, values, names, { isTransferred: transfer, signal });
    return nest(meta, await abortable(signal, run, undefined, `\`${method}\``));
  }

  /** Runs a method `runs` times, and returns the time of each step. */
  async profile(method = 'forward', inputs = [], { runs = 10, signal } = {}) {
    if (!Number.isInteger(runs) || runs < 1 || runs >= 2 ** 32) {
      throw failure('InvalidArgument', 'the number of runs is at least 1', { got: String(runs) });
    }
    const { values, names } = flatten(this.meta(method), inputs);
    const profile = () => this.#loaded().profile(method, values, names, { runs, signal });
    const steps = await abortable(signal, profile, undefined, 'the profile');
    return steps.map(({ milliseconds, ...step }) => ({ ...step, milliseconds: milliseconds / runs }));
  }

  /** Frees the memory. The module cannot be used any more. */
  dispose() {
    this.#program?.dispose();
    this.#program = null;
  }

  [Symbol.dispose ?? Symbol.for('Symbol.dispose')]() {
    this.dispose();
  }

  #loaded() {
    if (!this.#program) {
      throw failure('InvalidState', 'the module is used after `dispose`', { hint: 'load it again' });
    }
    return this.#program;
  }
}
