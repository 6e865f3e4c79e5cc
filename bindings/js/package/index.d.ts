/// <reference lib="esnext.disposable" />

/** The type of a tensor's elements, by PyTorch's names. */
export type DType =
  | 'uint8' | 'int8' | 'int16' | 'int32' | 'int64' | 'uint16' | 'uint32' | 'uint64'
  | 'float16' | 'bfloat16' | 'float32' | 'float64' | 'complex64' | 'complex128' | 'bool';

/**
 * The array of a tensor's elements: a `Uint8Array` for `bool`, a `Uint16Array` of bits for `bfloat16`, and for `float16` a
 * `Float16Array`, or a `Uint16Array` of bits in engines without it. A complex number has two elements.
 */
export type TypedArray =
  | Uint8Array | Int8Array | Int16Array | Int32Array | BigInt64Array | Uint16Array | Uint32Array | BigUint64Array
  | Float32Array | Float64Array;

/** An image that a canvas can draw, or pixels as RGBA bytes. */
export type ImageSource =
  | { data: Uint8ClampedArray | Uint8Array; width: number; height: number }
  | Global<'HTMLImageElement'> | Global<'SVGImageElement'> | Global<'HTMLVideoElement'> | Global<'HTMLCanvasElement'>
  | Global<'ImageBitmap'> | Global<'OffscreenCanvas'> | Global<'VideoFrame'>;

/** A class that exists in web pages, if the types of the program include it. */
type Global<Name extends string> = typeof globalThis extends { [name in Name]: { prototype: infer T } } ? T : never;

export interface ImageOptions {
  /** Height and width after resizing, which needs a browser's canvas. By default the image is not resized. */
  size?: readonly [number, number];
  /** 3 for RGB (the default), 1 for luma. */
  channels?: 1 | 3;
  /** `nchw` by default: shape `[1, channels, height, width]`. */
  layout?: 'nchw' | 'nhwc';
  /** The normalization of channels with values from 0 to 1: `none` by default; `symmetric` maps them to -1 to 1. */
  normalize?: 'none' | 'imagenet' | 'symmetric' | { mean: readonly number[]; std: readonly number[] };
  /** `float32` by default; `uint8` keeps the bytes. */
  dtype?: 'float32' | 'uint8';
}

/** A row-major tensor. */
export class Tensor {
  /** A tensor over an array, which is not copied. Throws a RushlightError if type, shape and array do not match. */
  constructor(dtype: DType, data: TypedArray | Uint8ClampedArray, shape: readonly number[]);
  /** A tensor of numbers, converted to `dtype`: by default the type of the array, and `float32` for plain arrays. */
  static from(data: ArrayLike<number | bigint | boolean> | TypedArray, shape?: readonly number[], dtype?: DType): Tensor;
  /** A tensor of an image, a canvas, or a frame of a video. */
  static fromImage(source: ImageSource, options?: ImageOptions): Tensor;
  readonly dtype: DType;
  readonly shape: readonly number[];
  /**
   * The elements, in place. Those of a result that WebAssembly computed on this thread (`worker: false`) are in its memory:
   * the array is detached when that memory grows, so read `data` again after other calls, or take a `copy`.
   */
  readonly data: TypedArray;
  /** A copy of the elements. */
  copy(): TypedArray;
  /** The elements as floats, also those of float16 and bfloat16. */
  toFloat32(): Float32Array;
  /** Frees WebAssembly's memory now rather than with the next garbage collection. */
  dispose(): void;
  [Symbol.dispose](): void;
}

/**
 * An input. An array has the shape of the input, in which at most one size is dynamic, and otherwise one dimension. An array of narrower
 * integers, such as the tokens of `encode`, is converted for an input of int64.
 */
export type Value = Tensor | TypedArray | number | bigint | boolean | string | null;
export type Input = Value | undefined | readonly Input[] | { readonly [name: string]: Input };

/**
 * The result of a call: values in the containers of the exported function. `forward` and `run` take the type that your program has:
 * `module.forward<{ logits: Tensor }>({ image })`.
 */
export type Output = Tensor | number | bigint | boolean | string | null | Output[] | { [name: string]: Output };

/** The source of a file: a URL, a path (in Node.js), or an object with the bytes. */
export type Source =
  | string | URL | ArrayBuffer | ArrayBufferView | Blob | Response | ReadableStream<Uint8Array> | AsyncIterable<Uint8Array>;

export interface Progress {
  /** Bytes so far. */
  loaded: number;
  /** Bytes of the file, if that is known. */
  total?: number;
}

