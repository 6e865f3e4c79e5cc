// The kinds of tensor sizes: static, bounded or unbounded.

#pragma once

#include <cstdint>

namespace executorch {
namespace runtime {

enum class TensorShapeDynamism : uint8_t {
  STATIC = 0,
  // Sizes may change up to those that the tensor was made with.
  DYNAMIC_BOUND = 1,
  DYNAMIC_UNBOUND = 2,
};

}  // namespace runtime
}  // namespace executorch

namespace torch {
namespace executor {
using ::executorch::runtime::TensorShapeDynamism;
}  // namespace executor
}  // namespace torch
