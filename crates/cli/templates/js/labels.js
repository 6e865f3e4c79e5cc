// Reads names, one a line.

import { readFile } from 'node:fs/promises';

/** The names, or an empty list if there is no such file. */
export async function labels(path) {
  const text = await readFile(path, 'utf8').catch(() => '');
  return text.split(/\r?\n/).slice(0, text.endsWith('\n') ? -1 : undefined);
}
