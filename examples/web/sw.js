// Keeps what the page is made of, so that it works offline. Models are kept by the package itself.

/** `cargo xtask demo` writes the hash of all files here: what is kept is of one build. */
const VERSION = 'unbuilt';
const CACHES = 'rushlight-page';
const CACHE = `${CACHES}-${VERSION}`;
const SHELL = [
  './', 'style.css', 'icon.svg', 'manifest.webmanifest', 'app.js', 'chat.js', 'classify.js', 'dom.js', 'embed.js', 'layers.js',
  'model.js', 'picture.js', 'segment.js', 'vision.js', 'models/models.json',
];

// It takes over from that of an older build when no page of that one is open any more.
self.addEventListener('install', event => event.waitUntil(install()));
self.addEventListener('activate', event => event.waitUntil(activate()));

self.addEventListener('fetch', event => {
  const url = new URL(event.request.url);
  if (event.request.method === 'GET' && url.origin === location.origin && !url.pathname.endsWith('.pte')) {
    event.respondWith(answer(event, url));
  }
});

/** Keeps the page, and what was used of an older build. */
async function install() {
  const cache = await caches.open(CACHE);
  const older = await Promise.all((await others()).map(async name => (await caches.open(name)).keys()));
  const fresh = url => new Request(url, { cache: 'reload' });
  await cache.addAll(SHELL.map(fresh));
  await Promise.all(older.flat().map(({ url }) => cache.add(fresh(url)).catch(() => {})));
}

async function activate() {
  await Promise.all((await others()).map(name => caches.delete(name)));
  await self.clients.claim();
}

async function others() {
  return (await caches.keys()).filter(name => name.startsWith(CACHES) && name !== CACHE);
}

/** From the cache, where it is there; what is among the models, which are no part of the build, is renewed for the next visit. */
async function answer(event, url) {
  const cache = await caches.open(CACHE);
  const key = url.origin + url.pathname;
  const known = await cache.match(key);
  if (known && !url.pathname.includes('/models/')) {
    return known;
  }
  const fresh = fetch(event.request).then(async response => {
    if (response.ok) {
      // The browser's storage may be full.
      await cache.put(key, response.clone()).catch(() => {});
    }
    return response;
  });
  if (known) {
    event.waitUntil(fresh.catch(() => {}));
    return known;
  }
  return fresh;
}
