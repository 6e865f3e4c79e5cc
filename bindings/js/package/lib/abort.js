// Ends long calls early.

import { failure } from './errors.js';

export function aborted(signal, what = 'loading') {
  return failure('InvalidState', `${what} was aborted`, { cause: signal.reason });
}

/** Returns the result of `act`, or fails when the signal aborts. `drop` gets a result that comes later. Errors name `what`. */
export function abortable(signal, act, drop = () => {}, what = 'loading') {
  if (!signal) {
    return act();
  }
  if (signal.aborted) {
    return Promise.reject(aborted(signal, what));
  }
  return new Promise((resolve, reject) => {
    const stop = () => reject(aborted(signal, what));
    signal.addEventListener('abort', stop, { once: true });
    const settle = result => (signal.aborted ? drop(result) : resolve(result));
    Promise.resolve(act()).then(settle, reject).finally(() => signal.removeEventListener('abort', stop));
  });
}

/** Calls `act` with an interrupt of the native library, which the signal sets. Without a signal, the interrupt is `undefined`. */
export function interruptible(api, signal, act) {
  if (!signal) {
    return act(undefined);
  }
  const interrupt = new api.Interrupt();
  const set = () => interrupt.set();
  const forget = () => signal.removeEventListener('abort', set);
  signal.addEventListener('abort', set, { once: true });
  if (signal.aborted) {
    set();
  }
  try {
    const result = act(interrupt);
    if (result instanceof Promise) {
      return result.finally(forget);
    }
    forget();
    return result;
  } catch (error) {
    forget();
    throw error;
  }
}
