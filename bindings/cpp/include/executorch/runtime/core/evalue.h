// A value: an input or an output of a method.

#pragma once

#include <executorch/runtime/core/exec_aten/exec_aten.h>
#include <executorch/runtime/core/result.h>
#include <executorch/runtime/core/tag.h>

#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

namespace executorch {
namespace runtime {

// A value owns its text and borrows its tensor. There are no lists: only operators have list arguments, methods neither take nor return
// one.
struct EValue {
  Tag tag = Tag::None;

  EValue() = default;
  EValue(int64_t value) : tag(Tag::Int), value_(value) {}
  EValue(int value) : EValue(int64_t{value}) {}
  EValue(double value) : tag(Tag::Double), value_(value) {}
  EValue(bool value) : tag(Tag::Bool), value_(value) {}
  EValue(aten::Tensor tensor) : tag(Tag::Tensor), value_(tensor) {}
  EValue(aten::Scalar value) {
    if (value.isIntegral(/*include_bool=*/false)) {
      *this = EValue(value.to<int64_t>());
    } else if (value.isBoolean()) {
      *this = EValue(value.to<bool>());
    } else {
      *this = EValue(value.to<double>());
    }
  }
  explicit EValue(std::string_view text) : tag(Tag::String), value_(std::make_shared<const std::string>(text)) {}
  // The value that a smart pointer such as `TensorPtr` points at, which must outlive this one.
  template <typename T, typename = std::enable_if_t<std::is_convertible_v<decltype(*std::declval<T>()), EValue>>>
  EValue(T&& pointer) {
    ET_CHECK_MSG(pointer != nullptr, "the pointer to a value is NULL");
    *this = *pointer;
  }
  template <typename T>
  explicit EValue(T* pointer) = delete;

  bool isNone() const { return tag == Tag::None; }
  bool isInt() const { return tag == Tag::Int; }
  bool isDouble() const { return tag == Tag::Double; }
  bool isBool() const { return tag == Tag::Bool; }
  bool isScalar() const { return isInt() || isDouble() || isBool(); }
  bool isTensor() const { return tag == Tag::Tensor; }
  bool isString() const { return tag == Tag::String; }

  // The following functions end the process for a value of another kind.
  int64_t toInt() const { return get<int64_t>("an int"); }
  double toDouble() const { return get<double>("a double"); }
  bool toBool() const { return get<bool>("a bool"); }
  aten::Tensor& toTensor() & {
    get<aten::Tensor>("a tensor");
    return *std::get_if<aten::Tensor>(&value_);
  }
  const aten::Tensor& toTensor() const& { return get<aten::Tensor>("a tensor"); }
  aten::Tensor toTensor() && { return get<aten::Tensor>("a tensor"); }
  std::string_view toString() const { return *get<Text>("a string"); }
  aten::Scalar toScalar() const { return tryToScalar().get(); }
  aten::ScalarType toScalarType() const { return static_cast<aten::ScalarType>(toInt()); }

  // The following functions return `InvalidType` for a value of another kind.
  Result<int64_t> tryToInt() const { return try_get<int64_t>(); }
  Result<double> tryToDouble() const { return try_get<double>(); }
  Result<bool> tryToBool() const { return try_get<bool>(); }
  Result<aten::Tensor> tryToTensor() const { return try_get<aten::Tensor>(); }
  Result<std::string_view> tryToString() const {
    const auto* text = std::get_if<Text>(&value_);
    return text == nullptr ? Result<std::string_view>(Error::InvalidType) : std::string_view(**text);
  }
  Result<aten::Scalar> tryToScalar() const {
    if (isInt()) {
      return aten::Scalar(toInt());
    }
    if (isDouble()) {
      return aten::Scalar(toDouble());
    }
    return isBool() ? Result<aten::Scalar>(aten::Scalar(toBool())) : Error::InvalidType;
  }

  template <typename T>
  std::conditional_t<std::is_same_v<T, aten::Tensor>, const aten::Tensor&, T> to() const {
    if constexpr (std::is_same_v<T, aten::Tensor>) {
      return toTensor();
    } else if constexpr (std::is_same_v<T, bool>) {
      return toBool();
    } else if constexpr (std::is_same_v<T, std::string_view>) {
      return toString();
    } else if constexpr (std::is_same_v<T, aten::Scalar>) {
      return toScalar();
    } else if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(toInt());
    } else {
      static_assert(std::is_same_v<T, double>, "rushlight: a value is a tensor, an int, a double, a bool or a string");
      return toDouble();
    }
  }

 private:
  using Text = std::shared_ptr<const std::string>;

  template <typename T>
  const T& get(const char* what) const {
    const T* value = std::get_if<T>(&value_);
    ET_CHECK_MSG(value != nullptr, "the value is not %s: its tag is %u", what, static_cast<unsigned>(tag));
    return *value;
  }

  template <typename T>
  Result<T> try_get() const {
    const T* value = std::get_if<T>(&value_);
    return value == nullptr ? Result<T>(Error::InvalidType) : Result<T>(*value);
  }

  std::variant<std::monostate, int64_t, double, bool, aten::Tensor, Text> value_;
};

}  // namespace runtime
}  // namespace executorch

namespace torch {
namespace executor {
using ::executorch::runtime::EValue;
}  // namespace executor
}  // namespace torch
