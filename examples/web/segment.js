// Which pixel belongs to what.

import { element } from './dom.js';
import { vision } from './vision.js';

/** Parts of a picture below which a class is not named. */
const MIN_PART = 0.003;

export function panel(place, models) {
  const results = place.querySelector('.results');
  const hint = results.firstElementChild;
  return vision(place, models, (output, about, { over }) => {
    if (!output) {
      over.width = 1;
      results.replaceChildren(hint);
      return;
    }
    if (output.shape.length !== 4) {
      throw new Error(`This program does not segment: it returns [${output.shape}], not [1, classes, height, width].`);
    }
    const [, classes, rows, columns] = output.shape;
    const scores = output.toFloat32();
    const count = rows * columns;
    const background = about.background ?? 0;
    const pixels = new ImageData(columns, rows);
    const found = new Map();
    for (let at = 0; at < count; at += 1) {
      let best = 0;
      for (let index = 1; index < classes; index += 1) {
        best = scores[index * count + at] > scores[best * count + at] ? index : best;
      }
      if (best !== background) {
        pixels.data.set([...color(best, classes), 255], 4 * at);
        found.set(best, (found.get(best) ?? 0) + 1);
      }
    }
    [over.width, over.height] = [columns, rows];
    over.getContext('2d').putImageData(pixels, 0, 0);
    const named = [...found].filter(([, pixelsOf]) => pixelsOf > MIN_PART * count).sort((a, b) => b[1] - a[1]);
    const label = index => about.labels?.[index] ?? `class ${index}`;
    const items = named.map(([index, pixelsOf]) =>
      element(
        'li',
        {},
        element('i', { '--color': `rgb(${color(index, classes)})` }),
        `${label(index)} · ${((100 * pixelsOf) / count).toFixed(1)} %`,
      ),
    );
    results.replaceChildren(...(items.length > 0 ? items : [element('li', { class: 'hint' }, 'Nothing but background.')]));
  });
}

/** Colours whose hues are as far apart as can be. */
function color(index, classes) {
  const hue = (index * 0.618034) % 1;
  const light = classes > 12 && index % 2 ? 0.45 : 0.6;
  const channel = offset => {
    const k = (offset + 12 * hue) % 12;
    return Math.round(255 * (light - Math.min(light, 1 - light) * 0.85 * Math.max(-1, Math.min(k - 3, 9 - k, 1))));
  };
  return [channel(0), channel(8), channel(4)];
}
