// A conversation with a language model.

import { LanguageModel } from 'rushlight';

import { element } from './dom.js';
import { chooser } from './model.js';

export function panel(place, models) {
  const [log, time, form] = ['.messages', '.time', 'form'].map(name => place.querySelector(name));
  const [temperature, tokens] = ['.temperature', '.tokens'].map(name => place.querySelector(name));
  const send = form.querySelector('button');
  const hint = element('p', { class: 'hint' }, 'Say something.');
  let llm = null;
  let session = null;
  let messages = [];
  let controller = null;

  /** Begins another conversation, in a session of its own. */
  async function clear() {
    stop();
    messages = [];
    log.replaceChildren(hint);
    time.textContent = '';
    const [before, next] = [session, llm?.session()];
    session = next;
    await Promise.all([before?.then(old => old.dispose()).catch(() => {}), next]);
  }

  function stop() {
    controller?.abort();
    controller = null;
    send.textContent = 'Send';
  }

  function add(role, text) {
    hint.remove();
    const line = element('p', { class: role }, text);
    log.append(line);
    log.scrollTop = log.scrollHeight;
    return line;
  }

  async function ask(text) {
    if (!llm) {
      time.textContent = 'There is no model yet.';
      return;
    }
    const own = new AbortController();
    controller = own;
    send.textContent = 'Stop';
    add('user', text);
    const line = add('assistant', '…');
    const options = { temperature: Number(temperature.value), maxNewTokens: Number(tokens.value), seed: Date.now() % 2 ** 31, signal: own.signal };
    const asked = [...messages, { role: 'user', content: text }];
    let answer = null;
    let content = '';
    let said;
    const started = performance.now();
    const rate = () => `${answer.tokens.length} tokens, ${((1e3 * answer.tokens.length) / (performance.now() - started)).toFixed(1)} a second`;
    try {
      const current = await session;
      // A model without a template goes on with the text.
      answer = llm.hasChatTemplate ? current.chat(asked, options) : current.generate(text, options);
      for await (const part of answer) {
        if (controller !== own) {
          return;
        }
        content += part;
        line.textContent = content;
        log.scrollTop = log.scrollHeight;
        time.textContent = rate();
      }
      const { promptTokens, prefillMs, decodedTokens, decodeMs } = answer.usage;
      const speed = (count, took) => (took > 0 ? `${((1e3 * count) / took).toFixed(1)} tokens a second` : '');
      said = `Read ${promptTokens} tokens at ${speed(promptTokens, prefillMs)}, wrote ${answer.tokens.length} at ${speed(decodedTokens, decodeMs)}`;
    } catch (error) {
      said = own.signal.aborted && answer ? `Stopped: ${rate()}` : error.message;
    }
    // Another conversation began.
    if (controller !== own) {
      return;
    }
    time.textContent = said;
    line.textContent = content || '(no answer)';
    messages = [...asked, { role: 'assistant', content }];
    stop();
  }

  form.addEventListener('submit', event => {
    event.preventDefault();
    const text = form.message.value.trim();
    if (controller) {
      controller.abort();
    } else if (text) {
      form.message.value = '';
      ask(text);
    }
  });
  form.message.addEventListener('keydown', event => {
    if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      form.requestSubmit();
    }
  });
  place.querySelector('.clear').addEventListener('click', () => clear().catch(error => (time.textContent = error.message)));

  const { take } = chooser(place.querySelector('.model'), models, {
    extra: ',.json,.model',
    load: (source, { tokenizer }, progress) => LanguageModel.load(source, { cache: true, tokenizer, progress }),
    async use(loaded) {
      llm?.dispose();
      llm = loaded;
      session = null;
      await clear();
      return `${llm.contextLength} positions${llm.hasChatTemplate ? '' : ', no chat template: it goes on with your text'}`;
    },
  });
  log.replaceChildren(hint);
  return { take, pause: () => controller?.abort() };
}
