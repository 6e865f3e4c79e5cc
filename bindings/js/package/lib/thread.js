// A thread of an instance: an instance of its own over the same memory, which pools of the first one use.

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
    // Browsers tell nobody of a promise that a worker rejects.
    post({ error: String(error) });
    return;
  }
  post({});
  try {
    lent.serve();
  } catch {
    // Whoever waits for this thread finds out there: nobody reads messages until then.
    api.loseThread();
  }
});
