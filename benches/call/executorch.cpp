// Calls from C++ by ExecuTorch's Module: compiled with ExecuTorch's headers and with Rushlight's.
#include "callers.h"

#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor.h>

#include <vector>

using ::executorch::extension::Module;
using ::executorch::extension::TensorPtr;

static Module* adder;
static std::vector<float> left(6, 1.0f), right(6, 2.0f);
static TensorPtr x, y;

static float call() {
  const auto result = adder->forward({x, y});
  require_that(result.ok(), "the call failed");
  return result->at(0).toTensor().const_data_ptr<float>()[0];
}

int main(int argc, char** argv) {
  require_that(argc == 2, "no program");
  Module loaded(argv[1]);
  adder = &loaded;
  x = ::executorch::extension::from_blob(left.data(), {2, 3});
  y = ::executorch::extension::from_blob(right.data(), {2, 3});
  return answer_all(call);
}
