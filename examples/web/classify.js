// What is in the picture.

import { bar, element } from './dom.js';
import { softmax, vision } from './vision.js';

const SHOWN = 5;

export function panel(place, models) {
  const results = place.querySelector('.results');
  const hint = results.firstElementChild;
  return vision(place, models, (output, about) => {
    if (!output) {
      results.replaceChildren(hint);
      return;
    }
    if (output.shape.length !== 2) {
      throw new Error(`This program does not classify: it returns [${output.shape}], not [1, classes].`);
    }
    const chances = softmax(output.toFloat32());
    const best = [...chances.keys()].sort((a, b) => chances[b] - chances[a]).slice(0, SHOWN);
    const label = index => about.labels?.[index] ?? `class ${index}`;
    results.replaceChildren(...best.map(index => bar(label(index), chances[index], `${(100 * chances[index]).toFixed(1)} %`)));
    results.firstElementChild.prepend(element('span', { class: 'unseen' }, 'Most likely: '));
  });
}