/**
 * The engine: the native library or WebAssembly. `auto`, the default, is the native library in Node.js if its package is installed, and
 * WebAssembly otherwise; the environment variable `RUSHLIGHT_ENGINE` overrides it. `native` is an error if the native library cannot be
 * used.
 */
export type Engine = 'auto' | 'native' | 'wasm';

export interface LoadOptions {
  engine?: Engine;
  /**
   * Run in a worker: true by default in pages, false elsewhere. `dispose` ends the worker and frees its memory. The native library needs
   * no worker: its long calls run on other threads.
   */
  worker?: boolean;
  /**
   * Maximum threads of a call; 1 by default. More need memory that threads share: Node.js has it, and workers of pages that are isolated
   * from other origins. Elsewhere a call uses one thread: see `Module.threads`. WebAssembly uses at most one thread for each processor.
   */
  threads?: number;
  /** Called with each part of a file that is read. */
  progress?: (progress: Progress) => void;
  /** Keep files from URLs in the browser's cache, and read them from there without asking the server again. False by default. */
  cache?: boolean;
  /** The `.ptd` files with weights of the program. */
  data?: Source | readonly Source[];
  // Generated from the table of options by `UPDATE_DOCS=1 cargo test -p rushlight-cli --test it bindings`.
  /** The way to load files into memory: read whole, mapped, or mapped and locked; mmap by default. */
  loadMode?: 'file' | 'mmap' | 'mmap-mlock' | 'mmap-mlock-ignore-errors';
  /** Let all methods use one set of planned buffers, sized for the largest, and share state in planned memory. */
  shareMemory?: boolean;
  /** Compile a portable program at load: auto if that saves time, off never, a backend always, with options such as `cpu:precision=bf16`; auto by default. */
  lower?: string;
  /** Maximum memory of a method, besides the file. */
  memoryLimit?: number;
  /** Maximum duration of a call, which ends at most one step later. */
  timeLimit?: number;
  // End of the generated options.
  /** Ends loading early. */
  signal?: AbortSignal;
}

export interface RunOptions {
  /**
   * Transfer the buffers of inputs to the worker or the native library instead of copying them. This detaches them. A buffer that Node.js
   * cannot detach, such as that of a large result, is copied.
   */
  transfer?: boolean;
  /**
   * Ends the call with an error. The native library ends a running call before its next step; states keep the values that it has
   * written. WebAssembly finishes the call and its updates of states, and drops its result.
   */
  signal?: AbortSignal;
}

/** The places of the WebAssembly modules. */
export interface Settings {
  /** The URL of a folder with the modules, or the URL of each module by its name, such as `run-simd.wasm`. */
  wasmPaths?: string | URL | { readonly [name: string]: string | URL };
  /** The bytes of modules by their names. */
  wasmBinary?: { readonly [name: string]: ArrayBuffer | ArrayBufferView };
}

/**
 * Sets the places of the WebAssembly modules, for bundlers that do not copy them beside the package's files. Programs that are loaded later
 * use it.
 */
export function configure(settings?: Settings): void;

export interface ValueInfo {
  name?: string;
  kind: 'tensor' | 'int' | 'double' | 'bool' | 'string' | 'none' | 'list';
  /** The value that the export fixed, for an input that is not a tensor. */
  value?: number | bigint | boolean | string | null;
  dtype?: string;
  /** The sizes; upper bounds for dynamic ones. */
  shape?: number[];
  isDynamic?: boolean;
  /** The allowed sizes of each dimension, such as `1..=8`, if the program has them. */
  ranges?: string[];
  nbytes?: number;
}

export interface MethodMeta {
  name: string;
  inputs: ValueInfo[];
  outputs: ValueInfo[];
  operators: string[];
  /** The backends of its delegates. */
  backends: string[];
  /** Names and nesting, such as `(image, boxes: [_, _]) -> {logits}`; programs of ExecuTorch have none. */
  signature?: string;
}

/** The time of one step of a method. */
export interface StepTime {
  /** The operator, or the kind of a backend's step. */
  name: string;
  /** The instruction of the method. */
  instruction: number;
  /** The step of its delegate, if it is in one. */
  step?: number;
  calls: number;
  /** The mean time of a run. */
  milliseconds: number;
}

