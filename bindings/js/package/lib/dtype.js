// Element types: PyTorch's numbers, and the typed arrays that hold them.

import { failure } from './errors.js';

// Float16Array is younger than the other typed arrays. Without it, and for bfloat16, elements are their bits.
const Float16 = globalThis.Float16Array ?? Uint16Array;

const TYPES = {
  uint8: [0, Uint8Array],
  int8: [1, Int8Array],
  int16: [2, Int16Array],
  int32: [3, Int32Array],
  int64: [4, BigInt64Array],
  float16: [5, Float16],
  float32: [6, Float32Array],
  float64: [7, Float64Array],
  // Real and imaginary part of each element.
  complex64: [9, Float32Array],
  complex128: [10, Float64Array],
  bool: [11, Uint8Array],
  bfloat16: [15, Uint16Array],
  uint16: [27, Uint16Array],
  uint32: [28, Uint32Array],
  uint64: [29, BigUint64Array],
};

/** The number of a type, its class of arrays, and the count of array elements for a tensor element. */
export function typeOf(dtype) {
  if (!Object.hasOwn(TYPES, dtype)) {
    const expected = Object.keys(TYPES).join(', ');
    throw failure('InvalidArgument', 'no element type has this name', { expected, got: String(dtype) });
  }
  const [code, ArrayType] = TYPES[dtype];
  return { code, ArrayType, width: dtype.startsWith('complex') ? 2 : 1 };
}

export function nameOf(code) {
  return Object.keys(TYPES).find(name => TYPES[name][0] === code);
}

/** The default element type of an array. */
export function dtypeOf(array) {
  if (array instanceof Uint8ClampedArray) {
    return 'uint8';
  }
  if (globalThis.Float16Array && array instanceof Float16Array) {
    return 'float16';
  }
  const plain = ['float32', 'float64', 'int8', 'int16', 'int32', 'int64', 'uint8', 'uint16', 'uint32', 'uint64'];
  return plain.find(name => array instanceof TYPES[name][1]);
}

const float = new Float32Array(1);
const bits = new Uint32Array(float.buffer);

/** Converts numbers to bits of bfloat16, rounded to nearest even. */
export function toBfloat16(numbers) {
  return Uint16Array.from(numbers, number => {
    float[0] = number;
    const of = bits[0];
    return Number.isNaN(number) ? (of >>> 16) | 0x40 : (of + 0x7fff + ((of >>> 16) & 1)) >>> 16;
  });
}

export function fromBfloat16(array) {
  return Float32Array.from(array, of => {
    bits[0] = of << 16;
    return float[0];
  });
}

/** Converts numbers to float16, rounded to nearest even. */
export function toFloat16(numbers) {
  if (Float16 !== Uint16Array) {
    return Float16.from(numbers);
  }
  return Uint16Array.from(numbers, number => {
    const sign = number < 0 || Object.is(number, -0) ? 0x8000 : 0;
    const magnitude = Math.abs(number);
    if (Number.isNaN(number)) {
      return 0x7e00;
    }
    if (magnitude >= 65520) {
      return sign | 0x7c00;
    }
    // The unit in the last place, that of subnormal numbers below the least normal one.
    let exponent = magnitude < 2 ** -14 ? -14 : Math.floor(Math.log2(magnitude));
    if (2 ** exponent > magnitude && exponent > -14) {
      exponent -= 1;
    }
    const units = roundToEven(magnitude / 2 ** (exponent - 10));
    return sign | (magnitude < 2 ** -14 ? units : ((exponent + 14) << 10) + units);
  });
}

function roundToEven(number) {
  const below = Math.floor(number);
  const rest = number - below;
  return rest > 0.5 || (rest === 0.5 && below % 2 === 1) ? below + 1 : below;
}

export function fromFloat16(array) {
  if (Float16 !== Uint16Array) {
    return Float32Array.from(array);
  }
  return Float32Array.from(array, of => {
    const sign = of & 0x8000 ? -1 : 1;
    const exponent = (of >>> 10) & 0x1f;
    const fraction = of & 0x3ff;
    if (exponent === 0x1f) {
      return fraction ? NaN : sign * Infinity;
    }
    return sign * (exponent ? (1024 + fraction) * 2 ** (exponent - 25) : fraction * 2 ** -24);
  });
}
