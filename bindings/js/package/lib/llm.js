// A loaded language model on this thread. Sessions and answers have numbers, so that other threads can refer to them.

import { acquire } from './engine.js';
import { failure } from './errors.js';
import { withFiles } from './files.js';
import { checkThreads, divided, named } from './options.js';

export class Llm {
  #instance;
  #model;
  #tokenizer;
  #objects = new Map();
  #next = 0;

  static async load(source, { data = [], engine, tokenizer, threads, lora, ...options } = {}) {
    checkThreads(threads ?? 1);
    const [reading, others] = divided(options);
    const instance = await acquire('llm', { engine });
    try {
      const sources = [source, ...data, ...(tokenizer === undefined ? [] : [tokenizer])];
      // WebAssembly runs language models on one thread, and reads no folders.
      const isNative = instance.variant === 'native';
      if (lora !== undefined && !isNative) {
        throw failure('NotSupported', 'a LoRA adapter is a folder, which WebAssembly does not read', {
          hint: 'use the native library of Node.js',
        });
      }
      const model = await withFiles(instance, sources, reading, ([program, ...files]) => {
        const vocabulary = tokenizer === undefined ? undefined : files.pop();
        const own = isNative ? { ...others, threads } : others;
        return instance.call(api => api.LanguageModel.load(program, files, vocabulary, ...named(own), lora));
      });
      return new Llm(instance, model);
    } catch (error) {
      instance.release();
      throw error;
    }
  }

  constructor(instance, model) {
    this.#instance = instance;
    this.#model = model;
    this.#tokenizer = instance.call(() => model.tokenizer);
  }

  describe() {
    return { ...this.#instance.call(() => this.#model.describe()), variant: this.#instance.variant };
  }

  encode(text, special) {
    return this.#instance.call(() => this.#tokenizer.encode(text, special));
  }

  decode(tokens, skipSpecial) {
    return this.#instance.call(() => this.#tokenizer.decode(tokens, skipSpecial));
  }

  chatPrompt(messages, tools, variables, answers) {
    return this.#instance.call(() => this.#tokenizer.chatPrompt(messages, tools, variables, answers));
  }

  async session() {
    return this.#add(await this.#instance.call(() => this.#model.session()));
  }

  async fork(session) {
    return this.#add(await this.#instance.call(() => this.#object(session).fork()));
  }

  reset(session) {
    this.#instance.call(() => this.#object(session).reset(this.#model));
  }

  rewind(session, position) {
    this.#instance.call(() => this.#object(session).rewind(this.#model, position));
  }

  keepCommonPrefix(session, tokens) {
    return this.#instance.call(() => this.#object(session).keepCommonPrefix(this.#model, tokens));
  }

  position(session) {
    return this.#instance.call(() => this.#object(session).position);
  }

  prefill(session, tokens) {
    return this.#instance.call(() => this.#object(session).prefill(this.#model, tokens));
  }

  async start(session, prompt, options) {
    const start = api => api.Answer.start(this.#model, this.#object(session), prompt, ...named(options));
    return this.#add(await this.#instance.call(start));
  }

  /** The next text and token; null when the answer is over. */
  async step(answer, session) {
    return (await this.#instance.call(() => this.#object(answer).step(this.#model, this.#object(session)))) ?? null;
  }

  usage(answer) {
    return this.#instance.call(() => this.#object(answer).usage());
  }

  free(object) {
    this.#instance.free(this.#objects.get(object));
    this.#objects.delete(object);
  }

  dispose() {
    [...this.#objects.keys()].forEach(object => this.free(object));
    this.#instance.free(this.#tokenizer);
    this.#instance.free(this.#model);
    this.#instance.release();
  }

  #add(object) {
    this.#objects.set(this.#next, object);
    return this.#next++;
  }

  #object(number) {
    const object = this.#objects.get(number);
    if (!object) {
      throw failure('InvalidState', 'the session is used after `dispose`');
    }
    return object;
  }
}
