// Language models in Node.js, with the texts that transformers generates.

import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { pathToFileURL } from 'node:url';

import { languageModel, near, packageFolder, refusal, root, rushlight } from './support.js';

const { LanguageModel, Tokenizer } = rushlight;
const FOLDER = join(root, 'tests/decoders/llama');
const json = async name => JSON.parse(await readFile(join(FOLDER, name), 'utf8'));
const { prompt, greedy } = await json('text.json');
// Its tests generate tokens after the one that ends an answer.
const options = { temperature: 0, maxNewTokens: greedy.length, ignoreEos: true };
const file = languageModel();

for (const worker of [false, true]) {
  test(`answers as transformers does, worker: ${worker}`, async () => {
    const llm = await LanguageModel.load(file, { worker });
    const expected = await json('expected.json');
    assert.deepEqual([...(await llm.encode(prompt, { special: false }))], expected.prompt);
    assert.equal(await llm.decode(expected.prompt), prompt);
    const session = await llm.session();
    near(await session.prefill(expected.prompt), expected.logits);
    await session.reset();

    const answer = session.generate(prompt, options);
    let text = '';
    for await (const part of answer) {
      text += part;
    }
    assert.ok(greedy.startsWith(text) && text.length > 60, text);
    assert.deepEqual(answer.tokens, expected.greedy.slice(0, answer.tokens.length));
    assert.equal(answer.usage.promptTokens, expected.prompt.length);
    assert.equal(answer.usage.generatedTokens, answer.tokens.length);
    assert.equal(answer.usage.finishReason, 'length');
    llm.dispose();
  });
}

test('sessions go back, fork, and end at stop strings', async () => {
  const llm = await LanguageModel.load(file);
  const session = await llm.session();
  const { length } = await llm.encode(prompt);
  await session.prefill(await llm.encode(prompt));
  const fork = await session.fork();
  const whole = await session.generate([], { ...options, maxNewTokens: 12 }).text();
  assert.equal(whole, greedy.slice(0, 12));
  assert.equal(await fork.generate([], { ...options, stop: ':S' }).text(), greedy.slice(0, greedy.indexOf(':S')));
  await session.rewind(length);
  assert.equal(await session.position(), length);
  const sampled = async seed => (await llm.session()).generate(prompt, { temperature: 2, topK: 0, maxNewTokens: 20, seed }).text();
  assert.equal(await sampled(7), await sampled(7));
  assert.notEqual(await sampled(7), await sampled(8));
  llm.dispose();
});

test('options are those of all languages', async () => {
  const llm = await LanguageModel.load(file);
  const session = await llm.session();
  const answer = session.generate(prompt, { ...options, maxNewTokens: 6, logprobs: 2, stop: ['zzz', 'yyy'], logitBias: { 0: -100 } });
  assert.equal(await answer.text(), greedy.slice(0, 6));
  assert.deepEqual(answer.logprobs.map(({ token }) => token), answer.tokens);
  assert.ok(answer.logprobs.every(({ token, logprob, top }) => logprob < 0 && top.length === 2 && top[0].token === token));
  const misspelled = await refusal(session.generate('x', { dryMultiplyer: 1 }).text());
  assert.match(misspelled.hint, /dryMultiplier/);
  const outside = await refusal(session.generate('x', { minP: 2 }).text());
  assert.match(outside.message, /minP/);
  assert.equal(outside.expected, 'from 0 to 1');
  if (llm.variant === 'native') {
    await session.reset();
    assert.match(await session.generate(prompt, { regex: '[a-c]{4}' }).text(), /^[a-c]{4}$/);
    assert.match((await refusal(session.generate('x', { jsonSchema: { type: 'nonsense' } }).text())).message, /nonsense/);
    assert.equal((await refusal(LanguageModel.load(file, { lora: FOLDER }))).codeName, 'NotSupported');
  } else {
    assert.equal((await refusal(session.generate('x', { regex: 'a' }).text())).got, 'regex');
    assert.equal((await refusal(LanguageModel.load(file, { lora: FOLDER, worker: false }))).codeName, 'NotSupported');
  }
  llm.dispose();
});

