// ExecuTorch asks for this call before others; here it does nothing.

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
