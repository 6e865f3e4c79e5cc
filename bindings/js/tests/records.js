// Recorded values, in Node.js and in pages.

const ARRAYS = {
  uint8: Uint8Array,
  int8: Int8Array,
  int16: Int16Array,
  int32: Int32Array,
  int64: BigInt64Array,
  uint16: Uint16Array,
  uint32: Uint32Array,
  uint64: BigUint64Array,
  bool: Uint8Array,
  float16: globalThis.Float16Array ?? Uint16Array,
  bfloat16: Uint16Array,
  float32: Float32Array,
  float64: Float64Array,
  complex64: Float32Array,
  complex128: Float64Array,
};

/** True for a type that typed arrays have. */
const isKnown = ({ kind, dtype }) => kind !== 'tensor' || Object.hasOwn(ARRAYS, dtype);

const bytes = base64 => Uint8Array.from(atob(base64), character => character.charCodeAt(0));

/** Values, and comparisons with them, for a package. */
export function records({ Module, Tensor }) {
  function value(record) {
    if (record.kind !== 'tensor') {
      return { int: BigInt, double: Number }[record.kind]?.(record.value) ?? record.value;
    }
    return new Tensor(record.dtype, new ARRAYS[record.dtype](bytes(record.base64).buffer), record.shape);
  }

  /** The expected tensor, which has the type and the shape of what came; null for another value, which is the same. */
  function expectedTensor(got, record, where) {
    const expected = value(record);
    if (!(expected instanceof Tensor)) {
      if (!Object.is(got, expected)) {
        throw new Error(`${where}: ${got}, not ${expected}`);
      }
      return null;
    }
    if (got.dtype !== expected.dtype || String(got.shape) !== String(expected.shape)) {
      throw new Error(`${where}: ${got.dtype} [${got.shape}], not ${expected.dtype} [${expected.shape}]`);
    }
    return expected;
  }

  /** Throws unless an output is near the recorded one. */
  function checkNear(got, record, tolerance, where) {
    const expected = expectedTensor(got, record, where);
    if (!expected) {
      return;
    }
    const [numbers, wanted] = [got.toFloat32(), expected.toFloat32()];
    wanted.forEach((want, at) => {
      const isNear = Math.abs(numbers[at] - want) <= tolerance * (1 + Math.abs(want));
      if (!isNear && !Object.is(numbers[at], want)) {
        throw new Error(`${where}, element ${at}: ${numbers[at]}, not ${want}`);
      }
    });
  }

  /** Throws unless an output is the recorded one. A NaN may have other bits. */
  function checkSame(got, record, where) {
    const expected = expectedTensor(got, record, where);
    if (!expected) {
      return;
    }
    const isBits = ['float16', 'bfloat16'].includes(record.dtype);
    const [numbers, wanted] = [got, expected].map(tensor => (isBits ? tensor.toFloat32() : tensor.data));
    wanted.forEach((want, at) => {
      if (!Object.is(numbers[at], want)) {
        throw new Error(`${where}, element ${at}: ${numbers[at]}, not ${want}`);
      }
    });
  }

  /** Runs one of `step` cases of operators, each a program of its own, and compares bits. Returns how many had known types. */
  async function checkOperators(cases, step) {
    const taken = cases.filter((_, at) => at % step === 0).filter(({ inputs, outputs }) => [...inputs, ...outputs].every(isKnown));
    for (const { name, program, inputs, outputs } of taken) {
      const module = await Module.load(bytes(program), { lower: 'off', worker: false });
      const got = await module.forward(inputs.map(value));
      if (got.length !== outputs.length) {
        throw new Error(`${name}: ${got.length} outputs, not ${outputs.length}`);
      }
      outputs.forEach((output, at) => checkSame(got[at], output, `${name}, output ${at}`));
      module.dispose();
    }
    return taken.length;
  }

  return { value, checkNear, checkOperators };
}