test('conversations are not read again', async () => {
  const llm = await LanguageModel.load(file);
  assert.ok(llm.hasChatTemplate);
  const messages = [{ role: 'user', content: 'Hi' }];
  // The template of the model.
  assert.equal(await llm.chatPrompt(messages), 'user: Hi. assistant: ');
  const session = await llm.session();
  const first = session.chat(messages, { temperature: 0, maxNewTokens: 4 });
  const content = await first.text();
  const more = [...messages, { role: 'assistant', content }, { role: 'user', content: 'more' }];
  const second = session.chat(more, { temperature: 0, maxNewTokens: 4 });
  const text = await second.text();
  assert.ok(second.usage.promptTokens < (await llm.encode(await llm.chatPrompt(more), { special: false })).length);
  const alone = (await llm.session()).chat(more, { temperature: 0, maxNewTokens: 4 });
  assert.equal(await alone.text(), text);
  llm.dispose();
});

test('answers are aborted, and errors say why', async () => {
  const llm = await LanguageModel.load(file, { worker: true });
  const session = await llm.session();
  const controller = new AbortController();
  const answer = session.generate(prompt, { ...options, signal: controller.signal });
  const read = (async () => {
    for await (const _ of answer) {
      controller.abort();
    }
  })();
  assert.match((await refusal(read)).message, /aborted/);
  assert.equal((await refusal(session.generate('x', { temprature: 1 }).text())).got, 'temprature');
  assert.equal((await refusal(session.generate('x', { topP: 2 }).text())).codeName, 'InvalidArgument');
  await session.reset();
  const full = await refusal(session.generate('x'.repeat(200)).text());
  assert.equal(full.codeName, 'OutOfResources');
  assert.ok(full.expected && full.hint);
  const older = session.generate([1], options);
  session.generate([1], options);
  assert.match((await refusal(older.text())).message, /something else/);
  llm.dispose();
  assert.equal((await refusal(llm.session())).codeName, 'InvalidState');

  const digits = await refusal(LanguageModel.load(join(root, 'examples/cortex-m/digits.pte')));
  assert.equal(digits.codeName, 'NotFound');
  const tokenizer = join(FOLDER, 'tokenizer.json');
  const other = await refusal(LanguageModel.load(join(root, 'examples/cortex-m/digits.pte'), { tokenizer }));
  assert.match(other.message, /no language model/);
});

test('an answer that another one replaces leaves the session alone', async () => {
  const llm = await LanguageModel.load(file);
  const session = await llm.session();
  await session.prefill(await llm.encode(prompt));
  const replaced = refusal(session.chat([{ role: 'user', content: 'Hi' }]).text());
  assert.equal(await session.generate([], { ...options, maxNewTokens: 12 }).text(), greedy.slice(0, 12));
  assert.match((await replaced).message, /something else/);
  llm.dispose();
});

test('a trap while a prompt is read breaks the model, and says so', async () => {
  const { Llm } = await import(pathToFileURL(join(packageFolder, 'lib/llm.js')).href);
  const llm = await Llm.load(file, { engine: 'wasm' });
  const session = await llm.session();
  const { now } = performance;
  // The clock is what reading calls of JavaScript's.
  performance.now = () => {
    throw new WebAssembly.RuntimeError('unreachable');
  };
  try {
    await assert.rejects(llm.start(session, Uint32Array.of(1, 2), {}, []), { codeName: 'Internal', got: 'unreachable' });
  } finally {
    performance.now = now;
  }
  await assert.rejects(llm.start(session, Uint32Array.of(1, 2), {}, []), { codeName: 'InvalidState' });
  llm.dispose();
});

test('a tokenizer by itself', async () => {
  const tokenizer = await Tokenizer.load(join(FOLDER, 'tokenizer.json'));
  const tokens = tokenizer.encode(prompt);
  assert.deepEqual([...tokens], (await json('expected.json')).prompt);
  assert.equal(tokenizer.decode(tokens), prompt);
  assert.equal(tokenizer.vocabularySize, 64);
  tokenizer.dispose();
  assert.equal((await refusal(Tokenizer.load(new Uint8Array(9)))).codeName, 'InvalidProgram');
});
