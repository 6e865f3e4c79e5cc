// Language models: sessions and answers.

import { abortable, aborted } from './abort.js';
import { needsWorker } from './engine.js';
import { isPage } from './environment.js';
import { failure } from './errors.js';
import { Llm } from './llm.js';
import { loadRemote } from './remote.js';
import { Turns } from './turns.js';

export class LanguageModel {
  #call;
  #end;
  #description;

  /** Loads the `.pte` file of a language model. */
  static async load(source, { worker = isPage, engine, data = [], ...options } = {}) {
    const given = { ...options, data: Array.isArray(data) ? data : [data] };
    const model = new LanguageModel();
    if (await needsWorker(worker, engine)) {
      const { remote, description } = await loadRemote('loadLlm', source, { ...given, engine: 'wasm' });
      model.#call = (name, ...args) => remote.ask('llm', { name, args });
      model.#end = () => remote.terminate();
      model.#description = description;
    } else {
      const load = () => Llm.load(source, { ...given, engine });
      const llm = await abortable(options.signal, load, late => late.dispose());
      const turns = new Turns();
      model.#call = (name, ...args) => turns.take(() => llm[name](...args));
      model.#end = () => llm.dispose();
      model.#description = llm.describe();
    }
    return model;
  }

  /** Positions of the KV cache, the maximum number of tokens of a session. */
  get contextLength() {
    return this.#description.contextLength;
  }

  get vocabularySize() {
    return this.#description.vocabularySize;
  }

  get hasChatTemplate() {
    return this.#description.hasChatTemplate;
  }

  get variant() {
    return this.#description.variant;
  }

  encode(text, { special = true } = {}) {
    return this.#ask('encode', text, special);
  }

  decode(tokens, { special = false } = {}) {
    return this.#ask('decode', Uint32Array.from(tokens, Number), !special);
  }

  /** The text of messages by the chat template. It contains the special tokens, so encode it with `special` false. */
  chatPrompt(messages, { tools = null, variables = {}, addGenerationPrompt = true } = {}) {
    const texts = [messages, tools, variables].map(value => JSON.stringify(value));
    return this.#ask('chatPrompt', ...texts, addGenerationPrompt);
  }

  /** Makes an empty session. */
  async session() {
    const id = await this.#ask('session');
    return new Session(this, (...args) => this.#ask(...args), id, this.#description.prefillPart);
  }

  /** Frees the memory. The model and its sessions cannot be used any more. */
  dispose() {
    this.#end?.();
    this.#end = null;
  }

  [Symbol.dispose ?? Symbol.for('Symbol.dispose')]() {
    this.dispose();
  }

  async #ask(name, ...args) {
    if (!this.#end) {
      throw failure('InvalidState', 'the model is used after `dispose`', { hint: 'load it again' });
    }
    return this.#call(name, ...args);
  }
}

/** One conversation: the tokens so far. */
class Session {
  #model;
  #ask;
  #id;
  #part;
  #answer = null;

  constructor(model, ask, id, part) {
    this.#model = model;
    this.#ask = ask;
    this.#id = id;
    this.#part = part;
  }

  /** The number of its tokens. */
  position() {
    return this.#ask('position', this.#id);
  }

  /** Removes all tokens. A session whose last call failed can then be used again. */
  reset() {
    this.#answer = null;
    return this.#ask('reset', this.#id);
  }

  /** Removes all but the first tokens. */
  rewind(position) {
    this.#answer = null;
    return this.#ask('rewind', this.#id, position);
  }

