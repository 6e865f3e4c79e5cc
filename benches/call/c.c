/* Calls from C. */
#define _POSIX_C_SOURCE 199309L
#include "callers.h"

#include <rushlight.h>

static const int64_t sizes[] = {2, 3};
static const float ones[] = {1, 1, 1, 1, 1, 1}, twos[] = {2, 2, 2, 2, 2, 2};
static rl_module *module;
static rl_value inputs[2];

static float call(void) {
  const rl_value *outputs;
  rl_status *status = rl_module_run(module, "forward", inputs, 2, NULL, &outputs, NULL);
  require_that(status == NULL, "the call failed");
  return *(const float *)outputs[0].as.tensor.data;
}

int main(int argc, char **argv) {
  require_that(argc == 2 && rl_module_load(argv[1], NULL, &module) == NULL, "cannot load the program");
  inputs[0] = rl_value_tensor(RL_DTYPE_FLOAT32, sizes, 2, ones, sizeof ones);
  inputs[1] = rl_value_tensor(RL_DTYPE_FLOAT32, sizes, 2, twos, sizeof twos);
  return answer_all(call);
}
