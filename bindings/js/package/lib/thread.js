// A thread of an instance: a second instance over the same memory. The pools of the first one use it.

import { parent } from './environment.js';

const { post, receive } = await parent();

receive(async ({ module, memory }) => {
  let api;
  let lent;
  try {
    const { bind } = await import('../wasm/run-threads.js');
    api = bind();
    await api.init({ module_or_path: module, memory });
    lent = new api.LentThread();
  } catch (error) {
    // Browsers do not report a promise that is rejected in a worker.
    post({ error: String(error) });
    return;
  }
  post({});
  try {
    lent.serve();
  } catch {
    // The thread that waits for this one finds the error in memory: it reads no messages while it waits.
    api.loseThread();
  }
});
