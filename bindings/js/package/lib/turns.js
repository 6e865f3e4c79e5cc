// Calls that take turns.

/** Makes calls one after the other: the library has one at a time of a program. */
export class Turns {
  #waiting = 0;
  #last = Promise.resolve();

  /** True if a call would be made at once. */
  get isFree() {
    return this.#waiting === 0;
  }

  /** Calls when those before have ended, at once if there are none. */
  async take(act) {
    const turn = this.isFree ? (async () => act())() : this.#last.then(act);
    this.#waiting += 1;
    this.#last = turn.catch(() => {});
    try {
      return await turn;
    } finally {
      this.#waiting -= 1;
    }
  }
}