/** A loaded program. */
export class Module {
  /** Loads a `.pte` file. */
  static load(source: Source, options?: LoadOptions): Promise<Module>;
  /** The names of its methods. */
  readonly methods: string[];
  /** The threads that a call uses. */
  readonly threads: number;
  /** The engine: the native library, or a WebAssembly module, named by its instructions or by `threads`. */
  readonly variant: 'native' | 'baseline' | 'simd' | 'relaxed' | 'threads';
  /** The description of a method in the program; `forward` by default. */
  meta(method?: string): MethodMeta;
  /** Runs `forward`: inputs are by name in an object, or in order in an array. */
  forward<Result extends Output = Output>(inputs?: Input, options?: RunOptions): Promise<Result>;
  /** Runs a method. */
  run<Result extends Output = Output>(method: string, inputs?: Input, options?: RunOptions): Promise<Result>;
  /** Runs a method several times, 10 by default, and returns the mean time of each step. Clocks of pages are coarse. */
  profile(method?: string, inputs?: Input, options?: { runs?: number; signal?: AbortSignal }): Promise<StepTime[]>;
  /** Frees the memory. Using the module later is an error. */
  dispose(): void;
  [Symbol.dispose](): void;
}

export interface CompileOptions {
  engine?: Engine;
  /** The name of the method; `forward` by default. */
  method?: string;
  // Generated from the table of options by `UPDATE_DOCS=1 cargo test -p rushlight-cli --test it bindings`.
  /** A backend that may claim nodes, with options such as `cpu:precision=bf16`; may be repeated, and the first one is asked first. */
  backend?: string | readonly string[];
  /** Treat buffers of the same name in several methods as one. */
  shareState?: boolean;
  /** Quantize layers; schemes that need a calibration use the inputs that the export recorded, if no others are given. */
  quantize?: 'int8' | 'int8-dynamic' | '8da4w' | 'int4' | 'int8-weight';
  /** The choice of the ranges of activations from a calibration; histogram by default. */
  observer?: 'minmax' | 'average' | 'percentile' | 'histogram' | 'mse' | 'best';
  /** The rounding of quantized weights; mse by default, and gptq needs a calibration. */
  weights?: 'nearest' | 'mse' | 'gptq';
  /** Keep modules in float, by name; `*` is any text, a pattern that matches no module is an error, and it may be repeated. */
  keep?: string | readonly string[];
  /** Minimum signal-to-noise ratio of the outputs in dB: the worst layers stay in float until it is reached on the calibration. */
  minSnr?: number;
  /** Keep the biases of convolutions, instead of correcting them for the shift that rounding causes in the means of results. */
  noBiasCorrection?: boolean;
  /** Quantize embedding tables to this number of bits: 8, per row, or 4, in groups of 32; 0 leaves them as they are. By default 0. */
  embeddings?: 0 | 4 | 8;
  /** Element type of KV caches; int8 has a scale and a zero point for each row, int4 for each group of 32 elements; f32 by default. */
  kvCache?: 'f32' | 'f16' | 'bf16' | 'int8' | 'int4';
  /** The tokenizer to store in the program; by default that of the language model, if it has one. */
  tokenizer?: string;
  /** Leave the tokenizer out of the program. */
  noTokenizer?: boolean;
  /** Positions of a language model's cache; by default those of the model, at most 2048. */
  maxContextLen?: number;
  /** Maximum number of tokens in a call of a language model; by default all its positions. */
  maxSeqLen?: number;
  /** Make a language model return the logits of all tokens, rather than of the last one. */
  fullLogits?: boolean;
  /** Make a language model return the hidden states of all tokens, for embeddings, instead of logits. */
  hiddenStates?: boolean;
  /** Give a language model a second method, which accepts LoRA adapters up to this rank. */
  loraRank?: number;
  // End of the generated options.
  /** The inputs of calls, in order, from which the ranges of activations are measured; each with its shape. */
  calibration?: readonly (Tensor | readonly Tensor[])[];
  worker?: boolean;
  progress?: (progress: Progress) => void;
  cache?: boolean;
  signal?: AbortSignal;
}

/** Compiles a `.pt2` file of `torch.export.save` to the bytes of a `.pte` file. */
export function compile(source: Source, options?: CompileOptions): Promise<Uint8Array>;

