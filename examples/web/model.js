// The choice of a model: those of the page, or the user's own files.

import { element, size, status } from './dom.js';

const isProgram = file => file.name.endsWith('.pte');

/**
 * Shows the choice in `place`. `load(source, about, progress)` loads a model, and resolves to an object that has `dispose`; `use(it)` puts
 * it in the place of the one before, which it disposes of, and resolves to a text about it. One that is chosen while another is loaded
 * comes in its place. `extra` says which files a program may need besides.
 */
export function chooser(place, models, { load, use, extra = '' }) {
  const list = element('select', { 'aria-label': 'Model', onchange: () => choose(models[list.selectedIndex]) });
  models.forEach(({ name }) => list.append(element('option', {}, name)));
  const about = element('span', { class: 'about' });
  const problem = element('p', { class: 'problem', role: 'alert', hidden: true });
  const input = element('input', { type: 'file', multiple: true, accept: `.pte${extra}`, onchange: () => take([...input.files]) });
  place.replaceChildren(
    ...(models.length > 0 ? [list] : []),
    element('label', { class: 'file' }, 'Open a .pte file', input),
    about,
    problem,
  );

  let latest = 0;
  const start = async (source, entry, bytes) => {
    latest += 1;
    const own = latest;
    problem.hidden = true;
    about.textContent = 'Loading …';
    try {
      const progress = ({ loaded, total }) => {
        if (own === latest) {
          about.textContent = `Loading ${total ? `${Math.floor((100 * loaded) / total)} %` : size(loaded)} …`;
          bytes = loaded;
        }
      };
      const loaded = await load(source, entry, progress);
      if (own !== latest) {
        loaded.dispose();
        return;
      }
      const text = await use(loaded);
      if (own === latest) {
        about.textContent = `${bytes ? `${size(bytes)} · ` : ''}${text}`;
      }
    } catch (error) {
      if (own === latest) {
        about.textContent = '';
        say(error.message);
      }
    }
  };
  const say = text => {
    problem.textContent = text;
    problem.hidden = false;
  };
  const url = name => new URL(`models/${name}`, document.baseURI).href;
  const choose = entry =>
    start(url(entry.file), { ...entry, tokenizer: entry.tokenizer && url(entry.tokenizer) });

  async function take(files) {
    const program = files.find(isProgram);
    if (!program) {
      say(`${files[0].name} is no .pte file.`);
      return;
    }
    const tokenizer = files.find(file => file.name.endsWith('.json') || file.name.endsWith('.model'));
    if (list.isConnected && !models.some(({ name }) => name === program.name)) {
      models.push({ name: program.name });
      list.append(element('option', { disabled: true }, program.name));
      list.selectedIndex = models.length - 1;
    }
    await start(program, { name: program.name, tokenizer }, program.size);
  }

  if (models.length > 0) {
    choose(models[0]);
  } else {
    about.textContent = `This page has no model for this. Open one${extra && `, with its tokenizer.json if it carries none`}, or make one with models.py.`;
  }
  status('');
  return { take };
}
