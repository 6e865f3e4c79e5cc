// Calls that take turns.

/** Makes calls one after the other: the library has one at a time of a program. */
export class Turns {
  #waiting = 0;
  #last = Promise.resolve();

  /** True if a call would be made at once. */
  get isFree() {
    return this.#waiting === 0;
  }

  /** Calls when those before have ended: at once if there are none, and then the result may be no promise. */
  take(act) {
    if (!this.isFree) {
      return this.#await(this.#last.then(act));
    }
    const result = act();
    return result instanceof Promise ? this.#await(result) : result;
  }

  async #await(turn) {
    this.#waiting += 1;
    this.#last = turn.catch(() => {});
    try {
      return await turn;
    } finally {
      this.#waiting -= 1;
    }
  }
}
