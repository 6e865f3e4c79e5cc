// A tokenizer without a model.

import { acquire } from './engine.js';
import { withFiles } from './files.js';
import { checkNames } from './options.js';

export class Tokenizer {
  #instance;
  #handle;

  /** Loads a tokenizer's file, such as `tokenizer.json`. */
  static async load(source, { engine, ...options } = {}) {
    checkNames(options);
    const instance = await acquire('llm', { engine });
    const tokenizer = new Tokenizer();
    try {
      tokenizer.#handle = await withFiles(instance, [source], options, ([file]) =>
        instance.call(api => api.Tokenizer.fromBytes(file)),
      );
    } catch (error) {
      instance.release();
      throw error;
    }
    tokenizer.#instance = instance;
    return tokenizer;
  }

  get vocabularySize() {
    return this.#instance.call(() => this.#handle.vocabularySize);
  }

  /** The tokens of a text, with those that begin and end it unless `special` is false. */
  encode(text, { special = true } = {}) {
    return this.#instance.call(() => this.#handle.encode(text, special));
  }

  /** The text of tokens, without special ones unless `special` is true. */
  decode(tokens, { special = false } = {}) {
    return this.#instance.call(() => this.#handle.decode(Uint32Array.from(tokens, Number), !special));
  }

  dispose() {
    if (this.#handle) {
      this.#instance.free(this.#handle);
      this.#instance.release();
      this.#handle = null;
    }
  }

  [Symbol.dispose ?? Symbol.for('Symbol.dispose')]() {
    this.dispose();
  }
}
