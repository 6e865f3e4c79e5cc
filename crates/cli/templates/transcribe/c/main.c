/* Transcribes recordings: `build/{{name}} samples/dialed.wav`. */
#include <rushlight.h>

#include "check.h"
#include "labels.h"
#include "wav.h"

/* Samples a second that the model expects. */
enum { RATE = {{rate}} };

/* Decodes CTC greedily: repeated tokens count once, and token 0, the blank, is removed. */
static void print_text(const float *logits, int steps, int tokens) {
  int last = 0;
  for (int step = 0; step < steps; step++) {
    const float *row = logits + (size_t)step * tokens;
    char name[100];
    int best = 0;
    for (int token = 1; token < tokens; token++)
      if (row[token] > row[best]) best = token;
    if (best != 0 && best != last) {
      label("labels.txt", best, name, sizeof name);
      printf("%s", strcmp(name, "|") == 0 ? " " : name);
    }
    last = best;
  }
  printf("\n");
}

int main(int argc, char **argv) {
  rl_module *module;
  if (argc < 2) {
    fprintf(stderr, "usage: %s RECORDING.wav...\n", argv[0]);
    return 2;
  }
  check(rl_module_load("model.pte", NULL, &module));
  for (int at = 1; at < argc; at++) {
    const rl_value *outputs;
    size_t count;
    float *samples = wav_read(argv[at], RATE, &count);
    if (samples == NULL) return 1;
    const int64_t sizes[] = {1, (int64_t)count};
    rl_value input = rl_value_tensor(RL_DTYPE_FLOAT32, sizes, 2, samples, count * sizeof(float));
    check(rl_module_run(module, "forward", &input, 1, NULL, &outputs, NULL));
    const rl_tensor *logits = &outputs[0].as.tensor;
    printf("%s: ", argv[at]);
    print_text((const float *)logits->data, (int)logits->sizes[1], (int)logits->sizes[2]);
    free(samples);
  }
  rl_module_free(module);
  return 0;
}
