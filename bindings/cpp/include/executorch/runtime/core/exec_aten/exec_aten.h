// The types of tensors under their common names, `executorch::aten`.

#pragma once

#ifdef USE_ATEN_LIB
#error "rushlight: USE_ATEN_LIB is not served: tensors of at:: are given with executorch::extension::from_blob"
#endif

#include <executorch/runtime/core/array_ref.h>
#include <executorch/runtime/core/portable_type/device.h>
#include <executorch/runtime/core/portable_type/reduced_float.h>
#include <executorch/runtime/core/portable_type/scalar.h>
#include <executorch/runtime/core/portable_type/scalar_type.h>
#include <executorch/runtime/core/portable_type/tensor.h>
#include <executorch/runtime/core/tensor_shape_dynamism.h>

#include <optional>
#include <string_view>

#define ET_RUNTIME_NAMESPACE runtime

namespace executorch {
namespace aten {

using ::executorch::runtime::ArrayRef;
using ::executorch::runtime::elementSize;
using ::executorch::runtime::TensorShapeDynamism;
using ::executorch::runtime::etensor::BFloat16;
using ::executorch::runtime::etensor::compute_numel;
using ::executorch::runtime::etensor::Device;
using ::executorch::runtime::etensor::DeviceIndex;
using ::executorch::runtime::etensor::DeviceType;
using ::executorch::runtime::etensor::Half;
using ::executorch::runtime::etensor::safe_numel;
using ::executorch::runtime::etensor::Scalar;
using ::executorch::runtime::etensor::ScalarType;
using ::executorch::runtime::etensor::Tensor;
using ::executorch::runtime::etensor::TensorImpl;
using std::nullopt;
using std::nullopt_t;
using std::optional;
using std::string_view;
using SizesType = TensorImpl::SizesType;
using DimOrderType = TensorImpl::DimOrderType;
using StridesType = TensorImpl::StridesType;
using TensorList = ArrayRef<Tensor>;

}  // namespace aten
}  // namespace executorch

namespace exec_aten {
using namespace ::executorch::aten;
}  // namespace exec_aten
