// A number of any type: an argument such as a fill value.

#pragma once

#include <executorch/runtime/core/portable_type/reduced_float.h>
#include <executorch/runtime/core/tag.h>
#include <executorch/runtime/platform/assert.h>

#include <cstdint>
#include <type_traits>

namespace executorch {
namespace runtime {
namespace etensor {

class Scalar {
 public:
  Scalar() : Scalar(int64_t{0}) {}
  template <typename T, std::enable_if_t<std::is_integral_v<T> && !std::is_same_v<T, bool>, bool> = true>
  Scalar(T value) : tag_(Tag::Int), int_(static_cast<int64_t>(value)) {}
  template <typename T, std::enable_if_t<std::is_same_v<T, bool>, bool> = true>
  Scalar(T value) : tag_(Tag::Bool), int_(value) {}
  Scalar(double value) : tag_(Tag::Double), double_(value) {}
  Scalar(float value) : Scalar(static_cast<double>(value)) {}
  Scalar(Half value) : Scalar(static_cast<float>(value)) {}
  Scalar(BFloat16 value) : Scalar(static_cast<float>(value)) {}

  bool isIntegral(bool include_bool) const { return tag_ == Tag::Int || (include_bool && isBoolean()); }
  bool isFloatingPoint() const { return tag_ == Tag::Double; }
  bool isBoolean() const { return tag_ == Tag::Bool; }

  // Ends the process if it is of another kind.
  template <typename T>
  T to() const {
    if constexpr (std::is_same_v<T, bool>) {
      ET_CHECK_MSG(isBoolean(), "the scalar is no bool");
      return int_ != 0;
    } else if constexpr (std::is_integral_v<T>) {
      ET_CHECK_MSG(isIntegral(true), "the scalar is neither an int nor a bool");
      return static_cast<T>(int_);
    } else {
      ET_CHECK_MSG(isFloatingPoint(), "the scalar is no double");
      return static_cast<T>(double_);
    }
  }

 private:
  Tag tag_;
  int64_t int_ = 0;
  double double_ = 0.0;
};

}  // namespace etensor
}  // namespace runtime
}  // namespace executorch

namespace torch {
namespace executor {
using ::executorch::runtime::etensor::Scalar;
}  // namespace executor
}  // namespace torch
