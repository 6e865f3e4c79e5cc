// The thread of one program, or of one compilation.

import { compileHere } from './compilation.js';
import { parent } from './environment.js';
import { fieldsOf } from './errors.js';
import { Llm } from './llm.js';
import { Program } from './program.js';
import { Tensor } from './tensor.js';
import { configure } from './wasm.js';

let program = null;
let llm = null;

const answers = {
  async load({ source, options }, progress) {
    program = await Program.load(source, { ...options, progress });
    return { result: program.describe() };
  },

  run({ method, values, names }) {
    const transfer = [];
    const result = program.run(method, values, names).map(value => {
      if (!(value instanceof Tensor)) {
        return { kind: 'other', value };
      }
      const data = value.copy();
      transfer.push(data.buffer);
      const plain = { dtype: value.dtype, shape: [...value.shape], data };
      value.dispose();
      return { kind: 'tensor', value: plain };
    });
    return { result, transfer };
  },

  profile({ method, values, names, runs }) {
    return { result: program.profile(method, values, names, { runs }) };
  },

  async loadLlm({ source, options }, progress) {
    llm = await Llm.load(source, { ...options, progress });
    return { result: llm.describe() };
  },

  async llm({ name, args }) {
    return { result: await llm[name](...args) };
  },

  async compile({ source, options }, progress) {
    const result = await compileHere(source, { ...options, progress });
    return { result, transfer: [result.buffer] };
  },
};

const { post, receive } = await parent();

receive(async ({ id, what, parameters }) => {
  try {
    if (parameters.settings) {
      configure(parameters.settings);
    }
    const { result, transfer = [] } = await answers[what](parameters, progress => post({ id, progress }));
    post({ id, result }, transfer);
  } catch (error) {
    post({ id, error: fieldsOf(error) });
  }
});
