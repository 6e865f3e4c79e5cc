// Sentences that are nearest in meaning.

import { Module, Tensor, Tokenizer } from 'rushlight';

import { bar } from './dom.js';
import { layers } from './layers.js';
import { chooser } from './model.js';

/** Tokens of a sentence that count. */
const MAX_LENGTH = 128;

class Encoder {
  constructor(module, tokenizer) {
    this.module = module;
    this.tokenizer = tokenizer;
  }

  dispose() {
    this.module.dispose();
    this.tokenizer.dispose();
  }
}

export function panel(place, models) {
  const [results, time, form] = ['.results', '.time', 'form'].map(name => place.querySelector(name));
  let model = null;
  const chart = layers(place.querySelector('.layers'), () => model && { module: model.module, inputs: inputs(model, form.query.value) });

  async function search() {
    if (!model) {
      time.textContent = 'There is no model yet.';
      return;
    }
    const lines = form.sentences.value.split('\n').map(line => line.trim()).filter(Boolean);
    try {
      const started = performance.now();
      const query = await embedding(model, form.query.value);
      const found = [];
      for (const line of lines) {
        const row = await embedding(model, line);
        found.push({ line, near: row.reduce((sum, value, at) => sum + value * query[at], 0) });
        time.textContent = `${found.length} of ${lines.length} sentences …`;
      }
      const took = performance.now() - started;
      found.sort((a, b) => b.near - a.near);
      results.replaceChildren(...found.map(({ line, near }) => bar(line, near, near.toFixed(2))));
      time.textContent = `${lines.length + 1} texts in ${took.toFixed(0)} ms: ${(took / (lines.length + 1)).toFixed(1)} ms each`;
    } catch (error) {
      time.textContent = error.message;
    }
  }

  form.addEventListener('submit', event => {
    event.preventDefault();
    search();
  });
  const { take } = chooser(place.querySelector('.model'), models, {
    extra: ',.json',
    async load(source, { tokenizer }, progress) {
      if (!tokenizer) {
        throw new Error('An encoder needs its tokenizer: open the .pte file and tokenizer.json together.');
      }
      const module = await Module.load(source, { cache: true, progress });
      try {
        return new Encoder(module, await Tokenizer.load(tokenizer, { cache: true }));
      } catch (error) {
        module.dispose();
        throw error;
      }
    },
    use(loaded) {
      model?.dispose();
      model = loaded;
      chart.clear();
      search();
      return `${loaded.tokenizer.vocabularySize} tokens`;
    },
  });
  return { take };
}

/** The tokens of a text, and, for programs that take it, the mask that all of them count. */
function inputs({ module, tokenizer }, text) {
  const tokens = tokenizer.encode(text).slice(0, MAX_LENGTH);
  const shape = [1, tokens.length];
  const ids = Tensor.from(tokens, shape, 'int64');
  const ones = Tensor.from(tokens.fill(1), shape, 'int64');
  return [ids, ones].slice(0, module.meta().inputs.length);
}

/** The vector of a text, of length one: the program's, or the mean of its tokens' states. */
async function embedding(model, text) {
  const output = await model.module.forward(inputs(model, text));
  const tensor = output instanceof Tensor ? output : Object.values(output)[0];
  const width = tensor.shape.at(-1);
  const states = tensor.toFloat32();
  const sums = Float32Array.from({ length: width }, (_, at) => {
    let sum = 0;
    for (let index = at; index < states.length; index += width) {
      sum += states[index];
    }
    return sum;
  });
  const norm = Math.hypot(...sums);
  return sums.map(value => value / norm);
}
