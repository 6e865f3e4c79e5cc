// Kinds of values.

#pragma once

#include <cstdint>

namespace executorch {
namespace runtime {

// The numbers are those of ExecuTorch's `Tag`.
enum class Tag : uint32_t {
  None = 0,
  Tensor = 1,
  String = 2,
  Double = 3,
  Int = 4,
  Bool = 5,
  ListBool = 6,
  ListDouble = 7,
  ListInt = 8,
  ListTensor = 9,
  ListScalar = 10,
  ListOptionalTensor = 11,
};

}  // namespace runtime
}  // namespace executorch