export interface LanguageModelOptions {
  engine?: Engine;
  /** Maximum threads of the native library; by default one for each processor. WebAssembly uses one. */
  threads?: number;
  /** The tokenizer's file, such as `tokenizer.json`, for a program without one. */
  tokenizer?: Source;
  /** Run in a worker: true by default in pages, false elsewhere. */
  worker?: boolean;
  progress?: (progress: Progress) => void;
  /** Keep files from URLs in the browser's cache. */
  cache?: boolean;
  /** The `.ptd` files with weights of the program. */
  data?: Source | readonly Source[];
  /** The folder of a LoRA adapter as PEFT saves it, for a model that was compiled with a `loraRank`. Only the native library reads it. */
  lora?: string;
  // Generated from the table of options by `UPDATE_DOCS=1 cargo test -p rushlight-cli --test it bindings`.
  /** The way to load files into memory: read whole, mapped, or mapped and locked; mmap by default. */
  loadMode?: 'file' | 'mmap' | 'mmap-mlock' | 'mmap-mlock-ignore-errors';
  /** Let all methods use one set of planned buffers, sized for the largest, and share state in planned memory. */
  shareMemory?: boolean;
  /** Compile a portable program at load: auto if that saves time, off never, a backend always, with options such as `cpu:precision=bf16`; auto by default. */
  lower?: string;
  /** Maximum memory of a method, besides the file. */
  memoryLimit?: number;
  /** Maximum duration of a call, which ends at most one step later. */
  timeLimit?: number;
  // End of the generated options.
  /** Ends loading early. */
  signal?: AbortSignal;
}

/** Options of an answer, with the same defaults in all languages. */
export interface GenerateOptions {
  // Generated from the table of options by `UPDATE_DOCS=1 cargo test -p rushlight-cli --test it bindings`.
  /** Maximum number of tokens to generate; by default as many as fit in the context. */
  maxNewTokens?: number;
  /** Sampling temperature; 0 is greedy. By default 0.8. */
  temperature?: number;
  /** Choose among the K most likely tokens; 0 for all. By default 40. */
  topK?: number;
  /** Choose among the most likely tokens, up to this total probability. By default 0.95. */
  topP?: number;
  /** Choose among tokens with at least this fraction of the highest probability. By default 0.05. */
  minP?: number;
  /** Choose among tokens whose information is closest to the entropy, up to this total probability. By default 1. */
  typicalP?: number;
  /** Divide positive logits of earlier tokens by this, and multiply negative ones. By default 1. */
  repetitionPenalty?: number;
  /** Subtract this from logits of generated tokens. By default 0. */
  presencePenalty?: number;
  /** Subtract this from logits of generated tokens, once for each occurrence. By default 0. */
  frequencyPenalty?: number;
  /** Penalize tokens that continue a repetition (DRY): subtract this times the base to the power of the excess length from their logits; 0 is off. By default 0. */
  dryMultiplier?: number;
  /** Base of the penalty for repetitions. By default 1.75. */
  dryBase?: number;
  /** Length above which a repetition is penalized. By default 2. */
  dryAllowedLength?: number;
  /** Number of last tokens that are searched for repetitions; by default all. */
  dryPenaltyLastN?: number;
  /** A text that ends repetitions, in place of the line break, `:`, `"` and `*`; may be repeated, and `none` is none. */
  drySequenceBreaker?: string | readonly string[];
  /** Keep the surprisal of the answer near a target, in place of top-k, top-p, min-p and typical-p: version 2 of mirostat; 0 is off. By default 0. */
  mirostat?: 0 | 2;
  /** Target of mirostat, in bits. By default 5. */
  mirostatTau?: number;
  /** Learning rate of mirostat. By default 0.1. */
  mirostatEta?: number;
  /** Sample as ExecuTorch's runners do, with the temperature, the seed and top-p 0.9. */
  executorchSampler?: boolean;
  /** Add these numbers to the logits of tokens; may be repeated. */
  logitBias?: { readonly [token: number]: number };
  /** Seed of the random number generator; the same seed gives the same text, and `random` or -1 is another one each time. By default 0. */
  seed?: number | bigint | 'random';
  /** A text that ends the answer and is no part of it; may be repeated. */
  stop?: string | readonly string[];
  /** Continue after tokens that end an answer. */
  ignoreEos?: boolean;
  /** Compute the log probability of each token, and those of this many most likely ones beside it. */
  logprobs?: boolean | number;
  /** Answer in JSON that follows this schema, such as `{"type": "object"}`. */
  jsonSchema?: string | object;
  /** Answer with a text that a regular expression matches as a whole. */
  regex?: string;
  /** Answer with a text of a grammar in Lark's syntax, or in llama.cpp's GBNF. */
  grammar?: string;
  /** Guess tokens, and verify several in one call, for the same answer; `lookup` guesses the continuation after an earlier occurrence of the last tokens. */
  speculate?: 'lookup';
  /** Maximum number of tokens to guess at a time. By default 8. */
  draftMax?: number;
  // End of the generated options.
  /** Ends the answer with an error. The session keeps its tokens. */
  signal?: AbortSignal;
}

/** A message of a conversation, with other fields that the chat template reads. */
export interface Message {
  role: string;
  content: unknown;
  [field: string]: unknown;
}

