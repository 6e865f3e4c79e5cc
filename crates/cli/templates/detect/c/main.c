/* Finds objects in images: `build/{{name}} samples/shapes.pgm`. */
#include <math.h>
#include <rushlight.h>

#include "check.h"
#include "image.h"
#include "labels.h"

static const float MIN_SCORE = 0.5f, MAX_OVERLAP = 0.5f;

/* Returns the intersection over union of two boxes. */
static float overlap(const float *a, const float *b) {
  const float width = fmaxf(fminf(a[2], b[2]) - fmaxf(a[0], b[0]), 0), height = fmaxf(fminf(a[3], b[3]) - fmaxf(a[1], b[1]), 0);
  const float areas = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]);
  return width * height / (areas - width * height);
}

static int best_class(const float *scores, int classes) {
  int best = 0;
  for (int class = 1; class < classes; class++)
    if (scores[class] > scores[best]) best = class;
  return best;
}

/* Prints the detections, the best first. Of boxes of one class that overlap, the best one stays. */
static void print_detections(const float *boxes, const float *scores, int count, int classes) {
  /* 0: not looked at, 1: found, 2: covered by a better box. */
  char *state = (char *)calloc((size_t)count + 1, 1);
  while (state != NULL) {
    char name[100];
    int next = -1;
    for (int at = 0; at < count; at++) {
      const float score = scores[at * classes + best_class(scores + at * classes, classes)];
      if (state[at] == 0 && score >= MIN_SCORE &&
          (next < 0 || score > scores[next * classes + best_class(scores + next * classes, classes)]))
        next = at;
    }
    if (next < 0) break;
    const int class = best_class(scores + next * classes, classes);
    const float *box = boxes + 4 * next;
    state[next] = 1;
    for (int at = 0; at < count && state[next] == 1; at++)
      if (at != next && state[at] == 1 && best_class(scores + at * classes, classes) == class && overlap(boxes + 4 * at, box) > MAX_OVERLAP)
        state[next] = 2;
    if (state[next] == 1)
      printf("  %s %.0f %% at %.0f %.0f %.0f %.0f\n", label("labels.txt", class, name, sizeof name), 100 * scores[next * classes + class],
             box[0], box[1], box[2], box[3]);
  }
  free(state);
}

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
    /* Boxes are left, top, right and bottom in pixels of the model's input. */
    const rl_tensor *boxes = &outputs[0].as.tensor, *scores = &outputs[1].as.tensor;
    const int count = (int)(boxes->nbytes / sizeof(float) / 4);
    printf("%s\n", argv[at]);
    print_detections((const float *)boxes->data, (const float *)scores->data, count, (int)scores->sizes[scores->rank - 1]);
    free(image);
  }
  rl_meta_free(meta);
  rl_module_free(module);
  return 0;
}
