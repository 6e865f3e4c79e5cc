/* Classifies images: `build/{{name}} samples/7.pgm`. */
#include <math.h>
#include <rushlight.h>

#include "check.h"
#include "image.h"
#include "labels.h"

enum { TOP = 3 };

int main(int argc, char **argv) {
  rl_module *module;
  rl_meta *meta;
  rl_value_info info;
  if (argc < 2) {
    fprintf(stderr, "usage: %s IMAGE.pgm|IMAGE.ppm...\n", argv[0]);
    return 2;
  }
  check(rl_module_load("model.pte", NULL, &module));
  check(rl_module_meta(module, "forward", &meta));
  info.struct_size = sizeof info;
  check(rl_meta_input(meta, 0, &info));
  const int64_t *sizes = info.value.as.tensor.sizes;
  for (int at = 1; at < argc; at++) {
    const rl_value *outputs;
    float *image = image_read(argv[at], (int)sizes[1], (int)sizes[2], (int)sizes[3]);
    if (image == NULL) return 1;
    rl_value input = rl_value_tensor(RL_DTYPE_FLOAT32, sizes, 4, image, info.value.as.tensor.nbytes);
    check(rl_module_run(module, "forward", &input, 1, NULL, &outputs, NULL));
    const float *logits = (const float *)outputs[0].as.tensor.data;
    const int classes = (int)(outputs[0].as.tensor.nbytes / sizeof(float));
    float max = -INFINITY, sum = 0, below = INFINITY;
    for (int class = 0; class < classes; class++) max = fmaxf(max, logits[class]);
    for (int class = 0; class < classes; class++) sum += expf(logits[class] - max);
    printf("%s:", argv[at]);
    for (int rank = 0; rank < TOP && rank < classes; rank++) {
      char name[100];
      int best = -1;
      for (int class = 0; class < classes; class++)
        if (logits[class] < below && (best < 0 || logits[class] > logits[best])) best = class;
      if (best < 0) break;
      below = logits[best];
      printf("%s %s %.1f %%", rank == 0 ? "" : ",", label("labels.txt", best, name, sizeof name), 100 * expf(below - max) / sum);
    }
    printf("\n");
    free(image);
  }
  rl_meta_free(meta);
  rl_module_free(module);
  return 0;
}
