/* Threads: each with a module of its own; and all with one, where a call runs or says that another one does. */
#include "check.h"
#include <pthread.h>

enum { THREADS = 4, CALLS = 200 };

static const char *model;
static rl_module *shared;

struct counts {
  int ran, refused;
};

static rl_status *add(rl_module *module, float x) {
  const int64_t sizes[] = {2, 3};
  const float a[6] = {x, x, x, x, x, x};
  const rl_value inputs[2] = {rl_value_tensor(RL_DTYPE_FLOAT32, sizes, 2, a, sizeof a),
                              rl_value_tensor(RL_DTYPE_FLOAT32, sizes, 2, a, sizeof a)};
  float sum[6];
  rl_value out = rl_value_tensor(RL_DTYPE_FLOAT32, NULL, 0, sum, sizeof sum);
  rl_run_options run = RL_RUN_OPTIONS_INIT;
  run.outputs = &out;
  run.num_outputs = 1;
  return rl_module_run(module, "forward", inputs, 2, &run, NULL, NULL);
}

static void *with_own(void *unused) {
  rl_module *module;
  (void)unused;
  OK(rl_module_load(model, NULL, &module));
  for (int i = 0; i < CALLS; i++) OK(add(module, (float)i));
  rl_module_free(module);
  return NULL;
}

static void *with_shared(void *argument) {
  struct counts *counts = (struct counts *)argument;
  for (int i = 0; i < CALLS; i++) {
    rl_status *status = add(shared, (float)i);
    if (status == NULL) {
      counts->ran++;
    } else {
      CHECK(rl_status_code(status) == RL_INVALID_STATE);
      counts->refused++;
      rl_status_free(status);
    }
  }
  return NULL;
}

int main(int argc, char **argv) {
  pthread_t threads[THREADS];
  struct counts counts[THREADS];
  int ran = 0;
  CHECK(argc == 3);
  model = path_of(argv[1], "tests/corpus/1.5.1/add.pte");
  for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, with_own, NULL) == 0);
  for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  OK(rl_module_load(model, NULL, &shared));
  memset(counts, 0, sizeof counts);
  for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, with_shared, &counts[i]) == 0);
  for (int i = 0; i < THREADS; i++) {
    CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(counts[i].ran + counts[i].refused == CALLS);
    ran += counts[i].ran;
  }
  CHECK(ran >= 1);
  OK(add(shared, 1));
  rl_module_free(shared);
  printf("%d of %d calls with one module ran\n", ran, THREADS * CALLS);
  return 0;
}
