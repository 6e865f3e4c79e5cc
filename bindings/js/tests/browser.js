// Chromium, and servers of pages.

import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { extname, join, normalize } from 'node:path';

export const CHROMIUM = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find(existsSync);

const TYPES = {
  '.css': 'text/css',
  '.html': 'text/html',
  '.js': 'text/javascript',
  '.mjs': 'text/javascript',
  '.json': 'application/json',
  '.svg': 'image/svg+xml',
  '.wasm': 'application/wasm',
  '.webmanifest': 'application/manifest+json',
};

export async function launch(args = []) {
  const { chromium } = await import('playwright-core');
  return chromium.launch({ executablePath: CHROMIUM, args: ['--no-sandbox', ...args] });
}

/**
 * Serves a page at `/`, isolated from other origins or not, and folders at the paths that are their names; the folder '' is that
 * of all other paths.
 */
export async function servePage(page, folders, { isIsolated = false } = {}) {
  const counts = new Map();
  const server = createServer(async (request, response) => {
    const path = normalize(new URL(request.url, 'http://page').pathname);
    counts.set(path, (counts.get(path) ?? 0) + 1);
    const [, folder, ...rest] = path.split('/');
    const isNamed = Object.hasOwn(folders, folder);
    const within = isNamed ? join(folders[folder], ...rest) : folders[''] && join(folders[''], path);
    const name = path === '/' ? page : within;
    try {
      const bytes = await readFile(name);
      response.setHeader('content-type', TYPES[extname(name)] ?? 'application/octet-stream');
      response.setHeader('content-length', bytes.length);
      if (isIsolated) {
        response.setHeader('cross-origin-opener-policy', 'same-origin');
        response.setHeader('cross-origin-embedder-policy', 'require-corp');
      }
      response.end(bytes);
    } catch {
      response.statusCode = 404;
      response.end();
    }
  });
  await new Promise(resolve => server.listen(0, '127.0.0.1', resolve));
  const close = () => {
    server.closeAllConnections();
    server.close();
  };
  return { url: `http://127.0.0.1:${server.address().port}/`, counts, close };
}