  /** Makes an independent session with the same tokens. */
  async fork() {
    return new Session(this.#model, this.#ask, await this.#ask('fork', this.#id), this.#part);
  }

  /** Reads tokens, and returns the logits of the next one. */
  async prefill(tokens, { signal } = {}) {
    this.#answer = null;
    const all = Uint32Array.from(tokens, Number);
    // An abort does not wait for a long prompt.
    let at = 0;
    for (;;) {
      if (signal?.aborted) {
        throw aborted(signal, 'reading the tokens');
      }
      const part = all.slice(at, signal ? at + this.#part : undefined);
      const logits = await this.#ask('prefill', this.#id, part);
      at += part.length;
      if (at >= all.length) {
        return logits;
      }
    }
  }

  /** Adds a prompt, a text or tokens, and answers it. */
  generate(prompt = [], options = {}) {
    return this.#respond(options, async () => {
      if (typeof prompt !== 'string') {
        return Uint32Array.from(prompt, Number);
      }
      return this.#model.encode(prompt, { special: (await this.position()) === 0 });
    });
  }

  /** Answers a conversation. The session reads only the messages that it does not have. */
  chat(messages, { tools, variables, ...options } = {}) {
    return this.#respond(options, async goesOn => {
      const text = await this.#model.chatPrompt(messages, { tools, variables });
      const tokens = await this.#model.encode(text, { special: false });
      goesOn();
      return tokens.subarray(await this.#ask('keepCommonPrefix', this.#id, tokens));
    });
  }

  #respond({ signal, ...options }, prompt) {
    const goesOn = () => {
      if (signal?.aborted) {
        throw failure('InvalidState', 'the answer was aborted', { cause: signal.reason });
      }
      if (this.#answer !== answer) {
        throw failure('InvalidState', 'the session was used for something else since', {
          hint: 'an answer cannot go on then',
        });
      }
    };
    const answer = new Answer(async function* respond(ask, id, part) {
      goesOn();
      const tokens = await prompt(goesOn);
      goesOn();
      // An abort does not wait for a long prompt.
      let at = 0;
      const started = performance.now();
      for (; tokens.length - at > part; at += part) {
        goesOn();
        await ask('prefill', id, tokens.slice(at, at + part));
      }
      const prefillMs = performance.now() - started;
      goesOn();
      const generator = await ask('start', id, tokens.slice(at), options);
      try {
        for (;;) {
          goesOn();
          const step = await ask('step', generator, id);
          if (!step) {
            break;
          }
          yield step;
        }
        const usage = await ask('usage', generator);
        const read = { promptTokens: usage.promptTokens + at, prefillMs: usage.prefillMs + prefillMs };
        return { ...usage, ...read };
      } finally {
        await ask('free', generator).catch(() => {});
      }
    }.bind(null, this.#ask, this.#id, this.#part));
    this.#answer = answer;
    return answer;
  }

  /** Frees its part of the memory. */
  async dispose() {
    await this.#ask('free', this.#id).catch(() => {});
  }
}

/** An answer, which is generated while it is read. Iterate over its texts once. */
class Answer {
  #steps;
  #tokens = [];
  #logprobs = [];
  #usage = null;

  constructor(steps) {
    this.#steps = steps;
  }

  /** The tokens so far. */
  get tokens() {
    return this.#tokens;
  }

  /** Log probabilities of the tokens so far, if the option `logprobs` is set. */
  get logprobs() {
    return this.#logprobs;
  }

  /** Counts, times and the reason of the end; null before the end. */
  get usage() {
    return this.#usage;
  }

  async *[Symbol.asyncIterator]() {
    const steps = this.#steps?.();
    if (!steps) {
      throw failure('InvalidState', 'an answer is read once');
    }
    this.#steps = null;
    try {
      for (;;) {
        const { value, done } = await steps.next();
        if (done) {
          this.#usage = value;
          return;
        }
        if (value.token !== undefined) {
          this.#tokens.push(value.token);
          if (value.score) {
            this.#logprobs.push({ token: value.token, ...value.score });
          }
        }
        if (value.text) {
          yield value.text;
        }
      }
    } finally {
      await steps.return();
    }
  }

  /** The whole text. */
  async text() {
    let text = '';
    for await (const part of this) {
      text += part;
    }
    return text;
  }
}