export interface ChatOptions extends GenerateOptions {
  /** Functions that the model may call, in the form of its chat template. */
  tools?: readonly unknown[];
  /** Other variables of the chat template, such as `enable_thinking`. */
  variables?: { readonly [name: string]: unknown };
}

export interface Usage {
  /** Tokens of the prompt, without those that the session already had. */
  promptTokens: number;
  generatedTokens: number;
  /** Milliseconds of reading the prompt. */
  prefillMs: number;
  /** Tokens of the answer that the model has read, and the milliseconds. */
  decodedTokens: number;
  decodeMs: number;
  finishReason: 'stop' | 'length' | 'cancelled';
}

/** A token with its log probability, and the most likely tokens with theirs. */
export interface TokenLogprob {
  token: number;
  logprob: number;
  top: { token: number; logprob: number }[];
}

/** An answer, which is generated while it is read. Iterate over its texts once. Leaving the loop ends the answer. */
export interface Answer extends AsyncIterable<string> {
  /** The whole text. */
  text(): Promise<string>;
  /** The tokens so far. */
  readonly tokens: readonly number[];
  /** Log probabilities of the tokens so far, if the option `logprobs` is set; each with the most likely tokens. */
  readonly logprobs: readonly TokenLogprob[];
  /** Null before the end. */
  readonly usage: Usage | null;
}

/** One conversation: the tokens so far, and their KV cache. */
export interface Session {
  /** The number of its tokens. */
  position(): Promise<number>;
  /** Adds a prompt, a text or tokens, and answers it. */
  generate(prompt?: string | ArrayLike<number | bigint>, options?: GenerateOptions): Answer;
  /** Answers a conversation by the model's chat template. The session reads only the messages that it does not have. */
  chat(messages: readonly Message[], options?: ChatOptions): Answer;
  /** Reads tokens, and returns the logits of the next one. */
  prefill(tokens: ArrayLike<number | bigint>, options?: { signal?: AbortSignal }): Promise<Float32Array>;
  /** Removes all tokens. A session whose last call failed can then be used again. */
  reset(): Promise<void>;
  /** Removes all but the first `position` tokens. */
  rewind(position: number): Promise<void>;
  /** Makes an independent session with the same tokens. */
  fork(): Promise<Session>;
  dispose(): Promise<void>;
}

/** A language model with its tokenizer. Needs an engine with vector instructions, as all browsers have since 2023. */
export class LanguageModel {
  /** Loads the `.pte` file of a language model, from `rushlight compile` or ExecuTorch. */
  static load(source: Source, options?: LanguageModelOptions): Promise<LanguageModel>;
  /** The maximum number of tokens of a session. */
  readonly contextLength: number;
  readonly vocabularySize: number;
  readonly hasChatTemplate: boolean;
  readonly variant: 'native' | 'simd' | 'relaxed';
  /** The tokens of a text, with those that begin and end it unless `special` is false. */
  encode(text: string, options?: { special?: boolean }): Promise<Uint32Array>;
  /** The text of tokens, without special ones unless `special` is true. */
  decode(tokens: ArrayLike<number | bigint>, options?: { special?: boolean }): Promise<string>;
  /** The text of messages by the chat template. It contains the special tokens, so encode it with `special` false. */
  chatPrompt(
    messages: readonly Message[],
    options?: { tools?: readonly unknown[]; variables?: { readonly [name: string]: unknown }; addGenerationPrompt?: boolean },
  ): Promise<string>;
  /** Makes an empty session. */
  session(): Promise<Session>;
  /** Frees the memory. */
  dispose(): void;
  [Symbol.dispose](): void;
}

/** A tokenizer without a model, on this thread. */
export class Tokenizer {
  /** Loads a tokenizer's file, such as `tokenizer.json`. */
  static load(
    source: Source,
    options?: { engine?: Engine; cache?: boolean; progress?: (progress: Progress) => void; signal?: AbortSignal },
  ): Promise<Tokenizer>;
  readonly vocabularySize: number;
  encode(text: string, options?: { special?: boolean }): Uint32Array;
  decode(tokens: ArrayLike<number | bigint>, options?: { special?: boolean }): string;
  dispose(): void;
  [Symbol.dispose](): void;
}

/** An error of the library. `message` is the whole text. */
export class RushlightError extends Error {
  /** ExecuTorch's error code. */
  readonly code: number;
  readonly codeName: string;
  /** The place of the error. */
  readonly site: string | null;
  readonly expected: string | null;
  readonly got: string | null;
  /** A hint: how to mend the error. */
  readonly hint: string | null;
  /** The operators that the program needs and the library lacks. */
  readonly missingOperators: string[];
}
