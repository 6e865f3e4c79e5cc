// ExecuTorch's tracers are not supported.

#pragma once

#include <executorch/runtime/platform/compiler.h>

namespace executorch {
namespace runtime {

// Use only null pointers to it, which are default arguments of `Module`.
class EventTracer {
 public:
  template <typename... Arguments>
  explicit EventTracer(Arguments&&...) {
    static_assert(rushlight::is_served<Arguments...>,
                  "rushlight: there are no event tracers yet: `rl_run_options.on_event` of rushlight.h receives events, and "
                  "`rushlight run --profile` times them");
  }
  virtual ~EventTracer() = default;
};

}  // namespace runtime
}  // namespace executorch

namespace torch {
namespace executor {
using ::executorch::runtime::EventTracer;
}  // namespace executor
}  // namespace torch
