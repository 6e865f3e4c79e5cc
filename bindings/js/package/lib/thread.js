// A thread of an instance: an instance of its own over the same memory, which pools of the first one use.

import { parent } from './environment.js';

const { post, receive } = await parent();

receive(async ({ module, memory }) => {
  const { bind } = await import('../wasm/run-threads.js');
  const api = bind();
  await api.init({ module_or_path: module, memory });
  const lent = new api.LentThread();
  post('ready');
  try {
    lent.serve();
  } catch {
    // Whoever waits for this thread finds out there: nobody reads messages until then.
    api.loseThread();
  }
});
