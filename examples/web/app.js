// The page: its tabs, files that are dropped on it, and what makes it work offline.

import { status } from './dom.js';

const PANELS = { classify: './classify.js', segment: './segment.js', embed: './embed.js', chat: './chat.js' };
const tabs = [...document.querySelectorAll('[role="tab"]')];
const started = new Map();

/** Everything that is fetched from now on is kept. Without a service worker the page works all the same, but not offline. */
async function keep() {
  if (!navigator.serviceWorker) {
    return;
  }
  await navigator.serviceWorker.register('sw.js');
  if (!navigator.serviceWorker.controller) {
    await new Promise(resolve => navigator.serviceWorker.addEventListener('controllerchange', resolve, { once: true }));
  }
}

async function models() {
  const response = await fetch('models/models.json').catch(() => null);
  return response?.ok ? response.json() : [];
}

async function show(name) {
  for (const tab of tabs) {
    const isShown = tab.getAttribute('aria-controls') === name;
    tab.setAttribute('aria-selected', isShown);
    tab.tabIndex = isShown ? 0 : -1;
    document.getElementById(tab.getAttribute('aria-controls')).hidden = !isShown;
  }
  for (const [other, panel] of started) {
    if (other !== name) {
      (await panel).pause?.();
    }
  }
  if (!started.has(name)) {
    started.set(name, start(name));
  }
  return started.get(name);
}

async function start(name) {
  await ready;
  const { panel } = await import(PANELS[name]);
  return panel(document.getElementById(name), (await list).filter(({ task }) => task === name));
}

const ready = Promise.race([keep().catch(() => {}), new Promise(resolve => setTimeout(resolve, 4000))]);
const list = ready.then(models);

const shown = () => tabs.find(tab => tab.getAttribute('aria-selected') === 'true').getAttribute('aria-controls');
const open = name => {
  history.replaceState(null, '', `#${name}`);
  show(name).catch(error => status(error.message));
};

tabs.forEach((tab, at) => {
  tab.addEventListener('click', () => open(tab.getAttribute('aria-controls')));
  tab.addEventListener('keydown', event => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step) {
      const next = tabs[(at + step + tabs.length) % tabs.length];
      next.focus();
      next.click();
    }
  });
});

const isDragged = event => [...(event.dataTransfer?.types ?? [])].includes('Files');
addEventListener('dragover', event => {
  if (isDragged(event)) {
    event.preventDefault();
    document.body.classList.add('dropping');
  }
});
addEventListener('dragleave', event => event.relatedTarget ?? document.body.classList.remove('dropping'));
addEventListener('drop', async event => {
  event.preventDefault();
  document.body.classList.remove('dropping');
  const files = [...event.dataTransfer.files];
  if (files.length > 0) {
    const panel = await show(shown());
    await panel.take(files);
  }
});
addEventListener('online', () => status(''));
addEventListener('offline', () => status('Offline: everything that was used once goes on working.'));
if (!navigator.onLine) {
  status('Offline: everything that was used once goes on working.');
}

open(location.hash.slice(1) in PANELS ? location.hash.slice(1) : 'classify');
