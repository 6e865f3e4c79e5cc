/* Classifies handwritten digits: 8 x 8 pixels of float, one image behind the other. */
#include <rushlight.h>
#include <stdio.h>
#include <stdlib.h>

static void check(rl_status *status) {
  if (status == NULL) return;
  fprintf(stderr, "%s\n", rl_status_text(status));
  rl_status_free(status);
  exit(1);
}

int main(int argc, char **argv) {
  const int64_t sizes[] = {1, 1, 8, 8};
  float image[64];
  rl_module *module;
  FILE *images = argc == 3 ? fopen(argv[2], "rb") : NULL;
  if (images == NULL) {
    fprintf(stderr, "usage: classify digits.pte images.bin\n");
    return 2;
  }
  check(rl_module_load(argv[1], NULL, &module));
  while (fread(image, sizeof image, 1, images) == 1) {
    const rl_value *outputs;
    rl_value input = rl_value_tensor(RL_DTYPE_FLOAT32, sizes, 4, image, sizeof image);
    check(rl_module_run(module, "forward", &input, 1, NULL, &outputs, NULL));
    const float *logits = (const float *)outputs[0].as.tensor.data;
    int best = 0;
    for (int digit = 1; digit < 10; digit++)
      if (logits[digit] > logits[best]) best = digit;
    printf("%d\n", best);
  }
  rl_module_free(module);
  fclose(images);
  return 0;
}
