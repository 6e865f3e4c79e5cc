// What models of pictures have in common: how they are loaded, and a picture as their input.

import { Module, Tensor } from 'rushlight';

import { chooser } from './model.js';
import { layers } from './layers.js';
import { ink, picture } from './picture.js';

/** Sides that a program with dynamic sizes gets. */
const USUAL = 224;

const INSTRUCTIONS = {
  baseline: 'no vector instructions',
  simd: 'vector instructions',
  relaxed: 'relaxed vector instructions',
  threads: 'vector instructions and threads',
};

/**
 * A panel with a picture and a model of pictures. `show(output, about, picture)` shows what came of a call, or of no picture; it throws
 * if the output is of another kind.
 */
export function vision(panel, models, show) {
  const time = panel.querySelector('.time');
  let module = null;
  let about = null;
  let canvas = null;
  let isBusy = false;
  let isStale = false;
  const chart = layers(panel.querySelector('.layers'), () => module && { module, inputs: [input(canvas ?? shown.canvas, about)] });

  async function changed(now) {
    canvas = now;
    if (isBusy) {
      isStale = true;
      return;
    }
    isBusy = true;
    try {
      do {
        isStale = false;
        await run();
      } while (isStale);
    } finally {
      isBusy = false;
    }
  }

  async function run() {
    if (!canvas || !module) {
      show(null, about, shown);
      time.textContent = '';
      return;
    }
    const started = performance.now();
    try {
      const output = firstTensor(await module.forward([input(canvas, about)]));
      const took = performance.now() - started;
      show(output, about, shown);
      time.textContent = `${took.toFixed(took < 10 ? 1 : 0)} ms with the picture's conversion`;
    } catch (error) {
      time.textContent = error.message;
    }
  }

  const shown = picture(panel.querySelector('.picture'), changed);
  const { take } = chooser(panel.querySelector('.model'), models, {
    async load(source, entry, progress) {
      const loaded = await Module.load(source, { cache: true, progress });
      try {
        const image = entry.image ?? imageOf(loaded.meta());
        return { module: loaded, about: { ...entry, image }, dispose: () => loaded.dispose() };
      } catch (error) {
        loaded.dispose();
        throw error;
      }
    },
    async use(loaded) {
      module?.dispose();
      ({ module, about } = loaded);
      document.getElementById('variant').textContent = INSTRUCTIONS[module.variant] ?? module.variant;
      chart.clear();
      await changed(canvas);
      const { image } = loaded.about;
      return `${image.size.join(' × ')} pixels, ${image.channels === 1 ? 'grey' : 'colours'}`;
    },
  });
  return {
    pause: shown.pause,
    take: files => (files.some(file => file.name.endsWith('.pte')) ? take(files) : shown.open(files[0])),
  };
}

/** How a program takes pictures. */
function imageOf({ inputs }) {
  const [first] = inputs;
  const [batch, channels, rows, columns] = first?.shape ?? [];
  const isImage = first?.kind === 'tensor' && first.shape.length === 4 && batch >= 1 && (channels === 1 || channels === 3);
  if (!isImage || inputs.length !== 1 || first.dtype !== 'float32') {
    const got = inputs.map(({ kind, dtype, shape }) => `${dtype ?? kind} [${shape ?? ''}]`).join(', ');
    throw new Error(`This program takes no picture.\nexpected  float32 [1, 3, height, width], or with 1 channel\ngot       ${got}`);
  }
  const side = given => (first.isDynamic ? Math.min(given, USUAL) : given);
  return { size: [side(rows), side(columns)], channels, normalize: channels === 3 ? 'imagenet' : 'none' };
}

function input(canvas, { image, isInk, isFit }) {
  const { size, channels, normalize = 'none' } = image;
  if (isInk) {
    return new Tensor('float32', ink(canvas, size, isFit), [1, 1, ...size]);
  }
  return Tensor.fromImage(canvas, { size, channels, normalize });
}

/** The first tensor of what a program returns, by name or in order. */
function firstTensor(output) {
  if (output instanceof Tensor) {
    return output;
  }
  const named = output?.logits ?? output?.out;
  return named instanceof Tensor ? named : Object.values(output ?? {}).map(firstTensor).find(Boolean);
}

/** Probabilities. */
export function softmax(logits) {
  const max = Math.max(...logits);
  const powers = Array.from(logits, logit => Math.exp(logit - max));
  const sum = powers.reduce((a, b) => a + b, 0);
  return powers.map(power => power / sum);
}
