// Functions that make tensors over a blob, and empty, full or random tensors.

#pragma once

#include <executorch/extension/tensor/tensor_ptr.h>

#include <cmath>
#include <limits>
#include <random>

namespace executorch {
namespace extension {

// A tensor over data of the caller's, described step by step: `for_blob(data, {2, 3}).type(ScalarType::Int).make_tensor_ptr()`.
class TensorPtrMaker final {
 public:
  TensorPtrMaker(TensorPtrMaker&&) = default;
  TensorPtrMaker& operator=(TensorPtrMaker&&) = default;

  TensorPtrMaker&& type(aten::ScalarType type) {
    type_ = type;
    return std::move(*this);
  }
  TensorPtrMaker&& dim_order(std::vector<aten::DimOrderType> dim_order) {
    dim_order_ = std::move(dim_order);
    return std::move(*this);
  }
  TensorPtrMaker&& strides(std::vector<aten::StridesType> strides) {
    strides_ = std::move(strides);
    return std::move(*this);
  }
  TensorPtrMaker&& dynamism(aten::TensorShapeDynamism dynamism) {
    dynamism_ = dynamism;
    return std::move(*this);
  }
  TensorPtrMaker&& deleter(std::function<void(void*)>&& deleter) {
    deleter_ = std::move(deleter);
    return std::move(*this);
  }
  TensorPtrMaker&& device(aten::Device device) {
    device_ = device;
    return std::move(*this);
  }
  TensorPtr make_tensor_ptr() && {
    return extension::make_tensor_ptr(std::move(sizes_), data_, std::move(dim_order_), std::move(strides_), type_, dynamism_,
                                      std::move(deleter_), device_);
  }
  operator TensorPtr() && { return std::move(*this).make_tensor_ptr(); }

 private:
  friend TensorPtrMaker for_blob(void* data, std::vector<aten::SizesType> sizes, aten::ScalarType type);

  TensorPtrMaker(void* data, std::vector<aten::SizesType> sizes, aten::ScalarType type)
      : data_(data), sizes_(std::move(sizes)), type_(type) {}

