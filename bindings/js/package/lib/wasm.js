// The places of the WebAssembly modules, for programs whose bundler does not find them.

import { failure } from './errors.js';

/** Settings of all programs that are loaded later. */
export const wasm = {
  /** A folder's URL, or an object of URLs by the names of files, such as `run-simd.wasm`. */
  paths: undefined,
  /** The bytes of modules by the names of files. */
  binaries: undefined,
};

const isUrl = value => typeof value === 'string' || value instanceof URL;

/** The URL that those of a page are relative to. */
const pageUrl = () => globalThis.document?.baseURI ?? globalThis.location?.href;

/** Sets the places of the modules. An option that is `undefined` is the default again. */
export function configure({ wasmPaths, wasmBinary, ...others } = {}) {
  const [unknown] = Object.keys(others);
  if (unknown !== undefined) {
    throw failure('InvalidArgument', `there is no setting \`${unknown}\``, { expected: 'wasmPaths, wasmBinary' });
  }
  if (wasmPaths !== undefined && !isUrl(wasmPaths) && !isEach(wasmPaths, isUrl)) {
    const expected = 'the URL of a folder, or an object of URLs by the names of files';
    throw failure('InvalidArgument', '`wasmPaths` has no URLs', { expected, got: String(wasmPaths) });
  }
  const isBytes = value => value instanceof ArrayBuffer || ArrayBuffer.isView(value);
  if (wasmBinary !== undefined && !isEach(wasmBinary, isBytes)) {
    const expected = 'an object of ArrayBuffers or typed arrays by the names of files, such as `run-simd.wasm`';
    throw failure('InvalidArgument', '`wasmBinary` has no bytes', { expected, got: String(wasmBinary) });
  }
  wasm.paths = wasmPaths;
  wasm.binaries = wasmBinary;
}

function isEach(values, isValid) {
  return typeof values === 'object' && values !== null && !isValid(values) && Object.values(values).every(isValid);
}

/** The settings for a worker, with absolute URLs: those of a worker are not relative to the page. */
export function settings() {
  const base = pageUrl();
  const absolute = url => (base === undefined ? String(url) : new URL(url, base).href);
  const { paths, binaries } = wasm;
  const each = () => Object.fromEntries(Object.entries(paths).map(([name, url]) => [name, absolute(url)]));
  return { wasmPaths: paths === undefined ? undefined : isUrl(paths) ? absolute(paths) : each(), wasmBinary: binaries };
}

/** The bytes of a module, or its URL, which is `url` unless the program has set another. */
export function placeOf(name, url) {
  const bytes = wasm.binaries?.[name];
  if (bytes) {
    return { bytes };
  }
  const { paths } = wasm;
  const chosen = isUrl(paths) ? `${String(paths).replace(/\/?$/, '/')}${name}` : paths?.[name];
  return { url: chosen === undefined ? url : new URL(chosen, pageUrl() ?? import.meta.url) };
}
