// Elements, and texts about numbers.

/** An element with attributes and children. */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith('on')) {
      made.addEventListener(key.slice(2), value);
    } else if (key.startsWith('--')) {
      made.style.setProperty(key, value);
    } else if (value !== false) {
      made.setAttribute(key, value === true ? '' : value);
    }
  }
  made.append(...children);
  return made;
}

/** A row of a bar chart: `part` of the width, 0 to 1. */
export const bar = (label, part, text) =>
  element('li', { '--part': Math.max(0, Math.min(1, part)) }, element('span', {}, label), element('span', {}, text));

export const milliseconds = time => (time < 0.1 ? `${(1e3 * time).toFixed(0)} µs` : `${time.toFixed(time < 10 ? 2 : 0)} ms`);

export const size = bytes => (bytes < 1e6 ? `${(bytes / 1e3).toFixed(0)} kB` : `${(bytes / 1e6).toFixed(1)} MB`);

export function status(text) {
  document.getElementById('status').textContent = text;
}
