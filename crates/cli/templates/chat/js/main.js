// Talks to a language model: `node main.js`. An empty line ends the program.

import { createInterface } from 'node:readline/promises';
import { LanguageModel } from 'rushlight';

const llm = await LanguageModel.load('model.pte');
const session = await llm.session();
const messages = [];
const terminal = createInterface({ input: process.stdin, output: process.stdout, prompt: '> ' });
terminal.prompt();
for await (const question of terminal) {
  if (!question) {
    break;
  }
  messages.push({ role: 'user', content: question });
  let answer = '';
  // The session has read the earlier messages, and reads only the new one.
  for await (const piece of session.chat(messages, { maxNewTokens: 500 })) {
    answer += piece;
    process.stdout.write(piece);
  }
  console.log();
  messages.push({ role: 'assistant', content: answer });
  terminal.prompt();
}
terminal.close();
llm.dispose();
