// Inputs and outputs by name and in containers, as in the exported function.

import { dtypeOf } from './dtype.js';
import { failure } from './errors.js';
import { Tensor } from './tensor.js';

/** The inputs of a call: encoded values, with names, or in order without names. */
export function flatten(meta, inputs) {
  if (isLeaf(inputs)) {
    inputs = [inputs];
  }
  const { parameters } = meta;
  if (Array.isArray(inputs)) {
    if (!parameters || inputs.every(isLeaf)) {
      return { values: inputs.map((value, at) => encode(value, meta, at)), names: null };
    }
    if (inputs.length > parameters.length) {
      const headline = `\`${meta.name}\` takes fewer inputs`;
      throw failure('InvalidArgument', headline, { expected: parameters.join(', '), got: `${inputs.length} inputs` });
    }
    inputs = Object.fromEntries(inputs.map((value, at) => [parameters[at], value]));
  }
  const leaves = [];
  collect(inputs, '', leaves);
  const positions = new Map(meta.inputs.map(({ name }, at) => [name, at]));
  return {
    values: leaves.map(({ name, value }) => encode(value, meta, positions.get(name) ?? -1)),
    names: leaves.map(({ name }) => name),
  };
}

function isLeaf(value) {
  return value === null || value instanceof Tensor || ArrayBuffer.isView(value) || typeof value !== 'object';
}

function collect(value, path, leaves) {
  const entries = value instanceof Map ? [...value] : Object.entries(value);
  for (const [key, child] of entries) {
    const name = path ? `${path}.${key}` : String(key);
    if (isLeaf(child)) {
      // An input that is `undefined` is left out.
      if (child !== undefined) {
        leaves.push({ name, value: child });
      }
    } else {
      collect(child, name, leaves);
    }
  }
}

/** The inputs of one call of a calibration, in order. */
export function encodeSample(inputs) {
  const values = isLeaf(inputs) ? [inputs] : inputs;
  return values.map((value, at) => encode(value, { name: 'calibration', inputs: [] }, at));
}

/** The shape of an array of `length` elements for an input: that of the input, in which one dynamic size may follow from the length. */
function shapeOf(info, length) {
  if (info?.kind !== 'tensor') {
    return [length];
  }
  if (!info.isDynamic) {
    return info.shape;
  }
  const isDynamic = info.shape.map((_, at) => !Number.isInteger(Number(info.ranges?.[at] ?? NaN)));
  const rest = info.shape.reduce((product, size, at) => (isDynamic[at] ? product : product * size), 1);
  const isKnown = isDynamic.filter(Boolean).length === 1 && rest > 0 && length % rest === 0;
  return isKnown ? info.shape.map((size, at) => (isDynamic[at] ? length / rest : size)) : [length];
}

/** A value with its kind. */
function encode(value, meta, at) {
  const info = meta.inputs[at];
  const name = info?.name ?? `input ${at}`;
  if (value instanceof Tensor) {
    return { kind: 'tensor', value };
  }
  if (ArrayBuffer.isView(value)) {
    const shape = shapeOf(info, value.length);
    const dtype = info?.kind === 'tensor' && fits(value, info.dtype) ? info.dtype : dtypeOf(value);
    if (info?.kind === 'tensor' && info.dtype === 'int64' && isNarrow(value)) {
      return { kind: 'tensor', value: new Tensor('int64', BigInt64Array.from(value, BigInt), shape) };
    }
    return { kind: 'tensor', value: new Tensor(dtype, value, shape) };
  }
  if (value === null || value === undefined) {
    return { kind: 'none' };
  }
  if (typeof value === 'boolean' || typeof value === 'string') {
    return { kind: typeof value === 'string' ? 'string' : 'bool', value };
  }
  if (typeof value === 'bigint' || (typeof value === 'number' && info?.kind === 'int' && Number.isInteger(value))) {
    if (BigInt.asIntN(64, BigInt(value)) !== BigInt(value)) {
      throw failure('InvalidArgument', `${name} of \`${meta.name}\` is no int of 64 bits`, { got: String(value) });
    }
    return { kind: 'int', value: BigInt(value) };
  }
  if (typeof value === 'number') {
    return { kind: 'double', value };
  }
  const expected = 'a Tensor, a typed array, a number, a bigint, a boolean, a string or null';
  throw failure('InvalidArgument', `${name} of \`${meta.name}\` is of no type that inputs have`, { expected, got: typeof value });
}

/** True if an array stores the bits of this type, which has no typed array. */
function fits(array, dtype) {
  const holders = { bool: Uint8Array, bfloat16: Uint16Array, float16: Uint16Array };
  return Object.hasOwn(holders, dtype) && array instanceof holders[dtype] && dtypeOf(array) !== 'float16';
}

/** True if int64 holds every element of an array, as it does of the tokens that `encode` returns. */
function isNarrow(array) {
  return [Int8Array, Int16Array, Int32Array, Uint8Array, Uint16Array, Uint32Array].some(type => array instanceof type);
}

/** The outputs of a call in the containers of the exported function, or in an array without a signature. */
export function nest(meta, outputs) {
  if (meta.outputStructure === undefined) {
    return outputs;
  }
  const rest = outputs.values();
  const build = structure => {
    if (structure === null) {
      return rest.next().value;
    }
    if (Array.isArray(structure)) {
      return structure.map(build);
    }
    const children = structure.children.map(build);
    return Object.fromEntries(structure.keys.map((key, at) => [key, children[at]]));
  };
  return build(meta.outputStructure);
}
