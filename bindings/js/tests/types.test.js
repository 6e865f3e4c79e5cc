// `index.d.ts`, by TypeScript.

import { execFileSync } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';

import { packageFolder, root } from './support.js';

async function check(lib) {
  const tests = join(root, 'bindings/js/tests');
  const config = {
    compilerOptions: {
      noEmit: true,
      strict: true,
      target: 'es2022',
      module: 'nodenext',
      moduleResolution: 'nodenext',
      lib,
      types: [],
      paths: { rushlight: [join(packageFolder, 'index.d.ts')] },
    },
    files: [join(tests, 'types.ts')],
  };
  const path = join(packageFolder, '..', 'tsconfig.json');
  await writeFile(path, JSON.stringify(config));
  try {
    execFileSync(process.execPath, [join(tests, 'node_modules/typescript/bin/tsc'), '-p', path], { encoding: 'utf8' });
  } catch (error) {
    throw new Error(error.stdout || error.message, { cause: error });
  }
}

test('types are those that TypeScript knows', () => check(['esnext', 'dom']));
// A program may only ask for what Node.js 20 and browsers have in common.
test('types need no later additions to the language', () => check(['es2022', 'dom']));
