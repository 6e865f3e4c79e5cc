// Calls that take turns.

/** Makes calls one after the other, because a program runs one at a time. */
export class Turns {
  #waiting = 0;
  #last = Promise.resolve();

  /** True if no call is running or waiting. */
  get isFree() {
    return this.#waiting === 0;
  }

  /** Calls a function after all earlier calls. Without earlier calls, it calls at once and may return the result instead of a promise. */
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
