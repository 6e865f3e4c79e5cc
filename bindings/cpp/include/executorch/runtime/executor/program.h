// Programs are loaded by `executorch::extension::Module`.

#pragma once

#include <executorch/runtime/executor/method_meta.h>

namespace executorch {
namespace runtime {

class Program final {
 public:
  // Rushlight always verifies a program completely.
  enum class Verification : uint8_t { Minimal, InternalConsistency };

  template <typename... Arguments>
  static Result<Program> load(Arguments&&...) {
    static_assert(rushlight::is_served<Arguments...>,
                  "rushlight: Program::load is not served: use executorch::extension::Module");
    return Error::NotSupported;
  }
};

}  // namespace runtime
}  // namespace executorch

namespace torch {
namespace executor {
using ::executorch::runtime::Program;
}  // namespace executor
}  // namespace torch
