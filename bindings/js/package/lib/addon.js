// The native library for Node.js: an addon for each system, in a package of its own or beside this file.

import { isNode } from './environment.js';
import { failure } from './errors.js';

const ENGINES = ['auto', 'native', 'wasm'];

/** The package name of the addon for this process. Linux has two standard libraries. */
function packageName() {
  const name = `rushlight-${process.platform}-${process.arch}`;
  if (process.platform !== 'linux') {
    return name;
  }
  const { report } = process;
  const isExcluded = report.excludeNetwork;
  // It would look up the names of all peers.
  report.excludeNetwork = true;
  const isGnu = report.getReport().header.glibcVersionRuntime !== undefined;
  report.excludeNetwork = isExcluded;
  return `${name}-${isGnu ? 'gnu' : 'musl'}`;
}

let found;

/**
 * The addon, or null for WebAssembly. `auto` is the engine in the environment variable `RUSHLIGHT_ENGINE`, or else the addon if there is
 * one. An addon that cannot be used is an error for `native`, and a warning otherwise.
 */
export async function addonFor(engine = 'auto') {
  const wanted = engine === 'auto' && isNode ? (process.env.RUSHLIGHT_ENGINE || engine) : engine;
  if (!ENGINES.includes(wanted)) {
    throw failure('InvalidArgument', 'no engine has this name', { expected: ENGINES.join(', '), got: String(wanted) });
  }
  if (wanted === 'wasm' || (!isNode && wanted === 'auto')) {
    return null;
  }
  found ??= isNode ? find() : { error: failure('NotSupported', 'pages have no native library') };
  const outcome = await found;
  if (outcome.error && wanted === 'native') {
    throw outcome.error;
  }
  if (outcome.isBroken) {
    outcome.isBroken = false;
    const text = `${outcome.error.message}\n  WebAssembly runs instead`;
    process.emitWarning(text, { type: 'RushlightWarning', code: 'RUSHLIGHT_NATIVE' });
  }
  return outcome.addon ?? null;
}

/** The addon, or the error that prevents it, and true if the installation causes it. */
async function find() {
  const { createRequire } = await import('node:module');
  const require = createRequire(import.meta.url);
  const name = packageName();
  const path = [name, `../native/${name}.node`].flatMap(place => {
    try {
      return [require.resolve(place)];
    } catch {
      return [];
    }
  })[0];
  if (!path) {
    const expected = `the package ${name}`;
    const hint = 'install it beside `rushlight`';
    return { error: failure('NotFound', 'there is no native library for this system', { expected, hint }) };
  }
  const { version } = require('../package.json');
  try {
    const addon = require(path);
    const got = addon.version?.();
    if (got === version) {
      return { addon };
    }
    const error = failure('InvalidState', `the native library \`${path}\` is of another version`, {
      expected: version,
      got: String(got),
      hint: 'install the same version of both packages',
    });
    return { error, isBroken: true };
  } catch (cause) {
    const error = failure('AccessFailed', `cannot load the native library \`${path}\``, { got: cause.message, cause });
    return { error, isBroken: true };
  }
}
