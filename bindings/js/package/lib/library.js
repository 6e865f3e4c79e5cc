// Calls of the library, in either engine.

import { failure, RushlightError } from './errors.js';

/** The interface of programs, language models and compilations to the library. A panic or trap breaks only the program that causes it. */
export class Library {
  #isBroken = false;

  constructor(api) {
    this.api = api;
  }

  get isBroken() {
    return this.#isBroken;
  }

  /** Calls the library. A promise that the call returns fails with the same errors. */
  call(act) {
    if (this.#isBroken) {
      throw failure('InvalidState', 'an earlier error broke the module', { hint: 'load it again' });
    }
    const explain = error => {
      throw this.#explained(error);
    };
    try {
      const result = act(this.api);
      return result instanceof Promise ? result.catch(explain) : result;
    } catch (error) {
      return explain(error);
    }
  }

  #explained(error) {
    const defect = this.defectOf(error);
    if (defect) {
      this.#isBroken = true;
      return failure('Internal', 'the library failed', { ...defect, cause: error });
    }
    const isOurs = typeof error?.codeName === 'string' && !(error instanceof RushlightError);
    return isOurs ? new RushlightError(error) : error;
  }

  /** Copies the bytes of an opened source to the library's memory, part by part. */
  async read({ size, read }, progress) {
    let loaded = 0;
    const parts = [];
    const bytes = size === undefined ? null : this.call(api => new api.Bytes(size));
    try {
      await read(part => {
        if (bytes && loaded + part.length > size) {
          throw failure('AccessFailed', 'the file is longer than announced', { expected: `${size} bytes` });
        }
        if (bytes) {
          this.put(bytes, size, part, loaded);
        } else {
          parts.push(part);
        }
        loaded += part.length;
        progress?.({ loaded, total: size });
      });
      if (bytes && loaded < size) {
        throw failure('AccessFailed', 'the file ends early', { expected: `${size} bytes`, got: `${loaded} bytes` });
      }
    } catch (error) {
      this.free(bytes);
      throw error;
    }
    return bytes ?? this.write(...parts);
  }

  /** Copies bytes to the library's memory. */
  write(...parts) {
    const size = parts.reduce((sum, { length }) => sum + length, 0);
    const bytes = this.call(api => new api.Bytes(size));
    let at = 0;
    for (const part of parts) {
      this.put(bytes, size, part, at);
      at += part.length;
    }
    return bytes;
  }
}
