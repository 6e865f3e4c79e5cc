// The time of each layer of a model.

import { bar, element, milliseconds } from './dom.js';

/** How long the calls of a measurement take together, about. */
const DURATION = 400;
const MAX_RUNS = 2000;

/** Shows a chart in `place`. `call()` returns the module and the inputs that are measured, or nothing. */
export function layers(place, call) {
  const total = element('p', { class: 'time' });
  const bars = element('ol', { class: 'bars' });
  const again = element('button', { type: 'button', onclick: () => measure() }, 'Measure again');
  const details = element('details', { ontoggle: () => details.open && measure() }, element('summary', {}, 'Time of each layer'), total, bars, again);
  place.replaceChildren(details);

  async function measure() {
    const given = call();
    if (!given) {
      total.textContent = 'There is no model yet.';
      return;
    }
    total.textContent = 'Measuring …';
    again.disabled = true;
    try {
      const { module, inputs } = given;
      const started = performance.now();
      await module.profile('forward', inputs, { runs: 1 });
      const once = Math.max(performance.now() - started, DURATION / MAX_RUNS);
      const runs = Math.max(3, Math.ceil(DURATION / once));
      const steps = await module.profile('forward', inputs, { runs });
      const sum = steps.reduce((time, step) => time + step.milliseconds, 0);
      const most = Math.max(...steps.map(step => step.milliseconds));
      const name = ({ name }) => name.replace(/^aten::/, '').replace(/\.out$/, '');
      bars.replaceChildren(
        ...steps.map((step, at) =>
          bar(`${at + 1}. ${name(step)}`, step.milliseconds / most, `${milliseconds(step.milliseconds)} · ${Math.round((100 * step.milliseconds) / sum)} %`),
        ),
      );
      total.textContent = `${milliseconds(sum)} in ${steps.length} steps: the mean of ${runs} calls on one thread.`;
    } catch (error) {
      total.textContent = error.message;
    }
    again.disabled = false;
  }

  return {
    /** Another model came. */
    clear() {
      bars.replaceChildren();
      total.textContent = '';
      if (details.open) {
        measure();
      }
    },
  };
}
