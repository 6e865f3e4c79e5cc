// Tensors that own their sizes. They own their data if that was moved into them.

#pragma once

#include <executorch/runtime/core/exec_aten/util/scalar_type_util.h>

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

namespace executorch {
namespace extension {

using TensorPtr = std::shared_ptr<aten::Tensor>;

namespace internal {

// The memory that a tensor refers to. It lives as long as the last `TensorPtr` of the tensor.
struct TensorStorage final {
  std::vector<aten::SizesType> sizes;
  std::vector<aten::DimOrderType> dim_order;
  std::vector<aten::StridesType> strides;
  std::function<void(void*)> deleter;
  aten::TensorImpl impl;
  aten::Tensor tensor;

  TensorStorage(std::vector<aten::SizesType> sizes_, std::vector<aten::DimOrderType> dim_order_,
                std::vector<aten::StridesType> strides_, void* data, aten::ScalarType type,
                aten::TensorShapeDynamism dynamism, aten::Device device, std::function<void(void*)> deleter_)
      : sizes(std::move(sizes_)),
        dim_order(std::move(dim_order_)),
        strides(std::move(strides_)),
        deleter(std::move(deleter_)),
        impl(type, static_cast<ssize_t>(sizes.size()), sizes.data(), data, dim_order.data(), strides.data(),
             sizes.empty() ? aten::TensorShapeDynamism::STATIC : dynamism, device.type(), device.index()),
        tensor(&impl) {}
  TensorStorage(const TensorStorage&) = delete;
  TensorStorage& operator=(const TensorStorage&) = delete;
  ~TensorStorage() {
    if (deleter) {
      deleter(impl.mutable_data());
    }
  }
};

inline size_t nbytes_of(const std::vector<aten::SizesType>& sizes, aten::ScalarType type) {
  const auto numel = aten::safe_numel(sizes.data(), static_cast<ssize_t>(sizes.size()));
  ET_CHECK_MSG(numel.ok(), "a tensor cannot have these sizes");
  const size_t width = aten::elementSize(type);
  ET_CHECK_MSG(width == 0 || static_cast<size_t>(*numel) <= SIZE_MAX / width, "the tensor has more bytes than can be counted");
  return static_cast<size_t>(*numel) * width;
}

// Calls `work` with a value of the C++ type of the elements. Ends the process for types without one.
template <typename Work>
void with_type(aten::ScalarType type, Work&& work) {
  ET_CHECK_MSG(runtime::with_element_type(type, std::forward<Work>(work)), "elements of the type %d are not supported",
               static_cast<int>(type));
}

}  // namespace internal

// Makes a tensor over the caller's data, which must live until `deleter` is called. `dim_order` follows from the strides if it is empty;
// without both, the tensor is row-major. As in all of these functions, invalid arguments end the process.
inline TensorPtr make_tensor_ptr(std::vector<aten::SizesType> sizes, void* data, std::vector<aten::DimOrderType> dim_order,
                                 std::vector<aten::StridesType> strides, aten::ScalarType type = aten::ScalarType::Float,
                                 aten::TensorShapeDynamism dynamism = aten::TensorShapeDynamism::DYNAMIC_BOUND,
                                 std::function<void(void*)> deleter = nullptr,
                                 aten::Device device = aten::Device(aten::DeviceType::CPU)) {
  const size_t rank = sizes.size();
  ET_CHECK_MSG(dim_order.empty() || dim_order.size() == rank, "dim_order has %zu dimensions, the sizes have %zu",
               dim_order.size(), rank);
  ET_CHECK_MSG(strides.empty() || strides.size() == rank, "there are %zu strides and %zu sizes", strides.size(), rank);
  if (dim_order.empty()) {
    dim_order.resize(rank);
    std::iota(dim_order.begin(), dim_order.end(), aten::DimOrderType{0});
    if (!strides.empty()) {
      std::stable_sort(dim_order.begin(), dim_order.end(), [&](size_t a, size_t b) { return strides[a] > strides[b]; });
    }
  }
  std::vector<aten::StridesType> computed(rank);
  ET_CHECK_MSG(runtime::dim_order_to_stride(sizes.data(), dim_order.data(), rank, computed.data()) == runtime::Error::Ok,
               "dim_order does not fit the sizes");
  for (size_t dim = 0; dim < strides.size(); ++dim) {
    ET_CHECK_MSG(strides[dim] == computed[dim] || sizes[dim] == 1,
                 "the stride of dimension %zu is %d; without gaps it is %d", dim, strides[dim], computed[dim]);
  }
  auto storage = std::make_shared<internal::TensorStorage>(std::move(sizes), std::move(dim_order), std::move(computed), data,
                                                           type, dynamism, device, std::move(deleter));
  aten::Tensor* tensor = &storage->tensor;
  return TensorPtr(std::move(storage), tensor);
}

inline TensorPtr make_tensor_ptr(std::vector<aten::SizesType> sizes, void* data,
                                 aten::ScalarType type = aten::ScalarType::Float,
                                 aten::TensorShapeDynamism dynamism = aten::TensorShapeDynamism::DYNAMIC_BOUND,
                                 std::function<void(void*)> deleter = nullptr,
                                 aten::Device device = aten::Device(aten::DeviceType::CPU)) {
  return make_tensor_ptr(std::move(sizes), data, {}, {}, type, dynamism, std::move(deleter), device);
}

// The overload of ExecuTorch 1.5, where the device precedes the last arguments.
inline TensorPtr make_tensor_ptr(std::vector<aten::SizesType> sizes, void* data, std::vector<aten::DimOrderType> dim_order,
                                 std::vector<aten::StridesType> strides, aten::ScalarType type, aten::Device device,
                                 aten::TensorShapeDynamism dynamism = aten::TensorShapeDynamism::DYNAMIC_BOUND,
                                 std::function<void(void*)> deleter = nullptr) {
  return make_tensor_ptr(std::move(sizes), data, std::move(dim_order), std::move(strides), type, dynamism,
                         std::move(deleter), device);
}

inline TensorPtr make_tensor_ptr(std::vector<aten::SizesType> sizes, void* data, aten::ScalarType type, aten::Device device,
                                 aten::TensorShapeDynamism dynamism = aten::TensorShapeDynamism::DYNAMIC_BOUND,
                                 std::function<void(void*)> deleter = nullptr) {
  return make_tensor_ptr(std::move(sizes), data, {}, {}, type, dynamism, std::move(deleter), device);
}

// A tensor that owns these bytes.
inline TensorPtr make_tensor_ptr(std::vector<aten::SizesType> sizes, std::vector<uint8_t> data,
                                 std::vector<aten::DimOrderType> dim_order, std::vector<aten::StridesType> strides,
                                 aten::ScalarType type = aten::ScalarType::Float,
                                 aten::TensorShapeDynamism dynamism = aten::TensorShapeDynamism::DYNAMIC_BOUND) {
  const size_t nbytes = internal::nbytes_of(sizes, type);
  ET_CHECK_MSG(data.size() == nbytes, "the tensor has %zu bytes, the data %zu", nbytes, data.size());
  auto owned = std::make_shared<std::vector<uint8_t>>(std::move(data));
  void* bytes = owned->data();
  return make_tensor_ptr(std::move(sizes), bytes, std::move(dim_order), std::move(strides), type, dynamism,
                         [owned](void*) {});
}

inline TensorPtr make_tensor_ptr(std::vector<aten::SizesType> sizes, std::vector<uint8_t> data,
                                 aten::ScalarType type = aten::ScalarType::Float,
                                 aten::TensorShapeDynamism dynamism = aten::TensorShapeDynamism::DYNAMIC_BOUND) {
  return make_tensor_ptr(std::move(sizes), std::move(data), {}, {}, type, dynamism);
}

// A tensor that owns these elements, cast to another type if one is given.
template <typename T = float, aten::ScalarType deduced = runtime::CppTypeToScalarType<T>::value>
inline TensorPtr make_tensor_ptr(std::vector<aten::SizesType> sizes, std::vector<T> data,
                                 std::vector<aten::DimOrderType> dim_order = {},
                                 std::vector<aten::StridesType> strides = {}, aten::ScalarType type = deduced,
                                 aten::TensorShapeDynamism dynamism = aten::TensorShapeDynamism::DYNAMIC_BOUND) {
  const size_t nbytes = internal::nbytes_of(sizes, deduced);
  ET_CHECK_MSG(data.size() * sizeof(T) == nbytes, "the data have %zu elements, the tensor %zu", data.size(),
               nbytes / sizeof(T));
  if (type == deduced) {
    std::vector<uint8_t> bytes;
    if constexpr (std::is_same_v<T, bool>) {
      bytes.assign(data.begin(), data.end());
    } else {
      auto owned = std::make_shared<std::vector<T>>(std::move(data));
      void* elements = owned->data();
      return make_tensor_ptr(std::move(sizes), elements, std::move(dim_order), std::move(strides), type, dynamism,
                             [owned](void*) {});
    }
    return make_tensor_ptr(std::move(sizes), std::move(bytes), std::move(dim_order), std::move(strides), type, dynamism);
  }
  ET_CHECK_MSG(runtime::canCast(deduced, type), "%s is not cast to %s", runtime::toString(deduced), runtime::toString(type));
  std::vector<uint8_t> cast(data.size() * aten::elementSize(type));
  internal::with_type(type, [&](auto element) {
    using To = decltype(element);
    std::transform(data.begin(), data.end(), reinterpret_cast<To*>(cast.data()),
                   [](const T& value) { return static_cast<To>(value); });
  });
  return make_tensor_ptr(std::move(sizes), std::move(cast), std::move(dim_order), std::move(strides), type, dynamism);
}

// A tensor of one dimension.
template <typename T = float, aten::ScalarType deduced = runtime::CppTypeToScalarType<T>::value>
inline TensorPtr make_tensor_ptr(std::vector<T> data, aten::ScalarType type = deduced,
                                 aten::TensorShapeDynamism dynamism = aten::TensorShapeDynamism::DYNAMIC_BOUND) {
  std::vector<aten::SizesType> sizes{static_cast<aten::SizesType>(data.size())};
  return make_tensor_ptr(std::move(sizes), std::move(data), {0}, {1}, type, dynamism);
}

template <typename T = float, aten::ScalarType deduced = runtime::CppTypeToScalarType<T>::value>
inline TensorPtr make_tensor_ptr(std::vector<aten::SizesType> sizes, std::initializer_list<T> list,
                                 std::vector<aten::DimOrderType> dim_order = {},
                                 std::vector<aten::StridesType> strides = {}, aten::ScalarType type = deduced,
                                 aten::TensorShapeDynamism dynamism = aten::TensorShapeDynamism::DYNAMIC_BOUND) {
  return make_tensor_ptr(std::move(sizes), std::vector<T>(list), std::move(dim_order), std::move(strides), type, dynamism);
}

template <typename T = float, aten::ScalarType deduced = runtime::CppTypeToScalarType<T>::value>
inline TensorPtr make_tensor_ptr(std::initializer_list<T> list, aten::ScalarType type = deduced,
                                 aten::TensorShapeDynamism dynamism = aten::TensorShapeDynamism::DYNAMIC_BOUND) {
  return make_tensor_ptr(std::vector<T>(list), type, dynamism);
}

// A tensor of no dimensions.
template <typename T>
inline TensorPtr make_tensor_ptr(T value) {
  return make_tensor_ptr(std::vector<aten::SizesType>{}, std::vector<T>{value});
}

// A tensor over the data of another one, which has to outlive it, with other sizes or in another order if they are given.
inline TensorPtr make_tensor_ptr(const aten::Tensor& tensor, std::vector<aten::SizesType> sizes = {},
                                 std::vector<aten::DimOrderType> dim_order = {},
                                 std::vector<aten::StridesType> strides = {}, std::function<void(void*)> deleter = nullptr) {
  if (sizes.empty()) {
    sizes.assign(tensor.sizes().begin(), tensor.sizes().end());
  }
  const auto numel = aten::safe_numel(sizes.data(), static_cast<ssize_t>(sizes.size()));
  ET_CHECK_MSG(numel.ok() && *numel <= tensor.numel(), "a view has more elements than the %zd of the tensor", tensor.numel());
  if (dim_order.empty() && strides.empty() && sizes.size() == static_cast<size_t>(tensor.dim())) {
    dim_order.assign(tensor.dim_order().begin(), tensor.dim_order().end());
  }
  return make_tensor_ptr(std::move(sizes), tensor.mutable_data_ptr(), std::move(dim_order), std::move(strides),
                         tensor.scalar_type(), tensor.shape_dynamism(), std::move(deleter), tensor.device());
}

// Like the function above, and keeps the data of the other tensor alive.
inline TensorPtr make_tensor_ptr(const TensorPtr& tensor, std::vector<aten::SizesType> sizes = {},
                                 std::vector<aten::DimOrderType> dim_order = {},
                                 std::vector<aten::StridesType> strides = {}) {
  return make_tensor_ptr(*tensor, std::move(sizes), std::move(dim_order), std::move(strides), [tensor](void*) {});
}

// A copy, cast to another type if one is given.
inline TensorPtr clone_tensor_ptr(const aten::Tensor& tensor, aten::ScalarType type) {
  std::vector<aten::SizesType> sizes(tensor.sizes().begin(), tensor.sizes().end());
  std::vector<aten::DimOrderType> dim_order(tensor.dim_order().begin(), tensor.dim_order().end());
  std::vector<aten::StridesType> strides(tensor.strides().begin(), tensor.strides().end());
  const void* data = tensor.const_data_ptr();
  const auto dynamism = tensor.shape_dynamism();
  if (data == nullptr) {
    return make_tensor_ptr(std::move(sizes), static_cast<void*>(nullptr), std::move(dim_order), std::move(strides), type,
                           dynamism);
  }
  const auto from = tensor.scalar_type();
  const auto numel = static_cast<size_t>(tensor.numel());
  std::vector<uint8_t> copy(numel * aten::elementSize(type));
  if (from == type) {
    std::copy_n(static_cast<const uint8_t*>(data), copy.size(), copy.begin());
  } else {
    ET_CHECK_MSG(runtime::canCast(from, type), "%s is not cast to %s", runtime::toString(from), runtime::toString(type));
    internal::with_type(from, [&](auto read) {
      internal::with_type(type, [&](auto written) {
        using To = decltype(written);
        const auto* elements = static_cast<const decltype(read)*>(data);
        std::transform(elements, elements + numel, reinterpret_cast<To*>(copy.data()),
                       [](const auto& value) { return static_cast<To>(value); });
      });
    });
  }
  return make_tensor_ptr(std::move(sizes), std::move(copy), std::move(dim_order), std::move(strides), type, dynamism);
}

inline TensorPtr clone_tensor_ptr(const aten::Tensor& tensor) { return clone_tensor_ptr(tensor, tensor.scalar_type()); }
inline TensorPtr clone_tensor_ptr(const TensorPtr& tensor, aten::ScalarType type) { return clone_tensor_ptr(*tensor, type); }
inline TensorPtr clone_tensor_ptr(const TensorPtr& tensor) { return clone_tensor_ptr(*tensor); }

template <typename Tensor, typename... Device>
TensorPtr clone_tensor_ptr_to(const Tensor&, Device...) {
  static_assert(rushlight::is_served<Tensor>,
                "rushlight: tensors are in the memory of the CPU: clone_tensor_ptr copies one, backends copy for their devices");
  return nullptr;
}

// Errors: `NotSupported` for more elements than the tensor was made with, and for another rank.
ET_NODISCARD inline runtime::Error resize_tensor_ptr(TensorPtr& tensor, const std::vector<aten::SizesType>& sizes) {
  return runtime::resize_tensor(*tensor, {sizes.data(), sizes.size()});
}

}  // namespace extension
}  // namespace executorch
