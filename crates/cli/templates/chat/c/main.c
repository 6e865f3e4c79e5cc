/* Talks to a language model: `build/{{name}}`. An empty line ends the program. */
#include <rushlight.h>
#include <string.h>

#include "check.h"

enum { MAX_MESSAGES = 200 };

/* A text that grows. */
typedef struct text {
  char *bytes;
  size_t size;
} text;

static void append(text *text, const char *bytes, size_t size) {
  char *larger = (char *)realloc(text->bytes, text->size + size + 1);
  if (larger == NULL) exit(1);
  memcpy(larger + text->size, bytes, size);
  text->bytes = larger;
  text->size += size;
  larger[text->size] = 0;
}

static bool show(rl_string piece, void *answer) {
  append((text *)answer, piece.data, piece.size);
  fwrite(piece.data, 1, piece.size, stdout);
  return fflush(stdout) == 0;
}

int main(void) {
  rl_llm *llm;
  rl_llm_message messages[MAX_MESSAGES];
  size_t count = 0;
  char line[4096];
  check(rl_llm_load("model.pte", NULL, NULL, &llm));
  while (count + 2 <= MAX_MESSAGES && printf("> ") > 0 && fflush(stdout) == 0 && fgets(line, sizeof line, stdin) != NULL) {
    rl_llm_generate_options options = RL_LLM_GENERATE_OPTIONS_INIT;
    rl_llm_session *session;
    rl_string prompt;
    const uint32_t *tokens;
    size_t num_tokens;
    text question = {NULL, 0}, answer = {NULL, 0};
    line[strcspn(line, "\r\n")] = 0;
    if (line[0] == 0) break;
    append(&question, line, strlen(line));
    append(&answer, "", 0);
    messages[count++] = (rl_llm_message){"user", question.bytes};
    check(rl_llm_chat_prompt(llm, messages, count, &prompt));
    check(rl_llm_encode(llm, prompt, false, &tokens, &num_tokens));
    check(rl_llm_session_new(llm, &session));
    options.max_new_tokens = 500;
    options.on_text = show;
    options.text_data = &answer;
    check(rl_llm_generate(llm, session, tokens, num_tokens, &options, NULL));
    rl_llm_session_free(session);
    printf("\n");
    messages[count++] = (rl_llm_message){"assistant", answer.bytes};
  }
  while (count > 0) free((char *)messages[--count].content);
  rl_llm_free(llm);
  return 0;
}