  void* data_;
  std::vector<aten::SizesType> sizes_;
  aten::ScalarType type_;
  std::vector<aten::DimOrderType> dim_order_;
  std::vector<aten::StridesType> strides_;
  aten::TensorShapeDynamism dynamism_ = aten::TensorShapeDynamism::DYNAMIC_BOUND;
  std::function<void(void*)> deleter_;
  aten::Device device_ = aten::Device(aten::DeviceType::CPU);
};

inline TensorPtrMaker for_blob(void* data, std::vector<aten::SizesType> sizes,
                               aten::ScalarType type = aten::ScalarType::Float) {
  return TensorPtrMaker(data, std::move(sizes), type);
}

inline TensorPtr from_blob(void* data, std::vector<aten::SizesType> sizes,
                           aten::ScalarType type = aten::ScalarType::Float,
                           aten::TensorShapeDynamism dynamism = aten::TensorShapeDynamism::DYNAMIC_BOUND) {
  return for_blob(data, std::move(sizes), type).dynamism(dynamism);
}

inline TensorPtr from_blob(void* data, std::vector<aten::SizesType> sizes,
                           aten::ScalarType type, std::function<void(void*)>&& deleter,
                           aten::TensorShapeDynamism dynamism = aten::TensorShapeDynamism::DYNAMIC_BOUND) {
  return for_blob(data, std::move(sizes), type).deleter(std::move(deleter)).dynamism(dynamism);
}

inline TensorPtr from_blob(void* data, std::vector<aten::SizesType> sizes,
                           aten::ScalarType type, aten::Device device,
                           aten::TensorShapeDynamism dynamism = aten::TensorShapeDynamism::DYNAMIC_BOUND) {
  return for_blob(data, std::move(sizes), type).device(device).dynamism(dynamism);
}

inline TensorPtr from_blob(void* data, std::vector<aten::SizesType> sizes,
                           aten::ScalarType type, aten::Device device, std::function<void(void*)>&& deleter,
                           aten::TensorShapeDynamism dynamism = aten::TensorShapeDynamism::DYNAMIC_BOUND) {
  return for_blob(data, std::move(sizes), type).device(device).deleter(std::move(deleter)).dynamism(dynamism);
}

inline TensorPtr from_blob(void* data, std::vector<aten::SizesType> sizes, std::vector<aten::StridesType> strides,
                           aten::ScalarType type = aten::ScalarType::Float,
                           aten::TensorShapeDynamism dynamism = aten::TensorShapeDynamism::DYNAMIC_BOUND) {
  return for_blob(data, std::move(sizes), type).strides(std::move(strides)).dynamism(dynamism);
}

inline TensorPtr from_blob(void* data, std::vector<aten::SizesType> sizes, std::vector<aten::StridesType> strides,
                           aten::ScalarType type, std::function<void(void*)>&& deleter,
                           aten::TensorShapeDynamism dynamism = aten::TensorShapeDynamism::DYNAMIC_BOUND) {
  return for_blob(data, std::move(sizes), type).strides(std::move(strides)).deleter(std::move(deleter)).dynamism(dynamism);
}

inline TensorPtr from_blob(void* data, std::vector<aten::SizesType> sizes, std::vector<aten::StridesType> strides,
                           aten::ScalarType type, aten::Device device,
                           aten::TensorShapeDynamism dynamism = aten::TensorShapeDynamism::DYNAMIC_BOUND) {
  return for_blob(data, std::move(sizes), type).strides(std::move(strides)).device(device).dynamism(dynamism);
}

inline TensorPtr from_blob(void* data, std::vector<aten::SizesType> sizes, std::vector<aten::StridesType> strides,
                           aten::ScalarType type, aten::Device device, std::function<void(void*)>&& deleter,
                           aten::TensorShapeDynamism dynamism = aten::TensorShapeDynamism::DYNAMIC_BOUND) {
  return for_blob(data, std::move(sizes), type).strides(std::move(strides)).device(device).deleter(std::move(deleter)).dynamism(dynamism);
}

namespace internal {

// Fills a tensor with what `next` gives for each element.
template <typename Next>
TensorPtr filled(std::vector<aten::SizesType> sizes, std::vector<aten::StridesType> strides, aten::ScalarType type,
                 aten::TensorShapeDynamism dynamism, Next&& next) {
  std::vector<uint8_t> data(nbytes_of(sizes, type));
  auto tensor = make_tensor_ptr(std::move(sizes), std::move(data), {}, std::move(strides), type, dynamism);
  with_type(type, [&](auto element) {
    using T = decltype(element);
    std::generate_n(tensor->template mutable_data_ptr<T>(), tensor->numel(), [&] { return static_cast<T>(next(T{})); });
  });
  return tensor;
}

// Converts a scalar to a type. Ends the process for a value that the type cannot represent.
template <typename T>
T number(aten::Scalar scalar) {
  if constexpr (std::is_same_v<T, bool>) {
    ET_CHECK_MSG(scalar.isIntegral(/*include_bool=*/true), "the fill value is not a bool");
    return scalar.isBoolean() ? scalar.to<bool>() : scalar.to<int64_t>() != 0;
  } else if constexpr (std::is_integral_v<T>) {
    ET_CHECK_MSG(scalar.isIntegral(/*include_bool=*/false), "the fill value is not an int");
    const auto value = scalar.to<int64_t>();
    const bool fits = std::is_same_v<T, uint64_t>
                          ? value >= 0
                          : value >= static_cast<int64_t>(std::numeric_limits<T>::lowest()) &&
                                value <= static_cast<int64_t>(std::numeric_limits<T>::max());
    ET_CHECK_MSG(fits, "the fill value is outside of the type's range");
    return static_cast<T>(value);
  } else {
    ET_CHECK_MSG(!scalar.isBoolean(), "the fill value is a bool");
    const double value = scalar.isFloatingPoint() ? scalar.to<double>() : static_cast<double>(scalar.to<int64_t>());
    const bool fits = !std::isfinite(value) || (value >= static_cast<double>(std::numeric_limits<T>::lowest()) &&
                                                value <= static_cast<double>(std::numeric_limits<T>::max()));
    ET_CHECK_MSG(fits, "the fill value is outside of the type's range");
    return static_cast<T>(value);
  }
}

inline std::default_random_engine random_engine() { return std::default_random_engine(std::random_device{}()); }

}  // namespace internal

// Zeros.
inline TensorPtr empty_strided(std::vector<aten::SizesType> sizes, std::vector<aten::StridesType> strides,
                               aten::ScalarType type = aten::ScalarType::Float,
                               aten::TensorShapeDynamism dynamism = aten::TensorShapeDynamism::DYNAMIC_BOUND) {
  return internal::filled(std::move(sizes), std::move(strides), type, dynamism, [](auto zero) { return zero; });
}

inline TensorPtr empty(std::vector<aten::SizesType> sizes, aten::ScalarType type = aten::ScalarType::Float,
                      aten::TensorShapeDynamism dynamism = aten::TensorShapeDynamism::DYNAMIC_BOUND) {
  return empty_strided(std::move(sizes), {}, type, dynamism);
}

// The same, with the sizes and the dim order of another tensor, and its type if none is given.
inline TensorPtr empty_like(const TensorPtr& other, aten::ScalarType type = aten::ScalarType::Undefined,
                           aten::TensorShapeDynamism dynamism = aten::TensorShapeDynamism::DYNAMIC_BOUND) {
  return empty_strided({other->sizes().begin(), other->sizes().end()}, {other->strides().begin(), other->strides().end()},
                       type == aten::ScalarType::Undefined ? other->scalar_type() : type, dynamism);
}

// All elements have this value.
inline TensorPtr full_strided(std::vector<aten::SizesType> sizes, std::vector<aten::StridesType> strides, aten::Scalar value,
                               aten::ScalarType type = aten::ScalarType::Float,
                               aten::TensorShapeDynamism dynamism = aten::TensorShapeDynamism::DYNAMIC_BOUND) {
  return internal::filled(std::move(sizes), std::move(strides), type, dynamism,
                          [&](auto zero) { return internal::number<decltype(zero)>(value); });
}

inline TensorPtr full(std::vector<aten::SizesType> sizes, aten::Scalar value, aten::ScalarType type = aten::ScalarType::Float,
                      aten::TensorShapeDynamism dynamism = aten::TensorShapeDynamism::DYNAMIC_BOUND) {
  return full_strided(std::move(sizes), {}, value, type, dynamism);
}

// The same, with the sizes and the dim order of another tensor, and its type if none is given.
inline TensorPtr full_like(const TensorPtr& other, aten::Scalar value, aten::ScalarType type = aten::ScalarType::Undefined,
                           aten::TensorShapeDynamism dynamism = aten::TensorShapeDynamism::DYNAMIC_BOUND) {
  return full_strided({other->sizes().begin(), other->sizes().end()}, {other->strides().begin(), other->strides().end()}, value,
                       type == aten::ScalarType::Undefined ? other->scalar_type() : type, dynamism);
}

// Random numbers from 0 to below 1.
inline TensorPtr rand_strided(std::vector<aten::SizesType> sizes, std::vector<aten::StridesType> strides,
                               aten::ScalarType type = aten::ScalarType::Float,
                               aten::TensorShapeDynamism dynamism = aten::TensorShapeDynamism::DYNAMIC_BOUND) {
  auto engine = internal::random_engine();
  // Excludes values that round to 1.
  float bound = 1.0f;
  if (type == aten::ScalarType::Half) {
    bound -= static_cast<float>(std::numeric_limits<aten::Half>::epsilon()) / 2;
  } else if (type == aten::ScalarType::BFloat16) {
    bound -= static_cast<float>(std::numeric_limits<aten::BFloat16>::epsilon()) / 2;
  }
  std::uniform_real_distribution<float> uniform(0.0f, bound);
  return internal::filled(std::move(sizes), std::move(strides), type, dynamism, [&](auto) { return uniform(engine); });
}

inline TensorPtr rand(std::vector<aten::SizesType> sizes, aten::ScalarType type = aten::ScalarType::Float,
                      aten::TensorShapeDynamism dynamism = aten::TensorShapeDynamism::DYNAMIC_BOUND) {
  return rand_strided(std::move(sizes), {}, type, dynamism);
}

// The same, with the sizes and the dim order of another tensor, and its type if none is given.
inline TensorPtr rand_like(const TensorPtr& other, aten::ScalarType type = aten::ScalarType::Undefined,
                           aten::TensorShapeDynamism dynamism = aten::TensorShapeDynamism::DYNAMIC_BOUND) {
  return rand_strided({other->sizes().begin(), other->sizes().end()}, {other->strides().begin(), other->strides().end()},
                       type == aten::ScalarType::Undefined ? other->scalar_type() : type, dynamism);
}

// Random numbers with the mean 0 and the deviation 1.
inline TensorPtr randn_strided(std::vector<aten::SizesType> sizes, std::vector<aten::StridesType> strides,
                               aten::ScalarType type = aten::ScalarType::Float,
                               aten::TensorShapeDynamism dynamism = aten::TensorShapeDynamism::DYNAMIC_BOUND) {
  auto engine = internal::random_engine();
  std::normal_distribution<float> normal;
  return internal::filled(std::move(sizes), std::move(strides), type, dynamism, [&](auto) { return normal(engine); });
}

inline TensorPtr randn(std::vector<aten::SizesType> sizes, aten::ScalarType type = aten::ScalarType::Float,
                      aten::TensorShapeDynamism dynamism = aten::TensorShapeDynamism::DYNAMIC_BOUND) {
  return randn_strided(std::move(sizes), {}, type, dynamism);
}

// The same, with the sizes and the dim order of another tensor, and its type if none is given.
inline TensorPtr randn_like(const TensorPtr& other, aten::ScalarType type = aten::ScalarType::Undefined,
                           aten::TensorShapeDynamism dynamism = aten::TensorShapeDynamism::DYNAMIC_BOUND) {
  return randn_strided({other->sizes().begin(), other->sizes().end()}, {other->strides().begin(), other->strides().end()},
                       type == aten::ScalarType::Undefined ? other->scalar_type() : type, dynamism);
}

// Random integers from `low` to below `high`.
inline TensorPtr randint_strided(int64_t low, int64_t high, std::vector<aten::SizesType> sizes, std::vector<aten::StridesType> strides,
                               aten::ScalarType type = aten::ScalarType::Int,
                               aten::TensorShapeDynamism dynamism = aten::TensorShapeDynamism::DYNAMIC_BOUND) {
  auto engine = internal::random_engine();
  std::uniform_int_distribution<int64_t> uniform(low, high - 1);
  return internal::filled(std::move(sizes), std::move(strides), type, dynamism, [&](auto) { return uniform(engine); });
}

inline TensorPtr randint(int64_t low, int64_t high, std::vector<aten::SizesType> sizes, aten::ScalarType type = aten::ScalarType::Int,
                      aten::TensorShapeDynamism dynamism = aten::TensorShapeDynamism::DYNAMIC_BOUND) {
  return randint_strided(low, high, std::move(sizes), {}, type, dynamism);
}

// The same, with the sizes and the dim order of another tensor, and its type if none is given.
inline TensorPtr randint_like(const TensorPtr& other, int64_t low, int64_t high, aten::ScalarType type = aten::ScalarType::Undefined,
                           aten::TensorShapeDynamism dynamism = aten::TensorShapeDynamism::DYNAMIC_BOUND) {
  return randint_strided(low, high, {other->sizes().begin(), other->sizes().end()}, {other->strides().begin(), other->strides().end()},
                       type == aten::ScalarType::Undefined ? other->scalar_type() : type, dynamism);
}

inline TensorPtr ones(std::vector<aten::SizesType> sizes, aten::ScalarType type = aten::ScalarType::Float,
                      aten::TensorShapeDynamism dynamism = aten::TensorShapeDynamism::DYNAMIC_BOUND) {
  return full(std::move(sizes), 1, type, dynamism);
}

inline TensorPtr ones_like(const TensorPtr& other, aten::ScalarType type = aten::ScalarType::Undefined,
                           aten::TensorShapeDynamism dynamism = aten::TensorShapeDynamism::DYNAMIC_BOUND) {
  return full_like(other, 1, type, dynamism);
}

inline TensorPtr zeros(std::vector<aten::SizesType> sizes, aten::ScalarType type = aten::ScalarType::Float,
                      aten::TensorShapeDynamism dynamism = aten::TensorShapeDynamism::DYNAMIC_BOUND) {
  return full(std::move(sizes), 0, type, dynamism);
}

inline TensorPtr zeros_like(const TensorPtr& other, aten::ScalarType type = aten::ScalarType::Undefined,
                           aten::TensorShapeDynamism dynamism = aten::TensorShapeDynamism::DYNAMIC_BOUND) {
  return full_like(other, 0, type, dynamism);
}

inline TensorPtr scalar_tensor(aten::Scalar value, aten::ScalarType type = aten::ScalarType::Float) {
  return full({}, value, type);
}

}  // namespace extension
}  // namespace executorch
