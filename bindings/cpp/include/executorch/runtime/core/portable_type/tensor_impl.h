// The sizes, dim order and data of a tensor. It owns none of them.

#pragma once

#include <executorch/runtime/core/array_ref.h>
#include <executorch/runtime/core/error.h>
#include <executorch/runtime/core/portable_type/device.h>
#include <executorch/runtime/core/portable_type/scalar_type.h>
#include <executorch/runtime/core/result.h>
#include <executorch/runtime/core/tensor_shape_dynamism.h>

#include <sys/types.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace executorch {
namespace runtime {

// Bytes of an element; 0 for types without one in C++.
inline size_t elementSize(etensor::ScalarType type) {
  switch (type) {
#define RUSHLIGHT_SIZE(type, name, number) \
  case etensor::ScalarType::name:          \
    return sizeof(type);
    RUSHLIGHT_FORALL_ELEMENTS(RUSHLIGHT_SIZE)
#undef RUSHLIGHT_SIZE
    case etensor::ScalarType::ComplexHalf:
      return 4;
    case etensor::ScalarType::ComplexFloat:
      return 8;
    case etensor::ScalarType::ComplexDouble:
      return 16;
    default:
      return 0;
  }
}

// Strides of a dense tensor with this dim order. Dimensions without elements count as one. Errors: `InvalidArgument` for an order that
// is not a permutation.
template <typename Sizes, typename DimOrder, typename Strides>
Error dim_order_to_stride(const Sizes* sizes, const DimOrder* dim_order, size_t rank, Strides* strides) {
  int64_t stride = 1;
  for (size_t i = rank; i-- > 0;) {
    const auto dim = static_cast<size_t>(dim_order[i]);
    ET_CHECK_OR_RETURN_ERROR(dim < rank, InvalidArgument, "dim_order has %zu, for %zu dimensions", dim, rank);
    ET_CHECK_OR_RETURN_ERROR(std::count(dim_order, dim_order + rank, dim_order[i]) == 1, InvalidArgument,
                             "dim_order has %zu more than once", dim);
    strides[dim] = static_cast<Strides>(stride);
    stride *= std::max<int64_t>(sizes[dim], 1);
  }
  return Error::Ok;
}

namespace etensor {

// The number of elements. Errors: `InvalidArgument` for a negative rank or size, and for a number that overflows.
inline Result<ssize_t> safe_numel(const int32_t* sizes, ssize_t rank) {
  ET_CHECK_OR_RETURN_ERROR(rank >= 0, InvalidArgument, "the rank is %zd", rank);
  ET_CHECK_OR_RETURN_ERROR(rank == 0 || sizes != nullptr, InvalidArgument, "sizes are NULL");
  ssize_t numel = 1;
  for (ssize_t i = 0; i < rank; ++i) {
    ET_CHECK_OR_RETURN_ERROR(sizes[i] >= 0, InvalidArgument, "the size of dimension %zd is %d", i, sizes[i]);
    ET_CHECK_OR_RETURN_ERROR(sizes[i] == 0 || numel <= PTRDIFF_MAX / sizes[i], InvalidArgument,
                             "the tensor has more elements than can be counted");
    numel *= sizes[i];
  }
  return numel;
}

// Like `safe_numel`, but errors end the process.
inline ssize_t compute_numel(const int32_t* sizes, ssize_t rank) { return safe_numel(sizes, rank).get(); }

class TensorImpl {
 public:
  using SizesType = int32_t;
  using DimOrderType = uint8_t;
  using StridesType = int32_t;

  TensorImpl(ScalarType type, ssize_t dim, SizesType* sizes, void* data = nullptr, DimOrderType* dim_order = nullptr,
             StridesType* strides = nullptr, TensorShapeDynamism dynamism = TensorShapeDynamism::STATIC,
             DeviceType device_type = DeviceType::CPU, DeviceIndex device_index = 0)
      : sizes_(sizes),
        dim_order_(dim_order),
        strides_(strides),
        data_(data),
        dim_(dim),
        numel_(compute_numel(sizes, dim)),
        bound_(numel_),
        type_(type),
        dynamism_(dynamism),
        device_(device_type, device_index) {}

  size_t nbytes() const { return static_cast<size_t>(numel_) * elementSize(type_); }
  ssize_t size(ssize_t dim) const {
    ET_CHECK_MSG(dim >= 0 && dim < dim_, "dimension %zd of a tensor of %zd", dim, dim_);
    return sizes_[dim];
  }
  ssize_t dim() const { return dim_; }
  ssize_t numel() const { return numel_; }
  ScalarType scalar_type() const { return type_; }
  ScalarType dtype() const { return type_; }
  ssize_t element_size() const { return static_cast<ssize_t>(elementSize(type_)); }
  ArrayRef<SizesType> sizes() const { return {sizes_, static_cast<size_t>(dim_)}; }
  // Empty for a tensor without strides.
  ArrayRef<DimOrderType> dim_order() const { return {dim_order_, dim_order_ == nullptr ? 0 : static_cast<size_t>(dim_)}; }
  ArrayRef<StridesType> strides() const { return {strides_, strides_ == nullptr ? 0 : static_cast<size_t>(dim_)}; }
  TensorShapeDynamism shape_dynamism() const { return dynamism_; }
  Device device() const { return device_; }
  DeviceType device_type() const { return device_.type(); }
  DeviceIndex device_index() const { return device_.index(); }

  template <typename T>
  const T* data() const {
    return static_cast<const T*>(data_);
  }
  const void* data() const { return data_; }
  template <typename T>
  T* mutable_data() const {
    return static_cast<T*>(data_);
  }
  void* mutable_data() const { return data_; }
  void set_data(void* data) { data_ = data; }

  // Errors: `NotSupported` for another rank, for new sizes of a static tensor, and for more elements than the bound.
  Error resize(ArrayRef<SizesType> sizes) {
    ET_CHECK_OR_RETURN_ERROR(static_cast<ssize_t>(sizes.size()) == dim_, NotSupported,
                             "a tensor of %zd dimensions cannot have %zu", dim_, sizes.size());
    if (std::equal(sizes.begin(), sizes.end(), sizes_)) {
      return Error::Ok;
    }
    ET_CHECK_OR_RETURN_ERROR(dynamism_ != TensorShapeDynamism::STATIC, NotSupported,
                             "the sizes of a static tensor do not change");
    const auto numel = safe_numel(sizes.data(), dim_);
    if (!numel.ok()) {
      return numel.error();
    }
    ET_CHECK_OR_RETURN_ERROR(*numel <= bound_, NotSupported, "the tensor has room for %zd elements, not for %zd", bound_,
                             *numel);
    std::copy(sizes.begin(), sizes.end(), sizes_);
    numel_ = *numel;
    if (strides_ == nullptr || dim_order_ == nullptr) {
      return Error::Ok;
    }
    return dim_order_to_stride(sizes_, dim_order_, static_cast<size_t>(dim_), strides_);
  }

 private:
  SizesType* sizes_;
  DimOrderType* dim_order_;
  StridesType* strides_;
  void* data_;
  ssize_t dim_;
  ssize_t numel_;
  ssize_t bound_;
  ScalarType type_;
  TensorShapeDynamism dynamism_;
  Device device_;
};

}  // namespace etensor
}  // namespace runtime
}  // namespace executorch

namespace torch {
namespace executor {
using ::executorch::runtime::etensor::compute_numel;
using ::executorch::runtime::etensor::safe_numel;
using ::executorch::runtime::etensor::TensorImpl;
}  // namespace executor
}  // namespace torch
