// Keeps what the page is made of, so that it works offline. Models are kept by the package itself.

const CACHE = 'rushlight-page';
const SHELL = [
  './', 'style.css', 'icon.svg', 'manifest.webmanifest', 'app.js', 'chat.js', 'classify.js', 'dom.js', 'embed.js', 'layers.js',
  'model.js', 'picture.js', 'segment.js', 'vision.js', 'models/models.json',
];

self.addEventListener('install', event => {
  event.waitUntil(caches.open(CACHE).then(cache => cache.addAll(SHELL)).then(() => self.skipWaiting()));
});

self.addEventListener('activate', event => event.waitUntil(self.clients.claim()));

self.addEventListener('fetch', event => {
  const url = new URL(event.request.url);
  if (event.request.method === 'GET' && url.origin === location.origin && !url.pathname.endsWith('.pte')) {
    event.respondWith(answer(event));
  }
});

/** From the cache, which is renewed for the next visit; from the network what is not there yet. */
async function answer(event) {
  const cache = await caches.open(CACHE);
  const known = await cache.match(event.request, { ignoreSearch: true });
  const fresh = fetch(event.request).then(async response => {
    if (response.ok) {
      await cache.put(event.request, response.clone());
    }
    return response;
  });
  if (known) {
    event.waitUntil(fresh.catch(() => {}));
    return known;
  }
  return fresh;
}
