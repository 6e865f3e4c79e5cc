// Calls from C++ by rushlight.hpp.
#include "callers.h"

#include <rushlight.hpp>

static rushlight::Module* module;
static std::vector<float> ones(6, 1.0f), twos(6, 2.0f);

static float call() {
  const auto outputs = module->forward(rushlight::Tensor(ones, {2, 3}), rushlight::Tensor(twos, {2, 3}));
  return outputs[0].tensor<float>()[0];
}

int main(int argc, char** argv) {
  require_that(argc == 2, "no program");
  rushlight::Module loaded(argv[1]);
  module = &loaded;
  return answer_all(call);
}
