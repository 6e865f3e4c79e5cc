// A server for pages that are isolated from other origins, so that they may have threads.

import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { extname, join, normalize } from 'node:path';

const TYPES = { '.html': 'text/html', '.js': 'text/javascript', '.mjs': 'text/javascript', '.wasm': 'application/wasm' };

/** Serves the files of folders, each below its name. */
export async function serve(folders) {
  const server = createServer(async (request, response) => {
    const [, folder, ...rest] = normalize(new URL(request.url, 'http://page').pathname).split('/');
    response.setHeader('cross-origin-opener-policy', 'same-origin');
    response.setHeader('cross-origin-embedder-policy', 'require-corp');
    try {
      const bytes = await readFile(join(folders[folder], ...rest));
      response.setHeader('content-type', TYPES[extname(request.url)] ?? 'application/octet-stream');
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
  return { url: `http://127.0.0.1:${server.address().port}`, close };
}
