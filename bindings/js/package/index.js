// Runs and compiles PyTorch models in browsers and Node.js.

export { compile } from './lib/compile.js';
export { RushlightError } from './lib/errors.js';
export { LanguageModel } from './lib/language-model.js';
export { Module } from './lib/module.js';
export { Tensor } from './lib/tensor.js';
export { Tokenizer } from './lib/tokenizer.js';
export { configure } from './lib/wasm.js';
