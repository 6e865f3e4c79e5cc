// `runtime_init`, which ExecuTorch requires before other calls. Here it does nothing.

#pragma once

namespace executorch {
namespace runtime {

inline void runtime_init() {}

}  // namespace runtime
}  // namespace executorch

namespace torch {
namespace executor {
using ::executorch::runtime::runtime_init;
}  // namespace executor
}  // namespace torch
