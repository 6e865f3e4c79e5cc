// Tensors over typed arrays.

import { dtypeOf, fromBfloat16, fromFloat16, nameOf, toBfloat16, toFloat16, typeOf } from './dtype.js';
import { failure } from './errors.js';
import { pixels } from './image.js';

/** The argument of the constructor that stands for the memory of an instance. */
class Native {
  constructor(instance, handle) {
    this.instance = instance;
    this.handle = handle;
  }
}

/** A row-major tensor: over a JavaScript array, or in the memory of WebAssembly. */
export class Tensor {
  #dtype;
  #shape;
  #array = null;
  #native = null;

  /** A tensor over an array, which is not copied. */
  constructor(dtype, data, shape) {
    this.#dtype = dtype;
    this.#shape = Object.freeze([...shape]);
    if (data instanceof Native) {
      this.#native = data;
    } else {
      this.#array = checked(dtype, data, this.#shape);
    }
  }

  /** A tensor of numbers, converted to `dtype`; by default to the type of the array. */
  static from(data, shape = [data.length], dtype = dtypeOf(data) ?? 'float32') {
    return new Tensor(dtype, dtypeOf(data) === dtype ? data : convert(dtype, data), shape);
  }

  /** A tensor of an image. */
  static fromImage(source, options) {
    const { dtype, data, shape } = pixels(source, options);
    return new Tensor(dtype, data, shape);
  }

  /** A tensor in the memory of an instance. For this package only. */
  static ofNative(instance, handle) {
    return new Tensor(nameOf(handle.dtype), new Native(instance, handle), handle.shape);
  }

  /** Its handle in an instance, or null. For this package only. */
  nativeIn(instance) {
    return this.#native?.instance === instance ? this.#native.handle : null;
  }

  /** True if it is in the memory of an instance, which cannot be posted. For this package only. */
  get isNative() {
    return this.#native !== null;
  }

  get dtype() {
    return this.#dtype;
  }

  get shape() {
    return this.#shape;
  }

  /** The elements, in place. */
  get data() {
    if (this.#native) {
      const { instance, handle } = this.#native;
      const { buffer } = instance.memory;
      if (this.#array?.buffer !== buffer) {
        const { ArrayType } = typeOf(this.#dtype);
        const count = handle.nbytes / ArrayType.BYTES_PER_ELEMENT;
        this.#array = new ArrayType(buffer, count ? handle.address : 0, count);
      }
    }
    if (!this.#array) {
      throw failure('InvalidState', 'the tensor is used after `dispose`');
    }
    if (this.#array.length === 0 && !this.#shape.includes(0)) {
      throw failure('InvalidState', 'the buffer of the tensor has been handed over', { hint: 'hand over a `copy()`' });
    }
    return this.#array;
  }

  /** A copy of the elements in memory of JavaScript. */
  copy() {
    return this.data.slice();
  }

  /** The elements as numbers, also those of float16 and bfloat16. */
  toFloat32() {
    const decode = { float16: fromFloat16, bfloat16: fromBfloat16 }[this.#dtype];
    return decode ? decode(this.data) : Float32Array.from(this.data, Number);
  }

  /** The text of `console.log` in Node.js. */
  [Symbol.for('nodejs.util.inspect.custom')](depth, options, inspect) {
    const type = `Tensor ${this.#dtype}[${this.#shape.join(', ')}]`;
    return this.#native || this.#array ? `${type} ${inspect(this.data, options)}` : `${type} (disposed)`;
  }

  /** Frees its part of WebAssembly's memory now instead of at a garbage collection. */
  dispose() {
    this.#native?.instance.free(this.#native.handle);
    this.#native = null;
    this.#array = null;
  }

  [Symbol.dispose ?? Symbol.for('Symbol.dispose')]() {
    this.dispose();
  }
}

function checked(dtype, data, shape) {
  const { ArrayType, width } = typeOf(dtype);
  if (!shape.every(size => Number.isInteger(size) && size >= 0 && size < 2 ** 32)) {
    throw failure('InvalidArgument', 'a shape is an array of sizes', { got: `[${shape}]` });
  }
  if (data instanceof Uint8ClampedArray && ArrayType === Uint8Array) {
    data = new Uint8Array(data.buffer, data.byteOffset, data.length);
  }
  if (dtype === 'float16' && ArrayType !== Uint16Array && data instanceof Uint16Array) {
    // Bits, for engines without Float16Array.
    data = new ArrayType(data.buffer, data.byteOffset, data.length);
  }
  if (!(data instanceof ArrayType)) {
    const got = data?.constructor?.name ?? String(data);
    const hint = '`Tensor.from` converts numbers';
    throw failure('InvalidArgument', `elements of ${dtype} are in another array`, { expected: ArrayType.name, got, hint });
  }
  const expected = shape.reduce((product, size) => product * size, width);
  if (data.length !== expected) {
    const headline = `a tensor of shape [${shape.join(', ')}] has another count of elements`;
    throw failure('InvalidArgument', headline, { expected: String(expected), got: String(data.length) });
  }
  return data;
}

function convert(dtype, numbers) {
  const { ArrayType } = typeOf(dtype);
  if (dtype === 'float16') {
    return toFloat16(Float64Array.from(numbers, Number));
  }
  if (dtype === 'bfloat16') {
    return toBfloat16(Float64Array.from(numbers, Number));
  }
  if (dtype === 'bool') {
    return Uint8Array.from(numbers, number => (number ? 1 : 0));
  }
  const isBig = ArrayType === BigInt64Array || ArrayType === BigUint64Array;
  return ArrayType.from(numbers, isBig ? BigInt : Number);
}
